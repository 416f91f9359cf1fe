"""Training from beginning to end: set up or go on, train, average, say which weights are best.

Lives here: what happens once in a session. Does not live here: what happens in each step
(`foveate.train.trainer`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foveate.train import checkpoint, files
from foveate.train.average import average
from foveate.train.checkpoint import WEIGHTS
from foveate.train.config import TrainConfig
from foveate.train.diagnose import is_out_of_memory
from foveate.train.feed import Plan, fingerprint, mix
from foveate.train.files import DamagedError, TrainError
from foveate.train.journal import Journal
from foveate.train.moving_mean import moving_mean
from foveate.train.precision import Precision, resolve
from foveate.train.progress import Display, clock
from foveate.train.signals import Interrupt
from foveate.train.state import Best, State
from foveate.train.trainer import Job, Tools, Trainer


@dataclass(frozen=True)
class Outcome:
    """How a session of training ended.

    ``reason`` is the limit that ended it ("max_steps", "max_epochs", "max_minutes", "patience")
    or "interrupted"; ``weights`` is the folder whose weights stand for the run; ``best`` the best
    validation; ``exit_code`` what a shell should see.
    """

    reason: str
    state: State
    best: Best | None
    weights: Path
    exit_code: int = 0


def fit(job: Job, config: TrainConfig, folder: Path) -> Outcome:
    """Train ``job.model`` in the run ``folder``, or go on where a session before has stopped.

    On a CPU the weights after step n are bit-identical however often the run was stopped, if the
    model comes with the same first weights, as a seed makes it. At the end the model holds the
    weights that stand for the run. Raises `TrainError` that says what is safe and what to do.
    """
    config.check()
    folder.mkdir(parents=True, exist_ok=True)
    device = next(job.model.parameters()).device
    with contextlib.ExitStack() as stack:
        stack.enter_context(_settings(config, device))
        plan = job.plan(job.task.lengths("train"), config.batch_tokens, job.seed)
        optimizer = config.optimizer.build(job.model)
        state, said = resume(job, config, folder, plan, optimizer)
        total = _total_steps(config, plan)
        limit = None if config.max_minutes is None else 60 * config.max_minutes
        tools = Tools(
            optimizer=optimizer,
            schedule=config.schedule.build(config.optimizer.lr, config.max_steps),
            precision=_precision(config, state, device),
            plan=plan,
            journal=Journal(folder, state.step, config.tensorboard),
            display=Display(total, limit, state.step, state.seconds),
            interrupt=Interrupt(),
            mean=moving_mean(config.ema, job.model, checkpoint.path_of(folder, state.step)),
        )
        stack.callback(tools.journal.close)
        stack.enter_context(tools.interrupt)
        stack.enter_context(tools.display)
        trainer = Trainer(job, config, folder, state, tools)
        for line in (*said, tools.precision.why):
            tools.display.say(line)
        _start(trainer)
        reason = trainer.run()
        if config.average is not None and reason != "interrupted":
            reason = _try_average(trainer, config.average, reason)
        return _end(trainer, reason)


def resume(
    job: Job, config: TrainConfig, folder: Path, plan: Plan, optimizer: torch.optim.Optimizer
) -> tuple[State, list[str]]:
    """The state to begin with, from the newest sound checkpoint or new, and what to say of it.

    Raises `TrainError` where the data, the seed or ``batch_tokens`` are not those of the run.
    """
    for place in (folder, folder / "checkpoints"):
        files.clean(place)
    step, said = checkpoint.newest_sound(folder)
    order = fingerprint(plan)
    job.model.train()
    if step is None and said:
        raise TrainError(
            f"no checkpoint of {folder} is whole ({'; '.join(said)}): remove "
            f"{folder / 'checkpoints'} to train from the beginning"
        )
    if step is None:
        return State(seed=job.seed, plan=order), said
    state = State.of(checkpoint.load(folder, step, job.model, optimizer))
    if (state.seed, state.plan) != (job.seed, order):
        raise TrainError(
            f"{checkpoint.path_of(folder, step)} was trained on other data, with another seed or "
            "train.batch_tokens than the config has now, so that its place in the data means "
            "nothing: take the old ones, or start a run in another folder"
        )
    said.append(f"going on from step {step:,} ({clock(state.seconds)} of training before)")
    if state.best is not None and state.best.figure != config.save.best:
        said.append(
            f"the best is chosen by {config.save.best} from now on, not {state.best.figure}"
        )
        state.best, state.stale = None, 0
    return state, said


def _precision(config: TrainConfig, state: State, device: torch.device) -> Precision:
    """What the config says; "auto" is decided once, for another choice would give other weights."""
    begun = config.precision == "auto" and state.precision != "auto"
    precision = resolve(state.precision if begun else config.precision, device)
    state.precision = precision.name
    why = f"precision {precision.name}, as this run began"
    return replace(precision, why=why) if begun else precision


def _total_steps(config: TrainConfig, plan: Plan) -> int | None:
    """Steps until max_steps or max_epochs, whichever is first; epochs are taken to be alike."""
    limits = [] if config.max_steps is None else [config.max_steps]
    if config.max_epochs is not None:
        limits.append(-(-config.max_epochs * len(plan.epoch(0)) // config.accumulate))
    return min(limits, default=None)


@contextlib.contextmanager
def _settings(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """Threads as configured; on a CPU only operations that give the same bits each time."""
    threads, exact = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    rules: Any = torch.utils.deterministic
    fill = rules.fill_uninitialized_memory
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    if device.type == "cpu":
        torch.use_deterministic_algorithms(True)
        rules.fill_uninitialized_memory = False  # it would cost time, and no result depends on it
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(exact)
        rules.fill_uninitialized_memory = fill


def _start(trainer: Trainer) -> None:
    tools, model, state = trainer.tools, trainer.job.model, trainer.state
    tools.journal.write(
        "start",
        state.step,
        precision=tools.precision.name,
        device=tools.precision.device,
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        parameters=sum(p.numel() for p in model.parameters()),
    )
    rehearse(trainer)
    if state.best is not None:
        trainer.point()  # it may have named a checkpoint that was found damaged
    if not checkpoint.steps(trainer.folder):
        trainer.save()  # first weights and precision are kept, and a full disk is met at once


def rehearse(trainer: Trainer) -> None:
    """Forward and backward on the largest batches, without a step: memory runs out now or never.

    Buffers are put back, gradients dropped and each step seeds its own randomness, so that
    nothing of it stays. Raises `TrainError` that names the batch where memory is too small.
    """
    job, config = trainer.job, trainer.config
    lengths = np.asarray(job.task.lengths("train"))
    lengths = lengths.reshape(len(lengths), -1)
    batches = [b for b in trainer.tools.plan.epoch(0) if len(b)]
    tokens = [len(b) * int(lengths[b].max(axis=0).sum()) for b in batches]
    longest = [int(lengths[b].max()) for b in batches]
    buffers = [(buffer, buffer.clone()) for buffer in job.model.buffers()]
    for i in sorted({int(np.argmax(tokens)), int(np.argmax(longest))}) if batches else []:
        noise = mix(job.seed, "noise", 0)
        try:
            trainer.backward(job.task.batch("train", batches[i].tolist(), noise=noise))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise TrainError(
                f"the batch of {len(batches[i])} examples of up to {longest[i]} tokens does not "
                f"fit into memory: lower train.batch_tokens (now {config.batch_tokens}; "
                "train.accumulate makes up for it), or the longest example allowed"
            ) from error
        finally:
            trainer.tools.optimizer.zero_grad(set_to_none=True)
    with torch.no_grad():
        for buffer, before in buffers:
            buffer.copy_(before)


# ------------------------------------------------------------------------------ the end


def _try_average(trainer: Trainer, count: int, reason: str) -> str:
    """Put the mean of the last checkpoints into ``averaged/`` and see whether it is better."""
    display, folder = trainer.tools.display, trainer.folder
    steps = _sound_steps(trainer)[-count:]
    if len(steps) < 2:
        display.say(f"nothing to average: {len(steps)} checkpoint of the last {count} is there")
        return reason
    record = _known_average(folder, steps)
    if record is None:
        try:
            record = _average(trainer, steps)
        except KeyboardInterrupt:
            if trainer.tools.interrupt.received is None:
                raise
            return "interrupted"
        trainer.tools.journal.write("average", trainer.state.step, **record)
    best, value = trainer.state.best, record.get("value")
    sign = trainer.job.task.better(trainer.config.save.best)
    better = best is None or (value is not None and sign * value > sign * best.value)
    if better:
        checkpoint.point(folder, folder / "averaged", record)
    display.say(
        f"mean of the checkpoints of steps {', '.join(map(str, steps))}: "
        + (f"{record['figure']} {value:.4g}" if value is not None else "not validated")
        + ("" if best is None else f", the best single one {best.value:.4g} (step {best.step:,})")
        + f"; {'the mean' if better else 'the single one'} is taken"
    )
    return reason


def _sound_steps(trainer: Trainer) -> list[int]:
    found = []
    for step in trainer.regular():
        try:
            files.verify(checkpoint.path_of(trainer.folder, step))
        except DamagedError as damage:
            trainer.tools.display.say(f"left out of the mean: {damage}")
            continue
        found.append(step)
    return found


def _known_average(folder: Path, steps: list[int]) -> dict[str, Any] | None:
    """What is known of the mean of these steps from an earlier session."""
    try:
        files.verify(folder / "averaged")
        record = json.loads((folder / "averaged" / "state.json").read_text(encoding="utf-8"))
    except (DamagedError, OSError, ValueError):
        return None
    return dict(record) if record.get("steps") == steps else None


def _average(trainer: Trainer, steps: list[int]) -> dict[str, Any]:
    """Write the mean, measure it where the run is validated; gives its ``state.json``."""
    job, config = trainer.job, trainer.config
    record: dict[str, Any] = {"steps": steps}
    with files.sealed_folder(trainer.folder / "averaged") as target:
        paths = [checkpoint.path_of(trainer.folder, step) for step in steps]
        checkpoint.write_tensors(average(paths), target / WEIGHTS)
        if config.validation.every is not None:
            checkpoint.load_weights(job.model, target / WEIGHTS)
            figures = trainer.measure().figures
            name = config.save.best
            record |= {"figure": name, "value": figures[name], "figures": figures}
        (target / "config.toml").write_text(job.toml, encoding="utf-8")
        (target / "state.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
    return record


def _end(trainer: Trainer, reason: str) -> Outcome:
    state, interrupt, folder = trainer.state, trainer.tools.interrupt, trainer.folder
    say = trainer.tools.display.say
    weights = checkpoint.chosen(folder)
    if weights is None:
        raise TrainError(f"{folder} has lost its checkpoints while it trained")
    checkpoint.load_weights(trainer.job.model, weights / WEIGHTS)
    trainer.job.model.eval()
    if reason == "interrupted":
        name = interrupt.received.name if interrupt.received else ""
        place = checkpoint.path_of(folder, state.step)
        say(f"stopped by {name} after step {state.step:,}; the same command goes on from {place}")
    else:
        say(f"trained {state.step:,} steps in {clock(state.seconds)}; {reason} ended it")
    return Outcome(reason, state, state.best, weights, interrupt.exit_code)
