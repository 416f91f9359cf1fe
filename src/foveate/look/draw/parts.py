"""Parts of drawings: numbers and texts, exact until the JSON rounds and encodes them."""

from __future__ import annotations

import base64
import io
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Literal, TypeVar

import numpy as np
import pydantic
from numpy.typing import NDArray
from pydantic import PlainSerializer
from pydantic.alias_generators import to_camel

Floats = NDArray[np.floating]
Arrays = dict[str, NDArray[np.generic]]
Bands = Mapping[str, tuple[Floats, Floats]]  # lower and upper ends
Cell = str | float | None
STEPS = 65535  # the JSON rounds a weight to a multiple of 1 / STEPS
HIDDEN = "Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"  # categories of characters
# Joiners belong to a word between two letters or signs beyond ASCII (Persian, Hindi, emoji).
_JOINER = re.compile(r"(?<=[^\x00-\u0300])[\u200c\u200d](?=[^\x00-\u0300])")


def visible(label: str) -> str:
    """Return a label without hidden characters: controls, joiners and bidi marks become signs.

    A newline becomes ``⟨U+000A⟩``, a zero-width space ``⟨U+200B⟩``, a label of only spaces
    ``␣``, an empty one ``(empty)``. Letters of every script stay unchanged.
    """
    if not label:
        return "(empty)"
    if label.isspace() and label.isprintable():
        return "␣" * len(label)
    joiners = {match.start() for match in _JOINER.finditer(label)}
    return "".join(
        f"⟨U+{ord(c):04X}⟩" if unicodedata.category(c) in HIDDEN and i not in joiners else c
        for i, c in enumerate(label)
    )


def listed(values: Iterable[float | None]) -> list[float | None]:
    """Return numbers for JSON: values that are not finite become None."""
    return [float(v) if v is not None and np.isfinite(v) else None for v in values]


def shown(cell: Cell) -> Cell:
    """Return a text without hidden characters; a number, or an empty text, is unchanged."""
    return visible(cell) if isinstance(cell, str) and cell else cell


def data_uri(pixels: NDArray[np.uint8] | str) -> str:
    """Return a picture (C, H, W) as the data URI of a PNG."""
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


# Texts of users: the JSON shows controls, joiners and bidi marks as signs.
Text = Annotated[str, PlainSerializer(shown, return_type=str)]
Lines = Annotated[str, PlainSerializer(_joined, return_type=str)]  # browsers break lines themselves
Label = Annotated[str, PlainSerializer(visible, return_type=str)]

# Numbers and arrays stay unchanged until they are written.
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
        """Return weights from 0 to 1; the JSON has each within 1/65,535 of the true value."""
        return cls(shape=values.shape, codec="u16", data=values)

    @classmethod
    def exact(cls, values: Floats) -> Numbers:
        """Return any numbers; the JSON has them as float32."""
        return cls(shape=values.shape, codec="f32", data=values)

    @property
    def array(self) -> Floats:
        """The numbers: exact, or as in the JSON. Raises ``TypeError`` for those at a URL."""
        if not isinstance(self.data, str):
            return self.data
        if self.url:
            raise TypeError(f"the numbers are at {self.url}, not here")
        numbers = np.frombuffer(self.bytes(), "<u2" if self.codec == "u16" else "<f4")
        return numbers.reshape(self.shape) / np.float32(STEPS if self.codec == "u16" else 1)

    def bytes(self) -> bytes:
        """Return the numbers in the JSON's encoding, before base64."""
        if isinstance(self.data, str):
            return base64.b64decode(self.data)
        if self.codec == "f32":
            return self.data.astype("<f4").tobytes()
        steps = np.rint(self.data.clip(0, 1) * np.float64(STEPS))
        steps[(self.data > 0) & (steps == 0)] = 1
        return steps.astype("<u2").tobytes()


class BaseControls(DrawingPart):
    """The part of a drawing that can be dragged in a browser."""

    def over(self, title: str, parts: Sequence[DrawingPart]) -> Sequence[DrawingPart]:
        """Return the drawings with their controls."""
        raise NotImplementedError


P = TypeVar("P", bound=DrawingPart)


def changed(part: P, change: Callable[[Numbers], Numbers]) -> P:
    """Return a part with ``change`` applied to all its `Numbers`, including those of its parts."""

    def of(value: object) -> object:
        if isinstance(value, Numbers):
            return change(value)
        if isinstance(value, DrawingPart):
            return changed(value, change)
        return [of(each) for each in value] if isinstance(value, list) else value

    return part.model_copy(update={name: of(value) for name, value in part})
