"""Parts that draw: who listens, what they tell, and that REINFORCE climbs."""

import math

import pytest
import torch
from torch import nn

from foveate.models.vision import GaussianPlace, Glimpse, Retina
from foveate.nn.normalizers import HardChoice, Sampled, choices
from foveate.nn.spec import Labels, Pixels, Tokens
from foveate.tasks.attention_losses import Reinforce, add_choices
from foveate.tasks.base import Loss
from tolerances import close


def test_listeners_are_told_and_forgotten() -> None:
    model = nn.Sequential(Sampled.Config(expected=0.0).build())
    scores = torch.tensor([[[[0.0, -torch.inf, 1.0]]]]).expand(200, 1, 1, 3)
    with choices(model) as made:
        weights = model(scores)
    assert torch.equal(weights.sum(-1), torch.ones(200, 1, 1))
    assert set(weights.unique().tolist()) == {0.0, 1.0}
    assert not weights[..., 1].any(), "a masked key was drawn"
    drawn = (weights * scores.softmax(-1)).sum(-1).log().squeeze(-1)
    close(made[0].log_probability, drawn)
    share = float(weights[..., 2].mean())
    assert abs(share - 1 / (1 + math.exp(-1))) < 0.12
    assert torch.equal(model(scores), scores.softmax(-1))  # nothing is drawn without a listener
    mean = torch.rand(2, 2)
    assert torch.equal(GaussianPlace(0.5)(mean, torch.zeros(2)), mean)


def test_some_queries_keep_the_expectation() -> None:
    sampled = Sampled.Config(expected=0.5).build()
    with choices(sampled) as made:
        weights = sampled(torch.zeros(400, 1, 1, 4))
    saved = (weights == 0.25).all(dim=-1).flatten()
    assert 140 < int(saved.sum()) < 260
    assert torch.equal(made[0].log_probability.flatten() == 0, saved)


def test_the_density_of_a_place() -> None:
    policy, mean = GaussianPlace(0.3), torch.tensor([[0.1, -0.2]] * 5, requires_grad=True)
    with choices(policy) as made:
        place = policy(mean, torch.zeros(5))
    assert not place.requires_grad
    expected = torch.distributions.Normal(mean, 0.3).log_prob(place).sum(dim=1)
    close(made[0].log_probability, expected)


def test_reinforce_climbs_towards_the_reward() -> None:
    policy, mean = GaussianPlace(0.2), nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.Adam([mean], lr=0.02)
    goal, objective = torch.tensor([0.5, -0.4]), Reinforce.Config().build()
    for _ in range(150):
        with choices(policy) as made:
            place = policy(mean.expand(64, 2), torch.zeros(64))
        reward = -(place - goal).square().sum(dim=1)
        made = [HardChoice(made[0].log_probability, reward.mean().expand(64))]
        loss = add_choices(Loss(torch.zeros(()), 64), made, reward, objective)
        optimizer.zero_grad()
        (loss.total / 64).backward()
        optimizer.step()
    assert float((mean.detach() - goal).abs().max()) < 0.12


def test_the_retina_sees_sharp_in_the_middle_and_wide_around() -> None:
    pixels = torch.arange(64.0).view(1, 1, 8, 8)
    retina = Retina(patch_size=2, scales=2)
    pyramid = retina.pyramid(pixels)
    seen = retina(pyramid, torch.zeros(1, 2))
    close(seen[0, 0, 0], pixels[0, 0, 3:5, 3:5])
    expected = nn.functional.avg_pool2d(pixels[:, :, 2:6, 2:6], 2)[0, 0]
    close(seen[0, 1, 0], expected)
    right = retina(pyramid, torch.tensor([[0.5, 0.0]]))  # 2 pixels to the right
    close(right[0, 0, 0], pixels[0, 0, 3:5, 5:7])


def test_what_a_glimpse_cannot_read_is_refused() -> None:
    labels = Labels(("a", "b"))
    with pytest.raises(ValueError, match=r"multiples of 4, not 30×32: lower model\.scales"):
        Glimpse.Config().build(Pixels(1, 30, 32), labels)
    with pytest.raises(ValueError, match="a glimpse model reads pixels, not tokens"):
        Glimpse.Config().build(Tokens(9), labels)
