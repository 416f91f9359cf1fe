"""Normalisers against independent computations of the same definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from foveate.nn.scores import Entmax15, Hardmax, Normalizer, Softmax, Sparsemax
from laws.conftest import each
from tolerances import MODEL, ROW, close, rounding

Row = NDArray[np.float64]
rows = st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=9).map(np.array)


def bisect(scores: Row, power: float, scale: float) -> Row:
    """[scale · e − τ]₊^power, τ found by halving an interval in which the sum passes 1."""
    z = scale * scores.astype(np.float64)
    low, high = z.max() - 1, z.max()
    for _ in range(100):
        middle = (low + high) / 2
        total = (np.maximum(z - middle, 0) ** power).sum()
        low, high = (middle, high) if total >= 1 else (low, middle)
    result: Row = np.maximum(z - low, 0) ** power
    return result


def given_by(normalizer: Normalizer, scores: Row) -> Row:
    result: Row = normalizer(torch.tensor(scores, dtype=torch.float32)).numpy()
    return result


@given(rows)
def test_sparsemax_is_the_projection_onto_the_simplex(scores: Row) -> None:
    result = given_by(Sparsemax.Config().build(), scores)
    close(result, bisect(scores, 1, 1.0))


@given(rows, st.integers(0, 2**32 - 1))
def test_no_point_of_the_simplex_is_nearer_than_sparsemax(scores: Row, seed: int) -> None:
    """The definition itself, against random weights."""
    result = given_by(Sparsemax.Config().build(), scores)
    others = np.random.default_rng(seed).dirichlet(np.full(len(scores), 0.5), size=200)
    nearest = np.square(others - scores).sum(axis=1).min()
    assert np.square(result - scores).sum() <= nearest + 1e-4


@given(rows)
def test_entmax_is_what_bisection_finds(scores: Row) -> None:
    result = given_by(Entmax15.Config().build(), scores)
    close(result, bisect(scores, 2, 0.5))


def test_cold_softmax_is_hardmax() -> None:
    scores = torch.randn(4, 3, 7)
    hard = Hardmax.Config().build()(scores)
    assert torch.equal(hard.sum(dim=-1), torch.ones(4, 3))
    assert torch.equal(hard.argmax(dim=-1), scores.argmax(dim=-1))
    distances = [
        float((Softmax.Config(temperature=t).build()(scores) - hard).abs().max())
        for t in (1.0, 0.1, 0.01, 1e-4)
    ]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < rounding(ROW)


def test_hardmax_passes_the_gradient_of_softmax_on() -> None:
    scores, change = torch.randn(2, 5, requires_grad=True), torch.randn(2, 5)
    (result,) = torch.autograd.grad(Hardmax.Config().build()(scores), scores, change)
    (expected,) = torch.autograd.grad(scores.softmax(dim=-1), scores, change)
    close(result, expected)


@pytest.mark.parametrize("config", [Sparsemax.Config(), Entmax15.Config()], ids=lambda c: c.kind)
def test_the_gradient_is_the_slope_of_the_weights(config: Normalizer.Config) -> None:
    normalizer = config.build()
    for seed in range(5):
        torch.manual_seed(seed)
        scores, change = torch.randn(3, 6, requires_grad=True), torch.randn(3, 6)
        (result,) = torch.autograd.grad(normalizer(scores), scores, change)

        def along(step: Tensor, scores: Tensor = scores, change: Tensor = change) -> Tensor:
            return (normalizer(scores.detach() + step) * change).sum()

        for place in np.ndindex(3, 6):
            step = torch.zeros(3, 6)
            step[place] = 1e-3
            slope = (along(step) - along(-step)) / 2e-3
            assert abs(float(slope - result[place])) < 0.03


@each("normalizer")
def test_masked_scores_get_exactly_nothing(config: Normalizer.Config) -> None:
    scores = torch.randn(20, 8)
    hidden = torch.rand(20, 8) < 0.5
    hidden[:, 3] = False
    weights = config.build()(scores.masked_fill(hidden, -torch.inf))
    assert bool((weights[hidden] == 0).all())
    close(weights.sum(dim=-1), torch.ones(20))
    for row in range(20):
        alone = config.build()(scores[row][~hidden[row]])
        close(weights[row][~hidden[row]], alone)


@each("normalizer")
def test_gradients_with_masked_scores_are_numbers(config: Normalizer.Config) -> None:
    scores = torch.randn(20, 8)
    scores[:, ::2] = -torch.inf
    scores.requires_grad_()
    config.build()(scores).square().sum().backward()
    assert scores.grad is not None
    assert bool(scores.grad.isfinite().all())
    assert bool((scores.grad[:, ::2] == 0).all())


@each("normalizer")
def test_adding_a_constant_changes_nothing(config: Normalizer.Config) -> None:
    scores = torch.randn(5, 8)
    normalizer = config.build()
    close(normalizer(scores + 100), normalizer(scores), terms=MODEL)


def test_sparse_normalisers_leave_out_what_softmax_keeps() -> None:
    scores = torch.tensor([3.0, 2.5, 1.8, -2.0])
    soft, between, sparse = (
        c.build()(scores) for c in (Softmax.Config(), Entmax15.Config(), Sparsemax.Config())
    )
    assert int((soft > 0).sum()) == 4
    assert int((between > 0).sum()) == 3
    assert int((sparse > 0).sum()) == 2
    close(sparse, torch.tensor([0.75, 0.25, 0.0, 0.0]))
