"""The words of a text, as alignments and the axes of attention maps count them; its language.

The subwords that a model reads are those of `foveate.data.tokenizer`.
"""

import importlib
import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Span = tuple[int, int]  # first character and the one after the last
_MARK = "\u0301"  # replaces every combining mark and joiner in the shape of a text
_CLITIC = r"(?:[cdjlmnst]|(?:jus|lors|puis|quoi)?qu)['’](?=\w)"
_INSIDE = r"(?<=\d)[.,:](?=\d)|(?<=[\w{m}])['’‐‑-](?=\w)"
_WORD = rf"{_CLITIC}|\w(?:[\w{{m}}]|{_INSIDE})*|\S{{m}}*".replace("{m}", _MARK)

# Scripts without spaces between words: Han, kana, Thai, Lao, Khmer, Burmese.
UNSPACED = re.compile(
    "[\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U000323af\u0e00-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff]"
)
MARKS = (".", ",", "。", "،", "।", "、")


def split_words(text: str) -> list[tuple[int, int]]:
    """Return the character spans ``(start, end)`` of the words of any text, in order and disjoint.

    A word is a run without white space. Punctuation marks and symbols are words of their own, and
    so is an elided French clitic (l', d', n', j', qu', …). An apostrophe or hyphen between letters
    and a point, comma or colon between digits belong to the word: aujourd'hui, est-ce, 3,5.
    Combining marks belong to the character before them.
    """
    return [match.span() for match in re.finditer(_WORD, _shape(text), re.IGNORECASE)]


def split_blanks(text: str) -> list[tuple[int, int]]:
    """Return the spans between spaces: the words of a text that was already tokenised."""
    return [match.span() for match in re.finditer(r"\S+", text)]


def marks_apart(texts: Iterable[str]) -> tuple[int, int]:
    """Count the full stops and commas that are tokens of their own, and all of them.

    Those that end a token with a comma, or a text, are counted. In tokenised text nearly all are
    separate, in plain text nearly none; other marks say less, since French has spaces before them.
    """
    apart = count = 0
    for text in texts:
        for token, following in pairwise([*text.split(), None]):
            assert token is not None
            if token in MARKS or token[-1] == "," or (following is None and token[-1] in MARKS):
                count += 1
                apart += token in MARKS
    return apart, count


CUTS = {"text": split_words, "blanks": split_blanks}  # what counts as a word, by its name


def words(text: str) -> list[str]:
    """Return the words of a text as strings: ``"L'homme dort." → ["L'", "homme", "dort", "."]``."""
    return [text[start:end] for start, end in split_words(text)]


def _shape(text: str) -> str:
    """Return the text with one mark for all marks and joiners, at the same length."""
    if text.isascii():
        return text
    marks = ("Mn", "Mc", "Me", "Cf")  # combining and format characters belong to the one before
    return "".join(_MARK if unicodedata.category(c) in marks else c for c in text)


@dataclass(frozen=True)
class Counts:
    """``table[i, j]`` is how often ``terms[i]`` occurs in document j: (V, N)."""

    terms: list[str]
    table: NDArray[np.int64]

    def text(self) -> str:
        """Return the table with a row for each term."""
        width = max(map(len, self.terms), default=0)
        rows = zip(self.terms, self.table, strict=True)
        return "\n".join(f"{term:<{width}} " + " ".join(map(str, row)) for term, row in rows)


def document_terms(documents: Sequence[Sequence[str]]) -> Counts:
    """Count the terms of documents that are split into tokens; terms are sorted by code point.

    The order of the tokens in a document is lost: a model that reads counts reads the document as a
    multiset (Harris, 1954).
    """
    counts = [Counter(tokens) for tokens in documents]
    terms = sorted(set().union(*counts))
    table = np.array([[count[term] for count in counts] for term in terms], dtype=np.int64)
    return Counts(terms, table.reshape(len(terms), len(documents)))


LINES = 200  # evenly spread lines from which the language of a text is detected
ENOUGH = 8  # of these must have letters
MOST, MANY, SOME = 2 / 3, 0.2, 0.1  # shares of lines in a language


@cache
def identifier() -> Any:
    """Return the classifier of py3langid, which is loaded at its first use (Lui and Baldwin, 2012):

        log p(l | x) ∝ log p(l) + Σ_n count(n, x) log p(n | l)

    over those n-grams of bytes n that distinguish languages.
    """
    langid = importlib.import_module("py3langid.langid")  # it has no types
    return langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)


def language(line: str) -> str:
    """Return the code of the most probable language of a line, "" if it has no letter."""
    return str(identifier().classify(line[:400])[0]) if any(map(str.isalpha, line[:400])) else ""


def language_of(texts: Sequence[str], named: str | None = None) -> str | None:
    """Return the code of the language of many lines, or None if it is unclear.

    The ``named`` one is accepted if some lines match: few distinguish Croatian from Serbian.
    """
    shares = shares_of_languages(texts)
    if named is not None and shares.get(named, 0) >= SOME:
        return named
    return next((code for code, share in shares.items() if share >= MOST), None)


def mixed(texts: Sequence[str]) -> dict[str, float]:
    """Return the shares of the main languages of many lines, if there are several."""
    shares = {code: n for code, n in shares_of_languages(texts).items() if n >= MANY}
    return shares if len(shares) > 1 and sum(shares.values()) >= MOST else {}


def shares_of_languages(texts: Sequence[str]) -> dict[str, float]:
    """Return the share of each language in many lines, the largest first; none of too few lines."""
    lines = texts[:: max(1, len(texts) // LINES)]
    read = Counter(code for line in lines if (code := language(line)) not in ("", "zxx"))
    return {code: n / read.total() for code, n in read.most_common() if read.total() >= ENOUGH}


# Pieces of a tokenizer, joined to words.


@dataclass(frozen=True)
class Grouping:
    """The pieces that make each word, in the order of the text.

    ``pieces[k]`` are the indices of the pieces of the k-th word; ``words[k]`` is the index of its
    span, or ``None`` for a special token that is not part of the text.
    """

    pieces: list[list[int]]
    words: list[int | None]

    def labels(self, words: Sequence[str], tokens: Sequence[str]) -> list[str]:
        """Return the label of each word: from ``words``, or from ``tokens`` for a special token."""
        return [
            tokens[group[0]] if word is None else words[word]
            for group, word in zip(self.pieces, self.words, strict=True)
        ]


def group_pieces(offsets: Sequence[Span | None], words: Sequence[Span]) -> Grouping:
    """Assign each piece to the word with which it shares most characters.

    ``offsets`` are the character spans of the pieces; ``None`` (or an empty span at 0, as the
    ``tokenizers`` library writes it) marks a special token such as ``</s>``, which becomes a word
    of its own. A piece that touches no word (a space) goes to the following word, or to the last
    one. A word that shares its only piece with a longer neighbour gets an empty group, so that
    every word of ``words`` has one.
    """
    owners = [None if span in (None, (0, 0)) else _owner(span, words) for span in offsets]
    last = max((piece for piece, owner in enumerate(owners) if owner is not None), default=-1)
    groups: list[list[int]] = [[] for _ in words]
    entries: list[tuple[tuple[int, int], list[int], int | None]]  # the first is the position
    entries = [((word, 1), group, word) for word, group in enumerate(groups)]
    begun = 0  # words before the piece
    for piece, owner in enumerate(owners):
        if owner is None:
            entries.append(((len(words) if piece > last else begun, 0), [piece], None))
        else:
            begun = max(begun, owner + 1)
            groups[owner].append(piece)
    entries.sort(key=lambda entry: entry[0])
    return Grouping([group for _, group, _ in entries], [word for *_, word in entries])


def _owner(span: Span | None, words: Sequence[Span]) -> int | None:
    """Return the word with which a piece shares most characters (the first of ties), or the next.

    ``words`` are in order and disjoint, so that only those around the piece are checked.
    """
    if span is None or not words:
        return None
    first = bisect_right(words, span[0], key=lambda word: word[1])
    best, most = min(first, len(words) - 1), 0
    for place in range(first, len(words)):
        start, end = words[place]
        if start >= span[1]:
            break
        shared = min(span[1], end) - max(span[0], start)
        if shared > most:
            best, most = place, shared
    return best


def to_words(
    weights: NDArray[np.floating],
    row_words: Sequence[Sequence[int]],
    column_words: Sequence[Sequence[int]],
) -> NDArray[np.float32]:
    """Return A'[i, j] = (1 / |rows i|) Σ_{t in rows i} Σ_{s in columns j} A[t, s], between words.

    Shape: (..., T, S) to (..., words of the rows, words of the columns). Rows still sum to 1 if
    every piece of the columns is in one group. A word without pieces yields zeros. Raises
    ``IndexError`` if a group contains a piece that does not exist.
    """
    total, width = weights.shape[-2:]
    rows = np.zeros((len(row_words), total))
    for word, group in enumerate(row_words):
        rows[word, list(group)] = 1 / max(len(group), 1)
    columns = np.zeros((width, len(column_words)))
    for word, group in enumerate(column_words):
        columns[list(group), word] = 1
    return (rows @ weights @ columns).astype(np.float32)


def pieces_of(offsets: Sequence[Span | None], words: Sequence[Span]) -> list[list[int]]:
    """Return the pieces of each word of a text; a first piece without characters goes to the first.

    A piece of the span ``None`` belongs to no word.
    """
    if not words:
        return []
    spans = [span if span is None or span[1] else (0, 1) for span in offsets]
    grouping = group_pieces(spans, words)
    both = zip(grouping.pieces, grouping.words, strict=True)
    return [pieces for pieces, word in both if word is not None]


def behind_tag(
    text: str, plain: str, offsets: Sequence[Span], cut: Callable[[str], list[Span]] = split_words
) -> tuple[list[Span | None], list[Span]]:
    """Return the spans of the pieces of a text and of its words, those of ``plain`` at its end.

    The first piece is a language tag if the plain text is shorter, and belongs to no word.
    """
    tag = len(text) - len(plain)
    words = [(start + tag, end + tag) for start, end in cut(plain)]
    return [None, *offsets[1:]] if tag else list(offsets), words


def between_words(
    maps: Mapping[str, NDArray[np.floating]],
    source: tuple[Sequence[Span | None], Sequence[Span]],
    target: tuple[Sequence[Span | None], Sequence[Span]],
    later: bool,
) -> dict[str, NDArray[np.float32]]:
    """Convert maps (H, T, S + 1) between pieces to maps between words and the source's end.

    ``source`` and ``target`` are the spans of the pieces and of the words of a side. The row of a
    word is the mean of its pieces' steps, or, with ``later``, of the steps after them.
    """
    columns = [*pieces_of(*source), [len(source[0])]]
    steps = [[t + later for t in word] for word in pieces_of(*target)]
    return {name: to_words(weights, steps, columns) for name, weights in maps.items()}
