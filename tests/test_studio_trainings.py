"""Trainings by their logs: curves that keep their shape, and a log that grows while it is read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.server.trainings import LogTail, event, keys, samples, series, thinned, training
from foveate.train.journal import Journal


def write(run: Path, steps: range, at: int = 0) -> None:
    """What a training writes from a step on, a validation every ten steps."""
    run.mkdir(exist_ok=True)
    journal = Journal(run, at)
    for step in steps:
        journal.write("train", step, loss=10 / step + at, lr=0.1, seconds=float(step), epoch=0)
        if step % 10 == 0:
            messages = {"source": "a", "reference": "b", "output": f"{step}"}
            journal.write(
                "valid", step, loss=1.0, best=True, seconds=step + 0.5, samples=[messages]
            )
    journal.close()


def places(tail: LogTail) -> list[str]:
    return [place for place, _ in tail.news()]


# ------------------------------------------------------------------------------ thinning


@given(st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")), max_size=300), st.integers(3, 40))
def test_a_thinned_curve_has_its_ends_and_no_point_of_its_own(values, most) -> None:
    x, y = np.arange(len(values)) * 2.0, np.array(values)
    shown = thinned(x, y, most)
    assert len(shown) == min(len(values), most)
    assert (np.diff(shown) > 0).all()
    if values:
        assert shown[0] == 0 and shown[-1] == len(values) - 1


def test_a_peak_is_kept() -> None:
    y = np.zeros(10_000)
    y[6_543] = 50
    assert 6_543 in thinned(np.arange(10_000.0), y, 100)
    wave = np.sin(np.arange(1000.0) / 20)
    saved = thinned(np.arange(1000.0), wave, 60)
    assert np.abs(np.interp(np.arange(1000.0), saved, wave[saved]) - wave).max() < 0.1


# ------------------------------------------------------------------------------ curves


def test_curves_of_a_log(tmp_path: Path) -> None:
    write(tmp_path / "run", range(1, 101))
    lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    log: list[Any] = [json.loads(line) for line in lines]
    assert keys(log) == ["train.loss", "train.lr", "valid.loss"]
    result = series(log, ["train.loss", "valid.loss"], 50, 20)
    assert result.last == 100 and result.points == {"train.loss": 50, "valid.loss": 5}
    assert result.curves[0].steps[0] == 51 and result.curves[0].steps[-1] == 100
    assert len(result.curves[0].steps) == 20
    assert result.curves[0].values[-1] == 0.1 and result.curves[0].seconds[-1] == 100
    assert result.curves[1].steps == [60, 70, 80, 90, 100]
    assert [item.output for item in samples(log).samples] == [f"{n}" for n in range(10, 101, 10)]
    assert series(log, ["train.none"], 0, 20).curves[0].steps == []
    messages = event(log[10])
    assert (messages.event, messages.step, messages.values) == ("valid", 10, {"loss": 1.0})
    where = training("r", tmp_path / "run", 100, log)
    assert where.step == 100 and not where.running and where.has_samples
    assert training("r", tmp_path / "run", 200, log).running
    ended: Any = {"event": "end", "step": 100, "reason": "max_minutes"}
    assert not training("r", tmp_path / "run", 200, [*log, ended]).running
    os.utime(tmp_path / "run" / "log.jsonl", (0, 0))
    assert not training("r", tmp_path / "run", 200, log).running


# ------------------------------------------------------------------------------ the tail


def test_a_tail_tells_each_line_once(tmp_path: Path) -> None:
    tail = LogTail(tmp_path / "run" / "log.jsonl")
    assert places(tail) == [], "there is no log yet"
    write(tmp_path / "run", range(9, 11))
    assert places(tail) == ["9.0", "10.0", "10.1"]
    assert places(tail) == []
    with (tmp_path / "run" / "log.jsonl").open("a") as file:
        file.write('{"event": "train", "step": 11')
        file.flush()
        assert places(tail) == [], "half a line is none"
        file.write("}\n")
    assert places(tail) == ["11.0"]


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("", ["9.0", "10.0", "10.1", "11.0"]),
        ("10.0", ["10.1", "11.0"]),
        ("10", ["11.0"]),
        ("10.1", ["11.0"]),
        ("11.0", []),
    ],
)
def test_a_reader_goes_on_where_it_was(tmp_path: Path, after: str, expected: list[str]) -> None:
    write(tmp_path / "run", range(9, 12))
    assert places(LogTail(tmp_path / "run" / "log.jsonl", after)) == expected
    with pytest.raises(ValueError, match="no place"):
        LogTail(tmp_path, "ten")


def test_a_training_that_goes_on_from_a_checkpoint_cuts_what_was_told(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write(run, range(1, 8))
    tail = LogTail(run / "log.jsonl")
    list(tail.news())
    write(run, range(5, 12), at=4)
    messages = list(tail.news())
    assert messages[0] == ("4.0", {"event": "cut", "step": 4})
    assert [place for place, _ in messages[1:]] == [
        "5.0",
        "6.0",
        "7.0",
        "8.0",
        "9.0",
        "10.0",
        "10.1",
        "11.0",
    ]
    later = list(LogTail(run / "log.jsonl", "40.0").news())
    assert later == [("11.0", {"event": "cut", "step": 11})]
