"""Figures of forecasts against numbers worked out by hand and known ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foveate.tasks.forecasting import (
    AbsoluteError,
    QuantileError,
    SquaredError,
    coverage,
    crps,
    mae,
    mase,
    mse,
    naive_error,
    pinball,
)
from tolerances import MODEL, close, near

WANTED = np.array([1.0, 2.0, 4.0]).reshape(1, 3, 1)
SAID = np.array([2.0, 2.0, 1.0]).reshape(1, 3, 1)
LEVELS = (0.1, 0.5, 0.9)


def test_squared_and_absolute_error() -> None:
    assert mse(SAID, WANTED) == pytest.approx((1 + 0 + 9) / 3)
    assert mae(SAID, WANTED) == pytest.approx((1 + 0 + 3) / 3)


def test_the_naive_error_of_a_season() -> None:
    history = np.array([[1.0], [4.0], [2.0], [6.0]])
    assert naive_error(history).tolist() == [pytest.approx((3 + 2 + 4) / 3)]
    assert naive_error(history, season=2).tolist() == [pytest.approx((1 + 2) / 2)]
    with pytest.raises(ValueError, match=r"task.season = 4 needs more than 4 rows"):
        naive_error(history, season=4)


def test_mase_is_relative_to_the_naive_error_of_each_channel() -> None:
    output, expected = np.zeros((2, 3, 3)), np.ones((2, 3, 3))
    assert mase(output, expected, np.array([2.0, 0.5, 0.0])) == pytest.approx((0.5 + 2) / 2)
    assert np.isnan(mase(output, expected, np.zeros(3)))


def test_pinball_and_crps_by_hand() -> None:
    quantiles = np.array([0.0, 1.0, 3.0]).reshape(1, 1, 1, 3)
    expected = np.full((1, 1, 1), 2.0)
    close(pinball(quantiles, expected, LEVELS), [0.2, 0.5, 0.1])
    assert crps(quantiles, expected, LEVELS) == pytest.approx(2 * 0.8 / 3)
    assert coverage(quantiles, expected) == 1
    assert coverage(quantiles, expected + 2) == 0


def test_crps_of_the_median_alone_is_the_mae() -> None:
    assert crps(SAID[..., None], WANTED, [0.5]) == pytest.approx(mae(SAID, WANTED))


def test_crps_of_many_quantiles_is_that_of_the_normal_distribution() -> None:
    levels = (np.arange(2000) + 0.5) / 2000
    normal = torch.distributions.Normal(0.0, 1.0)
    quantiles = normal.icdf(torch.tensor(levels)).numpy().reshape(1, 1, 1, -1)
    at_zero = np.sqrt(2 / np.pi) - 1 / np.sqrt(np.pi)  # Gneiting & Raftery (2007), equation 21
    assert crps(quantiles, np.zeros((1, 1, 1)), levels) == near(at_zero, terms=MODEL)


def test_objectives_sum_what_the_figures_average() -> None:
    output, expected = torch.tensor(SAID)[..., None], torch.tensor(WANTED)
    squared = SquaredError.Config().build()(output, expected, ())
    assert (squared.total.item(), squared.count) == (pytest.approx(10), 3)
    assert AbsoluteError.Config().build()(output, expected, ()).total.item() == pytest.approx(4)
    many = torch.randn(2, 3, 1, 3, dtype=torch.float64)
    loss = QuantileError.Config().build()(many, expected.expand(2, 3, 1), LEVELS)
    by_figure = pinball(many.numpy(), expected.expand(2, 3, 1).numpy(), LEVELS).mean()
    assert loss.total.item() / loss.count == pytest.approx(by_figure)


def test_an_objective_that_does_not_fit_says_so() -> None:
    output, expected = torch.zeros(2, 1), torch.zeros(2)
    with pytest.raises(ValueError, match=r"'quantile', but task.quantiles is empty; name them"):
        QuantileError.Config().build()(output, expected, ())
    with pytest.raises(ValueError, match=r'task.quantiles are given; set objective.kind = "quan'):
        SquaredError.Config().build()(output, expected, (0.5,))
