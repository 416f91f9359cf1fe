"""A record of attention as the drawing of a browser, no larger than a browser can hold.

Lives here: which maps of a record go into a drawing, and what has to go where it is too long.
Nothing is measured or laid out here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.look.drawing import AttentionDrawing, Block, Numbers
from foveate.look.measure import kinds_of
from foveate.look.record import AttentionRecord

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
