"""TMX and XLIFF: units in two languages, which get translations; every other byte stays."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple
from xml.sax.saxutils import quoteattr

from foveate.data.bilingual import LANG, language_of, local_name
from foveate.documents.base import Change, Document, DocumentOptions, changed, escaped, parsed_xml
from foveate.documents.spans import DocumentError
from foveate.documents.translate import Passage, TextBuilder, nested
from foveate.errors import ConfigError

if TYPE_CHECKING:
    from docx.oxml.xmlchemy import BaseOxmlElement as Element  # a typed lxml element

_QUOTED = r"\"[^\"]*\"|'[^']*'"
_MARKUP = re.compile(
    rf"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<!(?:[^\"'>\[]|{_QUOTED})*"
    rf"|<(?P<end>/)?(?P<name>[^\s/>]+)(?:[^\"'>]|{_QUOTED})*?(?P<empty>/)?>",
    re.DOTALL,
)
MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}  # at the start of a file
AROUND = ("hi", "g", "pc", "mrk")  # elements around words; others act as words
PAIRS = {"bpt": "ept", "bx": "ex", "sc": "ec", "sm": "em"}  # codes before and after words
NEW = ("new", "needs-translation")  # states of targets that are not translations yet


class Place(NamedTuple):
    """The places of an element's start tag, content and end tag in the text of a file."""

    start: int
    inner: int
    close: int
    end: int


class UnitsFile:
    """The text of a file with units, and the place of each element.

    Raises ``DocumentError`` if the name of its root is not that of the format.
    """

    def __init__(self, data: bytes, where: str, kind: str) -> None:
        self.root = parsed_xml(data, where, kind)
        if local_name(self.root) != kind.lower():
            raise DocumentError(f"{where} is not {kind}: its root is <{local_name(self.root)}>")
        declared = self.root.getroottree().docinfo.encoding or "utf-8"
        self.encoding = MARKS.get(data[:2], declared)
        try:
            self.text = data.decode(self.encoding)
        except (LookupError, UnicodeError):
            raise DocumentError(f"{where} is not {declared}, as it declares: convert it") from None
        self.places = dict(zip(self.root.iter("*"), self._places(), strict=True))

    def _places(self) -> list[Place]:
        """Return the places of the elements, in order."""
        places, opened = list[Place](), list[int]()
        for tag in _MARKUP.finditer(self.text):
            if tag["name"] and not tag["end"]:
                opened.append(len(places))
                places.append(Place(tag.start(), tag.end(), *tag.span()))
            if tag["end"] or tag["empty"]:
                own = opened.pop()
                places[own] = places[own]._replace(close=tag.start(), end=tag.end())
        return places

    def tag(self, element: Element) -> str:
        """Return the start tag of an element."""
        return self.text[self.places[element].start : self.places[element].inner]

    def marked(self, element: Element, name: str, value: str) -> Change:
        """Return the change that gives an element an attribute."""
        return *self.places[element][:2], with_attribute(self.tag(element), name, value)

    def passage(self, segment: Element, options: DocumentOptions) -> Passage:
        """Return the words of a segment with its codes as a passage."""
        text = TextBuilder(options.rules, layout=True)
        self._read(segment, text)
        return Passage(tuple(text.parts()), options.rules, escaped)

    def _read(self, segment: Element, text: TextBuilder) -> None:
        """Add the content of an element: codes before and after words, like elements, are both."""
        from lxml import etree

        ends, children = nested(map(_code, segment)), list(segment)
        closing = set(ends.values())
        text.add_text(segment.text or "")
        for number, child in enumerate(children):
            place = self.places.get(child)
            if place is None:  # a comment
                text.add_object(etree.tostring(child, encoding="unicode", with_tail=False))
            elif number in ends:
                text.add_open(self._whole(child), self._whole(children[ends[number]]))
            elif number in closing:
                text.add_close()
            elif local_name(child) in AROUND and place.inner < place.close and not _fixed(child):
                text.add_open(self.tag(child), self.text[place.close : place.end])
                self._read(child, text)
                text.add_close()
            else:
                text.add_object(self._whole(child))
            text.add_text(child.tail or "")

    def _whole(self, element: Element) -> str:
        """Return the text of an element."""
        return self.text[self.places[element].start : self.places[element].end]

    def added(self, source: Element, old: Sequence[Element], new: str) -> Iterator[Change]:
        """Yield the changes that replace old elements by a new one, or add it after its source."""
        for element, text in zip(old, [new] + [""] * len(old), strict=False):
            yield self.places[element].start, self.places[element].end, text
        if not old:
            end = self.places[source].end
            yield end, end, re.compile(r"\s*").match(self.text, end)[0] + new  # type: ignore[index]

    def written(self, changes: Sequence[Change]) -> bytes:
        """Return the file with changes."""
        return changed(self.text, changes).encode(self.encoding, "xmlcharrefreplace")


def with_attribute(tag: str, name: str, value: str) -> str:
    """Return a start tag with a new value of an attribute."""
    tag = re.sub(rf"\s{name}\s*=\s*(?:{_QUOTED})", "", tag)
    return re.sub(r"[^\s/>]+", lambda own: f"{own[0]} {name}={quoteattr(value)}", tag, count=1)


def _fixed(code: Element) -> bool:
    """Return whether a file marks the words in an element as not to be translated."""
    return code.get("translate") == "no" or code.get("mtype") == "protected"


def _code(element: Element) -> tuple[str, str]:
    """Return the names of what a code opens and closes around words, such as ept 1."""
    name, names = local_name(element), ("startRef", "rid", "i", "id")
    key = next((value for each in names if (value := element.get(each))), "")
    return (f"{PAIRS[name]} {key}", "") if name in PAIRS else ("", f"{name} {key}")


def read_tmx(data: bytes, options: DocumentOptions, where: str) -> Document:
    """Read a translation memory: units without text in ``options.to`` get one.

    The source is the variant in ``options.source``, else in the header's language, else the first.
    Raises ``DocumentError`` if the file is not a TMX, ``ConfigError`` without ``to``.
    """
    if options.to is None:
        raise ConfigError("a TMX holds several languages; name the one to add (--to)")
    file, to = UnitsFile(data, where, "TMX"), options.to
    header = file.root.find("{*}header")
    source = "" if header is None else header.get("srclang", "")
    units = list(file.root.iter("{*}tu"))
    sources = [v for unit in units if (v := _source_of(unit, source, options)) is not None]
    passages = [file.passage(variant.find("{*}seg"), options) for variant in sources]

    def written(texts: Sequence[str]) -> bytes:
        changes = list[Change]()
        for variant, text in zip(sources, texts, strict=True):
            new = f"<tuv xml:lang={quoteattr(to)}><seg>{text}</seg></tuv>"
            changes += file.added(variant, _variants_in(variant.getparent(), to), new)
        return file.written(changes)

    return Document(passages, written, f", {len(units) - len(sources):,} units left")


def _variants_in(unit: Element, language: str) -> list[Element]:
    """Return the variants of a unit in a language, or in one of its regions."""
    variants = unit.findall("{*}tuv")
    own = language_of(language)
    return [v for v in variants if language_of(v.get(LANG) or v.get("lang") or "") == own]


def _source_of(unit: Element, source: str, options: DocumentOptions) -> Element | None:
    """Return the variant of a unit to be translated, if any; empty segments do not count."""
    targets = _variants_in(unit, options.to or "")
    if any(map(_text_of, targets)) and not options.again:
        return None
    others = [v for v in unit.findall("{*}tuv") if v not in targets]
    own = [v for v in _variants_in(unit, options.source or source) if v not in targets]
    own = own if own or options.source else others
    return next(filter(_text_of, own), None)


def _text_of(variant: Element) -> str:
    """Return the text of a variant's segment, or "" without one."""
    return str(variant.xpath("string(*[local-name() = 'seg'])")).strip()


def read_xliff(data: bytes, options: DocumentOptions, where: str) -> Document:
    """Read XLIFF 1.2 or 2: units without a target get one, with a state that marks it as a draft.

    Raises ``DocumentError`` for another file, for one that is to be translated into another
    language, and for one that names no language where the options name none.
    """
    file = UnitsFile(data, where, "XLIFF")
    first = not file.root.get("version", "").startswith("2")
    holders = list(file.root.iter("{*}file")) if first else [file.root]
    key, to = "target-language" if first else "trgLang", language_of(options.to or "")
    for holder in holders:
        named = language_of(holder.get(key, ""))
        if not named and not to:
            raise DocumentError(f"{where} has no {key}: name the language (--to)")
        if named and to and named != to and len(named) == len(to):
            raise DocumentError(f"{where} is to be translated into {holder.get(key)}, not {to}")
    units = list(file.root.iter("{*}trans-unit", "{*}segment"))
    sources = [s for unit in units if (s := _untranslated(unit, options.again)) is not None]
    state = "needs-review-translation" if first else "initial"
    state = state if options.draft else "translated"

    def written(texts: Sequence[str]) -> bytes:
        unnamed = [holder for holder in holders if sources and not holder.get(key)]
        changes = [file.marked(holder, key, options.to or "") for holder in unnamed]
        for source, text in zip(sources, texts, strict=True):
            unit: Element = source.getparent()
            old, name = unit.findall("{*}target"), f"{source.prefix or ''}:target".lstrip(":")
            opening = file.tag(old[0]).rstrip("/>") + ">" if old else f"<{name}>"
            if first:
                opening = with_attribute(opening, "state", state)
            else:
                changes.append(file.marked(unit, "state", state))
            changes += file.added(source, old, f"{opening}{text}</{name}>")
        return file.written(changes)

    passages = [file.passage(source, options) for source in sources]
    left = f", {len(units) - len(sources):,} units left"
    return Document(passages, written, left, list(map(_name_of, sources)))


def _untranslated(unit: Element, again: bool) -> Element | None:
    """Return the source of a unit to be translated, in segments if it has them."""
    target, source = unit.find("{*}target"), unit.find("{*}seg-source")
    source = unit.find("{*}source") if source is None else source
    done = target is not None and target.get("state") not in NEW and "".join(target.itertext())
    if source is None or (done and done.strip() and not again):
        return None
    return None if unit.xpath("(ancestor-or-self::*/@translate)[last()] = 'no'") else source


def _name_of(source: Element) -> str:
    """Return the name of a source's unit: the original file, and its path of ids there."""
    file = source.xpath("string(ancestor::*[local-name() = 'file']/@original)")
    return f"{file}:{'/'.join(source.xpath('ancestor::*/@id'))}"
