"""Drawings as an offline HTML page and as a notebook widget."""

import base64
import hashlib
import html as markup
import re
import secrets
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module, resources
from typing import Any

from pydantic import SerializeAsAny, TypeAdapter

from foveate.errors import install, not_built
from foveate.look.draw.parts import DrawingPart, Numbers, Text, changed


class PageGroup(DrawingPart):
    """The part of a page that is visible at a time: the drawings of one sentence."""

    title: Text
    notes: list[Text]
    drawings: Sequence[SerializeAsAny[DrawingPart]]


class Cover(DrawingPart):
    """The title of a page, and the names of its groups."""

    title: Text
    groups: list[Text]
    notes: list[Text]


def chapters(drawings: Mapping[str, Sequence[DrawingPart]], title: str) -> str:
    """Return the page of drawings in named groups, with one group visible at a time.

    A word selected in a drawing is marked in all of its group.
    """
    groups = [PageGroup(title=n, notes=[], drawings=part) for n, part in drawings.items()]
    return assemble(title, groups)


def assemble(title: str, groups: Sequence[PageGroup], notes: Sequence[str] = ()) -> str:
    """Put groups into the page, whose policy allows only our own script."""
    script = asset("embed.js")
    cover = Cover(title=title, groups=[group.title for group in groups], notes=list(notes))
    parts = {
        "policy": f"default-src 'none'; script-src '{digest(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        "title": markup.escape(" · ".join(dict.fromkeys((title, "foveate")))),
        "page": json_of(cover),
        "groups": "\n".join(
            f'<script class="group" type="application/json">{json_of(group)}</script>'
            for group in groups
        ),
        "script": script,
    }
    return re.sub(r"{{(\w+)}}", lambda name: parts[name[1]], asset("page.html"))


def json_of(part: DrawingPart) -> str:
    """Return a part of a drawing as JSON that is safe inside a script element."""
    return inside_script(part.model_dump_json(by_alias=True))


def inside_script(text: str) -> str:
    """Return JSON in a form that cannot end a script element."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def digest(text: str) -> str:
    """Return the hash by which a page's policy allows an inline script or style sheet."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def asset(name: str) -> str:
    """Return a script, style or page of the package."""
    return resources.files("foveate.look.draw").joinpath(name).read_text("utf-8")


def widget(drawings: Sequence[DrawingPart], saved: Mapping[str, str] | None = None) -> Any:
    """Return an ``anywidget.AnyWidget`` of drawings with a shared selection.

    ``saved`` (a bundle of MIME types) is put into the notebook beside it and hidden while the
    widget is live: notebooks prefer a widget to any other format, and show nothing if its kernel is
    gone. Its trait ``selection`` is the choice (block, layer, head, row, column, side): read it,
    observe it, or set it. Raises ``ModuleNotFoundError`` if anywidget is not installed, and
    ``FileNotFoundError`` if ``widget.js`` is not built.
    """
    arrays: list[bytes] = []

    def aside(numbers: Numbers) -> Numbers:
        arrays.append(numbers.bytes())  # as bytes: a third less than base64
        return numbers.model_copy(update={"data": "", "url": f"array:{len(arrays) - 1}"})

    bare = [changed(drawing, aside) for drawing in drawings]
    text = TypeAdapter(list[SerializeAsAny[DrawingPart]]).dump_json(bare, by_alias=True).decode()
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
            f"a live view in a notebook needs anywidget; {install('widget')}"
        ) from error
    script = resources.files("foveate.look.draw").joinpath("widget.js")
    if not script.is_file():
        raise FileNotFoundError(not_built("the script of live views"))

    class Live(anywidget.AnyWidget):
        _esm = script.read_text("utf-8")
        arrays = traitlets.List(traitlets.Bytes()).tag(sync=True)
        drawings = traitlets.Unicode().tag(sync=True)
        mark = traitlets.Unicode().tag(sync=True)  # identifies what was saved beside it
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
