"""Attention that leaves most keys out: each block of queries looks at a few runs of keys.

The work grows with the length and not with its square, because what is left out is never computed.
Lives here: the walk over blocks, and two patterns. A new pattern is one class: say which runs of
keys a block of queries reads (`runs`), and how its mask narrows (`narrow`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from foveate.nn.attention import Attention, BaseAttention, View
from foveate.nn.mask import Mask, Places, places_of

# queries of a block, the keys and values that it reads, its view, and where the keys stand
Piece = tuple[Tensor, Tensor, Tensor, View, tuple[range, ...]]


class SparseAttention(Attention):
    """Full attention of every block of queries to the keys that its pattern leaves.

    Of a sequence to itself only: a memory has places of its own, and far may be right there.
    """

    class Config(Attention.Config):
        """As full attention; which keys are left is up to the kind."""

        def across(self) -> BaseAttention.Config:
            """Full attention: every place of a memory may matter."""
            shared = {name: getattr(self, name) for name in Attention.Config.model_fields}
            return Attention.Config(**shared)

    config: Config

    def __init__(self, config: Config, hidden_size: int, memory_size: int | None = None) -> None:
        if memory_size is not None:
            raise ValueError(
                f'cross_attention = "{config.kind}": it is for a sequence that looks at itself; '
                'take "full" for a memory'
            )
        super().__init__(config, hidden_size)

    @property
    def block(self) -> int:
        """How many queries go together."""
        raise NotImplementedError

    def runs(self, queries: range, length: int) -> tuple[range, ...]:
        """Which of ``length`` keys a block of queries may read, in order and without overlap."""
        raise NotImplementedError

    def narrow(self, mask: Mask) -> Mask:
        """The mask inside the runs."""
        return mask

    def _mix(
        self,
        queries: Float[Tensor, "B H T K"],
        keys: Float[Tensor, "B H S E"],
        values: Float[Tensor, "B H S V"],
        view: View,
        key_at: Places,
    ) -> Float[Tensor, "B H T V"]:
        pieces = self._pieces(queries, keys, values, view)
        if self.tap is None:
            return torch.cat([Attention._mix(self, *piece) for piece in pieces], dim=2)
        weights = [self._weights(q, k, seen, runs) for q, k, _, seen, runs in pieces]
        replaced = self.tap(_whole(weights, [piece[-1] for piece in pieces], keys.shape[2]))
        if replaced is not None:
            return self.dropout(replaced) @ values
        mixed = [self.dropout(w) @ v for w, (_, _, v, _, _) in zip(weights, pieces, strict=True)]
        return torch.cat(mixed, dim=2)

    def _pieces(self, queries: Tensor, keys: Tensor, values: Tensor, view: View) -> list[Piece]:
        """What each block of queries has to do with."""
        mask, length = self.narrow(view.mask), keys.shape[2]
        blocks = _blocks(view.query_at, self.block)
        both = Cut(keys, self.block), Cut(values, self.block)
        pieces = []
        for block, asking in zip(blocks, queries.split([*map(len, blocks)], dim=2), strict=True):
            runs = self.runs(block, block.stop if mask.causal else length)
            seen = View(mask, block, view.position, view.state)
            some_keys, some_values = (cut.take(runs) for cut in both)
            pieces.append((asking, some_keys, some_values, seen, runs))
        return pieces


class LocalAttention(SparseAttention):
    """Each query sees the keys nearer than ``window`` places: |t − s| < window.

    With a window as long as the sequence this is full attention (Beltagy et al., 2020; the
    survey of Tay et al., 2020, calls it a fixed pattern).
    """

    class Config(SparseAttention.Config, kind="local"):
        window: int = Field(128, gt=0)

    config: Config

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

    The pattern of Child et al. (2019) and Zaheer et al. (2020) by whole blocks, without their
    random ones: what is near is read at once, what is far through the first blocks.
    """

    class Config(SparseAttention.Config, kind="block_sparse"):
        block_size: int = Field(64, gt=0)
        near: int = Field(1, ge=0)
        first: int = Field(1, ge=0)

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
    """Places along the third dimension, cut once, so that runs of them cost what is in them.

    The gradient of a slice is as long as what it was taken from: of T/n slices they would be T²/n.
    """

    def __init__(self, x: Float[Tensor, "B H S E"], size: int) -> None:
        self.size, self.parts, self.nothing = size, x.split(size, dim=2), x[:, :, :0]

    def take(self, runs: Sequence[range]) -> Float[Tensor, "B H R E"]:
        """What stands at some places."""
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
    """The places cut at the multiples of ``size``; at least one block, be it empty."""
    edges = [at.start, *range((at.start // size + 1) * size, at.stop, size), at.stop]
    return [range(a, b) for a, b in itertools.pairwise(edges)]


def _whole(weights: list[Tensor], runs: list[tuple[range, ...]], length: int) -> Tensor:
    """The weights of all blocks over all keys, 0 where a block does not look: (B, H, T, S)."""
    rows = []
    for part, read in zip(weights, runs, strict=True):
        row = part.new_zeros(*part.shape[:3], length)
        row[..., places_of(read, part.device)] = part
        rows.append(row)
    return torch.cat(rows, dim=2)
