"""A whole training: set-up, steps, validation, checkpoints, the mean of the last ones, the end."""

import contextlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter

from foveate.errors import ConfigError, UserError
from foveate.files import write_text
from foveate.nn.native import kernels
from foveate.system import loaded_libraries
from foveate.train import checkpoint
from foveate.train.checkpoint import TrainState, too_few
from foveate.train.config import Precision, TrainConfig, record, resolve
from foveate.train.distributed import Interrupt, Ranks, parallel_of
from foveate.train.feed import MicroBatch, Plan, fingerprint, mix, steps_ahead
from foveate.train.journal import (
    LOG,
    SNAPSHOTS,
    Display,
    Health,
    Journal,
    clock,
    is_out_of_memory,
    read,
)
from foveate.train.layers import compile_layers, recompute
from foveate.train.optim import MovingMean, Schedule, average
from foveate.train.stored import (
    WEIGHTS,
    DamagedError,
    Record,
    TrainError,
    load_weights,
    run_files,
    sealed_folder,
    verify,
    verify_run,
    write_tensors,
)
from foveate.train.trainer import Job, Trainer

_TRIM, _MAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of mallopt(3)


def keep_freed_memory() -> None:
    """Tell glibc to give nothing back below 1 GiB, and to map no block below 32 MiB by itself.

    Memory that is returned is zeroed page by page when it is allocated again, which costs more than
    most operations of a step. Other C libraries are left as they are.
    """
    mallopt = getattr(loaded_libraries(), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM, 1 << 30)
        mallopt(_MAP, 32 << 20)  # the most that it takes


@dataclass(frozen=True)
class Outcome:
    """The end of a training session.

    ``reason`` is the limit that ended it ("max_steps", "max_epochs", "max_minutes", "max_tokens",
    "patience") or "interrupted"; ``weights`` is the folder whose weights stand for the run;
    ``exit_code`` what a shell should see.
    """

    reason: str
    state: TrainState
    weights: Path
    exit_code: int = 0


def fit(job: Job, config: TrainConfig, folder: Path, ranks: Ranks | None = None) -> Outcome:
    """Train ``job.model`` in the run ``folder``, or go on where a session before has stopped.

    On a CPU the weights after step n are bit-identical however often the run was stopped, if the
    model comes with the same first weights, as a seed makes it. At the end the model holds the
    weights that stand for the run. Raises `TrainError` that says what is safe and what to do.
    With several ``ranks`` all of them call this, with the same job and a folder that all see.
    """
    config.check()
    ranks = ranks or Ranks()
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_settings(config, next(job.model.parameters()).device))
        trainer, messages = _set_up(job, config, folder, ranks, stack)
        messages += [*_observe(trainer, stack), *map(str, job.changes)]
        stack.enter_context(trainer.interrupt)
        stack.enter_context(trainer.display)
        if (finished := trainer.state.finished(config)) is None:
            messages += [*trainer.parallel.described, trainer.precision.why]
            messages += follows_the_clock(config, trainer.schedule)
        for line in messages:
            trainer.display.say(line)
        if job.changes and ranks.is_rank_zero:
            record(folder, job.toml, job.changes, trainer.journal, trainer.state.step)
        trainer.write_best()  # best.json may have named a damaged checkpoint
        if finished is None:
            _start(trainer)
        reason = trainer.run()
        if (last := config.average) is not None and reason != "interrupted":
            ended = reason
            reason = ranks.on_rank_zero("the mean", lambda: _try_average(trainer, last, ended))
            trainer.agree()
        return _end(trainer, reason, finished)


def follows_the_clock(config: TrainConfig, schedule: Schedule) -> list[str]:
    """Return a sentence where the learning rate depends on the time that steps take, else none."""
    if config.max_minutes is None or schedule.rate_at(1, 1.0) == schedule.rate(1):
        return []
    return [
        "the learning rate decays with the clock (train.max_minutes), so the same seed "
        "gives other weights on a slower or busier machine; set train.max_steps alone to avoid it"
    ]


def _set_up(
    job: Job, config: TrainConfig, folder: Path, ranks: Ranks, stack: contextlib.ExitStack
) -> tuple[Trainer, list[str]]:
    """The trainer of a run with its state, and messages about it; the ``stack`` closes its log."""
    if config.compile:
        compile_layers(job.model)
    if config.recompute:
        recompute(job.model)
    device = next(job.model.parameters()).device
    parallel = parallel_of(config.parallel, ranks, job.model, partial(job.objective.loss, job.task))
    plan = job.task.plan(job.task.lengths("train"), config.batch_tokens, job.seed)
    optimizer = config.optimizer.build(job.model)
    state, messages = resume(job, config, folder, plan, optimizer, ranks)
    newest = checkpoint.path_of(folder, state.step)
    log = ranks.on_rank_zero("the log", lambda: [x for x in read(folder) if x["event"] == "pace"])
    # the seconds that the schedule took to be over, by the steps that are done again
    paces = {x["step"]: x["seconds"] for x in log if x["step"] > state.step and not job.changes}
    mean = None
    if config.ema is not None:
        mean = MovingMean(config.ema, job.model, newest if newest.is_dir() else None)
    files = run_files(folder, newest)  # refused before the journal is opened
    precision = _precision(config, state, device, ranks)
    ends = [] if config.max_steps is None else [config.max_steps]
    if config.max_epochs is not None:  # epochs are taken to be alike
        ends.append(-(-config.max_epochs * len(plan.epoch(0)) // state.batches))
    total = min(ends, default=None)
    limit = None if config.max_minutes is None else 60 * config.max_minutes
    board = config.tensorboard and ranks.is_rank_zero
    journal = Journal(folder, state.step, board, LOG if ranks.is_rank_zero else os.devnull)
    stack.callback(journal.close)
    ahead = steps_ahead(device, ranks, optimizer)
    if device.type == "cuda" and not ahead:
        why = "several ranks, or an optimizer that is not fused"
        parallel.described.append(f"each step waits for the numbers of the last: {why}")
    trainer = Trainer(
        job=job,
        config=config,
        folder=folder,
        state=state,
        plan=plan,
        parallel=parallel,
        optimizer=optimizer,
        schedule=config.build_schedule(),
        precision=precision,
        journal=journal,
        display=Display(total, limit, config.validation.every, silent=not ranks.is_rank_zero),
        interrupt=Interrupt(),
        files=files,
        paces=paces,
        mean=mean,
        ahead=ahead,
    )
    return trainer, messages


def _observe(trainer: Trainer, stack: contextlib.ExitStack) -> list[str]:
    """Add to a trainer what records more than losses; return messages about the logs.

    Raises `TrainError` where that needs weights which this process has not.
    """
    job, config, cut = trainer.job, trainer.config, trainer.journal.cut
    messages = [f"{LOG}: {cut} lines dropped, torn or of later steps"] if cut else []
    fields = {"health_every": config.health_every, "snapshots": config.snapshots}
    for name, value in fields.items():
        if value is not None and trainer.parallel.name == "fsdp":
            raise TrainError(f"train.{name} needs whole weights, which fsdp lacks: leave one out")
    if config.health_every is not None:
        trainer.health = Health(job.model, config.health_every, trainer.journal)
    if config.snapshots is None or not trainer.ranks.is_rank_zero:
        return messages
    try:
        trainer.snapshots = job.snapshots(config.snapshots, trainer.folder, trainer.state.step)
    except ConfigError:
        raise
    except UserError as error:
        return [*messages, f"no snapshots: {error}"]
    stack.callback(trainer.snapshots.close)
    if cut := trainer.snapshots.cut:
        messages.append(f"{SNAPSHOTS}: {cut} lines dropped, torn or of later steps")
    return messages


def resume(
    job: Job,
    config: TrainConfig,
    folder: Path,
    plan: Plan,
    optimizer: torch.optim.Optimizer,
    ranks: Ranks,
) -> tuple[TrainState, list[str]]:
    """The state to begin with, of the newest sound checkpoint or new, and messages about it.

    Raises `TrainError` where the data, the seed or ``batch_tokens`` are not those of the run.
    """
    order = fingerprint(plan)
    splits = ["train"] if config.validation.every is None else ["train", "valid"]
    data = {split: job.task.digest(split) for split in splits}
    ranks.same("examples and their order", f"{order} {data}")
    step, messages = ranks.on_rank_zero(
        "looking for checkpoints", lambda: checkpoint.newest_sound(folder, repair=True)
    )
    job.model.train()
    if step is None and messages:
        raise TrainError(
            f"no checkpoint of {folder} is intact ({'; '.join(messages)}): remove "
            f"{folder / 'checkpoints'} to train from the beginning"
        )
    if step is None or checkpoint.is_imported(folder):
        state = TrainState(seed=job.seed, plan=order, data=data)
        if step is None:
            checkpoint.refuse_lost(folder)
        else:
            imported = checkpoint.path_of(folder, step)
            load_weights(job.model, imported / WEIGHTS)
            messages.append(f"starts from the weights of {imported}")
        return state, messages + share_out(config, state, ranks)
    verify_run(folder, checkpoint.with_state(folder, step))
    saved = checkpoint.load(folder, step, job.model, optimizer)
    state = TypeAdapter(TrainState).validate_python(saved)
    changed = [split for split in splits if state.data.get(split, data[split]) != data[split]]
    if changed and not job.changed_data:
        raise TrainError(
            f"the data changed: the examples of {' and '.join(changed)} are not those of {folder}, "
            f"which has been trained for {step:,} steps; start a new run in another folder "
            "(--run), or resume with --changed-data"
        )
    if "train" in changed:
        messages.append(f"the data changed: the new ones start with epoch {state.epoch + 1}")
        state.plan, state.epoch, state.position = order, state.epoch + 1, 0
    if (state.seed, state.plan) != (job.seed, order):
        raise TrainError(
            f"{checkpoint.path_of(folder, step)} was trained with another data set, seed or "
            "train.batch_tokens than the config has, so its position in the data means nothing: "
            "restore the old ones, or start a run in another folder"
        )
    state.data |= data
    if state.finished(config) is None:
        messages.append(f"resuming from step {step:,} ({clock(state.seconds)} of training before)")
    return state, messages + choose_anew(config, state, changed) + share_out(config, state, ranks)


def choose_anew(config: TrainConfig, state: TrainState, changed: Sequence[str]) -> list[str]:
    """Forget the best checkpoint if its figure cannot be compared any more; return a message."""
    if state.best is None:
        return []
    if state.best.figure != config.save.best:
        why = f"the best is chosen by {config.save.best} from now on, not {state.best.figure}"
    elif "valid" in changed:
        why = "the data changed: the best is chosen again, on the new valid"
    else:
        return []
    state.best, state.stale = None, 0
    return [why]


def share_out(config: TrainConfig, state: TrainState, ranks: Ranks) -> list[str]:
    """Set how many batches make a step; gives a message where some ranks get fewer.

    A run keeps the number that it began with, and so its curve, on however many ranks it goes on;
    a new ``train.accumulate`` sets it anew.
    """
    if state.accumulate != config.accumulate:
        state.accumulate, state.batches = config.accumulate, config.accumulate * ranks.world
    if state.batches % ranks.world == 0:
        return []
    return [
        f"a step of this run has {state.batches} batches for {ranks.world} ranks, so some "
        "ranks wait for others; use a number of ranks that divides it"
    ]


def _precision(
    config: TrainConfig, state: TrainState, device: torch.device, ranks: Ranks
) -> Precision:
    """Return the config's precision; "auto" is decided once, since another gives other weights."""
    begun = config.precision == "auto" and state.precision != "auto"
    requested = state.precision if begun else config.precision
    name, _, why = ranks.on_rank_zero("precision", lambda: astuple(resolve(requested, device)))
    state.precision = name
    if begun:
        why = f"precision {state.precision}, as when this run began"
    return Precision(name, device.type, why)


@contextlib.contextmanager
def _settings(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """Threads as configured; on a CPU only operations that give the same bits each time."""
    threads, exact = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    rules: Any = torch.utils.deterministic
    fill = rules.fill_uninitialized_memory
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    if device.type == "cpu":
        kernels.sleep_at_barriers()
        keep_freed_memory()
        torch.use_deterministic_algorithms(True)
        rules.fill_uninitialized_memory = False  # it would cost time, and no result depends on it
    numbers = kernels.flushing_denormals() if device.type == "cpu" else contextlib.nullcontext()
    try:
        with numbers:
            yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(exact)
        rules.fill_uninitialized_memory = fill


def _start(trainer: Trainer) -> None:
    state, precision = trainer.state, trainer.precision
    world, parallel = trainer.ranks.world, trainer.parallel.name
    trainer.journal.write(
        "start",
        state.step,
        precision=precision.name,
        device=precision.device,
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        parameters=sum(p.numel() for p in trainer.job.model.parameters()),
        **({} if world == 1 else {"ranks": world, "parallel": parallel}),
    )
    trainer.ranks.doing("the rehearsal")
    rehearse(trainer)
    if kernels.machine_is_busy():
        trainer.display.say(kernels.BUSY_MACHINE)
    if not (checkpoint.path_of(trainer.folder, state.step) / checkpoint.STATE).is_file():
        trainer.save()  # first weights and precision are kept, and a full disk is met at once


def rehearse(trainer: Trainer) -> None:
    """Forward and backward on the largest batches, without a step: memory runs out now or never.

    Buffers are put back, gradients dropped and each step seeds its own randomness, so that
    nothing of it stays. Raises `TrainError` that names the batch where memory is too small.
    """
    job, config = trainer.job, trainer.config
    lengths = np.asarray(job.task.lengths("train"))
    lengths = lengths.reshape(len(lengths), -1)
    batches = [b for b in trainer.plan.epoch(0) if len(b)]
    tokens = [len(b) * int(lengths[b].max(axis=0).sum()) for b in batches]
    longest = [int(lengths[b].max()) for b in batches]
    buffers = [(buffer, buffer.clone()) for buffer in job.model.buffers()]
    for i in sorted({int(np.argmax(tokens)), int(np.argmax(longest))}) if batches else []:
        noise = mix(job.seed, "noise", 0)
        try:
            batch = job.task.batch("train", batches[i].tolist(), noise=noise)
            trainer.backward(MicroBatch(batch, job.seed))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise TrainError(
                f"the batch of {len(batches[i])} examples of up to {longest[i]} tokens does not "
                f"fit into memory: lower train.batch_tokens (now {config.batch_tokens}; "
                "train.accumulate makes up for it), or the longest example allowed"
            ) from error
        finally:
            trainer.optimizer.zero_grad(set_to_none=True)
    with torch.no_grad():
        for buffer, before in buffers:
            buffer.copy_(before)


def _try_average(trainer: Trainer, count: int, reason: str) -> str:
    """Put the mean of the last checkpoints into ``averaged/`` and see whether it is better."""
    display, folder = trainer.display, trainer.folder
    damages: list[DamagedError] = []
    steps = list(checkpoint.sound(folder, trainer.regular(), damages))[-count:]
    for damage in damages:
        display.say(f"left out of the mean: {damage}")
    if len(steps) < 2:
        display.say(f"nothing to average: {len(steps)} checkpoint of the last {count} exists")
        return reason
    record = _known_average(trainer, steps)
    if record is None:
        record = trainer.interrupt.unless(lambda: _average(trainer, steps))
        if record is None:
            return "interrupted"
        trainer.journal.write("average", trainer.state.step, **record)
    best, value = trainer.state.best, record.get("value")
    sign = trainer.job.task.better(trainer.config.save.best)
    better = best is None or (value is not None and sign * value > sign * best.value)
    if better:
        checkpoint.write_best(folder, folder / "averaged", record)
    display.say(
        f"mean of the checkpoints of steps {', '.join(map(str, steps))}: "
        + (f"{record['figure']} {value:.4g}" if value is not None else "not validated")
        + ("" if best is None else f", the best single one {best.value:.4g} (step {best.step:,})")
        + f"; {'the mean' if better else 'the single one'} is used"
        + ("" if better else _why_worse(trainer, steps))
    )
    return reason


def _why_worse(trainer: Trainer, steps: list[int]) -> str:
    """Why the mean of the checkpoints of these steps is worse than one of them."""
    log, name = read(trainer.folder), trainer.config.save.best
    rates = [line["lr"] for line in log if line["event"] == "train"]
    if rates and rates[-1] > max(rates) / 2:
        share = f"{100 * rates[-1] / max(rates):.0f} % of the highest"
        return f": the learning rate had not decayed ({share}), so they are far apart"
    figures = [line[name] for line in log if line["event"] == "valid" and line["step"] in steps]
    if len(figures) > 1:
        return f": the model still changed over them ({name} {figures[0]:.4g} to {figures[-1]:.4g})"
    return ""


def _known_average(trainer: Trainer, steps: list[int]) -> Record | None:
    """The record of the mean of these steps, where an earlier session wrote it and its figure is
    still comparable: there is a best checkpoint by the same figure.
    """
    folder, config = trainer.folder / "averaged", trainer.config
    try:
        verify(folder)
        record = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    except (DamagedError, OSError, ValueError):
        return None
    measured = trainer.state.best is not None and record.get("figure") == config.save.best
    comparable = measured or config.validation.every is None
    return dict(record) if record.get("steps") == steps and comparable else None


def _average(trainer: Trainer, steps: list[int]) -> Record:
    """Write the mean, measure it where the run is validated; gives its ``state.json``."""
    job, config = trainer.job, trainer.config
    record: Record = {"steps": steps}
    with sealed_folder(trainer.folder / "averaged", trainer.files) as target:
        paths = [checkpoint.path_of(trainer.folder, step) for step in steps]
        write_tensors(average(paths), target / WEIGHTS)
        if config.validation.every is not None:
            model = trainer.parallel.plain
            load_weights(model, target / WEIGHTS)
            figures = trainer.measure(model).figures
            name = config.save.best
            record |= {"figure": name, "value": figures[name], "figures": figures}
        write_text(target / "config.toml", job.toml)
        write_text(target / "state.json", json.dumps(record, indent=1))
    return record


def _end(trainer: Trainer, reason: str, finished: str | None) -> Outcome:
    state, stop, folder = trainer.state, trainer.stop, trainer.folder
    say = trainer.display.say
    trainer.display.show_validation()
    weights = checkpoint.chosen(folder)
    if weights is None:
        raise TrainError(f"{folder} lost its checkpoints during training")
    load_weights(trainer.job.model, weights / WEIGHTS)
    trainer.job.model.eval()
    if finished is None or read(folder)[-1].get("reason") != reason:  # else that line is there
        trainer.journal.write("end", state.step, reason=reason, seconds=round(state.seconds, 3))
    if reason == "interrupted":
        name = stop.name if stop else ""
        saved = checkpoint.path_of(folder, state.step)
        say(f"stopped by {name} after step {state.step:,}; the same command resumes from {saved}")
    elif finished is not None:
        say(_how_to_go_on(trainer, finished))
    else:
        say(f"trained {state.step:,} steps in {clock(state.seconds)}; {reason} ended it")
        pace = max(1e-3, state.seconds / max(1, state.step))
        if reason == "max_minutes" and (few := too_few(trainer.config, state, pace)):
            say(few)
    return Outcome(reason, state, weights, 128 + stop if stop else 0)


def _how_to_go_on(trainer: Trainer, limit: str) -> str:
    """Say that a training had reached a limit before, and what lets it continue."""
    state, folder = trainer.state, trainer.folder
    done, end = state.progress(trainer.config, state.seconds)[limit]
    key = "train.validation.patience" if limit == "patience" else f"train.{limit}"
    return (
        f"{folder} is finished: {state.step:,} steps in {clock(state.seconds)}, and {key} is "
        f"{end:,}; to train longer, raise it ({key}={math.ceil(2 * done)}), or name another folder "
        "for a new run (--run)"
    )
