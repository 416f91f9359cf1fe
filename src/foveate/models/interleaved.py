"""Transformer decoders in which some layers see all earlier positions and others a window."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from foveate.errors import UserError
from foveate.models.transformer import DecoderLayer, TransformerDecoder
from foveate.nn.attention import Attention
from foveate.nn.context import DecoderState, Mask
from foveate.nn.efficient_attention import LocalAttention
from foveate.nn.positions import Position, Rotary
from foveate.nn.scores import Key, Query, Score, Scores
from foveate.nn.spec import Tokens


class SoftCapped(Score):
    """c tanh(qᵀk / (c √K)): near qᵀk / √K if small, never beyond ±c (Gemma Team, 2024: Gemma 2)."""

    class Config(Score.Config, kind="soft_capped"):
        cap: float = Field(50.0, gt=0)  # c, which no score exceeds

    config: Config

    def __init__(self, config: Config, num_heads: int, head_size: int) -> None:
        super().__init__(config, num_heads, head_size)
        self.divisor = config.cap * math.sqrt(head_size)
        self.equation = f"e_i = {config.cap:.6g} tanh(q · k_i / ({config.cap:.6g} √K))"

    def forward(self, query: Query, key: Key) -> Scores:
        return self.config.cap * torch.tanh((query / self.divisor) @ key.mT)


class LocalLayer(DecoderLayer):
    """A decoder layer with self-attention within a window, and a rotation of its own, if any."""

    def __init__(self, config: InterleavedDecoder.Config, memory_size: int | None) -> None:
        local = LocalAttention.Config(**dict(config.attention), window=config.window)
        super().__init__(config.model_copy(update={"attention": local}), memory_size)
        own, sizes = config.local_position, (config.hidden_size, config.num_heads)
        self.position: Rotary | None = None if own is None else own.build(*sizes)

    def attend_to_prefix(
        self, x: Tensor, mask: Mask, state: DecoderState | None, position: Position
    ) -> Float[Tensor, "B T D"]:
        return super().attend_to_prefix(x, mask, state, self.position or position)


class InterleavedDecoder(TransformerDecoder):
    """Layers in turn: "local" ones see a window of earlier positions, "full" ones all (Gemma Team,
    2024: Gemma 2 and 3).
    """

    class Config(TransformerDecoder.Config, kind="interleaved"):
        layers: tuple[Literal["local", "full"], ...] = Field(("local", "full"), min_length=1)
        """The kinds of layers, from the first; repeated if there are more layers."""
        window: int = Field(128, gt=0)  # local layers see keys nearer than this
        local_position: Rotary.Config | None = None  # rotation of local layers, if it is another

    config: Config

    def __init__(self, config: Config, target: Tokens, memory_size: int | None) -> None:
        if type(config.attention) is not Attention.Config:
            raise UserError(
                f'decoder.attention = "{config.attention.kind}": the layers of an interleaved '
                'decoder have attention = "full", the local ones within decoder.window'
            )
        super().__init__(config, target, memory_size)
        for number in range(config.num_layers):
            if config.layers[number % len(config.layers)] == "local":
                self.layers[number] = LocalLayer(config, memory_size)
