"""Fonts and layout of a matplotlib figure: glyphs missing in its font, captions too wide.

Widths are measured by the renderer, not counted in characters.
"""

from __future__ import annotations

import sys
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

MARGIN = 0.1  # inches at the edges of a figure that captions leave free
NARROWEST = 1.2  # minimum width in inches of a wrapped caption
# Fonts whose glyph tables do not follow Unicode, or contain only boxes.
NO_TEXT = ("Last Resort", "STIXSize", "STIXNonUnicode", "cm")
SCRIPTS = {
    "CJK": "Han", "HIRAGANA": "kana", "KATAKANA": "kana", "HALFWIDTH": "kana",
    "FULLWIDTH": "Han", "IDEOGRAPHIC": "Han", "HANGUL": "Hangul", "MYANMAR": "Burmese",
}  # fmt: skip
_warned: set[str] = set()  # scripts already reported


def fit(figure: Figure, warn: bool = True) -> None:
    """Choose fonts that have all glyphs of a figure, and wrap texts that are too wide.

    With ``warn``, scripts without glyphs in any installed font are reported once on stderr.
    """
    fit_fonts(figure, warn)
    for _ in range(2):  # wrapped text changes the room of the axes
        figure.draw_without_rendering()
        lines = max((_wrap_axes(figure, ax) for ax in figure.axes), default=0)
        for text in figure.texts:
            if text in (figure._suptitle, figure._supxlabel):  # type: ignore[attr-defined]
                lines += _wrap(text, figure.get_figwidth() - 2 * MARGIN)
        if lines:
            figure.set_figheight(figure.get_figheight() + 0.16 * lines)
    figure.draw_without_rendering()  # constrained layout settles in two passes


def fit_fonts(figure: Figure, warn: bool = True) -> None:
    """Append installed fonts to those of each text for the glyphs that it lacks."""
    from matplotlib import font_manager
    from matplotlib.text import Text

    lacking: set[str] = set()
    for text in figure.findobj(Text):
        if not isinstance(text, Text) or text.get_text().isascii():
            continue
        glyphs = _glyphs(font_manager.findfont(text.get_fontproperties()))
        missing = {c for c in text.get_text() if ord(c) not in glyphs and not c.isspace()}
        families, left = fallback(missing)
        if families:
            text.set_fontfamily([*text.get_fontfamily(), *families])
        lacking |= left
    scripts = {script(c): c for c in sorted(lacking, reverse=True)}
    if warn and (new := sorted(scripts.keys() - _warned)):
        _warned.update(new)
        package = "fonts-noto-cjk" if {"Han", "kana", "Hangul"} & set(new) else "fonts-noto-core"
        print(
            f"warning: no installed font has the glyphs of {', '.join(new)} (such as "
            f"{' '.join(scripts[name] for name in new)}): PNG and PDF show boxes; write SVG or "
            f"HTML, or install a font, such as {package}",
            file=sys.stderr,
        )


def fallback(missing: Iterable[str]) -> tuple[list[str], set[str]]:
    """Return font families that together have some characters, and what none of them has."""
    from matplotlib.font_manager import fontManager

    left, families = set(missing), []
    paths: dict[str, str] = {}
    for entry in sorted(fontManager.ttflist, key=lambda e: (e.style != "normal", e.weight != 400)):
        if left and not entry.name.startswith(NO_TEXT):
            paths.setdefault(entry.name, entry.fname)
    scripts = set(map(script, left))  # Han glyphs differ between Japan, Korea, mainland China
    region = "JP" if "kana" in scripts else "KR" if "Hangul" in scripts else "SC"
    names = sorted(paths, key=lambda n: (not n.endswith(region), "Sans" not in n, n))
    while left:
        covered = {n: {c for c in left if ord(c) in _glyphs(paths[n])} for n in names}
        best = max(names, key=lambda n: len(covered[n]), default="")
        if not covered.get(best):
            break
        families.append(best)
        left -= covered[best]
    return families, left


@lru_cache(maxsize=512)
def _glyphs(path: str) -> frozenset[int]:
    """Return the characters for which a font file has glyphs."""
    from matplotlib.font_manager import get_font

    try:
        return frozenset(get_font(path).get_charmap())
    except (OSError, RuntimeError):  # a missing or damaged file has none
        return frozenset()


def script(character: str) -> str:
    """Return the script of a character, in words."""
    first = unicodedata.name(character, "UNKNOWN").split()[0]
    letter = unicodedata.category(character).startswith(("L", "M"))
    return SCRIPTS.get(first, first.title() if letter else "symbols")


def _wrap_axes(figure: Figure, ax: Axes) -> int:
    """Wrap the title and the labels of axes to the available room; return the lines added."""
    inch = figure.dpi
    box = ax.get_window_extent()
    alone = len([other for other in figure.axes if other.axison or other.get_title()]) == 1
    wide = figure.get_figwidth() - 2 * MARGIN if alone else box.width / inch
    added = max(
        _wrap(text, max(NARROWEST, wide))
        for text in (ax.title, ax._left_title, ax.xaxis.label)  # type: ignore[attr-defined]
    )
    _wrap(ax.yaxis.label, max(NARROWEST, box.height / inch), upright=True)
    return added


def _wrap(text: Text, most: float, upright: bool = False) -> int:
    """Break the lines of a text that are longer than ``most`` inches; return the lines added."""
    written = text.get_text()
    if not written:
        return 0

    def length(line: str) -> float:
        text.set_text(line)
        extent = text.get_window_extent()
        return (extent.height if upright else extent.width) / text.get_figure(root=True).dpi  # type: ignore[union-attr]

    lines = [part for line in written.split("\n") for part in wrapped(line, most, length)]
    text.set_text("\n".join(lines))
    return len(lines) - len(written.split("\n"))


def wrapped(line: str, most: float, length: Callable[[str], float]) -> list[str]:
    """Break a line into lines no longer than ``most``, at spaces, within a word only if needed."""
    if not line or length(line) <= most:
        return [line]
    lines, rest = [], line
    while rest:
        prefixes = [rest[:end] for end in range(1, len(rest) + 1)]
        end = max(1, bisect_right(prefixes, most, key=length))  # the longest that fits
        if end < len(rest):
            blank = rest.rfind(" ", 0, end + 1)
            end = blank if blank > 0 else end
        lines.append(rest[:end].rstrip())
        rest = rest[end:].lstrip()
    return lines
