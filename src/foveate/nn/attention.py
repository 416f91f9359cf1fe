"""Multi-head attention: the only module in which weights over keys are computed.

    A(q, K, V) = Σ_i normalise_i(e(q, k_i)) v_i

project → rotate → append to the state → score → bias → mask → normalise → mix. Decoders of every
family use `Attention`; they differ in the score, the number of heads and which inputs are
projected. A ``tap`` reads or replaces the weights from outside, a ``probe`` reads each of these
stages; if neither is set, `fused_attention` may compute the mixture without forming the weights.
Cheaper kinds with the same interface, `BaseAttention`, are in `foveate.nn.efficient_attention`.
"""

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
from torch.nn.attention import SDPBackend, sdpa_kernel

from foveate.config import BaseConfig, Configurable
from foveate.errors import UserError
from foveate.native.layers import Attend, attends
from foveate.nn.context import Mask, Positions, Probed, State, definer, indices, overridden
from foveate.nn.linear import Dropout, Linear, to_autocast_dtype
from foveate.nn.positions import Position
from foveate.nn.scores import Normalizer, ScaledDot, Score, Softmax

Tap = Callable[[Tensor], "Tensor | None"]  # weights (B, H, T, S) to replacements, or None
Projection = Literal["query", "key", "value", "output"]
SHORT = 128 * 128  # query × key positions; above this, PyTorch's fused attention is faster on CPUs
# PyTorch's fused kernels except cuDNN's, which plans anew for each length: some 100 ms.
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@dataclass(frozen=True)
class AttentionContext:
    """The inputs of attention besides queries, keys and values.

    The ``mask``, the positions of the queries, the position encoding and the decoder's state.
    """

    mask: Mask
    query_at: range
    position: Position | None
    state: State | None

    def bias(self, key_at: Positions, device: torch.device) -> Float[Tensor, "H T S"] | None:
        """Return what the position encoding adds to the score of each query and key."""
        if self.position is None or not self.position.biases:
            return None
        return self.position.bias(indices(self.query_at, device), indices(key_at, device))

    def refuse_bias(self, kind: str, device: torch.device) -> None:
        """Raise `UserError` if the position encoding adds to scores and ``kind`` has none."""
        if self.bias(range(1), device) is not None and self.position is not None:
            name = self.position.config.kind
            raise UserError(
                f'position = "{name}" adds a bias to the score of each query and key, '
                f'but attention = "{kind}" forms no scores; choose another position or attention'
            )


def repeat(x: Tensor, steps: int, rows: int) -> Tensor:
    """Repeat for each of the n hypotheses of a source: (B, 1, T or 1, S) -> (B, 1, n·T, S)."""
    if x.shape[2] == rows or x.shape[2] == 1:
        return x
    return x.repeat(1, 1, rows // steps, 1)


def join_hypotheses(x: Tensor, rows: int) -> Tensor:
    """Join the hypotheses of a source in one row: (M·n, H, T, K) -> (M, H, n·T, K)."""
    if len(x) == rows:
        return x
    return x.unflatten(0, (rows, -1)).transpose(1, 2).flatten(2, 3)


def split_hypotheses(x: Tensor, steps: int) -> Tensor:
    """Give each hypothesis its own row again: (M, H, n·T, K) -> (M·n, H, T, K)."""
    if x.shape[2] == steps:
        return x
    return x.unflatten(2, (-1, steps)).transpose(1, 2).flatten(0, 1)


def split_heads(x: Float[Tensor, "B T D"], heads: int) -> Float[Tensor, "B H T K"]:
    """Return each head's part of the features, D = H·K."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B T D"]:
    """Return the features of all heads, concatenated."""
    return x.transpose(1, 2).flatten(2)


class BaseAttention(Probed, Configurable, nn.Module):
    """Queries gather values by how well they match keys, in H heads: the base of all kinds.

    It defines projections, heads, rotation and hypotheses that share the keys of their source. A
    kind defines how queries, keys and values are mixed (`_attend`).
    """

    class Config(BaseConfig, family="attention"):
        """Heads, and which parts are projected."""

        num_heads: int = Field(1, gt=0)  # heads, each with weights of its own
        key_heads: int | None = Field(None, gt=0)  # fewer shared key/value heads (Ainslie, 2023)
        head_size: int | None = Field(None, gt=0)  # K, where it is not D/H
        value_size: int | None = Field(None, gt=0)
        """V of a head's projected values, where it is not K (d_v and d_k of Vaswani, 2017)."""
        project: tuple[Projection, ...] = ("query", "key", "value", "output")
        """Which of query, key, value and output are projected."""
        bias: bool = True  # whether the projections have a bias

        def across(self) -> BaseAttention.Config:
            """Return the kind by which a decoder of this kind attends to a memory."""
            return self

    config: Config
    causal: ClassVar[bool] = True  # whether future keys can be masked, as a decoder needs
    reads_keys: bool = True  # False if the score depends on the query only
    sums_to_one: bool = True
    """Whether weights are not negative and sum to 1; false for differential attention, a gate, …"""

    def __init__(self, config: Config, hidden_size: int, memory_size: int | None = None) -> None:
        """Take ``hidden_size`` D of queries and output, ``memory_size`` of keys and values (or D).

        Raises `UserError` if the heads do not divide D, or if the sizes of a query and a key that
        are not projected differ.
        """
        super().__init__()
        self.config = config
        memory_size = memory_size or hidden_size
        self.num_heads, self.key_heads = config.num_heads, config.key_heads or config.num_heads
        uneven = config.head_size is None and hidden_size % self.num_heads
        if uneven or self.num_heads % self.key_heads:
            raise UserError(
                f"num_heads = {self.num_heads} must divide the hidden size {hidden_size}, and "
                f"key_heads = {self.key_heads} must divide num_heads"
            )
        size = config.head_size or hidden_size // self.num_heads  # K
        self.key_size, self.value_size = size, config.value_size or size  # K, V
        if "key" not in config.project and self._joins_sizes():
            self.key_size = memory_size // self.key_heads
        self._prepare(size)
        self.query = self._projection("query", hidden_size, size * self.num_heads)
        self.key = self._projection("key", memory_size, self.key_size * self.key_heads)
        if "value" not in config.project:
            self.value_size = memory_size // self.key_heads
        self.value = self._projection("value", memory_size, self.value_size * self.key_heads)
        self.mixed_size = self.value_size * self.num_heads
        self.output = self._projection("output", self.mixed_size, hidden_size)
        self.output_size = hidden_size if "output" in config.project else self.mixed_size
        self.tap: Tap | None = None

    @property
    def observed(self) -> bool:
        """True if a tap or a probe reads what is computed, so that no fused kernel may be used."""
        return self.tap is not None or self.probe is not None

    def _prepare(self, head_size: int) -> None:
        """Make the modules that a kind has besides the projections."""

    def equations(self) -> dict[str, str]:
        return {
            "query": self._mapped("query", "q", "x"),
            "rotated query": "q ← R_t q",
            "key": self._mapped("key", "k_i", "x_i"),
            "rotated key": "k_i ← R_i k_i",
            "value": self._mapped("value", "v_i", "x_i"),
            "context": "c = Σ_i α_i v_i",
            "output": self._mapped("output", "o", "[c of every head]"),
        }

    def _mapped(self, name: Projection, y: str, x: str) -> str:
        """Return the equation of a projection, or of an input that is not projected."""
        part = getattr(self, name)
        if not isinstance(part, nn.Linear):
            return f"{y} = {x}" + ", of this head" * (name != "output" and self.num_heads > 1)
        return f"{y} = W_{y[0]} {x}" + f" + b_{y[0]}" * (part.bias is not None)

    def _joins_sizes(self) -> bool:
        """Return whether queries are compared with keys of another size."""
        return False

    def _projection(self, name: Projection, size: int, output_size: int) -> nn.Module:
        reads = name != "key" or self.reads_keys
        if reads and name in self.config.project:
            linear = Linear(size, output_size, bias=self.config.bias)
            nn.init.xavier_uniform_(linear.weight)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)
            return linear
        if name in ("query", "key") and reads and size != output_size:
            raise UserError(
                f"the {name} has size {size} and its heads {output_size}: "
                f'add "{name}" to attention.project, or make the sizes equal'
            )
        if name == "value" and size % self.key_heads:
            raise UserError(
                f"{self.key_heads} key heads do not divide the values' size {size}: "
                'add "value" to attention.project'
            )
        if name == "value" and self.config.value_size is not None:
            raise UserError(
                f"attention.value_size = {self.config.value_size} needs projected values: "
                'add "value" to attention.project, or leave it out'
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
        """Attend to ``memory``, or to the queries themselves if it is None.

        With a ``state``, keys and values of self-attention are appended to it and those of a memory
        are projected once. A memory may have fewer rows than there are queries: M divides B, and
        each of its rows serves B/M consecutive queries (the hypotheses of one source).
        """
        query = to_autocast_dtype(query)
        memory = None if memory is None else to_autocast_dtype(memory)
        steps, start = query.shape[1], 0 if state is None or memory is not None else state.position
        context = AttentionContext(mask or Mask(), range(start, start + steps), position, state)
        queries = self._stage("query", split_heads(self.query(query), self.num_heads))
        if position is not None and position.rotates:
            rotated = position.rotate(queries, indices(context.query_at, query.device))
            queries = self._stage("rotated query", rotated)  # (B, H, T, K)
        queries = join_hypotheses(queries, len(query if memory is None else memory))
        mixed = split_hypotheses(self._attend(queries, query, memory, context), steps)
        heads = merge_heads(self._stage("context", mixed))
        return self._stage("output", self.output(heads))

    def _attend(
        self,
        queries: Float[Tensor, "M H N K"],
        source: Tensor,
        memory: Tensor | None,
        context: AttentionContext,
    ) -> Float[Tensor, "M H N V"]:
        """Return what the queries gather from the memory, or from the source if it is None."""
        raise NotImplementedError

    def _project(
        self, x: Float[Tensor, "M S E"], position: Position | None, at: range
    ) -> tuple[Float[Tensor, "M H S K"], Float[Tensor, "M H S V"]]:
        """Return keys and values of x at positions ``at``; shared heads are not repeated."""
        values = self._stage("value", split_heads(self.value(x), self.key_heads))
        keys = values  # a score that reads no keys needs only their number
        if self.reads_keys:
            keys = self._stage("key", split_heads(self.key(x), self.key_heads))
        if position is not None and position.rotates:
            rotated = position.rotate(keys, indices(at, x.device))
            keys = self._stage("rotated key", rotated)
        return keys, values

    def _keys_and_values(
        self, source: Tensor, memory: Tensor | None, context: AttentionContext
    ) -> tuple[Float[Tensor, "M H S K"], Float[Tensor, "M H S V"]]:
        """Return keys and values for all heads, including those of earlier steps in the state."""
        read = source if memory is None else memory
        at = context.query_at if memory is None else range(read.shape[1])
        project = partial(self._project, read, context.position, at)
        if context.state is None:
            keys, values = project()
        elif memory is None:
            keys, values = context.state.grow(self, *project())
        else:
            keys, values = context.state.cached(self, project)
        return self._shared(keys), self._shared(values)

    def _shared(self, x: Float[Tensor, "M G S K"]) -> Float[Tensor, "M H S K"]:
        """Repeat each of G key heads for the H/G query heads that share it."""
        if self.key_heads == self.num_heads:
            return x
        return x.repeat_interleave(self.num_heads // self.key_heads, 1)


class Attention(BaseAttention):
    """Every query attends to every key that the mask allows.

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
        other = () if self.key_size == head_size else (self.key_size,)
        self.score: Score = self.config.score.build(self.num_heads, head_size, *other)
        self.reads_keys = self.score.reads_keys
        self.normalizer: Normalizer = self.config.normalizer.build()
        self.sums_to_one = type(self).sums_to_one and self.normalizer.sums_to_one
        self.dropout = Dropout(self.config.dropout)

    def _joins_sizes(self) -> bool:
        return self.config.score.joins_sizes

    def equations(self) -> dict[str, str]:
        weights = self.normalizer.equation or f"α = {self.config.normalizer.kind}(e)"
        return super().equations() | {
            "score": self.score.equation or f"e_i = {self.config.score.kind}(q, k_i)",
            "mask": "0, or −∞ where hidden",
            "weights": "α_i = e_i" if self.score.gives_weights else weights,
        }

    def _attend(
        self,
        queries: Float[Tensor, "M H N K"],
        source: Tensor,
        memory: Tensor | None,
        context: AttentionContext,
    ) -> Float[Tensor, "M H N V"]:
        keys, values = self._keys_and_values(source, memory, context)
        return self._mix(queries, keys, values, context, range(keys.shape[2]))

    def _mix(
        self,
        queries: Float[Tensor, "M H N K"],
        keys: Float[Tensor, "M H S E"],
        values: Float[Tensor, "M H S V"],
        context: AttentionContext,
        key_at: Positions,
    ) -> Float[Tensor, "M H N V"]:
        """Return Σ_i weight_i v_i, by a fused kernel if nothing reads the weights."""
        scale = self._fused_scale()
        if scale is not None:
            dropout = self.dropout.p if self.dropout.training else None
            mixed = fused_attention(queries, keys, values, context, key_at, scale, dropout)
            if mixed is not None:
                return mixed
        weights = self._weights(queries, keys, context, key_at)
        return self.dropout(self._tapped(weights, len(context.query_at))) @ values

    def _fused_scale(self) -> float | None:
        """Return c if a kernel may compute softmax(c q kᵀ) in place of this module, else None.

        A kernel only replaces the weights, score, normaliser and dropout of these classes: a
        subclass that computes any of them in another way is called instead.
        """
        score, normalizer = self.score, self.normalizer
        own = (
            self.observed
            or overridden(self, Attention, "_weights", "_tapped")
            or overridden(score, definer(score, "scale"), "forward")
            or overridden(normalizer, definer(normalizer, "fusable"), "forward")
            or overridden(self.dropout, Dropout, "forward")
        )
        return score.scale if normalizer.fusable and not own else None

    def _tapped(self, weights: Tensor, steps: int) -> Float[Tensor, "M H N S"]:
        """Return the weights, or those that the tap replaces them with."""
        replaced = None if self.tap is None else self.tap(split_hypotheses(weights, steps))
        if replaced is not None:
            weights = join_hypotheses(replaced, len(weights))
        return self._stage("weights", weights)

    def _weights(
        self, queries: Tensor, keys: Tensor, context: AttentionContext, key_at: Positions
    ) -> Float[Tensor, "M H N S"]:
        """Return normalise(score + bias + mask): rows sum to 1, those without a visible key are 0.

        A score that returns weights is only masked.
        """
        scores, query_at = self._stage("score", self.score(queries, keys)), context.query_at
        steps, rows = len(query_at), scores.shape[2]
        if self.score.gives_weights:
            context.refuse_bias('full" with score.softmax_over = "max_length', scores.device)
            seen = context.mask.dense(query_at, key_at, scores.device)
            return scores if seen is None else scores.masked_fill(~repeat(seen, steps, rows), 0)
        bias = context.bias(key_at, queries.device)
        if bias is not None and context.position is not None:
            bias = self._stage("bias", bias, context.position.equation)
            bias = bias.repeat(1, rows // steps, 1)
            scores = scores + bias.to(scores.dtype)
        hidden = context.mask.additive(query_at, key_at, scores.dtype, scores.device)
        if hidden is None:
            return self.normalizer(scores)
        weights = self.normalizer(scores + repeat(self._stage("mask", hidden), steps, rows))
        blind = context.mask.blind(query_at, key_at, scores.device)
        return weights if blind is None else weights.masked_fill(repeat(blind, steps, rows), 0)


def fused_attention(
    queries: Float[Tensor, "M H N K"],
    keys: Float[Tensor, "M H S K"],
    values: Float[Tensor, "M H S V"],
    context: AttentionContext,
    key_at: Positions,
    scale: float,
    dropout: float | None,
) -> Float[Tensor, "M H N V"] | None:
    """Return softmax(c q kᵀ + bias + mask) v by a kernel that never forms the weights.

    Returns None if forming the weights is faster, or if a query may attend to no key. ``scale`` is
    c; ``dropout`` is None outside of training. Long sequences, and all on devices other than CPUs,
    take PyTorch's fused kernel. Short ones in training on a CPU take the native kernel, whose sums
    have another order: outside of training a tap must not change a bit of the output.
    """
    mask, query_at, device = context.mask, context.query_at, queries.device
    steps, rows = len(query_at), queries.shape[2]
    long = device.type != "cpu" or (rows > 1 and rows * keys.shape[2] > SHORT)
    trains = dropout == 0 and steps == rows > 1 and attends(queries, keys, values)
    if not long and not trains:
        return None
    bias = context.bias(key_at, device)
    if (bias is not None and not long) or mask.blind(query_at, key_at, device) is not None:
        return None
    if not long:
        hidden = mask.additive(query_at, key_at, torch.float32, device)
        return Attend.apply(queries, keys, values, hidden, scale)  # type: ignore[no-untyped-call]
    causal = bias is None and steps == rows and mask.is_causal_only(query_at, key_at)
    added = None if causal else mask.dense(query_at, key_at, device)
    if bias is not None:
        hidden = mask.additive(query_at, key_at, queries.dtype, device)
        bias = bias.to(queries.dtype)
        added = bias[None] if hidden is None else bias + hidden
    with sdpa_kernel(KERNELS):
        return F.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=None if added is None else repeat(added, steps, rows),
            dropout_p=dropout or 0.0,
            is_causal=causal,
            scale=scale,
        )


BaseAttention.Config.kind = Attention.Config.kind  # a table without a kind is full attention
