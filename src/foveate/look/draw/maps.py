"""Attention maps as drawings: a map, links between words, all heads, and their page."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

import foveate.look.draw.colors as colors
import foveate.look.draw.figures as figures
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.page import PageGroup, assemble
from foveate.look.draw.parts import Arrays, DrawingPart, Label, Numbers, visible
from foveate.look.draw.terminal import ability, cut, matrix, wrap
from foveate.look.records import (
    AttentionRecord,
    block_of,
    confidence,
    diagonality,
    entropy,
    kinds_of,
    spaced,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Weights = NDArray[np.float32]  # (H, T, S), (T, S) or (S,)
ScaleName = Literal["row", "absolute"]
ROWS = {"producing": "writes", "at": "reads"}  # a row in words
LINK_STEP = 0.24  # inches from word to word
LEAST_LINK = 0.05  # a figure draws no line for weights below this
HEAD_SIDE = 1.25  # inches of one small matrix

MOST_CELLS = 1_000_000  # of one record, 2.7 bytes each
LONGEST_SIDE = 256  # words along a side before neighbours are drawn together
UNTITLED = {"title": "", "notes": []}  # of a drawing whose group has its title


class Block(DrawingPart):
    """The maps of one block of a model: weights (H, T, S) of each layer, with one set of labels.

    ``row_means`` says whether a row is the word a decoder is ``producing`` or the word it is
    ``at``; ``kinds`` may name what each head of each layer does (diagonal, sink …).
    """

    name: str
    row_means: Literal["producing", "at"] = "at"
    rows: list[Label]
    columns: list[Label]
    layers: list[Numbers]
    has_heads: bool = True
    kinds: list[list[str]] = Field([])


class AttentionDrawing(Drawing):
    """Attention between words, layer by layer and head by head, and what is shown of it first.

    ``form``: ``matrix``, ``links`` (words joined by lines) or ``heads`` (all of a block in small).
    ``head`` absent is the mean of all.
    """

    kind: Literal["attention"] = "attention"
    blocks: list[Block]
    form: Literal["matrix", "links", "heads"] = "matrix"
    block: str = ""  # the first if empty
    layer: int = -1
    head: int | None = None
    scale: Literal["row", "absolute"] = "absolute"


class AttentionView(AttentionDrawing):
    """The weights of one layer and head (or the mean of the heads) between words.

    The exact weights are those of its ``record``, all of whose maps a browser gets.
    """

    blocks: list[Block] = Field(default_factory=list)
    record: AttentionRecord = Field(exclude=True)

    @property
    def name(self) -> str:
        """The dotted name of the map."""
        return self.record.names(self.block)[self.layer]

    @cached_property
    def array(self) -> Weights:
        """The weights that are drawn, (T, S): rows are outputs, columns the source."""
        return self.record.select(self.block, self.layer, self.head)

    @property
    def rows(self) -> list[str]:
        """The words of the rows, or their numbers if the record has no labels."""
        return self.record.labels(self.name)[0]

    @property
    def columns(self) -> list[str]:
        """The words of the columns, or their numbers if the record has no labels."""
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
        """Return all maps of the record, with this one shown first."""
        first = {"form", "block", "layer", "head", "scale"}
        return [all_maps(self.record, **self.model_dump(include=first))]

    def figure(self) -> Figure:
        height, width = self.array.shape
        words = self.rows, self.columns
        letters = [max(map(len, map(visible, labels)), default=0) for labels in words]
        margins = [0.075 * min(n, figures.LONGEST_LABEL) + 0.4 for n in letters]  # in inches
        cell = min(0.36, 14 / max(height, width, 1))
        size = max(cell * width + margins[0] + 1.1, 3.4), max(cell * height + margins[1] + 0.7, 2.6)
        made, [ax] = figures.subplots(size, caption=self.caption)
        self.fill(ax)
        ax.set_xlabel("")
        return made

    def fill(self, ax: Axes) -> None:
        figures.paint(ax, self.array, self.scale, grid=True)
        ax.set_aspect("equal")
        figures.write_words(ax, self.rows, self.columns)
        figures.weight_bar(ax.figure, [ax], self.scale, 0.8)
        means = ROWS[self.record.row_means(self.name)]
        ax.set_ylabel(means, size=figures.FONT_SIZE, color=figures.NOTE)
        ax.set_xlabel(self.caption, size=figures.FONT_SIZE, color=figures.NOTE, labelpad=8)

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        width = width or shutil.get_terminal_size().columns
        drawn = matrix(
            self.array, self.rows, self.columns, scale=self.scale, width=width,
            ink=ability(color=color),
        )  # fmt: skip
        title = wrap([visible(self.record.title or self.caption)], width)
        return "\n".join([*title, drawn, *wrap(map(visible, self.record.notes), width)])


class LinksView(AttentionView):
    """The map of one layer and head; a line is as strong as its weight.

    In a browser, hovering over a word shows its lines.
    """

    def figure(self) -> Figure:
        return self.own_figure(5.0, LINK_STEP * max(map(len, (self.rows, self.columns))) + 0.9)

    def fill(self, ax: Axes) -> None:
        rows, columns = self.rows, self.columns
        count = max(len(rows), len(columns))
        left, right = (count - len(rows)) / 2, (count - len(columns)) / 2
        for t, row in enumerate(self.array):
            for s in np.flatnonzero(row >= LEAST_LINK):
                weight = float(row[s])
                ax.plot(
                    (0, 1), (t + left, s + right), color=colors.line(0), alpha=min(1.0, weight),
                    linewidth=0.6 + 2.4 * weight,
                )  # fmt: skip
        for words, start, x, side in ((rows, left, -0.03, "right"), (columns, right, 1.03, "left")):
            for place, word in enumerate(words):
                figures.write(ax, x, place + start, cut(word, figures.LONGEST_LABEL), ha=side)
        ax.set(xlim=(-0.9, 1.9), ylim=(count - 0.4, -0.6))
        ax.set_axis_off()
        means = ROWS[self.record.row_means(self.name)]
        heading = f"{means} → attends to, weights from {LEAST_LINK:.0%}\n{self.caption}"
        ax.set_title(heading, size=figures.FONT_SIZE - 1, color=figures.NOTE, parse_math=False)


class HeadsView(AttentionView):
    """Every layer and head of one block in a record; ``block_label`` is its name in a legend."""

    block_label: str = Field("", exclude=True)

    @property
    def names(self) -> list[str]:
        """The maps of the block."""
        return self.record.names(self.block)

    @cached_property
    def kinds(self) -> dict[str, list[str]]:
        """The kind of each head of each map (`foveate.look.records.kind_of`)."""
        return kinds_of({name: self.record.drawn(name) for name in self.names})

    def arrays(self) -> Arrays:
        rows, columns = self.record.axes(self.names[0])
        maps: Arrays = {name: self.record.drawn(name) for name in self.names}
        return maps | {"rows": np.array(rows), "columns": np.array(columns)}

    def figure(self) -> Figure:
        maps = [self.record.drawn(name) for name in self.names]
        kinds, across = list(self.kinds.values()), max(map(len, maps))
        size = HEAD_SIDE * across + 0.9, HEAD_SIDE * len(maps) + 0.9
        caption = f"{self.block_label.replace('_', '-')} · {colors.scale(self.scale).caption}"
        made, axes = figures.subplots(size, len(maps) * across, across, caption=caption)
        for layer, heads in enumerate(maps):
            row = axes[layer * across : (layer + 1) * across]
            row[0].set_ylabel(f"layer {layer}", size=figures.FONT_SIZE)
            for ax in row[len(heads) :]:
                ax.set_axis_off()
            for head, (ax, weights) in enumerate(zip(row, heads, strict=False)):
                figures.paint(ax, weights, self.scale)
                figures.write_words(ax, self.rows if head == 0 else [], self.columns)
                ax.tick_params(labelsize=figures.FONT_SIZE - 3, labeltop=layer == 0)
                kind = kinds[layer][head].replace("no pattern", "")
                ax.set_xlabel(kind, size=figures.FONT_SIZE - 2, color=figures.NOTE, labelpad=2)
                if layer == 0:
                    ax.set_title(f"head {head}", size=figures.FONT_SIZE)
        return made

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """Return a table of figures: small matrices of a few letters would not be legible."""
        lines = [f"{'map':<36} head  entropy (bits)  confidence  diagonality  kind"]
        for name in self.names:
            heads = self.record.drawn(name)
            judged = entropy(heads), confidence(heads), diagonality(heads)
            for head, (broad, sure, straight) in enumerate(zip(*judged, strict=True)):
                numbers = f"{broad:>14.2f}  {sure:>10.2f}  {straight:>11.2f}"
                lines.append(f"{name:<36} {head:>4}  {numbers}  {self.kinds[name][head]}")
        return "\n".join([*lines, "figures of this sentence with its end"])


def attention(
    record: AttentionRecord,
    block: str | None = None,
    layer: int = -1,
    head: int | None = None,
    scale: ScaleName | None = None,
) -> AttentionView:
    """Draw one layer of a block: one head, or the mean of all.

    The block is cross-attention, or else the first, unless one is given. ``scale`` maps weights to
    colours: ``"absolute"`` from 0 to 1 (the default), ``"row"`` relative to the largest in the row,
    which makes an even row as bright as a sharp one. Raises `UserError` with the existing blocks,
    layers, heads or scales.
    """
    block = block or record.first_block()
    record.select(block, layer, head)  # refuses unknown ones now, not during drawing
    if scale is not None:
        colors.scale(scale)  # raises if there is none
    scale = scale or "absolute"
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


def links(of: AttentionView | AttentionRecord) -> LinksView:
    """Return the same map as lines between words; for a record, the map that `attention` shows."""
    view = of if isinstance(of, AttentionView) else attention(of)
    return LinksView(**{**dict(view), "form": "links"})


def heads(
    record: AttentionRecord, block: str | None = None, scale: ScaleName | None = None
) -> HeadsView:
    """Draw all layers and heads of a block, chosen as in `attention`.

    Raises `UserError` with the existing blocks or scales.
    """
    block = block or record.first_block()
    for name in record.layers(block):
        record.drawn(name)
    name, scale = block_of(record.names(block)[0]), scale or "absolute"
    colors.scale(scale)  # raises if there is none
    return HeadsView(record=record, block=name, block_label=block, form="heads", scale=scale)


def num_cells(block: Block) -> int:
    """Return the number of weights in all layers and heads."""
    return sum(layer.array.size for layer in block.layers)


def averaged(block: Block) -> Block:
    """Return a block with only the mean of the heads in each layer."""
    means = [Numbers.weights(layer.array.mean(axis=0, keepdims=True)) for layer in block.layers]
    return block.model_copy(update={"layers": means, "has_heads": False, "kinds": []})


def tiled(block: Block, tile: int) -> Block:
    """Return a block with one cell, the largest, for each tile × tile."""
    layers = [Numbers.weights(pool(layer.array, tile)) for layer in block.layers]
    labels = {}
    for side, words in (("rows", block.rows), ("columns", block.columns)):
        runs = [words[k : k + tile] for k in range(0, len(words), tile)]
        labels[side] = [f"{run[0]} … {run[-1]}" for run in runs]
    return block.model_copy(update={"layers": layers, **labels})


def pool(weights: Weights, tile: int) -> Weights:
    """Return the largest weight in tiles of cells: (H, T, S) to (H, ⌈T/tile⌉, ⌈S/tile⌉)."""
    for axis in (1, 2):
        weights = np.maximum.reduceat(weights, range(0, weights.shape[axis], tile), axis=axis)
    return weights


def _blocks(record: AttentionRecord) -> list[Block]:
    blocks = []
    for name, members in record.blocks().items():
        shapes = {record.drawn(member).shape[1:] for member in members}
        groups = {name: members} if len(shapes) == 1 else {each: [each] for each in members}
        for title, names in groups.items():
            layers = [record.drawn(each) for each in names]
            rows, columns = record.labels(names[0])
            kinds = dict[str, list[str]]()
            if any(len(heads) > 1 for heads in layers):
                kinds = kinds_of(dict(zip(names, layers, strict=True)))
            block = Block(
                name=title, row_means=record.row_means(title), kinds=[*kinds.values()],
                rows=rows, columns=columns,
                layers=[Numbers.weights(heads) for heads in layers],
            )  # fmt: skip
            blocks.append(block)
    return blocks


def shorten(record: AttentionRecord, most: int = MOST_CELLS) -> tuple[list[Block], list[str]]:
    """Return a record's blocks within ``most`` cells, and in words what was left out.

    Single heads are dropped first (their mean stays), then cells are merged.
    """
    blocks, notes = _blocks(record), []
    if sum(map(num_cells, blocks)) > most:
        blocks = [averaged(block) for block in blocks]
        notes.append("too long for single heads: only the mean of the heads of each layer is shown")
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
    """Return all maps of a record for a browser; ``first`` selects the map shown first.

    Its notes end with what was left out.
    """
    blocks, left_out = shorten(record)
    title, notes = record.title or " ".join(blocks[0].columns), [*record.notes, *left_out]
    return AttentionDrawing.model_validate(
        {"title": title, "notes": notes, "blocks": blocks, **first}
    )


def attention_page(records: Sequence[AttentionRecord]) -> str:
    """Return the page of the records, each a sentence that can be selected."""
    drawings = list(map(all_maps, records))
    groups = [
        PageGroup(title=d.title, notes=d.notes, drawings=[d.model_copy(update=UNTITLED)])
        for d in drawings
    ]
    return assemble("Attention", groups, ["numbers are exact to 0.00002"])
