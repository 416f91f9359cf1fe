"""Laws of the fused losses: value and gradients are PyTorch's, whatever the chunks."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from foveate.nn import loss
from foveate.nn.loss import linear_cross_entropy
from foveate.tasks.objectives import CrossEntropy
from tolerances import LAYER, MODEL, close

N, D, V = 13, 8, 11
smoothings = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])


def inputs(scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    hidden = (scale * torch.randn(N, D)).requires_grad_()
    return hidden, torch.randn(V, D, requires_grad=True), torch.randint(V, (N,))


def both(smoothing: float, hidden: Tensor, weight: Tensor, target: Tensor) -> list[list[Tensor]]:
    """Loss, NLL and gradients: ours, and PyTorch's over whole logits."""
    total, nll = linear_cross_entropy(hidden, weight, target, smoothing)
    logits = hidden @ weight.T
    expected = F.cross_entropy(logits, target, reduction="sum", label_smoothing=smoothing)
    plain = F.cross_entropy(logits, target, reduction="sum")
    return [
        [loss.detach(), sum_.detach().float(), *torch.autograd.grad(3 * loss, (hidden, weight))]
        for loss, sum_ in ((total, nll), (expected, plain))
    ]


@smoothings
@pytest.mark.parametrize("scale", [1, 300])  # large logits do not overflow
@pytest.mark.parametrize("chunk", [1, V, 2 * V + 3, 13 * V - 1, 13 * V, 10**6])
def test_equals_cross_entropy_over_whole_logits(smoothing, scale, chunk, monkeypatch) -> None:
    monkeypatch.setattr(loss, "CHUNK", chunk)
    monkeypatch.setattr(loss, "EVEN", 1)  # otherwise all rows are one chunk
    for ours, theirs in zip(*both(smoothing, *inputs(scale)), strict=True):
        assert bool(ours.isfinite().all())
        close(ours, theirs, terms=MODEL if scale > 1 else LAYER)


@smoothings
def test_the_objective_adds_the_bias_and_counts_its_terms(smoothing: float) -> None:
    hidden, weight, target = inputs()
    bias = torch.randn(V, requires_grad=True)
    total = CrossEntropy.Config(label_smoothing=smoothing).build()(hidden, weight, target, bias)
    logits = hidden @ weight.T + bias
    expected = F.cross_entropy(logits, target, reduction="sum", label_smoothing=smoothing)
    parameters = (hidden, weight, bias)
    ours, theirs = (torch.autograd.grad(loss, parameters) for loss in (total.total, expected))
    close([total.total, *ours], [expected, *theirs])
    assert total.count == N
    nll = F.cross_entropy(logits, target, reduction="sum")
    close(total.logged["nll"].float(), nll.detach())


@smoothings
def test_half_precision_is_near(smoothing: float) -> None:
    hidden, weight, target = inputs()
    with torch.autocast("cpu", torch.bfloat16):
        total, nll = linear_cross_entropy(hidden, weight, target, smoothing)
    grads = torch.autograd.grad(total, (hidden, weight))
    exact, exact_nll = linear_cross_entropy(hidden, weight, target, smoothing)
    assert [grad.dtype for grad in grads] == [torch.float32] * 2
    torch.testing.assert_close(total, exact, rtol=0.02, atol=0.1)
    torch.testing.assert_close(nll, exact_nll, rtol=0.02, atol=0.1)
    for grad, expected in zip(grads, torch.autograd.grad(exact, (hidden, weight)), strict=True):
        assert float((grad - expected).norm() / expected.norm()) < 0.03


@pytest.mark.parametrize("frozen", ["hidden", "weight"])
def test_what_is_frozen_gets_no_gradient(frozen: str) -> None:
    hidden, weight, target = inputs()
    (hidden if frozen == "hidden" else weight).requires_grad_(False)
    total, nll = linear_cross_entropy(hidden, weight, target, 0.1)
    total.backward()
    assert (hidden.grad is None, weight.grad is None) == (frozen == "hidden", frozen == "weight")
    assert not nll.requires_grad


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_validation_forms_no_gradients(mode: type[torch.no_grad]) -> None:
    hidden, weight, target = inputs()
    with mode(), FlopCounterMode(display=False) as counter:
        total, _ = linear_cross_entropy(hidden, weight, target, 0.0)
    assert not total.requires_grad
    assert counter.get_total_flops() == 2 * N * D * V, "one product: the logits"


def test_no_targets_no_loss() -> None:
    hidden, weight, target = inputs()
    total, nll = linear_cross_entropy(hidden[:0], weight, target[:0], 0.1)
    total.backward()
    assert float(total.detach()) == float(nll) == 0.0
    assert not bool(weight.grad.any())
