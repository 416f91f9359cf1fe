"""Bars, curves, and the lanes of a beam search."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.look import colors
from foveate.look.drawing import (
    BarsDrawing,
    Curve,
    Drawing,
    LanesDrawing,
    LinesDrawing,
    Mark,
    Node,
    Series,
    listed,
    visible,
)
from foveate.look.heatmap import FONT_SIZE
from foveate.look.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Floats = NDArray[np.floating]

WIDE = 40  # signs of the longest bar of a text
TURNED = 12  # labels from which they are written across
NOTE = "#555555"


@dataclass(frozen=True, eq=False, repr=False)
class BarsView(View):
    """A bar of each of the ``series`` for each label, beside each other; NaN where there is none.

    ``bands`` are the lower and upper ends of intervals around the bars of these names; ``at`` is
    a value that bars are compared with, drawn as a line.
    """

    labels: Sequence[str]
    series: Mapping[str, Floats]
    up: str = ""  # what the bars are
    title: str = ""
    caption: str = ""
    bands: Mapping[str, tuple[Floats, Floats]] = field(default_factory=dict)
    at: float | None = None

    def arrays(self) -> dict[str, NDArray[Any]]:
        found: dict[str, NDArray[Any]] = {"labels": np.array(self.labels)}
        found |= {name: np.asarray(values) for name, values in self.series.items()}
        for name, (low, high) in self.bands.items():
            found |= {f"{name}, low": np.asarray(low), f"{name}, high": np.asarray(high)}
        return found

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """A line for each bar: its label, its value, and as many blocks as it is long."""
        left = max((len(visible(label)) for label in self.labels), default=0)
        known = np.concatenate([np.abs(values) for values in self.series.values()] or [np.zeros(1)])
        most = float(np.nanmax(known, initial=0)) or 1.0
        lines = [" · ".join(part for part in (self.title, self.up) if part)]
        for name, values in self.series.items():
            lines += [f"{name}:"] if len(self.series) > 1 else []
            for label, value in zip(self.labels, values, strict=True):
                bar = "█" * round(WIDE * abs(value) / most) if np.isfinite(value) else ""
                lines.append(f"{visible(label):>{left}} {value:>9.3g}  {bar}".rstrip())
        return "\n".join(line for line in (*lines, self.caption) if line)

    def drawings(self) -> list[Drawing]:
        nothing: tuple[list[float], list[float]] = ([], [])
        series = [
            Series(name=name, values=listed(values), low=listed(low), high=listed(high))
            for name, values in self.series.items()
            for low, high in [self.bands.get(name, nothing)]
        ]
        labels = [visible(label) for label in self.labels]
        return [
            BarsDrawing(
                title=visible(self.title), caption=self.caption, labels=labels, series=series,
                up=self.up,
            )
        ]  # fmt: skip

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        width = min(14.0, max(5.0, 1.2 + 0.3 * len(self.labels) * len(self.series)))
        figure = Figure(figsize=(width, 3.6), layout="constrained")
        self.plot(figure.add_subplot())
        if self.caption:
            figure.supxlabel(self.caption, size=FONT_SIZE - 1, color=NOTE, parse_math=False)
        return figure

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw into the axes given, or into those of a figure of its own, and return them."""
        if ax is None:
            return self.figure().axes[0]
        places, wide = np.arange(len(self.labels)), 0.8 / max(1, len(self.series))
        for number, (name, values) in enumerate(self.series.items()):
            x = places + (number - (len(self.series) - 1) / 2) * wide
            ax.bar(x, values, wide * 0.92, color=colors.line(number), label=name)
            if name in self.bands:
                low, high = self.bands[name]
                ends = np.stack([values - low, high - values]).clip(min=0)
                ax.errorbar(x, values, ends, fmt="none", ecolor=NOTE, elinewidth=1, capsize=2)
        if self.at is not None:
            ax.axhline(self.at, color=NOTE, linewidth=0.8, linestyle=(0, (4, 3)))
        short = [visible(label)[:24] for label in self.labels]
        ax.set_xticks(places, short, size=FONT_SIZE, parse_math=False)
        if len(short) >= TURNED or max(map(len, short), default=0) > 8:
            for label in ax.get_xticklabels():
                label.set(rotation=50, rotation_mode="anchor", horizontalalignment="right")
        ax.set_ylabel(self.up, size=FONT_SIZE)
        title = textwrap.fill(visible(self.title), max(60, 4 * len(self.labels)))
        ax.set_title(title, size=FONT_SIZE + 1, loc="left", parse_math=False)
        ax.tick_params(labelsize=FONT_SIZE)
        ax.grid(axis="y", color="#dddddd", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        if len(self.series) > 1:
            ax.legend(frameon=False, fontsize=FONT_SIZE, ncols=len(self.series))
        return ax


# ------------------------------------------------------------------------------------------ curves
# Lines over one axis: learning rates over steps, gradients over distance, errors over horizons.

TOLD = 12  # places that the text names at most
LETTERS = 76  # of the labels below an axis, together
SIZE = 5.0, 3.4  # inches: narrow enough for a telephone
DASHES: Sequence[Any] = ("-", "--", "-.", (0, (8, 2)), (0, (5, 1, 1, 1, 1, 1)), ":", (0, (1, 3)))


@dataclass(frozen=True, eq=False, repr=False)
class CurvesView(View):
    """A line for each name, all over the same places ``x`` (N,); NaN where a line has no value.

    Lines differ in colour and in dash, so that they can be told apart without colour. ``bands``
    are the lower and upper ends around the lines of these names; ``labels`` are what the places
    are called where they are no numbers; ``marks`` are places with names.
    """

    x: Floats
    curves: Mapping[str, Floats]
    across: str = ""  # what x is
    up: str = ""  # what the lines are
    title: str = ""
    log: str = ""  # "", "x", "y" or "xy": which axes are logarithmic
    bands: Mapping[str, tuple[Floats, Floats]] = field(default_factory=dict)
    labels: Sequence[str] = ()
    marks: Mapping[str, float] = field(default_factory=dict)
    caption: str = ""

    def arrays(self) -> dict[str, NDArray[Any]]:
        found: dict[str, NDArray[Any]] = {"x": np.asarray(self.x)}
        found |= {name: np.asarray(curve) for name, curve in self.curves.items()}
        for name, (low, high) in self.bands.items():
            found |= {f"{name}, low": np.asarray(low), f"{name}, high": np.asarray(high)}
        return found | ({"labels": np.array(self.labels)} if self.labels else {})

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """A row for some of the places, a column for each line."""
        every = max(1, -(-len(self.x) // TOLD))
        places = sorted({*range(0, len(self.x), every), len(self.x) - 1} & set(range(len(self.x))))
        wide = max(9, max(map(len, self.curves), default=0)) + 2
        names = [self.labels[k] if self.labels else f"{self.x[k]:g}" for k in places]
        left = max([12, *map(len, names), len(self.across)])
        lines = [f"{self.across:>{left}}" + "".join(f"{name:>{wide}}" for name in self.curves)]
        for name, place in zip(names, places, strict=True):
            cells = (_cell(curve[place]) for curve in self.curves.values())
            lines.append(f"{name:>{left}}" + "".join(f"{cell:>{wide}}" for cell in cells))
        heading = " · ".join(part for part in (self.title, self.up) if part)
        return "\n".join(part for part in (heading, *lines, self.caption) if part)

    def drawings(self) -> list[Drawing]:
        nothing: tuple[list[float], list[float]] = ([], [])
        curves = [
            Curve(name=name, y=listed(curve), low=listed(low), high=listed(high))
            for name, curve in self.curves.items()
            for low, high in [self.bands.get(name, nothing)]
        ]
        return [
            LinesDrawing(
                title=self.title or self.up, caption=self.caption,
                x=[float(place) for place in self.x],
                curves=curves, across=self.across, up=self.up, log=self.log,
                labels=list(self.labels),
                marks=[Mark(x=x, label=label) for label, x in self.marks.items()],
            )
        ]  # fmt: skip

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        rows = -(-len(self.curves) // self._columns)
        figure = Figure(figsize=(SIZE[0], SIZE[1] + 0.2 * rows), layout="constrained")
        self.plot(figure.add_subplot())
        if self.caption:
            figure.supxlabel(self.caption, size=FONT_SIZE - 1, color=NOTE, parse_math=False)
        return figure

    @property
    def _columns(self) -> int:
        """How many names stand side by side in the legend."""
        longest = max(map(len, self.curves), default=1)
        return max(1, min(len(self.curves), 52 // (longest + 5)))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw into the axes given, or into those of a figure of its own, and return them."""
        if ax is None:
            return self.figure().axes[0]
        for number, (name, curve) in enumerate(self.curves.items()):
            hue, dash = colors.line(number), DASHES[number % len(DASHES)]
            alone = "o" if np.isfinite(curve).sum() == 1 else None
            ax.plot(self.x, curve, color=hue, ls=dash, lw=1.8, label=name, marker=alone)
            if name in self.bands:
                ax.fill_between(self.x, *self.bands[name], color=hue, alpha=0.15, linewidth=0)
        self._axes(ax)
        legend = ax.legend(
            loc="lower left", bbox_to_anchor=(0, 1), ncols=self._columns, frameon=False,
            fontsize=FONT_SIZE, handlelength=2.6, borderaxespad=0.3, columnspacing=1.2,
            title=self.title or None, title_fontsize=FONT_SIZE + 1, alignment="left",
        )  # fmt: skip
        for text in legend.get_texts():
            text.set_parse_math(False)
        return ax

    def _axes(self, ax: Axes) -> None:
        """What stands around the lines."""
        for axis in self.log:
            getattr(ax, f"set_{axis}scale")("log")
        if self.labels:
            most = max(2, LETTERS // (max(map(len, self.labels)) + 2))
            every = -(-len(self.x) // most)
            ax.set_xticks(self.x[::every], list(self.labels)[::every], parse_math=False)
        elif "x" in self.log and len(self.x) <= TOLD:
            ax.set_xticks(self.x, [f"{place:g}" for place in self.x])
            ax.minorticks_off()
        for label, place in self.marks.items():
            ax.axvline(place, color=NOTE, linewidth=0.8)
            ax.annotate(
                label, (place, 1), xycoords=ax.get_xaxis_transform(), xytext=(3, -3),
                textcoords="offset points", va="top", size=FONT_SIZE - 1, color=NOTE,
                parse_math=False,
            )  # fmt: skip
        ax.set_xlabel(self.across, size=FONT_SIZE)
        ax.set_ylabel(self.up, size=FONT_SIZE)
        ax.tick_params(labelsize=FONT_SIZE)
        ax.grid(color="#dddddd", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)


@dataclass(frozen=True, eq=False, repr=False)
class PanelsView(View):
    """Drawings of lines side by side, ``across`` in a row."""

    panels: Sequence[CurvesView]
    title: str = ""
    across: int = 2

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            f"{panel.title or panel.up}: {name}": array
            for panel in self.panels
            for name, array in panel.arrays().items()
        }

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        texts = [panel.text(width, color) for panel in self.panels]
        return "\n\n".join([self.title, *texts] if self.title else texts)

    def drawings(self) -> list[Drawing]:
        return [drawing for panel in self.panels for drawing in panel.drawings()]

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        across = min(self.across, len(self.panels))
        down = -(-len(self.panels) // across)
        width, height = SIZE
        figure = Figure(figsize=(width * across, (height + 0.4) * down), layout="constrained")
        grid = figure.subplots(down, across, squeeze=False).flatten()
        for ax, panel in zip(grid, self.panels, strict=False):
            panel.plot(ax)
        for ax in grid[len(self.panels) :]:
            ax.set_axis_off()
        figure.suptitle(self.title, size=FONT_SIZE + 1, parse_math=False)
        return figure


def _cell(value: float) -> str:
    return f"{value:.3g}" if np.isfinite(value) else "-"


# ------------------------------------------------------------------------------------------- lanes
# A beam as it went: a lane of beginnings for each step, joined to what they extend.

STEP, RANK = 0.95, 0.34  # inches of a step and of a beginning in it
LONGEST = 10  # signs of a label in a figure
FAINT = "#b5b5b5"
MARKS = {"live": " ", "done": "■", "pruned": "×"}


@dataclass(frozen=True, eq=False, repr=False)
class LanesView(View):
    """The beginnings of every step, best first, each with its parent, log p, score and fate.

    ``best`` are the ids of the nodes of the answer.
    """

    steps: Sequence[Sequence[Node]]
    best: Sequence[int] = ()
    title: str = ""

    @property
    def caption(self) -> str:
        """How to read it."""
        return (
            "each column is a step, best beginning on top; thick is the answer, ■ has ended, "
            "grey and dashed was dropped; numbers are scores"
        )

    def drawings(self) -> list[Drawing]:
        steps = [list(step) for step in self.steps]
        title, caption = self.title, self.caption
        return [LanesDrawing(title=title, caption=caption, steps=steps, best=list(self.best))]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """A row for each beginning: step, id, parent (−1 for none), log p, score, state, text."""
        rows = [(number, node) for number, step in enumerate(self.steps) for node in step]
        parents = [-1 if node.parent is None else node.parent for _, node in rows]
        return {
            "step": np.array([number for number, _ in rows], dtype=np.int64),
            "id": np.array([node.id for _, node in rows], dtype=np.int64),
            "parent": np.array(parents, dtype=np.int64),
            "log_p": np.array([node.log_p for _, node in rows]),
            "score": np.array([node.score for _, node in rows]),
            "state": np.array([node.state for _, node in rows]),
            "text": np.array([node.text for _, node in rows]),
            "best": np.array(self.best, dtype=np.int64),
        }

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """A line for each step: its beginnings, best first, the answer's in brackets."""
        lines = [self.title] if self.title else []
        for number, step in enumerate(self.steps):
            cells = "  ".join(self._cell(node) for node in step)
            line = f"{number + 1:>3}  {cells}"
            most = width or 100
            lines.append(line if len(line) <= most else line[: most - 1] + "…")
        return "\n".join([*lines, "[…] the answer, ■ has ended, × was dropped; scores"])

    def _cell(self, node: Node) -> str:
        word = visible(node.text.removeprefix(" ") or node.text)
        word = f"[{word}]" if node.id in self.best else word
        return f"{word} {node.score:.2f}{MARKS[node.state]}".rstrip()

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        tall = max(map(len, self.steps), default=1)
        size = max(4.0, STEP * len(self.steps) + 0.4), RANK * tall + 1.0
        figure = Figure(figsize=size, layout="constrained")
        self.plot(figure.add_subplot())
        return figure

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw into the axes given, or into those of a figure of its own, and return them."""
        if ax is None:
            return self.figure().axes[0]
        place = {
            node.id: (number, rank)
            for number, step in enumerate(self.steps)
            for rank, node in enumerate(step)
        }
        best = set(self.best)
        for step in self.steps:
            for node in step:
                self._join(ax, node, place, node.id in best)
        for step in self.steps:
            for node in step:
                self._write(ax, node, place[node.id], node.id in best)
        tall = max(map(len, self.steps), default=1)
        ax.set(xlim=(-0.55, len(self.steps) - 0.4), ylim=(tall - 0.4, -0.6), yticks=[])
        ax.set_xticks(range(len(self.steps)), [str(n + 1) for n in range(len(self.steps))])
        ax.tick_params(length=0, labelsize=FONT_SIZE - 1, color=NOTE)
        ax.spines[:].set_visible(False)
        told = textwrap.fill(self.caption, max(64, 15 * len(self.steps)))
        ax.set_xlabel(told, size=FONT_SIZE - 1, color=NOTE, loc="left")
        if self.title:
            ax.set_title(self.title, size=FONT_SIZE + 1, loc="left", parse_math=False)
        return ax

    def _join(self, ax: Axes, node: Node, place: dict[int, tuple[int, int]], chosen: bool) -> None:
        """A line from a beginning to what it extends."""
        if node.parent is None:
            return
        pairs = zip(place[node.parent], place[node.id], strict=True)
        dropped = node.state == "pruned"
        ax.plot(
            *(list(pair) for pair in pairs),
            color=colors.line(0) if chosen else FAINT,
            linewidth=2.4 if chosen else 0.9,
            linestyle="--" if dropped else "-",
            zorder=2 if chosen else 1,
        )

    def _write(self, ax: Axes, node: Node, place: tuple[int, int], chosen: bool) -> None:
        """The token of a beginning in a box, with its score."""
        word = visible(node.text.removeprefix(" ") or node.text)
        word = word if len(word) <= LONGEST else word[: LONGEST - 1] + "…"
        mark = MARKS["done"] if node.state == "done" else ""
        dropped = node.state == "pruned"
        edge = colors.line(0) if chosen else FAINT
        ax.text(
            *place,
            f"{word}{mark} {node.score:.1f}".replace("-", "−"),
            size=FONT_SIZE - 1.5,
            ha="center",
            va="center",
            color=NOTE if dropped else "black",
            weight="bold" if chosen else "normal",
            parse_math=False,
            bbox={
                "boxstyle": "round,pad=0.25",
                "facecolor": "white",
                "edgecolor": edge,
                "linestyle": "--" if dropped else "-",
                "linewidth": 1.4 if chosen else 0.7,
            },
        )


def lanes(steps: Sequence[Sequence[Node]], best: Sequence[int] = (), title: str = "") -> LanesView:
    """The picture of a beam. Raises ``ValueError`` where a beginning extends what is not there."""
    known: set[int] = set()
    for step in steps:
        for node in step:
            if node.parent is not None and node.parent not in known:
                raise ValueError(f"node {node.id} extends {node.parent}, which no step before has")
        known |= {node.id for node in step}
    if lost := set(best) - known:
        raise ValueError(f"the answer has nodes that no step has: {sorted(lost)}")
    return LanesView(steps, best, title)
