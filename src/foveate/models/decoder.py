"""Decoders: what is written so far and a memory in, a vector for each next token out."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn

from foveate.config import BaseConfig, Configurable
from foveate.models.encoder import Memory
from foveate.nn.state import State
from foveate.spec import Tokens


class Decoder(Configurable, nn.Module):
    """Turns ids (B, T) into vectors (B, T, ``output_size``) from which the next token is predicted.

    ``state=None`` reads the whole sequence; with a state it reads on from ``state.position``.
    """

    class Config(BaseConfig, family="decoder"):
        """Which decoder."""

    output_size: int

    def __init__(self, config: Config, target: Tokens, memory_size: int) -> None:
        super().__init__()
        self.config = config

    @property
    def embedding(self) -> nn.Embedding:
        """The table of input vectors, for tying."""
        raise NotImplementedError

    def forward(
        self, ids: Int[Tensor, "B T"], memory: Memory, state: State | None = None
    ) -> Float[Tensor, "B T D"]:
        raise NotImplementedError
