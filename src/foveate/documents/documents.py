"""The formats of documents: what of each is text for a model, and how the rest is kept.

Lives here: the list of formats, and those that are lines: text, TSV, JSONL, SRT. Does not live
here: PO and TMX (`catalogues`), DOCX (`docx`), HTML (`html`), and translating.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from foveate.config import ConfigError
from foveate.documents.html import html_passage
from foveate.documents.spans import Rules
from foveate.documents.translate import Passage, text_passage


@dataclass(frozen=True)
class Choices:
    """How documents are read: what is protected, and for those that hold several languages,
    which is wanted (``to``) of which (``source``; None: what the document says), and whether what
    is translated already is translated ``again``.
    """

    rules: Rules = field(default_factory=Rules)
    to: str | None = None
    again: bool = False
    source: str | None = None


@dataclass(frozen=True)
class Document:
    """The passages of a document; ``written`` makes it again, given the text of each of them."""

    passages: list[Passage]
    written: Callable[[Sequence[str]], bytes]
    said: str = ""  # what to say of it at the end
    lines: Sequence[int] = ()  # read `BY_LINES`: on which each passage stood, from 1


Reader = Callable[[bytes, Choices, str], Document]


def read_document(kind: str, data: bytes, choices: Choices, where: str = "the input") -> Document:
    """A document of a format. Raises ``ConfigError`` naming it where it is none of the kind."""
    from foveate.documents.formats import read_docx, read_po, read_tmx

    readers: dict[str, Reader] = {
        "text": read_text,
        "html": read_html,
        "tsv": read_tsv,
        "jsonl": read_jsonl,
        "srt": read_srt,
        "po": read_po,
        "tmx": read_tmx,
        "docx": read_docx,
    }
    if kind not in readers:
        raise ConfigError(f"no format {kind!r}; there are: {', '.join(readers)}")
    return readers[kind](data, choices, where)


ENDINGS = {
    ".txt": "text",
    ".htm": "html",
    ".pot": "po",
    **{f".{kind}": kind for kind in ("html", "tsv", "jsonl", "srt", "po", "tmx", "docx")},
}


def format_of(path: Path) -> str:
    """The format by the ending of a file. Raises ``ConfigError`` where it does not tell."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        known = ", ".join(ENDINGS)
        raise ConfigError(f"{path}: the ending tells no format; give --format ({known})")
    return ENDINGS[ending]


def decoded(data: bytes, where: str) -> str:
    """UTF-8 text. Raises ``ConfigError`` that names the line of what is none."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{where}:{line} is not UTF-8; convert it, as with iconv") from None


# ------------------------------------------------------------------------------ whole texts


def read_text(data: bytes, choices: Choices, where: str) -> Document:
    """A plain text."""
    passage = text_passage(decoded(data, where), choices.rules)
    return Document([passage], lambda texts: texts[0].encode())


def read_html(data: bytes, choices: Choices, where: str) -> Document:
    """An HTML document or a fragment of one."""
    passage = html_passage(decoded(data, where), choices.rules)
    return Document([passage], lambda texts: texts[0].encode())


# ------------------------------------------------------------------------------ rows


def rows_of(text: str) -> list[tuple[str, str]]:
    """The lines of a text, each with what ended it."""
    found = re.findall(r"([^\r\n]*)(\r\n|\n|\r|\Z)", text)
    return [row for row in found if row != ("", "")]


def read_lines(data: bytes, choices: Choices, where: str) -> Document:
    """A plain text again, a passage for each line: it is known where each stood."""
    rows = rows_of(decoded(data, where))
    passages = [text_passage(row, choices.rules) for row, _ in rows]

    def written(texts: Sequence[str]) -> bytes:
        return "".join(text + end for text, (_, end) in zip(texts, rows, strict=True)).encode()

    return Document(passages, written, lines=range(1, len(rows) + 1))


def read_tsv(data: bytes, choices: Choices, where: str) -> Document:
    """Rows between tabs: the translation of the first column becomes a new last one."""
    rows = rows_of(decoded(data, where))
    passages = [text_passage(row.partition("\t")[0], choices.rules) for row, _ in rows]

    def written(texts: Sequence[str]) -> bytes:
        done = zip(rows, texts, strict=True)
        return "".join(f"{row}\t{text}{end}" for (row, end), text in done).encode()

    return Document(passages, written, lines=range(1, len(rows) + 1))


def read_jsonl(data: bytes, choices: Choices, where: str) -> Document:
    """Objects with a ``source`` each, a line for each: they get a ``target`` if they have none."""
    rows = rows_of(decoded(data, where))
    trees = [tree_of(row, f"{where}:{number}") for number, (row, _) in enumerate(rows, start=1)]
    open_ = [t is not None and (choices.again or not t.get("target")) for t in trees]
    passages = [
        text_passage(tree["source"], choices.rules)
        for tree, wanted in zip(trees, open_, strict=True)
        if wanted and tree is not None
    ]

    def written(texts: Sequence[str]) -> bytes:
        left, lines = iter(texts), []
        for (row, end), tree, wanted in zip(rows, trees, open_, strict=True):
            if wanted and tree is not None:
                row = json.dumps({**tree, "target": next(left)}, ensure_ascii=False)
            lines.append(row + end)
        return "".join(lines).encode()

    lines = [number for number, wanted in enumerate(open_, start=1) if wanted]
    return Document(passages, written, _left(open_.count(False)), lines)


def tree_of(row: str, where: str) -> dict[str, str] | None:
    """The object of a line of JSONL; None for an empty line.

    Raises ``ConfigError`` that names the line where it has no text to translate.
    """
    if not row.strip():
        return None
    try:
        tree = json.loads(row)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is no JSON: {error}") from None
    if not isinstance(tree, dict) or not isinstance(tree.get("source"), str):
        raise ConfigError(f'{where} has no text; write {{"source": "…"}}')
    return tree


def _left(count: int) -> str:
    return f", {count:,} left as they were" if count else ""


BY_LINES: dict[str, Reader] = {"text": read_lines, "tsv": read_tsv, "jsonl": read_jsonl}


# ------------------------------------------------------------------------------ subtitles

_TIMES = re.compile(r"\s*\d+:\d\d:\d\d[,.]\d+\s*-->\s*\d+:\d\d:\d\d[,.]\d+")


def read_srt(data: bytes, choices: Choices, where: str) -> Document:
    """Subtitles: numbers and times stay; the lines of one are translated together.

    A line that begins with a dash is a speaker's and stays one; text behind an empty line still
    belongs to the subtitle. Raises ``ConfigError`` naming a line of times that cannot be read, or
    where there is none at all.
    """
    rows = rows_of(decoded(data, where))
    for number, (row, _) in enumerate(rows, start=1):
        if "->" in row and re.search(r"\d:\d", row) and not _TIMES.match(row):
            raise ConfigError(
                f"{where}:{number} holds times that cannot be read: write "
                "00:00:01,000 --> 00:00:02,500"
            )
    groups = list(_cues([row for row, _ in rows]))
    if not groups and any(row.strip() for row, _ in rows):
        raise ConfigError(f"{where} holds no subtitles: no line such as 00:00:01,000 --> …")
    passages = [
        text_passage(" ".join(rows[n][0].strip() for n in group), choices.rules) for group in groups
    ]

    def written(texts: Sequence[str]) -> bytes:
        lines = [row for row, _ in rows]
        for group, text in zip(groups, texts, strict=True):
            for n, line in zip(group, _spread(text, len(group)), strict=True):
                lines[n] = line
        return "".join(line + end for line, (_, end) in zip(lines, rows, strict=True)).encode()

    return Document(passages, written)


def _cues(rows: Sequence[str]) -> Iterator[list[int]]:
    """The lines of text that belong together."""
    begun, group = False, list[int]()
    for n, (row, following) in enumerate(pairwise([*rows, "", ""])):
        times = bool(_TIMES.match(row))
        number = row.strip().isdecimal() and bool(_TIMES.match(following))
        if group and (times or number or not row.strip() or row.lstrip().startswith("-")):
            yield group
            group = []
        begun = begun or times
        if begun and row.strip() and not times and not number:
            group.append(n)


def _spread(text: str, count: int) -> list[str]:
    """A text on so many lines of about the same length; none is cut inside a word."""
    words, lines = text.split(" "), []
    for left in range(count, 0, -1):
        share, line = len(" ".join(words)) / left, ""
        while words and (left == 1 or not line or len(line) + len(words[0]) / 2 < share):
            line = f"{line} {words.pop(0)}" if line else words.pop(0)
        lines.append(line)
    return lines
