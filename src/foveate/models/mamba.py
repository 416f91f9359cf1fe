"""Recurrences instead of self-attention: Mamba (Gu & Dao, 2023), and SSRUs (Kim et al., 2019)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from foveate.config import Config
from foveate.models.encoder_decoder import Decoder, Encoder, Memory
from foveate.models.transformer import DecoderLayer, TransformerDecoder
from foveate.nn.attention import Attention
from foveate.nn.context import DecoderState, Mask
from foveate.nn.embedding import Stem, TokenStem
from foveate.nn.linear import (
    Dropout,
    Norm,
    ResidualBlock,
    RMSNorm,
    Sublayer,
    through,
    to_autocast_dtype,
)
from foveate.nn.positions import Position
from foveate.nn.spec import Input, Tokens
from foveate.nn.ssm import SSRU, SelectiveStateSpace


class MambaConfig(Config):
    """The fields that encoder and decoder share."""

    hidden_size: int = Field(256, gt=0)  # size of the states between layers
    num_layers: int = Field(3, gt=0)  # layers, one above the other
    dropout: float = Field(0.1, ge=0, lt=1)  # of embeddings and of each layer's output
    norm: Norm.Config = RMSNorm.Config()  # before each layer
    stem: Stem.Config = TokenStem.Config()  # how tokens become vectors
    state_space: SelectiveStateSpace.Config = SelectiveStateSpace.Config()
    """The state space model of each layer."""


class MambaStack(nn.Module):
    """The parts that encoder and decoder share: embeddings, L layers, a last norm."""

    def _build(self, config: MambaConfig, source: Input, layer: Callable[[], nn.Module]) -> None:
        self.output_size = size = config.hidden_size
        self.stem: Stem = config.stem.build(source, size)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(layer() for _ in range(config.num_layers))
        self.norm: Norm = config.norm.build(size)


class MambaEncoderLayer(nn.Module):
    """x + S(norm(x)), or with both directions x + S→(norm(x)) + S←(norm(x))."""

    def __init__(self, config: MambaEncoder.Config) -> None:
        super().__init__()
        size = config.hidden_size
        self.forwards = config.state_space.build(size)
        self.backwards = config.state_space.build(size) if config.bidirectional else None
        self.block = ResidualBlock(config.norm.build(size), config.dropout, "pre")

    def forward(self, x: Tensor, source_mask: Tensor | None) -> Float[Tensor, "B S D"]:
        directions = partial(self._both_directions, source_mask=source_mask)
        return self.block.around(directions, x, None)

    def _both_directions(self, x: Tensor, source_mask: Tensor | None) -> Float[Tensor, "B S D"]:
        x = to_autocast_dtype(x)
        y: Tensor = self.forwards(x, source_mask)
        if self.backwards is None:
            return y
        return y + self.backwards(x, source_mask, backwards=True)


class MambaEncoder(MambaStack, Encoder):
    """L layers of selective state spaces; order is in the recurrence, so no positions are added."""

    differs = "bidirectional by default; Gu & Dao (2023) read only forwards: bidirectional = false"

    class Config(MambaConfig, Encoder.Config, kind="mamba"):
        """``bidirectional`` adds a second state space to each layer, read from the end."""

        bidirectional: bool = True  # whether it also reads from right to left

    def __init__(self, config: Config, source: Input) -> None:
        super().__init__(config, source)
        self._build(config, source, lambda: MambaEncoderLayer(config))

    def forward(self, inputs: Tensor, source_mask: Bool[Tensor, "B S"] | None = None) -> Memory:
        x = self.dropout(self.stem(inputs))
        for layer in self.layers:
            x = layer(x, source_mask)
        return Memory(self.norm(x), source_mask)


class MambaDecoderLayer(nn.Module):
    """x + S(norm(x)), then attention to the memory if there is one, as a Transformer's layer."""

    def __init__(self, config: MambaDecoder.Config, memory_size: int | None) -> None:
        super().__init__()
        size = config.hidden_size
        self.state_space = config.state_space.build(size)
        self.cross_attention = None
        if memory_size is not None:
            attention = config.cross_attention.model_copy(update={"num_heads": config.num_heads})
            self.cross_attention = Attention(attention, size, memory_size)
        self.blocks = nn.ModuleList(
            ResidualBlock(config.norm.build(size), config.dropout, "pre")
            for _ in range(1 if memory_size is None else 2)
        )

    def forward(
        self, x: Tensor, memory: Memory | None, mask: Mask, state: DecoderState | None
    ) -> Float[Tensor, "B T D"]:
        sublayers: list[Sublayer] = [partial(self.state_space, state=state)]
        if memory is not None and self.cross_attention is not None:
            cross = partial(self.cross_attention, memory=memory.values, mask=mask, state=state)
            sublayers.append(cross)
        return through(self.blocks, sublayers, x, None)


class MambaDecoder(MambaStack, Decoder):
    """L layers of selective state spaces; with a memory, each is followed by attention to it.

    It remembers the words written as a window and a state of fixed size in each layer.
    """

    differs = "has cross-attention in an encoder–decoder; Gu & Dao (2023) have no encoder"

    class Config(MambaConfig, Decoder.Config, kind="mamba"):
        """``num_heads`` is that of the attention to the memory; a language model has none."""

        num_heads: int = Field(4, gt=0)  # heads of the cross-attention
        cross_attention: Attention.Config = Attention.Config()  # the attention over the source

    constant_memory = True

    def __init__(self, config: Config, target: Tokens, memory_size: int | None) -> None:
        super().__init__(config, target, memory_size)
        self._build(config, target, lambda: MambaDecoderLayer(config, memory_size))

    def forward(
        self, ids: Int[Tensor, "B T"], memory: Memory | None, state: DecoderState | None = None
    ) -> Float[Tensor, "B T D"]:
        x = self.dropout(self.stem(ids))
        mask = Mask() if memory is None else memory.mask
        for layer in self.layers:
            x = layer(x, memory, mask, state)
        if state is not None:
            state.position += ids.shape[1]
        return self.norm(x)


class SSRULayer(DecoderLayer):
    """A decoder layer with an SSRU in place of self-attention (Kim et al., 2019)."""

    def _build_self_attention(self, config: TransformerDecoder.Config) -> None:
        self.unit = SSRU(config.hidden_size)

    def attend_to_prefix(
        self, x: Tensor, mask: Mask, state: DecoderState | None, position: Position
    ) -> Float[Tensor, "B T D"]:
        return self.unit(x, state)


class SSRUDecoder(TransformerDecoder):
    """The decoder of Kim et al. (2019): a step costs the same at any length of the prefix."""

    class Config(TransformerDecoder.Config, kind="ssru"):
        """``attention`` is that to the memory alone."""

    layer = SSRULayer
    constant_memory = True
