"""Input and output of training steps: batches made ahead of it, numbers read behind it.

Batches are functions of the plan alone, and made in a thread. A GPU computes what the host has
launched; a host that reads a number waits for it, and the GPU then waits for the next launches.
"""

import hashlib
import math
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from foveate.data.batches import BatchPlan, Indices, Mixture
from foveate.data.text import portions
from foveate.tasks.base import AnyTask, Loss
from foveate.train.checkpoint import TrainState
from foveate.train.distributed import Ranks
from foveate.train.stored import TrainError

Plan = BatchPlan | Mixture  # the examples of each batch of each epoch


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
    return portions(_batches(plan, start, max_epochs), accumulate)


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


class TrainObjective(Protocol):
    """The loss that is minimised; it may change with the step."""

    def advance(self, step: int) -> None:
        """Set the step that comes next."""

    def loss(self, task: AnyTask, model: nn.Module, batch: object) -> Loss:
        """The loss of a batch of training, with its graph."""


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


def steps_of(
    task: AnyTask, plan: Plan, state: TrainState, max_epochs: int | None, ranks: Ranks
) -> Iterator[TrainingStep]:
    """The steps from a state on, as one of the ranks computes them."""
    start, seed = (state.epoch, state.position), state.seed
    steps = enumerate(batches_of_steps(plan, state.batches, start, max_epochs), state.step + 1)
    return (make_step(task, n, batches, seed, ranks.rank, ranks.world) for n, batches in steps)


class Feed(AbstractContextManager["Feed"]):
    """A thread that makes the next steps' batches, at most ``ahead`` of them.

    Batches are functions of their indices and a noise seed, so the thread changes nothing but the
    time when they are ready. Its exceptions are raised by `next`.
    """

    def __init__(self, steps: Iterator[TrainingStep], ahead: int = 3) -> None:
        self._steps = steps
        self._thread = ThreadPoolExecutor(1, "foveate-feed")
        self._ready = deque(self._make() for _ in range(ahead))

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


AHEAD = 4  # steps in flight; a failure is noticed at most so many steps late


def steps_ahead(device: torch.device, ranks: Ranks, optimizer: torch.optim.Optimizer) -> int:
    """Return how many steps may be in flight: none on a CPU, which computes at once, of several
    ranks, which add up their numbers, or with an optimizer that cannot skip a step on the device.
    """
    skips = getattr(optimizer, "_step_supports_amp_scaling", False)  # as PyTorch's fused ones can
    return AHEAD if device.type == "cuda" and type(ranks) is Ranks and skips else 0


class StepNumbers:
    """The loss and other sums of a step, and the norm of its gradient; `read` waits for them.

    ``failed`` is 1 on the device once the loss or gradient of this step, or of one in flight
    before it, is not finite. ``sums`` by name, with the ``count`` of targets, are those of this
    rank until all ranks have read them; ``own_loss`` stays this rank's.
    """

    def __init__(
        self, step: TrainingStep, losses: Sequence[Loss], norm: Tensor, failed: Tensor | None
    ) -> None:
        self.step, self.rate, self.targets = step, 0.0, 0
        self.count = sum(loss.count for loss in losses)
        self.sums = {"loss": 0.0, "count": float(self.count)}
        named = [item for x in losses for item in [("loss", x.total), *x.logged.items()]]
        self._names = [name for name, _ in named]
        self.failed = (~torch.stack([norm, *(x.total for x in losses)]).sum().isfinite()).float()
        if failed is not None:
            self.failed = torch.maximum(self.failed, failed)
        values = torch.stack([self.failed, norm, *(value for _, value in named)])
        self._values = values.to("cpu", non_blocking=True)  # into pinned memory
        stream = torch.cuda.current_stream(norm.device) if norm.is_cuda else None
        self._copied = None if stream is None else stream.record_event()

    def read(self, ranks: Ranks) -> bool:
        """Wait for the numbers of all ranks, once; return whether they are finite."""
        if self._names:
            if self._copied is not None:
                self._copied.synchronize()
            failed, norm, *values = self._values.tolist()
            for name, value in zip(self._names, values, strict=True):
                self.sums[name] = self.sums.get(name, 0.0) + value
            self._names, self.own_loss = [], self.sums["loss"]
            self.sums = ranks.sums(self.sums)
            self.count = int(self.sums["count"])
            self.norm = norm / max(1, self.count)
            self.finite = not failed and math.isfinite(self.norm + self.sums["loss"])
        return self.finite
