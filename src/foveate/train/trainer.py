"""The training loop: next batches, loss, gradients, optimizer, log, validation, checkpoint."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from foveate.tasks.base import AnyTask, Loss, Measures, ValidationSample
from foveate.train import checkpoint, feed, stored
from foveate.train.checkpoint import Best, TrainState, too_few
from foveate.train.config import ConfigChange, Precision, TrainConfig
from foveate.train.distributed import Interrupt, Parallel
from foveate.train.journal import (
    Display,
    Health,
    Journal,
    Recorder,
    Recording,
    peak_memory,
    why_not_finite,
)
from foveate.train.optim import MovingMean, Schedule
from foveate.train.stored import TrainError

if TYPE_CHECKING:
    from foveate.decode.search import Search


@dataclass(frozen=True)
class Job:
    """A training job: a task with its data, a model, the objective, the search of validations.

    ``toml`` is the resolved config, kept in each checkpoint; ``snapshots`` makes what records
    attention. ``changes`` are those of the config since the run was last trained; with
    ``changed_data`` the run resumes although its data have changed.
    """

    task: AnyTask
    model: nn.Module
    objective: feed.TrainObjective
    search: Search
    seed: int
    toml: str
    snapshots: Recording
    changes: tuple[ConfigChange, ...] = ()
    changed_data: bool = False


@dataclass
class Trainer:
    """Trains from a state until something ends it; everything random is a function of the step.

    `foveate.train.fit.fit` makes its parts.
    """

    job: Job
    config: TrainConfig
    folder: Path
    state: TrainState
    parallel: Parallel
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    precision: Precision
    plan: feed.Plan
    journal: Journal
    display: Display
    interrupt: Interrupt
    files: Mapping[str, str]  # `run_files`
    paces: Mapping[int, float]  # logged after the newest checkpoint
    mean: MovingMean | None = None
    health: Health | None = None
    snapshots: Recorder | None = None  # on rank 0
    ahead: int = 0  # steps that may be in flight (`steps_ahead`)

    def __post_init__(self) -> None:
        self.ranks = self.parallel.ranks
        self.saved = self.state.step  # the step of the newest checkpoint
        self.agree()
        self._earlier, self._begun = self.state.seconds, self._now
        self._in_flight = deque[feed.StepNumbers]()
        self._failed: Tensor | None = None  # `StepNumbers.failed` of the newest step in flight
        self._times: list[float] | None = []  # of the first steps, until their pace is known

    def run(self) -> str:
        """Train; return the reason why it ended, with the last step validated and saved.

        If a signal is the reason, the step is saved as it is, and what is due after it is done
        when the run resumes.
        """
        reason = None
        epochs = self.config.max_epochs
        steps = feed.steps_of(self.job.task, self.plan, self.state, epochs, self.ranks)
        with feed.Feed(steps) as batches:
            self.agree()
            while True:
                last = reason is not None
                if self.snapshots and not self.stop and self.snapshots.due(self.state.step, last):
                    self.snapshot()
                improved = self.validation_due(last) and self.validate()
                if improved or self.save_due(last):
                    self.save()
                if last:
                    break
                if (reason := self.ended()) is not None:
                    continue  # once more, for what is due after the last step
                if not self._in_flight:
                    self._settled = time.perf_counter()
                self.launch(batches.next())
                self.agree()
                self.settle(leave=self.ahead)
        self.agree()
        return "interrupted" if self.stop else str(reason)

    def launch(self, step: feed.TrainingStep) -> None:
        """Take a step against Σ ∇totals / Σ counts of the batches, clipped to the norm allowed.

        Its numbers are checked now, or `settle` checks them later; if they are not finite, neither
        this step nor those in flight after it change the weights.
        """
        self.ranks.doing(f"step {step.number}")
        self.job.objective.advance(step.number)
        losses = [self.backward(micro) for micro in step.micro_batches]
        gradients = self.parallel.gradients()
        norm = self.parallel.norm(gradients)
        numbers = feed.StepNumbers(step, losses, norm, self._failed)
        numbers.rate = self.rate(step.number)
        if not self.ahead:
            self.check(numbers)
        else:  # PyTorch's fused optimizers skip a step where this is 1, as for AMP
            self._failed = vars(self.optimizer)["found_inf"] = numbers.failed
        if numbers.count == 0:
            raise TrainError(f"step {step.number} has no targets: {step}")
        torch._foreach_mul_(gradients, scale_of(norm, numbers.count, self.config.clip_norm))
        self.update(step.number, numbers.rate)
        state = self.state
        state.step, (state.epoch, state.position) = step.number, step.after
        state.targets = numbers.targets = state.targets + numbers.count
        self._in_flight.append(numbers)

    def update(self, step: int, rate: float) -> None:
        """Change the weights by their gradients, and the moving mean by the weights."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        watching = self.health.watching(step) if self.health else nullcontext()
        with watching, self.precision.context():
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.mean is not None:
            self.mean.update(step)

    def settle(self, leave: int = 0) -> None:
        """Check and log the oldest steps in flight, until at most ``leave`` are left."""
        while (due := len(self._in_flight) - leave) > 0:
            numbers = self._in_flight.popleft()
            self.check(numbers)
            spent = (time.perf_counter() - self._settled) / due  # the same for all
            self._settled += spent
            if self.health is not None:
                self.health.write(numbers.step.number)
            self.log(numbers, spent)

    def backward(self, micro: feed.MicroBatch) -> Loss:
        """Add the gradient of a batch's total; return the loss without its graph."""
        torch.manual_seed(micro.seed)
        with self.parallel.gathering(micro.last):
            with self.precision.context():
                loss = self.parallel.loss(micro.batch)
            if not micro.counts:
                loss = Loss(0 * loss.total, 0, {name: 0 * x for name, x in loss.logged.items()})
            loss.total.backward()
        return Loss(loss.total.detach(), loss.count, loss.logged)

    def rate(self, step: int) -> float:
        """The learning rate of a step, which comes down with the time allowed.

        Where time is ahead of the steps, each further hundredth of it is logged with its step as
        an event ``pace``. A run that resumes takes the logged ones again, so that the rates of
        steps done twice are the same.
        """
        state, schedule, paces = self.state, self.schedule, self.paces
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
            self.journal.write("pace", step, seconds=seconds)
        return paced

    def check(self, numbers: feed.StepNumbers) -> None:
        """Raise `TrainError` with the cause if the numbers of a step are not finite."""
        if numbers.read(self.ranks):
            return
        step, rate, model = numbers.step, numbers.rate, self.job.model

        def forward(micro: feed.MicroBatch) -> Loss:
            torch.manual_seed(micro.seed)
            with self.precision.context():
                return Parallel.loss(self.parallel, micro.batch)  # without collectives

        if self._failed is not None:  # the gradients are gone, or those of a later step
            self.optimizer.zero_grad(set_to_none=True)
            self.job.objective.advance(step.number)
            for micro in step.micro_batches:
                self.backward(micro)
        why = self.parallel.why(numbers.own_loss, rate)
        why = why or why_not_finite(model, step.micro_batches, forward, rate)
        raise TrainError(
            f"step {step.number}, {step}: {why}; the checkpoint of step {self.saved} is kept"
        )

    def agree(self) -> None:
        """Set the time and the received signal, the same on all ranks."""
        self._now, self.stop = self.ranks.agree(time.monotonic(), self.interrupt.received)

    def seconds(self) -> float:
        """Wall clock of the run, that of earlier sessions included."""
        return self._earlier + self._now - self._begun

    def ended(self) -> str | None:
        """Return what ends the training now, a limit or a signal, or None."""
        return "interrupted" if self.stop else self.state.ended(self.config, self.seconds())

    def log(self, numbers: feed.StepNumbers, spent: float) -> None:
        """Count a step of ``spent`` seconds; at the end of a window write a line of its means."""
        state, step, sums, count = self.state, numbers.step, numbers.sums, numbers.count
        state.seconds = self.seconds()
        for name, value in (sums | {"time": spent}).items():
            state.window[name] = state.window.get(name, 0.0) + value
        losses = {name: value / count for name, value in sums.items() if name in ("loss", "nll")}
        self.display.update(step.number, losses, count / spent, state.seconds, spent)
        self._warn_of_pace()
        if step.number % self.config.log_every:
            return
        window, state.window = state.window, {}
        targets, spent = window.pop("count"), window.pop("time")
        self.journal.write(
            "train",
            step.number,
            epoch=step.after[0],
            **{name: value / targets for name, value in window.items()},
            lr=numbers.rate,
            grad_norm=numbers.norm,
            target_tokens=numbers.targets,
            tokens_per_second=round(targets / spent, 1),
            seconds=round(state.seconds, 3),
            memory_mib=peak_memory(next(self.job.model.parameters()).device),
        )

    def _warn_of_pace(self) -> None:
        """Print early and once where the minutes allowed are too few to learn from."""
        if self._times is None:
            return
        self._times.append(self._now)  # from the first step, which takes longer than the others
        steps, seconds = len(self._times) - 1, self._now - self._times[0]
        if steps and seconds > 3:
            self._times = None
            if few := too_few(self.config, self.state, seconds / steps):
                self.display.say(few)

    def snapshot(self) -> None:
        """Record attention to the example of `SnapshotConfig`."""
        self.settle()
        assert self.snapshots is not None
        with self.parallel.measured(self.mean), self.precision.context():
            self.snapshots.take(self.state.step)

    def validation_due(self, last: bool) -> bool:
        """Return whether the model is measured after this step, or after the ``last``."""
        step, every = self.state.step, self.config.validation.every
        if every is None or self.stop or step <= self.state.validated:
            return False
        return last or step % every == 0

    def validate(self) -> bool:
        """Measure on the validation data; true where the deciding figure is the best so far."""
        self.settle()
        state, name = self.state, self.config.save.best
        began = self.seconds()
        with self.parallel.measured(self.mean) as model:
            ended = partial(self.interrupt.unless, lambda: asdict(self.measure(model)))
            record = self.ranks.on_rank_zero("validation", ended)
        self.agree()
        if record is None:
            return False  # due again when the run resumes
        figures, samples = record["figures"], record["samples"]
        if name not in figures:
            known = ", ".join(sorted(figures))
            raise TrainError(f"train.save.best = {name!r} is not measured by this task: {known}")
        if not math.isfinite(loss := figures.get("loss", 0.0)):
            raise TrainError(
                f"step {state.step}: the loss on the validation data is {loss}; the "
                f"checkpoint of step {self.saved} is kept: lower train.optimizer.lr, and train in "
                "another folder (--run)"
            )
        value, sign = figures[name], self.job.task.better(name)
        improved = math.isfinite(value) and (
            state.best is None or sign * value > sign * state.best.value
        )
        if improved:
            state.best = Best(name, value, state.step)
        state.stale = 0 if improved else state.stale + 1
        state.validated, state.figures = state.step, figures
        state.seconds = self.seconds()
        self.journal.write(
            "valid", state.step, epoch=state.epoch, **figures, best=improved,
            seconds=round(state.seconds, 3), samples=samples,
        )  # fmt: skip
        best, spent = None if state.best is None else state.best.step, state.seconds - began
        measures = Measures(figures, [ValidationSample(**sample) for sample in samples])
        self.display.validated(state.step, measures, best, spent)
        return improved

    def measure(self, model: nn.Module) -> Measures:
        """The figures of a model on the validation data."""
        samples, search = self.config.validation.samples, self.job.search
        model.eval()
        try:
            with torch.inference_mode(), self.precision.context():
                return self.job.task.measure(model, "valid", search, samples=samples)
        finally:
            model.train()

    def save_due(self, last: bool) -> bool:
        """Return whether this step, or the ``last``, is saved even if it is not the best."""
        step, config = self.state.step, self.config.save
        regular = config.every is not None and step % config.every == 0
        return step > self.saved and (last or regular)

    def save(self) -> None:
        """Write a checkpoint, let ``best.json`` name the best, and remove those not to be kept."""
        self.settle()
        self.state.seconds = self.seconds()
        mean = None if self.mean is None else self.mean.tensors
        model, writes = self.job.model, self.ranks.is_rank_zero
        contents = checkpoint.contents_of(model, self.optimizer, mean, keep=writes)
        self.ranks.on_rank_zero("saving", lambda: self._write(contents))
        self.saved = self.state.step

    def _write(self, contents: checkpoint.Contents) -> None:
        state = self.state
        checkpoint.save(self.folder, state.step, contents, asdict(state), self.job.toml, self.files)
        self.write_best()
        regular = self.regular()[-max(self.config.save.keep, self.config.average or 0) :]
        keep = {state.step, *regular, *([state.best.step] if state.best else [])}
        for step in sorted(set(checkpoint.steps(self.folder)) - keep):
            stored.remove(checkpoint.path_of(self.folder, step))

    def write_best(self) -> None:
        """Let ``best.json`` name the best checkpoint, if there is a best."""
        best = self.state.best
        if best and self.ranks.is_rank_zero:
            path = checkpoint.path_of(self.folder, best.step)
            checkpoint.write_best(self.folder, path, asdict(best))

    def regular(self) -> list[int]:
        """The steps up to now of which a run that is never stopped has checkpoints too."""
        every, last = self.config.save.every, self.state.step
        known = [step for step in checkpoint.steps(self.folder) if 0 < step <= last]
        return [step for step in known if every is None or step % every == 0 or step == last]


def scale_of(norm: Tensor, count: int, clip: float | None) -> Tensor:
    """Return min(1, clip / (‖ḡ‖ + 1e-6)) / count on the device; ‖ḡ‖ = ``norm`` / count."""
    if clip is None:
        return torch.full_like(norm, 1 / count)
    mean = norm.double() / count + 1e-6
    return ((torch.full_like(mean, clip) / mean).clamp(max=1.0) / count).to(norm.dtype)
