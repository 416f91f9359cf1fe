"""What enters and leaves a model, as far as the data decides it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Tokens:
    """Sequences of ids from a vocabulary."""

    vocab_size: int
    padding: ClassVar[int] = 1  # the id behind the end of the shorter sequences of a batch


@dataclass(frozen=True)
class Pixels:
    """Pictures of (channels, height, width), values about 0 with a spread of about 1."""

    channels: int
    height: int
    width: int


@dataclass(frozen=True)
class Series:
    """Rows of numbers at equal steps of time: (length, channels)."""

    channels: int
    length: int


@dataclass(frozen=True)
class Labels:
    """Classes by their names, in the order of their numbers."""

    names: tuple[str, ...]


Input = Tokens | Pixels | Series
