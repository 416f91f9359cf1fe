"""Forecasting from CSV to CSV: nothing of the future is seen; figures, forecasts, pictures."""

import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from foveate.cli import app
from foveate.config import ConfigError
from foveate.data.catalogue import DataError
from foveate.look.views import find
from foveate.look.views.options import Question
from foveate.models.forecaster import Forecaster, LinearForecaster, Patch, Recurrent
from foveate.models.transformer import TransformerEncoder
from foveate.nn.embedding import SeriesPatches
from foveate.run import Run, RunConfig, load, passes
from foveate.run.answering import forecast, forecast_at
from foveate.run.baselines import ridge_regression
from foveate.run.evaluation import examples
from foveate.run.training import train
from foveate.tasks.forecasting import (
    Forecasting,
    QuantileError,
    SquaredError,
    coverage,
    crps,
    mae,
    mase,
    mse,
    naive_error,
    naive_forecasts,
    pinball,
)
from tolerances import MODEL, close, near

# ---- Forecasting from CSV to CSV: nothing of the future is seen; figures, forecasts, pictures
DAYS, LOOK_BACK, HORIZON = 120, 16, 5
TRAIN = {"batch_tokens": 16 * (LOOK_BACK + HORIZON), "max_steps": 4, "save": {"best": "mse"}}
TRAIN |= {"validation": {"every": 2, "samples": 1}}
STEM = SeriesPatches.Config(size=4, stride=4)
SIZES: dict[str, Any] = {"hidden_size": 16, "num_layers": 1, "ffn_size": 16, "dropout": 0.0}
SMALL = TransformerEncoder.Config(**SIZES, stem=STEM)
MODELS: dict[str, Forecaster.Config] = {
    "patch": Patch.Config(encoder=SMALL),
    "rnn": Recurrent.Config(hidden_size=24),
    "linear": LinearForecaster.Config(),
}
each_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def series(path: Path, days: int = DAYS, jump: float = 0.0, since: int = DAYS) -> Path:
    """Two waves of a week, with a jump from some day on."""
    start = np.datetime64("2020-01-01")
    lines = ["date,wave,trend"]
    for day in range(days):
        wave = math.sin(2 * math.pi * day / 7) + (jump if day >= since else 0)
        lines.append(f"{start + day},{wave:.6f},{100 + 0.1 * day + 5 * wave:.6f}")
    path.write_text("\n".join(lines) + "\n")
    return path


def config(path: Path, **fields: Any) -> Forecasting.Config:
    tree = {"path": str(path), "rows": [80, 20, 20]}
    sizes = {"look_back": LOOK_BACK, "horizon": HORIZON, "season": 7, "calendar": ["weekday"]}
    return Forecasting.Config.parse({"kind": "forecasting", "series": tree} | sizes | fields)


def prepared(folder: Path, path: Path, **fields: Any) -> Forecasting:
    folder.mkdir(exist_ok=True)
    task: Forecasting = config(path, **fields).build(None)
    task.prepare(folder, 1)
    return task


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A run of a patch forecaster with quantiles, and one of a recurrent forecaster."""
    folder = tmp_path_factory.mktemp("runs")
    path = series(folder / "waves.csv")
    tasks = {"patch": config(path, quantiles=[0.1, 0.5, 0.9]), "rnn": config(path)}
    trees = {name: {"task": task, "model": MODELS[name]} for name, task in tasks.items()}
    return {
        name: train(RunConfig.parse(tree | {"train": TRAIN}), folder=folder / name)
        for name, tree in trees.items()
    }


def test_scaling_knows_the_training_rows_alone(tmp_path: Path) -> None:
    item = prepared(tmp_path / "a", series(tmp_path / "a.csv"))
    other = prepared(tmp_path / "b", series(tmp_path / "b.csv", jump=50.0, since=80))
    np.testing.assert_array_equal(item.scaling.shift, other.scaling.shift)
    np.testing.assert_array_equal(item.scaling.scale, other.scaling.scale)
    np.testing.assert_array_equal(item.naive, other.naive)
    moved = prepared(tmp_path / "c", series(tmp_path / "c.csv", jump=50.0, since=79))
    assert not np.array_equal(item.scaling.shift, moved.scaling.shift)


@each_model
def test_the_future_changes_no_input_and_no_forecast(tmp_path, model: Forecaster.Config) -> None:
    jump = series(tmp_path / "b.csv", jump=9.0, since=100)  # from the first test row on
    tasks = [prepared(tmp_path / path.stem, path) for path in (series(tmp_path / "a.csv"), jump)]
    batches = [task.batch("test", [0]) for task in tasks]
    assert torch.equal(batches[0].values, batches[1].values)
    assert not torch.equal(batches[0].target, batches[1].target)
    built: Any = tasks[0].build(model).eval()
    assert np.array_equal(*[task.predict(built, task.windows("test"))[0] for task in tasks])


def test_each_split_asks_for_its_own_rows_alone(tmp_path: Path) -> None:
    task = prepared(tmp_path / "a", series(tmp_path / "a.csv"))
    counts = {"train": 80 - LOOK_BACK - HORIZON + 1, "valid": 16, "test": 16}
    for split, (first, end) in {"train": (16, 80), "valid": (80, 100), "test": (100, 120)}.items():
        windows = task.windows(split)
        rows = windows.starts + LOOK_BACK
        assert (len(windows), rows.min(), rows.max()) == (counts[split], first, end - HORIZON)
        assert task.lengths(split).shape == (counts[split], 1)
    with pytest.raises(ConfigError, match="no split 'dev' of a series"):
        task.windows("dev")


def test_what_was_read_is_said(tmp_path: Path) -> None:
    path = series(tmp_path / "a.csv")
    path.write_text(re.sub("2020-01-05,[^,]*", "2020-01-05,", path.read_text()))
    table = {"path": str(path), "rows": [70, 20, 20], "missing": "interpolate"}
    output = prepared(tmp_path / "run", path, series=table).describe_data()
    assert "120 rows from 2020-01-01 to 2020-04-29, channels wave, trend" in output[0]
    assert output[1] == "1 missing values of wave filled in"
    assert output[2] == "train: 2020-01-01 to 2020-03-10, 50 windows"
    assert output[-1] == "10 rows after the test rows are not used"


def test_windows_that_would_span_a_gap_are_left_out_and_counted(tmp_path: Path) -> None:
    path = series(tmp_path / "a.csv")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:40] + lines[43:]))
    with pytest.raises(DataError, match=r"a.csv:41: rows are missing between 2020-02-08 and"):
        prepared(tmp_path / "run", path, series={"path": str(path)})
    split = {"path": str(path), "rows": [77, 20, 20], "gaps": "split"}
    task = prepared(tmp_path / "run", path, series=split)
    first, size = task.windows("train").starts, LOOK_BACK + HORIZON
    assert len(first) == 77 - size + 1 - (size - 1)
    assert not ((first < 39) & (first + size > 39)).any()
    assert task.describe_data()[1].startswith("gaps: 1, the first: ")
    assert "the usual step is 1 day; 20 windows that would span one" in task.describe_data()[1]
    with pytest.raises(ConfigError, match=r"a.csv:41: rows are missing .*no forecast spans it"):
        task.at("2020-02-14")
    far = prepared(tmp_path / "far", path, series=split, horizon=20)
    with pytest.raises(ConfigError, match=r"a.csv:41: rows are missing .*no forecast spans it"):
        far.at("2020-01-23")  # the gap is further ahead than the model looks back
    model: Any = task.build(MODELS["linear"])
    assert forecast(task, model).values.shape == (HORIZON, 2)
    path.write_text("".join(lines[:100] + lines[103:110]))
    with pytest.raises(DataError, match=r"a.csv:101: .* reads 16 rows without a gap"):
        forecast(task, model, path)


@pytest.mark.parametrize(
    ("levels", "objective", "message"),
    [
        ([], None, "squared_error"),
        ([0.1, 0.5, 0.9], None, "quantile"),
        ([], "cross_entropy", r"objective.kind: 'cross_entropy' does not apply to numbers: set"),
        ([], "quantile", r"'quantile', but task.quantiles is empty; name them"),
        ([0.5], "squared_error", r"task.quantiles are given; set objective.kind = \"quantile\""),
    ],
)
def test_an_objective_fits_the_task_or_is_refused(tmp_path, levels, objective, message) -> None:
    tree = {"task": config(tmp_path / "absent.csv", quantiles=levels), "model": MODELS["linear"]}
    parsed = RunConfig.parse(tree | ({} if objective is None else {"objective": objective}))
    if objective is None:
        assert parsed.objective.kind == message
    else:
        with pytest.raises(ValueError, match=message):
            train(parsed, folder=tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = series(tmp_path / "a.csv")
    with pytest.raises(ConfigError, match=r"80 training rows hold no window of 205"):
        prepared(tmp_path / "run", path, look_back=200)
    with pytest.raises(ConfigError, match="no feature 'moon'; there are: hour, weekday"):
        config(path, calendar=["moon"])
    for levels in ([0.1, 0.9], [0.5, 0.1, 0.9], [0.2, 0.4, 0.9], [0.0, 0.5, 1.0]):
        with pytest.raises(ConfigError, match=r"quantiles rise between 0 and 1 with 0\.5"):
            config(path, quantiles=levels)
    assert config(path, quantiles=[0.1, 0.5, 0.9]).quantiles == (0.1, 0.5, 0.9)
    with pytest.raises(ConfigError, match="at most 1 in all"):
        config(path, series={"path": str(path), "shares": [0.8, 0.2, 0.2]})


def test_figures_of_both_roads_and_of_naive_forecasts(trained: dict[str, Run]) -> None:
    result = trained["rnn"].evaluate()
    figures, curves = result.figures, result.curves  # type: ignore[attr-defined]
    names = {"forecast", "teacher_forced", "last_value", "seasonal_naive"}
    assert {name: len(curve) for name, curve in curves.items()} == dict.fromkeys(names, HORIZON)
    assert figures["mse"] == near(np.mean(curves["forecast"]))
    for name in names - {"forecast"}:
        assert figures[f"{name}_mse"] == near(np.mean(curves[name]))
    assert curves["forecast"][0] == near(curves["teacher_forced"][0], terms=MODEL)
    assert figures["seasonal_naive_mse"] < figures["last_value_mse"]  # a wave of seven days
    assert len(result.outputs) == 16
    assert result.outputs[0].startswith("2020-04-10\tmse ")
    assert {"mae", "mase", "original_mse", "original_mae"} <= set(figures)
    assert "crps" not in figures
    assert result.baseline is None  # not asked for


def test_the_baseline_of_a_series_is_a_linear_map(trained: dict[str, Run], tmp_path: Path) -> None:
    task = trained["rnn"].task
    windows = examples(task, "test")
    beside = trained["rnn"].evaluate(baseline=True).baseline
    assert beside is not None and "ridge" in beside.about
    forecast = ridge_regression(task.windows("train"), windows)
    assert beside.figures["mse"] == near(mse(forecast, windows.targets()))
    naive = naive_forecasts(windows, task.config.season)
    assert beside.figures["mse"] < min(mse(f, windows.targets()) for f in naive.values())
    moved = load(shutil.copytree(trained["rnn"].path, tmp_path / "run"))
    own = series(tmp_path / "own.csv", days=LOOK_BACK + HORIZON + 2)
    gone = moved.task.config.series.model_copy(update={"path": str(tmp_path / "gone.csv")})
    moved.task.config = moved.task.config.model_copy(update={"series": gone})
    beside = moved.evaluate(files=[own], baseline=True).baseline
    assert beside is not None and not beside.figures and "gone.csv" in beside.about


def test_figures_of_quantiles(trained: dict[str, Run]) -> None:
    result = trained["patch"].evaluate(split="valid")
    assert {"crps", "coverage"} <= set(result.figures)
    assert "teacher_forced" not in result.curves  # type: ignore[attr-defined]
    assert np.isfinite([result.figures["mse"], result.figures["crps"]]).all()


def test_evaluate_on_a_file(trained: dict[str, Run], tmp_path: Path) -> None:
    own = series(tmp_path / "own.csv", days=LOOK_BACK + HORIZON + 2)
    assert len(trained["rnn"].evaluate(files=[own]).outputs) == 3
    short = series(tmp_path / "short.csv", days=9)
    with pytest.raises(DataError, match="has 9 rows; a window needs 21"):
        trained["rnn"].evaluate(files=[short])


def test_forecast_after_the_end(trained: dict[str, Run], tmp_path: Path) -> None:
    ahead = trained["patch"].answer([None])[0]
    assert ahead.values.shape == (HORIZON, 2)
    assert (np.diff(ahead.quantiles, axis=-1) >= 0).all()
    lines = ahead.csv().splitlines()
    assert lines[0] == "date,wave,trend,wave@0.1,wave@0.5,wave@0.9,trend@0.1,trend@0.5,trend@0.9"
    dates = ["2020-04-30", *(f"2020-05-0{day}" for day in range(1, 5))]
    assert [line.split(",")[0] for line in lines[1:]] == dates
    same = trained["patch"].answer([series(tmp_path / "same.csv")])[0]
    np.testing.assert_array_equal(same.values, ahead.values)
    with pytest.raises(DataError, match="9 rows; the model reads 16"):
        trained["patch"].answer([series(tmp_path / "short.csv", days=9)])[0]
    ahead = trained["rnn"].answer([None])[0]  # in the units of the file
    assert (ahead.values[:, 1] > 90).all()  # the trend stands above 100
    assert (np.abs(ahead.values[:, 0]) < 10).all()


def test_a_run_needs_its_series_no_more(trained: dict[str, Run], tmp_path: Path) -> None:
    path = trained["rnn"].path
    own, away = path.parent / "waves.csv", path.parent / "away.csv"
    expected = trained["rnn"].answer([None])[0].values
    own.rename(away)
    try:
        np.testing.assert_array_equal(load(path).answer([away])[0].values, expected)
    finally:
        away.rename(own)


def test_attention_has_dates_on_both_axes(trained: dict[str, Run]) -> None:
    record = trained["patch"].explain("2020-04-15", "wave")
    (name,) = record.maps
    assert name == "encoder.layers.0.self_attention"
    rows, columns = record.axes(name)
    assert rows == columns == ["2020-03-30", "2020-04-03", "2020-04-07", "2020-04-11", "2020-04-14"]
    assert record.drawn(name).shape == (4, 5, 5)
    assert record.title.startswith("wave from 2020-04-15")
    with pytest.raises(ConfigError, match="no channel 'x'; there are: wave, trend"):
        trained["patch"].explain(None, "x")
    with pytest.raises(ConfigError, match="can begin from 2020-01-17 to 2020-04-25"):
        trained["patch"].explain("2020-01-02")
    with pytest.raises(DataError, match="'soon' is not a date"):
        trained["patch"].explain("soon")
    with pytest.raises(ValueError, match="rnn_forecaster has no attention to look at"):
        trained["rnn"].explain(None)


def test_the_view_of_one_forecast(trained: dict[str, Run]) -> None:
    for name, run in trained.items():
        view = find("forecast").draw([run], Question(text="2020-01-20"))
        arrays, windows = view.arrays(), run.task.at("2020-01-20")
        output = run.task.scaling.leave(run.task.predict(run.model, windows)[0, :, :, 0])
        if not run.task.config.quantiles:
            close(arrays["forecast"][LOOK_BACK:], output[:, -1])
        rows = slice(int(windows.starts[0]), int(windows.starts[0]) + LOOK_BACK)
        close(arrays["actual"][:LOOK_BACK], windows.table.values[rows, -1])
        assert arrays["forecast"][LOOK_BACK - 1] == arrays["actual"][LOOK_BACK - 1]
        assert np.isnan(arrays["forecast"][: LOOK_BACK - 1]).all()
        assert arrays["labels"][LOOK_BACK] == "2020-01-20"
        assert ("looked at" in arrays) == (name == "patch")
        assert view.figure().axes
    seen = find("forecast").draw([trained["patch"]], Question()).arrays()["looked at"][0]
    assert np.nansum(seen) == pytest.approx(1) and np.isnan(seen[LOOK_BACK:]).all()


def test_verbs(trained: dict[str, Run]) -> None:
    runner, runs = CliRunner(), [str(run.path) for run in trained.values()]
    printed = runner.invoke(app, ["answer", runs[0]])
    assert printed.output == trained["patch"].answer([None])[0].csv()
    text = runner.invoke(app, ["look", "horizon", *runs]).output
    for word in ("patch, forecast", "rnn, forecast", "rnn, teacher forced", "seasonal naive"):
        assert word in text


def test_a_forced_pass_is_the_forecast_of_a_channel(trained: dict[str, Run]) -> None:
    run = trained["patch"]
    forced = passes.forced(run.task, run.model, "2020-04-15", "wave")
    assert len(forced.produced) == len(forced.scores()) == run.config.task.horizon
    assert forced.produced[0] in forced.record().title and forced.score_name == "forecast"
    whole = forecast_at(run.task, run.model, "2020-04-15")
    channel = run.task.names.index("wave")
    scale = np.ptp(whole.values[:, channel]) / np.ptp(forced.scores())  # scores are standardised
    moved = whole.values[:, channel] - scale * forced.scores()
    np.testing.assert_allclose(moved, moved[0], atol=1e-3 * scale)


# ---- Figures of forecasts against numbers worked out by hand and known ones
WANTED = np.array([1.0, 2.0, 4.0]).reshape(1, 3, 1)
SAID = np.array([2.0, 2.0, 1.0]).reshape(1, 3, 1)
LEVELS = (0.1, 0.5, 0.9)


def test_errors_by_hand_and_the_naive_error_of_a_season() -> None:
    assert mse(SAID, WANTED) == pytest.approx((1 + 0 + 9) / 3)
    assert mae(SAID, WANTED) == pytest.approx((1 + 0 + 3) / 3)
    history = np.array([[1.0], [4.0], [2.0], [6.0]])
    assert naive_error(history).tolist() == [pytest.approx((3 + 2 + 4) / 3)]
    assert naive_error(history, season=2).tolist() == [pytest.approx((1 + 2) / 2)]
    with pytest.raises(ValueError, match=r"task.season = 4 needs more than 4 rows"):
        naive_error(history, season=4)
    output, expected = np.zeros((2, 3, 3)), np.ones((2, 3, 3))
    assert mase(output, expected, np.array([2.0, 0.5, 0.0])) == pytest.approx((0.5 + 2) / 2)
    assert np.isnan(mase(output, expected, np.zeros(3)))


def test_pinball_and_crps() -> None:
    quantiles = np.array([0.0, 1.0, 3.0]).reshape(1, 1, 1, 3)
    expected = np.full((1, 1, 1), 2.0)
    close(pinball(quantiles, expected, LEVELS), [0.2, 0.5, 0.1])
    assert crps(quantiles, expected, LEVELS) == pytest.approx(2 * 0.8 / 3)
    assert coverage(quantiles, expected) == 1
    assert coverage(quantiles, expected + 2) == 0
    # of many quantiles: that of the normal distribution
    levels = (np.arange(2000) + 0.5) / 2000
    normal = torch.distributions.Normal(0.0, 1.0)
    quantiles = normal.icdf(torch.tensor(levels)).numpy().reshape(1, 1, 1, -1)
    at_zero = np.sqrt(2 / np.pi) - 1 / np.sqrt(np.pi)  # Gneiting & Raftery (2007), equation 21
    assert crps(quantiles, np.zeros((1, 1, 1)), levels) == near(at_zero, terms=MODEL)


def test_objectives_sum_what_the_figures_average() -> None:
    output, expected = torch.tensor(SAID)[..., None], torch.tensor(WANTED)
    squared = SquaredError.Config().build()(output, expected, ())
    assert (squared.total.item(), squared.count) == (pytest.approx(10), 3)
    median = QuantileError.Config().build()(output, expected, (0.5,))
    assert median.total.item() == pytest.approx(4 / 2)  # half the absolute errors
    many = torch.randn(2, 3, 1, 3, dtype=torch.float64)
    loss = QuantileError.Config().build()(many, expected.expand(2, 3, 1), LEVELS)
    by_figure = pinball(many.numpy(), expected.expand(2, 3, 1).numpy(), LEVELS).mean()
    assert loss.total.item() / loss.count == pytest.approx(by_figure)
