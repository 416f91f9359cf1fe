"""Stems: how raw input becomes a sequence of vectors. A new kind of input is one class."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from foveate.config import BaseConfig, Configurable
from foveate.spec import Input, Tokens


class Stem(Configurable, nn.Module):
    """Turns what a model reads into vectors (B, T, D), one for each place that attention sees.

    ``reads`` is the kind of input (of `foveate.spec`) that it can read. Raises ``ValueError`` for
    another one.
    """

    class Config(BaseConfig, family="stem"):
        """Which stem."""

    reads: ClassVar[type] = Tokens

    def __init__(self, config: Config, source: Input, size: int) -> None:
        super().__init__()
        self.config, self.source = config, source
        if not isinstance(source, self.reads):
            fitting = f"{self.reads.__name__.lower()}, not {type(source).__name__.lower()}"
            raise ValueError(f"the stem {config.kind!r} reads {fitting}; choose another stem")

    def forward(self, inputs: Any) -> Float[Tensor, "B T D"]:
        raise NotImplementedError


class TokenStem(Stem):
    """Embeds ids, E[id] · scale; √D keeps embeddings level with positions (Vaswani, 2017)."""

    class Config(Stem.Config, kind="tokens"):
        """``scale`` "sqrt" is √D."""

        scale: Literal["none", "sqrt"] = "none"

    config: Config

    def __init__(self, config: Config, source: Input, size: int) -> None:
        super().__init__(config, source, size)
        assert isinstance(source, Tokens)
        self.scale = math.sqrt(size) if config.scale == "sqrt" else 1.0
        self.embedding = nn.Embedding(source.vocab_size, size)
        nn.init.normal_(self.embedding.weight, std=1 / math.sqrt(size))

    def forward(self, inputs: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        x: Tensor = self.embedding(inputs)
        return x if self.scale == 1.0 else x * self.scale


class SegmentStem(TokenStem):
    """E[id] · scale + S[segment]: which of the joined texts a token is of (Devlin et al., 2019).

    Reads ids (B, T), all of segment 0, or ids with their segments (B, T, 2).
    """

    class Config(TokenStem.Config, kind="segments"):
        """``num_segments`` is how many texts may be joined."""

        num_segments: int = Field(2, gt=0)

    config: Config

    def __init__(self, config: Config, source: Input, size: int) -> None:
        super().__init__(config, source, size)
        self.segment = nn.Embedding(config.num_segments, size)
        nn.init.normal_(self.segment.weight, std=0.02)

    def forward(self, inputs: Int[Tensor, "B T *two"]) -> Float[Tensor, "B T D"]:
        if inputs.ndim == 2:
            return super().forward(inputs) + self.segment.weight[0]
        return super().forward(inputs[..., 0]) + self.segment(inputs[..., 1])
