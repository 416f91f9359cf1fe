"""Optimisers: the equations by hand, which parameters decay, and equal bits in equal runs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from foveate.config import kinds
from foveate.train.optim import AdamConfig, AdamWConfig, OptimizerConfig, SGDConfig, decay_groups
from tolerances import ROW, near


class Little(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.hidden = nn.Linear(3, 3)
        self.norm = nn.LayerNorm(3)
        self.output = nn.Linear(3, 5)
        self.output.weight = self.embedding.weight


def one_weight(value: float, gradient: float) -> tuple[nn.Linear, Tensor]:
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(value)
    model.weight.grad = torch.full((1, 1), gradient)
    return model, model.weight


def test_adamw_spares_biases_norms_and_embeddings_even_tied_ones() -> None:
    model = Little()
    groups = decay_groups(model, 0.1)
    names = {id(p): name for name, p in model.named_parameters()}
    decayed, spared = ({names[id(p)] for p in group["params"]} for group in groups)
    assert decayed == {"hidden.weight"}
    assert spared == set(names.values()) - decayed
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]


def test_frozen_parameters_are_left_out() -> None:
    model = Little()
    model.hidden.weight.requires_grad = False
    assert [group["weight_decay"] for group in decay_groups(model, 0.1)] == [0.0]


def test_adam_takes_the_step_of_its_equation() -> None:
    model, weight = one_weight(1.0, 0.5)
    optimizer = AdamConfig(lr=0.1, betas=(0.9, 0.98), eps=1e-9).build(model)
    optimizer.step()
    assert weight.item() == near(1.0 - 0.1, terms=ROW)  # m̂/√v̂ = g/|g| at first
    weight.grad = torch.full((1, 1), -1.0)
    optimizer.step()
    m = (0.9 * 0.1 * 0.5 + 0.1 * -1) / (1 - 0.9**2)
    v = (0.98 * 0.02 * 0.25 + 0.02 * 1) / (1 - 0.98**2)
    assert weight.item() == near(0.9 - 0.1 * m / v**0.5)


def test_adamw_decays_apart_from_the_gradient() -> None:
    model, weight = one_weight(2.0, 0.0)
    AdamWConfig(lr=0.1, weight_decay=0.5).build(model).step()
    assert weight.item() == pytest.approx(2.0 * (1 - 0.1 * 0.5))


def test_sgd_with_momentum() -> None:
    model, weight = one_weight(1.0, 0.5)
    optimizer = SGDConfig(lr=0.1, momentum=0.9).build(model)
    optimizer.step()
    optimizer.step()
    assert weight.item() == pytest.approx(1.0 - 0.1 * 0.5 - 0.1 * (0.9 * 0.5 + 0.5))


@pytest.mark.parametrize("kind", sorted(kinds("optimizer")["optimizer"]))
def test_equal_gradients_give_equal_bits_and_the_steps_are_fused(kind: str) -> None:
    results = []
    for _ in range(2):
        torch.manual_seed(1)
        model = nn.Linear(67, 43)
        optimizer = OptimizerConfig.parse(kind).build(model)
        for _ in range(5):
            for parameter in model.parameters():
                parameter.grad = torch.randn_like(parameter)
            optimizer.step()
        assert optimizer.param_groups[0]["fused"]
        results.append(model.weight.detach().clone())
    assert torch.equal(*results)
