"""Multi-head attention: the only module in which weights over keys are computed.

    A(q, K, V) = Σ_i normalise_i(e(q, k_i)) v_i

project → rotate → append to the state → score → bias → mask → normalise → mix → join: start at
`Attention._attend`, `_mix` and `_weights`. Decoders of every family use `Attention`; they differ in
the score, the number of heads and which inputs are projected. A ``tap`` reads or replaces the
weights from outside, a ``probe`` reads each of these stages; if neither is set, a kernel may
compute the mixture without forming the weights (`Attention._may_fuse`). Cheaper kinds with the same
interface, `BaseAttention`, are in `foveate.nn.efficient_attention`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from foveate.config import BaseConfig, FromConfig
from foveate.errors import UserError
from foveate.nn.context import AttentionContext, DecoderState, Mask, Probed, Ranges, indices
from foveate.nn.linear import Dropout, Linear, RMSNorm, single, to_autocast_dtype
from foveate.nn.native.kernels import definer, fused_is_faster, overridden
from foveate.nn.native.layers import fused_attention
from foveate.nn.positions import NO_POSITION, Position
from foveate.nn.scores import Normalizer, ScaledDot, Score, Softmax

# M sources, N queries of all hypotheses of each, H heads (or G key heads), S keys, sizes K and V
Queries = Float[Tensor, "M H N K"]
Keys = Float[Tensor, "M H S K"]
Values = Float[Tensor, "M H S V"]
Weights = Float[Tensor, "M H N S"]
Sums = Float[Tensor, "M H N V"]
Tap = Callable[[Tensor], "Tensor | None"]  # weights (B, H, T, S) to replacements, or None
Projection = Literal["query", "key", "value", "output"]

# The n hypotheses of a source share its keys, so their queries are folded into one row of it.


def fold(x: Float[Tensor, "B T D"], sources: int) -> Float[Tensor, "M N D"]:
    """Put the T queries of the n hypotheses of each of M sources in a row: B = M·n, N = n·T."""
    return x if len(x) == sources else x.reshape(sources, -1, x.shape[2])


def unfold(x: Float[Tensor, "M N O"], hypotheses: int) -> Float[Tensor, "B T O"]:
    """Give each of the n hypotheses a row again: the inverse of `fold`."""
    return x if hypotheses == 1 else x.view(len(x) * hypotheses, -1, x.shape[2])


def fold_heads(x: Float[Tensor, "B H T S"], hypotheses: int) -> Float[Tensor, "M H N S"]:
    """`fold` what has heads, such as weights."""
    return x.unflatten(0, (-1, hypotheses)).transpose(1, 2).flatten(2, 3)


def unfold_heads(x: Float[Tensor, "M H N S"], hypotheses: int) -> Float[Tensor, "B H T S"]:
    """`unfold` what has heads."""
    return x.unflatten(2, (hypotheses, -1)).transpose(1, 2).flatten(0, 1)


def split_heads(x: Float[Tensor, "B T D"], heads: int) -> Float[Tensor, "B H T K"]:
    """Return each head's part of the features, D = H·K."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B T D"]:
    """Return the features of all heads, concatenated."""
    return x.transpose(1, 2).flatten(2)


class BaseAttention(Probed, FromConfig, nn.Module):
    """Queries gather values by how well they match keys, in H heads: the base of all kinds.

    It defines projections, heads, rotation and hypotheses that share the keys of their source. A
    kind defines how queries, keys and values are mixed (`_attend`).
    """

    class Config(BaseConfig, family="attention", kind="full"):  # the kind of `Attention`
        """Heads, and which parts are projected; a table without a kind is full attention."""

        num_heads: int = Field(1, gt=0)  # heads, each with weights of its own
        key_heads: int | None = Field(None, gt=0)  # fewer shared key/value heads (Ainslie, 2023)
        head_size: int | None = Field(None, gt=0)  # K, where it is not D/H
        value_size: int | None = Field(None, gt=0)
        """V of a head's projected values, where it is not K (d_v and d_k of Vaswani, 2017)."""
        project: tuple[Projection, ...] = ("query", "key", "value", "output")
        """Which of query, key, value and output are projected."""
        bias: bool = True  # whether the projections have a bias
        head_norm: RMSNorm.Config | None = None  # of each head's queries and keys (Qwen3, Gemma 3)

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
        super().__init__(config)
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
        if config.head_norm is not None:
            self.query_norm, self.key_norm = map(config.head_norm.build, (size, self.key_size))
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
            "normed query": "q ← γ_q q / √(mean q² + ε)",
            "rotated query": "q ← R_t q",
            "key": self._mapped("key", "k_i", "x_i"),
            "normed key": "k_i ← γ_k k_i / √(mean k_i² + ε)",
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
        state: DecoderState | None = None,
        position: Position | None = None,
    ) -> Float[Tensor, "B T O"]:
        """Attend to ``memory``, or to the queries themselves if it is None.

        With a ``state``, keys and values of self-attention are appended to it and those of a memory
        are projected once. A memory may have fewer rows than there are queries: M divides B, and
        each of its rows serves B/M consecutive queries (the hypotheses of one source), which are
        queries of one row to all that follows (`fold`).
        """
        x, state = to_autocast_dtype(query), state or DecoderState()
        memory = None if memory is None else to_autocast_dtype(memory)
        sources = len(x) if memory is None else len(memory)
        start = state.position if memory is None else 0
        own = range(start, start + x.shape[1])  # of each hypothesis
        query_at = own if sources == len(x) else (own,) * (len(x) // sources)
        key_at = range(own.stop if memory is None else memory.shape[1])
        context = AttentionContext(mask or Mask(), query_at, key_at, position or NO_POSITION, state)
        output = self._attend(fold(x, sources), memory, context)
        return unfold(self._stage("output", output), context.hypotheses)

    def _attend(self, x: Tensor, memory: Tensor | None, context: AttentionContext) -> Tensor:
        """Return the output for x, which attends to the memory, or to itself if that is None.

        x is (M, N, D), the memory (M, S, E), and the output (M, N, O).
        """
        raise NotImplementedError

    def _queries(self, x: Tensor, context: AttentionContext) -> Queries:
        """Return the queries of x in heads, rotated by their positions."""
        queries = self._normed("query", split_heads(self.query(x), self.num_heads))
        return self._rotated("query", queries, context.position, context.query_at)

    def _project(self, x: Tensor, position: Position, at: Ranges) -> tuple[Tensor, Tensor]:
        """Return keys and values of x at positions ``at`` in key heads, keys rotated by them."""
        keys = values = self._stage("value", split_heads(self.value(x), self.key_heads))
        if self.reads_keys:  # otherwise a score needs only their number
            keys = self._normed("key", split_heads(self.key(x), self.key_heads))
        return self._rotated("key", keys, position, at), values

    def _normed(self, name: str, x: Tensor) -> Tensor:
        """Return queries or keys in heads, normalised if the config has a ``head_norm``."""
        x, norm = self._stage(name, x), self._modules.get(f"{name}_norm")
        return x if norm is None else self._stage(f"normed {name}", norm(single(x)).to(x.dtype))

    def _rotated(self, name: str, x: Tensor, position: Position, at: Ranges) -> Tensor:
        """Return queries or keys, rotated where the position encoding does that."""
        if not position.rotates:
            return x
        return self._stage(f"rotated {name}", position.rotate(x, indices(at, x.device)))

    def _keys_and_values(
        self, x: Tensor, memory: Tensor | None, context: AttentionContext
    ) -> tuple[Keys, Values]:
        """Return keys and values for all heads, including those of earlier steps in the state."""
        position, state = context.position, context.state
        if memory is None:
            keys, values = state.grow(self, *self._project(x, position, context.query_at))
        else:
            make = partial(self._project, memory, position, context.key_at)
            keys, values = state.cached(self, make)
        return self._shared(keys), self._shared(values)

    def _shared(self, x: Float[Tensor, "M G S K"]) -> Float[Tensor, "M H S K"]:
        """Repeat each of G key heads for the H/G query heads that share it."""
        if self.key_heads == self.num_heads:
            return x
        return x.repeat_interleave(self.num_heads // self.key_heads, 1)

    def _tapped(
        self, weights: Tensor, context: AttentionContext, equation: str | None = None
    ) -> Weights:
        """Return the weights, or those that the tap replaces them with."""
        hypotheses = context.hypotheses
        if self.tap is not None:
            replaced = self.tap(unfold_heads(weights, hypotheses))
            weights = weights if replaced is None else fold_heads(replaced, hypotheses)
        return self._stage("weights", weights, equation)

    def _join(self, mixed: Sums) -> Tensor:
        """Return what the output projection makes of all heads together."""
        return self.output(merge_heads(self._stage("context", mixed)))


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
            "weights": "α_i = e_i, 0 where hidden" if self.score.gives_weights else weights,
        }

    def _attend(self, x: Tensor, memory: Tensor | None, context: AttentionContext) -> Tensor:
        queries = self._queries(x, context)  # q = R_t W_q x
        keys, values = self._keys_and_values(x, memory, context)  # k_i = R_i W_k x_i, v_i = W_v x_i
        mixed = self._mix(queries, keys, values, context)  # c = Σ_i α_i v_i
        return self._join(mixed)  # o = W_o [c of every head]

    def _mix(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Sums:
        """Return Σ_i α_i v_i, by a fused kernel if nothing reads the weights α."""
        scale = self.score.scale
        if scale is not None and self._may_fuse(queries, keys, values, context):
            dropout = self.dropout.p if self.dropout.training else 0.0
            return fused_attention(queries, keys, values, context, scale, dropout)
        weights = self._tapped(self._weights(queries, keys, context), context)
        return self.dropout(weights) @ values

    def _weights(self, queries: Queries, keys: Keys, context: AttentionContext) -> Weights:
        """Return normalise(score + bias + mask): rows sum to 1, those without a visible key are 0.

        A score that returns weights is only masked.
        """
        mask, at, device = context.mask, (context.query_at, context.key_at), queries.device
        scores = self._stage("score", self.score(queries, keys))
        self.score.check(scores, queries, keys)
        if self.score.gives_weights:
            context.refuse_bias('full" with score.softmax_over = "max_length')
            visible = mask.dense(*at, device)
            return scores if visible is None else scores.masked_fill(~visible, 0)
        bias = context.bias(device)
        if bias is not None:
            scores = scores + self._stage("bias", bias, context.position.equation).to(scores.dtype)
        hidden = mask.additive(*at, scores.dtype, device)
        if hidden is not None:
            scores = scores + self._stage("mask", hidden)
        weights = self.normalizer(scores)
        blind = mask.blind(*at, device)
        return weights if blind is None else weights.masked_fill(blind, 0)

    def _may_fuse(
        self, queries: Queries, keys: Keys, values: Values, context: AttentionContext
    ) -> bool:
        """Return whether a kernel is to compute softmax(c q kᵀ + bias + mask) v in place of `_mix`.

        It may not if a tap or probe reads the weights, or if a subclass computes weights, score,
        normaliser or dropout in another way (a `forward` of a class below the one that set `scale`
        or `fusable`); and only where it is faster (`fused_is_faster`).
        """
        score, normalizer, dropout = self.score, self.normalizer, self.dropout
        if (
            self.observed
            or not normalizer.fusable
            or overridden(self, Attention, "_weights", "_tapped")
            or overridden(score, definer(score, "scale"), "forward")
            or overridden(normalizer, definer(normalizer, "fusable"), "forward")
            or overridden(dropout, Dropout, "forward")
        ):
            return False
        return fused_is_faster(queries, keys, values, context, dropout.training and dropout.p == 0)
