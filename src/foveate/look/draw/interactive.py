"""Drawings with sliders: dragging one changes the numbers at once, computed in the browser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from foveate.look.draw.charts import BarsDrawing, LinesDrawing
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.parts import BaseControls, DrawingPart, Floats, Label, Numbers, Places
from foveate.look.draw.sheets import SheetDrawing

Part = Annotated[SheetDrawing | LinesDrawing | BarsDrawing, Field(discriminator="kind")]


class Slider(DrawingPart):
    """A number that is dragged from stop to stop: an option of a demo, or a value of several."""

    option: str
    index: int | None = None  # of the value, if the option has several
    label: Label
    stops: Places  # from the lowest to the highest
    value: float

    @classmethod
    def of(
        cls, option: str, value: float, stops: Floats, index: int | None = None, label: str = ""
    ) -> Slider:
        """Return a slider whose stops include its value."""
        value = round(float(value), 6)
        at = np.unique(np.append(np.round(stops, 6), value))
        return cls(option=option, index=index, label=label or option, stops=at, value=value)


class Controls(BaseControls):
    """The sliders of a drawing; the browser computes the rest by the ``formula``.

    ``data`` are the other numbers in the formula. The sliders of the options in ``plane`` also
    follow a pointer in the maps, the first to the right and the second upwards.
    """

    formula: str
    sliders: list[Slider]
    data: dict[str, Numbers] = Field({})
    plane: tuple[str, str] | None = None

    def over(self, title: str, parts: Sequence[DrawingPart]) -> Sequence[DrawingPart]:
        fields = {"title": title, "parts": list(parts), **dict(self)}
        return [InteractiveDrawing.model_validate(fields)]


class InteractiveDrawing(Controls, Drawing):
    """Drawings as Python makes them at the values of the sliders, and what can be dragged."""

    kind: Literal["interactive"] = "interactive"
    parts: list[Part]
