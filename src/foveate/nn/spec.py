"""The inputs and outputs of a model, as far as the data determine them."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Tokens:
    """Sequences of ids from a vocabulary."""

    vocab_size: int
    padding: ClassVar[int] = 1  # the id that fills up the shorter sequences of a batch


@dataclass(frozen=True)
class Pixels:
    """Images of (channels, height, width), values about 0 with a spread of about 1."""

    channels: int
    height: int
    width: int


@dataclass(frozen=True)
class Series:
    """Rows of numbers at equal time steps: (length, channels)."""

    channels: int
    length: int


@dataclass(frozen=True)
class Labels:
    """Classes by name, in the order of their numbers."""

    names: tuple[str, ...]


Input = Tokens | Pixels | Series
