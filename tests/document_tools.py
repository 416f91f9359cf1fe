"""What tests of documents do: read one, answer its sentences, write it; links of words by rule."""

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from foveate.data.words import split_words
from foveate.documents.base import Document, DocumentOptions
from foveate.documents.formats import read_document
from foveate.documents.translate import Aligner, Pair, joined_all


def aligned(step: int) -> Aligner:
    """Word i to word i, or to the last but i; without a step no word to any."""

    def align(pairs: Sequence[Pair]) -> list[list[tuple[int, int]]]:
        counts = [(len(split_words(a)), len(split_words(b))) for a, b in pairs]
        ends = ((min(m, n), n - 1) for m, n in counts)
        return [[(i, i if step > 0 else z - i) for i in range(m)] if step else [] for m, z in ends]

    return align


diagonal, backwards, unlinked = aligned(1), aligned(-1), aligned(0)


def opened(kind: str, data: bytes | str, **options: object) -> Document:
    """The document; errors name it ``a.`` and its kind."""
    data = data.encode() if isinstance(data, str) else data
    return read_document(kind, data, DocumentOptions(**options), f"a.{kind}")  # type: ignore[arg-type]


def answered(
    document: Document, answer: Callable[[str], str] = str.upper, links: Aligner = diagonal
) -> bytes:
    """The document with an answer for each sentence, which is written as often as one likes."""
    answers = [[answer(s) for s in p.sentences] for p in document.passages]
    texts = joined_all(document.passages, answers, links)
    once = document.written(texts)
    assert once == document.written(texts)
    return once


def shouted(kind: str, data: bytes | str, **options: object) -> bytes:
    """A document in capitals."""
    return answered(opened(kind, data, **options))


def saved(file: Any) -> bytes:
    """A document of python-docx or python-pptx."""
    data = io.BytesIO()
    file.save(data)
    return data.getvalue()


def members(data: bytes) -> dict[str, bytes]:
    """The files of an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def packed(files: Mapping[str, bytes | str], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An archive of files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return out.getvalue()
