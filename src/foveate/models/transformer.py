"""Transformer encoder and decoder (Vaswani et al., 2017), norms before or after each sub-layer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial
from typing import ClassVar, Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from foveate.config import Config
from foveate.errors import UserError
from foveate.models.encoder_decoder import Decoder, Encoder, Memory
from foveate.nn.attention import Attention, BaseAttention
from foveate.nn.context import DecoderState, Mask
from foveate.nn.embedding import Stem, TokenStem
from foveate.nn.linear import (
    Dropout,
    FeedForward,
    LayerNorm,
    NoFeedForward,
    Norm,
    ReLU,
    ResidualBlock,
    Sublayer,
    normalize,
    through,
)
from foveate.nn.native.kernels import overridden
from foveate.nn.positions import Position, Sinusoidal
from foveate.nn.spec import Input, Tokens

PRE_NORM = (
    "pre-norm by default (Xiong et al., 2020); for the post-norm of Vaswani et al. (2017), set "
    'norm_order = "post"'
)


class TransformerConfig(Config):
    """The fields that encoder and decoder share."""

    hidden_size: int = Field(256, gt=0)  # size of the states between layers
    num_heads: int = Field(4, gt=0)  # attention heads of each layer
    num_layers: int = Field(3, gt=0)  # layers, one above the other
    ffn_size: int = Field(1024, gt=0)  # inner size of the feed-forward layers
    dropout: float = Field(0.1, ge=0, lt=1)  # of embeddings and of each sub-layer's output
    norm: Norm.Config = LayerNorm.Config()  # normalisation of the states
    embedding_norm: Norm.Config | None = None  # of embeddings with positions (BERT, BART)
    norm_order: Literal["pre", "post", "plain", "sandwich"] = "pre"
    """Before each sub-layer, after its residual, plain, or before and behind it."""
    stem: Stem.Config = TokenStem.Config(scale="sqrt")  # how tokens become vectors
    position: Position.Config = Sinusoidal.Config()  # how the order of tokens is known
    attention: BaseAttention.Config = Attention.Config()
    """Self-attention; its num_heads is that of the stack."""


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network, each in a residual block."""

    def __init__(self, config: TransformerEncoder.Config) -> None:
        super().__init__()
        size = config.hidden_size
        self.self_attention: BaseAttention = _heads(config, config.attention).build(size)
        self.feed_forward: FeedForward = config.feed_forward.build(size, config.ffn_size)
        self.blocks = _blocks(config, 1, self.feed_forward)

    def forward(self, x: Tensor, mask: Mask, position: Position) -> Float[Tensor, "B S D"]:
        attend = partial(self.self_attention, mask=mask, position=position)
        return through(self.blocks, (attend, self.feed_forward), x, mask.key_mask)


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention if there is a memory, and a feed-forward network."""

    def __init__(self, config: TransformerDecoder.Config, memory_size: int | None) -> None:
        super().__init__()
        size = config.hidden_size
        self._build_self_attention(config)
        self.cross_attention: BaseAttention | None = None
        if memory_size is not None:
            cross = config.cross_attention or config.attention.across()
            self.cross_attention = _heads(config, cross).build(size, memory_size)
        self.feed_forward: FeedForward = config.feed_forward.build(size, config.ffn_size)
        self.blocks = _blocks(config, 1 if memory_size is None else 2, self.feed_forward)

    def _build_self_attention(self, config: TransformerDecoder.Config) -> None:
        """Build what `attend_to_prefix` uses: these two are what a kind without it overrides."""
        attention = config.attention
        if not cast(type[BaseAttention], attention.owner).causal:
            raise UserError(
                f'decoder.attention = "{attention.kind}" mixes all positions, including future '
                "ones; use another kind there (it works as encoder.attention or cross_attention)"
            )
        self.self_attention: BaseAttention = _heads(config, attention).build(config.hidden_size)

    def attend_to_prefix(
        self, x: Tensor, mask: Mask, state: DecoderState | None, position: Position
    ) -> Float[Tensor, "B T D"]:
        """Return what each position gathers from the positions up to itself."""
        return self.self_attention(x, mask=mask, state=state, position=position)

    def forward(
        self,
        x: Tensor,
        memory: Memory | None,
        masks: tuple[Mask, Mask],
        position: Position,
        state: DecoderState | None,
        target_mask: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Return the vectors of all positions; ``masks`` are those of prefix and memory.

        ``target_mask`` is true at real positions. No attention needs it, as padding stands after
        them, where no real position looks; a norm over the batch does, in training.
        """
        causal, visible = masks
        attend = partial(self.attend_to_prefix, mask=causal, state=state, position=position)
        sublayers: list[Sublayer] = [attend, self.feed_forward]
        if memory is not None and self.cross_attention is not None:
            cross = partial(self.cross_attention, memory=memory.values, mask=visible, state=state)
            sublayers.insert(1, cross)
        return through(self.blocks, sublayers, x, target_mask)


class TransformerStack(nn.Module):
    """The parts shared by encoder and decoder: embeddings with positions, L layers, a last norm."""

    def _build(
        self, config: TransformerConfig, source: Input, layer: Callable[[], nn.Module]
    ) -> None:
        self.output_size = size = config.hidden_size
        self.stem: Stem = config.stem.build(source, config.position.token_size(size))
        self.position: Position = config.position.build(size, config.num_heads)
        first = config.embedding_norm
        self.embedding_norm: nn.Module = nn.Identity() if first is None else first.build(size)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(layer() for _ in range(config.num_layers))
        head_size = config.attention.head_size or size // config.num_heads
        self.position.rotate(torch.zeros(1, 1, 1, head_size), torch.zeros(1))  # refuses odd sizes
        # pre-norm layers leave the residual sum unnormalised, so a norm follows the last layer
        open_sum = config.norm_order in ("pre", "sandwich")
        self.norm: nn.Module = config.norm.build(size) if open_sum else nn.Identity()

    def embed(
        self, inputs: Tensor, start: int = 0, mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """Return the input of the first layer: embeddings with positions, normalised, with dropout.

        ``start`` is the position of the first input; ``mask`` is false at padding.
        """
        x = self.stem(inputs)
        at = torch.arange(start, start + x.shape[1], device=x.device)
        return self.dropout(normalize(self.embedding_norm, self.position(x, at), mask))


class TransformerEncoder(TransformerStack, Encoder):
    """L layers of self-attention over embeddings and positions of tokens, patches or time steps."""

    differs = PRE_NORM

    class Config(TransformerConfig, Encoder.Config, kind="transformer"):
        """Shape letters: hidden_size D, num_heads H, num_layers L."""

        feed_forward: FeedForward.Config = ReLU.Config()
        """The feed-forward layers and their activation."""

    config: Config
    layer: ClassVar[type[EncoderLayer]] = EncoderLayer

    def __init__(self, config: Config, source: Input) -> None:
        super().__init__(config, source)
        self._build(config, source, lambda: self.layer(config))

    def forward(self, inputs: Tensor, source_mask: Bool[Tensor, "B S"] | None = None) -> Memory:
        x, mask = self.embed(inputs, 0, source_mask), Mask(source_mask)
        for layer in self.layers:
            x = layer(x, mask, self.position)
        return Memory(normalize(self.norm, x, source_mask), source_mask)


class TransformerDecoder(TransformerStack, Decoder):
    """L layers of causal self-attention, with cross-attention to the memory if there is one."""

    differs = PRE_NORM

    class Config(TransformerConfig, Decoder.Config, kind="transformer"):
        """Shape letters: hidden_size D, num_heads H, num_layers L."""

        cross_attention: BaseAttention.Config | None = None  # where it differs from attention
        feed_forward: FeedForward.Config = ReLU.Config()
        """The feed-forward layers and their activation."""
        causal: bool = True
        """Whether positions attend to none after them; false shows that a language model cheats."""

    config: Config
    layer: ClassVar[type[DecoderLayer]] = DecoderLayer

    def __init__(self, config: Config, target: Tokens, memory_size: int | None) -> None:
        super().__init__(config, target, memory_size)
        if not config.causal:
            self._cheat(memory_size)
        self._build(config, target, lambda: self.layer(config, memory_size))

    def forward(
        self, ids: Int[Tensor, "B T"], memory: Memory | None, state: DecoderState | None = None
    ) -> Float[Tensor, "B T D"]:
        target_mask = ids != Tokens.padding if self.training else None
        x = self.embed(ids, 0 if state is None else state.position, target_mask)
        masks = Mask(causal=self.config.causal), Mask() if memory is None else memory.mask
        for layer in self.layers:
            x = layer(x, memory, masks, self.position, state, target_mask)
        if state is not None:
            state.position += ids.shape[1]
        return normalize(self.norm, x, target_mask)

    def _cheat(self, memory_size: int | None) -> None:
        """Warn once of ``causal = false``. Raises `UserError` where it has no meaning."""
        if memory_size is not None or self.layer is not DecoderLayer:
            raise UserError(
                "decoder.causal = false is for the self-attention of a language model "
                '(model = "language_model", decoder = "transformer"); leave it out here'
            )
        _say_once(
            "decoder.causal = false: each position sees the token that it predicts; the loss falls "
            "towards 0, and what the model generates is meaningless"
        )


_say_once = cache(lambda message: print(message, file=sys.stderr))


def _heads(config: TransformerConfig, attention: BaseAttention.Config) -> BaseAttention.Config:
    return attention.model_copy(update={"num_heads": config.num_heads})


def _blocks(config: TransformerConfig, attentions: int, feed_forward: FeedForward) -> nn.ModuleList:
    """Return a residual block for each attention, and one for the feed-forward network, if any."""
    count = attentions + overridden(feed_forward, NoFeedForward, "forward")
    norm, order = partial(config.norm.build, config.hidden_size), config.norm_order
    norms = [(norm(), norm() if order == "sandwich" else None) for _ in range(count)]
    return nn.ModuleList(ResidualBlock(n, config.dropout, order, after) for n, after in norms)
