"""How large a model may become that a stranger's config asks for: the weights beside it bound it.

A config can name any size. What is built is held against the file of its weights while it is built,
so that a config which does not fit ends in an error, and not in gigabytes.

Lives here: the bounds. Does not live here: reading weights (`foveate.train.rebuild`,
`foveate.export.huggingface`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from foveate.config import ConfigError
from foveate.train.tensors import Size

SMALL = 10_000_000  # the largest number of any config, whatever the weights
TABLES = 50_000_000  # numbers that are made beside the weights at most
MAKERS = (torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn, torch.full, torch.arange)


def refuse_larger(value: Any, there: Size, where: str) -> None:
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
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in MAKERS:
            self.numbers -= _numbers((*args, kwargs.get("size", ())))
            self.tensors -= 1
            if self.numbers < 0 or self.tensors < 0:
                larger = f"{self.where} asks for a larger model than is there"
                raise ConfigError(f"{larger}: {self.there}")
        return func(*args, **kwargs)


def _numbers(size: Any) -> int:
    """How many numbers a tensor of a size has, which is given as numbers or as lists of them."""
    if isinstance(size, Sequence):
        return math.prod(map(_numbers, size))
    return max(1, int(size)) if isinstance(size, int | float) else 1
