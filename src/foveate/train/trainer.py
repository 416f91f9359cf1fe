"""The training loop: batches made in the background, steps, validation, checkpoints, signals."""

from __future__ import annotations

import contextlib
import hashlib
import math
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Literal, NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.decode.search import Search
from foveate.tasks.base import AnyTask, Loss, Measures
from foveate.train import checkpoint
from foveate.train.config import ConfigChange, Precision, TrainConfig
from foveate.train.distributed import Parallel
from foveate.train.journal import Display, Health, Journal, Recorder, Recording, clock, peak_memory
from foveate.train.optim import MovingMean, Schedule
from foveate.train.stored import Record, TrainError


class Interrupt:
    """While entered, the first SIGINT or SIGTERM is kept in ``received``; the second raises.

    Only the main thread can catch signals; in another one this catches none.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._at_once = False
        self._before: dict[signal.Signals, signal._HANDLER] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._catch)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        again = self.received is not None
        self.received = signal.Signals(number)
        if again or self._at_once:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Within, the first signal too raises ``KeyboardInterrupt``, at once."""
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False


# The batches of each step, made in the background; they are a function of the plan alone.

Indices = NDArray[np.integer]


class Plan(Protocol):
    """The examples of each batch of each epoch."""

    def epoch(self, number: int, /, rank: int = 0, world: int = 1) -> list[Indices]:
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


@dataclass(frozen=True)
class Portion:
    """What one optimiser step consumes, and the place in the data after it."""

    indices: list[Indices]  # one array for each batch
    epochs: list[int]  # the epoch of each batch
    after: tuple[int, int]  # epoch and batch to go on from
    places: list[int]  # of each batch in the step
    counted: list[bool]  # False: a repeated batch, of weight 0

    @classmethod
    def of(cls, indices: list[Indices], epochs: list[int], after: tuple[int, int]) -> Self:
        """A whole step."""
        return cls(indices, epochs, after, list(range(len(indices))), [True] * len(indices))

    def share(self, rank: int, world: int) -> Portion:
        """The part of one rank of ``world``: every world-th batch.

        All ranks get equally many, for every batch ends in collectives. Where batches do not
        suffice the first one is repeated with weight 0.
        """
        count = -(-len(self.indices) // world) * world
        places = [p if p < len(self.indices) else 0 for p in range(rank, count, world)]
        counted = [p < len(self.indices) for p in range(rank, count, world)]
        indices, epochs = [self.indices[p] for p in places], [self.epochs[p] for p in places]
        return Portion(indices, epochs, self.after, places, counted)

    def micro_batches(self, batches: list[object], seed: int, step: int) -> list[MicroBatch]:
        """The batches with the seeds of their noise, functions of (seed, step, place) alone.

        So they are the same on whichever rank a batch runs.
        """
        seeds = [mix(seed, "step", step, *([place] if place else [])) for place in self.places]
        last = [False] * (len(batches) - 1) + [True]
        return list(map(MicroBatch, batches, seeds, self.counted, last))

    def __str__(self) -> str:
        shown = [f"{batch[:8].tolist()}{'…' if len(batch) > 8 else ''}" for batch in self.indices]
        return f"epoch {self.epochs[0]}, training examples {' + '.join(shown)}"


class MicroBatch(NamedTuple):
    """One batch of an accumulated step, with the seed of its dropout and other noise."""

    batch: object
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
    the time when they are ready. Its exceptions are raised by `next`.
    """

    def __init__(
        self, task: AnyTask, portions: Iterator[Portion], seed: int, ahead: int = 3
    ) -> None:
        self._task, self._portions, self._seed = task, portions, seed
        self._ready: queue.Queue[tuple[Portion, list[object]] | BaseException]
        self._ready = queue.Queue(maxsize=ahead)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="foveate-feed", daemon=True)
        self._thread.start()

    def next(self) -> tuple[Portion, list[object]]:
        """The next portion with its batches. Raises ``EOFError`` where the last epoch has ended."""
        item = self._ready.get()
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        """Stop the thread and wait for it."""
        self._closed.set()
        with contextlib.suppress(queue.Empty):
            while True:  # so that a thread that waits for room sees that it is closed
                self._ready.get_nowait()
        self._thread.join()

    def _work(self) -> None:
        try:
            for portion in self._portions:
                batches: list[object] = [
                    self._task.batch("train", rows.tolist(), noise=mix(self._seed, "noise", epoch))
                    for rows, epoch in zip(portion.indices, portion.epochs, strict=True)
                ]
                if not self._put((portion, batches)):
                    return
            self._put(EOFError("the last epoch has ended"))
        except BaseException as error:  # carried over to the training thread
            self._put(error)

    def _put(self, item: tuple[Portion, list[object]] | BaseException) -> bool:
        while not self._closed.is_set():
            try:
                self._ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False


# What is trained, and the objects that train it.


ENOUGH = 1000  # steps, or train.max_steps where that is less: half of them teach little


def too_few(config: TrainConfig, state: TrainState, seconds_a_step: float) -> str:
    """That the minutes allowed are too few to learn from at this pace; "" if they are not."""
    enough = min(ENOUGH, config.max_steps or ENOUGH)
    if config.max_minutes is None:
        return ""
    left = max(0.0, 60 * config.max_minutes - state.seconds)
    expected = state.step + left / seconds_a_step
    if expected > enough / 2:
        return ""
    more = state.seconds + (enough - state.step) * seconds_a_step
    return (
        f"{60 / seconds_a_step:.3g} steps a minute on this machine now: about {expected:,.0f} in "
        f"the {config.max_minutes:g} minutes of train.max_minutes, which teach a model little; "
        f"{enough:,} take {clock(more)}: set train.max_minutes={math.ceil(more / 60)}, or make the "
        "model or train.batch_tokens smaller"
    )


def follows_the_clock(config: TrainConfig, schedule: Schedule) -> list[str]:
    """Return a sentence where the learning rate depends on the time that steps take, else none."""
    if config.max_minutes is None or schedule.rate_at(1, 1.0) == schedule.rate(1):
        return []
    return [
        "the learning rate decays with the clock (train.max_minutes), so the same seed "
        "gives other weights on a slower or busier machine; set train.max_steps alone to avoid it"
    ]


class TrainObjective(Protocol):
    """What is minimised; it may change with the step."""

    def advance(self, step: int) -> None:
        """Set the step that comes next."""
        ...

    def loss(self, forward: Callable[[nn.Module], Loss], model: nn.Module) -> Loss:
        """The loss of a batch of training, of which ``forward`` computes that of one pass."""
        ...


@dataclass(frozen=True)
class Job:
    """What is trained: a task with its data, a model, the objective, the search of validations.

    ``toml`` is the resolved config, kept in each checkpoint; ``plan`` makes the plan of batches
    from lengths, ``batch_tokens`` and the seed, ``snapshots`` what records attention. ``changes``
    are those of the config since the run was last trained; with ``changed_data`` it goes on though
    its data are others.
    """

    task: AnyTask
    model: nn.Module
    objective: TrainObjective | None
    search: Search
    seed: int
    toml: str
    plan: PlanFactory
    snapshots: Recording
    changes: tuple[ConfigChange, ...] = ()
    changed_data: bool = False

    def loss(self, model: nn.Module, batch: object) -> Loss:
        """The loss of a batch, with its graph."""
        forward = partial(self.task.loss, batch=batch, objective=self.objective)
        return forward(model) if self.objective is None else self.objective.loss(forward, model)


@dataclass
class Tools:
    """The objects of a training except its model, made by `foveate.train.fit`."""

    parallel: Parallel
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    precision: Precision
    plan: Plan
    journal: Journal
    display: Display
    interrupt: Interrupt
    files: Mapping[str, str]  # `run_files`
    paces: dict[int, float] = field(default_factory=dict)  # logged after the newest checkpoint
    mean: MovingMean | None = None
    health: Health | None = None
    snapshots: Recorder | None = None  # on rank 0


# The state of a run except its weights: small, plain, and written into each checkpoint.


@dataclass(frozen=True)
class Best:
    """The best value so far of the figure that decides, and the step that had it."""

    figure: str
    value: float
    step: int


@dataclass
class TrainState:
    """All that a run needs to go on, besides the weights and the optimiser's tensors."""

    seed: int
    plan: str  # fingerprint of the order of the data
    data: dict[str, str] = field(default_factory=dict)  # `Task.digest` by split
    precision: Literal["auto", "fp32", "bf16"] = "auto"  # what "auto" became at the start
    accumulate: int = 0  # train.accumulate when ``batches`` was set; 0: not yet
    batches: int = 1  # of a step, on all ranks together
    step: int = 0
    epoch: int = 0  # place in the data: epoch, and batch within it
    position: int = 0
    targets: int = 0  # real target tokens seen
    seconds: float = 0.0  # wall clock of all sessions
    paced: float = 0.0  # seconds of train.max_minutes that the schedule takes to be over
    validated: int = 0  # step of the last validation
    stale: int = 0  # validations since the best one
    best: Best | None = None
    figures: dict[str, float] = field(default_factory=dict)  # of the last validation
    window: dict[str, float] = field(default_factory=dict)  # sums since the last line of the log

    @classmethod
    def of(cls, record: Record) -> Self:
        """The state of a record that `dataclasses.asdict` made."""
        best = record.pop("best")
        return cls(**record, best=None if best is None else Best(**best))

    def progress(self, config: TrainConfig, seconds: float) -> dict[str, tuple[float, float]]:
        """How far a training is, and where it ends, by the limits that are set."""
        limits = {
            "max_steps": (self.step, config.max_steps),
            "max_minutes": (seconds / 60, config.max_minutes),
            "max_tokens": (self.targets, config.max_tokens),
            "patience": (self.stale, config.validation.patience),
            "max_epochs": (self.epoch, config.max_epochs),
        }
        return {name: (done, end) for name, (done, end) in limits.items() if end is not None}

    def ended(self, config: TrainConfig, seconds: float) -> str | None:
        """The limit that a training has reached."""
        limits = self.progress(config, seconds).items()
        return next((name for name, (done, end) in limits if done >= end), None)

    def finished(self, config: TrainConfig) -> str | None:
        """The limit that ended the training before, where the last step is validated too."""
        due = config.validation.every is not None and self.validated < self.step
        return None if due else self.ended(config, self.seconds)


# The training loop: steps, validations and checkpoints, and the state that they share.

Figures = dict[str, float]


class Trainer:
    """Trains from a state until something ends it; everything random is a function of the step."""

    def __init__(
        self, job: Job, config: TrainConfig, folder: Path, state: TrainState, tools: Tools
    ) -> None:
        self.job, self.config, self.folder = job, config, folder
        self.state, self.tools = state, tools
        self.parallel, self.ranks = tools.parallel, tools.parallel.ranks
        self.saved = state.step  # the step of the newest checkpoint
        self.agree()
        self._earlier, self._begun = state.seconds, self._now
        self._last_save, self._last_log = self._now, state.step
        self._times: list[float] | None = []  # of the first steps, until their pace is known
        self._measured = Measures({})  # of the last validation, on rank 0

    def agree(self) -> None:
        """Set the time and the received signal, the same on all ranks."""
        self._now, self.stop = self.ranks.agree(time.monotonic(), self.tools.interrupt.received)

    def run(self) -> str:
        """Train; gives the reason why it ended, with the last step validated and saved.

        If a signal is the reason, the step is saved as it is, and what is due after it is done
        when the run goes on.
        """
        state, config = self.state, self.config
        start = (state.epoch, state.position)
        parts = portions(self.tools.plan, state.batches, start, config.max_epochs)
        own = (portion.share(self.ranks.rank, self.ranks.world) for portion in parts)
        feed = Feed(self.job.task, own, state.seed)
        try:
            self.agree()
            self._settle()
            while (reason := self._ended()) is None:
                self._advance(feed)
                self._say_pace()
                self._settle()
        finally:
            feed.close()
        self._settle(last=True)
        self.agree()
        return "interrupted" if self.stop else reason

    def _settle(self, last: bool = False) -> None:
        """Look, validate and save where that is due after a step, or after the last one."""
        step, every, save = self.state.step, self.config.validation.every, self.config.save
        snapshots, improved = self.tools.snapshots, False
        if snapshots is not None and not self.stop and snapshots.due(step, last):
            with self.parallel.measured(self.tools.mean), self.tools.precision.context():
                snapshots.take(step)
        if every is not None and step > self.state.validated and not self.stop:
            improved = (last or step % every == 0) and self.validate()
        regular = save.every is not None and step % save.every == 0
        waited = (self._now - self._last_save) / 60
        timed = save.every_minutes is not None and waited >= save.every_minutes
        if improved or (step > self.saved and (last or regular or timed)):
            self.save()

    def _say_pace(self) -> None:
        """Say it early and once where the minutes allowed are too few to learn from."""
        if self._times is None:
            return
        self._times.append(self._now)  # from the first step, which takes longer than the others
        steps, seconds = len(self._times) - 1, self._now - self._times[0]
        if steps and seconds > 3:
            self._times = None
            if few := too_few(self.config, self.state, seconds / steps):
                self.tools.display.say(few)

    def seconds(self) -> float:
        """Wall clock of the run, that of earlier sessions included."""
        return self._earlier + self._now - self._begun

    def _ended(self) -> str | None:
        return "interrupted" if self.stop else self.state.ended(self.config, self.seconds())

    def _advance(self, feed: Feed) -> None:
        """One optimiser step."""
        started = time.perf_counter()
        portion, batches = feed.next()
        self.ranks.doing(f"step {self.state.step + 1}")
        sums, norm = self._step(portion, batches)
        self.agree()
        state = self.state
        state.step += 1
        state.epoch, state.position = portion.after
        state.targets += int(sums["count"])
        state.seconds = self.seconds()
        self._record(sums | {"time": time.perf_counter() - started}, norm)

    def _step(self, portion: Portion, batches: list[object]) -> tuple[dict[str, float], float]:
        """One step along Σ ∇totals / Σ counts of the batches, clipped to the norm allowed.

        The sums are over all batches of all ranks.
        """
        number, optimizer = self.state.step + 1, self.tools.optimizer
        if self.job.objective is not None:
            self.job.objective.advance(number)
        micro_batches = portion.micro_batches(batches, self.state.seed, number)
        losses = [self.backward(micro) for micro in micro_batches]
        own: dict[str, float] = {}
        for loss in losses:
            parts: dict[str, Tensor | int] = {"loss": loss.total, "count": loss.count}
            for name, value in (parts | loss.logged).items():
                own[name] = own.get(name, 0.0) + float(value)
        sums = self.ranks.sums(own)
        count = int(sums["count"])
        if count == 0:
            raise TrainError(f"step {number} has no targets: {portion}")
        grads = self.parallel.gradients()
        norm = self.parallel.norm(grads) / count
        rate = self._rate(number)
        if not np.isfinite(norm + sums["loss"]):
            cause = self.parallel.why(micro_batches, own["loss"], self._forward, rate)
            raise TrainError(
                f"step {number}, {portion}: {cause}; the checkpoint of step {self.saved} is kept"
            )
        clip = self.config.clip_norm
        scale = 1.0 if clip is None else min(1.0, clip / (norm + 1e-6))
        torch._foreach_mul_(grads, scale / count)
        for group in optimizer.param_groups:
            group["lr"] = rate
        watching = self.tools.health.watching(number) if self.tools.health else nullcontext()
        with watching, self.tools.precision.context():
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if self.tools.mean is not None:
            self.tools.mean.update(number)
        return sums, norm

    def _rate(self, step: int) -> float:
        """The learning rate of a step, which comes down with the time allowed.

        Where time is ahead of the steps, each further hundredth of it is logged with its step as
        an event ``pace``. A run that goes on takes the logged ones again, so that the rates of
        steps done twice are the same.
        """
        state, schedule, paces = self.state, self.tools.schedule, self.tools.paces
        rate = schedule.rate(step)
        if self.config.max_minutes is None:
            return rate
        budget = 60 * self.config.max_minutes
        if step <= max(paces, default=0):
            seconds = paces.get(step, 0.0)
        else:
            seconds = int(100 * min(1.0, self.seconds() / budget)) * budget / 100
        paced = schedule.rate_at(step, max(seconds, state.paced) / budget)
        if paced != rate and seconds > state.paced:
            state.paced = seconds
            self.tools.journal.write("pace", step, seconds=seconds)
        return paced

    def _forward(self, micro: MicroBatch) -> Loss:
        """The loss of a batch, without collectives."""
        if micro.seed is not None:
            torch.manual_seed(micro.seed)
        with self.tools.precision.context():
            return self.job.loss(self.job.model, micro.batch)

    def backward(self, micro: MicroBatch) -> Loss:
        """Add the gradient of a batch's total; gives the loss without its graph."""
        if micro.seed is not None:
            torch.manual_seed(micro.seed)
        with self.parallel.gathering(micro.last):
            with self.tools.precision.context():
                loss = self.parallel.loss(micro.batch)
            if not micro.counts:
                loss = Loss(0 * loss.total, 0, {name: 0 * x for name, x in loss.logged.items()})
            loss.total.backward()
        return Loss(loss.total.detach(), loss.count, loss.logged)

    def _record(self, sums: dict[str, float], norm: float) -> None:
        """Add a step to the window of the log; at its end, write a line of means."""
        state = self.state
        for name, value in sums.items():
            state.window[name] = state.window.get(name, 0.0) + value
        losses = {k: v / sums["count"] for k, v in sums.items() if k in ("loss", "nll")}
        rate, spent = sums["count"] / sums["time"], sums["time"]
        self.tools.display.update(state.step, losses, rate, state.seconds, spent)
        if state.step % self.config.log_every:
            return
        window, state.window = state.window, {}
        steps, self._last_log = state.step - self._last_log, state.step
        count, spent = window.pop("count"), window.pop("time")
        self.tools.journal.write(
            "train",
            state.step,
            epoch=state.epoch,
            **{name: value / count for name, value in window.items()},
            lr=self.tools.optimizer.param_groups[0]["lr"],
            grad_norm=norm,
            target_tokens=state.targets,
            tokens_per_second=round(count / spent, 1),
            seconds=round(state.seconds, 3),
            memory_mib=peak_memory(next(self.job.model.parameters()).device),
            **self.parallel.volume(steps),
        )

    def validate(self) -> bool:
        """Measure on the validation data; true where the deciding figure is the best so far."""
        began = self.seconds()
        with self.parallel.measured(self.tools.mean) as model:
            figures = self.ranks.lead("validation", lambda: self._figures(model))
        self.agree()
        if figures is None:
            return False  # due again when the run goes on
        state, name = self.state, self.config.save.best
        if name not in figures:
            known = ", ".join(sorted(figures))
            raise TrainError(f"train.save.best = {name!r} is not measured by this task: {known}")
        if not np.isfinite(loss := figures.get("loss", 0.0)):
            raise TrainError(
                f"step {self.state.step}: the loss on the validation data is {loss}; the "
                f"checkpoint of step {self.saved} is kept: lower train.optimizer.lr, and train in "
                "another folder (--run)"
            )
        value, sign = figures[name], self.job.task.better(name)
        improved = bool(np.isfinite(value)) and (
            state.best is None or sign * value > sign * state.best.value
        )
        if improved:
            state.best = Best(name, value, state.step)
        state.stale = 0 if improved else state.stale + 1
        state.validated, state.figures = state.step, figures
        state.seconds = self.seconds()
        samples = [asdict(sample) for sample in self._measured.samples]
        self.tools.journal.write(
            "valid", state.step, epoch=state.epoch, **figures, best=improved,
            seconds=round(state.seconds, 3), samples=samples,
        )  # fmt: skip
        best, spent = None if state.best is None else state.best.step, state.seconds - began
        self.tools.display.validated(state.step, self._measured, best, spent)
        return improved

    def _figures(self, model: nn.Module) -> Figures | None:
        """What a validation measures; nothing where a signal breaks it off."""
        try:
            self._measured = self.measure(model)
        except KeyboardInterrupt:
            if self.tools.interrupt.received is None:
                raise
            return None
        return self._measured.figures

    def measure(self, model: nn.Module) -> Measures:
        """The figures of a model on the validation data; a signal breaks it off."""
        job = self.job
        model.eval()
        try:
            with (
                self.tools.interrupt.at_once(),
                torch.inference_mode(),
                self.tools.precision.context(),
            ):
                samples = self.config.validation.samples
                return job.task.measure(model, "valid", job.search, samples=samples)
        finally:
            model.train()

    def save(self) -> None:
        """Write a checkpoint, let ``best.json`` name the best, and remove those not to be kept."""
        self.state.seconds = self.seconds()
        mean = None if self.tools.mean is None else self.tools.mean.tensors
        contents = checkpoint.Contents.of(
            self.job.model, self.tools.optimizer, mean, keep=self.ranks.leads
        )
        self.ranks.lead("saving", lambda: self._write(contents))
        self.saved, self._last_save = self.state.step, self._now

    def _write(self, contents: checkpoint.Contents) -> None:
        state = self.state
        tree = asdict(state)
        checkpoint.save(self.folder, state.step, contents, tree, self.job.toml, self.tools.files)
        self.point()
        keep = self.regular()[-max(self.config.save.keep, self.config.average or 0) :]
        checkpoint.prune(
            self.folder, {state.step, *keep, *([state.best.step] if state.best else [])}
        )

    def point(self) -> None:
        """Let ``best.json`` name the best checkpoint, if there is a best."""
        best = self.state.best
        if best and self.ranks.leads:
            checkpoint.point(self.folder, checkpoint.path_of(self.folder, best.step), asdict(best))

    def regular(self) -> list[int]:
        """The steps up to now of which a run that is never stopped has checkpoints too."""
        every, last = self.config.save.every, self.state.step
        known = [step for step in checkpoint.steps(self.folder) if 0 < step <= last]
        return [step for step in known if every is None or step % every == 0 or step == last]
