"""Checkpoints: all that training needs to go on bit for bit, with nothing pickled.

RUN/checkpoints/step-00001000/
model.safetensors       the weights; one that has several names stands under the first
trained.safetensors     only with train.ema: the weights above are then their moving mean
optimizer.safetensors   the optimiser's tensors, named parameter:state
optimizer.json          the parts of its state that are not tensors
state.json              step, position in the data, best figure, …: `TrainState`
config.toml             the resolved config
manifest.json           size and sha256 of the others; written last
RUN/best.json               names the folder whose weights are the best so far
"""

import contextlib
import json
import math
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import torch
from filelock import Timeout
from torch import Tensor, nn

from foveate.config import Config, ConfigError, load_tree
from foveate.files import locked, read_bytes, replace_file, write_text
from foveate.train import stored
from foveate.train.config import TrainConfig
from foveate.train.journal import clock
from foveate.train.stored import MANIFEST, WEIGHTS, DamagedError, Record, TrainError

T = TypeVar("T")
C = TypeVar("C", bound=Config)
OPTIMIZER, REST = "optimizer.safetensors", "optimizer.json"
TRAINED = "trained.safetensors"
CONFIG, STATE = "config.toml", "state.json"
ORIGIN = "origin.json"  # of an imported run: the published folder, and what it says of itself
LOCK = ".writing"  # of the process that writes into a run


def _load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Put the state back under its parameters; rates and decay are those of the present config."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    index = {names[parameter]: i for i, parameter in enumerate(parameters)}
    states: dict[int, Record] = {}
    values: Record = json.loads((folder / REST).read_text(encoding="utf-8"))
    with stored.opened(folder / OPTIMIZER) as file:
        values |= {entry: file.get_tensor(entry) for entry in file.keys()}  # noqa: SIM118
    for entry, value in values.items():
        name, _, key = entry.rpartition(":")
        if name not in index:
            raise TrainError(
                f"{folder / OPTIMIZER}: {name} is not a trained parameter of the model"
            )
        if isinstance(value, Tensor):  # into memory laid out as the parameter's is
            parameter = parameters[index[name]]
            like = parameter.detach() if value.shape == parameter.shape else value
            saved, value = value, torch.empty_like(like, dtype=value.dtype)
            stored.assign(value, saved)
        states.setdefault(index[name], {})[key] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": states, "param_groups": groups})


def path_of(run: Path, step: int) -> Path:
    """The folder of the checkpoint of a step."""
    return run / "checkpoints" / f"step-{step:08d}"


def steps(run: Path) -> list[int]:
    """The steps of which the run has a checkpoint, sound or not, in order."""
    names = (re.fullmatch(r"step-(\d+)", p.name) for p in (run / "checkpoints").glob("step-*"))
    return sorted(int(name[1]) for name in names if name)


def is_imported(run: Path) -> bool:
    """Return whether a run's step 0 is imported weights, and it has not been trained here."""
    folder = path_of(run, 0)
    return steps(run) == [0] and folder.is_dir() and not (folder / STATE).exists()


def origin_of(run: Path) -> Record:
    """Return what a run was imported from (folder, family, languages …); {} if trained."""
    file = run / ORIGIN
    return dict(json.loads(file.read_bytes())) if is_imported(run) and file.is_file() else {}


def refuse_lost(run: Path) -> None:
    """Raise `TrainError` where a run has no checkpoint but what only a trained one has."""
    left = [
        name for name in ("best.json", "averaged", "packed.safetensors") if (run / name).exists()
    ]
    if left:
        raise TrainError(
            f"{run} has been trained ({', '.join(left)}) but its checkpoints are missing, so "
            "training would start again from random weights: restore its checkpoints, or train in "
            "another folder (--run)"
        )


def with_state(run: Path, step: int) -> Path:
    """Return the folder of a step; raise `TrainError` if it holds no state of the training."""
    if not (path_of(run, step) / STATE).is_file():
        raise TrainError(
            f"{path_of(run, step)} holds weights without a training state, which cannot "
            f'be resumed: start another run from them (start.run="{run}", --run)'
        )
    return path_of(run, step)


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
    epoch: int = 0  # position in the data: epoch, and batch within it
    position: int = 0
    targets: int = 0  # real target tokens seen
    seconds: float = 0.0  # wall clock of all sessions
    paced: float = 0.0  # seconds of train.max_minutes that the schedule takes to be over
    validated: int = 0  # step of the last validation
    stale: int = 0  # validations since the best one
    best: Best | None = None
    figures: dict[str, float] = field(default_factory=dict)  # of the last validation
    window: dict[str, float] = field(default_factory=dict)  # sums since the last line of the log

    def progress(self, config: TrainConfig, seconds: float) -> dict[str, tuple[float, float]]:
        """Return how far a training is, and where it ends by the limits that are set."""
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


ENOUGH = 1000  # steps, or train.max_steps where that is less: half of them teach little


def too_few(config: TrainConfig, state: TrainState, seconds_a_step: float) -> str:
    """Return a warning if `max_minutes` is too short to learn anything at this pace, else ""."""
    enough = min(ENOUGH, config.max_steps or ENOUGH)
    if config.max_minutes is None:
        return ""
    expected = state.step + max(0.0, 60 * config.max_minutes - state.seconds) / seconds_a_step
    if expected > enough / 2:
        return ""
    more = state.seconds + (enough - state.step) * seconds_a_step
    return (
        f"{60 / seconds_a_step:.3g} steps a minute on this machine now: about {expected:,.0f} in "
        f"the {config.max_minutes:g} minutes of train.max_minutes, which teach a model little; "
        f"{enough:,} take {clock(more)}: set train.max_minutes={math.ceil(more / 60)}, or make the "
        "model or train.batch_tokens smaller"
    )


Contents = tuple[dict[str, dict[str, Tensor]], Record]


def contents_of(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    mean: dict[str, Tensor] | None = None,
    keep: bool = True,
) -> Contents:
    """The tensors of a checkpoint by file and name, and the optimiser's other state.

    A moving ``mean`` stands for the model. Shards are made whole one by one, for which every rank
    must call this; a rank that does not ``keep`` them only helps.
    """
    files = {WEIGHTS: stored.own_tensors(model), OPTIMIZER: {}}
    if mean is not None:
        files = {TRAINED: files[WEIGHTS], WEIGHTS: mean, OPTIMIZER: {}}
    names: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}
    rest: Record = {}
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            kind = files[OPTIMIZER] if isinstance(value, Tensor) else rest
            kind[f"{names[parameter]}:{key}"] = value
    gathered: dict[str, dict[str, Tensor]] = {file: {} for file in files}
    for file, tensors in files.items():
        for name, tensor in tensors.items():
            full = stored.whole(tensor)
            if keep:
                gathered[file][name] = full.cpu() if stored.is_shard(tensor) else full
    return gathered, rest


def save(
    run: Path,
    step: int,
    contents: Contents,
    state: Record,
    toml: str,
    files: Mapping[str, str] | None = None,
) -> Path:
    """Write a checkpoint that depends on some `run_files`, whole or not at all.

    Raises `TrainError` where the disk refuses.
    """
    target = path_of(run, step)
    try:
        with stored.sealed_folder(target, files) as folder:
            for file, tensors in contents[0].items():
                stored.write_tensors(tensors, folder / file)
            write_text(folder / REST, json.dumps(contents[1], indent=1))
            write_text(folder / STATE, json.dumps(state, indent=1))
            write_text(folder / CONFIG, toml)
    except TrainError as error:
        known = steps(run)
        earlier = f"step {known[-1]} is kept" if known else "no earlier checkpoint exists"
        raise TrainError(
            f"{error}, or keep fewer checkpoints (train.save.keep). {earlier}; the same command "
            "resumes from there"
        ) from error
    return target


def newest_sound(run: Path, repair: bool = False) -> tuple[int | None, list[str]]:
    """The step of the newest checkpoint that is whole, and what is wrong with newer ones.

    With ``repair``, for the process that writes the run, `clean` comes first.
    """
    for folder in (run, run / "checkpoints") if repair else ():
        stored.clean(folder)
    damages: list[DamagedError] = []
    newest = next(sound(run, reversed(steps(run)), damages), None)
    return newest, [f"damaged checkpoint passed over: {damage}" for damage in damages]


def sound(run: Path, among: Iterable[int], damages: list[DamagedError]) -> Iterator[int]:
    """Yield the steps whose checkpoint is whole; ``damages`` get what is wrong with the others."""
    for step in among:
        try:
            stored.verify(path_of(run, step))
        except DamagedError as damage:
            damages.append(damage)
        else:
            yield step


def load(run: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> Record:
    """Read a checkpoint into the model and the optimiser; gives its ``state.json``."""
    folder = path_of(run, step)
    stored.load_weights(model, folder / (TRAINED if (folder / TRAINED).is_file() else WEIGHTS))
    _load_optimizer(model, optimizer, folder)
    return json.loads((folder / STATE).read_text(encoding="utf-8"))


def folder_of(run: Path, which: str) -> Path:
    """The folder of the weights "best", "last", "average", or those of a step by its number.

    Raises ``ConfigError`` that says which steps there are.
    """
    if which == "best":
        folder = chosen(run)
        if folder is not None and (best := named_best(run)) not in (None, folder):
            print(f"{best}, the best, is missing: {folder.name} is used", file=sys.stderr)
    elif which == "average":
        folder = run / "averaged"
    else:
        if which != "last" and not which.isdecimal():
            raise ConfigError(f"checkpoint {which!r}: write best, last, average or a step's number")
        step = int(which) if which.isdecimal() else next(iter(reversed(steps(run))), 0)
        folder = path_of(run, step)
    if folder is None or not (folder / WEIGHTS).is_file():
        have = ", ".join(map(str, steps(run))) or "none"
        raise ConfigError(f"{run} has no checkpoint {which!r}; available steps: {have}")
    return folder


def read_chosen(run: Path, which: str, read: Callable[[Path], T]) -> tuple[Path, T]:
    """`folder_of`, and what is read there; again if a training has replaced it meanwhile."""
    folder = folder_of(run, which)
    try:
        return folder, read(folder)
    except (OSError, ValueError, RuntimeError):
        if folder_of(run, which) == folder:
            raise
        return read_chosen(run, which, read)


def run_of(path: Path) -> tuple[Path, Path | None]:
    """The run of a path, and the folder of the weights where the path is one and not a run."""
    if not (path / WEIGHTS).is_file():
        return path, None
    run = path.parent.parent if path.parent.name == "checkpoints" else path.parent
    return (run, path) if (run / "config.toml").is_file() else (path, None)


def write_best(run: Path, folder: Path, figures: Record) -> None:
    """Let ``best.json`` name a folder of the run, with the figures that made it the best."""
    record = {"folder": folder.relative_to(run).as_posix(), **figures}
    replace_file(run / "best.json", json.dumps(record, indent=1) + "\n")


def named_best(run: Path) -> Path | None:
    """The folder that ``best.json`` names, be it there or not; None without such a file.

    Raises `DamagedError` where it cannot be read or names a folder outside the run.
    """
    best = run / "best.json"
    if not best.exists():
        return None
    try:
        name = Path(json.loads(read_bytes(best))["folder"])
    except (ValueError, LookupError, TypeError, RecursionError):
        others = "remove it, or use another: --checkpoint last, or the number of a step"
        raise DamagedError(f"{best} does not say which weights it means; {others}") from None
    if name.is_absolute() or ".." in name.parts:
        raise DamagedError(f"{best} names {str(name)!r}, which is not in the run")
    return run / name


def chosen(run: Path) -> Path | None:
    """The folder whose weights stand for the run: the best, or else the newest sound one."""
    best = named_best(run)
    if best is not None and (best / MANIFEST).is_file():
        return best
    step, _ = newest_sound(run)
    return None if step is None else path_of(run, step)


def rebuilt(config: C, build: Callable[[C], nn.Module], run: Path, folder: Path) -> nn.Module:
    """The model of a config with the weights of a ``folder`` of its run.

    Raises `DamagedError` for weights that are not as they were written, ``ConfigError`` for weights
    of another model, and `TrainError` where names or shapes differ.
    """
    path = folder / WEIGHTS
    if (folder / MANIFEST).is_file():
        try:
            stored.verify(folder, WEIGHTS)
            stored.verify_run(run, folder)
        except DamagedError as error:
            other = "use another checkpoint: --checkpoint last, or the number of a step"
            raise DamagedError(f"{error}; {other}") from None
    with stored.opened(path) as file:
        there = stored.size_of(file)
    own = folder / CONFIG
    if folder != run and own.is_file():
        try:
            same = type(config).parse(load_tree(own, resolved=True).get("model", {})) == config
        except ConfigError:
            same = False
        if not same:
            raise ConfigError(
                f"{own} differs from {run / CONFIG}: the checkpoint is of another "
                "run, or one of the two files was changed"
            )
    where = f"{run / CONFIG}: model"
    stored.refuse_larger(config.tree(), there, where)
    with stored.Within(there, where):
        model = build(config)
    stored.load_weights(model, path)
    return model


class BusyError(TrainError):
    """Another process writes into the run: says which, where, and since when."""


@contextlib.contextmanager
def run_lock(run: Path) -> Iterator[None]:
    """Hold the lock of the run; the folder is made, and removed if it stays empty.

    Raises `BusyError` where another does, and `TrainError` where the folder cannot be written.
    """
    with contextlib.ExitStack() as stack:
        try:
            run.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(run / LOCK, wait=False))
        except Timeout:
            raise BusyError(
                f"{run} is being written by {_holder(run / LOCK)}: wait until it ends, stop "
                "it, or train in another folder: --run"
            ) from None
        except OSError as error:
            raise TrainError(
                f"cannot write into {run}: {error.strerror}; make it writable, or train in another "
                "folder: --run"
            ) from error
        since = time.strftime("%Y-%m-%d %H:%M:%S %z")
        who = {"process": os.getpid(), "host": socket.gethostname(), "since": since}
        with contextlib.suppress(OSError):  # of a full disk: it is locked all the same
            write_text(run / LOCK, json.dumps(who))
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                (run / LOCK).unlink()
                run.rmdir()  # does nothing unless it is empty


def _holder(lock: Path) -> str:
    try:
        who: Record = json.loads(lock.read_text(encoding="utf-8")[:1000])
        return f"process {who['process']} on {who['host']}, since {who['since']}"
    except (OSError, ValueError, LookupError, TypeError):
        return "another process"
