"""What all adapters share: the data, the shapes, the window of measuring, the report.

Runs in the environment of any peer, so nothing is imported here but the standard library. An
adapter has ``train(job)``, which trains until `Window` ends it, and ``decode(job)``, which gives a
function from sentences to outputs. ``python peer_NAME.py train|decode --shape … --mode …`` prints
the report as one line of JSON, the last line of its output.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import platform
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

UNK, PAD, BOS, EOS = range(4)  # lines of vocabulary.txt
BATCH_TOKENS = 4096
WARM, LEAST = 4, 2  # steps left out; steps that are measured at least
OUTPUT = 20  # tokens of each output in decoding
TOGETHER = 8  # batches that several workers are given at once
SMOOTHING, DROPOUT, RATE = 0.1, 0.1, 1e-3
BEST_RATE, WARM_UP, MOST_STEPS = 2e-3, 400, 4000  # where quality is the question
LONGEST = 100  # tokens of an output
TINY11_PIECES = 32_000
SHAPES: dict[str, dict[str, int]] = {
    "small": {"size": 256, "heads": 4, "ffn": 1024, "layers": 3},
    "base": {"size": 512, "heads": 8, "ffn": 2048, "layers": 6},
    "tiny11": {"size": 256, "heads": 8, "ffn": 1536, "layers": 6},  # and two layers that write
    "rnnsearch": {"size": 256, "heads": 1, "ffn": 0, "layers": 1},
    "tiny": {"size": 32, "heads": 2, "ffn": 64, "layers": 1},  # to see that an adapter works
    "tiny-rnnsearch": {"size": 32, "heads": 1, "ffn": 0, "layers": 1},
}
Pieces = list[str]
Ids = list[list[int]]


class Done(BaseException):
    """The window is over; not an ``Exception``, so that no trainer takes it for a fault of its."""


@dataclass
class Job:
    """What one process measures."""

    shape: str
    mode: str
    seconds: float
    data: Path
    folder: Path  # for what a peer writes; thrown away
    threads: int
    every: int = 0  # steps between looks at the validation set, where quality is the question

    @property
    def sizes(self) -> dict[str, int]:
        return SHAPES[self.shape]

    @property
    def batch_tokens(self) -> int:
        """Padded tokens of a batch: rows × the longer side."""
        return 256 if self.shape.startswith("tiny") else BATCH_TOKENS

    @property
    def layers_that_write(self) -> int:
        """The layers of the decoder."""
        return 2 if self.shape == "tiny11" else self.sizes["layers"]

    @property
    def recurrent(self) -> bool:
        return self.shape.endswith("rnnsearch")

    def lines(self, split: str, side: str) -> list[Pieces]:
        """The sentences of one side of a split, in pieces."""
        text = (self.data / f"{split}.{side}").read_text(encoding="utf-8")
        return [line.split(" ") for line in text.splitlines()]

    def vocabulary(self) -> list[str]:
        """The pieces by id, the four special ones first."""
        return (self.data / "vocabulary.txt").read_text(encoding="utf-8").splitlines()

    def ids(self, split: str) -> tuple[Ids, Ids]:
        """Both sides of a split as ids, without start and end."""
        known = {piece: i for i, piece in enumerate(self.vocabulary())}
        sides = [
            [[known.get(p, UNK) for p in line] for line in self.lines(split, side)]
            for side in ("src", "tgt")
        ]
        return sides[0], sides[1]


class Window:
    """Counts what is trained in a stretch of time, after a warm-up: the same rule for everyone.

    `begin` is called at the start of each step with what its batch holds; a step counts when the
    next one begins, so what a trainer does after the backward pass is in it. Raises `Done`.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self.steps = seconds, 0
        self.started = self.spent = 0.0
        self.targets = self.real = self.places = 0
        self.peak = 0.0

    def begin(self, targets: int, real: int, places: int) -> None:
        """``targets`` real target tokens with their ends, ``real`` tokens of both sides,
        ``places`` of both sides with the padding.
        """
        now = time.perf_counter()
        if self.steps == WARM:
            self.started, self.targets, self.real, self.places = now, 0, 0, 0
        late = self.steps >= WARM + LEAST and now - self.started >= self.seconds
        if late:
            self.spent, self.peak = now - self.started, peak_mib()
            raise Done
        self.steps += 1
        self.targets += targets
        self.real += real
        self.places += places

    def report(self) -> dict[str, Any]:
        return {
            "target_tokens_per_second": round(self.targets / self.spent, 1),
            "padding_share": round(1 - self.real / self.places, 4),
            "steps": self.steps - WARM,
            "seconds": round(self.spent, 2),
            "peak_rss_mib": self.peak,
        }


def look(step: int, **results: Any) -> None:
    """Tell how a training does: ``bleu``, or ``outputs``, the pieces of each sentence."""
    print(json.dumps({"step": step} | results), flush=True)


def random_rows(job: Job, sources: Ids, targets: Ids) -> int:
    """Rows of batches drawn by chance that hold ``batch_tokens`` padded tokens in the mean."""
    longer = sorted(longer_sides(sources, targets))

    def padded(rows: int) -> float:
        """rows × E[longest of so many], of the distribution of the lengths that there are."""
        below, mean = 0.0, 0.0
        for place, length in enumerate(longer, start=1):
            at_most = (place / len(longer)) ** rows
            mean, below = mean + length * (at_most - below), at_most
        return rows * mean

    least, most = 1, job.batch_tokens
    while least + 1 < most:
        middle = (least + most) // 2
        least, most = (middle, most) if padded(middle) <= job.batch_tokens else (least, middle)
    return least


def sorted_rows(job: Job, sources: Ids, targets: Ids) -> int:
    """Rows of batches of like lengths that hold ``batch_tokens`` tokens in the mean."""
    longer = longer_sides(sources, targets)
    return int(job.batch_tokens / (sum(longer) / len(longer)))


def longer_sides(sources: Ids, targets: Ids) -> list[int]:
    """The length of the longer side of each pair, its end included."""
    return [max(map(len, pair)) + 1 for pair in zip(sources, targets, strict=True)]


# ------------------------------------------------------------------------------ decoding

Search = Callable[[list[Pieces], int, "int | None"], Any]  # sentences, beam, rows of a batch
CASES = {
    "beam 5, batch 32": (5, 32),
    "greedy, batch 32": (1, 32),
    "beam 5, one by one": (5, 1),
    "greedy, one by one": (1, 1),
    "beam 5, whole corpus": (5, None),
}


def speeds(
    job: Job, search: Search, leave_out: Sequence[str] = (), together: int = 1
) -> dict[str, Any]:
    """Sentences/s of each case: batches of like lengths in an order drawn once.

    ``search`` gets ``together`` batches at once where batches have many rows; ``rows`` is None
    where it gets the whole corpus.
    """
    sentences = sorted(job.lines("test", "src"), key=len)
    result: dict[str, float] = {}
    for name, (beam, rows) in CASES.items():
        if name in leave_out:
            continue
        size = rows or len(sentences)
        batches = [sentences[n : n + size] for n in range(0, len(sentences), size)]
        random.Random(1).shuffle(batches)
        at_once = together if size > 1 else 1
        calls = [
            list(itertools.chain(*batches[n : n + at_once]))
            for n in range(0, len(batches), at_once)
        ]
        search(calls[0] if rows else sentences[:64], beam, rows)  # every worker is warm
        done, started = 0, time.perf_counter()
        for call in itertools.cycle(calls):
            search(call, beam, rows)
            done += len(call)
            if time.perf_counter() - started >= job.seconds:
                break
        result[name] = round(done / (time.perf_counter() - started), 2)
    return {"sentences_per_second": result, "peak_rss_mib": peak_mib()}


BATCHES = [(beam, 2**power) for beam in (1, 5) for power in range(7)]


def curve(job: Job, searches: Sequence[Search]) -> dict[str, Any]:
    """Sentences/s of each beam and batch, by the fastest of the ``searches``, and which it was."""
    sentences = sorted(job.lines("test", "src"), key=len)
    speeds: dict[str, float] = {}
    fastest: dict[str, int] = {}
    for beam, rows in BATCHES:
        batches = [sentences[n : n + rows] for n in range(0, len(sentences) - rows + 1, rows)]
        random.Random(1).shuffle(batches)
        rates = []
        for search in searches:
            search(batches[0], beam, rows)
            done, started, number = 0, time.perf_counter(), 0
            while (spent := time.perf_counter() - started) < job.seconds:
                search(batches[number % len(batches)], beam, rows)
                done, number = done + rows, number + 1
            rates.append(round(done / spent, 2))
        name = f"{'greedy' if beam == 1 else f'beam {beam}'}, batch {rows}"
        speeds[name] = max(rates)
        fastest[name] = rates.index(speeds[name])
    return {"sentences_per_second": speeds, "fastest": fastest, "peak_rss_mib": peak_mib()}


def shortlist(job: Job) -> tuple[list[int], list[list[int]]]:
    """The shortlist of tiny11, drawn once: 100 frequent pieces, and 100 partners of each."""
    draw, count = random.Random(1), TINY11_PIECES
    return list(range(100)), [draw.sample(range(4, count), 100) for _ in range(count)]


def milliseconds(torch: Any, layer: Any, shape: tuple[int, int], seconds: float) -> float:
    """The median time of a layer forward and backward on (rows, steps, 256)."""
    x = torch.randn(*shape, 256, requires_grad=True)
    layer(x).sum().backward()
    times: list[float] = []
    until = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < until:
        started = time.perf_counter()
        layer(x).sum().backward()
        times.append(1000 * (time.perf_counter() - started))
    return round(sorted(times)[len(times) // 2], 2)


# ------------------------------------------------------------------------------ report


def peak_mib(who: int = resource.RUSAGE_SELF) -> float:
    """The most memory that this process held so far, or the largest of those that it awaited."""
    unit = 1 if sys.platform == "darwin" else 1024
    return round(resource.getrusage(who).ru_maxrss * unit / 2**20, 1)


def versions(*packages: str) -> dict[str, str]:
    """Versions of what is installed of these, and Python's."""
    result = {"python": platform.python_version()}
    for package in packages:
        try:
            result[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return result


def main(doing: dict[str, Callable[[Job], dict[str, Any]]]) -> None:
    """Read what is asked for, do it in a folder that is thrown away, print the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=doing)
    parser.add_argument("--shape", default="small")
    parser.add_argument("--mode", default="fp32")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--every", type=int, default=0)
    inputs = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="peer-") as place:
        job = Job(
            inputs.shape, inputs.mode, inputs.seconds, inputs.data, Path(place), inputs.threads,
            inputs.every,
        )  # fmt: skip
        report = doing[inputs.what](job)
    print(json.dumps(report), flush=True)
