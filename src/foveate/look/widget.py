"""Drawings live in a notebook (anywidget), drawn by the code that draws pages and the studio.

Lives here: how drawings reach the notebook. What they do there is ``web/src/widget``, built into
``widget.js`` beside this file.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module, resources
from typing import Any

from pydantic import TypeAdapter

from foveate.look.arrays import changed
from foveate.look.drawing import AnyDrawing, Drawing, Numbers

DRAWINGS = TypeAdapter(list[AnyDrawing])


def widget(drawings: Sequence[Drawing], saved: Mapping[str, str] | None = None) -> Any:
    """An ``anywidget.AnyWidget`` of drawings that light together.

    ``saved`` (a bundle of MIME types) is put into the notebook beside it and hidden while the
    widget lives: notebooks prefer a widget to all else, and show nothing where its kernel is gone.
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
    made = _live()(drawings=text, arrays=arrays, mark=secrets.token_hex(8))
    made.saved = dict(saved or {})
    return made


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
        mark = traitlets.Unicode().tag(sync=True)  # by which it finds what was saved beside it
        selection = traitlets.Dict().tag(sync=True)
        saved: dict[str, str]

        def _ipython_display_(self) -> None:
            display: Any = import_module("IPython.display").display
            bundle: Any = self._repr_mimebundle_()
            if self.saved:
                shown = f'<div data-foveate="{self.mark}">{self.saved.get("text/html", "")}</div>'
                display({**self.saved, "text/html": shown}, raw=True)
            display(bundle[0], raw=True)

    return Live
