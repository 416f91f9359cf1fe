"""Lines and bars: charts, panels of them, forecasts, the path of states."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from rich.cells import cell_len

import foveate.look.draw.colors as colors
import foveate.look.draw.figures as figures
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.parts import (
    Arrays,
    Bands,
    DrawingPart,
    Floats,
    Label,
    Places,
    Values,
    shown,
    visible,
)
from foveate.look.draw.sheets import SheetDrawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_UPRIGHT = 12  # labels; if there are more, they are rotated
LABEL_LETTERS = 76  # in the labels below an axis, together
POINT_STEP = 0.05  # between points of different curves at one position, if points are not joined
DASHES: Sequence[Any] = ("-", "--", "-.", (0, (8, 2)), (0, (5, 1, 1, 1, 1, 1)), ":", (0, (1, 3)))
BAR = 40  # characters of the longest bar
MOST_PLACES = 12  # of lines, in a text
CORNERS = ("left", "bottom"), ("left", "top"), ("right", "bottom"), ("right", "top")  # of labels


class Curve(DrawingPart):
    """A line over the places of its drawing, with a band where its ends are known.

    Curves of one ``hue`` belong together (of a run, for example); absent it is the curve's number.
    A ``faint`` curve stands behind its smoothed one.
    """

    name: str
    y: Values
    low: Values = Field(default_factory=lambda: np.zeros(0))
    high: Values = Field(default_factory=lambda: np.zeros(0))
    hue: int | None = None
    faint: bool = False


class Mark(DrawingPart):
    """A place on the axis with a name: where a forecast begins, a checkpoint was written."""

    x: float
    label: str


class LinesDrawing(Drawing):
    """Lines over one axis ``x`` (N,), with own colours and dashes; NaN for a missing value.

    ``across`` and ``up`` are what the axes are, ``log`` which of them are logarithmic. Points are
    ``joined`` by lines unless there is nothing between them. ``ends`` are those of the axis across
    where it is longer than ``x``. Where points are ``named`` their labels stand beside them.
    """

    kind: Literal["lines"] = "lines"
    x: Places
    curves: list[Curve]
    joined: bool = True
    ends: tuple[float, float] | None = None
    across: str = ""
    up: str = ""
    log: Literal["", "x", "y", "xy"] = ""
    labels: list[Label] = Field([])  # of the positions, unless they are numbers: dates, words
    named: bool = False
    marks: list[Mark] = Field([])

    def arrays(self) -> Arrays:
        arrays: Arrays = {"x": np.asarray(self.x)}
        arrays |= {curve.name: np.asarray(curve.y) for curve in self.curves}
        arrays |= _band_arrays(self.curves)
        return arrays | ({"labels": np.array(self.labels)} if self.labels else {})

    def drawings(self) -> list[Drawing]:
        infinite = [f"{c.name}: {n}" for c in self.curves if (n := int(np.isinf(c.y).sum()))]
        notes = [f"infinite, not drawn: {', '.join(infinite)}"] if infinite else []
        update = {"title": self.title or self.up, "notes": [*self.notes, *notes]}
        return [self.model_copy(update=update)]

    def looks(self) -> list[tuple[int, int]]:
        """Return the numbers of the hue and of the dash of each curve.

        Dashes distinguish curves of one hue, or supplement hues if each curve has its own.
        """
        hues = [k if curve.hue is None else curve.hue for k, curve in enumerate(self.curves)]
        clear = [hue for hue, curve in zip(hues, self.curves, strict=True) if not curve.faint]
        several, seen, looks = len(set(clear)) < len(clear), dict.fromkeys(hues, 0), []
        for hue, curve in zip(hues, self.curves, strict=True):
            looks.append((hue, 0 if curve.faint else seen[hue] if several else hue))
            seen[hue] += not curve.faint
        return looks

    def figure(self) -> Figure:
        rows = -(-len(self.curves) // _legend_columns(self))
        return self.own_figure(
            figures.PANEL_SIZE[0], figures.PANEL_SIZE[1] + 0.2 * rows, self.caption
        )

    def fill(self, ax: Axes) -> None:
        x = np.asarray(self.x)
        for number, (curve, look) in enumerate(zip(self.curves, self.looks(), strict=True)):
            hue, dash = colors.line(look[0]), DASHES[look[1] % len(DASHES)]
            alone = "o" if np.isfinite(curve.y).sum() == 1 or not self.joined else None
            ax.plot(
                x if self.joined else x + POINT_STEP * number, curve.y, color=hue, marker=alone,
                ls=dash if self.joined else "", lw=1.2 if curve.faint else 1.8, label=curve.name,
                alpha=0.4 if curve.faint else 1.0,
            )  # fmt: skip
            if len(curve.low) and self.joined:
                ax.fill_between(x, curve.low, curve.high, color=hue, alpha=0.15, linewidth=0)
            elif len(curve.low):
                ax.vlines(x + POINT_STEP * number, curve.low, curve.high, color=hue, linewidth=1.2)
        _places(self, ax)
        if self.named:
            points = np.stack([x, self.curves[0].y], axis=1).astype(np.float64)
            _label_points(ax, points, self.labels)
        legend = ax.legend(
            loc="lower left", bbox_to_anchor=(0, 1), ncols=_legend_columns(self), frameon=False,
            fontsize=figures.FONT_SIZE, handlelength=2.6, borderaxespad=0.3, columnspacing=1.2,
            title=self.title or None, title_fontsize=figures.FONT_SIZE + 1, alignment="left",
        )  # fmt: skip
        for text in legend.get_texts():
            text.set_parse_math(False)

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """Return a row for some of the positions, with a column for each line."""
        x, curves, labels = self.x, self.curves, self.labels
        every = max(1, -(-len(x) // MOST_PLACES))
        places = sorted({*range(0, len(x), every), len(x) - 1} & set(range(len(x))))
        wide = max(9, max((len(curve.name) for curve in curves), default=0)) + 2
        names = [labels[k] if labels else f"{x[k]:g}" for k in places]
        if self.named:
            names = [f"{x[k]:g} {labels[k]}" for k in places]
        left = max([12, *map(len, names), len(self.across)])
        heads, legend = [curve.name for curve in curves], list[str]()
        if width and left + wide * len(curves) > width:  # numbers replace names that are too long
            legend = [f"{number}: {name}" for number, name in enumerate(heads, start=1)]
            heads, wide = [str(number + 1) for number in range(len(heads))], 11
        lines = [f"{self.across:>{left}}" + "".join(f"{head:>{wide}}" for head in heads)]
        for name, k in zip(names, places, strict=True):
            cells = (f"{c.y[k]:.3g}" if np.isfinite(c.y[k]) else "-" for c in curves)
            lines.append(f"{name:>{left}}" + "".join(f"{cell:>{wide}}" for cell in cells))
        heading = " · ".join(part for part in (self.title, self.up) if part)
        return "\n".join(filter(None, (heading, *legend, *lines, self.caption_in(width))))


def line_chart(
    x: Floats | Sequence[float] | None, curves: Mapping[str, Floats | Sequence[float]],
    across: str = "", up: str = "", title: str = "", log: Literal["", "x", "y", "xy"] = "",
    bands: Bands | None = None, labels: Sequence[str] = (),
    marks: Mapping[str, float] | None = None, caption: str = "",
) -> LinesDrawing:  # fmt: skip
    """Return a chart with a line for each name over the same positions; ``marks`` have names.

    Positions are 1, 2, … by default; a line with fewer values ends earlier.
    """
    longest = max(map(len, curves.values()), default=0)
    x = np.arange(1.0, 1 + longest) if x is None else np.asarray(x, float)
    lines = {name: np.append(y, np.full(len(x) - len(y), np.nan)) for name, y in curves.items()}
    return LinesDrawing(
        title=title, caption=caption, x=x, across=across, up=up, log=log, labels=list(labels),
        curves=[Curve(name=name, y=y, **_band(bands, name)) for name, y in lines.items()],
        marks=[Mark(x=place, label=label) for label, place in (marks or {}).items()],
    )  # fmt: skip


def _band(bands: Bands | None, name: str) -> dict[str, Floats]:
    return dict(zip(("low", "high"), (bands or {}).get(name, ()), strict=False))


def _band_arrays(parts: Sequence[Curve] | Sequence[BarSeries]) -> Arrays:
    arrays: Arrays = {}
    for part in parts:
        if len(part.low):
            arrays[f"{part.name}, low"] = np.asarray(part.low)
            arrays[f"{part.name}, high"] = np.asarray(part.high)
    return arrays


def _legend_columns(drawing: LinesDrawing) -> int:
    """Return how many names are side by side in the legend."""
    longest = max((len(curve.name) for curve in drawing.curves), default=1)
    return max(1, min(len(drawing.curves), 52 // (longest + 5)))


def _places(drawing: LinesDrawing, ax: Axes) -> None:
    """Draw the axes of lines: their scales, ticks, marks and names."""
    if "x" in drawing.log:
        ax.set_xscale("log")
    if "y" in drawing.log:
        ax.set_yscale("log")
    x, labels = drawing.x, drawing.labels
    if labels and not drawing.named:
        every = -(-len(x) // max(2, LABEL_LETTERS // (max(map(len, labels)) + 2)))
        ax.set_xticks(x[::every], labels[::every], parse_math=False)
    elif "x" in drawing.log and len(x) <= MOST_UPRIGHT:
        ax.set_xticks(x, [f"{place:g}" for place in x])
        ax.minorticks_off()
    if drawing.ends is not None:
        ax.set_xlim(drawing.ends)
    elif not drawing.joined:
        ax.margins(x=0.25)
    for mark in drawing.marks:
        ax.axvline(mark.x, color=figures.NOTE, linewidth=0.8)
        ax.annotate(
            mark.label, (mark.x, 1), xycoords=ax.get_xaxis_transform(), xytext=(3, -3),
            textcoords="offset points", va="top", size=figures.FONT_SIZE - 1, color=figures.NOTE,
            parse_math=False,
        )  # fmt: skip
    figures.open_axes(ax, drawing.across, drawing.up, grid="both")


def _label_points(ax: Axes, points: NDArray[np.float64], labels: Sequence[str]) -> None:
    """Write a label at each point (T, 2), at the corner where it covers the least."""
    from matplotlib.transforms import Bbox

    inch, size = ax.get_figure(root=True).dpi / 72, figures.FONT_SIZE - 1  # type: ignore[union-attr]
    ax.autoscale_view()
    places = ax.transData.transform(points) / inch  # in points
    covered = [Bbox.from_bounds(px - 3, py - 3, 6, 6) for px, py in places]
    for (px, py), point, label in zip(places, points, map(visible, labels), strict=True):
        wide = 0.6 * size * cell_len(label)
        lefts = {"left": px + 4, "right": px - 4 - wide}
        lows = {"bottom": py + 4, "top": py - 4 - size}
        boxes = [Bbox.from_bounds(lefts[side], lows[edge], wide, size) for side, edge in CORNERS]
        shared = [[Bbox.intersection(box, other) for other in covered] for box in boxes]
        areas = [sum(b.width * b.height for b in each if b is not None) for each in shared]
        best = int(np.argmin(areas))
        covered.append(boxes[best])
        side, edge = CORNERS[best]
        offset = 4 if side == "left" else -4, 4 if edge == "bottom" else -4
        ax.annotate(
            label, tuple(point), xytext=offset, textcoords="offset points", size=size,
            ha=side, va=edge, parse_math=False,
        )  # fmt: skip


class PanelGrid(Drawing):
    """Charts side by side, ``across`` in a row."""

    panels: list[LinesDrawing | BarsDrawing]
    across: int = 2

    def arrays(self) -> Arrays:
        return {
            f"{panel.title or panel.up}: {name}": array
            for panel in self.panels
            for name, array in panel.arrays().items()
        }

    def drawings(self) -> list[Drawing]:
        drawn = [drawing for panel in self.panels for drawing in panel.drawings()]
        return [*drawn[:-1], drawn[-1].model_copy(update={"caption": self.caption})]

    def figure(self) -> Figure:
        across = min(self.across, len(self.panels))
        width, height = figures.PANEL_SIZE
        size = width * across, (height + 0.4) * ceil(len(self.panels) / across)
        heading = self.title, self.caption or None
        made, axes = figures.subplots(size, len(self.panels), across, *heading)
        for ax, panel in zip(axes, self.panels, strict=True):
            panel.fill(ax)
        return made

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        texts = [panel.text(width, color) for panel in self.panels]
        return "\n\n".join(part for part in (self.title, *texts, self.caption_in(width)) if part)


class ForecastDrawing(Drawing):
    """Lines over time and, below the time axis, a strip of the attention to each position.

    ``strip`` (1, T) has a cell for each position of the lines, NaN where there is nothing to attend
    to; None for a model without attention.
    """

    lines: LinesDrawing
    strip: SheetDrawing | None = None

    def arrays(self) -> Arrays:
        strip = {} if self.strip is None else {"looked at": self.strip.values.array}
        return self.lines.arrays() | strip

    def drawings(self) -> list[Drawing]:
        return [*self.lines.drawings(), *([] if self.strip is None else [self.strip])]

    def figure(self) -> Figure:
        size, lines = (8.0, 4.2), self.lines
        if self.strip is None:
            return lines.own_figure(*size)
        made, (above, below) = figures.subplots(size, 2, heights=(12, 1), share_x=True)
        lines.fill(above)
        x = np.asarray(lines.x)
        half = (x[1] - x[0]) / 2
        ends = np.append(x - half, x[-1] + half)
        strip = np.ma.masked_invalid(self.strip.values.array)
        below.pcolormesh(ends, (0, 1), strip, cmap="cividis", vmin=0, rasterized=True)
        below.set(yticks=[], facecolor=figures.BLANK)
        below.spines[:].set_visible(False)
        above.set_xlabel("")
        above.tick_params(labelbottom=False)
        below.tick_params(labelsize=figures.FONT_SIZE)
        below.set_xlabel(f"{lines.across}; strip: {self.strip.title}", size=figures.FONT_SIZE)
        return made

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        return self.lines.text(width, color)


class BarSeries(DrawingPart):
    """The bars of one name, with the ends of their intervals where known."""

    name: str
    values: Values
    low: Values = Field(default_factory=lambda: np.zeros(0))
    high: Values = Field(default_factory=lambda: np.zeros(0))


class BarsDrawing(Drawing):
    """Bars for each label, beside each other if there are several series; NaN has none.

    ``at`` is a value that bars are compared with, a dashed line.
    """

    kind: Literal["bars"] = "bars"
    labels: list[Label]
    series: list[BarSeries]
    up: str = ""
    across: str = ""
    at: float | None = None

    def arrays(self) -> Arrays:
        arrays: Arrays = {"labels": np.array(self.labels)}
        arrays |= {series.name: np.asarray(series.values) for series in self.series}
        return arrays | _band_arrays(self.series)

    def figure(self) -> Figure:
        width = min(14.0, max(5.0, 1.2 + 0.3 * len(self.labels) * len(self.series)))
        return self.own_figure(width, 3.6, self.caption)

    def fill(self, ax: Axes) -> None:
        count = len(self.series)
        places, wide = np.arange(len(self.labels)), 0.8 / max(1, count)
        for number, series in enumerate(self.series):
            x, values = places + (number - (count - 1) / 2) * wide, np.asarray(series.values)
            ax.bar(x, values, wide * 0.92, color=colors.line(number), label=series.name)
            if len(series.low):
                ends = np.stack([values - series.low, series.high - values]).clip(min=0)
                ax.errorbar(
                    x, values, ends, fmt="none", ecolor=figures.NOTE, elinewidth=1, capsize=2
                )
        if self.at is not None:
            ax.axhline(self.at, color=figures.NOTE, linewidth=0.8, linestyle=(0, (4, 3)))
        short = [visible(label)[: figures.LONGEST_LABEL] for label in self.labels]
        ax.set_xticks(places, short, size=figures.FONT_SIZE, parse_math=False)
        if len(short) >= MOST_UPRIGHT or max(map(len, short), default=0) > 8:
            for label in ax.get_xticklabels():
                label.set(rotation=50, rotation_mode="anchor", horizontalalignment="right")
        title = textwrap.fill(str(shown(self.title)), max(60, 4 * len(self.labels)))
        ax.set_title(title, size=figures.FONT_SIZE + 1, loc="left", parse_math=False)
        figures.open_axes(ax, self.across, self.up, grid="y")
        if count > 1:
            beside = count if len("".join(each.name for each in self.series)) < 44 else 1
            ax.legend(frameon=False, fontsize=figures.FONT_SIZE, ncols=beside)

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """Return a line for each bar: its label, its value, and blocks for its length."""
        left = max((len(visible(label)) for label in self.labels), default=0)
        lengths = [np.abs(series.values) for series in self.series] or [np.zeros(1)]
        longest = float(np.nanmax(np.concatenate(lengths), initial=0)) or 1.0
        lines = [" · ".join(part for part in (self.title, self.up) if part)]
        for series in self.series:
            lines += [f"{series.name}:"] if len(self.series) > 1 else []
            for label, value in zip(self.labels, series.values, strict=True):
                bar = "█" * round(BAR * abs(value) / longest) if np.isfinite(value) else ""
                lines.append(f"{visible(label):>{left}} {value:>9.3g}  {bar}".rstrip())
        return "\n".join(line for line in (*lines, self.caption_in(width)) if line)


def bar_chart(
    labels: Sequence[str], series: Mapping[str, Floats], up: str = "", title: str = "",
    caption: str = "", bands: Bands | None = None, at: float | None = None,
) -> BarsDrawing:  # fmt: skip
    """Return a chart with a bar of each series for each label; ``bands`` are intervals by name."""
    bars = [BarSeries(name=name, values=y, **_band(bands, name)) for name, y in series.items()]
    for each in bars:
        if len(each.values) != len(labels):
            raise ValueError(f"{each.name!r}: {len(each.values)} values for {len(labels)} labels")
    return BarsDrawing(title=title, caption=caption, labels=list(labels), series=bars, up=up, at=at)
