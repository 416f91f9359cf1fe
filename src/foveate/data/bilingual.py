"""Pairs from the formats of translators: PO, TMX and XLIFF.

Unfinished translations are left out, with the reason: untranslated, fuzzy, obsolete.
"""

from __future__ import annotations

import gettext
import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from foveate.data.catalogue import DataError
from foveate.errors import ConfigError, install

if TYPE_CHECKING:
    from docx.oxml.xmlchemy import BaseOxmlElement as Element  # a typed lxml element

LANG = "{http://www.w3.org/XML/1998/namespace}lang"
# the text of a segment, but for elements whose content is markup of another format
WORDS = (
    ".//text()[not(ancestor::*[contains(' bpt ept ph it ut ', concat(' ', local-name(), ' '))])]"
)
MANY = 5  # the number whose plural form belongs to the plural of the source


class Unit(NamedTuple):
    """A pair and its line from 1 (in XML the number of the unit), or why it is left out."""

    line: int
    source: str
    target: str
    left_out: str = ""


def _unit(line: int, source: str, target: str, left_out: str = "") -> Unit:
    """Return a unit whose texts are one line each; one without a text is untranslated."""
    source, target = (" ".join(text.split()) for text in (source, target))
    return Unit(line, source, target, left_out or ("" if source and target else "untranslated"))


_TOKEN = re.compile(
    r"(?P<blank>\s+)|(?P<obsolete>#~[ \t]*(?=msg|\"))|(?P<comment>#[^\n]*)"
    r"|(?P<text>\"[^\"\\\n]*+(?:\\.[^\"\\\n]*+)*\")"
    r"|(?P<key>msgctxt|msgid_plural|msgid|msgstr(?:\s*\[\s*\d+\s*\])?|domain)(?=[\s\"])"
)
_ESCAPED = re.compile(r"\\(?:([0-7]{1,3})|x([\da-fA-F]{1,2})|(.))")
LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


@dataclass
class Message:
    """A message of a PO file: its texts, and the positions of its parts in the file."""

    line: int
    start: int  # position of its first keyword
    comments: list[tuple[int, str]]  # each with its position
    texts: dict[str, str] = field(default_factory=dict)  # by msgid, msgstr, msgstr[0], …
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)  # spans of keyword and strings
    obsolete: bool = False

    @property
    def flags(self) -> list[str]:
        """The flags, such as fuzzy and c-format."""
        lines = (text for _, text in self.comments if text.startswith("#,"))
        return [flag for text in lines for flag in re.findall(r"[\w:.-]+", text)]

    @property
    def forms(self) -> list[str]:
        """The keywords of its translations."""
        return [key for key in self.texts if key.startswith("msgstr")]

    @property
    def is_header(self) -> bool:
        """True for the header of the catalogue."""
        return not self.texts["msgid"] and "msgctxt" not in self.texts


def messages_of(text: str, where: str) -> Iterator[Message]:
    """Yield the messages of a catalogue, including its header.

    Raises `DataError` with the line for text that is not valid in a PO file.
    """
    message, key, comments, line = None, "", list[tuple[int, str]](), 1
    place, obsolete = 0, False
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            raise _refused(where, line)
        kind, word = str(token.lastgroup), re.sub(r"\s", "", token.group())
        if kind == "comment":
            comments.append((place, token.group()))
        elif kind == "obsolete":
            obsolete = True
        elif kind == "text":
            if message is None or not key:
                raise _refused(where, line)
            message.texts[key] += _ESCAPED.sub(_unescaped, token.group()[1:-1])
            message.spans[key], obsolete = (message.spans[key][0], token.end()), False
        elif kind == "key":
            if word in ("msgctxt", "msgid", "domain") and key != "msgctxt":
                if message is not None and "msgid" in message.texts:
                    yield message
                message, comments = Message(line, place, comments, obsolete=obsolete), []
            key = word
            if message is None or key in message.texts or _is_early(key, message):
                raise _refused(where, line)
            message.texts[key], message.spans[key] = "", token.span()
            obsolete = False
        line += text.count("\n", place, token.end())
        place = token.end()
    if message is not None and "domain" not in message.texts:
        yield message


def _is_early(key: str, message: Message) -> bool:
    """Return whether a keyword comes before those that it must follow."""
    if key.startswith("msgstr") or key == "msgid_plural":
        return "msgid" not in message.texts or (key == "msgid_plural" and bool(message.forms))
    return False


def _refused(where: str, line: int) -> DataError:
    return DataError(
        f"{where}:{line} is not a line of a PO file: a comment, or a keyword such as msgid, msgstr "
        'or msgstr[0] and a text in "…"'
    )


def _unescaped(match: re.Match[str]) -> str:
    octal, code, letter = match.groups()
    if letter is not None:
        return LETTERS.get(letter, letter)
    return chr(int(octal, 8) if octal else int(code, 16))


def units_of_po(lines: Iterable[str], where: str) -> Iterator[Unit]:
    """Yield the messages of a gettext catalogue; of plural forms, those of 1 and of `MANY`.

    Raises `DataError` with the line for text that is not valid in a PO file.
    """
    plural: Callable[[int], int] = _germanic
    for message in messages_of("\n".join(lines), where):
        plural = _plural_of(message.texts) or plural
        yield from _units(message, plural)


def _units(message: Message, plural: Callable[[int], int]) -> Iterator[Unit]:
    """Yield the pair of a message, or those of singular and plural; none for the header."""
    line, texts = message.line, message.texts
    if not texts.get("msgid"):
        return
    left_out = "obsolete" if message.obsolete else "fuzzy" if "fuzzy" in message.flags else ""
    if "msgid_plural" not in texts:
        yield _unit(line, texts["msgid"], texts.get("msgstr", ""), left_out)
        return
    forms = {"msgid": plural(1), "msgid_plural": plural(MANY)}
    for key, form in forms.items():
        if key == "msgid_plural" or form != forms["msgid_plural"]:  # Japanese has one form
            yield _unit(line, texts[key], texts.get(f"msgstr[{form}]", ""), left_out)


_germanic: Callable[[int], int] = gettext.c2py("n != 1")


def _plural_of(texts: dict[str, str]) -> Callable[[int], int] | None:
    """Return the rule of the plural forms in a header; None for another message."""
    if texts.get("msgid") != "" or "msgstr" not in texts:
        return None
    match = re.search(r"(?<!n)plural\s*=\s*([^;\n]+)", texts["msgstr"].replace("nplurals", ""))
    try:
        rule: Callable[[int], int] = gettext.c2py(match[1])  # type: ignore[index]
        rule(1), rule(MANY)
    except (TypeError, ValueError, ArithmeticError, RecursionError):
        return _germanic
    return rule


def _elements(path: Path, *names: str) -> Iterator[Element]:
    """Yield the elements of these names as they end, then empty them; names have no namespaces.

    Raises `DataError` for a file that is not XML, or that declares its own entities.
    """
    try:
        from lxml import etree
    except ImportError:
        raise ConfigError(f"TMX and XLIFF need lxml; {install('documents')}") from None
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            chosen = {"tag": [f"{{*}}{name}" for name in names], "resolve_entities": False}
            for number, (_, element) in enumerate(
                etree.iterparse(stream, no_network=True, **chosen)
            ):
                if not number and declares_entities(element):
                    raise DataError(f"{path}: cannot be read as XML: it declares its own entities")
                yield element
                element.clear()
    except (etree.XMLSyntaxError, EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read as XML: {error}; fix the file") from None


def declares_entities(element: Element) -> bool:
    """Return whether a document declares entities, which could expand or read files."""
    declared = element.getroottree().docinfo.internalDTD
    return declared is not None and any(True for _ in declared.iterentities())


def local_name(element: Element) -> str:
    """Return the name of an element without its namespace."""
    return str(element.tag).rpartition("}")[2]


def _plain(element: Element | None) -> str:
    """Return the text of a segment without the codes of another format."""
    return "" if element is None else "".join(element.xpath(WORDS))


def language_of(tag: str) -> str:
    """Return the language of a tag without its region: en for en-US and en_US.UTF-8."""
    return re.split(r"[-_.@]", tag.strip().lower(), maxsplit=1)[0]


def languages_of_tmx(path: Path) -> list[str]:
    """Return the languages of a TMX, the header's first if it has texts."""
    named, known = "", dict[str, None]()
    for element in _elements(path, "header", "tuv"):
        if local_name(element) == "header":
            named = language_of(element.get("srclang", ""))
        else:
            known[language_of(element.get(LANG) or element.get("lang") or "")] = None
    return [name for name in known if name == named] + [n for n in known if n != named]


def units_of_tmx(path: Path, languages: Sequence[str] | None) -> Iterator[Unit]:
    """Yield the units of a translation memory in two languages.

    Raises `DataError` if it has more than two and ``languages`` is None.
    """
    known = [] if languages else languages_of_tmx(path)
    if languages is None and len(known) != 2:
        few = '", "'.join(known[:2] if len(known) > 1 else ("en", "fr"))
        raise DataError(
            f"{path} has texts in {', '.join(known) or 'no language'}: name those of source and "
            f'target: data.languages = ["{few}"]'
        )
    source, target = languages or known
    for number, unit in enumerate(_elements(path, "tu"), start=1):
        texts: dict[str, str] = {}
        for variant in unit.iterfind("{*}tuv"):
            tag = variant.get(LANG) or variant.get("lang") or ""
            for name in (tag, language_of(tag)):
                texts.setdefault(name, _plain(variant.find("{*}seg")))
        sides = [texts.get(n, texts.get(language_of(n), "")) for n in (source, target)]
        yield _unit(number, *sides)


def units_of_xliff(path: Path) -> Iterator[Unit]:
    """Yield the units of XLIFF 1.2, or the segments of XLIFF 2; drafts are left out."""
    for number, unit in enumerate(_elements(path, "trans-unit", "segment"), start=1):
        target = unit.find("{*}target")
        state = unit.get("state") or (None if target is None else target.get("state")) or ""
        draft = state.startswith("needs-") or state in ("new", "initial")
        left_out = f"state {state}" if draft else ""
        left_out = "not to be translated" if unit.get("translate") == "no" else left_out
        yield _unit(number, _plain(unit.find("{*}source")), _plain(target), left_out)
