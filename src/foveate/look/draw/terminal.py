"""Shared parts of terminal texts: labels, lines, and matrices in the available colours."""

import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TextIO

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len, set_cell_size

import foveate.look.draw.colors as colors
from foveate.errors import UserError
from foveate.look.draw.parts import visible

SHADES = "·░▒▓█"  # from the least to the most
LONGEST_TOKEN = 9  # letters of a token in a cell


def cut(label: str, longest: int = LONGEST_TOKEN) -> str:
    """Return a label with hidden characters as signs, in at most ``longest`` letters."""
    label = visible(label)
    return label if len(label) <= longest else label[: longest - 1] + "…"


MOST_ROWS = 100
TALLEST_HEADER = 14
LONGEST_LABEL = 18
InkCell = Callable[[float, float, int], str]  # weight, level from 0 to 1, width to the text


@dataclass(frozen=True)
class Ink:
    """The abilities of a terminal: the text of a cell, and its lines and dots."""

    cell: InkCell
    legend: str
    stem: str = "│"
    cut: str = "…"


def _colored(few: bool, weight: float, level: float, width: int) -> str:
    """Return a cell in colour, in the nearest of 6 × 6 × 6 for terminals with ``few`` (256).

    It has its weight in per cent if that is 5 or more and there is room.
    """
    red, green, blue = map(int, colors.table()[colors.indices(np.array(level))])
    code = f"2;{red};{green};{blue};38;2;" + ("0;0;0" if level > 0.55 else "255;255;255")
    if few:
        red, green, blue = (round(each / 51) for each in (red, green, blue))
        code = f"5;{16 + 36 * red + 6 * green + blue};38;5;{16 if level > 0.55 else 231}"
    number = f"{weight * 100:.0f}" if weight >= 0.05 else ""
    return f"\x1b[48;{code}m{number if len(number) < width else '':^{width}}\x1b[0m"


def _shaded(signs: str, weight: float, level: float, width: int) -> str:
    """Return a cell without colour: a step per sign, the first of which is a dot as a guide."""
    step = min(int(level * len(signs)), len(signs) - 1)
    return f"{signs[0]:^{width - 1}} " if step == 0 else signs[step] * (width - 1) + " "


INKS = {
    "truecolor": Ink(partial(_colored, False), "numbers: percent"),
    "256": Ink(partial(_colored, True), "numbers: percent"),
    "shades": Ink(partial(_shaded, SHADES), "least · ░ ▒ ▓ █ most"),
    "ascii": Ink(partial(_shaded, ".:+#@"), "least . : + # @ most", stem="|", cut="~"),
}


def ability(
    stream: TextIO | None = None,
    environ: Mapping[str, str] | None = None,
    color: bool | None = None,
) -> str:
    """Return the ink for a stream, by its encoding, by whether it is a terminal, and by ``color``.

    ``color`` True or False decides; with None, ``NO_COLOR`` (no-color.org), TERM and whether the
    stream is a terminal do.
    """
    stream, environ = stream or sys.stdout, os.environ if environ is None else environ
    if color is None:
        watched = getattr(stream, "isatty", lambda: False)()
        color = watched and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        color = color and find_spec("matplotlib") is not None  # which has the colour table
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
    """Return words in as few lines as needed, each ending above its column with a stem down to it.

    ``ends[k]`` is the position of the last character of word k and of its stem; a word is above
    every earlier one that it would cover.
    """
    heights: list[int] = []
    for k, word in enumerate(words):
        first = ends[k] - cell_len(word)
        heights.append(1 + max((heights[j] for j in range(k) if ends[j] >= first), default=-1))
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
    """Return texts as lines of at most ``width``, an empty one as an empty line."""
    return [line for text in texts for line in textwrap.wrap(text, width) or [""]]


def _header(words: Sequence[str], left: int, cell: int, width: int, ink: Ink) -> list[str]:
    """Return steps if they are not too tall, else numbers and a list of their words."""
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


def matrix(
    weights: NDArray[np.float32],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    scale: str = "absolute",
    width: int = 80,
    ink: str = "truecolor",
) -> str:
    """Return the matrix (T, S) in ``width`` columns of text; a line below lists what is left out.

    Raises `UserError` if no cell fits into the width.
    """
    means = INKS[ink]
    labels = [_fit(visible(word), min(LONGEST_LABEL, width // 3), means.cut) for word in rows]
    left = max((cell_len(label) for label in labels[:MOST_ROWS]), default=0) + 1
    cell = min(5, max(2, (width - left) // max(len(columns), 1)))
    shown = min(len(columns), (width - left) // cell)
    if shown < 1 <= len(columns):
        raise UserError(f"a width of {width} is too narrow; give at least {left + cell}")
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
