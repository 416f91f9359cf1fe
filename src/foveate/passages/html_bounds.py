"""What would make reading HTML slower, or larger, than the text is long; found before it is read.

A reader that does what browsers do looks through all open elements at each tag, so depth times
tags is its time; and it opens elements such as ``<b>``, once left open, again in each paragraph, so
their number times that of the tags is its memory. Does not live here: reading (`html`).
"""

from __future__ import annotations

import re
from collections import defaultdict

from foveate.config import ConfigError

TAGS = 1_000_000  # of a document
DEEPEST = 2_000  # elements in each other; browsers stop at 512
REPEATED = 250_000  # elements that could be opened again, in all

_TAG = re.compile(
    r"<!--(?:-?>|.*?(?:--!?>|\Z))|<(?P<end>/?)(?P<name>[a-z][^\s/>]*)(?P<rest>[^<>]*)", re.I | re.S
)
_VOID = "area base br col embed hr img input link meta param source track wbr"
# Left open they end by themselves: with their parents, or as the next one begins.
_SINGLE = "html head body p li dt dd tr td th tbody thead tfoot option optgroup colgroup caption"
_IGNORED = frozenset(f"{_VOID} {_SINGLE} rb rt rp rtc".split())
# Within these <x/> is an element that ends, until a tag of HTML comes.
_FOREIGN = frozenset(("svg", "math"))
_HTML = """a b big blockquote center code div dl em font form h1 h2 h3 h4 h5 h6 i menu nobr ol pre
    ruby s section small span strong strike sub sup table tt u ul var article main
    foreignobject desc title annotation-xml mi mo mn ms mtext"""
_NO_FOREIGN = frozenset(_HTML.split())
_RAW = ("script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes", "select")
_WALLS = ("object", "applet", "marquee", "template", "table")  # other ends do not reach beyond
_REOPENED = re.compile(
    r"<(/?)(b|big|code|em|font|i|s|small|strike|strong|tt|u)(?=[\s/>])", re.IGNORECASE
)
MARK = "\ue000"  # behind the names of elements that are not to be opened again


def check(html: str) -> None:
    """Raise ``ConfigError`` for more elements, or deeper ones, than can be read in good time."""
    if html.count("<") > TAGS:
        raise ConfigError(f"the HTML has more than {TAGS:,} tags; translate it in parts")
    tree, foreign = _Open(), False
    for match in _TAG.finditer(html):
        name = (match["name"] or "").lower()
        if not name or name in _IGNORED:
            continue
        foreign = (foreign or name in _FOREIGN) and name not in _NO_FOREIGN
        if match["end"]:
            tree.end(name)
            foreign = foreign and name not in _FOREIGN
        elif not (foreign and match["rest"].endswith("/")):
            tree.begin(name)
        if len(tree.names) > DEEPEST:
            line = html.count("\n", 0, match.start()) + 1
            raise ConfigError(
                f"line {line} of the HTML is in more than {DEEPEST:,} elements; are they closed?"
            )


class _Open:
    """The names of the elements that are open, the outermost first: rather more than too few."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._places = defaultdict[str, list[int]](list)  # in the names, of each
        self._walls: list[int] = []
        self._raw = ""  # what stands in this element is no markup

    def begin(self, name: str) -> None:
        """Open an element."""
        self._places[name].append(len(self.names))
        self._walls += [len(self.names)] if name in _WALLS else []
        self._raw = self._raw or (name if name in _RAW else "")
        self.names.append(name)

    def end(self, name: str) -> None:
        """Close the element of a name that was opened last, and what is in it."""
        place = (self._places[name] or [-1])[-1]
        behind = bool(self._walls) and place < self._walls[-1] and name not in _WALLS
        if place < 0 or behind or self._raw not in ("", name):
            return
        self._raw = ""
        while len(self.names) > place:
            self._places[self.names.pop()].pop()
        while self._walls and self._walls[-1] >= place:
            self._walls.pop()


def without_repeats(html: str) -> tuple[str, str]:
    """HTML whose elements such as ``<b>`` are opened once each, and the mark behind their names.

    Nothing changes where the whole cannot become large; where it can, what is read is the same as
    long as these elements are closed where they should be.
    """
    if len(_REOPENED.findall(html)) * html.count("<") <= REPEATED:
        return html, ""
    mark = MARK
    while mark in html:
        mark += MARK
    return _REOPENED.sub(rf"<\1\2{mark}", html), mark
