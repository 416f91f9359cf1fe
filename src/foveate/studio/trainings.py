"""Trainings by their logs: curves, samples, and the lines of one that still runs.

Lives here: what a log tells. Does not live here: routes, and how a log is written
(`foveate.train.journal`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from foveate.look.drawing import listed
from foveate.studio.series import thinned
from foveate.studio.told import Told
from foveate.train.journal import LOG, Line, sound

RECENT = 180.0  # seconds since the last line after which a training counts as over
CURVES = ("train", "valid")  # the events whose numbers are curves
Place = tuple[int, int]  # a step, and which of its lines
NOWHERE: Place = (-1, -1)
LARGE = 10**9  # more lines than a step has
PLACE = {"step", "epoch", "seconds"}
SAMPLE = ("source", "reference", "output")


class Training(Told):
    """A training: where it stands, and which curves its log has."""

    id: str
    name: str
    running: bool
    step: int
    max_steps: int | None = None
    epoch: int | None = None
    seconds: float | None = None
    parameters: int | None = None
    device: str = ""
    keys: list[str] = Field(default_factory=list)
    has_samples: bool = False


class TrainingList(Told):
    """All trainings that the studio knows."""

    trainings: list[Training]


class CurveOf(Told):
    """A key of a log over steps and over seconds of training; gaps are null."""

    key: str
    steps: list[int]
    seconds: list[float | None]
    values: list[float | None]


class SeriesOf(Told):
    """Curves of a training up to the step ``last``; ``points`` is how many there were of each."""

    curves: list[CurveOf]
    last: int
    points: dict[str, int] = Field(default_factory=dict)


class SampleAt(Told):
    """One example at one step: what went in, what was wanted, what came out."""

    step: int
    source: str
    reference: str
    output: str


class SamplesOf(Told):
    """Samples of all validations, in the order of the log."""

    samples: list[SampleAt]


class TrainingEvent(Told):
    """A line of a log: "start", "train", "valid", "average"; or "cut", where lines after ``step``
    are gone, for a training went on from a checkpoint, or "ping", where there is nothing new.
    """

    event: str
    step: int
    epoch: int | None = None
    seconds: float | None = None
    values: dict[str, float | None] = Field(default_factory=dict)
    samples: list[SampleAt] = Field(default_factory=list)


def training(name: str, folder: Path, max_steps: int | None, log: Sequence[Line]) -> Training:
    """Where a training stands."""
    path = folder / LOG
    begun: Line = next((line for line in log if line.get("event") == "start"), {})
    last = [line for line in log if line.get("event") in CURVES]
    fresh = path.is_file() and time.time() - path.stat().st_mtime < RECENT
    step = max((int(line.get("step", 0)) for line in log), default=0)
    return Training(
        id=name,
        name=folder.name,
        running=fresh and not (max_steps is not None and step >= max_steps),
        step=step,
        max_steps=max_steps,
        epoch=last[-1].get("epoch") if last else None,
        seconds=last[-1].get("seconds") if last else None,
        parameters=begun.get("parameters"),
        device=str(begun.get("device", "")),
        keys=keys(log),
        has_samples=any(line.get("samples") for line in log),
    )


def keys(log: Iterable[Line]) -> list[str]:
    """The curves of a log as ``train.loss``, in the order in which they appear."""
    return list(
        dict.fromkeys(
            f"{line['event']}.{key}"
            for line in log
            if line.get("event") in CURVES
            for key, value in line.items()
            if _is_number(value) and key not in PLACE
        )
    )


def series(log: Sequence[Line], chosen: Sequence[str], after: int, most: int) -> SeriesOf:
    """The curves of some keys (all, if none) with the steps after one, thinned out."""
    curves, points = [], {}
    for key in chosen or keys(log):
        event, _, name = key.partition(".")
        lines = [
            line
            for line in log
            if line.get("event") == event and name in line and line.get("step", 0) > after
        ]
        x = np.array([float(line["step"]) for line in lines])
        y = np.array([_value(line[name]) for line in lines])
        shown = thinned(x, y, most)
        seconds = np.array([_value(line.get("seconds")) for line in lines])
        points[key] = len(lines)
        curves.append(
            CurveOf(
                key=key,
                steps=[int(step) for step in x[shown]],
                seconds=listed(seconds[shown]),
                values=listed(y[shown]),
            )
        )
    last = max((int(line.get("step", 0)) for line in log), default=0)
    return SeriesOf(curves=curves, last=last, points=points)


def samples(log: Sequence[Line]) -> SamplesOf:
    """The samples of every validation."""
    found = [
        SampleAt(step=line["step"], **{key: str(sample.get(key, "")) for key in SAMPLE})
        for line in log
        for sample in line.get("samples") or []
    ]
    return SamplesOf(samples=found)


def event(line: Line) -> TrainingEvent:
    """A line of a log as it is told."""
    return TrainingEvent(
        event=str(line.get("event", "")),
        step=int(line.get("step", 0)),
        epoch=line.get("epoch"),
        seconds=line.get("seconds"),
        values={k: v for k, v in line.items() if _is_number(v) and k not in PLACE},
        samples=samples([line]).samples,
    )


class Tail:
    """The lines of a log that may still grow, each with its place ``step.n``.

    ``n`` counts the lines of one step from 0. What stands up to ``after`` (a place, or a step: all
    of it) is not told again. A training that goes on from a checkpoint writes its log anew without
    the lines after it: the reader is then told of a "cut".
    """

    def __init__(self, path: Path, after: str = "") -> None:
        """Raises ``ValueError`` where ``after`` is no place."""
        self.path, self.seen = path, _place(after)
        self._file: int | None = None  # its inode: a log that is written anew is another file
        self._read, self._last = 0, NOWHERE
        self._told: dict[Place, str] = {}

    def news(self) -> Iterator[tuple[str, Line]]:
        """The whole lines that are new, with their places."""
        if not self.path.is_file():
            return
        file = self.path.stat()
        again = file.st_ino != self._file or file.st_size < self._read
        if again:
            self._file, self._read, self._last = file.st_ino, 0, NOWHERE
        lines = self._whole()
        if again and (kept := self._kept(lines)) < self.seen:
            self.seen = kept
            self._told = {place: said for place, said in self._told.items() if place <= kept}
            yield _written(kept), {"event": "cut", "step": max(0, kept[0])}
        for place, line in lines:
            if place > self.seen:
                self.seen, self._told[place] = place, repr(line)
                yield _written(place), line

    def _kept(self, lines: Sequence[tuple[Place, Line]]) -> Place:
        """The last place up to which a log has what was told; what was asked for, where all."""
        last = NOWHERE
        for place, line in lines:
            if place > self.seen:
                return self.seen
            if self._told.get(place, repr(line)) != repr(line):
                return last
            last = place
        return self.seen if last == self.seen or self.seen == (last[0], LARGE) else last

    def _whole(self) -> list[tuple[Place, Line]]:
        """The lines that were not read yet and have been written to their ends."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            content = file.read()
        content = content[: content.rfind(b"\n") + 1]
        self._read += len(content)
        found = []
        for line in sound(content):
            step = int(line.get("step", 0))
            number = self._last[1] + 1 if step == self._last[0] else 0
            self._last = step, number
            found.append((self._last, line))
        return found


def _place(text: str) -> Place:
    step, dot, number = text.partition(".")
    if not text:
        return NOWHERE
    if not (step.isdecimal() and (number.isdecimal() or not dot)):
        raise ValueError(f"{text!r} is no place in a log; write a step, or step.n")
    return int(step), int(number) if dot else LARGE


def _written(place: Place) -> str:
    return f"{max(0, place[0])}.{max(0, place[1])}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _value(value: Any) -> float:
    return float(value) if _is_number(value) else np.nan
