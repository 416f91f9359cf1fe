"""The whole forward pass as a film: its frames beside the model's blocks, and its rendering.

The browser's renderer is ``web/src/core/forward.ts``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal

import numpy as np
from pydantic import Field

from foveate.config import ConfigError
from foveate.errors import UserError
from foveate.look.draw.blocks import ModelBlock, ModelPart, blocks_of, equation_of, parts_of
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.parts import Arrays, DrawingPart, Floats, Label, Numbers, Text
from foveate.look.draw.terminal import SHADES, cut
from foveate.look.forward import GRADIENT, OF_WEIGHTS, ForwardFrame, frames
from foveate.look.hooks import ForcedPass
from foveate.look.records import spaced
from foveate.look.stages import traced

MOST_TOKENS = 10  # of the vocabulary, the most probable at each position
SHADED = 32  # characters of a strip in a terminal


CAPTION = (
    "Captured in one forward pass; weighted values, sums of mask and score, positions and the "
    "softmax are computed from captured numbers."
)
BACK = " Gradients are those of autograd, of this example alone."
CITED = re.compile(r",?( added)? \([^()]*\d{4}[^()]*\)\.?")  # the source of an equation


class FrameDrawing(DrawingPart):
    """A frame of a forward pass: its numbers (H, T, N), or (H, T, S, N) of weighted values.

    ``rows`` and ``columns`` name the ``places`` that label them. Of logits and probabilities the
    largest of each position are here, named by ``tokens``; so are losses and gradients. ``reads``
    are the numbers of the frames that it is computed from, ``shape`` is that of the whole frame.
    """

    title: Text
    block: str
    label: Label
    equation: Text
    shape: list[int]
    values: Numbers
    rows: str = ""
    columns: str = ""
    tokens: list[list[Label]] = Field(default_factory=list)
    reads: list[int]
    least: float
    most: float

    def at(self, head: int, row: int) -> Floats:
        """Return the numbers of one head at one position, (N,) or (S, N)."""
        values = self.values.array
        numbers: Floats = values[min(head, len(values) - 1), min(row, values.shape[1] - 1)]
        return numbers


class ForwardDrawing(Drawing):
    """Every stage of one forward pass, in order; ``query`` and ``head`` are shown first.

    ``places`` are the positions of each part of the model, named by what it reads there, and
    ``produced`` what comes of them. Pictures and terminals show one position and one head, and
    where it is an ``excerpt`` only the frames of the ``stops``, at which a lecture halts.
    """

    kind: Literal["forward"] = "forward"
    parts: list[ModelPart]
    frames: list[FrameDrawing]
    places: dict[str, list[Label]]
    produced: dict[str, list[Label]]
    head: int = 0
    query: int = 0
    stops: list[int] = Field(default_factory=lambda: [0])
    excerpt: bool = False

    def arrays(self) -> Arrays:
        """Return each frame by number, block and name; logits and probabilities with tokens."""
        arrays: Arrays = {}
        for number, frame in enumerate(self.frames):
            name = f"{number} {frame.block}: {frame.title}"
            arrays[name] = frame.values.array
            if frame.tokens:
                arrays[f"{name}, tokens"] = np.array(frame.tokens)
        places = {f"positions of {part}": np.array(words) for part, words in self.places.items()}
        return arrays | places

    @property
    def heading(self) -> str:
        """The title, and the position that is shown."""
        shown = (f"{part}: {self.named(part, self._row(part))}" for part in self.places)
        at = f" ({', '.join(shown)}; head {self.head})"
        return self.title + at * any(self.frames[k].rows for k in self.stops)

    def named(self, part: str, row: int) -> str:
        """Return a position's label: the token that is read there and the one that it produces."""
        produced = self.produced.get(part)
        return self.places[part][row] + (f" → {produced[row]}" if produced else "")

    def _row(self, part: str) -> int:
        return min(self.query, len(self.places.get(part, [""])) - 1)

    def _words(self, frame: FrameDrawing) -> Sequence[str]:
        """Return the labels of a frame's numbers at a position; none for features."""
        if frame.tokens:
            return frame.tokens[min(self._row(frame.rows), len(frame.tokens) - 1)]
        return self.places.get(frame.columns, ()) if frame.values.array.ndim == 3 else ()

    def _blocks(self) -> Iterator[tuple[str, list[tuple[int, FrameDrawing]]]]:
        """Yield the frames of each block under its name, with their numbers."""
        numbers = self.stops if self.excerpt else range(len(self.frames))
        shown = ((number + 1, self.frames[number]) for number in numbers)
        for (block, label), run in groupby(shown, lambda each: (each[1].block, each[1].label)):
            part = block.split(".")[0]
            yield part if part == label else f"{part} · {label}", [*run]

    def _strip(self, frame: FrameDrawing) -> Floats:
        """Return the numbers of a frame at the position shown, as rows."""
        values = frame.at(self.head, self._row(frame.rows))
        return values if values.ndim == 2 else values[None]

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """Return a line for each frame: its name, a strip in shades, its first numbers or words."""
        room = max(20, (width or 120) - SHADED - 28)
        lines = [self.heading]
        for heading, run in self._blocks():
            lines += ["", heading]
            for number, frame in run:
                strip, words = self._strip(frame), self._words(frame)
                if len(strip) > 1:
                    written = f"{len(strip)} keys × {strip.shape[1]} numbers"
                elif words:
                    order = np.argsort(-strip[0], kind="stable") if frame.most == 1 else range(9)
                    pairs = [(words[k], strip[0, k]) for k in order if k < len(words)]
                    written = "  ".join(f"{cut(word, 24)} {_number(p, frame)}" for word, p in pairs)
                else:
                    written = " ".join(_number(x, frame) for x in strip[0, :16])
                shades = "" if len(strip) > 1 else _shaded(strip[0], frame)
                lines.append(f"{number:>3} {frame.title:<19} {shades:<{SHADED}}  {written[:room]}")
                lines.append(f"    {frame.equation}")
        return "\n".join([*lines, "", self.caption_in(width), *self.notes]).rstrip()


def _number(value: float, frame: FrameDrawing) -> str:
    if not np.isfinite(value):
        return "−∞" if value < 0 else "∞"
    whole = float(value).is_integer() and abs(value) >= 100
    digits = "0f" if whole else "2g" if frame.title.startswith(GRADIENT) else "2f"
    return f"{value:.{digits}}".replace("-", "−")


def _shaded(values: Floats, frame: FrameDrawing) -> str:
    """Return a strip as characters by size; several numbers share one by their largest."""
    parts = np.array_split(np.abs(np.nan_to_num(values, neginf=0)), min(SHADED, len(values)))
    most = max(frame.most, -frame.least) or 1
    steps = [int(part.max() / most * len(SHADES)) for part in parts]
    return "".join(SHADES[min(step, len(SHADES) - 1)] for step in steps)


def forward(
    forced: ForcedPass,
    title: str = "",
    head: int = 0,
    query: int = 0,
    block: str = "",
    train: bool = False,
) -> ForwardDrawing:
    """Draw a forced pass: the frames of a ``block``, a dotted name, or all of them.

    With ``train``, draw the loss and its gradient, going back. Raises ``ConfigError`` for a head or
    a query beyond the last.
    """
    trace = traced(forced, train)
    film = frames(forced, blocks_of(forced.model), equation_of, train, trace)
    places = places_of(forced, film)
    produced = {part: produced_of(forced, places[part]) for part in places if part == "decoder"}
    heads = max((len(frame.values) for frame in film), default=1)
    longest = max(map(len, places.values()), default=1)
    if head >= heads:
        raise ConfigError(f"head {head} does not exist: there are {heads}, counting from 0")
    if query >= longest:
        raise ConfigError(f"--query {query}: there are {longest}, from 0 to {longest - 1}")
    parts = parts_of(forced.model, forced, trace)
    blocks = {block.name: block for part in parts for block in part.blocks}
    fewer = not train and forced.token is not None and any(x.name == "logits" for x in film)
    return ForwardDrawing(
        title=title, caption=CAPTION + BACK * train, parts=parts, places=places,
        notes=[f"logits and softmax: the {MOST_TOKENS} most probable of each position"] * fewer,
        frames=[_frame(frame, blocks, forced, places) for frame in film], produced=produced,
        head=head, query=query, excerpt=train or bool(block),
        stops=_stops(film, blocks, block, train),
    )  # fmt: skip


def _stops(
    film: Sequence[ForwardFrame], blocks: dict[str, ModelBlock], block: str, train: bool
) -> list[int]:
    """Return the frames at which a lecture halts: all of a block.

    Otherwise they are the weights of each attention and the last frame of each other block in the
    first layer; going back, the loss and the first frame of each block. Norms are skipped.
    """
    start = next((k for k, frame in enumerate(film) if frame.name == "loss"), len(film))
    shown = range(start, len(film)) if train else range(start)
    if block:
        return [k for k in shown if film[k].block == block]
    stops = [start] * train
    for name, run in groupby(shown, key=lambda k: film[k].block):
        numbers, layer = [*run], blocks[name].layer if name in blocks else None
        if film[numbers[-1]].name.endswith("norm") or (layer and not train):
            continue
        weights = next((k for k in numbers if film[k].name == "weights"), numbers[-1])
        stops.append(numbers[0] if train and numbers[0] > start else weights)
    return list(dict.fromkeys(stops))


def _frame(
    frame: ForwardFrame,
    blocks: dict[str, ModelBlock],
    forced: ForcedPass,
    places: dict[str, list[str]],
) -> FrameDrawing:
    def label(name: str) -> str:
        return blocks[name].label if name in blocks else spaced(name.split(".")[-1])

    values, tokens = frame.values, list[list[str]]()
    if frame.name in ("logits", "softmax") and forced.token is not None:
        order = np.argsort(-values[0], axis=-1, kind="stable")[:, :MOST_TOKENS]
        tokens = [[forced.token(int(i)) for i in row] for row in order]
        values = np.take_along_axis(values[0], order, axis=-1)[None]
    elif frame.name == OF_WEIGHTS:
        tokens = [[f"{name.split('.')[0]} · {label(name)}" for name in frame.names]]
    elif frame.most is not None:
        own = range(values.shape[-1])
        tokens = [[*frame.names] or places.get(frame.columns) or [*map(str, own)]]
    far = max(float(np.abs(values[np.isfinite(values)]).max(initial=0)), 1e-12)
    share = frame.name in ("weights", "softmax") or frame.name.endswith(" gate")
    positive = share or not (values < 0).any()
    return FrameDrawing(
        title=frame.name, block=frame.block, label=label(frame.block),
        equation=CITED.sub("", frame.equation), shape=list(frame.values.shape),
        values=Numbers.exact(values),
        rows=frame.rows, columns=frame.columns, tokens=tokens, reads=list(frame.reads),
        least=0.0 if positive else -far, most=frame.most or (1.0 if share else far),
    )  # fmt: skip


def places_of(forced: ForcedPass, film: Sequence[ForwardFrame]) -> dict[str, list[str]]:
    """Return the words of each part's positions, else its labels in attention, else numbers."""
    counts = {frame.rows: frame.values.shape[1] for frame in reversed(film) if frame.rows}
    parts = dict.fromkeys(frame.rows for frame in film if frame.rows)
    return {part: forced.words(part, counts[part], _labels(forced, film, part)) for part in parts}


def produced_of(forced: ForcedPass, words: Sequence[str]) -> list[str]:
    """Return what each decoder position produces: its next input, if nothing is scored."""
    after = dict(enumerate(forced.produced, start=forced.first))
    return [after.get(t, ([*words, ""])[t + 1]) for t in range(len(words))]


def _labels(forced: ForcedPass, film: Sequence[ForwardFrame], part: str) -> list[str]:
    """Return the labels of the keys in an attention to a part."""
    for frame in film:
        if frame.name == "weights" and frame.columns == part:
            try:
                return forced.label({frame.block: frame.values}, "tokens").labels(frame.block)[1]
            except UserError:
                return []
    return []
