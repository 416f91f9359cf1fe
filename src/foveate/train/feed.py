"""The batches of every training step, made in the background: functions of the plan alone."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from foveate.data.batches import Indices
from foveate.tasks.base import AnyTask
from foveate.train.stored import TrainError


class Plan(Protocol):
    """The examples of each batch of each epoch."""

    def epoch(self, number: int, /) -> list[Indices]:
        """The batches of an epoch, as indices, in order."""
        ...


PlanFactory = Callable[[NDArray[np.int32], int, int], Plan]  # lengths, batch_tokens, seed


def mix(*parts: object) -> int:
    """One well-spread seed, in [0, 2⁶³), of several numbers and words."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def fingerprint(plan: Plan) -> str:
    """A hash of the order of the examples in the first epoch of a plan."""
    digest = hashlib.sha256()
    for batch in plan.epoch(0):
        digest.update(np.asarray(batch, dtype=np.int64).tobytes() + b"|")
    return digest.hexdigest()[:16]


class PlannedBatch(NamedTuple):
    """The examples of one batch, their epoch, and the position in the data after them."""

    indices: Indices
    epoch: int
    after: tuple[int, int]  # the epoch of the next batch, and which of its batches it is


def batches_of_steps(
    plan: Plan, accumulate: int, start: tuple[int, int], max_epochs: int | None
) -> Iterator[list[PlannedBatch]]:
    """The batches of each step from a position on; the last of ``max_epochs`` may have fewer."""
    batches = _batches(plan, start, max_epochs)
    while step := list(islice(batches, accumulate)):
        yield step


def _batches(plan: Plan, start: tuple[int, int], max_epochs: int | None) -> Iterator[PlannedBatch]:
    epoch, first = start
    while max_epochs is None or epoch < max_epochs:
        batches = plan.epoch(epoch)
        if not batches:
            raise TrainError(f"epoch {epoch} has no batches: is any training example left?")
        for number in range(first, len(batches)):
            ended = number + 1 == len(batches)
            yield PlannedBatch(
                batches[number], epoch, (epoch + 1, 0) if ended else (epoch, number + 1)
            )
        epoch, first = epoch + 1, 0


class MicroBatch(NamedTuple):
    """One of the batches that a step accumulates, as tensors."""

    batch: object
    seed: int  # of its dropout and other noise
    counts: bool = True  # False: a repeated batch, of weight 0
    last: bool = True  # of this rank's batches of the step


class TrainingStep(NamedTuple):
    """One rank's part of an optimiser step, and the position in the data after it."""

    number: int
    examples: list[PlannedBatch]
    micro_batches: list[MicroBatch]
    after: tuple[int, int]

    def __str__(self) -> str:
        rows = [batch.indices for batch in self.examples]
        shown = [f"{batch[:8].tolist()}{'…' if len(batch) > 8 else ''}" for batch in rows]
        return f"epoch {self.examples[0].epoch}, training examples {' + '.join(shown)}"


def make_step(
    task: AnyTask,
    number: int,
    batches: list[PlannedBatch],
    seed: int,
    rank: int = 0,
    world: int = 1,
) -> TrainingStep:
    """The part of one rank of ``world`` in a step: every world-th batch.

    Seeds are functions of (seed, step, position in the step) alone, the same on whichever rank a
    batch runs. All ranks get equally many batches, for each ends in collectives: where they do not
    suffice the first is repeated with weight 0.
    """
    examples, micro_batches = [], []
    count = -(-len(batches) // world) * world
    for position in range(rank, count, world):
        counts, last = position < len(batches), position + world >= count
        position = position if counts else 0
        indices, epoch, _ = batches[position]
        batch = task.batch("train", indices.tolist(), noise=mix(seed, "noise", epoch))
        own_seed = mix(seed, "step", number, *([position] if position else []))
        examples.append(batches[position])
        micro_batches.append(MicroBatch(batch, own_seed, counts, last))
    return TrainingStep(number, examples, micro_batches, batches[-1].after)


class Feed:
    """A thread that makes the next steps' batches, at most ``ahead`` of them.

    Batches are functions of their indices and a noise seed, so the thread changes nothing but the
    time when they are ready. Its exceptions are raised by `next`.
    """

    def __init__(self, steps: Iterator[TrainingStep], ahead: int = 3) -> None:
        self._steps = steps
        self._thread = ThreadPoolExecutor(1, "foveate-feed")
        self._ready = deque(self._make() for _ in range(ahead))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Stop the thread and wait for it."""
        self._thread.shutdown(cancel_futures=True)

    def _make(self) -> Future[TrainingStep | None]:
        return self._thread.submit(next, self._steps, None)

    def next(self) -> TrainingStep:
        """The next step with its batches. Raises ``EOFError`` where the last epoch has ended."""
        self._ready.append(self._make())
        step = self._ready.popleft().result()
        if step is None:
            raise EOFError("the last epoch has ended")
        return step
