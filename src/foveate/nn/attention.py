"""Attention: the only place where weights over keys are formed.

    A(q, K, V) = Σ_i normalise_i(e(q, k_i)) v_i

project → rotate → remember → score → bias → mask → normalise → mix. RNN decoders, Transformers and
whatever else looks at something use this class; what differs is the score, the heads and which
parts are projected. Inspection hangs on from outside through ``Attention.tap``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from foveate.config import BaseConfig, Configurable
from foveate.nn.dropout import Dropout
from foveate.nn.mask import Mask
from foveate.nn.normalizer import Normalizer, Softmax
from foveate.nn.position import Position
from foveate.nn.score import ScaledDot, Score
from foveate.nn.state import State

Tap = Callable[[Tensor], "Tensor | None"]
Part = Literal["query", "key", "value", "output"]

EXPLICIT_UP_TO = 128 * 128  # query × key places; past it SDPA is the faster road on CPUs, measured


class Attention(Configurable, nn.Module):
    """Queries gather values by how well the queries match the keys, in H heads.

    Bahdanau et al. (2015) is one head with the additive score, queries and keys projected;
    Luong et al. (2015) the dot or general score with nothing projected; Vaswani et al. (2017)
    several heads with the scaled dot product and everything projected.
    """

    class Config(BaseConfig):
        """Heads, score, normaliser, and which parts are projected."""

        num_heads: int = Field(1, gt=0)
        key_heads: int | None = Field(None, gt=0)  # fewer shared key/value heads (Ainslie, 2023)
        head_size: int | None = Field(None, gt=0)  # K, where it is not D/H
        score: Score.Config = ScaledDot.Config()
        normalizer: Normalizer.Config = Softmax.Config()
        project: tuple[Part, ...] = ("query", "key", "value", "output")
        dropout: float = Field(0.0, ge=0, lt=1)  # of the weights
        bias: bool = True

    def __init__(self, config: Config, hidden_size: int, memory_size: int | None = None) -> None:
        """``hidden_size`` D of queries and output, ``memory_size`` of keys and values (D if None).

        Raises ``ValueError`` where the heads do not divide D, or the sizes of a query and a key
        that are not projected differ.
        """
        super().__init__()
        self.config = config
        memory_size = memory_size or hidden_size
        self.num_heads, self.key_heads = config.num_heads, config.key_heads or config.num_heads
        uneven = config.head_size is None and hidden_size % self.num_heads
        if uneven or self.num_heads % self.key_heads:
            raise ValueError(
                f"num_heads = {self.num_heads} must divide the hidden size {hidden_size}, and "
                f"key_heads = {self.key_heads} must divide num_heads"
            )
        size = config.head_size or hidden_size // self.num_heads  # K
        shared = size * self.key_heads
        self.score: Score = config.score.build(self.num_heads, size)
        self.query = self._part("query", hidden_size, size * self.num_heads)
        self.key = self._part("key", memory_size, shared)
        self.value = self._part("value", memory_size, shared)
        self.mixed_size = size * self.num_heads
        if "value" not in config.project:
            self.mixed_size = memory_size // self.key_heads * self.num_heads
        self.output = self._part("output", self.mixed_size, hidden_size)
        self.output_size = hidden_size if "output" in config.project else self.mixed_size
        self.normalizer = config.normalizer.build()
        self.dropout = Dropout(config.dropout)
        self.tap: Tap | None = None

    def _part(self, name: Part, size: int, wanted: int) -> nn.Module:
        reads = name != "key" or self.score.reads_keys
        if reads and name in self.config.project:
            linear = nn.Linear(size, wanted, bias=self.config.bias)
            nn.init.xavier_uniform_(linear.weight)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)
            return linear
        if name in ("query", "key") and reads and size != wanted:
            raise ValueError(
                f"the {name} has size {size} and its heads {wanted}: "
                f'add "{name}" to attention.project, or make the sizes equal'
            )
        if name == "value" and size % self.key_heads:
            raise ValueError(
                f"{self.key_heads} key heads do not divide the values' size {size}: "
                'add "value" to attention.project'
            )
        return nn.Identity()

    def forward(
        self,
        query: Float[Tensor, "B T D"],
        memory: Float[Tensor, "M S E"] | None = None,
        mask: Mask | None = None,
        state: State | None = None,
        position: Position | None = None,
    ) -> Float[Tensor, "B T O"]:
        """Attend to ``memory``, or where it is None to the queries themselves.

        With a ``state``, keys and values of self-attention grow and those of a memory are made
        once. A memory may have fewer rows than there are queries: M divides B, and each row of it
        then serves B/M queries in turn (the hypotheses of one source).
        """
        start = state.position if state is not None and memory is None else 0
        query_at = torch.arange(start, start + query.shape[1], device=query.device)
        queries = self._heads(self.query(query), self.num_heads)  # (B, H, T, K)
        keys, values = self._remember(query if memory is None else memory, memory, state, position)
        key_at = torch.arange(keys.shape[2], device=query.device)
        if position is not None:
            queries = position.rotate(queries, query_at)
        bias = None if position is None else position.bias(query_at, key_at)

        batch, steps = queries.shape[0], queries.shape[2]
        rows = keys.shape[0]
        if rows != batch:  # (M·n, H, T, K) -> (M, H, n·T, K): hypotheses share their source's keys
            queries = _fold(queries, rows)
        mixed = self._mix(queries, keys, values, (mask or Mask(), query_at, key_at), bias, batch)
        if rows != batch:
            mixed = _unfold(mixed, steps)
        return self.output(mixed.transpose(1, 2).flatten(2))  # (B, H, T, K) -> (B, T, H·K)

    def _remember(
        self, source: Tensor, memory: Tensor | None, state: State | None, position: Position | None
    ) -> tuple[Tensor, Tensor]:
        """Keys and values of the source, with those that the state remembers."""

        def project() -> tuple[Tensor, Tensor]:
            values = self._heads(self.value(source), self.key_heads)
            keys = values  # of a score that does not read them only the number counts
            if self.score.reads_keys:
                keys = self._heads(self.key(source), self.key_heads)
            if position is not None:
                start = state.position if state is not None and memory is None else 0
                at = torch.arange(start, start + source.shape[1], device=source.device)
                keys = position.rotate(keys, at)
            return keys, values

        if state is None:
            return project()
        parts = state.grow(self, *project()) if memory is None else state.once(self, project)
        return parts[0], parts[1]

    def _heads(self, x: Tensor, heads: int) -> Tensor:
        """(B, T, H·K) -> (B, H, T, K)."""
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)

    def _mix(
        self,
        queries: Float[Tensor, "M H T K"],
        keys: Float[Tensor, "M G S E"],
        values: Float[Tensor, "M G S V"],
        seen: tuple[Mask, Tensor, Tensor],
        bias: Tensor | None,
        batch: int,
    ) -> Float[Tensor, "M H T V"]:
        """Σ_i weight_i v_i, on the fused road where nobody looks and it pays, else explicitly."""
        if self.key_heads != self.num_heads:  # (M, G, S, K) -> (M, H, S, K)
            group = self.num_heads // self.key_heads
            keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
        mask, query_at, key_at = seen
        if self.fused(queries, keys):
            dense = mask.dense(query_at, key_at)
            if bias is not None or (dense is not None and mask.blind(query_at, key_at) is not None):
                dense = None  # the explicit road below handles both
            else:
                dense = _repeat(dense, len(query_at), queries.shape[2])
                return F.scaled_dot_product_attention(
                    queries,
                    keys,
                    values,
                    attn_mask=dense,
                    dropout_p=self.config.dropout if self.training else 0.0,
                    scale=self.score.scale,
                )
        weights = self._weights(queries, keys, mask, query_at, key_at, bias)
        if self.tap is not None:
            steps = len(query_at)
            replaced = self.tap(_unfold(weights, steps))
            if replaced is not None:
                weights = _fold(replaced, len(weights))
        return self.dropout(weights) @ values

    def fused(self, queries: Tensor, keys: Tensor) -> bool:
        """Whether `scaled_dot_product_attention` gives the same and is the faster road."""
        if self.tap is not None or self.score.scale is None or not self.normalizer.fusable:
            return False
        if queries.device.type == "cpu":
            return queries.shape[2] * keys.shape[2] > EXPLICIT_UP_TO and queries.shape[2] > 1
        return True

    def _weights(
        self,
        queries: Tensor,
        keys: Tensor,
        mask: Mask,
        query_at: Tensor,
        key_at: Tensor,
        bias: Tensor | None,
    ) -> Float[Tensor, "M H T S"]:
        """normalise(score + bias + mask): rows sum to 1; a query that sees nothing gets zeros."""
        scores = self.score(queries, keys)
        folds = scores.shape[2] // len(query_at)
        if bias is not None:
            scores = scores + bias.repeat(1, folds, 1).to(scores.dtype)
        hidden = mask.additive(query_at, key_at, scores.dtype)
        if hidden is None:
            return self.normalizer(scores)
        steps, rows = len(query_at), scores.shape[2]
        weights = self.normalizer(scores + _repeat(hidden, steps, rows))
        blind = _repeat(mask.blind(query_at, key_at), steps, rows)
        return weights if blind is None else weights.masked_fill(blind, 0)


def _repeat(x: Tensor | None, steps: int, rows: int) -> Tensor | None:
    """(B, 1, T or 1, S) -> (B, 1, n·T, S): the same for each of the n hypotheses of a source."""
    if x is None or x.shape[2] == rows or x.shape[2] == 1:
        return x
    return x.repeat(1, 1, rows // steps, 1)


def _fold(x: Tensor, rows: int) -> Tensor:
    """(M·n, H, T, K) -> (M, H, n·T, K)."""
    if len(x) == rows:
        return x
    return x.unflatten(0, (rows, -1)).transpose(1, 2).flatten(2, 3)


def _unfold(x: Tensor, steps: int) -> Tensor:
    """(M, H, n·T, K) -> (M·n, H, T, K)."""
    if x.shape[2] == steps:
        return x
    return x.unflatten(2, (-1, steps)).transpose(1, 2).flatten(0, 1)
