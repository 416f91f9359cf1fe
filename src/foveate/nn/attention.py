"""Multi-head attention: the only place where weights over keys are formed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from foveate.config import BaseConfig, Configurable
from foveate.native.layers import Attend, attends
from foveate.nn.linear import Dropout, Linear, reduced
from foveate.nn.masks import Mask, Places, places_of
from foveate.nn.positions import Position
from foveate.nn.scores import Normalizer, ScaledDot, Score, Softmax
from foveate.nn.state import State


def repeat(x: Tensor | None, steps: int, rows: int) -> Tensor | None:
    """(B, 1, T or 1, S) -> (B, 1, n·T, S): the same for each of the n hypotheses of a source."""
    if x is None or x.shape[2] == rows or x.shape[2] == 1:
        return x
    return x.repeat(1, 1, rows // steps, 1)


def fold(x: Tensor, rows: int) -> Tensor:
    """(M·n, H, T, K) -> (M, H, n·T, K)."""
    if len(x) == rows:
        return x
    return x.unflatten(0, (rows, -1)).transpose(1, 2).flatten(2, 3)


def unfold(x: Tensor, steps: int) -> Tensor:
    """(M, H, n·T, K) -> (M·n, H, T, K)."""
    if x.shape[2] == steps:
        return x
    return x.unflatten(2, (-1, steps)).transpose(1, 2).flatten(0, 1)


# ------------------------------------------------------------------------------------------ unseen
# Attention whose weights nobody looks at: roads that never hand them out, for softmax(c qᵀk).
#
# Long sequences, and all on other devices than CPUs, take PyTorch's fused kernel; short ones on a
# CPU
# the native one. Both give what the equation in `foveate.nn.attention` gives.

SHORT = 128 * 128  # query × key places; past it SDPA is the faster road on CPUs, measured


@dataclass(frozen=True)
class Unseen:
    """softmax(c q kᵀ + bias + mask) v: what beside queries, keys and values is in it.

    ``dropout`` is that of the weights, now. In ``training`` short ones may take the native kernel,
    whose sums have another order; else nothing may change by looking, not even a bit.
    """

    mask: Mask
    query_at: range
    key_at: Places
    bias: Callable[[], Tensor | None]  # (H, N, S), formed where a road wants it
    scale: float
    dropout: float
    training: bool

    def mix(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor | None:
        """The mixture (M, H, N, V); None where the equation itself is the road to take."""
        steps, rows = len(self.query_at), queries.shape[2]
        if queries.device.type != "cpu" or (rows > 1 and rows * keys.shape[2] > SHORT):
            road = self._fused
        elif (
            self.training
            and self.dropout == 0
            and steps == rows > 1
            and attends(queries, keys, values)
            and self.bias() is None
        ):
            road = self._native
        else:
            return None
        if self.mask.blind(self.query_at, self.key_at) is not None:
            return None  # a query that sees nothing gets zeros, which neither kernel gives
        return road(queries, keys, values)

    def _native(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        hidden = self.mask.additive(self.query_at, self.key_at, torch.float32, queries.device)
        mixed: Tensor = Attend.apply(queries, keys, values, hidden, self.scale)  # type: ignore[no-untyped-call]
        return mixed

    def _fused(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        device, kind, bias = queries.device, queries.dtype, self.bias()
        causal = bias is None and self.mask.triangle(self.query_at, self.key_at)
        causal = causal and len(self.query_at) == queries.shape[2]
        seen = None if causal else self.mask.dense(self.query_at, self.key_at, device)
        if bias is not None:
            bias = bias.to(kind)
            hidden = self.mask.additive(self.query_at, self.key_at, kind, device)
            seen = bias[None] if hidden is None else bias + hidden
        return F.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=repeat(seen, len(self.query_at), queries.shape[2]),
            dropout_p=self.dropout,
            is_causal=causal,
            scale=self.scale,
        )


# --------------------------------------------------------------------------------------- attention
# Attention: the only place where weights over keys are formed.
#
#     A(q, K, V) = Σ_i normalise_i(e(q, k_i)) v_i
#
# project → rotate → remember → score → bias → mask → normalise → mix. RNN decoders, Transformers
# and
# whatever else looks at something use this class; what differs is the score, the heads and which
# parts are projected. Inspection hangs on from outside through ``tap``. Cheaper relatives behind
# the
# same protocol, `BaseAttention`, stand in ``attention_sparse``, ``attention_kernel`` and
# ``attention_low_rank``.

Tap = Callable[[Tensor], "Tensor | None"]
Part = Literal["query", "key", "value", "output"]


@dataclass(frozen=True)
class View:
    """Where the queries stand, what they may see, what adds to their scores, what is remembered."""

    mask: Mask
    query_at: range
    position: Position | None
    state: State | None

    def refuse_bias(self, kind: str, device: torch.device) -> None:
        """Raise ``ValueError`` where the position adds to scores, for a kind that has none."""
        place = places_of(range(1), device)
        if self.position is not None and self.position.bias(place, place) is not None:
            name = self.position.config.kind
            raise ValueError(
                f'position = "{name}" adds to the score of each query and key, which '
                f'attention = "{kind}" never forms; take another position or attention'
            )


class BaseAttention(Configurable, nn.Module):
    """Queries gather values by how well they match keys, in H heads: the protocol of all kinds.

    Lives here: projections, heads, rotation, hypotheses that share the keys of their source. A
    kind says how queries and keys make a mixture (`_look`).
    """

    class Config(BaseConfig, family="attention"):
        """Heads, and which parts are projected."""

        num_heads: int = Field(1, gt=0)  # heads, each with weights of its own
        key_heads: int | None = Field(None, gt=0)  # fewer shared key/value heads (Ainslie, 2023)
        head_size: int | None = Field(None, gt=0)  # K, where it is not D/H
        project: tuple[Part, ...] = ("query", "key", "value", "output")
        """Which of query, key, value and output are projected."""
        bias: bool = True  # whether the projections have a bias

        def across(self) -> BaseAttention.Config:
            """The kind with which a decoder of this kind looks at a memory."""
            return self

    config: Config
    causal: ClassVar[bool] = True  # whether the future can be hidden, as a decoder must
    reads_keys: bool = True

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
        self._prepare(size)
        self.query = self._part("query", hidden_size, size * self.num_heads)
        self.key = self._part("key", memory_size, shared)
        self.value = self._part("value", memory_size, shared)
        self.mixed_size = size * self.num_heads
        if "value" not in config.project:
            self.mixed_size = memory_size // self.key_heads * self.num_heads
        self.output = self._part("output", self.mixed_size, hidden_size)
        self.output_size = hidden_size if "output" in config.project else self.mixed_size
        self.tap: Tap | None = None

    def _prepare(self, head_size: int) -> None:
        """Make what a kind has beside the projections."""

    def _part(self, name: Part, size: int, wanted: int) -> nn.Module:
        reads = name != "key" or self.reads_keys
        if reads and name in self.config.project:
            linear = Linear(size, wanted, bias=self.config.bias)
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
        query, memory = reduced(query), None if memory is None else reduced(memory)
        steps, start = query.shape[1], 0 if state is None or memory is not None else state.position
        view = View(mask or Mask(), range(start, start + steps), position, state)
        queries = self._heads(self.query(query), self.num_heads)  # (B, H, T, K)
        if position is not None:
            queries = position.rotate(queries, places_of(view.query_at, query.device))
        # (M·n, H, T, K) -> (M, H, n·T, K): hypotheses share their source's keys
        queries = fold(queries, len(query if memory is None else memory))
        mixed = unfold(self._look(queries, query, memory, view), steps)
        return self.output(mixed.transpose(1, 2).flatten(2))  # (B, H, T, K) -> (B, T, H·K)

    def _look(
        self, queries: Float[Tensor, "M H N K"], source: Tensor, memory: Tensor | None, view: View
    ) -> Float[Tensor, "M H N V"]:
        """What the queries gather from the memory, or where it is None from the source."""
        raise NotImplementedError

    def _project(
        self, x: Float[Tensor, "M S E"], position: Position | None, at: range
    ) -> tuple[Float[Tensor, "M H S K"], Float[Tensor, "M H S V"]]:
        """Keys and values of what stands at the places, not yet repeated for shared heads."""
        values = self._heads(self.value(x), self.key_heads)
        keys = values  # of a score that does not read them only the number counts
        if self.reads_keys:
            keys = self._heads(self.key(x), self.key_heads)
        if position is not None:
            keys = position.rotate(keys, places_of(at, x.device))
        return keys, values

    def _remember(
        self, source: Tensor, memory: Tensor | None, view: View
    ) -> tuple[Float[Tensor, "M H S K"], Float[Tensor, "M H S V"]]:
        """Keys and values of the source, with those that the state remembers, for all heads."""
        read = source if memory is None else memory
        at = view.query_at if memory is None else range(read.shape[1])

        def project() -> tuple[Tensor, ...]:
            return self._project(read, view.position, at)

        if view.state is None:
            keys, values = project()
        elif memory is None:
            keys, values = view.state.grow(self, *project())
        else:
            keys, values = view.state.once(self, project)
        return self._shared(keys), self._shared(values)

    def _shared(self, x: Float[Tensor, "M G S K"]) -> Float[Tensor, "M H S K"]:
        """Each shared head as often as there are heads that share it."""
        if self.key_heads == self.num_heads:
            return x
        return x.repeat_interleave(self.num_heads // self.key_heads, 1)

    def _heads(self, x: Tensor, heads: int) -> Tensor:
        """(B, T, H·K) -> (B, H, T, K)."""
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class Attention(BaseAttention):
    """Every query looks at every key that it may see.

    Bahdanau et al. (2015) is one head with the additive score, queries and keys projected;
    Luong et al. (2015) the dot or general score with nothing projected; Vaswani et al. (2017)
    several heads with the scaled dot product and everything projected.
    """

    class Config(BaseAttention.Config, kind="full"):
        """Score and normaliser."""

        score: Score.Config = ScaledDot.Config()  # how queries are compared with keys
        normalizer: Normalizer.Config = Softmax.Config()  # how scores become weights
        dropout: float = Field(0.0, ge=0, lt=1)  # of the weights

    config: Config

    def _prepare(self, head_size: int) -> None:
        self.score: Score = self.config.score.build(self.num_heads, head_size)
        self.reads_keys = self.score.reads_keys
        self.normalizer: Normalizer = self.config.normalizer.build()
        self.dropout = Dropout(self.config.dropout)

    def _look(
        self, queries: Float[Tensor, "M H N K"], source: Tensor, memory: Tensor | None, view: View
    ) -> Float[Tensor, "M H N V"]:
        keys, values = self._remember(source, memory, view)
        return self._mix(queries, keys, values, view, range(keys.shape[2]))

    def _mix(
        self,
        queries: Float[Tensor, "M H N K"],
        keys: Float[Tensor, "M H S E"],
        values: Float[Tensor, "M H S V"],
        view: View,
        key_at: Places,
    ) -> Float[Tensor, "M H N V"]:
        """Σ_i weight_i v_i, without forming the weights where nobody looks and it pays."""
        if self.tap is None and self.score.scale is not None and self.normalizer.fusable:
            bias = partial(self._bias, queries, view, key_at)
            dropout = self.config.dropout if self.training else 0.0
            rest = Unseen(
                view.mask, view.query_at, key_at, bias, self.score.scale, dropout, self.training
            )
            mixed = rest.mix(queries, keys, values)
            if mixed is not None:
                return mixed
        weights = self._weights(queries, keys, view, key_at)
        if self.tap is not None:
            replaced = self.tap(unfold(weights, len(view.query_at)))
            if replaced is not None:
                weights = fold(replaced, len(weights))
        return self.dropout(weights) @ values

    def _weights(
        self, queries: Tensor, keys: Tensor, view: View, key_at: Places
    ) -> Float[Tensor, "M H N S"]:
        """normalise(score + bias + mask): rows sum to 1; a query that sees nothing gets zeros."""
        scores = self.score(queries, keys)
        steps, rows = len(view.query_at), scores.shape[2]
        bias = self._bias(queries, view, key_at)
        if bias is not None:
            scores = scores + bias.repeat(1, rows // steps, 1).to(scores.dtype)
        hidden = view.mask.additive(view.query_at, key_at, scores.dtype, scores.device)
        if hidden is None:
            return self.normalizer(scores)
        weights = self.normalizer(scores + repeat(hidden, steps, rows))
        blind = repeat(view.mask.blind(view.query_at, key_at), steps, rows)
        return weights if blind is None else weights.masked_fill(blind, 0)

    def _bias(self, queries: Tensor, view: View, key_at: Places) -> Float[Tensor, "H T S"] | None:
        """What the places add to the scores."""
        if view.position is None:
            return None
        device = queries.device
        return view.position.bias(places_of(view.query_at, device), places_of(key_at, device))


BaseAttention.Config.kind = Attention.Config.kind  # a table without a kind is full attention
