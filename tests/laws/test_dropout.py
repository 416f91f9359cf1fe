"""Laws of dropout: mean, rate, one mask for both ways, repeatable, absent in use."""

import pytest
import torch

from foveate.nn.linear import Dropout
from tolerances import close

RATES = pytest.mark.parametrize("p", [0.01, 0.1, 0.25, 0.3, 0.5, 0.9])
COUNT = 400_000


@RATES
def test_the_mean_is_kept_and_the_rate_is_right(p: float) -> None:
    dropped = Dropout(p)(torch.ones(COUNT))
    rate = float((dropped == 0).float().mean())
    noise = 5 * (p * (1 - p) / COUNT) ** 0.5
    assert p - 1 / 256 - noise < rate < p + noise
    saved = dropped[dropped != 0]
    assert float(saved.min()) == float(saved.max())
    exact = int(256 * p) / 256
    assert float(saved[0]) == pytest.approx(1 / (1 - exact))
    assert float(dropped.mean()) == pytest.approx(1.0, abs=noise / (1 - p))


@RATES
def test_each_element_falls_by_itself(p: float) -> None:
    fallen = (Dropout(p)(torch.ones(COUNT // 8, 8)) == 0).float()
    noise = 6 * (8 / COUNT) ** 0.5
    correlation = fallen.T.corrcoef() - torch.eye(8)
    assert float(correlation.abs().max()) < noise
    assert float((fallen.mean(dim=0) - fallen.mean()).abs().max()) < noise


def test_the_backward_uses_the_mask_of_the_forward() -> None:
    x = torch.randn(50, 7, requires_grad=True)
    dropped = Dropout(0.3)(x)
    dropped.backward(torch.full_like(x, 2.0))
    assert torch.equal(x.grad == 0, dropped == 0)
    close(x.grad * x.detach(), 2 * dropped.detach())


def test_a_seed_repeats_it() -> None:
    dropout, x = Dropout(0.4), torch.ones(1000)
    torch.manual_seed(3)
    first = dropout(x)
    assert not torch.equal(dropout(x), first)
    torch.manual_seed(3)
    assert torch.equal(dropout(x), first)


def test_dropout_in_eval_mode_is_the_identity() -> None:
    x = torch.randn(5, 3)
    assert Dropout(0.4).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_every_shape_views_and_half_precision() -> None:
    x = torch.ones(64, 32, dtype=torch.bfloat16)
    shapes = [torch.ones(shape) for shape in ((), (1,), (7,), (0, 4))]
    for view in (*shapes, x.T, x[::2], x[:, 3:9], x.expand(2, 64, 32)):
        dropped = Dropout(0.5)(view)
        assert dropped.dtype == view.dtype and dropped.shape == view.shape
        assert bool(((dropped == 0) | (dropped == 2)).all())
        if view.numel() > 7:
            assert 0.3 < float((dropped == 0).float().mean()) < 0.7
    assert bool((x == 1).all()), "the input is left alone"
