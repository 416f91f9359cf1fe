"""Drawings as text for a terminal: a table, shades, or a matrix in the colours that it can show."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from itertools import zip_longest
from typing import TextIO

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len, set_cell_size

import foveate.draw.colors as colors
import foveate.inspect.measure as measure
from foveate.draw.drawings import (
    LANES_CAPTION,
    BarsDrawing,
    Cell,
    Drawing,
    ForecastDrawing,
    LanesDrawing,
    LensDrawing,
    LinesDrawing,
    Node,
    PanelGrid,
    PictureDrawing,
    SheetDrawing,
    SheetGrid,
    TableDrawing,
    WordsDrawing,
    shown,
)
from foveate.draw.maps import AttendedPicture, AttentionView, HeadsView
from foveate.errors import UserError
from foveate.inspect.words import visible

BAR = 40  # signs of the longest bar
MOST_PLACES = 12  # of lines that a text names
MOST_NAMED = 4  # cells of a picture that a text names for each panel
MOST_SHEET_ROWS = 40
MOST_FRAMES = 8  # of a film
SHADES = "·░▒▓█"  # from the least to the most
LONGEST_TOKEN = 9  # letters of a token in a cell
WIDEST = 64  # letters of a column of a table; longer texts go on in the next line
LEAST_TITLE = 14  # letters of a line of a title
GAP = 3  # blanks between sheets that stand side by side
LANE_MARKS = {"live": " ", "done": "■", "pruned": "×"}


@singledispatch
def text(drawing: Drawing, width: int | None = None, color: bool | None = None) -> str:
    """A drawing for a terminal of ``width`` columns; without ``color`` in shades."""
    raise NotImplementedError(f"{type(drawing).__name__} is drawn by browsers alone")


def _caption(drawing: Drawing, width: int | None) -> str:
    return "\n".join(wrap([drawing.caption], width)) if width else drawing.caption


@text.register
def _bars(drawing: BarsDrawing, width: int | None = None, color: bool | None = None) -> str:
    """A line for each bar: its label, its value, and as many blocks as it is long."""
    left = max((len(visible(label)) for label in drawing.labels), default=0)
    lengths = [np.abs(series.values) for series in drawing.series] or [np.zeros(1)]
    longest = float(np.nanmax(np.concatenate(lengths), initial=0)) or 1.0
    lines = [" · ".join(part for part in (drawing.title, drawing.up) if part)]
    for series in drawing.series:
        lines += [f"{series.name}:"] if len(drawing.series) > 1 else []
        for label, value in zip(drawing.labels, series.values, strict=True):
            bar = "█" * round(BAR * abs(value) / longest) if np.isfinite(value) else ""
            lines.append(f"{visible(label):>{left}} {value:>9.3g}  {bar}".rstrip())
    return "\n".join(line for line in (*lines, _caption(drawing, width)) if line)


@text.register
def _lines(drawing: LinesDrawing, width: int | None = None, color: bool | None = None) -> str:
    """A row for some of the places, a column for each line."""
    x, curves, labels = drawing.x, drawing.curves, drawing.labels
    every = max(1, -(-len(x) // MOST_PLACES))
    places = sorted({*range(0, len(x), every), len(x) - 1} & set(range(len(x))))
    wide = max(9, max((len(curve.name) for curve in curves), default=0)) + 2
    names = [labels[k] if labels else f"{x[k]:g}" for k in places]
    left = max([12, *map(len, names), len(drawing.across)])
    heads, legend = [curve.name for curve in curves], list[str]()
    if width and left + wide * len(curves) > width:  # numbers stand for names that are too long
        legend = [f"{number}: {name}" for number, name in enumerate(heads, start=1)]
        heads, wide = [str(number + 1) for number in range(len(heads))], 11
    lines = [f"{drawing.across:>{left}}" + "".join(f"{head:>{wide}}" for head in heads)]
    for name, k in zip(names, places, strict=True):
        cells = (f"{c.y[k]:.3g}" if np.isfinite(c.y[k]) else "-" for c in curves)
        lines.append(f"{name:>{left}}" + "".join(f"{cell:>{wide}}" for cell in cells))
    heading = " · ".join(part for part in (drawing.title, drawing.up) if part)
    return "\n".join(part for part in (heading, *legend, *lines, _caption(drawing, width)) if part)


@text.register
def _panels(drawing: PanelGrid, width: int | None = None, color: bool | None = None) -> str:
    texts = [text(panel, width, color) for panel in drawing.panels]
    return "\n\n".join(part for part in (drawing.title, *texts, _caption(drawing, width)) if part)


@text.register
def _forecast(drawing: ForecastDrawing, width: int | None = None, color: bool | None = None) -> str:
    return text(drawing.lines, width, color)


@text.register
def _lanes(drawing: LanesDrawing, width: int | None = None, color: bool | None = None) -> str:
    """A line for each step: its hypotheses, best first, the answer's in brackets."""
    lines = [drawing.title] if drawing.title else []
    for number, step in enumerate(drawing.steps):
        cells = "  ".join(_lane_cell(node, node.id in drawing.best) for node in step)
        line = f"{number + 1:>3}  {cells}"
        most = width or 100
        lines.append(line if len(line) <= most else line[: most - 1] + "…")
    caption = [] if drawing.caption == LANES_CAPTION else [_caption(drawing, width)]
    return "\n".join([*lines, "[…] the answer, ■ has ended, × was dropped; scores", *caption])


def _lane_cell(node: Node, chosen: bool) -> str:
    word = visible(node.text.removeprefix(" ") or node.text)
    word = f"[{word}]" if chosen else word
    return f"{word} {score_text(node, 2)}{LANE_MARKS[node.state]}".rstrip()


def score_text(node: Node, digits: int) -> str:
    """The score of a partial hypothesis: log p with so many digits; a p, above 0, with more."""
    return f"{node.score:.{digits}f}" if node.score <= 0 else f"{node.score:.3g}".lstrip("0")


@text.register
def _words(drawing: WordsDrawing, width: int | None = None, color: bool | None = None) -> str:
    """A line for each word: its value, its note, its alternatives."""
    words = [(visible(word.text), word) for word in drawing.words]
    left = max((cell_len(label) for label, _ in words), default=0)
    lines = [drawing.title, drawing.legend] if drawing.title else [drawing.legend]
    for label, word in words:
        value = "" if word.value is None else f"{word.value:.3f}"
        others = "  ".join(f"{visible(each.text)} {each.p:.3f}" for each in word.alternatives)
        pad = " " * (left - cell_len(label))
        lines.append(f"{pad}{label} {value:>7}  {shown(word.note)}   {others}".rstrip())
    return "\n".join([*lines, _caption(drawing, width)] if drawing.caption else lines)


@text.register
def _table(drawing: TableDrawing, width: int | None = None, color: bool | None = None) -> str:
    lines = [drawing.title] if drawing.title else []
    caption = [_caption(drawing, width)] if drawing.caption else []
    return "\n".join([*lines, *table_lines(drawing), *caption])


def table_lines(drawing: TableDrawing) -> list[str]:
    """A table as lines of text, the names of the columns first."""
    rows = [[_table_cell(cell) for cell in row] for row in drawing.rows]
    wide = [
        min(WIDEST, max(cell_len(name), *(cell_len(row[n]) for row in rows)) if rows else 0)
        for n, name in enumerate(drawing.columns)
    ]
    right = [all(not isinstance(row[n], str) for row in drawing.rows) for n in range(len(wide))]
    lines = []
    for row in (list(drawing.columns), *rows):
        parts = [textwrap.wrap(cell, WIDEST) or [""] for cell in row]
        for k in range(max(map(len, parts))):
            cells = [part[k] if k < len(part) else "" for part in parts]
            padded = (
                " " * (w - cell_len(c)) + c if r else c + " " * (w - cell_len(c))
                for c, w, r in zip(cells, wide, right, strict=True)
            )
            lines.append("  ".join(padded).rstrip())
    return lines


def _table_cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return str(shown(cell))
    return "" if cell is None else f"{cell:.4g}"


@text.register
def _sheet(drawing: SheetDrawing, width: int | None = None, color: bool | None = None) -> str:
    """In shades, a sign for a cell (of more than fit, every k-th), or as the texts of cells."""
    if not drawing.cells:
        legend = ", ".join(part for part in (drawing.legend, SHADES) if part.strip())
        title = f"{drawing.title} ({legend})"
        return "\n".join([title, *_shaded(drawing, width or 100)])
    left = max(map(len, drawing.rows), default=0)
    wide = max(map(len, [*drawing.columns, "0.00"])) + 2
    lines = [drawing.title]
    if not drawing.columns:  # words that go on
        rows = zip(drawing.rows, drawing.cells, strict=True)
        return "\n".join([*lines, *(f"{n:>{left}}  {' '.join(row)}".rstrip() for n, row in rows)])
    for name, row in zip(["", *drawing.rows], [drawing.columns, *drawing.cells], strict=True):
        lines.append(f"{name:>{left}}" + "".join(f"{cell:>{wide}}" for cell in row))
    return "\n".join(lines)


@text.register
def _lens(drawing: LensDrawing, width: int | None = None, color: bool | None = None) -> str:
    """A line for each place: the top token after each layer."""
    wide, p = LONGEST_TOKEN + 2, drawing.values.array
    layers = ["input", *(f"layer {n}" for n in range(len(p) - 1))]
    heading = f"{'produced':<{wide}}" + "".join(f"{name:<{wide + 2}}" for name in layers)
    lines = [drawing.title, heading]
    for t, produced in enumerate(drawing.columns):
        cells = (
            f"{cut(row[t]):<{LONGEST_TOKEN}} {p[n, t]:<{wide - LONGEST_TOKEN}.2f} "
            for n, row in enumerate(drawing.tokens)
        )
        lines.append(f"{cut(produced):<{wide}}" + "".join(cells).rstrip())
    return "\n".join([*lines, _caption(drawing, width)])


def cut(label: str, longest: int = LONGEST_TOKEN) -> str:
    """A label with its hidden characters as signs, in at most ``longest`` letters."""
    label = visible(label)
    return label if len(label) <= longest else label[: longest - 1] + "…"


@text.register
def _sheet_grid(drawing: SheetGrid, width: int | None = None, color: bool | None = None) -> str:
    rows: list[list[list[str]]] = [[]]
    for each in drawing.sheets:
        block, row = text(each, width, color).splitlines(), rows[-1]
        total = sum(_body_width(lines) + GAP for lines in (*row, block)) - GAP
        if row and (len(row) == drawing.across or total > (width or 0)):
            rows.append([])
        rows[-1].append(block)
    lines = [line for row in rows for line in _beside(row)]
    return "\n".join(part for part in (drawing.title, *lines, _caption(drawing, width)) if part)


def _body_width(block: Sequence[str]) -> int:
    """The width of a sheet, whose title is cut into lines."""
    return max([LEAST_TITLE, *map(cell_len, block[1:])])


def _beside(blocks: Sequence[Sequence[str]]) -> list[str]:
    """Sheets side by side, the title of each above it."""
    if len(blocks) < 2:
        return [line for block in blocks for line in block]
    widths = [_body_width(block) for block in blocks]
    titles = [wrap(block[:1], width) for block, width in zip(blocks, widths, strict=True)]
    tallest = max(map(len, titles))
    columns = [
        [""] * (tallest - len(title)) + title + list(block[1:])
        for title, block in zip(titles, blocks, strict=True)
    ]
    return [
        (" " * GAP)
        .join(
            line + " " * (width - cell_len(line)) for line, width in zip(row, widths, strict=True)
        )
        .rstrip()
        for row in zip_longest(*columns, fillvalue="")
    ]


def _shaded(sheet: SheetDrawing, width: int) -> list[str]:
    """A sheet as lines of signs, its rows' labels before them; blank cells are blanks."""
    values = sheet.values.array
    labels = sheet.rows or [str(t) for t in range(len(values))]
    left = max(map(len, labels), default=0) + 1
    down = -(-len(labels) // MOST_SHEET_ROWS) or 1
    across = -(-values.shape[1] // max(1, width - left)) or 1
    levels = (values[::down, ::across] - sheet.least) / ((sheet.most - sheet.least) or 1)
    signs = np.array([*SHADES, " "])
    steps = np.where(np.isnan(levels), len(SHADES), (levels * len(SHADES)).clip(0, 4))
    lines = ("".join(row) for row in signs[steps.astype(int)])
    return [f"{label:>{left - 1}} {row}" for label, row in zip(labels[::down], lines, strict=True)]


@text.register
def _glimpses(drawing: PictureDrawing, width: int | None = None, color: bool | None = None) -> str:
    lines = [drawing.title, "glimpse      x      y  (pixels from the left and the top)"]
    lines += [f"{t:>7}  {x:5.1f}  {y:5.1f}" for t, (x, y) in enumerate(drawing.path, start=1)]
    return "\n".join(lines)


@text.register
def _attended(drawing: AttendedPicture, width: int | None = None, color: bool | None = None) -> str:
    """The cells of most weight, a line for each panel: a grid would be too coarse."""
    panels = list(zip(drawing.overlays, drawing.weights, strict=True))
    height, across = drawing.overlays[0].weights.shape if panels else (0, 0)
    lines = [visible(drawing.heading), f"looked at most: row,column of {height}×{across} cells"]
    longest = max((len(overlay.title) for overlay, _ in panels), default=0)
    for overlay, weights in panels:
        best = np.argsort(-weights, kind="stable")[:MOST_NAMED]
        named = (f"{drawing.columns[i]:>5} {weights[i]:4.0%}" for i in best)
        lines.append(f"{visible(overlay.title):<{longest}}  {'  '.join(named)}")
    return "\n".join([*lines, _caption(drawing, width)])


@text.register
def _heads(drawing: HeadsView, width: int | None = None, color: bool | None = None) -> str:
    """A table of figures: small matrices of a few letters would not be legible."""
    lines = [f"{'map':<36} head  entropy (bits)  confidence  diagonality  kind"]
    alike: dict[str, list[str]] = {}
    for name in drawing.names:
        heads = drawing.record.drawn(name)
        figures = measure.entropy(heads), measure.confidence(heads), measure.diagonality(heads)
        for head, (broad, sure, straight) in enumerate(zip(*figures, strict=True)):
            kind = drawing.kinds[name][head]
            alike.setdefault(kind, []).append(f"{name}:{head}")
            numbers = f"{broad:>14.2f}  {sure:>10.2f}  {straight:>11.2f}"
            lines.append(f"{name:<36} {head:>4}  {numbers}  {kind}")
    kinds = [f"{kind}: {', '.join(alike[kind])}" for kind in measure.KINDS if kind in alike]
    lines += wrap(kinds, width or 100)
    lines.append("figures of this sentence and its end; importance has the mean of many, without")
    return "\n".join(lines)


@text.register
def _attention(drawing: AttentionView, width: int | None = None, color: bool | None = None) -> str:
    width = width or shutil.get_terminal_size().columns
    matrix = draw(
        drawing.array, drawing.rows, drawing.columns, scale=drawing.scale, width=width,
        ink=ability(color=color),
    )  # fmt: skip
    title = wrap([visible(drawing.record.title or drawing.caption)], width)
    return "\n".join([*title, matrix, *wrap(map(visible, drawing.record.notes), width)])


# ---------------------------------------------------------------------------------------- matrices

MOST_ROWS = 100
TALLEST_HEADER = 14
LONGEST_LABEL = 18
InkCell = Callable[[float, float, int], str]  # weight, level from 0 to 1, width to the text


@dataclass(frozen=True)
class Ink:
    """What a terminal can show: a field for a cell, and the lines and dots it has."""

    cell: InkCell
    legend: str
    stem: str = "│"
    cut: str = "…"


def _percent(weight: float, width: int) -> str:
    """A weight in per cent, where it is 5 or more and there is room; else empty."""
    number = f"{weight * 100:.0f}"
    return number if weight >= 0.05 and len(number) < width else ""


def _true_color(weight: float, level: float, width: int) -> str:
    red, green, blue = (int(c) for c in colors.table()[colors.indices(np.array(level))])
    ink = "38;2;0;0;0" if level > 0.55 else "38;2;255;255;255"
    field = f"{_percent(weight, width):^{width}}"
    return f"\x1b[48;2;{red};{green};{blue};{ink}m{field}\x1b[0m"


def _few_colors(weight: float, level: float, width: int) -> str:
    """The nearest of the 6 × 6 × 6 colours that terminals with 256 have."""
    color = colors.table()[colors.indices(np.array(level))]
    red, green, blue = (round(int(c) / 51) for c in color)
    code, ink = 16 + 36 * red + 6 * green + blue, 16 if level > 0.55 else 231
    return f"\x1b[48;5;{code};38;5;{ink}m{_percent(weight, width):^{width}}\x1b[0m"


def _shades(signs: str) -> InkCell:
    """No colour: as many steps as there are signs, the first of them a dot to guide the eye."""

    def cell(weight: float, level: float, width: int) -> str:
        step = min(int(level * len(signs)), len(signs) - 1)
        return f"{signs[0]:^{width - 1}} " if step == 0 else signs[step] * (width - 1) + " "

    return cell


INKS = {
    "truecolor": Ink(_true_color, "numbers: per cent"),
    "256": Ink(_few_colors, "numbers: per cent"),
    "shades": Ink(_shades(SHADES), "least · ░ ▒ ▓ █ most"),
    "ascii": Ink(_shades(".:+#@"), "least . : + # @ most", stem="|", cut="~"),
}


def ability(
    stream: TextIO | None = None,
    environ: Mapping[str, str] | None = None,
    color: bool | None = None,
) -> str:
    """The ink for a stream, by its encoding, by whether it is a terminal, and by ``color``.

    ``color`` True or False decides; with None ``NO_COLOR`` (no-color.org), TERM and whether the
    stream is a terminal do.
    """
    stream, environ = stream or sys.stdout, os.environ if environ is None else environ
    if color is None:
        watched = getattr(stream, "isatty", lambda: False)()
        color = watched and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    if color:
        rich = environ.get("COLORTERM") in ("truecolor", "24bit")
        return "256" if "256color" in environ.get("TERM", "") and not rich else "truecolor"
    try:
        "░│…".encode(getattr(stream, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return "ascii"
    return "shades"


def _fit(label: str, width: int, cut: str) -> str:
    return label if cell_len(label) <= width else set_cell_size(label, width - 1) + cut


def steps(words: Sequence[str], ends: Sequence[int], stem: str) -> list[str]:
    """Words in as few lines as they need, each ending over its column with a stem down to it.

    ``ends[k]`` is the place of the last character of word k and of its stem; a word stands above
    every earlier one that it would cover.
    """
    heights: list[int] = []
    for k, word in enumerate(words):
        first = ends[k] - cell_len(word)
        covered = [heights[j] for j in range(k) if ends[j] >= first]
        heights.append(1 + max(covered, default=-1))
    lines = []
    for height in range(max(heights, default=-1), -1, -1):
        line = ""
        for k, word in enumerate(words):
            sign = word if heights[k] == height else stem if heights[k] > height else ""
            if sign:
                line += " " * (ends[k] + 1 - cell_len(sign) - cell_len(line)) + sign
        lines.append(line)
    return lines


def wrap(texts: Iterable[str], width: int) -> list[str]:
    """Texts as lines of at most ``width``, an empty one as an empty line."""
    return [line for text in texts for line in textwrap.wrap(text, width) or [""]]


def _header(words: Sequence[str], left: int, cell: int, width: int, ink: Ink) -> list[str]:
    """Steps where they are not too tall, else numbers and a list of which word has which."""
    ends = [left + cell * k + (cell - 1) // 2 for k in range(len(words))]
    fitted = [
        _fit(word, min(end, LONGEST_LABEL), ink.cut) for word, end in zip(words, ends, strict=True)
    ]
    lines = steps(fitted, ends, ink.stem)
    if len(lines) <= TALLEST_HEADER:
        return lines
    listed, line = [], ""
    for k, word in enumerate(words):
        entry = f"{k + 1} {word}"
        if line and cell_len(line) + 2 + cell_len(entry) > width:
            listed.append(line)
            line = ""
        line += ("  " if line else "") + entry
    tens = "".join(f"{(k + 1) // 10 or '':>{cell}}" for k in range(len(words)))
    ones = "".join(f"{(k + 1) % 10:>{cell}}" for k in range(len(words)))
    pad = " " * (left - 1)
    return [*listed, line, "", pad + tens, pad + ones]


def draw(
    weights: NDArray[np.float32],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    scale: str = "absolute",
    width: int = 80,
    ink: str = "truecolor",
) -> str:
    """The matrix (T, S) in at most ``width`` columns of text; a line below says what is left out.

    Raises `UserError` naming the inks that exist, or where the width holds no cell.
    """
    if ink not in INKS:
        raise UserError(f"no ink {ink!r}; there are: {', '.join(INKS)}")
    means = INKS[ink]
    labels = [_fit(visible(word), min(LONGEST_LABEL, width // 3), means.cut) for word in rows]
    left = max((cell_len(label) for label in labels[:MOST_ROWS]), default=0) + 1
    cell = min(5, max(2, (width - left) // max(len(columns), 1)))
    shown = min(len(columns), (width - left) // cell)
    if shown < 1 <= len(columns):
        raise UserError(f"a width of {width} holds no cell; give at least {left + cell}")
    lines = _header([visible(word) for word in columns[:shown]], left, cell, width, means)
    levels = colors.scale(scale).levels(weights)
    for t, label in enumerate(labels[:MOST_ROWS]):
        line = " " * (left - 1 - cell_len(label)) + label + " "
        for s in range(shown):
            weight = float(weights[t, s])
            line += means.cell(weight, float(levels[t, s]), cell) if weight else " " * cell
        lines.append(line.rstrip())
    remarks = ["", f"{colors.scale(scale).caption}; {means.legend}"]
    if shown < len(columns):
        lost = weights[:, shown:].sum() / max(weights.sum(), 1e-9)
        remarks.append(
            f"not shown: columns {shown + 1} to {len(columns)}, with {lost:.0%} of the weight; "
            "widen the terminal, or save as .html or .png"
        )
    if len(labels) > MOST_ROWS:
        remarks.append(f"not shown: rows {MOST_ROWS + 1} to {len(labels)}; save as .html or .png")
    return "\n".join(lines + wrap(remarks, width))
