"""Drawings live in a notebook (anywidget), drawn by the code that draws pages and the studio.

Lives here: how drawings reach the notebook. What they do there is ``web/src/widget``, built into
``widget.js`` beside this file.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from pydantic import TypeAdapter

from foveate.look.arrays import changed
from foveate.look.drawing import AnyDrawing, Drawing, Numbers

DRAWINGS = TypeAdapter(list[AnyDrawing])


def widget(drawings: Sequence[Drawing]) -> Any:
    """An ``anywidget.AnyWidget`` of drawings that light together.

    Its trait ``selection`` is what is chosen (block, layer, head, row, column, side): read it,
    observe it, or set it. Raises ``ModuleNotFoundError`` where anywidget is not installed, and
    ``FileNotFoundError`` where ``widget.js`` is not built.
    """
    arrays: list[bytes] = []

    def aside(numbers: Numbers) -> Numbers:
        arrays.append(base64.b64decode(numbers.data))  # as bytes: a third less than base64
        return numbers.model_copy(update={"data": "", "url": f"array:{len(arrays) - 1}"})

    bare = [changed(drawing, aside) for drawing in drawings]
    text = DRAWINGS.dump_json(DRAWINGS.validate_python(bare), by_alias=True).decode()
    return _live()(drawings=text, arrays=arrays)


@cache
def _live() -> type[Any]:
    try:
        import anywidget
        import traitlets
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "a live view in a notebook needs anywidget: pip install 'foveate[widget]'"
        ) from error
    script = resources.files("foveate.look").joinpath("widget.js")
    if not script.is_file():
        raise FileNotFoundError(f"{script} is not built: `make web` builds it, and wheels have it")

    class Live(anywidget.AnyWidget):
        _esm = script.read_text("utf-8")
        arrays = traitlets.List(traitlets.Bytes()).tag(sync=True)
        drawings = traitlets.Unicode().tag(sync=True)
        selection = traitlets.Dict().tag(sync=True)

    return Live
