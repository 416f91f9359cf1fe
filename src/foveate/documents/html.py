"""HTML as passages: a standards-conforming tree (selectolax) of which only the text changes.

The chapters of EPUB books are XHTML.
"""

from __future__ import annotations

import html as entities
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote

from foveate.documents.base import (
    Document,
    DocumentOptions,
    archive_of,
    counted,
    decoded,
    parsed_xml,
    written_archive,
)
from foveate.documents.spans import DocumentError, Piece, Rules
from foveate.documents.translate import Part, Passage, TextBuilder
from foveate.errors import ConfigError, install

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode


TAGS = 1_000_000  # in a document
DEEPEST = 2_000  # nested elements; browsers stop at 512
ATTRIBUTES = 250  # of one element: each is compared with all others
OPTIONS = 10_000  # in all lists to choose from: the cost of each grows with the number before it
ROOTS = 100  # tags <html> and <body>, which add to the attributes of the first
REPEATED = 250_000  # elements that could be reopened, in all

_TAG = re.compile(
    r"<!--(?:-?>|.*?(?:--!?>|\Z))|<(?P<end>/?)(?P<name>[a-z][^\s/>]*)(?P<rest>[^<>]*)", re.I | re.S
)
_BLANK = r"[\t\n\f\r ]"  # white space in HTML
_QUOTED = r"(?:\"[^\"]*+\"|'[^']*+')"
_ATTRIBUTE = (
    rf"(?:[\t\n\f\r /]*+[^\t\n\f\r />][^\t\n\f\r />=]*+"
    rf"(?:{_BLANK}*+={_BLANK}*+(?:{_QUOTED}|(?!{_QUOTED})[^\t\n\f\r >]*+)|(?!{_BLANK}*+=)))"
)
_MANY_ATTRIBUTES = re.compile(rf"<[a-z][^\t\n\f\r />]*+{_ATTRIBUTE}{{{ATTRIBUTES + 1}}}", re.I)
_OPTION, _ROOT = re.compile(r"<opt(?:ion|group)\b", re.I), re.compile(r"<(?:html|body)\b", re.I)
_EMPTY = "area base br col embed hr img input link meta param source track wbr"
VOID = frozenset(f"{_EMPTY} basefont bgsound frame keygen".split())  # without an end tag
# Their end tags are optional: they end with their parents, or at the next such element.
_SINGLE = "html head body p li dt dd tr td th tbody thead tfoot option optgroup colgroup caption"
_IGNORED = frozenset(f"{_EMPTY} {_SINGLE} rb rt rp rtc".split())
# Within these, <x/> is a closed element, until an HTML element begins.
_FOREIGN = frozenset(("svg", "math"))
_HTML = """a b big blockquote center code div dl em font form h1 h2 h3 h4 h5 h6 i menu nobr ol pre
    ruby s section small span strong strike sub sup table tt u ul var article main
    foreignobject desc title annotation-xml mi mo mn ms mtext"""
_NO_FOREIGN = frozenset(_HTML.split())
_RAW = ("script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes", "select")
_WALLS = ("object", "applet", "marquee", "template", "table")  # other end tags do not reach beyond
_REOPENED = re.compile(
    r"<(/?)(b|big|code|em|font|i|s|small|strike|strong|tt|u)(?=[\s/>])", re.IGNORECASE
)
MARK = "\ue000"  # after the names of elements that should not be reopened


def check(html: str) -> None:
    """Raise ``DocumentError`` for more elements, or deeper ones, than can be processed in time."""
    if html.count("<") > TAGS:
        raise DocumentError(f"the HTML has more than {TAGS:,} tags; translate it in parts")
    if match := _MANY_ATTRIBUTES.search(html):
        line = html.count("\n", 0, match.start()) + 1
        raise DocumentError(
            f"line {line} of the HTML: an element of more than {ATTRIBUTES} attributes"
        )
    counted_tags = (_OPTION, OPTIONS, "options"), (_ROOT, ROOTS, "html and body tags")
    for pattern, most, what in counted_tags:
        if sum(1 for _ in pattern.finditer(html)) > most:
            raise DocumentError(f"the HTML has more than {most:,} {what}; translate it in parts")
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
            raise DocumentError(
                f"line {line} of the HTML is in more than {DEEPEST:,} elements; are they closed?"
            )


class _Open:
    """The names of open elements, outermost first: at least as many as in a browser."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._places = defaultdict[str, list[int]](list)  # positions of each name in `names`
        self._walls: list[int] = []
        self._raw = ""  # the element whose content is not markup

    def begin(self, name: str) -> None:
        """Open an element."""
        self._places[name].append(len(self.names))
        self._walls += [len(self.names)] if name in _WALLS else []
        self._raw = self._raw or (name if name in _RAW else "")
        self.names.append(name)

    def end(self, name: str) -> None:
        """Close the last element with that name, and the elements in it."""
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
    """Return HTML whose elements such as ``<b>`` are not reopened, and the mark after their names.

    Short documents do not change. In long ones the tree is the same if these elements are closed
    properly.
    """
    if len(_REOPENED.findall(html)) * html.count("<") <= REPEATED:
        return html, ""
    mark = MARK
    while mark in html:
        mark += MARK
    return _REOPENED.sub(rf"<\1\2{mark}", html), mark


_INLINE = """a abbr acronym b bdi bdo big cite data del dfn em font i ins label mark q s small span
    strike strong sub sup time tt u"""
INLINE = frozenset(_INLINE.split())
# Left unchanged; objects act as words in a sentence.
_OBJECTS = "code kbd samp var img input svg math wbr ruby script style link meta"
OBJECTS = frozenset(_OBJECTS.split())
_BLOCKS = """pre textarea select template iframe object video audio canvas xmp noembed noframes
    plaintext listing embed"""
UNTOUCHED = OBJECTS | frozenset(_BLOCKS.split())
CONTEXTS = {  # the element that a fragment with this first tag must be in
    **dict.fromkeys(("td", "th"), "tr"),
    "tr": "tbody",
    **dict.fromkeys(("tbody", "thead", "tfoot", "caption", "colgroup"), "table"),
    "col": "colgroup",
}
# Visible attributes that stay and are counted, as are the texts of some elements.
ATTRIBUTES_LEFT = {
    "alt": "alternative texts",
    "title": "titles of elements",
    "placeholder": "placeholders",
    "aria-label": "labels for screen readers",
}
ELEMENTS_LEFT = {
    "option": "options",
    "textarea": "text areas",
    "pre": "preformatted texts",
    "ruby": "words with ruby",
    "svg": "texts in drawings",
}
DEPTH = 32  # nested inline elements; deeper ones stay unchanged

_DOCUMENT = re.compile(r"<(?:!doctype|html|head|body)\b", re.IGNORECASE)
Kind = Literal["text", "open", "close", "object", "break"]


@dataclass(frozen=True)
class Event:
    """A step through a tree: text, the ends of an inline element, an object, or other markup."""

    kind: Kind
    text: str
    close: str = ""


def html_passage(html: str, rules: Rules | None = None) -> Passage:
    """Parse a fragment or a document as a browser does, including all its errors.

    Elements with ``translate="no"`` or the class ``notranslate``, code and scripts stay unchanged.
    Raises ``ConfigError`` if selectolax is not installed, and ``DocumentError`` for more
    elements, or deeper ones, than can be processed in time (`check`).
    """
    check(html)
    rules = rules or Rules()
    parts: list[Part] = []
    text, empty = TextBuilder(rules, layout=False), True
    for event in _stable(html):
        if event.kind == "break":
            parts += [] if empty else text.parts()
            parts.append(Piece(event.text, markup=True))
            text, empty = TextBuilder(rules, layout=False), True
            continue
        empty = False
        _ADD[event.kind](text, event)
    parts += [] if empty else text.parts()
    return Passage(tuple(parts), rules, written)


_ADD: dict[str, Callable[[TextBuilder, Event], None]] = {
    "text": lambda text, event: text.add_text(event.text),
    "open": lambda text, event: text.add_open(event.text, event.close),
    "close": lambda text, event: text.add_close(),
    "object": lambda text, event: text.add_object(event.text),
}


def written(piece: Piece) -> str:
    """Return a piece in HTML syntax."""
    return piece.text if piece.markup else _escaped(piece.text)


def _escaped(text: str) -> str:
    return entities.escape(text, quote=False).replace("\xa0", "&nbsp;")


def left_in(html: str) -> Counter[str]:
    """Count by kind what readers of the page see that stays in the source language."""
    left = Counter[str]()
    todo = _nodes(without_repeats(html)[0])
    while todo:
        node = todo.pop()
        if not node.is_element_node or _refuses(node):
            continue
        attributes, name = node.attributes, _name(node)
        left.update(
            what for key, what in ATTRIBUTES_LEFT.items() if (attributes.get(key) or "").strip()
        )
        described = str(attributes.get("name") or attributes.get("property") or "").lower()
        if name == "meta" and described.endswith(("description", "title")):
            left["descriptions of the page"] += bool(attributes.get("content"))
        if name in ELEMENTS_LEFT:
            left[ELEMENTS_LEFT[name]] += bool((node.text() or "").strip())
        todo += _chain(node.first_child)
    return left


def _stable(html: str) -> list[Event]:
    """Return the events of a tree that does not change when it is written and parsed again."""
    for _ in range(4):
        marked, mark = without_repeats(html)
        events = list(_events(marked))
        if mark:
            events = [
                Event(e.kind, e.text.replace(mark, ""), e.close.replace(mark, "")) for e in events
            ]
        before = html
        html = "".join(written(Piece(e.text, markup=e.kind != "text")) for e in events)
        if before == html:
            break
    return events


def _name(node: LexborNode) -> str:
    """Return the name of an element without the mark of `without_repeats`."""
    return (node.tag or "").partition(MARK)[0]


def _events(html: str) -> Iterator[Event]:
    """Yield the events of a document in order, without recursion, since markup may be deep."""
    nodes = _nodes(html)
    blocks = _with_blocks(nodes)
    todo: list[LexborNode | Event] = list(reversed(nodes))
    depth = 0
    while todo:
        node = todo.pop()
        if isinstance(node, Event):
            depth -= node.kind == "close"
            yield node
        elif node.is_text_node:
            yield Event("text", node.text_content or "")
        elif not node.is_element_node:
            inside = node.is_comment_node or depth > 0  # <?x> is also allowed in an element
            yield Event("object" if inside else "break", node.html or "")
        else:
            inline = _name(node) in INLINE and node.mem_id not in blocks
            if _name(node) in UNTOUCHED or _refuses(node) or (inline and depth >= DEPTH):
                known = _name(node) in OBJECTS or inline
                yield Event("object" if known else "break", node.html or "")
                continue
            depth += inline
            opening, closing = _tags(node)
            yield Event("open" if inline else "break", opening, closing)
            if node.tag not in VOID:
                todo.append(Event("close" if inline else "break", closing))
                todo += reversed(_chain(node.first_child))


def _nodes(html: str) -> list[LexborNode]:
    """Return the topmost nodes of a document or a fragment."""
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError:
        raise ConfigError(f"HTML needs selectolax; {install('documents')}") from None
    if _DOCUMENT.search(html):
        root = LexborHTMLParser(html).root
        return _chain(None if root is None or root.parent is None else root.parent.first_child)
    first = re.match(r"\s*<([A-Za-z]+)", html)
    context = CONTEXTS.get(first[1].lower() if first else "", "div")
    # after a comment, because the `html` of a fragment's first node is the whole fragment
    parser = LexborHTMLParser("<!---->" + html, is_fragment=True, fragment_tag=context)
    return _chain(parser.root)[1:]


def _chain(node: LexborNode | None) -> list[LexborNode]:
    """Return a node and all its later siblings."""
    nodes = []
    while node is not None:
        nodes.append(node)
        node = node.next
    return nodes


def _with_blocks(nodes: Sequence[LexborNode]) -> set[int]:
    """Return the ids of the elements that contain an element which ends a sentence."""
    numbers: set[int] = set()
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if not node.is_element_node:
            continue
        if _name(node) not in INLINE and _name(node) not in OBJECTS:
            above = node.parent
            while above is not None and above.mem_id not in numbers:
                numbers.add(above.mem_id)
                above = above.parent
        if _name(node) not in UNTOUCHED:
            todo += _chain(node.first_child)
    return numbers


def _refuses(node: LexborNode) -> bool:
    """Return whether the page marks an element as not to be translated."""
    attributes = node.attributes
    classes = (attributes.get("class") or "").split()
    return (attributes.get("translate") or "").lower() == "no" or "notranslate" in classes


def _tags(node: LexborNode) -> tuple[str, str]:
    """Return the start tag and the end tag of an element."""
    values = [
        f" {name}" if value is None else f' {name}="{_escaped(value).replace(chr(34), "&quot;")}"'
        for name, value in node.attributes.items()
    ]
    return f"<{node.tag}{''.join(values)}>", "" if node.tag in VOID else f"</{node.tag}>"


MIMETYPE = b"application/epub+zip"
XHTML = "application/xhtml+xml"
_PROLOG = re.compile(r"\s*(?:<\?xml[^>]*\?>\s*)?")
_XML_TAG = re.compile(r"<([\w:.-]+)((?:[^<>\"']|\"[^\"]*\"|'[^']*')*?)\s*/?>")
_CLOSED = re.compile(_XML_TAG.pattern.replace("/?", "/"))


def read_epub(data: bytes, options: DocumentOptions, where: str) -> Document:
    """Read the chapters and the contents page of an EPUB; all else stays.

    Raises ``DocumentError`` for another archive, and for a book that is encrypted.
    """
    members = archive_of(data, "EPUB", where)
    if members.get("mimetype", b"").strip() != MIMETYPE:
        raise DocumentError(f"{where} is not an EPUB file: the archive does not say {MIMETYPE!r}")
    if "META-INF/rights.xml" in members:
        raise DocumentError(f"{where} is encrypted: remove its copy protection, if you may")
    chapters: dict[str, tuple[str, str]] = {}  # the XML declaration and the rest, by name
    for package in [name for name in members if name.endswith(".opf")]:
        for item in parsed_xml(members[package], f"{where}: {package}", "EPUB").iter("{*}item"):
            name = posixpath.join(posixpath.dirname(package), unquote(item.get("href") or ""))
            if item.get("media-type") == XHTML and name in members:
                text = decoded(members[name], f"{where}: {name}")
                end = prolog.end() if (prolog := _PROLOG.match(text)) else 0
                chapters[name] = text[:end], _CLOSED.sub(_opened, text[end:])
    passages = [html_passage(html, options.rules) for _, html in chapters.values()]
    left = sum((left_in(html) for _, html in chapters.values()), Counter[str]())

    def written(texts: Sequence[str]) -> bytes:
        each = zip(chapters.items(), texts, strict=True)
        own = {name: (prolog + _as_xml(text)).encode() for (name, (prolog, _)), text in each}
        return written_archive({**members, **own})

    return Document(passages, written, counted(left))


def _opened(tag: re.Match[str]) -> str:
    """Return an empty element of XML as HTML, in which only `VOID` elements end by themselves."""
    name, attributes = tag.groups()
    return tag[0] if name in VOID else f"<{name}{attributes}></{name}>"


def _as_xml(html: str) -> str:
    """Return HTML with all elements closed, and without entities that XML does not know."""
    closed = _XML_TAG.sub(lambda t: f"<{t[1]}{t[2]}/>" if t[1] in VOID else t[0], html)
    return closed.replace("&nbsp;", "\xa0")
