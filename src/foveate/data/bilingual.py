"""Pairs of the formats of translators: PO, TMX and XLIFF.

What is not a finished translation is left out, with the reason: untranslated, fuzzy, obsolete.
"""

from __future__ import annotations

import gettext
import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from foveate.data.catalogue import DataError
from foveate.errors import ConfigError, install

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

LANG = "{http://www.w3.org/XML/1998/namespace}lang"
CODES = ("bpt", "ept", "ph", "it", "ut")  # elements whose content is markup of another format
MANY = 5  # the number whose plural form belongs to the plural of the source


class Unit(NamedTuple):
    """A pair and its line from 1 (in XML the number of the unit), or why it is left out."""

    line: int
    source: str
    target: str
    left_out: str = ""


def _unit(line: int, source: str, target: str, left_out: str = "") -> Unit:
    """A unit whose texts are one line each; one without a text is untranslated."""
    source, target = (" ".join(text.split()) for text in (source, target))
    return Unit(line, source, target, left_out or ("" if source and target else "untranslated"))


_PO = re.compile(
    r'(#~\s*)?(?:(msgctxt|msgid_plural|msgid|msgstr)(?:\[(\d)\])?\s*)?"((?:[^"\\]|\\.)*)"'
)
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "", "b": "", "f": " ", "v": " "}


class _Message:
    """A message of a PO file as its lines are read."""

    def __init__(self) -> None:
        self.line, self.fuzzy, self.obsolete, self.last = 0, False, False, ""
        self.texts: dict[str, str] = {}

    def units(self, plural: Callable[[int], int]) -> Iterator[Unit]:
        """The pair, or those of singular and plural; none of the header."""
        if not self.texts.get("msgid"):
            return
        left_out = "obsolete" if self.obsolete else "fuzzy" if self.fuzzy else ""
        if "msgid_plural" not in self.texts:
            yield _unit(self.line, self.texts["msgid"], self.texts.get("msgstr", ""), left_out)
            return
        forms = {"msgid": plural(1), "msgid_plural": plural(MANY)}
        for key, form in forms.items():
            if key == "msgid_plural" or form != forms["msgid_plural"]:  # Japanese has one form
                target = self.texts.get(f"msgstr{form}", "")
                yield _unit(self.line, self.texts[key], target, left_out)


def units_of_po(lines: Iterable[str], where: str) -> Iterator[Unit]:
    """The messages of a gettext catalogue; of several plural forms those of 1 and of `MANY`.

    Raises `DataError` naming a line that is not of a PO file.
    """
    message = _Message()
    plural: Callable[[int], int] = _germanic
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        match = _PO.fullmatch(text)
        if match is None and text and not text.startswith("#"):
            raise DataError(f"{where}:{number}: not a line of a PO file: {text[:40]!r}; fix it")
        key = f"{match[2]}{match[3] or ''}" if match and match[2] else ""
        ended = message.last.startswith("msgstr") and not (match and key[:6] in ("", "msgstr"))
        if ended or (key == "msgid" and "msgid" in message.texts):
            plural = _plural_of(message.texts) or plural
            yield from message.units(plural)
            message = _Message()
        if match is None:
            message.fuzzy |= text.startswith("#,") and "fuzzy" in text
            continue
        if not key and not message.last:
            raise DataError(f"{where}:{number}: a text without msgid or msgstr before it; fix it")
        message.line, message.last = message.line or number, key or message.last
        message.obsolete |= bool(match[1])
        piece = _ESCAPED.sub(lambda m: _ESCAPES.get(m[1], m[1]), match[4])
        message.texts[message.last] = message.texts.get(message.last, "") + piece
    yield from message.units(plural)


def _germanic(number: int) -> int:
    return int(number != 1)


def _plural_of(texts: dict[str, str]) -> Callable[[int], int] | None:
    """The rule of the plural forms in a header; None in another message."""
    if texts.get("msgid") != "" or "msgstr" not in texts:
        return None
    match = re.search(r"(?<!n)plural\s*=\s*([^;\n]+)", texts["msgstr"].replace("nplurals", ""))
    try:
        rule: Callable[[int], int] = gettext.c2py(match[1])  # type: ignore[index]
        rule(1), rule(MANY)
    except (TypeError, ValueError, ArithmeticError, RecursionError):
        return _germanic
    return rule


def _elements(path: Path, names: Sequence[str]) -> Iterator[Element]:
    """The elements of these names as they end, and are then emptied; names without namespaces.

    Raises `DataError` for a file that is not XML, or that declares entities of its own.
    """
    try:
        from defusedxml import DefusedXmlException
        from defusedxml.ElementTree import ParseError, iterparse
    except ImportError:
        raise ConfigError(f"TMX and XLIFF need defusedxml; {install('documents')}") from None
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            for _, element in iterparse(stream, ("end",)):
                if _local(element) in names:
                    yield element
                    element.clear()
    except (ParseError, DefusedXmlException, LookupError, EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read as XML: {error}; fix the file") from None


def _local(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _plain(element: Element | None) -> str:
    """The text of a segment without codes of another format."""
    if element is None:
        return ""
    texts, left = list[str](), [(element, True)]  # whether a text of its own comes, or its tail
    while left:
        part, whole = left.pop()
        if not whole:
            texts.append(part.tail or "")
            continue
        texts.append("" if _local(part) in CODES else part.text or "")
        inner = () if _local(part) in CODES else reversed(part)
        left += [item for child in inner for item in ((child, False), (child, True))]
    return "".join(texts)


def language_of(tag: str) -> str:
    """The language of a tag without its region: en of en-US and en_US.UTF-8."""
    return re.split(r"[-_.@]", tag.strip().lower(), maxsplit=1)[0]


def languages_of_tmx(path: Path) -> list[str]:
    """The languages of a TMX, that of its header first where it has texts."""
    named, known = "", dict[str, None]()
    for element in _elements(path, ("header", "tuv")):
        if _local(element) == "header":
            named = language_of(element.get("srclang", ""))
        else:
            known[language_of(element.get(LANG) or element.get("lang") or "")] = None
    return [name for name in known if name == named] + [n for n in known if n != named]


def units_of_tmx(path: Path, languages: Sequence[str] | None) -> Iterator[Unit]:
    """The units of a translation memory in two languages.

    Raises `DataError` where it has more than two, and none are named.
    """
    known = [] if languages else languages_of_tmx(path)
    if languages is None and len(known) != 2:
        few = '", "'.join(known[:2] if len(known) > 1 else ("en", "fr"))
        raise DataError(
            f"{path} has texts in {', '.join(known) or 'no language'}: name those of source and "
            f'target: data.languages = ["{few}"]'
        )
    source, target = languages or known
    for number, unit in enumerate(_elements(path, ("tu",)), start=1):
        texts: dict[str, str] = {}
        for variant in unit:
            if _local(variant) == "tuv":
                tag = variant.get(LANG) or variant.get("lang") or ""
                segment = next((part for part in variant if _local(part) == "seg"), None)
                for name in (tag, language_of(tag)):
                    texts.setdefault(name, _plain(segment))
        sides = [texts.get(n, texts.get(language_of(n), "")) for n in (source, target)]
        yield _unit(number, *sides)


def units_of_xliff(path: Path) -> Iterator[Unit]:
    """The units of XLIFF 1.2, or the segments of XLIFF 2; drafts are left out."""
    for number, unit in enumerate(_elements(path, ("trans-unit", "segment")), start=1):
        parts = {_local(part): part for part in unit}
        target = parts.get("target")
        state = unit.get("state") or (None if target is None else target.get("state")) or ""
        draft = state.startswith("needs-") or state in ("new", "initial")
        left_out = f"state {state}" if draft else ""
        left_out = "not to be translated" if unit.get("translate") == "no" else left_out
        yield _unit(number, _plain(parts.get("source")), _plain(target), left_out)
