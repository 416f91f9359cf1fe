"""Training from beginning to end: set up or go on, train, average, say which weights are best.

Lives here: what happens once in a session. Does not live here: what happens in each step
(`foveate.train.trainer`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from foveate.train import checkpoint, files
from foveate.train.allocator import keep_freed_memory
from foveate.train.checkpoint import WEIGHTS
from foveate.train.compiling import compile_layers
from foveate.train.config import TrainConfig
from foveate.train.continuing import record
from foveate.train.diagnose import is_out_of_memory
from foveate.train.feed import Plan, Turn, fingerprint, mix
from foveate.train.files import TrainError
from foveate.train.finish import try_average
from foveate.train.health import Health
from foveate.train.job import Job, Tools
from foveate.train.journal import Journal, NoJournal
from foveate.train.moving_mean import moving_mean
from foveate.train.parallel import Parallel, parallel_of
from foveate.train.precision import Name, Precision, resolve
from foveate.train.progress import Display, clock
from foveate.train.ranks import Ranks
from foveate.train.recompute import recompute
from foveate.train.signals import Interrupt
from foveate.train.state import Best, State
from foveate.train.trainer import Trainer


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
    device = next(job.model.parameters()).device
    with contextlib.ExitStack() as stack:
        stack.enter_context(_settings(config, device))
        if config.compile:
            compile_layers(job.model)
        if config.recompute:
            recompute(job.model)
        parallel, how = parallel_of(config.parallel, ranks, job)
        plan = job.plan(job.task.lengths("train"), config.batch_tokens, job.seed)
        optimizer = config.optimizer.build(job.model)
        state, said = resume(job, config, folder, plan, optimizer, ranks)
        total = _total_steps(config, plan, state.batches)
        limit = None if config.max_minutes is None else 60 * config.max_minutes
        tools = Tools(
            parallel=parallel,
            optimizer=optimizer,
            schedule=config.schedule.build(config.optimizer.lr, config.max_steps),
            precision=_precision(config, state, device, ranks),
            plan=plan,
            journal=Journal(folder, state.step, config.tensorboard) if ranks.leads else NoJournal(),
            display=Display(total, limit, config.validation.every, silent=not ranks.leads),
            interrupt=Interrupt(),
            mean=moving_mean(config.ema, job.model, checkpoint.path_of(folder, state.step)),
        )
        tools.health = health_of(config, job, parallel, tools.journal)
        stack.callback(tools.journal.close)
        stack.enter_context(tools.interrupt)
        stack.enter_context(tools.display)
        trainer = Trainer(job, config, folder, state, tools)
        for line in (*said, *map(str, job.changes), *how, tools.precision.why):
            tools.display.say(line)
        if job.changes and ranks.leads:
            record(folder, job.toml, job.changes, tools.journal, state.step)
        _start(trainer)
        reason = trainer.run()
        if (last := config.average) is not None and reason != "interrupted":
            ended = reason
            reason = ranks.lead("the mean", lambda: try_average(trainer, last, ended))
            trainer.agree()
        return _end(trainer, reason)


def health_of(config: TrainConfig, job: Job, parallel: Parallel, journal: Journal) -> Health | None:
    """What watches the modules where that is asked for; `TrainError` for weights in shards."""
    if config.health_every is None:
        return None
    if parallel.name == "fsdp":
        raise TrainError(
            'train.health_every wants whole weights, and train.parallel = "fsdp" has shards: '
            "leave one of them out"
        )
    return Health(job.model, config.health_every, journal)


def resume(
    job: Job,
    config: TrainConfig,
    folder: Path,
    plan: Plan,
    optimizer: torch.optim.Optimizer,
    ranks: Ranks,
) -> tuple[State, list[str]]:
    """The state to begin with, from the newest sound checkpoint or new, and what to say of it.

    Raises `TrainError` where the data, the seed or ``batch_tokens`` are not those of the run.
    """

    def newest() -> tuple[int | None, list[str]]:
        for place in (folder, folder / "checkpoints"):
            files.clean(place)
        return checkpoint.newest_sound(folder)

    order = fingerprint(plan)
    ranks.same("order of the training examples", order)
    step, said = ranks.lead("looking for checkpoints", newest)
    job.model.train()
    if step is None and said:
        raise TrainError(
            f"no checkpoint of {folder} is whole ({'; '.join(said)}): remove "
            f"{folder / 'checkpoints'} to train from the beginning"
        )
    if step is None:
        state = State(seed=job.seed, plan=order)
        return state, said + share_out(config, state, ranks)
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
    return state, said + share_out(config, state, ranks)


def share_out(config: TrainConfig, state: State, ranks: Ranks) -> list[str]:
    """Set how many batches make a step; what to say where some ranks get none.

    A run keeps the number that it began with, and so its curve, on however many ranks it goes on;
    a new ``train.accumulate`` sets it anew.
    """
    if state.accumulate != config.accumulate:
        state.accumulate, state.batches = config.accumulate, config.accumulate * ranks.world
    if state.batches % ranks.world == 0:
        return []
    return [
        f"a step of this run has {state.batches} batches for {ranks.world} ranks, so that some "
        "wait for others; ranks that divide it would not"
    ]


def _precision(config: TrainConfig, state: State, device: torch.device, ranks: Ranks) -> Precision:
    """What the config says; "auto" is decided once, for another choice would give other weights."""
    begun = config.precision == "auto" and state.precision != "auto"
    wanted = state.precision if begun else config.precision
    name, why = ranks.lead("precision", lambda: _resolved(wanted, device))
    precision = Precision(name, device.type, why)
    state.precision = precision.name
    why = f"precision {precision.name}, as this run began"
    return replace(precision, why=why) if begun else precision


def _resolved(name: Name, device: torch.device) -> tuple[Literal["fp32", "bf16"], str]:
    found = resolve(name, device)
    return found.name, found.why


def _total_steps(config: TrainConfig, plan: Plan, batches: int) -> int | None:
    """Steps until max_steps or max_epochs, whichever is first; epochs are taken to be alike."""
    limits = [] if config.max_steps is None else [config.max_steps]
    if config.max_epochs is not None:
        limits.append(-(-config.max_epochs * len(plan.epoch(0)) // batches))
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
        keep_freed_memory()
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
        **({} if trainer.ranks.world == 1 else _company(trainer)),
    )
    trainer.ranks.doing("the rehearsal")
    rehearse(trainer)
    trainer.parallel.volume(1)
    if state.best is not None:
        trainer.point()  # it may have named a checkpoint that was found damaged
    if not checkpoint.steps(trainer.folder):
        trainer.save()  # first weights and precision are kept, and a full disk is met at once


def _company(trainer: Trainer) -> dict[str, Any]:
    return {"ranks": trainer.ranks.world, "parallel": trainer.parallel.name}


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
            trainer.backward(Turn(job.task.batch("train", batches[i].tolist(), noise=noise)))
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


def _end(trainer: Trainer, reason: str) -> Outcome:
    state, stop, folder = trainer.state, trainer.stop, trainer.folder
    say = trainer.tools.display.say
    weights = checkpoint.chosen(folder)
    if weights is None:
        raise TrainError(f"{folder} has lost its checkpoints while it trained")
    checkpoint.load_weights(trainer.job.model, weights / WEIGHTS)
    trainer.job.model.eval()
    if reason == "interrupted":
        name = stop.name if stop else ""
        place = checkpoint.path_of(folder, state.step)
        say(f"stopped by {name} after step {state.step:,}; the same command goes on from {place}")
    else:
        say(f"trained {state.step:,} steps in {clock(state.seconds)}; {reason} ended it")
    return Outcome(reason, state, state.best, weights, 128 + stop if stop else 0)
