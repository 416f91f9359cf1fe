"""The training loop: steps, validations and checkpoints, and the state that they share.

Lives here: what happens in a step and after it. Does not live here: setting up, resuming and
averaging (`foveate.train.fit`), and any task: the trainer sees `foveate.tasks.base` only.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from foveate.tasks.base import Loss, Measures
from foveate.train import checkpoint
from foveate.train.config import TrainConfig
from foveate.train.diagnose import peak_memory
from foveate.train.feed import Feed, Portion, Turn, portions
from foveate.train.files import TrainError
from foveate.train.job import Job, Tools
from foveate.train.state import Best, State, sums_of

Figures = dict[str, float]


class Trainer:
    """Trains from a state until something ends it; everything random is a function of the step."""

    def __init__(
        self, job: Job, config: TrainConfig, folder: Path, state: State, tools: Tools
    ) -> None:
        self.job, self.config, self.folder = job, config, folder
        self.state, self.tools = state, tools
        self.parallel, self.ranks = tools.parallel, tools.parallel.ranks
        self.saved = state.step  # the step of the newest checkpoint
        self.agree()
        self._earlier, self._begun = state.seconds, self._now
        self._last_save, self._last_log = self._now, state.step
        self._measured = Measures({})  # of the last validation, on rank 0

    def agree(self) -> None:
        """What time it is, and whether a signal has come: for all ranks, until asked again."""
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
                if not self._advance(feed):
                    reason = "max_epochs"
                    break
                self._settle()
        finally:
            feed.close()
        self._settle(last=True)
        self.agree()
        return "interrupted" if self.stop else reason

    def _settle(self, last: bool = False) -> None:
        """Validate and save where that is due after a step, or after the last one."""
        improved = self._validation_due(last) and self.validate()
        if improved or self._save_due(last):
            self.save()

    def _validation_due(self, last: bool) -> bool:
        every, step = self.config.validation.every, self.state.step
        if every is None or step <= self.state.validated or self.stop:
            return False
        return last or step % every == 0

    def _save_due(self, last: bool) -> bool:
        config, step = self.config.save, self.state.step
        waited = (self._now - self._last_save) / 60
        regular = config.every is not None and step % config.every == 0
        timed = config.every_minutes is not None and waited >= config.every_minutes
        return step > self.saved and (last or regular or timed)

    def seconds(self) -> float:
        """Wall clock of the run, that of earlier sessions included."""
        return self._earlier + self._now - self._begun

    def _ended(self) -> str | None:
        config, state = self.config, self.state
        limit, patience = config.max_minutes, config.validation.patience
        reasons = {
            "interrupted": self.stop is not None,
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
        self.ranks.doing(f"step {self.state.step + 1}")
        sums, norm = self._step(portion, batches)
        self.agree()
        state = self.state
        state.step += 1
        state.epoch, state.position = portion.after
        state.targets += int(sums["count"])
        state.seconds = self.seconds()
        self._record(sums | {"time": time.perf_counter() - started}, norm)
        return True

    def _step(self, portion: Portion, batches: list[Any]) -> tuple[dict[str, float], float]:
        """One step along Σ ∇totals / Σ counts of the batches, clipped to the norm allowed.

        The sums are over all batches of all ranks.
        """
        number, optimizer = self.state.step + 1, self.tools.optimizer
        if self.job.objective is not None:
            self.job.objective.advance(number)
        turns = portion.turns(batches, self.state.seed, number)
        own = sums_of([self.backward(turn) for turn in turns])
        sums = self.ranks.sums(own)
        count = int(sums["count"])
        if count == 0:
            raise TrainError(f"step {number} has no targets: {portion}")
        grads = self.parallel.gradients()
        norm = self.parallel.norm(grads) / count
        rate = self.tools.schedule.rate(number)
        if not np.isfinite(norm + sums["loss"]):
            cause = self.parallel.why(turns, own["loss"], self._forward, rate)
            kept = f"the checkpoint of step {self.saved} is kept"
            raise TrainError(f"step {number}, {portion}: {cause}; {kept}")
        clip = self.config.clip_norm
        scale = 1.0 if clip is None else min(1.0, clip / (norm + 1e-6))
        torch._foreach_mul_(grads, scale / count)
        for group in optimizer.param_groups:
            group["lr"] = rate
        with self.tools.health.watching(number) if self.tools.health else nullcontext():
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if self.tools.mean is not None:
            self.tools.mean.update(number)
        return sums, norm

    def _forward(self, turn: Turn) -> Loss:
        """The loss of a batch, on which no other rank waits."""
        if turn.seed is not None:
            torch.manual_seed(turn.seed)
        with self.tools.precision.context():
            return self.job.task.loss(self.job.model, turn.batch, self.job.objective)

    def backward(self, turn: Turn) -> Loss:
        """Add the gradient of a batch's total; gives the loss without its graph."""
        if turn.seed is not None:
            torch.manual_seed(turn.seed)
        with self.parallel.gathering(turn.last):
            with self.tools.precision.context():
                loss = self.parallel.loss(turn.batch)
            if not turn.counts:
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
            lr=self.tools.schedule.rate(state.step),
            grad_norm=norm,
            target_tokens=state.targets,
            tokens_per_second=round(count / spent, 1),
            seconds=round(state.seconds, 3),
            memory_mib=peak_memory(next(self.job.model.parameters()).device),
            **self.parallel.volume(steps),
        )

    # ---- validations and checkpoints

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
        spent = state.seconds - began
        self.tools.display.validated(state.step, self._measured, improved, spent)
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
        checkpoint.save(self.folder, state.step, contents, asdict(state), self.job.toml)
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
