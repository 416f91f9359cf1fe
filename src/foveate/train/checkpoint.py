"""Checkpoints: all that training needs to go on bit for bit, with nothing pickled.

    RUN/checkpoints/step-00001000/
        model.safetensors       the weights; one that has several names stands under the first
        trained.safetensors     only with train.ema: the weights above are then their moving mean
        optimizer.safetensors   the optimiser's tensors, named parameter:state
        optimizer.json          what of its state is no tensor
        state.json              step, place in the data, best figure, …: `foveate.train.trainer`
        config.toml             the resolved config
        manifest.json           size and sha256 of the others; written last
    RUN/best.json               names the folder whose weights are the best so far

Lives here: writing, reading, choosing and pruning them. Does not live here: when to do so
(`foveate.train.trainer`), and how a folder is written atomically (`foveate.train.files`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from foveate.config import ConfigError
from foveate.train import files
from foveate.train.files import DamagedError, TrainError
from foveate.train.shards import assign, is_shard, whole
from foveate.train.tensors import opened

WEIGHTS, OPTIMIZER, REST = "model.safetensors", "optimizer.safetensors", "optimizer.json"
TRAINED = "trained.safetensors"
Record = dict[str, Any]  # a JSON object

# ------------------------------------------------------------------------------ weights


def _names(model: nn.Module) -> dict[str, str]:
    """Each name in the state of a model, and the first name of the same tensor."""
    first: dict[object, str] = {}
    names = {}
    for name, tensor in cast(dict[str, Tensor], model.state_dict(keep_vars=True)).items():
        place = id(tensor) if is_shard(tensor) else _place(tensor)
        names[name] = first.setdefault(place, name) if tensor.numel() else name
    return names


def _place(tensor: Tensor) -> tuple[object, ...]:
    return (tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.shape)


def own_names(model: nn.Module) -> list[str]:
    """The names of a model's tensors, a tied one under its first name only."""
    return list(dict.fromkeys(_names(model).values()))


def own_tensors(model: nn.Module) -> dict[str, Tensor]:
    """A model's tensors, a tied one once."""
    state = cast(dict[str, Tensor], model.state_dict())
    return {name: state[name] for name in own_names(model)}


def save_weights(model: nn.Module, path: Path) -> None:
    """Write the weights of a model, tied ones once."""
    write_tensors(own_tensors(model), path)


def write_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write named tensors; the same tensors give the same bytes."""
    plain = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    save_file(plain, path, metadata={"format": "pt"})  # further keys would stand in random order


def load_weights(model: nn.Module, path: Path) -> None:
    """Copy the weights of a file into ``model``; raise `TrainError` where they do not fit."""
    own = cast(dict[str, Tensor], model.state_dict())
    needed = set(_names(model).values())
    with opened(path) as file, torch.no_grad():
        there = set(file.keys())
        if there != needed:
            few, many = sorted(needed - there), sorted(there - needed)
            raise TrainError(
                f"{path} is of another model: it lacks {few[:3] or 'nothing'} and has "
                f"{many[:3] or 'nothing'} besides; use the config.toml beside it"
            )
        for name in sorted(needed):
            shape, tensor = tuple(file.get_slice(name).get_shape()), own[name]
            if shape != tuple(tensor.shape):
                raise TrainError(
                    f"{path}: {name} is {shape} there and {tuple(tensor.shape)} in "
                    "the model: a size or the vocabulary has changed; use the config.toml beside it"
                )
            assign(tensor, file.get_tensor(name))


# ------------------------------------------------------------------------------ optimiser


def _optimizer_state(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[dict[str, Tensor], Record]:
    """The tensors of an optimiser, named parameter:state, and what of its state is no tensor."""
    names: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}
    tensors: dict[str, Tensor] = {}
    rest: Record = {}
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            kind = tensors if isinstance(value, Tensor) else rest
            kind[f"{names[parameter]}:{key}"] = value
    return tensors, rest


def _load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Put the state back under its parameters; rates and decay are those of the present config."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    order = [p for group in optimizer.param_groups for p in group["params"]]
    index = {names[parameter]: i for i, parameter in enumerate(order)}
    states: dict[int, Record] = {}
    values: Record = json.loads((folder / REST).read_text(encoding="utf-8"))
    with opened(folder / OPTIMIZER) as file:
        values |= {entry: file.get_tensor(entry) for entry in file.keys()}  # noqa: SIM118
    for entry, value in values.items():
        name, _, key = entry.rpartition(":")
        if name not in index:
            raise TrainError(f"{folder / OPTIMIZER}: {name} is no trained parameter of the model")
        if isinstance(value, Tensor):  # into memory laid out as the parameter's is
            parameter = order[index[name]]
            like = parameter.detach() if value.shape == parameter.shape else value
            saved, value = value, torch.empty_like(like, dtype=value.dtype)
            assign(value, saved)
        states.setdefault(index[name], {})[key] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": states, "param_groups": groups})


# ------------------------------------------------------------------------------ whole checkpoints


def path_of(run: Path, step: int) -> Path:
    """The folder of the checkpoint of a step."""
    return run / "checkpoints" / f"step-{step:08d}"


def steps(run: Path) -> list[int]:
    """The steps of which the run has a checkpoint, sound or not, in order."""
    names = (re.fullmatch(r"step-(\d+)", p.name) for p in (run / "checkpoints").glob("step-*"))
    return sorted(int(name[1]) for name in names if name)


@dataclass(frozen=True)
class Contents:
    """The tensors of a checkpoint by file and name, and what of the optimiser is no tensor."""

    tensors: dict[str, dict[str, Tensor]]
    rest: Record

    @classmethod
    def of(
        cls,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        mean: dict[str, Tensor] | None = None,
        keep: bool = True,
    ) -> Self:
        """What training needs to go on; with a moving ``mean`` that stands for the model.

        Shards are made whole one by one, for which every rank must call it; a rank that does not
        ``keep`` them only helps.
        """
        state, rest = _optimizer_state(model, optimizer)
        weights = {TRAINED if mean is not None else WEIGHTS: own_tensors(model)}
        if mean is not None:
            weights[WEIGHTS] = mean
        files = weights | {OPTIMIZER: state}
        return cls({file: _gathered(tensors, keep) for file, tensors in files.items()}, rest)


def _gathered(tensors: dict[str, Tensor], keep: bool) -> dict[str, Tensor]:
    found = {}
    for name, tensor in tensors.items():
        full = whole(tensor)
        if keep:
            found[name] = full.cpu() if is_shard(tensor) else full
    return found


def save(run: Path, step: int, contents: Contents, state: Record, toml: str) -> Path:
    """Write a checkpoint, whole or not at all; raise `TrainError` where the disk refuses."""
    target = path_of(run, step)
    try:
        with files.sealed_folder(target) as folder:
            for file, tensors in contents.tensors.items():
                write_tensors(tensors, folder / file)
            (folder / REST).write_text(json.dumps(contents.rest, indent=1), encoding="utf-8")
            (folder / "state.json").write_text(json.dumps(state, indent=1), encoding="utf-8")
            (folder / "config.toml").write_text(toml, encoding="utf-8")
    except TrainError as error:
        known = steps(run)
        kept = f"step {known[-1]} is kept" if known else "no earlier checkpoint is there"
        raise TrainError(
            f"{error}, or keep fewer checkpoints (train.save.keep). {kept}; the same command "
            "goes on from there"
        ) from error
    return target


def newest_sound(run: Path) -> tuple[int | None, list[str]]:
    """The step of the newest checkpoint that is whole, and what is wrong with newer ones."""
    complaints = []
    for step in reversed(steps(run)):
        try:
            files.verify(path_of(run, step))
        except DamagedError as damage:
            complaints.append(f"damaged checkpoint passed over: {damage}")
            continue
        return step, complaints
    return None, complaints


def load(run: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> Record:
    """Read a checkpoint into the model and the optimiser; gives its ``state.json``."""
    folder = path_of(run, step)
    load_weights(model, folder / (TRAINED if (folder / TRAINED).is_file() else WEIGHTS))
    _load_optimizer(model, optimizer, folder)
    return cast(Record, json.loads((folder / "state.json").read_text(encoding="utf-8")))


def folder_of(run: Path, which: str) -> Path:
    """The folder of the weights "best", "last", "average", or those of a step by its number.

    Raises ``ConfigError`` that says which steps there are.
    """
    if which == "best":
        folder = chosen(run)
    elif which == "average":
        folder = run / "averaged"
    else:
        if which != "last" and not which.isdecimal():
            raise ConfigError(f"checkpoint {which!r}: write best, last, average or a step's number")
        step = int(which) if which.isdecimal() else next(iter(reversed(steps(run))), 0)
        folder = path_of(run, step)
    if folder is None or not (folder / WEIGHTS).is_file():
        have = ", ".join(map(str, steps(run))) or "none"
        raise ConfigError(f"{run} has no checkpoint {which!r}; steps there: {have}")
    return folder


def read_chosen(run: Path, which: str, read: Callable[[Path], Any]) -> tuple[Path, Any]:
    """`folder_of`, and what is read there; again where a training has meanwhile replaced it."""
    folder = folder_of(run, which)
    try:
        return folder, read(folder)
    except (OSError, ValueError, RuntimeError):
        if folder_of(run, which) == folder:
            raise
        return read_chosen(run, which, read)


def place(path: Path) -> tuple[Path, Path | None]:
    """The run of a path, and the folder of the weights where the path is one and not a run."""
    if not (path / WEIGHTS).is_file():
        return path, None
    return (path.parent.parent if path.parent.name == "checkpoints" else path.parent), path


def prune(run: Path, keep: Iterable[int]) -> None:
    """Remove all checkpoints but those of the steps to keep."""
    for step in sorted(set(steps(run)) - set(keep)):
        files.remove(path_of(run, step))


def point(run: Path, folder: Path, figures: Record) -> None:
    """Let ``best.json`` name a folder of the run, with the figures that made it the best."""
    record = {"folder": folder.relative_to(run).as_posix(), **figures}
    files.write_atomically(run / "best.json", json.dumps(record, indent=1) + "\n")


def chosen(run: Path) -> Path | None:
    """The folder whose weights stand for the run: the best, or else the newest sound one.

    Raises `DamagedError` where ``best.json`` cannot be read or names a place outside of the run.
    """
    best = run / "best.json"
    try:
        name = Path(json.loads(best.read_text("utf-8"))["folder"]) if best.exists() else Path()
    except (ValueError, LookupError, TypeError, RecursionError):
        others = "remove it, or take others: --checkpoint last, or the number of a step"
        raise DamagedError(f"{best} does not say which weights it means; {others}") from None
    if name.is_absolute() or ".." in name.parts:
        raise DamagedError(f"{best} names {str(name)!r}, which is not in the run")
    if (run / name / files.MANIFEST).is_file():
        return run / name
    step, _ = newest_sound(run)
    return None if step is None else path_of(run, step)
