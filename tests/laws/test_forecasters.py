"""Laws of forecasters, over every kind, every norm of a window, and every encoder of patches."""

from typing import Any

import pytest
import torch
from torch import Tensor

from foveate.config import kinds
from foveate.models.forecaster import (
    After,
    Forecaster,
    LinearForecaster,
    Mix,
    Outlook,
    Patch,
    WindowNorm,
)
from foveate.models.mamba import MambaEncoder
from foveate.models.recurrent import RecurrentEncoder
from foveate.nn.embedding import SeriesPatches
from foveate.nn.spec import Series
from foveate.tasks.objectives import CrossEntropy, Objective
from foveate.tasks.teacher_forcing import LinearDecay, OwnOutput, Predictions, Scheduled
from laws.conftest import changed, check_saved, defaults, each, gradients_reach, shrink
from tolerances import MODEL, close, differ

LENGTH, STEPS, CHANNELS, FEATURES = 20, 6, 3, 2
SERIES = Series(CHANNELS, LENGTH)
PATCHES = SeriesPatches.Config(size=6, stride=4)


def _forecasters() -> dict[str, Forecaster.Config]:
    result: dict[str, Any] = {
        name: shrink(config())
        for name, config in kinds("model")["model"].items()
        if issubclass(config, Forecaster.Config)
    }
    for name, norm in defaults("window_norm").items():
        for kind in ("patch_forecaster", "rnn_forecaster", "linear_forecaster"):
            result[f"{kind} {name}"] = changed(result[kind], window_norm=norm)
    patch = result["patch_forecaster"]
    for encoder in (MambaEncoder, RecurrentEncoder):
        own = shrink(encoder.Config(stem=PATCHES))
        result[f"patches {own.kind}"] = changed(patch, encoder=own)
    steps = changed(patch.encoder, stem=SeriesPatches.Config(size=1, stride=1))
    result["steps"] = changed(patch, encoder=steps)
    result["trend"] = LinearForecaster.Config(trend_window=5)
    for name, cell in defaults("cell").items():
        result[f"rnn {name}"] = changed(result["rnn_forecaster"], cell=cell, num_layers=2)
    return result


FORECASTERS = _forecasters()


@pytest.fixture(params=FORECASTERS.values(), ids=FORECASTERS)
def config(request: pytest.FixtureRequest) -> Any:
    return request.param


def build(config: Forecaster.Config, levels: int = 1) -> Forecaster:
    torch.manual_seed(0)
    return config.build(SERIES, Outlook(STEPS, FEATURES, levels)).eval()


def rows(batch: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    values = torch.randn(batch, LENGTH, CHANNELS).cumsum(dim=1)
    calendar = torch.rand(batch, LENGTH + STEPS, FEATURES) - 0.5
    return values, calendar, torch.randn(batch, STEPS, CHANNELS)


@torch.no_grad()
@pytest.mark.parametrize("levels", [1, 3])
def test_every_channel_and_level_of_every_step(config: Forecaster.Config, levels: int) -> None:
    values, calendar, expected = rows()
    model = build(config, levels)
    assert model(values, calendar).shape == (4, STEPS, CHANNELS, levels)
    output, truth = model.teach(values, calendar, expected)
    assert output.shape == (*truth.shape, levels)
    assert torch.equal(truth[:, -STEPS:], expected)


@torch.no_grad()
def test_rows_of_a_batch_do_not_see_each_other(config: Forecaster.Config) -> None:
    (values, calendar, _), model = rows(), build(config)
    close(model(values[2:], calendar[2:]), model(values, calendar)[2:])


@torch.no_grad()
def test_free_running_reads_its_own_predictions(config: Forecaster.Config) -> None:
    """Given its own forecast as the truth, a taught model says that forecast."""
    (values, calendar, expected), model = rows(), build(config)
    free = model(values, calendar)
    taught, other = (model.teach(values, calendar, w)[0] for w in (free[..., 0], expected))
    close(taught[:, -STEPS:], free)
    assert differ(other[:, -STEPS:], free, terms=MODEL) == model.feeds_back


@torch.no_grad()
def test_a_taught_prediction_does_not_see_what_it_predicts(config: Forecaster.Config) -> None:
    values, calendar, expected = rows()
    model, other = build(config), expected.clone()
    other[:, 3:] += 1.0
    before, after = (model.teach(values, calendar, w)[0][:, -STEPS:] for w in (expected, other))
    assert torch.equal(before[:, :4], after[:, :4])


OWN, NEVER = OwnOutput.Config(), LinearDecay.Config(start=0.0, floor=0.0, slope=0.0)


@torch.no_grad()
@pytest.mark.parametrize("forcing", [OWN, Scheduled.Config(schedule=NEVER)], ids=["own", "never"])
def test_own_rows_in_training_are_those_of_use(config, forcing) -> None:
    """Reading none of the truth, a model in training says what it says in use."""
    values, calendar, expected = rows()
    model, objective = build(config, 3), CrossEntropy.Config(teacher_forcing=forcing).build()
    own, truth = model.teach(values, calendar, expected, own_rows(objective))
    close(own[:, -STEPS:], model(values, calendar))
    assert torch.equal(truth, model.teach(values, calendar, expected)[1])


def own_rows(objective: Objective) -> Mix:
    """What the objective lets a forecaster read of its own."""

    def mix(x: Tensor, after: After) -> Tensor:
        own = Predictions(lambda read, _: after(read), prompt=LENGTH)
        return objective.read(lambda: own, x)

    return mix


def gradients(config: Forecaster.Config, mix: Mix | None) -> list[Tensor]:
    values, calendar, expected = rows()
    model = build(config)
    model.teach(values, calendar, expected, mix)[0].square().sum().backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


def test_probability_zero_of_own_rows_is_teacher_forcing_bit_for_bit(config) -> None:
    certain = Scheduled.Config(schedule=LinearDecay.Config(slope=0.0))
    objective = CrossEntropy.Config(teacher_forcing=certain).build()
    assert all(map(torch.equal, gradients(config, None), gradients(config, own_rows(objective))))


def test_no_gradient_flows_into_the_rows_that_are_read(config: Forecaster.Config) -> None:
    """Own rows give the gradient that the same rows give as data."""
    mix = own_rows(CrossEntropy.Config(teacher_forcing=OWN).build())
    seen: list[Tensor] = []
    own = gradients(config, lambda x, after: seen.append(mix(x, after)) or seen[0])  # type: ignore[func-returns-value]
    fixed = gradients(config, lambda x, after: seen[0].detach())
    assert all(map(torch.equal, own, fixed))
    assert not any(x.requires_grad for x in seen)


def test_every_parameter_receives_a_gradient(config: Forecaster.Config) -> None:
    values, calendar, expected = rows()
    model = build(config)
    output, truth = model.teach(values, calendar, expected)
    (output[..., 0] - truth).square().sum().backward()
    gradients_reach(model, "encoder.position.table.weight")  # places past the last patch


@torch.no_grad()
@pytest.mark.parametrize("name", [n for n in defaults("window_norm") if n != "none"])
def test_a_normed_window_knows_no_level(name: str) -> None:
    values, calendar, _ = rows()
    for kind in ("patch_forecaster", "rnn_forecaster", "linear_forecaster"):
        model = build(FORECASTERS[f"{kind} {name}"])
        lifted = model(values + 7, calendar)
        close(lifted, model(values, calendar) + 7, terms=MODEL)


@torch.no_grad()
@each("window_norm")
def test_a_window_norm_is_undone(config: WindowNorm.Config) -> None:
    values, norm = rows()[0], config.build()
    of = norm.statistics(values)
    undone = norm.leave(norm.enter(values, of)[..., None], of)
    close(undone[..., 0], values)


@torch.no_grad()
def test_a_constant_window_gives_numbers(config: Forecaster.Config) -> None:
    _, calendar, _ = rows()
    assert bool(build(config)(torch.ones(4, LENGTH, CHANNELS), calendar).isfinite().all())


@torch.no_grad()
def test_saved_and_loaded_weights_give_the_same_forecast(config, tmp_path) -> None:
    model = build(config)
    torch.manual_seed(1)
    other = config.build(SERIES, Outlook(STEPS, FEATURES)).eval()
    check_saved(model, other, tmp_path, *rows()[:2])


@torch.no_grad()
def test_channels_of_a_patch_forecaster_are_independent() -> None:
    values, calendar, _ = rows()
    model, other = build(FORECASTERS["patch_forecaster"]), values.clone()
    other[..., 0] += torch.randn(4, LENGTH)
    before, after = model(values, calendar), model(other, calendar)
    assert differ(before[:, :, 0], after[:, :, 0])
    close(before[:, :, 1:], after[:, :, 1:])


@torch.no_grad()
def test_patches_by_hand() -> None:
    stem = SeriesPatches.Config(size=4, stride=2).build(Series(1, 7), 4)
    stem.project.weight.copy_(torch.eye(4))
    stem.project.bias.zero_()
    result = stem(torch.arange(7.0)[None, :, None])[0]
    expected = [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 6]]
    assert result.tolist() == expected
    assert stem.starts() == [0, 2, 4]
    with pytest.raises(ValueError, match="a patch of 16 steps does not fit into 4"):
        SeriesPatches.Config().build(Series(1, 4), 8)


@torch.no_grad()
def test_a_linear_forecaster_by_hand() -> None:
    model = LinearForecaster.Config(trend_window=3).build(Series(1, 4), Outlook(1))
    for part in (model.rest, model.trend):
        part.weight.zero_()
        part.bias.zero_()
    model.trend.weight[0, 1] = 1.0  # the forecast is the moving average around the second value
    values = torch.tensor([1.0, 2.0, 6.0, 4.0]).view(1, 4, 1)
    assert model(values, torch.zeros(1, 5, 0)).item() == pytest.approx(3.0)


def test_an_encoder_of_words_is_refused() -> None:
    config = Patch.Config(encoder=shrink(RecurrentEncoder.Config()))
    with pytest.raises(ValueError, match="'tokens' reads tokens, not series; choose another stem"):
        build(config)
