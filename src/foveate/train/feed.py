"""The batches of each step, made in the background: which ones is a function of the plan alone.

Lives here: walking through the plan, and the thread that makes batches ahead. Does not live
here: the plan itself (`foveate.data.plan`), and what a batch is (the task).
"""

from __future__ import annotations

import contextlib
import hashlib
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from foveate.tasks.base import Task
from foveate.train.files import TrainError

Indices = NDArray[np.integer]


class Plan(Protocol):
    """Which examples stand together in which batch of which epoch."""

    def epoch(self, number: int, /, rank: int = 0, world: int = 1) -> list[Indices]:
        """The batches of an epoch, as indices, in order."""
        ...


PlanFactory = Callable[[NDArray[np.int32], int, int], Plan]  # lengths, batch_tokens, seed


def mix(*parts: object) -> int:
    """One well-spread seed, in [0, 2⁶³), of several numbers and words."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def fingerprint(plan: Plan) -> str:
    """A short name of the order in which a plan deals its examples, by its first epoch."""
    digest = hashlib.sha256()
    for batch in plan.epoch(0):
        digest.update(np.asarray(batch, dtype=np.int64).tobytes() + b"|")
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Portion:
    """What one optimiser step consumes, and the place in the data after it."""

    indices: list[Indices]  # one array for each batch
    epochs: list[int]  # the epoch of each batch
    after: tuple[int, int]  # epoch and batch to go on from
    places: list[int]  # of each batch in the step
    counted: list[bool]  # a batch that does not count only keeps a rank in step with the others

    @classmethod
    def of(cls, indices: list[Indices], epochs: list[int], after: tuple[int, int]) -> Self:
        """A whole step."""
        return cls(indices, epochs, after, list(range(len(indices))), [True] * len(indices))

    def share(self, rank: int, world: int) -> Portion:
        """The part of one rank of ``world``: every world-th batch.

        All ranks get as many, for they wait for each other in each. Where batches do not suffice
        the first one comes again, and does not count.
        """
        count = -(-len(self.indices) // world) * world
        places = [p if p < len(self.indices) else 0 for p in range(rank, count, world)]
        counted = [p < len(self.indices) for p in range(rank, count, world)]
        indices, epochs = [self.indices[p] for p in places], [self.epochs[p] for p in places]
        return Portion(indices, epochs, self.after, places, counted)

    def turns(self, batches: list[Any], seed: int, step: int) -> list[Turn]:
        """The batches of the portion with their noise, which is a function of (seed, step, place).

        So it is the same whichever rank runs them.
        """
        seeds = [mix(seed, "step", step, *([place] if place else [])) for place in self.places]
        last = [False] * (len(batches) - 1) + [True]
        return [Turn(*turn) for turn in zip(batches, seeds, self.counted, last, strict=True)]

    def __str__(self) -> str:
        shown = [f"{batch[:8].tolist()}{'…' if len(batch) > 8 else ''}" for batch in self.indices]
        return f"epoch {self.epochs[0]}, training examples {' + '.join(shown)}"


class Turn(NamedTuple):
    """One batch as it is run: the seed of its noise, if it has one, and its part in the step."""

    batch: Any
    seed: int | None = None
    counts: bool = True
    last: bool = True  # of this rank's batches of the step


def portions(
    plan: Plan, accumulate: int, start: tuple[int, int], max_epochs: int | None
) -> Iterator[Portion]:
    """The portions from a place on; the last of ``max_epochs`` epochs may be smaller."""
    epoch, first = start
    indices: list[Indices] = []
    epochs: list[int] = []
    while max_epochs is None or epoch < max_epochs:
        batches = plan.epoch(epoch)
        if not batches:
            raise TrainError(f"epoch {epoch} has no batches: is any training example left?")
        for position in range(first, len(batches)):
            indices.append(batches[position])
            epochs.append(epoch)
            if len(indices) == accumulate:
                ended = position + 1 == len(batches)
                after = (epoch + 1, 0) if ended else (epoch, position + 1)
                yield Portion.of(indices, epochs, after)
                indices, epochs = [], []
        epoch, first = epoch + 1, 0
    if indices:
        yield Portion.of(indices, epochs, (epoch, 0))


class Feed:
    """A thread that makes the batches of the next portions, at most ``ahead`` of them.

    Batches are functions of their indices and a noise seed, so the thread changes nothing but
    the time when they are ready. What goes wrong in it is raised by `next`.
    """

    def __init__(
        self, task: Task[Any], portions: Iterator[Portion], seed: int, ahead: int = 3
    ) -> None:
        self._task, self._portions, self._seed = task, portions, seed
        self._ready: queue.Queue[tuple[Portion, list[Any]] | BaseException | None]
        self._ready = queue.Queue(maxsize=ahead)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="foveate-feed", daemon=True)
        self._thread.start()

    def next(self) -> tuple[Portion, list[Any]] | None:
        """The next portion with its batches; ``None`` where the last epoch has ended."""
        item = self._ready.get()
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        """Stop the thread and wait for it."""
        self._closed.set()
        with contextlib.suppress(queue.Empty):
            while True:  # so that a thread that waits for room goes on, and sees that it is over
                self._ready.get_nowait()
        self._thread.join()

    def _work(self) -> None:
        try:
            for portion in self._portions:
                pairs = zip(portion.indices, portion.epochs, strict=True)
                if not self._put((portion, [self._batch(i, e) for i, e in pairs])):
                    return
            self._put(None)
        except BaseException as error:  # carried over to the training thread
            self._put(error)

    def _batch(self, indices: Indices, epoch: int) -> Any:
        return self._task.batch("train", indices.tolist(), noise=mix(self._seed, "noise", epoch))

    def _put(self, item: tuple[Portion, list[Any]] | BaseException | None) -> bool:
        while not self._closed.is_set():
            try:
                self._ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False
