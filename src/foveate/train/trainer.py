"""The training loop: steps, validations and checkpoints, and the state that they share.

Lives here: what happens in a step and after it. Does not live here: setting up, resuming and
averaging (`foveate.train.fit`), and any task: the trainer sees `foveate.tasks.base` only.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import get_total_norm

from foveate.tasks.base import Loss, Measures, Task
from foveate.train import checkpoint
from foveate.train.config import TrainConfig
from foveate.train.diagnose import peak_memory, why_not_finite
from foveate.train.feed import Feed, Plan, PlanFactory, Portion, mix, portions
from foveate.train.files import TrainError
from foveate.train.journal import Journal
from foveate.train.moving_mean import MovingMean
from foveate.train.precision import Precision
from foveate.train.progress import Display
from foveate.train.schedule import Schedule
from foveate.train.signals import Interrupt
from foveate.train.state import Best, State, sums_of


@dataclass(frozen=True)
class Job:
    """What is trained: a task with its data, a model, what is minimised, how outputs are found.

    ``toml`` is the resolved config, kept in each checkpoint; ``plan`` makes the plan of batches
    from lengths, ``batch_tokens`` and the seed.
    """

    task: Task[Any]
    model: nn.Module
    objective: Any
    search: Any
    seed: int
    toml: str
    plan: PlanFactory


@dataclass
class Tools:
    """What the trainer works with, made by `foveate.train.fit`."""

    optimizer: torch.optim.Optimizer
    schedule: Schedule
    precision: Precision
    plan: Plan
    journal: Journal
    display: Display
    interrupt: Interrupt
    mean: MovingMean | None = None


class Trainer:
    """Trains from a state until something ends it; everything random is a function of the step."""

    def __init__(
        self, job: Job, config: TrainConfig, folder: Path, state: State, tools: Tools
    ) -> None:
        self.job, self.config, self.folder = job, config, folder
        self.state, self.tools = state, tools
        self.saved = state.step  # the step of the newest checkpoint
        self._earlier, self._begun = state.seconds, time.monotonic()
        self._last_save = self._begun

    def run(self) -> str:
        """Train; gives the reason why it ended, with the last step validated and saved.

        If a signal is the reason, the step is saved as it is, and what is due after it is done
        when the run goes on.
        """
        state, config = self.state, self.config
        start = (state.epoch, state.position)
        parts = portions(self.tools.plan, config.accumulate, start, config.max_epochs)
        feed = Feed(self.job.task, parts, state.seed)
        try:
            self._settle()
            while (reason := self._ended()) is None:
                if not self._advance(feed):
                    reason = "max_epochs"
                    break
                self._settle()
        finally:
            feed.close()
        self._settle(last=True)
        return "interrupted" if self._stopping else reason

    def _settle(self, last: bool = False) -> None:
        """Validate and save where that is due after a step, or after the last one."""
        improved = self._validation_due(last) and self.validate()
        if improved or self._save_due(last):
            self.save()

    def _validation_due(self, last: bool) -> bool:
        every, step = self.config.validation.every, self.state.step
        if every is None or step <= self.state.validated or self._stopping:
            return False
        return last or step % every == 0

    def _save_due(self, last: bool) -> bool:
        config, step = self.config.save, self.state.step
        waited = (time.monotonic() - self._last_save) / 60
        regular = config.every is not None and step % config.every == 0
        timed = config.every_minutes is not None and waited >= config.every_minutes
        return step > self.saved and (last or regular or timed)

    @property
    def _stopping(self) -> bool:
        return self.tools.interrupt.received is not None

    def seconds(self) -> float:
        """Wall clock of the run, that of earlier sessions included."""
        return self._earlier + time.monotonic() - self._begun

    def _ended(self) -> str | None:
        config, state = self.config, self.state
        limit, patience = config.max_minutes, config.validation.patience
        reasons = {
            "interrupted": self._stopping,
            "max_steps": config.max_steps is not None and state.step >= config.max_steps,
            "max_minutes": limit is not None and self.seconds() >= 60 * limit,
            "patience": patience is not None and state.stale >= patience,
        }
        return next((reason for reason, holds in reasons.items() if holds), None)

    # ---- steps

    def _advance(self, feed: Feed) -> bool:
        """One optimiser step; false where the last epoch has ended."""
        started = time.perf_counter()
        item = feed.next()
        if item is None:
            return False
        portion, batches = item
        sums, norm = self._step(portion, batches)
        state = self.state
        state.step += 1
        state.epoch, state.position = portion.after
        state.targets += int(sums["count"])
        state.seconds = self.seconds()
        self._record(sums | {"time": time.perf_counter() - started}, norm)
        return True

    def _step(self, portion: Portion, batches: list[Any]) -> tuple[dict[str, float], float]:
        """One step along Σ ∇totals / Σ counts of the batches, clipped to the norm allowed."""
        number, optimizer = self.state.step + 1, self.tools.optimizer
        seed = mix(self.state.seed, "step", number)
        torch.manual_seed(seed)
        if self.job.objective is not None:
            self.job.objective.advance(number)
        losses = [self.backward(batch) for batch in batches]
        count = sum(loss.count for loss in losses)
        if count == 0:
            raise TrainError(f"step {number} has no targets: {portion}")
        grads = [p.grad for p in self.job.model.parameters() if p.grad is not None]
        norm = get_total_norm(grads, foreach=True).item() / count
        rate = self.tools.schedule.rate(number)
        sums = sums_of(losses)
        if not np.isfinite(norm + sums["loss"]):
            torch.manual_seed(seed)
            cause = why_not_finite(self.job.model, batches, self._forward, rate)
            kept = f"the checkpoint of step {self.saved} is kept"
            raise TrainError(f"step {number}, {portion}: {cause}; {kept}")
        clip = self.config.clip_norm
        scale = 1.0 if clip is None else min(1.0, clip / (norm + 1e-6))
        torch._foreach_mul_(grads, scale / count)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if self.tools.mean is not None:
            self.tools.mean.update(number)
        return sums, norm

    def _forward(self, batch: Any) -> Loss:
        with self.tools.precision.context():
            return self.job.task.loss(self.job.model, batch, self.job.objective)

    def backward(self, batch: Any) -> Loss:
        """Add the gradient of a batch's total; gives the loss without its graph."""
        loss = self._forward(batch)
        loss.total.backward()
        return Loss(loss.total.detach(), loss.count, loss.logged)

    def _record(self, sums: dict[str, float], norm: float) -> None:
        """Add a step to the window of the log; at its end, write a line of means."""
        state = self.state
        for name, value in sums.items():
            state.window[name] = state.window.get(name, 0.0) + value
        mean, rate = sums["loss"] / sums["count"], sums["count"] / sums["time"]
        self.tools.display.update(state.step, mean, rate, state.seconds)
        if state.step % self.config.log_every:
            return
        window, state.window = state.window, {}
        count, spent = window.pop("count"), window.pop("time")
        self.tools.journal.write(
            "train",
            state.step,
            epoch=state.epoch,
            **{name: value / count for name, value in window.items()},
            lr=self.tools.schedule.rate(state.step),
            grad_norm=norm,
            target_tokens=state.targets,
            tokens_per_second=round(count / spent, 1),
            seconds=round(state.seconds, 3),
            memory_mib=peak_memory(next(self.job.model.parameters()).device),
        )

    # ---- validations and checkpoints

    def validate(self) -> bool:
        """Measure on the validation data; true where the deciding figure is the best so far."""
        mean = self.tools.mean
        try:
            with nullcontext() if mean is None else mean.applied():
                measures = self.measure()
        except KeyboardInterrupt:
            if self.tools.interrupt.received is None:
                raise
            return False  # due again when the run goes on
        state, name = self.state, self.config.save.best
        if name not in measures.figures:
            known = ", ".join(sorted(measures.figures))
            raise TrainError(f"train.save.best = {name!r} is not measured by this task: {known}")
        value, sign = measures.figures[name], self.job.task.better(name)
        improved = bool(np.isfinite(value)) and (
            state.best is None or sign * value > sign * state.best.value
        )
        if improved:
            state.best = Best(name, value, state.step)
        state.stale = 0 if improved else state.stale + 1
        state.validated, state.figures = state.step, measures.figures
        state.seconds = self.seconds()
        samples = [asdict(sample) for sample in measures.samples]
        self.tools.journal.write(
            "valid", state.step, epoch=state.epoch, **measures.figures, best=improved,
            seconds=round(state.seconds, 3), samples=samples,
        )  # fmt: skip
        self.tools.display.validated(state.step, measures, improved)
        return improved

    def measure(self) -> Measures:
        """The figures of the present weights on the validation data; a signal breaks it off."""
        job, model = self.job, self.job.model
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
        job, state = self.job, self.state
        state.seconds = self.seconds()
        mean = None if self.tools.mean is None else self.tools.mean.tensors
        checkpoint.save(
            self.folder, state.step, job.model, self.tools.optimizer, asdict(state), job.toml, mean
        )
        self.saved, self._last_save = state.step, time.monotonic()
        self.point()
        keep = self.regular()[-max(self.config.save.keep, self.config.average or 0) :]
        checkpoint.prune(
            self.folder, {state.step, *keep, *([state.best.step] if state.best else [])}
        )

    def point(self) -> None:
        """Let ``best.json`` name the best checkpoint, if there is a best."""
        if best := self.state.best:
            checkpoint.point(self.folder, checkpoint.path_of(self.folder, best.step), asdict(best))

    def regular(self) -> list[int]:
        """The steps up to now of which a run that is never stopped has checkpoints too."""
        every, last = self.config.save.every, self.state.step
        known = [step for step in checkpoint.steps(self.folder) if 0 < step <= last]
        return [step for step in known if every is None or step % every == 0 or step == last]
