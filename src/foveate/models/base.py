"""What every encoder and every decoder declares."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from foveate.config import BaseConfig, Configurable
from foveate.nn.masks import Mask
from foveate.nn.recurrent import Hidden
from foveate.nn.state import State
from foveate.spec import Input, Tokens


@dataclass
class Memory:
    """What an encoder leaves for a decoder.

    ``values`` (B, S, D); ``keys`` (B, S), true at real tokens, None where all are; ``final`` each
    layer's last hidden state of a recurrent encoder, None for others.
    """

    values: Float[Tensor, "B S D"]
    keys: Bool[Tensor, "B S"] | None = None
    final: list[Hidden] | None = None

    @cached_property
    def mask(self) -> Mask:
        """Which places may be looked at: one mask for all that look, at every step."""
        return Mask(self.keys)

    def summary(self) -> Float[Tensor, "B D"]:
        """The whole source in one vector: the last state, or else the mean of the values."""
        if self.final is not None:
            return self.final[-1][0]
        return self.mean()

    def mean(self) -> Float[Tensor, "B D"]:
        """The mean of the values at real places."""
        if self.keys is None:
            return self.values.mean(dim=1)
        real = self.keys.unsqueeze(-1).to(self.values.dtype)
        return (self.values * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)

    def select(self, rows: Tensor) -> Memory:
        """The memory of some of the sources."""
        return Memory(
            self.values[rows],
            None if self.keys is None else self.keys[rows],
            None
            if self.final is None
            else [tuple(part[rows] for part in hidden) for hidden in self.final],
        )


class Encoder(Configurable, nn.Module):
    """Reads a sequence and leaves a vector of ``output_size`` for each of its places.

    What it reads is up to its stem (`foveate.nn.embedding`): ids, patches of a picture, a series.
    """

    class Config(BaseConfig, family="encoder"):
        """Which encoder."""

    output_size: int

    def __init__(self, config: Config, source: Input) -> None:
        super().__init__()
        self.config = config

    @property
    def embedding(self) -> nn.Embedding | None:
        """The table of input vectors, for tying; None where there is none."""
        return embedding_of(self)

    def forward(self, inputs: Tensor, keys: Bool[Tensor, "B S"] | None = None) -> Memory:
        """Read ids (B, S), pixels (B, C, H, W) or series (B, S, C); ``keys``: real places."""
        raise NotImplementedError


def embedding_of(module: nn.Module) -> nn.Embedding | None:
    """The table in the stem of an encoder or decoder, or None."""
    table = getattr(getattr(module, "stem", None), "embedding", None)
    return table if isinstance(table, nn.Embedding) else None


def places(x: Tensor, start: int = 0) -> Tensor:
    """start, start + 1, … for each of T steps of x (B, T, …)."""
    return torch.arange(start, start + x.shape[1], device=x.device)


# ----------------------------------------------------------------------------------------- decoder
# Decoders: what is written so far and a memory in, a vector for each next token out.


class Decoder(Configurable, nn.Module):
    """Turns ids (B, T) into vectors (B, T, ``output_size``) from which the next token is predicted.

    Without a memory (``memory_size`` None) it is a language model's: it reads only what is written.
    ``state=None`` reads the whole sequence; with a state it reads on from ``state.position``.
    """

    class Config(BaseConfig, family="decoder"):
        """Which decoder."""

    reads_memory: ClassVar[bool] = True  # False: a language model's alone, it looks at no source
    output_size: int
    needs_memory: ClassVar[bool] = False  # True: it looks at a source, and is no language model
    constant_memory: ClassVar[bool] = False  # whether its state stays as large however much it read
    parallel: ClassVar[bool] = True  # whether the places of a sequence are read all at once

    def __init__(self, config: Config, target: Tokens, memory_size: int | None) -> None:
        super().__init__()
        self.config = config

    @property
    def embedding(self) -> nn.Embedding | None:
        """The table of input vectors, for tying; None where there is none."""
        return embedding_of(self)

    def forward(
        self, ids: Int[Tensor, "B T"], memory: Memory | None, state: State | None = None
    ) -> Float[Tensor, "B T D"]:
        raise NotImplementedError
