"""Training runs by their logs: curves, samples, and the new lines of a log that still grows.

`foveate.train.journal` writes the logs.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from foveate.look.draw.parts import listed
from foveate.serve.common import RequestError
from foveate.studio.schemas import StudioResponse
from foveate.train.journal import LOG, Line, sound

RECENT = 180.0  # seconds since the last line after which a training run counts as over
CURVES = ("train", "valid")  # the events whose numbers are curves
Floats = NDArray[np.float64]
Position = tuple[int, int]  # in a log: a step, and which of its lines
START: Position = (0, -1)  # before the first line
LARGE = 10**9  # more lines than a step has
NO_FIGURES = {"step", "epoch", "seconds", "best"}  # numbers of a line that are no curves
SAMPLE = ("source", "reference", "output")


class TrainingInfo(StudioResponse):
    """A training: its progress, and the curves of its log."""

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


class TrainingList(StudioResponse):
    """The trainings of the studio's runs."""

    trainings: list[TrainingInfo]


class CurveOf(StudioResponse):
    """A key of a log over steps and over seconds of training; gaps are null."""

    key: str
    steps: list[int]
    seconds: list[float | None]
    values: list[float | None]


class SeriesOf(StudioResponse):
    """Curves of a training up to the step ``last``."""

    curves: list[CurveOf]
    last: int


class SampleAt(StudioResponse):
    """One example at one step: its source, its reference, the output."""

    step: int
    source: str
    reference: str
    output: str


class SamplesOf(StudioResponse):
    """Samples of all validations, in the order of the log."""

    samples: list[SampleAt]


class TrainingEvent(StudioResponse):
    """A line of a log: "start", "train", "valid", "average"; or "cut", where lines after ``step``
    are gone because a training continued from a checkpoint, or "ping", where nothing is new.
    """

    event: str
    step: int
    epoch: int | None = None
    seconds: float | None = None
    values: dict[str, float | None] = Field(default_factory=dict)
    samples: list[SampleAt] = Field(default_factory=list)


def training(name: str, folder: Path, max_steps: int | None, log: Sequence[Line]) -> TrainingInfo:
    """Return the progress of a training run."""
    path = folder / LOG
    start: Line = next((line for line in log if line["event"] == "start"), {})
    last: Line = next((line for line in reversed(log) if line["event"] in CURVES), {})
    recent = path.is_file() and time.time() - path.stat().st_mtime < RECENT
    ended = bool(log) and log[-1]["event"] == "end"
    step = last_step(log)
    return TrainingInfo(
        id=name,
        name=folder.name,
        running=recent and not ended and not (max_steps is not None and step >= max_steps),
        step=step,
        max_steps=max_steps,
        epoch=last.get("epoch"),
        seconds=last.get("seconds"),
        parameters=start.get("parameters"),
        device=start.get("device", ""),
        keys=keys(log),
    )


def last_step(log: Sequence[Line]) -> int:
    """Return the last step of a log, 0 if it is empty."""
    return max((line["step"] for line in log), default=0)


def figures(line: Line) -> dict[str, float]:
    """Return the numbers of a line that may be drawn as curves."""
    return {k: v for k, v in line.items() if k not in NO_FIGURES and isinstance(v, int | float)}


def keys(log: Sequence[Line]) -> list[str]:
    """Return the curves in a log as ``train.loss``, in order of appearance."""
    lines = (line for line in log if line["event"] in CURVES)
    return list(dict.fromkeys(f"{line['event']}.{key}" for line in lines for key in figures(line)))


def series(log: Sequence[Line], most: int) -> SeriesOf:
    """Return all curves, each with ``most`` points at most."""
    curves = []
    for key in keys(log):
        event, _, name = key.partition(".")
        lines = [line for line in log if line["event"] == event and name in line]
        values = np.array([line[name] for line in lines], float)
        chosen = [lines[k] for k in thinned(values, most)]
        curves.append(
            CurveOf(
                key=key,
                steps=[line["step"] for line in chosen],
                seconds=listed(line.get("seconds") for line in chosen),
                values=listed(line[name] for line in chosen),
            )
        )
    return SeriesOf(curves=curves, last=last_step(log))


def samples(log: Sequence[Line]) -> SamplesOf:
    """Return the samples of every validation."""
    every = [
        SampleAt(step=line["step"], **{key: sample.get(key, "") for key in SAMPLE})
        for line in log
        for sample in line.get("samples") or []
    ]
    return SamplesOf(samples=every)


def event(line: Line) -> TrainingEvent:
    """Return a line of a log in the form sent."""
    return TrainingEvent(
        event=line["event"],
        step=line["step"],
        epoch=line.get("epoch"),
        seconds=line.get("seconds"),
        values=figures(line),
        samples=samples([line]).samples,
    )


class LogTail:
    """Reads the new lines of a log that may still grow, each with its position ``step.n``.

    ``n`` counts the lines of one step from 0. Lines up to ``after`` (a position, or a step: all of
    its lines) are not repeated. A run that resumes from a checkpoint rewrites its log without the
    lines after it: the reader then gets an event "cut".
    """

    def __init__(self, path: Path, after: str = "") -> None:
        """Raise `RequestError` (422) if ``after`` is not a position."""
        self.path, self.position = path, _position(after)
        self._stamp: tuple[int, ...] = ()  # of the file when it was read
        self._sent: dict[Position, Line] = {}

    def news(self) -> Iterator[tuple[str, Line]]:
        """Yield the new complete lines, with their positions."""
        if not self.path.is_file():
            return
        file, before = self.path.stat(), self._stamp
        self._stamp = file.st_ino, file.st_size, file.st_mtime_ns
        if self._stamp == before:
            return
        counts, lines = Counter[int](), dict[Position, Line]()
        for line in sound(self.path.read_bytes()):
            step = line["step"]
            lines[step, counts[step]] = line
            counts[step] += 1
        if (common := self._common(lines)) < self.position:
            self.position = common
            self._sent = {place: line for place, line in self._sent.items() if place <= common}
            yield _written(common), {"event": "cut", "step": common[0]}
        for position, line in lines.items():
            if position > self.position:
                self.position, self._sent[position] = position, line
                yield _written(position), line

    def _common(self, lines: Mapping[Position, Line]) -> Position:
        """Return the position up to which a log has the lines sent; the reader's, if it has all."""
        last = START
        for position, line in lines.items():
            if position > self.position:
                return self.position
            if self._sent.get(position, line) != line:
                return last
            last = position
        complete = last == self.position or self.position == (last[0], LARGE)
        return self.position if complete else last


def _position(text: str) -> Position:
    step, dot, number = text.partition(".")
    if not text:
        return START
    if not (step.isdecimal() and (number.isdecimal() or not dot)):
        raise RequestError(422, f"{text!r} is not a position in a log: expected STEP or STEP.N")
    return int(step), int(number) if dot else LARGE


def _written(position: Position) -> str:
    return f"{position[0]}.{max(0, position[1])}"


def thinned(y: Floats, most: int) -> list[int]:
    """Return which of N points to draw, at most ``most``: first, last, and one of each bucket.

    In a bucket it is the point farthest from the straight line through the bucket; NaN values are
    interpolated.
    """
    count = len(y)
    if count <= most:
        return list(range(count))
    known = np.isfinite(y)
    filled = np.interp(np.arange(count), np.flatnonzero(known), y[known]) if known.any() else 0 * y
    edges = np.linspace(1, count - 1, most - 1).astype(int)
    chosen = [0]
    for start, end in pairwise(edges.tolist()):
        line = np.interp(np.arange(start, end), [start - 1, end], filled[[start - 1, end]])
        chosen.append(start + int(np.abs(filled[start:end] - line).argmax()))
    return [*chosen, count - 1]
