"""Decoders: what is written so far and a memory in, a vector for each next token out."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from foveate.config import BaseConfig, Configurable
from foveate.models.encoder import Memory, embedding_of
from foveate.nn.state import State
from foveate.spec import Tokens


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
