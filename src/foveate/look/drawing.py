"""Drawings: what can be drawn, as exact data, and the words on their axes."""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import pydantic
from numpy.typing import NDArray
from pydantic.alias_generators import to_camel

Span = tuple[int, int]  # first character and the one after the last
# What the rows and columns of attention are; "auto" is decided by the tokenizer and the script.
Units = Literal["auto", "tokens", "words"]


@dataclass(frozen=True)
class Grouping:
    """Which pieces make which word, in the order of the text.

    ``pieces[k]`` are the indices of the pieces of the k-th word; ``words[k]`` is the index of its
    span, or ``None`` where it is a special token that stands in no text.
    """

    pieces: list[list[int]]
    words: list[int | None]

    def labels(self, words: Sequence[str], tokens: Sequence[str]) -> list[str]:
        """The label of each word: of ``words``, or of ``tokens`` where it is a special token."""
        return [
            tokens[group[0]] if word is None else words[word]
            for group, word in zip(self.pieces, self.words, strict=True)
        ]


def group_pieces(offsets: Sequence[Span | None], words: Sequence[Span]) -> Grouping:
    """Give each piece to the word with which it shares most characters.

    ``offsets`` are the character spans of the pieces; ``None`` (or an empty span at 0, as the
    ``tokenizers`` library writes it) marks a special token such as ``</s>``, which becomes a word
    of its own. A piece that touches no word (a space) goes to the word that follows it, or to the
    last one. A word that shares its only piece with a longer neighbour keeps an empty group, so
    that every word of ``words`` has one.
    """
    owners = [None if span in (None, (0, 0)) else _owner(span, words) for span in offsets]
    last = max((piece for piece, owner in enumerate(owners) if owner is not None), default=-1)
    pieces: list[list[int]] = []
    found: list[int | None] = []
    of_word: dict[int, list[int]] = {}

    def open_words(end: int) -> None:
        for word in range(len(of_word), end):
            pieces.append(of_word.setdefault(word, []))
            found.append(word)

    for piece, owner in enumerate(owners):
        open_words(len(words) if piece > last else (owner + 1 if owner is not None else 0))
        if owner is None:
            pieces.append([piece])
            found.append(None)
        else:
            of_word[owner].append(piece)
    open_words(len(words))
    return Grouping(pieces, found)


def _owner(span: Span | None, words: Sequence[Span]) -> int | None:
    """The word with which a piece shares most characters, the first of equals; else the next."""
    if span is None or not words:
        return None
    shared = [min(span[1], end) - max(span[0], start) for start, end in words]
    best = max(range(len(words)), key=shared.__getitem__)
    if shared[best] > 0:
        return best
    return next((k for k, (_, end) in enumerate(words) if end > span[0]), len(words) - 1)


def to_words(
    weights: NDArray[np.floating],
    row_words: Sequence[Sequence[int]],
    column_words: Sequence[Sequence[int]],
) -> NDArray[np.float32]:
    """Weights between words, A'[i, j] = (1 / |rows i|) Σ_{t in rows i} Σ_{s in columns j} A[t, s].

    Shape: (..., T, S) to (..., words of the rows, words of the columns). Rows go on summing to 1
    where every piece of the columns is in one group. A word without pieces gives zeros.
    Raises ``IndexError`` where a group names a piece that is not there.
    """
    total, width = weights.shape[-2:]
    rows = np.zeros((len(row_words), total))
    for word, group in enumerate(row_words):
        rows[word, list(group)] = 1 / max(len(group), 1)
    columns = np.zeros((width, len(column_words)))
    for word, group in enumerate(column_words):
        columns[list(group), word] = 1
    merged: NDArray[np.float32] = (rows @ weights @ columns).astype(np.float32)
    return merged


# Joiners are part of a word between two letters or signs beyond ASCII (Persian, Hindi, emoji).
_JOINER = re.compile(r"(?<=[^\x00-\u0300])[\u200c\u200d](?=[^\x00-\u0300])")


def visible(label: str) -> str:
    """A label in which nothing is hidden: controls, joiners and bidi marks as signs.

    A newline becomes ``⟨U+000A⟩``, a zero-width space ``⟨U+200B⟩``, a label of nothing but spaces
    ``␣``, an empty one ``(empty)``. Letters of every script stay as they are.
    """
    if not label:
        return "(empty)"
    if label.isspace() and label.isprintable():
        return "␣" * len(label)
    kept = {match.start() for match in _JOINER.finditer(label)}
    return "".join(c if i in kept else _visible(c) for i, c in enumerate(label))


def _visible(character: str) -> str:
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp")
    return f"⟨U+{ord(character):04X}⟩" if hidden else character


# ----------------------------------------------------------------------------------------- drawing
# What a browser is given to draw: numbers, labels and words, never pixels of a finished picture.
#
# A view says its drawings; the page, the notebook and the studio draw them with the same code
# (``web/src/core``), whose types are generated from these. How each looks is said there.

STEPS = 65535  # a weight is kept as a whole number of these


def _shown(text: Any) -> Any:
    return visible(text) if isinstance(text, str) and text else text


# Texts of users: controls, joiners and bidi marks become signs, so that nothing in them hides.
Text = Annotated[str, pydantic.BeforeValidator(_shown)]
Label = Annotated[str, pydantic.BeforeValidator(lambda t: visible(t) if t == "" else _shown(t))]


class Part(pydantic.BaseModel):
    """A piece of a drawing; its JSON has camelCase names, as the code that reads it."""

    model_config = pydantic.ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        ser_json_inf_nan="null",
        json_schema_serialization_defaults_required=True,
    )


class Numbers(Part):
    """An array as base64 of little-endian numbers, or the place where its bytes are to be had.

    ``u16`` counts 1/65,535 (weights from 0 to 1; 0 is kept for 0); ``f32`` is float32, NaN a blank.
    """

    shape: tuple[int, ...]
    codec: Literal["u16", "f32"]
    data: str = ""
    url: str = ""

    @classmethod
    def weights(cls, values: NDArray[np.floating]) -> Numbers:
        """Weights from 0 to 1, each within 1/65,535 of the true one."""
        steps = np.rint(values.clip(0, 1) * np.float64(STEPS))
        steps[(values > 0) & (steps == 0)] = 1
        return cls(shape=values.shape, codec="u16", data=_base64(steps.astype("<u2")))

    @classmethod
    def exact(cls, values: NDArray[np.floating]) -> Numbers:
        """Any numbers, as float32."""
        return cls(shape=values.shape, codec="f32", data=_base64(values.astype("<f4")))


class Drawing(Part):
    """What every drawing has: a title, what it means in a sentence, and what had to be left out."""

    title: Text = ""
    caption: Text = ""
    notes: list[Text] = []


class Block(Part):
    """The maps of one block of a model: weights (H, T, S) of each layer, with one set of labels.

    ``row_means`` says whether a row is the word a decoder is ``producing`` or the one it is ``at``;
    ``kinds`` may call each head of each layer something (diagonal, sink …).
    """

    name: str
    row_means: Literal["producing", "at"] = "at"
    rows: list[Label]
    columns: list[Label]
    layers: list[Numbers]
    has_heads: bool = True
    kinds: list[list[str]] = []


class AttentionDrawing(Drawing):
    """Attention between words, layer by layer and head by head, and what is shown of it first.

    ``form``: ``matrix``, ``links`` (words joined by lines) or ``heads`` (all of a block in small).
    ``head`` absent is the mean of all. ``gold`` are true links (row, column), drawn as dots.
    """

    kind: Literal["attention"] = "attention"
    blocks: list[Block]
    form: Literal["matrix", "links", "heads"] = "matrix"
    block: str = ""  # the first where empty
    layer: int = -1
    head: int | None = None
    scale: Literal["row", "absolute"] = "row"
    gold: list[tuple[int, int]] = []


class SheetDrawing(Drawing):
    """Numbers (T, S) as colours, the first row on top; they diverge from white at 0 where ends do.

    ``told`` is what the ends are called where they are no numbers; ``cells`` are texts written
    into the cells; ``aspect`` is the height of a cell by its width.
    """

    kind: Literal["sheet"] = "sheet"
    values: Numbers
    rows: list[Label] = []
    columns: list[Label] = []
    down: str = ""
    across: str = ""
    least: float
    most: float
    told: str = ""
    aspect: float = 1.0
    cells: list[list[Text]] = []


class Curve(Part):
    """A line over the places of its drawing, with a band where its ends are known."""

    name: str
    y: list[float | None]
    low: list[float | None] = []
    high: list[float | None] = []


class Mark(Part):
    """A place on the axis with a name: where a forecast begins, a checkpoint was kept."""

    x: float
    label: str


class LinesDrawing(Drawing):
    """Lines over one axis, told apart by colour and dash."""

    kind: Literal["lines"] = "lines"
    x: list[float]
    curves: list[Curve]
    across: str = ""
    up: str = ""
    log: Literal["", "x", "y", "xy"] = ""
    labels: list[Label] = []  # of the places, where they are no numbers: dates, words
    marks: list[Mark] = []


class Series(Part):
    """The bars of one name, with the ends of their intervals where known."""

    name: str
    values: list[float | None]
    low: list[float | None] = []
    high: list[float | None] = []


class BarsDrawing(Drawing):
    """Bars for each label, beside each other where there are several series."""

    kind: Literal["bars"] = "bars"
    labels: list[Label]
    series: list[Series]
    up: str = ""
    across: str = ""


class Choice(Part):
    """A token that might have stood here, and its p."""

    text: Label
    p: float


class Word(Part):
    """A word or piece; ``value`` colours it, ``alternatives`` are shown when it is chosen.

    ``space`` says whether a space stands before it; ``note`` is what else there is to say of it.
    """

    text: Label
    value: float | None = None
    space: bool = True
    note: Text = ""
    alternatives: list[Choice] = []


class WordsDrawing(Drawing):
    """A text whose words have colours; ``told`` says what of. Signs of both kinds diverge at 0."""

    kind: Literal["words"] = "words"
    words: list[Word]
    told: str = ""
    least: float = 0.0
    most: float = 1.0


class Node(Part):
    """A beginning in the beam at one step: its last token, and the beginning that it extends."""

    id: int
    parent: int | None
    text: Label
    log_p: float
    score: float
    state: Literal["live", "done", "pruned"]


class LanesDrawing(Drawing):
    """A beam as it went: a column for each step, in it the beginnings, best first.

    ``best`` are the nodes of the answer.
    """

    kind: Literal["lanes"] = "lanes"
    steps: list[list[Node]]
    best: list[int] = []


class Overlay(Part):
    """Weights (rows, columns) over the cells of a picture."""

    title: Label
    weights: Numbers
    note: Text = ""


class PictureDrawing(Drawing):
    """A picture (a data URI), beside it what was looked at in it: weights on cells, or a path.

    ``path`` are middles of glimpses as (x, y) in pixels, ``sides`` the widths that they see.
    """

    kind: Literal["picture"] = "picture"
    image: str
    width: int
    height: int
    overlays: list[Overlay] = []
    scale: Literal["row", "absolute"] = "row"
    path: list[tuple[float, float]] = []
    sides: list[int] = []


class Module(Part):
    """A part of a model with its own parts; ``output`` is the shape of what it gives."""

    name: str
    does: str
    parameters: int
    output: str = ""
    parts: list[Module] = []


class ModelDrawing(Drawing):
    """A model as blocks in blocks, in the order in which data goes through them."""

    kind: Literal["model"] = "model"
    parts: list[Module]


class TableDrawing(Drawing):
    """Rows of figures or texts under the names of their columns."""

    kind: Literal["table"] = "table"
    columns: list[str]
    rows: list[list[Text | float | None]]


AnyDrawing = Annotated[
    AttentionDrawing | SheetDrawing | LinesDrawing | BarsDrawing | WordsDrawing | LanesDrawing
    | PictureDrawing | ModelDrawing | TableDrawing,
    pydantic.Field(discriminator="kind"),
]  # fmt: skip


def listed(values: Iterable[float] | NDArray[np.floating]) -> list[float | None]:
    """Numbers as JSON has them: what is not finite is absent."""
    return [float(value) if np.isfinite(value) else None for value in values]


def _base64(values: NDArray[np.generic]) -> str:
    return base64.b64encode(values.tobytes()).decode()


# ------------------------------------------------------------------------------------------ arrays
# The arrays of a drawing, wherever they stand in it: each replaced by where it is to be had.

P = TypeVar("P", bound=Part)


def changed(part: P, change: Callable[[Numbers], Numbers]) -> P:
    """A part whose arrays, its own and those of its parts, are what ``change`` makes of them."""

    def of(value: Any) -> Any:
        if isinstance(value, Numbers):
            return change(value)
        if isinstance(value, Part):
            return changed(value, change)
        return [of(one) for one in value] if isinstance(value, list) else value

    return part.model_copy(update={name: of(value) for name, value in part})
