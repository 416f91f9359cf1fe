"""Drawings: what can be drawn, as exact data, from which every renderer makes its output.

A drawing is drawn by matplotlib (`foveate.draw.figures`), as text
(`foveate.draw.terminal`), and by a browser from its JSON (``web/src/core``, whose types are
generated from these classes). The JSON is the only place where numbers are rounded and encoded.
"""

from __future__ import annotations

import base64
import html
import importlib
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import numpy as np
import pydantic
from numpy.typing import NDArray
from pydantic import Field, PlainSerializer
from pydantic.alias_generators import to_camel

from foveate.errors import UserError
from foveate.files import replace_file
from foveate.inspect.words import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.floating]
Arrays = dict[str, NDArray[np.generic]]
Bands = Mapping[str, tuple[Floats, Floats]]  # lower and upper ends
Cell = str | float | None
STEPS = 65535  # the JSON rounds a weight to a whole number of these
NOTEBOOK_LIMIT = 2_000_000  # bytes of HTML in an output cell; above, the notebook gets the PNG


def listed(values: Iterable[float | None]) -> list[float | None]:
    """Numbers as JSON has them: what is not finite is absent."""
    return [float(v) if v is not None and np.isfinite(v) else None for v in values]


def shown(cell: Cell) -> Cell:
    """A text in which nothing is hidden; a number, or an empty text, as it is."""
    return visible(cell) if isinstance(cell, str) and cell else cell


def data_uri(pixels: NDArray[np.uint8] | str) -> str:
    """A picture (C, H, W) as the data URI of a PNG."""
    from matplotlib.image import imsave

    if isinstance(pixels, str):
        return pixels
    file = io.BytesIO()
    colours = np.broadcast_to(pixels, (3, *pixels.shape[1:])).transpose(1, 2, 0)
    imsave(file, np.ascontiguousarray(colours), format="png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _joined(text: str) -> str:
    return str(shown(text.replace("\n", " ")))


def _table_cell(cell: Cell) -> Cell:
    if cell is None or isinstance(cell, str):
        return shown(cell)
    if np.isfinite(cell):
        return float(cell)
    return "NaN" if np.isnan(cell) else "∞" if cell > 0 else "−∞"


def finite(value: object) -> object:
    """A value of JSON, which has no words for NaN (here null) and infinity (here a text)."""
    if isinstance(value, list):
        return [finite(each) for each in value]
    if not isinstance(value, float) or np.isfinite(value):
        return value
    return None if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _no_values() -> Floats:
    return np.zeros(0)


# Texts of users: the JSON writes controls, joiners and bidi marks as signs.
Text = Annotated[str, PlainSerializer(shown, return_type=str)]
Lines = Annotated[str, PlainSerializer(_joined, return_type=str)]  # browsers cut lines themselves
Label = Annotated[str, PlainSerializer(visible, return_type=str)]
# Numbers and arrays stay what they are until they are written.
_as_is = pydantic.PlainValidator(lambda values: values)
TableCell = Annotated[Cell, _as_is, PlainSerializer(_table_cell, return_type=Cell)]
Places = Annotated[
    Floats, _as_is, PlainSerializer(lambda places: [*map(float, places)], return_type=list[float])
]
Values = Annotated[Floats, _as_is, PlainSerializer(listed, return_type=list[float | None])]
Pixels = Annotated[NDArray[np.uint8], _as_is, PlainSerializer(data_uri, return_type=str)]


class DrawingPart(pydantic.BaseModel):
    """A piece of a drawing; its JSON has camelCase names, as the code that reads it."""

    model_config = pydantic.ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        arbitrary_types_allowed=True,
        ser_json_inf_nan="null",
        json_schema_serialization_defaults_required=True,
    )


class Numbers(DrawingPart):
    """An array as base64 of little-endian numbers, or the URL from which its bytes are read.

    ``u16`` counts 1/65,535 (weights from 0 to 1; 0 stands for 0 alone); ``f32`` is float32, NaN a
    blank.
    """

    shape: tuple[int, ...]
    codec: Literal["u16", "f32"]
    data: Annotated[Floats | str, _as_is] = ""
    url: str = ""

    @pydantic.field_serializer("data")
    def _base64(self, data: Floats | str) -> str:
        return data if isinstance(data, str) else base64.b64encode(self.bytes()).decode()

    @classmethod
    def weights(cls, values: Floats) -> Numbers:
        """Weights from 0 to 1; the JSON has each within 1/65,535 of the true value."""
        return cls(shape=values.shape, codec="u16", data=values)

    @classmethod
    def exact(cls, values: Floats) -> Numbers:
        """Any numbers; the JSON has them as float32."""
        return cls(shape=values.shape, codec="f32", data=values)

    @property
    def array(self) -> Floats:
        """The numbers: exact, or as the JSON had them. Raises ``TypeError`` for those at a URL."""
        if not isinstance(self.data, str):
            return self.data
        if self.url:
            raise TypeError(f"the numbers are at {self.url}, not here")
        numbers = np.frombuffer(self.bytes(), "<u2" if self.codec == "u16" else "<f4")
        return numbers.reshape(self.shape) / np.float32(STEPS if self.codec == "u16" else 1)

    def bytes(self) -> bytes:
        """The numbers as the JSON encodes them, before base64."""
        if isinstance(self.data, str):
            return base64.b64decode(self.data)
        if self.codec == "f32":
            return self.data.astype("<f4").tobytes()
        steps = np.rint(self.data.clip(0, 1) * np.float64(STEPS))
        steps[(self.data > 0) & (steps == 0)] = 1
        return steps.astype("<u2").tobytes()


P = TypeVar("P", bound=DrawingPart)


def changed(part: P, change: Callable[[Numbers], Numbers]) -> P:
    """A part whose `Numbers`, its own and those of its parts, are what ``change`` makes of them."""

    def of(value: object) -> object:
        if isinstance(value, Numbers):
            return change(value)
        if isinstance(value, DrawingPart):
            return changed(value, change)
        return [of(each) for each in value] if isinstance(value, list) else value

    return part.model_copy(update={name: of(value) for name, value in part})


class Drawing(DrawingPart):
    """What every drawing has: a title, what it means in a sentence, and what had to be left out."""

    title: Text = ""
    caption: Lines = ""
    notes: list[Text] = []

    def arrays(self) -> Arrays:
        """What is drawn, by name: numbers, and the labels of their axes."""
        raise NotImplementedError(f"{type(self).__name__} is drawn by browsers alone")

    def drawings(self) -> list[Drawing]:
        """The drawings of which a browser makes the same picture."""
        return [self]

    def figure(self) -> Figure:
        """The drawing as a matplotlib figure of its own, unknown to ``pyplot`` and to windows."""
        made: Figure = _module("figures").figure(self)
        return made

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw into the axes, or into those of a new figure, and return them."""
        if ax is None:
            return self.figure().axes[0]
        _module("figures").draw(self, ax)
        return ax

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """The drawing for a terminal of ``width`` columns (`foveate.draw.terminal`)."""
        return str(_module("terminal").text(self, width, color))

    def webp(self) -> bytes:
        """The drawing as a WebP picture; a film as an animated one."""
        return _picture("webp")(self)

    def html(self) -> str:
        """The drawing as one page that needs no network, no library and no other file."""
        return str(_module("page").drawn(self.drawings(), self.title))

    def widget(self) -> object:
        """An ``anywidget.AnyWidget`` of the drawing; its trait ``selection`` is what is chosen.

        A notebook that is saved and opened without its kernel shows the page in its place. Raises
        ``ModuleNotFoundError`` where anywidget (the extra ``widget``) is not installed.
        """
        live: object = _module("page").widget(self.drawings(), saved=self._repr_mimebundle_())
        return live

    def save(self, path: str | Path) -> Path:
        """Write the drawing in the format that the ending names, and return the path.

        Raises `UserError` naming the endings that exist.
        """
        path = Path(path)
        if path.suffix.lower() not in WRITERS:
            raise UserError(
                f"{path}: no picture is written as {path.suffix or 'a name without ending'!r}; "
                f"end the name in {', '.join(WRITERS)}"
            )
        replace_file(path, WRITERS[path.suffix.lower()](self))
        return path

    def __repr__(self) -> str:
        return self.text()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """For notebooks: the page in a frame where it is small enough, a PNG, a text.

        The page works without a kernel or a network: saved notebooks show it too.
        """
        bundle = {"text/plain": self.text(color=False)}
        bundle["image/png"] = base64.b64encode(_picture("png")(self)).decode()
        page = self.html()
        if len(page.encode()) <= NOTEBOOK_LIMIT:
            bundle["text/html"] = (
                f'<iframe srcdoc="{html.escape(page)}" sandbox="allow-scripts allow-downloads" '
                'style="width:100%;height:780px;border:0" title="what is drawn"></iframe>'
            )
        return bundle


def _module(name: str) -> ModuleType:
    """A renderer: it imports the classes of this module, which knows it by name alone."""
    return importlib.import_module(f"foveate.draw.{name}")


def _picture(form: str) -> Callable[[Drawing], bytes]:
    def write(drawing: Drawing) -> bytes:
        content: bytes = _module("figures").picture_bytes(drawing.figure(), form)
        return content

    return write


def _json(drawing: Drawing) -> bytes:
    arrays = {name: finite(array.tolist()) for name, array in drawing.arrays().items()}
    text = json.dumps(arrays, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace")


def _npz(drawing: Drawing) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **drawing.arrays())  # type: ignore[arg-type]
    return file.getvalue()


WRITERS: dict[str, Callable[[Drawing], bytes]] = {
    ".png": _picture("png"),
    ".svg": _picture("svg"),
    ".pdf": _picture("pdf"),
    ".webp": lambda drawing: drawing.webp(),
    ".html": lambda drawing: drawing.html().encode(),
    ".json": _json,
    ".npz": _npz,
    ".txt": lambda drawing: (drawing.text(width=100, color=False) + "\n").encode(),
}


# --------------------------------------------------------------------------- attention and sheets


class Block(DrawingPart):
    """The maps of one block of a model: weights (H, T, S) of each layer, with one set of labels.

    ``row_means`` says whether a row is the word a decoder is ``producing`` or the word it is
    ``at``; ``kinds`` may name what each head of each layer does (diagonal, sink …).
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
    scale: Literal["row", "absolute"] = "absolute"
    gold: list[tuple[int, int]] = []


class SheetDrawing(Drawing):
    """Numbers (T, S) as colours, the first row on top; they diverge from white at 0 where ends do.

    NaN stays blank. ``cells`` are texts that stand in the cells, ``told`` says what the ends are
    where they should not be numbers. ``aspect`` is the height of a cell by its width.
    """

    kind: Literal["sheet"] = "sheet"
    values: Numbers
    rows: list[Label] = []
    columns: list[Label] = []
    down: str = ""  # what the rows are
    across: str = ""  # what the columns are
    least: float
    most: float
    scale_label: str = Field("", alias="told")
    aspect: float = 1.0
    cells: list[list[Text]] = []

    @property
    def legend(self) -> str:
        """What the colours mean, in words."""
        ends = (f"{end + 0.0:.3g}".replace("-", "−") for end in (self.least, self.most))
        return self.scale_label or " … ".join(ends)

    @property
    def heading(self) -> str:
        """What is written above."""
        return "\n".join(part for part in (self.title, self.legend) if part.strip())

    @property
    def marked(self) -> bool:
        """Whether the axes say which row and column a cell is of: only where they have a name."""
        return bool(self.down or self.across or self.rows or self.columns)

    def arrays(self) -> Arrays:
        return {self.title: self.values.array}


def sheet(
    title: str, values: Floats, rows: Sequence[str] = (), columns: Sequence[str] = (),
    down: str = "", across: str = "", least: float | None = None, most: float | None = None,
    aspect: float = 1.0, scale_label: str = "", written: bool = False,
) -> SheetDrawing:  # fmt: skip
    """A sheet of numbers (T, S); the ends of the colours are those of the values where absent.

    0 is in the middle of the colours where ends have different signs. With ``written`` the numbers
    stand in their cells.
    """
    known = values[np.isfinite(values)] if np.isfinite(values).any() else np.zeros(1)
    least = float(known.min()) if least is None else least
    most = float(known.max()) if most is None else most
    if least < 0 < most:
        most = max(most, -least)
        least = -most
    cells = [["" if np.isnan(v) else f"{v:.2f}" for v in row] for row in values]
    return SheetDrawing(
        title=title, values=Numbers.exact(values), rows=list(rows), columns=list(columns),
        down=down, across=across, least=least, most=most, aspect=aspect,
        scale_label=scale_label, cells=cells if written else [],
    )  # fmt: skip


class LensDrawing(SheetDrawing):
    """The most probable token of each layer (rows) at each place, and its p as the colour.

    ``tokens[l][t]`` has p = values[l, t]; ``target_p`` (L + 1, T) is p of what was produced.
    """

    tokens: list[list[str]] = Field(exclude=True)
    target_p: NDArray[np.float64] = Field(exclude=True)

    def arrays(self) -> Arrays:
        return {
            "tokens": np.array(self.tokens),
            "p": self.values.array,
            "p of what was produced": self.target_p,
            "produced": np.array(self.columns),
        }


class SheetGrid(Drawing):
    """Sheets in rows of ``across``, each with colours of its own ends."""

    sheets: list[SheetDrawing]
    across: int = 2

    def arrays(self) -> Arrays:
        return {sheet.title: sheet.values.array for sheet in self.sheets}

    def drawings(self) -> list[Drawing]:
        titles = [" · ".join(part for part in (self.title, s.title) if part) for s in self.sheets]
        captions = [""] * (len(self.sheets) - 1) + [self.caption]
        return [
            sheet.model_copy(update={"title": title, "caption": caption})
            for sheet, title, caption in zip(self.sheets, titles, captions, strict=True)
        ]


# -------------------------------------------------------------------------------- lines and bars


class Curve(DrawingPart):
    """A line over the places of its drawing, with a band where its ends are known.

    Curves of one ``hue`` belong together (of a run, for example); absent it is the curve's number.
    A ``faint`` curve stands behind its smoothed one.
    """

    name: str
    y: Values
    low: Values = Field(default_factory=_no_values)
    high: Values = Field(default_factory=_no_values)
    hue: int | None = None
    faint: bool = False


class Mark(DrawingPart):
    """A place on the axis with a name: where a forecast begins, a checkpoint was written."""

    x: float
    label: str


class LinesDrawing(Drawing):
    """Lines over one axis ``x`` (N,), with own colours and dashes; NaN where there is no value.

    ``across`` and ``up`` are what the axes are, ``log`` which of them are logarithmic. Points are
    ``joined`` by lines unless there is nothing between them. ``ends`` are those of the axis across
    where it is longer than ``x``.
    """

    kind: Literal["lines"] = "lines"
    x: Places
    curves: list[Curve]
    joined: bool = True
    ends: tuple[float, float] | None = None
    across: str = ""
    up: str = ""
    log: Literal["", "x", "y", "xy"] = ""
    labels: list[Label] = []  # of the places, where they are no numbers: dates, words
    marks: list[Mark] = []

    def arrays(self) -> Arrays:
        arrays: Arrays = {"x": np.asarray(self.x)}
        arrays |= {curve.name: np.asarray(curve.y) for curve in self.curves}
        arrays |= _band_arrays(self.curves)
        return arrays | ({"labels": np.array(self.labels)} if self.labels else {})

    def drawings(self) -> list[Drawing]:
        infinite = [f"{c.name}: {n}" for c in self.curves if (n := int(np.isinf(c.y).sum()))]
        notes = [f"infinite, not drawn: {', '.join(infinite)}"] if infinite else []
        update = {"title": self.title or self.up, "notes": [*self.notes, *notes]}
        return [self.model_copy(update=update)]

    def looks(self) -> list[tuple[int, int]]:
        """The numbers of the hue and of the dash of each curve.

        Dashes tell the curves of one hue apart, and hues where each curve has its own.
        """
        hues = [k if curve.hue is None else curve.hue for k, curve in enumerate(self.curves)]
        clear = [hue for hue, curve in zip(hues, self.curves, strict=True) if not curve.faint]
        several, seen, looks = len(set(clear)) < len(clear), dict.fromkeys(hues, 0), []
        for hue, curve in zip(hues, self.curves, strict=True):
            looks.append((hue, 0 if curve.faint else seen[hue] if several else hue))
            seen[hue] += not curve.faint
        return looks


def line_chart(
    x: Floats, curves: Mapping[str, Floats], across: str = "", up: str = "", title: str = "",
    log: Literal["", "x", "y", "xy"] = "", bands: Bands | None = None, labels: Sequence[str] = (),
    marks: Mapping[str, float] | None = None, caption: str = "", joined: bool = True,
) -> LinesDrawing:  # fmt: skip
    """A line for each name over the same places; ``marks`` are places with names."""
    return LinesDrawing(
        title=title, caption=caption, x=x, across=across, up=up, log=log, labels=list(labels),
        joined=joined,
        curves=[Curve(name=name, y=y, **_band(bands, name)) for name, y in curves.items()],
        marks=[Mark(x=place, label=label) for label, place in (marks or {}).items()],
    )  # fmt: skip


def _band(bands: Bands | None, name: str) -> dict[str, Floats]:
    return dict(zip(("low", "high"), (bands or {}).get(name, ()), strict=False))


def _band_arrays(parts: Sequence[Curve] | Sequence[BarSeries]) -> Arrays:
    arrays: Arrays = {}
    for part in parts:
        if len(part.low):
            arrays[f"{part.name}, low"] = np.asarray(part.low)
            arrays[f"{part.name}, high"] = np.asarray(part.high)
    return arrays


class StatesDrawing(LinesDrawing):
    """The path (T, K) of a layer's states over the words that were read; its lines are components.

    ``shares`` (K,) are those of the variance.
    """

    path: NDArray[np.float64] = Field(exclude=True)
    shares: NDArray[np.float64] = Field(exclude=True)

    def arrays(self) -> Arrays:
        return {"path": self.path, "shares": self.shares, "words": np.array(self.labels)}


class PanelGrid(Drawing):
    """Drawings of lines side by side, ``across`` in a row."""

    panels: list[LinesDrawing]
    across: int = 2

    def arrays(self) -> Arrays:
        return {
            f"{panel.title or panel.up}: {name}": array
            for panel in self.panels
            for name, array in panel.arrays().items()
        }

    def drawings(self) -> list[Drawing]:
        return [drawing for panel in self.panels for drawing in panel.drawings()]


class ForecastDrawing(Drawing):
    """Lines over time with, below the time axis, a strip of the attention to each place.

    ``strip`` (1, T) has a cell for each place of the lines, NaN where there is nothing to attend
    to; None for a model without attention.
    """

    lines: LinesDrawing
    strip: SheetDrawing | None = None

    def arrays(self) -> Arrays:
        strip = {} if self.strip is None else {"looked at": self.strip.values.array}
        return self.lines.arrays() | strip

    def drawings(self) -> list[Drawing]:
        return [*self.lines.drawings(), *([] if self.strip is None else [self.strip])]


class BarSeries(DrawingPart):
    """The bars of one name, with the ends of their intervals where known."""

    name: str
    values: Values
    low: Values = Field(default_factory=_no_values)
    high: Values = Field(default_factory=_no_values)


class BarsDrawing(Drawing):
    """Bars for each label, beside each other where there are several series; NaN is no bar.

    ``at`` is a value that bars are compared with, a dashed line.
    """

    kind: Literal["bars"] = "bars"
    labels: list[Label]
    series: list[BarSeries]
    up: str = ""
    across: str = ""
    at: float | None = None

    def arrays(self) -> Arrays:
        arrays: Arrays = {"labels": np.array(self.labels)}
        arrays |= {series.name: np.asarray(series.values) for series in self.series}
        return arrays | _band_arrays(self.series)


def bar_chart(
    labels: Sequence[str], series: Mapping[str, Floats], up: str = "", title: str = "",
    caption: str = "", bands: Bands | None = None, at: float | None = None,
) -> BarsDrawing:  # fmt: skip
    """A bar of each series for each label; ``bands`` are intervals around the bars of a name."""
    bars = [BarSeries(name=name, values=y, **_band(bands, name)) for name, y in series.items()]
    return BarsDrawing(title=title, caption=caption, labels=list(labels), series=bars, up=up, at=at)


# -------------------------------------------------------------------------------- words and beams


class Choice(DrawingPart):
    """A token that might have stood here, and its p."""

    text: Label
    p: float


class Word(DrawingPart):
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
    legend: str = Field("", alias="told")
    least: float = 0.0
    most: float = 1.0

    def arrays(self) -> Arrays:
        values = [np.nan if word.value is None else word.value for word in self.words]
        arrays: Arrays = {
            "words": np.array([visible(word.text) for word in self.words]),
            "values": np.array(values),
        }
        count = min((len(word.alternatives) for word in self.words), default=0)
        if count:
            ranked = [word.alternatives[:count] for word in self.words]
            arrays["alternatives"] = np.array([[visible(c.text) for c in row] for row in ranked])
            arrays["p"] = np.array([[choice.p for choice in row] for row in ranked])
        return arrays


class Node(DrawingPart):
    """A partial hypothesis of a beam at one step: its last token, and the one that it extends."""

    id: int
    parent: int | None
    text: Label
    log_p: float
    score: float
    state: Literal["live", "done", "pruned"]


class LanesDrawing(Drawing):
    """A beam search: a column for each step, in it the partial hypotheses, best first.

    ``best`` are the nodes of the answer.
    """

    kind: Literal["lanes"] = "lanes"
    steps: list[list[Node]]
    best: list[int] = []

    def arrays(self) -> Arrays:
        """A row for each node: step, id, parent (−1 for none), log p, score, state, text."""
        rows = [(number, node) for number, step in enumerate(self.steps) for node in step]
        parents = [-1 if node.parent is None else node.parent for _, node in rows]
        return {
            "step": np.array([number for number, _ in rows], dtype=np.int64),
            "id": np.array([node.id for _, node in rows], dtype=np.int64),
            "parent": np.array(parents, dtype=np.int64),
            "log_p": np.array([node.log_p for _, node in rows]),
            "score": np.array([node.score for _, node in rows]),
            "state": np.array([node.state for _, node in rows]),
            "text": np.array([visible(node.text) for _, node in rows]),
            "best": np.array(self.best, dtype=np.int64),
        }


LANES_CAPTION = (
    "each column is a step, best beginning on top; thick is the answer, ■ has ended, "
    "grey and dashed was dropped; numbers are scores"
)


def lanes(
    steps: Sequence[Sequence[Node]], best: Sequence[int] = (), title: str = ""
) -> LanesDrawing:
    """A drawing of a beam. Raises ``ValueError`` where a node extends one that no step has."""
    known: set[int] = set()
    for step in steps:
        for node in step:
            if node.parent is not None and node.parent not in known:
                raise ValueError(f"node {node.id} extends {node.parent}, which no step before has")
        known |= {node.id for node in step}
    if lost := set(best) - known:
        raise ValueError(f"the answer has nodes that no step has: {sorted(lost)}")
    columns = [list(step) for step in steps]
    return LanesDrawing(title=title, caption=LANES_CAPTION, steps=columns, best=list(best))


# --------------------------------------------------------------------------- pictures and tables


class Overlay(DrawingPart):
    """Weights (rows, columns) over the cells of a picture."""

    title: Label
    weights: Numbers
    note: Text = ""


class PictureDrawing(Drawing):
    """A picture (C, H, W) and the attention to it: weights on its cells, or a path of glimpses.

    ``path`` are middles of glimpses as (x, y) in pixels, ``sides`` the widths that they see, one
    for each scale.
    """

    kind: Literal["picture"] = "picture"
    pixels: Pixels = Field(alias="image")
    width: int
    height: int
    overlays: list[Overlay] = []
    scale: Literal["row", "absolute"] = "row"
    path: list[tuple[float, float]] = []
    sides: list[int] = []

    def arrays(self) -> Arrays:
        return {
            "picture": self.pixels,
            "places": np.array(self.path, np.float32).reshape(-1, 2),
            "sides": np.array(self.sides),
            "title": np.array(self.title),
        }


def picture_drawing(
    pixels: NDArray[np.uint8], title: str = "", places: Floats | None = None,
    sides: Sequence[int] = (),
) -> PictureDrawing:  # fmt: skip
    """A picture (C, H, W), with a path of glimpses whose middles are ``places`` (T, 2)."""
    _, height, width = pixels.shape
    path = [] if places is None else [(float(x), float(y)) for x, y in places]
    return PictureDrawing(
        title=title, pixels=pixels, width=width, height=height, path=path, sides=list(sides)
    )


class TableDrawing(Drawing):
    """Rows under the names of their columns; numbers stand at the right, texts at the left."""

    kind: Literal["table"] = "table"
    columns: list[str]
    rows: list[list[TableCell]]

    def arrays(self) -> Arrays:
        across = zip(self.columns, zip(*self.rows, strict=True), strict=True)
        return {name: np.array(cells) for name, cells in across}
