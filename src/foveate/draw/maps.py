"""Attention maps as drawings: a map, links between words, all heads, weights over a picture."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from foveate.draw.drawings import (
    Arrays,
    AttentionDrawing,
    Block,
    Drawing,
    Numbers,
    Overlay,
    PictureDrawing,
)
from foveate.errors import UserError
from foveate.inspect.measure import kinds_of
from foveate.inspect.records import AttentionRecord, block_of, spaced

Weights = NDArray[np.float32]  # (H, T, S), (T, S) or (S,)
Form = Literal["matrix", "links", "heads"]
ScaleName = Literal["row", "absolute"]


class AttentionView(AttentionDrawing):
    """The weights of one layer and head (or the mean of the heads) between words.

    The exact weights are those of its ``record``; a browser gets every map of it.
    """

    blocks: list[Block] = Field(default_factory=list)
    record: AttentionRecord = Field(exclude=True)

    @property
    def name(self) -> str:
        """The dotted name of the map."""
        return self.record.names(self.block)[self.layer]

    @cached_property
    def array(self) -> Weights:
        """The weights that are drawn, (T, S): rows are what is produced, columns the source."""
        return self.record.select(self.block, self.layer, self.head)

    @property
    def rows(self) -> list[str]:
        """The words of the rows; their numbers where the record has no labels."""
        return self.record.labels(self.name)[0]

    @property
    def columns(self) -> list[str]:
        """The words of the columns; their numbers where the record has no labels."""
        return self.record.labels(self.name)[1]

    def arrays(self) -> Arrays:
        return {
            "weights": self.array,
            "rows": np.array(self.rows),
            "columns": np.array(self.columns),
            "map": np.array(self.name),
            "head": np.array("mean" if self.head is None else self.head),
        }

    def drawings(self) -> list[Drawing]:
        """All maps of the record, of which this one is shown first."""
        first = {"form", "block", "layer", "head", "scale"}
        return [all_maps(self.record, **self.model_dump(include=first))]


class LinksView(AttentionView):
    """The map of one layer and head; a line is as strong as its weight.

    In a browser the lines of one word are shown when it is pointed at.
    """


class HeadsView(AttentionView):
    """Every layer and head of one block of a record; ``block_label`` is how a legend names it."""

    block_label: str = Field("", exclude=True)

    @property
    def names(self) -> list[str]:
        """The maps of the block."""
        return self.record.names(self.block)

    @cached_property
    def kinds(self) -> dict[str, list[str]]:
        """What each head of each map does (`foveate.inspect.measure.kind_of`)."""
        return kinds_of({name: self.record.drawn(name) for name in self.names})

    def arrays(self) -> Arrays:
        rows, columns = self.record.axes(self.names[0])
        maps: Arrays = {name: self.record.drawn(name) for name in self.names}
        return maps | {"rows": np.array(rows), "columns": np.array(columns)}


def _checked(scale: ScaleName | None) -> ScaleName:
    """A scale, absolute where none is named. Raises `UserError` naming those that exist."""
    if scale is not None and scale not in get_args(ScaleName):
        raise UserError(f"no scale {scale!r}; there are: {', '.join(get_args(ScaleName))}")
    return scale or "absolute"


def attention(
    record: AttentionRecord,
    block: str = "cross_attention",
    layer: int = -1,
    head: int | None = None,
    scale: ScaleName | None = None,
) -> AttentionView:
    """The drawing of one layer of a block: of one head, or of the mean of all.

    ``scale`` says how weights become colours: ``"absolute"`` from 0 to 1 (the default), ``"row"``
    against the largest of the row, in which an even row is as bright as a sharp one. Raises
    ``KeyError`` naming the blocks that exist, ``IndexError`` naming the layers or heads,
    `UserError` naming the scales.
    """
    record.select(block, layer, head)  # refuses what does not exist now, not when it is drawn
    scale = _checked(scale)
    names = record.names(block)
    place = range(len(names))[layer]
    name, heads = block_of(names[place]), len(record.maps[names[place]])
    caption = [spaced(name)]
    if len(names) > 1:
        caption.append(f"layer {place} ({len(names)} layers, from 0)")
    if heads > 1:
        caption.append(f"mean of {heads} heads" if head is None else f"head {head}")
    silent = [n for n, weights in enumerate(record.maps[names[place]]) if not weights.any()]
    if head in silent or len(silent) == heads:
        caption.append("silenced: all weights are 0")
    elif silent and head is None:
        caption.append(f"silenced: {', '.join(f'head {n}' for n in silent)}")
    return AttentionView(
        record=record, block=name, layer=place, head=head, scale=scale, caption=" · ".join(caption)
    )


def links(view: AttentionView) -> LinksView:
    """The same map as lines between words."""
    return LinksView(**{**dict(view), "form": "links"})


def heads(
    record: AttentionRecord, block: str = "cross_attention", scale: ScaleName | None = None
) -> HeadsView:
    """The drawing of all layers and heads of a block.

    Raises ``KeyError`` naming the blocks that exist, `UserError` naming the scales.
    """
    for name in record.layers(block):
        record.drawn(name)
    name, scale = block_of(record.names(block)[0]), _checked(scale)
    return HeadsView(record=record, block=name, block_label=block, form="heads", scale=scale)


# ------------------------------------------------------------------------------ over a picture

_PLACE = re.compile(r"(\d+),(\d+)")


class AttendedPicture(PictureDrawing):
    """A picture, and beside it the weights on its cells, a panel each.

    ``weights`` are those of each panel on the ``columns`` of the map, (S,); columns that are no
    cell, such as the class token, are in the notes of the overlays. ``heading`` is the title
    of the record.
    """

    map_name: str = Field(exclude=True)
    columns: list[str] = Field(exclude=True)
    weights: list[Weights] = Field(exclude=True)
    heading: str = Field(exclude=True)

    def arrays(self) -> Arrays:
        return {
            "picture": self.pixels,
            "titles": np.array([overlay.title for overlay in self.overlays]),
            "weights": np.stack([overlay.weights.array for overlay in self.overlays]),
            "map": np.array(self.map_name),
        }

    def drawings(self) -> list[Drawing]:
        return [self.model_copy(update={"title": self.heading})]


def over_picture(
    record: AttentionRecord,
    pixels: NDArray[np.uint8],
    block: str | None = None,
    layer: int = -1,
    head: int | None = None,
    scale: ScaleName | None = None,
) -> AttendedPicture:
    """The attention of a model to a picture (C, H, W).

    Of a decoder's attention a panel for each word; of patches that attend to patches a panel for
    each layer, with the weights of the class token, or where there is none the mean of all.
    Without a ``block``: the attention to the picture that the record has. Without a ``scale`` tints
    are by panel: cells are many, and their weights small. Raises as
    `foveate.draw.attention` does, and `UserError` where the columns are no places of a picture.
    """
    matrix = attention(record, block or _picture_block(record), layer, head, scale)
    columns, cells = matrix.columns, _cells(matrix.columns)
    if not cells:
        raise UserError(
            f'{matrix.name}: its columns are no places of a picture ("row,column"); its rows and '
            "columns can be drawn by foveate.draw.attention"
        )
    others = [i for i in range(len(columns)) if i not in cells]
    caption, panels = matrix.caption, list(zip(matrix.rows, matrix.array, strict=True))
    if matrix.rows == columns:
        panels = []
        for number in range(len(record.names(matrix.block))):
            weights = record.select(matrix.block, number, head)
            row = weights[others[0]] if others else weights.mean(axis=0)
            panels.append((f"layer {number}", row))
        seen_by = columns[others[0]] if others else "all places, mean"
        which = "mean of all heads" if head is None else f"head {head}"
        caption = f"{spaced(matrix.block)} · seen by {seen_by} · {which}"
    shape = tuple(1 + max(place[i] for place in cells.values()) for i in (0, 1))
    overlays = []
    for title, row in panels:
        grid = np.zeros(shape, np.float32)
        for column, place in cells.items():
            grid[place] = row[column]
        note = "\n".join(f"{columns[i]} {row[i]:.0%}" for i in others)
        overlays.append(Overlay(title=title, weights=Numbers.weights(grid), note=note))
    return AttendedPicture(
        pixels=pixels, width=pixels.shape[2], height=pixels.shape[1], caption=caption,
        overlays=overlays, scale=scale or "row", map_name=matrix.name, columns=columns,
        weights=[row for _, row in panels], heading=record.title,
    )  # fmt: skip


def _picture_block(record: AttentionRecord) -> str:
    """The block of the last map whose columns are places of the picture."""
    fitting = [name for name in record.maps if _cells(record.axes(name)[1])]
    return block_of((fitting or list(record.maps) or ["attention"])[-1])


def _cells(labels: Sequence[str]) -> dict[int, tuple[int, int]]:
    """The cell (row, column) of each label that names one."""
    matches = {i: _PLACE.fullmatch(label) for i, label in enumerate(labels)}
    return {i: (int(m[1]), int(m[2])) for i, m in matches.items() if m is not None}


# ------------------------------------------------------------------------------ in a browser
# All maps of a record, no larger than a browser can hold.

MOST_CELLS = 1_000_000  # of one record, 2.7 bytes each
LONGEST_SIDE = 256  # words along a side before neighbours are drawn together


def num_cells(block: Block) -> int:
    """Weights of all layers and heads."""
    return sum(layer.array.size for layer in block.layers)


def averaged(block: Block) -> Block:
    """A block with the mean of the heads of each layer alone."""
    means = [Numbers.weights(layer.array.mean(axis=0, keepdims=True)) for layer in block.layers]
    return block.model_copy(update={"layers": means, "has_heads": False, "kinds": []})


def tiled(block: Block, tile: int) -> Block:
    """A block with one cell, the largest, for each tile × tile."""
    if tile == 1:
        return block
    layers = [Numbers.weights(pool(layer.array, tile)) for layer in block.layers]
    labels = {"rows": _tiled(block.rows, tile), "columns": _tiled(block.columns, tile)}
    return block.model_copy(update={"layers": layers, **labels})


def pool(weights: Weights, tile: int) -> Weights:
    """The largest weight of each tile × tile cells: (H, T, S) to (H, ⌈T/tile⌉, ⌈S/tile⌉)."""
    height, width = (-(-n // tile) * tile for n in weights.shape[1:])
    padded = np.zeros((len(weights), height, width), np.float32)
    padded[:, : weights.shape[1], : weights.shape[2]] = weights
    tiles = padded.reshape(len(weights), height // tile, tile, width // tile, tile)
    largest: Weights = tiles.max(axis=(2, 4))
    return largest


def _tiled(labels: list[str], tile: int) -> list[str]:
    runs = [labels[k : k + tile] for k in range(0, len(labels), tile)]
    return [f"{run[0]} … {run[-1]}" for run in runs]


def _blocks(record: AttentionRecord) -> list[Block]:
    blocks = []
    for name, members in record.blocks().items():
        shapes = {record.drawn(member).shape[1:] for member in members}
        groups = {name: members} if len(shapes) == 1 else {each: [each] for each in members}
        for title, names in groups.items():
            layers = [record.drawn(each) for each in names]
            rows, columns = record.labels(names[0])
            kinds = list(kinds_of(dict(zip(names, layers, strict=True))).values())
            block = Block(
                name=title, row_means=record.row_means(title), kinds=several(kinds),
                rows=rows, columns=columns,
                layers=[Numbers.weights(heads) for heads in layers],
            )  # fmt: skip
            blocks.append(block)
    return blocks


def several(kinds: list[list[str]]) -> list[list[str]]:
    """The kinds of heads where any layer has several heads, else none."""
    return kinds if any(len(heads) > 1 for heads in kinds) else []


def shorten(record: AttentionRecord, most: int = MOST_CELLS) -> tuple[list[Block], list[str]]:
    """The blocks of a record within so many cells, and what was left out, in words.

    First the single heads (their mean stays), then the size of the cells.
    """
    blocks, notes = _blocks(record), []
    if sum(map(num_cells, blocks)) > most:
        blocks = [averaged(block) for block in blocks]
        notes.append("too long for single heads: only the mean of the heads of each layer is here")
    tile, longest = 1, max((max(len(b.rows), len(b.columns)) for b in blocks), default=0)
    while longest > LONGEST_SIDE * tile or any(
        num_cells(tiled(block, tile)) > most // len(blocks) for block in blocks
    ):
        tile += 1
    if tile > 1:
        blocks = [tiled(block, tile) for block in blocks]
        notes.append(f"too long for single words: a cell is the largest weight of {tile} × {tile}")
    return blocks, notes


def all_maps(record: AttentionRecord, **first: object) -> AttentionDrawing:
    """All maps of a record for a browser; ``first`` is what is shown first (`AttentionDrawing`).

    Its notes end with what was left out.
    """
    blocks, left_out = shorten(record)
    return AttentionDrawing.model_validate(
        {
            "title": record.title or " ".join(blocks[0].columns),
            "notes": [*record.notes, *left_out],
            "blocks": blocks,
            **first,
        }
    )
