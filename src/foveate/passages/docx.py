"""DOCX: paragraphs are translated, the formatting of their words goes with the words."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any
from xml.etree import ElementTree as XML
from xml.sax.saxutils import escape

from foveate.config import ConfigError
from foveate.passages.archive import bounded
from foveate.passages.documents import Choices, Document
from foveate.passages.passage import Passage
from foveate.passages.pieces import Piece
from foveate.passages.run import Run

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
FORMATTING = 4_000  # characters of what tells the formatting of a run; each new run copies it
SPACE = "{http://www.w3.org/XML/1998/namespace}space"


def read_docx(data: bytes, choices: Choices, where: str) -> Document:
    """The paragraphs of body, tables, headers and footers. All else stays as it is."""
    try:
        import docx
    except ImportError:
        raise ConfigError("DOCX needs python-docx; pip install 'foveate[documents]'") from None
    try:
        file = docx.Document(io.BytesIO(bounded(data, where)))
    except ConfigError:
        raise
    except Exception as error:  # zip, XML and package errors of many kinds
        raise ConfigError(f"{where} is no DOCX file: {error}") from None
    stories = list(_paragraphs(file))
    if any(element.getroottree().docinfo.internalDTD is not None for element in stories):
        raise ConfigError(f"{where} cannot be read: it declares entities of its own")
    paragraphs = [Paragraph(element, choices, where) for element in stories]

    def written(texts: Sequence[str]) -> bytes:
        for paragraph, text in zip(paragraphs, texts, strict=True):
            if paragraph.passage.sentences:
                paragraph.write(text)
        out = io.BytesIO()
        file.save(out)
        return out.getvalue()

    return Document([paragraph.passage for paragraph in paragraphs], written)


def _paragraphs(file: Any) -> Iterator[Any]:
    """Every paragraph with text, each once."""
    stories = [file.element.body]
    for section in file.sections:
        for part in (section.header, section.footer):
            if not part.is_linked_to_previous:
                stories.append(part._element)
    for story in stories:
        for paragraph in story.iter(f"{W}p"):
            if next(paragraph.iter(f"{W}t"), None) is not None:
                yield paragraph


class Paragraph:
    """A paragraph as a passage: its commonest formatting is plain, other formatting an element."""

    def __init__(self, element: Any, choices: Choices, where: str) -> None:
        """Raises ``ConfigError`` for formatting of a run above `FORMATTING`."""
        self.element = element
        if any(len(_key(run)) > FORMATTING for run in element.iter(f"{W}r")):
            raise ConfigError(f"{where}: the formatting of some words is too large to be copied")
        self.kept: list[Any] = []  # objects and hyperlinks, by number
        self.formats: list[Any] = []  # run properties, by number
        self.run = Run(choices.rules, layout=True)
        _split(element)
        self.base = self._commonest()
        self._read(element)
        self.passage = Passage(tuple(self.run.parts()), choices.rules, _written)

    # ---- reading

    def _commonest(self) -> str:
        lengths: dict[str, int] = {}
        for run in self.element.iter(f"{W}r"):
            size = sum(len(t.text or "") for t in run.iter(f"{W}t"))
            lengths[_key(run)] = lengths.get(_key(run), 0) + size
        return max(lengths, key=lambda key: lengths[key], default="")

    def _read(self, parent: Any) -> None:
        """Take in the children: runs of text, hyperlinks, and objects for whatever else."""
        opened: str | None = None
        for child in parent:
            key = _key(child) if _is_text(child) else None
            if opened is not None and key != opened:
                self.run.add_close()
                opened = None
            if child.tag == f"{W}pPr":
                continue
            if key is not None:
                if key != self.base and opened is None:
                    self.formats.append(child.find(f"{W}rPr"))
                    self.run.add_open(f'<f n="{len(self.formats) - 1}">', "</f>")
                    opened = key
                self.run.add_text("".join(t.text or "" for t in child.iter(f"{W}t")))
                continue
            self.kept.append(child)
            if child.tag == f"{W}hyperlink":
                self.run.add_open(f'<k n="{len(self.kept) - 1}">', "</k>")
                self._read(child)
                self.run.add_close()
            else:
                self.run.add_object(f'<k n="{len(self.kept) - 1}"/>')
        if opened is not None:
            self.run.add_close()

    # ---- writing

    def write(self, text: str) -> None:
        """Put the translated text in place of the paragraph's."""
        base = next(
            (r.find(f"{W}rPr") for r in self.element.iter(f"{W}r") if _key(r) == self.base), None
        )
        for child in list(self.element):
            if child.tag != f"{W}pPr":
                self.element.remove(child)
        self._fill(self.element, XML.fromstring(f"<p>{text}</p>"), base)

    def _fill(self, parent: Any, tree: XML.Element, properties: Any) -> None:
        self._say(parent, tree.text, properties)
        for child in tree:
            number = int(child.get("n", "0"))
            if child.tag == "f":
                self._fill(parent, child, self.formats[number])
            else:
                kept = self.kept[number]
                if kept.tag == f"{W}hyperlink":
                    for old in list(kept):
                        kept.remove(old)
                    self._fill(kept, child, properties)
                parent.append(kept)
            self._say(parent, child.tail, properties)

    def _say(self, parent: Any, text: str | None, properties: Any) -> None:
        """A run of text with its formatting."""
        if not text:
            return
        run = parent.makeelement(f"{W}r")
        if properties is not None:
            run.append(deepcopy(properties))
        words = run.makeelement(f"{W}t", {SPACE: "preserve"})
        words.text = text
        run.append(words)
        parent.append(run)


def _split(paragraph: Any) -> None:
    """Give each tab, line break or picture that stands in a run with text a run of its own."""
    for run in list(paragraph.iter(f"{W}r")):
        parts = [child for child in run if child.tag != f"{W}rPr"]
        if len(parts) < 2 or _is_text(run) or run.getparent() is None:
            continue
        properties, place = run.find(f"{W}rPr"), run
        for part in parts[1:]:
            alone = run.makeelement(f"{W}r", dict(run.attrib))
            if properties is not None:
                alone.append(deepcopy(properties))
            alone.append(part)
            place.addnext(alone)
            place = alone


def _is_text(element: Any) -> bool:
    """Whether an element is a run that holds text and nothing else."""
    return element.tag == f"{W}r" and all(
        child.tag in (f"{W}t", f"{W}rPr", f"{W}lastRenderedPageBreak") for child in element
    )


def _key(run: Any) -> str:
    """What tells the formatting of runs apart."""
    properties = run.find(f"{W}rPr")
    each = [] if properties is None else list(properties.iter())[1:]
    return " ".join(f"{e.tag} {sorted(e.attrib.items())}".replace(W, "") for e in each)


def _written(piece: Piece) -> str:
    return piece.text if piece.markup else escape(piece.text)
