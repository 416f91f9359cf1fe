"""A model built anew from a run and its weights, either of which may be damaged or a stranger's.

A config can name any size. A model is compared with the file of its weights while it is built, so
that a config which does not fit ends in an error, and not in gigabytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from foveate.config import Config, ConfigError, load_tree
from foveate.train.sealed import MANIFEST, DamagedError, Record, verify, verify_run
from foveate.train.tensors import WEIGHTS, Size, load_weights, opened, size_of

if TYPE_CHECKING:
    pass

C = TypeVar("C", bound=Config)
SMALL = 10_000_000  # the largest number of any config, whatever the weights
TABLES = 50_000_000  # numbers that are made beside the weights at most
MAKERS = (torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn, torch.full, torch.arange)


def refuse_larger(value: object, there: Size, where: str) -> None:
    """Raise ``ConfigError`` for a number of a config that is larger than all its weights."""
    if isinstance(value, dict):
        for key, part in value.items():
            refuse_larger(part, there, f"{where}.{key}")
    elif isinstance(value, list):
        for part in value:
            refuse_larger(part, there, where)
    elif isinstance(value, int) and abs(value) > max(there.numbers, SMALL):
        raise ConfigError(f"{where} = {value:,} cannot be: {there}")


class Within(TorchFunctionMode):
    """Within, this thread may make tensors of so many numbers together, and no more of them.

    A tied weight is made more than once, and so are tables that no file keeps. Raises
    ``ConfigError`` before more is made.
    """

    def __init__(self, there: Size, where: str) -> None:
        super().__init__()
        self.there, self.where = there, where
        self.numbers, self.tensors = 8 * there.numbers + TABLES, 16 * there.tensors + 1000

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Record | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if func in MAKERS:
            self.numbers -= _numbers((*args, kwargs.get("size", ())))
            self.tensors -= 1
            if self.numbers < 0 or self.tensors < 0:
                larger = f"{self.where} asks for a larger model than is there"
                raise ConfigError(f"{larger}: {self.there}")
        return func(*args, **kwargs)


def _numbers(size: object) -> int:
    """How many numbers a tensor of a size has, which is given as numbers or as lists of them."""
    if isinstance(size, Sequence):
        return math.prod(map(_numbers, size))
    return max(1, int(size)) if isinstance(size, int | float) else 1


CONFIG = "config.toml"


def rebuilt(config: C, build: Callable[[C], nn.Module], run: Path, folder: Path) -> nn.Module:
    """The model of a config with the weights of a ``folder`` of its run.

    Raises `DamagedError` for weights that are not as they were written, ``ConfigError`` for weights
    of another model, and `TrainError` where names or shapes differ.
    """
    path = folder / WEIGHTS
    if (folder / MANIFEST).is_file():
        try:
            verify(folder, WEIGHTS)
            verify_run(run, folder)
        except DamagedError as error:
            other = "take another checkpoint: --checkpoint last, or the number of a step"
            raise DamagedError(f"{error}; {other}") from None
    with opened(path) as file:
        there = size_of(file)
    own = folder / CONFIG
    if folder != run and own.is_file():
        try:
            own_model = load_tree(own, resolved=True).get("model", {})
            same = type(config).parse(own_model) == config
        except ConfigError:
            same = False
        if not same:
            raise ConfigError(
                f"{own} describes another model than {run / CONFIG}: the checkpoint is of another "
                "run, or one of the two files was changed"
            )
    where = f"{run / CONFIG}: model"
    refuse_larger(config.tree(), there, where)
    with Within(there, where):
        model = build(config)
    load_weights(model, path)
    return model
