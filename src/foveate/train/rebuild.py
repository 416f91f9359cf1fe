"""A model built anew from a run and its weights, either of which may be damaged or a stranger's.

Lives here: the order of the checks. Does not live here: the manifest (`foveate.train.files`), the
file of tensors (`foveate.train.tensors`), names and shapes (`foveate.train.checkpoint`), sizes
(`foveate.train.bounds`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from foveate.config import ConfigError
from foveate.train import files
from foveate.train.bounds import Within, refuse_larger
from foveate.train.checkpoint import WEIGHTS, load_weights
from foveate.train.files import DamagedError
from foveate.train.tensors import opened, size_of
from foveate.tree import load_tree

CONFIG = "config.toml"


def rebuilt(config: Any, build: Callable[[Any], nn.Module], run: Path, folder: Path) -> nn.Module:
    """The model of a config with the weights of a ``folder`` of its run.

    Raises `DamagedError` for weights that are not as they were written, ``ConfigError`` for weights
    of another model, and `TrainError` where names or shapes differ.
    """
    path = folder / WEIGHTS
    if (folder / files.MANIFEST).is_file():
        try:
            files.verify(folder, WEIGHTS)
        except DamagedError as error:
            other = "take another checkpoint: --checkpoint last, or the number of a step"
            raise DamagedError(f"{error}; {other}") from None
    with opened(path) as file:
        there = size_of(file)
    _same_model(config, run, folder)
    where = f"{run / CONFIG}: model"
    refuse_larger(config.tree(), there, where)
    with Within(there, where):
        model = build(config)
    load_weights(model, path)
    return model


def _same_model(config: Any, run: Path, folder: Path) -> None:
    """Raise ``ConfigError`` where the folder was written by a run with another model."""
    own = folder / CONFIG
    if folder == run or not own.is_file():
        return
    try:
        same = type(config).parse(load_tree(own).get("model", {})) == config
    except ConfigError:
        same = False
    if not same:
        raise ConfigError(
            f"{own} describes another model than {run / CONFIG}: the checkpoint is of another run, "
            "or one of the two files was changed"
        )
