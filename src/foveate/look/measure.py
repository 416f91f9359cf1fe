"""Figures of attention maps, and the maps of a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.look.capture import AttentionRecord
from foveate.look.drawing import AttentionDrawing, Block, Numbers

Weights = NDArray[np.float32]  # (..., T, S)
Figures = NDArray[np.float64]  # (...)
Judge = Callable[[Weights], Figures]


def entropy(weights: Weights) -> Figures:
    """How broadly the rows look: mean over t of -Σ_s a_ts log2 a_ts, in bits.

    Shape: (..., T, S) to (...). 0 where each row looks at one key; log2 S where it looks at all.
    """
    safe = np.where(weights > 0, weights, 1).astype(np.float64)
    figures: Figures = -(safe * np.log2(safe)).sum(axis=-1).mean(axis=-1)
    return figures


def confidence(weights: Weights) -> Figures:
    """Mean over the rows of their largest weight (Voita et al., 2019).

    Shape: (..., T, S) to (...).
    """
    figures: Figures = weights.max(axis=-1).mean(axis=-1, dtype=np.float64)
    return figures


def diagonality(weights: Weights) -> Figures:
    """How near the weight lies to the diagonal: 1 - mean over t of Σ_s a_ts |s/(S-1) - t/(T-1)|.

    Shape: (..., T, S) to (...). 1 for a map that copies in order, 0 for one that can be no further.
    """
    height, width = weights.shape[-2:]
    across = np.arange(width) / max(width - 1, 1)
    down = np.arange(height) / max(height - 1, 1)
    distance = np.abs(across - down[:, None])
    figures: Figures = 1 - (weights * distance).sum(axis=-1).mean(axis=-1)
    return figures


def alignment(weights: Weights) -> NDArray[np.int64]:
    """The key at which each row looks most, the first of equals. Shape: (..., T, S) to (..., T)."""
    keys: NDArray[np.int64] = weights.argmax(axis=-1)
    return keys


def disagreement(weights: Weights, consensus: Weights) -> float:
    """Share of rows whose most looked-at key differs from that of ``consensus`` (both (T, S))."""
    return float((alignment(weights) != alignment(consensus)).mean())


def rank_heads(
    maps: Mapping[str, Weights], error: Callable[[Weights], float] | None = None
) -> list[tuple[str, int, float]]:
    """Every head as (name of its map, head, error), the one of least error first.

    ``error`` judges one head's (T, S), for example by the alignment error rate against gold:
    ``lambda w: aer([sure], [possible], [links(w)])``. Without one, heads are judged by how often
    they disagree with the mean of all heads of the maps, which must then be of one shape.
    Equals stay in the order of the model.
    """
    if error is None:
        consensus = np.concatenate(list(maps.values())).mean(axis=0)
        return rank_heads(maps, lambda weights: disagreement(weights, consensus))
    judged = [
        (name, head, error(weights))
        for name, heads in maps.items()
        for head, weights in enumerate(heads)
    ]
    return sorted(judged, key=lambda entry: entry[2])


# ------------------------------------------------------------------------------ kinds of heads

KINDS = ("diagonal", "previous token", "next token", "sink", "aligning", "broad", "mixed")
ENOUGH = 0.4  # mean weight on one place by which a head is called


def on_diagonal(weights: Weights, offset: int = 0) -> Figures:
    """Mean weight on the key at the same place as the query, or ``offset`` places further.

    Shape: (..., T, S) to (...). Where T ≠ S the place is t (S−1)/(T−1), rounded. Rows whose place
    lies outside are left out.
    """
    height, width = weights.shape[-2:]
    places = np.rint(np.arange(height) * (width - 1) / max(height - 1, 1)).astype(int) + offset
    rows = np.flatnonzero((places >= 0) & (places < width))
    if not len(rows):
        return np.zeros(weights.shape[:-2])
    figures: Figures = weights[..., rows, places[rows]].mean(axis=-1, dtype=np.float64)
    return figures


def on_sink(weights: Weights) -> Figures:
    """The largest mean weight of one key: near 1 where all rows look at the same one.

    Shape: (..., T, S) to (...).
    """
    figures: Figures = weights.mean(axis=-2, dtype=np.float64).max(axis=-1, initial=0.0)
    return figures


def breadth(weights: Weights) -> Figures:
    """Entropy of a row by the most that it could be over the keys that it may see: 0 to 1, mean.

    Shape: (..., T, S) to (...). A key of weight 0 counts as hidden; rows that see one key are left
    out.
    """
    seen = (weights > 0).sum(axis=-1)
    safe = np.where(weights > 0, weights, 1).astype(np.float64)
    bits = -(safe * np.log2(safe)).sum(axis=-1)
    wide = seen > 1
    shares = np.where(wide, bits / np.log2(np.where(wide, seen, 2)), 0)
    figures: Figures = shares.sum(axis=-1) / np.maximum(wide.sum(axis=-1), 1)
    return figures


def spread(weights: Weights) -> Figures:
    """Different keys that rows look at most, by how many there could be. (..., T, S) to (...)."""
    height, width = weights.shape[-2:]
    chosen = np.sort(alignment(weights), axis=-1)
    different = 1 + (np.diff(chosen, axis=-1) > 0).sum(axis=-1)
    figures: Figures = different / max(min(height, width), 1)
    return figures


def kind_of(weights: Weights, crosses: bool) -> str:
    """What a head does, by its map (T, S): one of ``KINDS``; a rule of thumb for finding one's way.

    The place (the same, the one before, the one after) that has most weight gives the name where it
    has at least 40 %, and more than any one key has of all rows (else ``sink``, where that has
    40 %). A head that crosses from a target to a source is ``aligning`` where rows are sure (their
    largest weight is 40 % on average) of at least half as many keys as there could be; any head is
    ``broad`` where its rows look at what they see almost evenly (entropy 90 % of the most).
    In one row or over one key nothing can be told apart: ``mixed``.
    """
    if min(weights.shape) < 2:
        return "mixed"
    places = {"diagonal": 0} if crosses else {"diagonal": 0, "previous token": -1, "next token": 1}
    shares = {name: float(on_diagonal(weights, offset)) for name, offset in places.items()}
    shares["sink"] = float(on_sink(weights))
    name = max(shares, key=shares.__getitem__)
    if shares[name] >= ENOUGH:
        return name
    if crosses and confidence(weights) >= ENOUGH and spread(weights) >= 0.5:
        return "aligning"
    return "broad" if breadth(weights) >= 0.9 else "mixed"


def kinds_of(maps: Mapping[str, Weights]) -> dict[str, list[str]]:
    """What each head of each map (H, T, S) does, by `kind_of`."""
    return {
        name: [kind_of(head, name.endswith("cross_attention")) for head in heads]
        for name, heads in maps.items()
    }


# -------------------------------------------------------------------------------------------- maps
# A record of attention as the drawing of a browser, no larger than a browser can hold.

MOST_CELLS = 1_000_000  # of one record, 2.7 bytes each
LONGEST_SIDE = 256  # words along a side before neighbours are drawn together

Heads = NDArray[np.float32]  # (H, T, S)


@dataclass(frozen=True)
class Maps:
    """The maps of one block as they go into a drawing."""

    name: str
    row_means: str
    rows: list[str]
    columns: list[str]
    layers: list[Heads]
    has_heads: bool = True
    kinds: list[list[str]] = field(default_factory=list)  # what each head of each layer does

    @property
    def num_cells(self) -> int:
        """Weights of all layers and heads."""
        return sum(heads.size for heads in self.layers)

    @property
    def longest(self) -> int:
        """Words along the longer side."""
        return max(len(self.rows), len(self.columns))

    def averaged(self) -> Maps:
        """The same with the mean of the heads of each layer alone."""
        means = [heads.mean(axis=0, keepdims=True) for heads in self.layers]
        return replace(self, layers=means, has_heads=False, kinds=[])

    def tiled(self, tile: int) -> Maps:
        """The same with one cell, the largest, for each tile × tile."""
        if tile == 1:
            return self
        return replace(
            self,
            rows=_tiled(self.rows, tile),
            columns=_tiled(self.columns, tile),
            layers=[pool(heads, tile) for heads in self.layers],
        )

    def block(self) -> Block:
        """The same for a browser."""
        return Block(
            name=self.name,
            row_means="at" if self.row_means == "at" else "producing",
            rows=self.rows,
            columns=self.columns,
            layers=[Numbers.weights(heads) for heads in self.layers],
            has_heads=self.has_heads,
            kinds=self.kinds,
        )


def pool(weights: Heads, tile: int) -> Heads:
    """The largest weight of each tile × tile cells: (H, T, S) to (H, ⌈T/tile⌉, ⌈S/tile⌉)."""
    height, width = (-(-n // tile) * tile for n in weights.shape[1:])
    padded = np.zeros((len(weights), height, width), np.float32)
    padded[:, : weights.shape[1], : weights.shape[2]] = weights
    tiles = padded.reshape(len(weights), height // tile, tile, width // tile, tile)
    most: Heads = tiles.max(axis=(2, 4))
    return most


def _tiled(labels: list[str], tile: int) -> list[str]:
    runs = [labels[k : k + tile] for k in range(0, len(labels), tile)]
    return [f"{run[0]} … {run[-1]}" for run in runs]


def _blocks(record: AttentionRecord) -> list[Maps]:
    found = []
    for block, names in record.blocks().items():
        shapes = {record.drawn(name).shape[1:] for name in names}
        groups = {block: names} if len(shapes) == 1 else {name: [name] for name in names}
        for title, members in groups.items():
            layers = [record.drawn(name) for name in members]
            height, width = layers[0].shape[1:]
            rows, columns = record.axes(members[0])
            rows, columns = rows or [*map(str, range(height))], columns or [*map(str, range(width))]
            kinds = list(kinds_of(dict(zip(members, layers, strict=True))).values())
            found.append(
                Maps(title, record.row_means(title), rows, columns, layers, kinds=several(kinds))
            )
    return found


def several(kinds: list[list[str]]) -> list[list[str]]:
    """The kinds of heads where any layer has several to tell apart, else none."""
    return kinds if any(len(heads) > 1 for heads in kinds) else []


def shorten(record: AttentionRecord) -> tuple[list[Maps], list[str]]:
    """The blocks of a record within `MOST_CELLS`, and what had to go, in words.

    First the single heads (their mean stays), then the size of the cells.
    """
    blocks, notes = _blocks(record), []
    if sum(block.num_cells for block in blocks) > MOST_CELLS:
        blocks = [block.averaged() for block in blocks]
        notes.append("too long for single heads: only the mean of the heads of each layer is here")
    tile = 1
    while any(block.tiled(tile).num_cells > MOST_CELLS // len(blocks) for block in blocks) or any(
        block.longest > LONGEST_SIDE * tile for block in blocks
    ):
        tile += 1
    if tile > 1:
        blocks = [block.tiled(tile) for block in blocks]
        notes.append(f"too long for single words: a cell is the largest weight of {tile} × {tile}")
    return blocks, notes


def drawing(record: AttentionRecord, **first: Any) -> AttentionDrawing:
    """All maps of a record; ``first`` says what is shown first (`AttentionDrawing`).

    What had to go is the end of its notes.
    """
    blocks, lost = shorten(record)
    return AttentionDrawing(
        title=record.title or " ".join(blocks[0].columns),
        notes=[*record.notes, *lost],
        blocks=[block.block() for block in blocks],
        **first,
    )
