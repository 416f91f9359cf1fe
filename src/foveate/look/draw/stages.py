"""The drawing of one step, stage by stage, and of all steps as a film, with their rendering.

The browser's renderer is ``web/src/core/steps.ts``.
"""

import textwrap
from collections.abc import Sequence
from math import ceil
from typing import Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from pydantic import Field
from rich.cells import cell_len

import foveate.look.draw.figures as figures
from foveate.config import ConfigError
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.parts import Arrays, DrawingPart, Label, Numbers, Text
from foveate.look.draw.sheets import ColorScale, SheetDrawing, SheetGrid, sheet
from foveate.look.draw.terminal import cut
from foveate.look.hooks import ForcedPass
from foveate.look.records import spaced
from foveate.look.stages import (
    Stage,
    attention_stages,
    backwards,
    capture_stages,
    cell_stages,
    joined,
)
from foveate.nn.attention import BaseAttention
from foveate.nn.recurrent import Cell

LONGEST = 16  # letters in the label of a key
WRITTEN = 24  # numbers of a vector that are written into their cells
FRAMES = 12  # queries or steps of a film
FILM = {  # stages of a film; if there are none, all with a row for each query
    *("query features", "score", "bias", "mask", "weights", "context"),
    *("input", "input gate", "forget gate", "output gate", "reset gate", "update gate"),
    *("candidate", "cell", "state"),
}
STRIP, NUMBER, ROW = 1.9, 0.85, 0.24  # inches: a vector, a number, the height of a row
TALLEST = 14.0  # inches of all keys, whose rows are lower if there are many
FILM_CELL, FILM_WIDTH = 0.36, (1.5, 3.0)  # inches of a cell, and the least and most of a stage
KEY_LABEL = 0.17  # inches from one key's label to the next


class StageDrawing(DrawingPart):
    """A stage of a computation: its numbers (F, R, C) in each frame, or (1, R, C) in all of them.

    ``origin`` is how the numbers were had, ``shape`` the size of the whole stage.
    """

    title: Text
    equation: str = ""
    origin: str = ""
    shape: list[int]
    values: Numbers
    rows: list[Label] = Field(default_factory=list)
    columns: list[Label] = Field(default_factory=list)
    across: str = ""
    least: float
    most: float

    def sheet(self, frame: int) -> SheetDrawing:
        """Return the numbers of one frame."""
        values = self.values.array[frame if len(self.values.array) > 1 else 0]
        few = len(values) == 1 and values.shape[1] <= WRITTEN
        label = f"{self.equation} · {self.origin.split(' · ')[0]}"
        return sheet(
            self.title, values, self.rows, self.columns, "", self.across,
            ColorScale(self.least, self.most, label), 0.022 * values.shape[1], few,
        )  # fmt: skip


class StepsDrawing(Drawing):
    """The stages of each query or step, a frame each; ``frame`` is shown first, a film where None.

    Pictures and terminals show the essential stages of the first queries as a film, a row each.
    """

    kind: Literal["steps"] = "steps"
    stages: list[StageDrawing]
    frames: list[Label]
    frame: int | None = None

    def arrays(self) -> Arrays:
        stages: Arrays = {stage.title: stage.values.array for stage in self.stages}
        return stages | {"frames": np.array(self.frames)}

    @property
    def heading(self) -> str:
        """The title, and the query or step that is shown."""
        return self.title if self.frame is None else f"{self.title}: {self.frames[self.frame]}"

    def film(self) -> SheetGrid:
        """Return the essential stages side by side, a row per query or step, for the first ones."""
        count = len(self.frames)
        each = [s for s in self.stages if s.values.shape[:2] == (count, 1)]
        sheets = [
            sheet(
                s.title, s.values.array[:FRAMES, 0], self.frames[:FRAMES], s.columns, "",
                s.across, ColorScale(s.least, s.most, s.equation or " "),
            )
            for s in [s for s in each if s.title in FILM] or each
        ]  # fmt: skip
        of = f"Rows 0 to {FRAMES - 1} of {count}; --query N shows another, HTML all. "
        caption = (of if count > FRAMES else "") + self.caption
        return SheetGrid(title=self.heading, caption=caption, sheets=sheets, across=len(sheets))

    def figure(self) -> Figure:
        """Draw a film of all frames; one query as a table of its keys; one step as vectors."""
        if self.frame is None:
            return film_figure(self.film())
        if any(stage.rows or stage.columns for stage in self.stages):
            return table_figure(self, self.frame)
        sheets = [stage.sheet(self.frame) for stage in self.stages]
        caption = textwrap.fill(self.caption, 90)
        return SheetGrid(title=self.heading, caption=caption, sheets=sheets, across=1).figure()

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """Return the numbers of a frame, as many per row as fit; a film of all frames in shades."""
        if self.frame is None:
            return self.film().text(width or 100, color)
        lines, fitting = [self.heading], width or 100
        for number, stage in enumerate(self.stages, start=1):
            lines += ["", f"{number:>2} {stage.title}   {stage.equation}"]
            lines += [f"   {stage.origin} · {' × '.join(map(str, stage.shape))}"]
            left = max((cell_len(cut(row)) for row in stage.rows), default=0)
            labels = [cut(column, 9) for column in stage.columns]
            shown = max(1, (fitting - left - 6) // 10)
            if labels:
                lines.append(" " * (left + 3) + "".join(f"{each:>10}" for each in labels[:shown]))
            values = stage.sheet(self.frame).values.array
            rows = [cut(row) for row in stage.rows] or [""] * len(values)
            for row, cells in zip(rows, values, strict=True):
                numbers = "".join(f"{cell:>10.4f}" for cell in cells[:shown])
                more = " …" if len(cells) > shown else ""
                lines.append(f"   {' ' * (left - cell_len(row))}{row}{numbers}{more}")
        return "\n".join([*lines, "", self.caption])


def steps(forced: ForcedPass, name: str, query: int | None = None, head: int = 0) -> StepsDrawing:
    """Draw an attention or a cell by its dotted name: one query or step, or all of them.

    Raises ``ConfigError`` for an unknown head or query.
    """
    module = forced.model.get_submodule(name)
    with torch.inference_mode(), capture_stages(module) as calls:
        forced.run()
    if isinstance(module, BaseAttention):
        if not 0 <= head < module.num_heads:
            raise ConfigError(f"--head {head}: {name} has {module.num_heads}, counting from 0")
        weights = joined("weights", calls["weights"].values)[forced.row].numpy()
        rows, columns = forced.label({name: weights}, "tokens").labels(name)
        stages = attention_stages(module, calls, head, forced.row)
        title = f"{spaced(name)}, head {head}"
    elif isinstance(module, Cell):
        stages, columns, title = cell_stages(module, calls, forced.row), [], spaced(name)
        rows = forced.words(name, len(stages[0].values), produced=True)
        rows = rows[::-1] if backwards(name) else rows
    else:
        raise ConfigError(f"{name} is neither an attention nor a recurrent cell")
    return drawn(stages, rows, columns, query, title)


def drawn(
    stages: Sequence[Stage],
    rows: Sequence[str],
    columns: Sequence[str],
    query: int | None = None,
    title: str = "",
) -> StepsDrawing:
    """Draw stages; ``rows`` label the queries or steps, ``columns`` the keys.

    Raises ``ConfigError`` for a query beyond the last one.
    """
    if query is not None and query >= len(rows):
        raise ConfigError(f"--query {query}: there are {len(rows)}, from 0 to {len(rows) - 1}")
    far = {  # the largest number in a vector, whose colours its rotated form shares
        name: max(
            (float(np.abs(s.values).max()) for s in stages if s.name.endswith(name)), default=0
        )
        for name in ("query", "key", "value")
    }
    sheets = []
    for stage in stages:
        limits = {"query": len(rows), "step": len(rows), "key": len(columns)}  # no padding
        values = stage.values[tuple(slice(limits.get(axis)) for axis in stage.axes)]
        step = stage.axes[0] in ("query", "step")
        frames = values if step else values[None]
        frames = frames if frames.ndim == 3 else frames[:, None]
        labels = list(columns)
        finite = frames[np.isfinite(frames)]
        largest = max(far.get(stage.name, 0.0), float(np.abs(finite).max(initial=0)), 1e-12)
        positive = stage.name in ("weights", "exp", "sum") or stage.name.endswith(" gate")
        sheets.append(
            StageDrawing(
                title=stage.name, equation=stage.equation, origin=stage.origin,
                shape=list(values.shape),
                values=Numbers.exact(frames), rows=labels if "key" in stage.axes[:-1] else [],
                columns=labels if stage.axes[-1] == "key" else [],
                across="" if stage.axes[-1] == "key" else stage.axes[-1],
                least=0.0 if positive else -largest,
                most=1.0 if positive and stage.name not in ("exp", "sum") else largest,
            )
        )  # fmt: skip
    caption = (
        "Captured: computed by the model in its own forward pass. Derived: computed from captured "
        "stages and compared with the captured stage that follows. Decoder steps are labelled "
        "with the token that they produce, others with the one that is read."
    )
    return StepsDrawing(title=title, caption=caption, stages=sheets, frames=list(rows), frame=query)


def film_figure(film: SheetGrid) -> Figure:
    """Draw stages as columns with shared rows; numbers are written if the cells have room."""
    least, most = FILM_WIDTH
    wide = [
        min(most, max(least, FILM_CELL * each.values.shape[1])) if each.columns else STRIP
        for each in film.sheets
    ]
    rows, keys = film.sheets[0].rows, [key for each in film.sheets for key in each.columns]
    height = 0.3 * len(rows) + 0.06 * min(18, max(map(len, keys), default=0)) + 1.5
    made = Figure(figsize=(sum(wide) + 1.2, height), layout="constrained")
    axes = made.subplots(1, len(wide), squeeze=False, width_ratios=wide)[0]
    for number, (each, inches, ax) in enumerate(zip(film.sheets, wide, axes, strict=True)):
        values, columns = each.values.array, each.columns
        written = bool(columns) and inches / len(columns) > FILM_CELL - 0.04
        cells = [[_number(v) for v in row] for row in values] if written else []
        bare = {"title": "", "scale_label": " ", "across": "", "columns": [], "cells": cells}
        each.model_copy(update={**bare, "rows": [] if number else rows}).fill(ax)
        ax.set_aspect("auto")
        places = range(0, len(columns), ceil(KEY_LABEL * len(columns) / inches) or 1)
        ax.set_xticks(
            [k + 0.5 for k in places], [cut(columns[k], figures.LONGEST_LABEL) for k in places],
            rotation=50, rotation_mode="anchor", ha="left", parse_math=False,
        )  # fmt: skip
        ax.xaxis.tick_top()
        ax.tick_params(length=0, labelsize=figures.FONT_SIZE)
        for row in range(1, len(rows)):
            ax.axhline(row, color="white", linewidth=3)
        heading = f"{each.title}\n{textwrap.fill(each.scale_label, int(inches * 13))}"
        ax.set_title(heading, size=figures.FONT_SIZE, parse_math=False)
        ends = each.model_copy(update={"scale_label": ""}).legend
        hidden = " · grey: −∞" if not written and np.isneginf(values).any() else ""
        size = f" · {values.shape[1]} numbers" if not columns else ""
        ax.set_xlabel(ends + size + hidden, size=figures.FONT_SIZE - 1, color=figures.NOTE)
        if number:
            ax.set_yticks([])
    made.align_titles()
    made.suptitle(film.title, size=figures.FONT_SIZE + 2, parse_math=False)
    note = textwrap.fill(film.caption, int(13 * made.get_figwidth()))
    made.supxlabel(note, parse_math=False, **figures.SMALL)
    return made


def _number(value: float) -> str:
    written = f"{round(value, 2) + 0.0:.2f}" if np.isfinite(value) else "-∞"
    return written.replace("-", "−")


def table_figure(drawing: StepsDrawing, frame: int) -> Figure:
    """Draw one query as a table with a row for each key: vectors as strips, and numbers."""
    keyed = [stage for stage in drawing.stages if stage.rows or stage.columns]
    labels = keyed[0].rows or keyed[0].columns
    vectors = [stage for stage in drawing.stages if stage not in keyed]
    vectors = [stage for stage in vectors if stage.values.shape[2] > 1]
    before = [stage for stage in vectors if "query" in stage.title]
    after = [stage for stage in vectors if stage not in before]
    wide = {stage.title: STRIP if stage.rows else NUMBER for stage in keyed}
    row = min(ROW, TALLEST / len(labels))
    left, gap, table = 1.3, 0.12, row * len(labels)
    width = left + sum(wide.values()) + gap * len(keyed)
    height = 1.0 + 0.62 * (len(before) + len(after)) + table + 0.75
    made = Figure(figsize=(width, height))
    made.suptitle(drawing.heading, size=figures.FONT_SIZE + 2, parse_math=False)
    down = height - 0.8

    def strip(stage: StageDrawing, x: float, y: float, size: tuple[float, float]) -> None:
        ax = made.add_axes((x / width, y / height, size[0] / width, size[1] / height))
        drawn = stage.sheet(frame)
        values = drawn.values.array.T if stage.columns else drawn.values.array
        update = {
            "values": Numbers.exact(values), "title": "", "rows": [], "columns": [], "across": "",
            "cells": [[_number(v)] for v in values[:, 0]] if stage.columns and row > 0.15 else [],
            "scale_label": " ", "aspect": 1.0,
        }  # fmt: skip
        drawn.model_copy(update=update).fill(ax)
        ax.set_aspect("auto")
        ax.set(xticks=[], yticks=[])
        heading = f"{stage.title}\n{textwrap.fill(stage.equation, int(size[0] * 14))}"
        ax.set_title(heading, size=figures.FONT_SIZE - 1.5, parse_math=False)

    for stage in before:
        strip(stage, left, down - ROW, (STRIP, ROW))
        down -= 0.62
    x, down = left, down - 0.3 - table
    for stage in keyed:
        strip(stage, x, down, (wide[stage.title], table))
        x += wide[stage.title] + gap
    for k in range(0, len(labels), ceil(KEY_LABEL / row)):
        place = (left - 0.08) / width, (down + table - row * (k + 0.5)) / height
        word = cut(labels[k], LONGEST)
        made.text(*place, word, size=figures.FONT_SIZE, ha="right", va="center", parse_math=False)
    for stage in after:
        down -= 0.62
        strip(stage, x - gap - 2 * STRIP, down, (2 * STRIP, ROW))
    note = textwrap.fill(drawing.caption, 80)
    made.text(0.1 / width, 0.1 / height, note, va="bottom", **figures.SMALL)
    return made
