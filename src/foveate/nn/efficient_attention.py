"""Attention at less than quadratic cost: sparse patterns, low-rank keys, kernel feature maps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from foveate.errors import UserError
from foveate.nn.attention import Attention, BaseAttention, Keys, Queries, Sums, Values
from foveate.nn.context import AttentionContext, Mask, Ranges, indices, probed, ranges, take
from foveate.nn.linear import single
from foveate.nn.positions import NO_POSITION, Position

# queries of a block, the keys and values that it reads, and its context
Piece = tuple[Tensor, Tensor, Tensor, AttentionContext]


class SparseAttention(Attention):
    """Full attention of every block of queries to the keys of its pattern.

    Only for self-attention: a memory has positions of its own, and distant ones may matter most.
    """

    class Config(Attention.Config):
        """The fields of full attention; each kind has its own pattern."""

        def across(self) -> BaseAttention.Config:
            """Return full attention: every position of a memory may matter."""
            shared = {name: getattr(self, name) for name in Attention.Config.model_fields}
            return Attention.Config(**shared)

    config: Config

    def __init__(self, config: Config, hidden_size: int, memory_size: int | None = None) -> None:
        if memory_size is not None:
            raise UserError(
                f'cross_attention = "{config.kind}": this kind is for self-attention; '
                'use "full" for a memory'
            )
        super().__init__(config, hidden_size)

    @property
    def pattern(self) -> str:
        """The pattern in words, as printed."""
        return "of the keys that its pattern leaves"

    @property
    def block(self) -> int:
        """The number of queries in a block."""
        raise NotImplementedError

    def runs(self, queries: range, length: int) -> tuple[range, ...]:
        """Return which of ``length`` keys a block of queries reads, in order, without overlap."""
        raise NotImplementedError

    def narrow(self, mask: Mask) -> Mask:
        """Return the mask inside the runs."""
        return mask

    def _mix(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Sums:
        pieces = self._pieces(queries, keys, values, context)
        if not self.observed:
            mix = super()._mix
            return torch.cat([mix(*piece) for piece in pieces], dim=2)
        with probed(self, None), probed(self.score, None):  # a block's scores are not a stage
            weights = [self._weights(q, k, seen) for q, k, _, seen in pieces]
        whole = _whole(weights, [seen.key_at for *_, seen in pieces], keys.shape[2])
        tapped = self._tapped(whole, context, self._weighed(context.position))
        if tapped is not whole:
            return self.dropout(tapped) @ values
        mixed = [self.dropout(w) @ v for w, (_, _, v, _) in zip(weights, pieces, strict=True)]
        return torch.cat(mixed, dim=2)

    def equations(self) -> dict[str, str]:
        return super().equations() | {"weights": self._weighed(NO_POSITION)}

    def _weighed(self, position: Position) -> str:
        """Return the equation of the weights, which have no stage for the scores of all keys."""
        full = super().equations()
        parts = [full["weights"], full["score"] + " + b_i" * position.biases]
        parts += [position.equation] * position.biases
        return ", ".join([*parts, self.pattern])

    def _pieces(
        self, queries: Tensor, keys: Tensor, values: Tensor, context: AttentionContext
    ) -> list[Piece]:
        """Return the queries, keys, values and context of each block."""
        mask, length = self.narrow(context.mask), keys.shape[2]
        blocks = [each for run in ranges(context.query_at) for each in _blocks(run, self.block)]
        both = Cut(keys, self.block), Cut(values, self.block)
        pieces = []
        for block, asking in zip(blocks, queries.split([*map(len, blocks)], dim=2), strict=True):
            read = self.runs(block, block.stop if mask.causal else length)
            seen = AttentionContext(mask, block, read, context.position, context.state)
            some_keys, some_values = (cut.take(read) for cut in both)
            pieces.append((asking, some_keys, some_values, seen))
        return pieces


class LocalAttention(SparseAttention):
    """Each query sees the keys nearer than ``window`` places: |t − s| < window.

    With a window as long as the sequence this is full attention (Beltagy et al., 2020; the
    survey of Tay et al., 2020, calls it a fixed pattern).
    """

    differs = "no dilation and no global tokens (Beltagy et al., 2020)"

    class Config(SparseAttention.Config, kind="local"):
        window: int = Field(128, gt=0)  # keys nearer than this are attended to

    config: Config

    @property
    def pattern(self) -> str:
        return f"of keys with |t − i| < {self.config.window}"

    @property
    def block(self) -> int:
        return self.config.window

    def runs(self, queries: range, length: int) -> tuple[range, ...]:
        reach = self.config.window - 1
        return (range(max(0, queries.start - reach), min(length, queries.stop + reach)),)

    def narrow(self, mask: Mask) -> Mask:
        return mask.within(self.config.window)


class BlockSparseAttention(SparseAttention):
    """Blocks of queries see ``near`` blocks to each side and the ``first`` blocks of the sequence.

    The pattern of Child et al. (2019) and Zaheer et al. (2020) in whole blocks, without their
    random ones: near keys are read directly, distant ones through the first blocks.
    """

    differs = (
        "no random blocks; the first blocks are attended to by all queries, but do not attend to "
        "all keys themselves (BigBird, Zaheer et al., 2020, has both)"
    )

    class Config(SparseAttention.Config, kind="block_sparse"):
        block_size: int = Field(64, gt=0)  # positions of a block
        near: int = Field(1, ge=0)  # blocks to each side that are attended to
        first: int = Field(1, ge=0)  # blocks at the start that all queries attend to

    config: Config

    @property
    def block(self) -> int:
        return self.config.block_size

    def runs(self, queries: range, length: int) -> tuple[range, ...]:
        size = self.config.block_size
        number = queries.start // size
        start = max(0, number - self.config.near) * size
        stop = min(length, (number + self.config.near + 1) * size)
        first = min(self.config.first * size, start)
        if first == start:
            return (range(stop),)
        return tuple(run for run in (range(first), range(start, stop)) if len(run))


class Cut:
    """Positions along the third dimension, cut once, so that a run costs only what it contains.

    The gradient of a slice is as long as the tensor it was taken from: for T/n slices, T²/n.
    """

    def __init__(self, x: Float[Tensor, "B H S E"], size: int) -> None:
        self.size, self.parts, self.nothing = size, x.split(size, dim=2), x[:, :, :0]

    def take(self, runs: Sequence[range]) -> Float[Tensor, "B H R E"]:
        """Return the slices at some positions."""
        parts = [part for run in runs for part in self._of(run)]
        if len(parts) < 2:
            return parts[0] if parts else self.nothing
        return torch.cat(parts, dim=2)

    def _of(self, run: range) -> Iterator[Tensor]:
        for number in range(run.start // self.size, -(-run.stop // self.size)):
            start, part = number * self.size, self.parts[number]
            first, last = max(run.start - start, 0), min(run.stop - start, part.shape[2])
            yield part if last - first == part.shape[2] else part[:, :, first:last]


def _blocks(at: range, size: int) -> list[range]:
    """Cut the positions at the multiples of ``size``; at least one block, possibly empty."""
    edges = [at.start, *range((at.start // size + 1) * size, at.stop, size), at.stop]
    return [range(a, b) for a, b in itertools.pairwise(edges)]


def _whole(weights: list[Tensor], key_at: list[Ranges], length: int) -> Tensor:
    """Return the weights of all blocks over all keys, 0 for unread keys: (B, H, T, S)."""
    rows = []
    for part, read in zip(weights, key_at, strict=True):
        row = part.new_zeros(*part.shape[:3], length)
        row[..., indices(read, part.device)] = part
        rows.append(row)
    return torch.cat(rows, dim=2)


class LowRankAttention(Attention):
    """softmax(Q (E K)ᵀ / √d) (F V), where E and F mix S places into ``rank`` (Wang et al., 2020).

    A tap gets the weights that the positions of V receive in this way, softmax(…) F: they may be
    negative and need not sum to 1. Every mixture contains the future, so a decoder cannot use it
    for what it writes. Raises `UserError` for a causal mask, for a source longer than
    ``max_length``, and for a position encoding that adds to scores.
    """

    class Config(Attention.Config, kind="linformer"):
        """E and F are shared by the heads of a layer, as the paper proposes."""

        rank: int = Field(64, gt=0)  # positions to which keys and values are reduced
        max_length: int = Field(512, gt=0)  # longest sequence

    config: Config
    causal: ClassVar[bool] = False
    sums_to_one = False

    def _prepare(self, head_size: int) -> None:
        super()._prepare(head_size)
        shape = self.config.rank, self.config.max_length
        self.key_places = nn.Parameter(torch.randn(shape) / shape[0] ** 0.5)  # E
        self.value_places = nn.Parameter(torch.randn(shape) / shape[0] ** 0.5)  # F

    def _mix(self, queries: Queries, keys: Keys, values: Values, context: AttentionContext) -> Sums:
        self._refuse(context, keys.shape[2])
        short_keys = self._mixtures(self.key_places, context.mask, keys.shape[2]) @ keys
        mixtures = self._mixtures(self.value_places, context.mask, keys.shape[2])
        seen = AttentionContext(Mask(), context.query_at, range(self.config.rank))
        if not self.observed:
            return super()._mix(queries, short_keys, mixtures @ values, seen)
        self._stage("mixed key", short_keys)
        with probed(self, None), probed(self.score, None):  # scores of mixtures, not of keys
            weights = self._weights(queries, short_keys, seen)
        self._stage("weights of mixtures", weights)
        whole = weights @ mixtures
        tapped = self._tapped(whole, context)
        if tapped is not whole:
            return self.dropout(tapped) @ values
        return self.dropout(weights) @ self._stage("mixed value", mixtures @ values)

    def equations(self) -> dict[str, str]:
        full = super().equations()
        return full | {
            "mixed key": "k̃_r = Σ_i E_{ri} k_i",
            "weights of mixtures": f"{full['weights']}, {full['score']}, of mixed keys",
            "weights": "α_i = Σ_r α̃_r F_{ri}, α̃ of mixtures",
            "mixed value": "ṽ_r = Σ_i F_{ri} v_i",
        }

    def _mixtures(self, places: Tensor, mask: Mask, length: int) -> Tensor:
        """Return E or F with 0 for hidden keys, (R, S) or (M, 1, R, S)."""
        mixtures = places[:, :length]
        return mixtures if mask.key_mask is None else mixtures * mask.key_mask[:, None, None, :]

    def _refuse(self, context: AttentionContext, length: int) -> None:
        if context.mask.causal or context.mask.window is not None:
            raise UserError(
                "linformer mixes all positions, including future ones: it supports no causal "
                "mask and no window; use another kind of attention in a decoder"
            )
        if length > self.config.max_length:
            raise UserError(
                f"a sequence of {length} positions is longer than linformer's max_length = "
                f"{self.config.max_length}; raise it in the config, or cut the sequence"
            )
        context.refuse_bias("linformer")


CHUNK = 64  # causal queries that are answered together, their own keys by an explicit product


class KernelAttention(BaseAttention):
    """Weights proportional to φ(q)ᵀ φ(k), which are only computed for a tap.

    Raises `UserError` for a window, for a position encoding that adds to scores, and for a tap when
    the keys of earlier steps are gone.
    """

    class Config(BaseAttention.Config):
        """Heads, and which parts are projected; without a score or normaliser."""

    features = "φ({x})", "φ({x})"  # φ of a query and of a key, as printed

    def equations(self) -> dict[str, str]:
        query, key = self.features
        return super().equations() | {
            "query features": f"φ(q) = {query.format(x='q')}",
            "key features": f"φ(k_i) = {key.format(x='k_i')}",
            "weights": "α_i = φ(q) · φ(k_i) / Σ_j φ(q) · φ(k_j)",
        }

    def of_queries(self, x: Float[Tensor, "M H N K"]) -> Float[Tensor, "M H N R"]:
        """Return φ(q), never negative; a factor per query cancels."""
        raise NotImplementedError

    def of_keys(self, x: Float[Tensor, "M H S K"]) -> Float[Tensor, "M H S R"]:
        """Return φ(k), never negative: by default that of a query."""
        return self.of_queries(x)

    def _attend(self, x: Tensor, memory: Tensor | None, context: AttentionContext) -> Tensor:
        queries = self._queries(x, context)
        self._refuse(context, memory is None)
        with _exact(queries):
            phi = self._stage("query features", self.of_queries(single(queries)))
        if memory is None:
            total = self._own(phi, x, context)
        else:
            total = self._foreign(phi, memory, context)
        mixed, sums = total[..., :-1], total[..., -1:]
        mixed = mixed / sums.masked_fill(sums == 0, 1)  # a query that sees no key gets zeros
        replaced = self._show(phi, x, memory, context) if self.observed else None
        return self._join((mixed if replaced is None else replaced).to(queries.dtype))

    def _own(self, phi: Tensor, x: Tensor, context: AttentionContext) -> Float[Tensor, "B H T V"]:
        """Return self-attention's sums; all that was read is stored as one matrix of sums."""
        keys, values = self._features(x, context.query_at, context)
        zeros = phi.new_zeros(*keys.shape[:2], keys.shape[-1], values.shape[-1])
        (sums,) = context.state.current(self, lambda: (zeros,))
        with _exact(phi):
            if context.mask.causal:
                total, sums = _running(phi, keys, values, sums)
            else:
                sums = sums + keys.mT @ values
                total = phi @ sums
        context.state.replace(self, (sums,))
        return total

    def _foreign(
        self, phi: Tensor, memory: Tensor, context: AttentionContext
    ) -> Float[Tensor, "M H N V"]:
        """Return cross-attention's sums; those of the memory are computed once."""

        def make() -> tuple[Tensor, ...]:
            keys, values = self._features(memory, context.key_at, context)
            with _exact(phi):
                return (keys.mT @ values,)

        (sums,) = context.state.cached(self, make)
        with _exact(phi):
            return phi @ sums

    def _features(
        self, x: Tensor, at: Ranges, context: AttentionContext
    ) -> tuple[Float[Tensor, "M H S R"], Float[Tensor, "M H S V"]]:
        """Return φ(k), 0 where masked, and [v; 1]: one sum is numerator and denominator."""
        keys, values = self._project(x, context.position, at)
        keys, values = single(self._shared(keys)), single(self._shared(values))
        with _exact(keys):
            keys = self._stage("key features", self.of_keys(keys))
        if context.mask.key_mask is not None:
            keys = keys * take(context.mask.key_mask, at, 1)[:, None, :, None]
        return keys, F.pad(values, (0, 1), value=1.0)

    def _show(
        self, phi: Tensor, x: Tensor, memory: Tensor | None, context: AttentionContext
    ) -> Float[Tensor, "M H N V"] | None:
        """Compute the weights for tap and probe: φ(q)ᵀ φ(k_i) / Σ_j φ(q)ᵀ φ(k_j)."""
        at = context.query_at if memory is None else context.key_at
        keys, values = self._features(x if memory is None else memory, at, context)
        with _exact(phi):
            weights = phi @ keys.mT
            if memory is None and context.mask.causal:
                weights = weights.tril()
            sums = weights.sum(dim=-1, keepdim=True)
            weights = weights / sums.masked_fill(sums == 0, 1)
            tapped = self._tapped(weights, context)
            return None if tapped is weights else tapped @ values[..., :-1]

    def _refuse(self, context: AttentionContext, own: bool) -> None:
        kind = self.config.kind or ""
        context.refuse_bias(kind)
        if context.mask.window is not None:
            raise UserError(
                f'attention = "{kind}" sums over all earlier positions: it supports no window'
            )
        if self.observed and own and context.state.position > 0:
            raise UserError(
                f'attention = "{kind}" stores sums, not keys, so it has no weights to show '
                "step by step; run the whole sequence at once (state=None)"
            )


class LinearAttention(KernelAttention, kind="linear"):
    """φ(x) = elu(x) + 1 (Katharopoulos et al., 2020)."""

    features = "elu({x}) + 1", "elu({x}) + 1"

    def of_queries(self, x: Float[Tensor, "M H N K"]) -> Float[Tensor, "M H N R"]:
        return F.elu(x) + 1


class RandomFeatureAttention(KernelAttention):
    """φ(x) = exp(ωᵀx − ‖x‖²/2) for R random directions ω: φ(q)ᵀφ(k) is exp(qᵀk/√K) on average, so
    this is scaled dot product attention up to chance (Performer, FAVOR+; Choromanski et al., 2021).

    Directions are orthogonal in groups of K, drawn once and saved with the weights. The maximum is
    not subtracted from the keys, as the future or padding might hold it: φ(k) ≤ exp(‖ω‖²/2) stays
    finite for heads of up to about 128.
    """

    differs = (
        "the random directions are drawn once instead of being redrawn during training; unlike "
        "the code of Choromanski et al. (2021), it does not subtract the maximum from the keys"
    )

    class Config(KernelAttention.Config, kind="performer"):
        """More ``features`` R, less variance."""

        features: int = Field(256, gt=0)  # random features that approximate the softmax

    config: Config
    directions: Tensor
    exponents = "y = Ω {x} / √√K − ‖{x}‖² / (2 √K)"
    features = f"exp(y − max y), {exponents}", f"exp(y), {exponents}"

    def _prepare(self, head_size: int) -> None:
        self.register_buffer("directions", _orthogonal(self.config.features, head_size))

    def of_queries(self, x: Float[Tensor, "M H N K"]) -> Float[Tensor, "M H N R"]:
        exponents = self._exponents(x)
        return (exponents - exponents.amax(dim=-1, keepdim=True).detach()).exp()

    def of_keys(self, x: Float[Tensor, "M H S K"]) -> Float[Tensor, "M H S R"]:
        return self._exponents(x).exp()

    def _exponents(self, x: Tensor) -> Tensor:
        x = x * x.shape[-1] ** -0.25  # qᵀk/√K is the product of these
        return x @ self.directions.mT - x.square().sum(dim=-1, keepdim=True) / 2


def _running(
    phi: Tensor, keys: Tensor, values: Tensor, sums: Tensor
) -> tuple[Float[Tensor, "B H T V"], Float[Tensor, "B H R V"]]:
    """Return φ(q_t)ᵀ Σ_{i ≤ t} φ(k_i) v_iᵀ for every t, and the sums after the last."""
    totals = []
    chunks = (x.split(CHUNK, dim=2) for x in (phi, keys, values))
    for q, k, v in zip(*chunks, strict=True):
        totals.append((q @ k.mT).tril() @ v + q @ sums)
        sums = sums + k.mT @ v
    return torch.cat(totals, dim=2), sums


def _orthogonal(rows: int, size: int) -> Float[Tensor, "R K"]:
    """Return Gaussian rows, orthogonal to each other in groups of ``size``."""
    groups = [nn.init.orthogonal_(torch.empty(size, size)).mT for _ in range(-(-rows // size))]
    lengths = torch.randn(rows, size).norm(dim=-1, keepdim=True)
    return torch.cat(groups)[:rows] * lengths


def _exact(x: Tensor) -> torch.autocast:
    """Switch autocast off for the context: long sums need all the digits of single precision."""
    return torch.autocast(x.device.type, enabled=False)
