"""Laws of the fused losses: value and gradients are PyTorch's, whatever the chunks."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from foveate.errors import UserError
from foveate.nn import loss
from foveate.nn.loss import linear_cross_entropy, linear_taught
from foveate.tasks.base import Loss
from foveate.tasks.compared import Distillation
from foveate.tasks.objectives import CrossEntropy, Objective
from laws.conftest import MODELS, build, ids, real
from tolerances import MODEL, close

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
@pytest.mark.parametrize("chunk", [1, V, 2 * V + 3, 13 * V - 1, 13 * V, 10**6])
def test_equals_cross_entropy_over_whole_logits(smoothing: float, chunk: int, monkeypatch) -> None:
    monkeypatch.setattr(loss, "CHUNK", chunk)
    monkeypatch.setattr(loss, "EVEN", 1)  # otherwise all rows are one chunk
    for ours, theirs in zip(*both(smoothing, *inputs()), strict=True):
        close(ours, theirs)


@smoothings
def test_the_objective_adds_the_bias(smoothing: float) -> None:
    hidden, weight, target = inputs()
    bias = torch.randn(V, requires_grad=True)
    total = CrossEntropy.Config(label_smoothing=smoothing).build()(hidden, weight, target, bias)
    logits = hidden @ weight.T + bias
    expected = F.cross_entropy(logits, target, reduction="sum", label_smoothing=smoothing)
    parameters = (hidden, weight, bias)
    ours, theirs = (torch.autograd.grad(loss, parameters) for loss in (total.total, expected))
    for item, other in zip((total.total, *ours), (expected, *theirs), strict=True):
        close(item, other)


@smoothings
def test_large_logits_do_not_overflow(smoothing: float) -> None:
    for ours, theirs in zip(*both(smoothing, *inputs(scale=300.0)), strict=True):
        assert bool(ours.isfinite().all())
        close(ours, theirs, terms=MODEL)


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
    assert weight.grad is not None
    assert not bool(weight.grad.any())


def test_the_objective_counts_its_terms() -> None:
    hidden, weight, target = inputs()
    loss = CrossEntropy.Config(label_smoothing=0.1).build()(hidden, weight, target)
    assert loss.count == N
    nll = F.cross_entropy(hidden @ weight.T, target, reduction="sum")
    close(loss.logged["nll"].float(), nll.detach())


@pytest.mark.parametrize("name", ["transformer", "recurrent"])
def test_four_small_batches_equal_one_large(name: str) -> None:
    """Sums add up: 4 × 8 rows, of other lengths each, give the gradient of 1 × 32."""
    model, objective = build(MODELS[name]), CrossEntropy.Config().build()
    source, target = ids(32, 7), ids(32, 6, seed=2)
    lengths = torch.randint(2, 8, (32,)).tolist()
    keys, expected = real(*lengths, 7)[:32], real(*(min(n, 6) for n in lengths), 6)[:32]

    def loss(rows: slice) -> Loss:
        memory = model.encode(source[rows], keys[rows])
        hidden = model.decode(target[rows], memory)[expected[rows]]
        return objective(hidden, model.output.weight, target[rows][expected[rows]])

    def gradient(parts: list[slice]) -> tuple[list[Tensor], int]:
        model.zero_grad()
        losses = [loss(rows) for rows in parts]
        for part in losses:
            part.total.backward()
        grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        return grads, sum(part.count for part in losses)

    whole, count = gradient([slice(0, 32)])
    parts, sum_of_counts = gradient([slice(i, i + 8) for i in range(0, 32, 8)])
    assert count == sum_of_counts == int(expected.sum())
    close(parts, whole, terms=MODEL)


# ---- divergence from teachers
class Problem:
    """A task with a single batch, of which ``forward`` computes the loss of one pass."""

    def __init__(self, forward: Callable[[Any], Loss]) -> None:
        self.forward = forward

    def loss(self, model: nn.Module, batch: None, objective: Objective) -> Loss:
        return self.forward(model)


def tiny(name: str) -> tuple[nn.Module, Callable[[Objective], Loss]]:
    """A model without dropout, and the loss of one batch by an objective."""
    model = build(MODELS[name]).eval()
    source, target, keys = ids(2, 5), ids(2, 3), real(5, 3)

    def loss(objective: CrossEntropy) -> Loss:
        def forward(model: Any) -> Loss:
            hidden = model.decode(target, model.encode(source, keys)).flatten(0, 1)
            return objective(hidden, model.output.weight, target.flatten(), model.output.bias)

        return objective.loss(Problem(forward), model, None)

    return model, loss


@pytest.mark.parametrize("name", ["transformer-tiny", "bahdanau-2015", "luong-2015"])
def test_a_model_learns_nothing_from_itself_and_its_teachers_do_not_learn(name: str) -> None:
    model, loss = tiny(name)
    objective = Distillation.Config(teachers=("a",), weight=0.25).build()
    objective.teachers = [model]
    plain, taught = loss(CrossEntropy.Config().build()), loss(objective)
    close(taught.total, 0.75 * plain.total)
    assert abs(float(taught.logged["divergence"])) < 1e-5
    objective.teachers = [teacher := copy.deepcopy(model)]
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    taught = loss(objective)
    assert float(taught.logged["divergence"]) > 1e-3
    taught.total.backward()
    assert all(p.grad is None for p in teacher.parameters())
    assert any(p.grad is not None for p in model.parameters())


def test_a_model_with_other_scores_is_refused() -> None:
    objective = Distillation.Config(teachers=("a",)).build()
    objective.teachers = []
    with pytest.raises(UserError, match="use cross_entropy"):
        objective.loss(Problem(lambda model: Loss(torch.zeros(()), 1)), nn.Module(), None)


def taught(logits: Tensor, teachers: list[Tensor]) -> Tensor:
    """Σ KL(p̄‖p), from whole logits."""
    mean = torch.stack([each.softmax(dim=1) for each in teachers]).mean(dim=0)
    return (mean * (mean.log() - logits.log_softmax(dim=1))).sum()


@pytest.mark.parametrize("chunk", [1, 2 * V + 3, 10**6])
def test_the_divergence_from_teachers_equals_that_of_whole_logits(chunk: int, monkeypatch) -> None:
    monkeypatch.setattr(loss, "CHUNK", chunk)
    monkeypatch.setattr(loss, "EVEN", 1)
    hidden, weight, _ = inputs()
    teachers = [(torch.randn(N, size), torch.randn(V, size)) for size in (D, 2 * D)]
    ours = linear_taught(hidden, weight, teachers)
    theirs = taught(hidden @ weight.T, [h @ w.T for h, w in teachers])
    close(ours, theirs)
    gradients = (torch.autograd.grad(3 * total, (hidden, weight)) for total in (ours, theirs))
    for gradient, expected in zip(*gradients, strict=True):
        close(gradient, expected, terms=MODEL)


def test_distillation_is_cross_entropy_and_the_divergence_from_the_teachers() -> None:
    hidden, weight, target = inputs()
    objective = Distillation.Config(teachers=("a", "b"), weight=0.3).build()
    objective.teachers = [nn.Module(), nn.Module()]
    biases = [torch.randn(V) for _ in range(3)]
    vectors = [torch.randn(N, D), torch.randn(N, D), hidden]
    passes = iter(zip(vectors, biases, strict=True))

    def forward(model: nn.Module) -> Loss:
        h, bias = next(passes)
        return objective(h, weight, target, bias)

    ours = objective.loss(Problem(forward), nn.Module(), None)
    *others, own = [h @ weight.T + bias for h, bias in zip(vectors, biases, strict=True)]
    entropy = F.cross_entropy(own, target, reduction="sum", label_smoothing=0.1)
    close(ours.total, 0.7 * entropy + 0.3 * taught(own, others))
    close(ours.logged["divergence"], taught(own, others))
    close(ours.logged["nll"].float(), F.cross_entropy(own, target, reduction="sum"))
