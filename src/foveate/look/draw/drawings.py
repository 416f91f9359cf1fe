"""Drawings: what can be drawn, as exact data, and the formats in which it can be written."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

import foveate.look.draw.figures as figures
import foveate.look.draw.page as page
from foveate.errors import UserError
from foveate.files import replace_file
from foveate.look.draw.figures import picture_bytes
from foveate.look.draw.parts import Arrays, BaseControls, DrawingPart, Lines, Text
from foveate.look.draw.terminal import wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NOTEBOOK_LIMIT = 2_000_000  # bytes of HTML in an output cell; above it, the notebook gets the PNG


class Drawing(DrawingPart):
    """The fields of every drawing: a title, its meaning in a sentence, and what was left out."""

    title: Text = ""
    caption: Lines = ""
    notes: list[Text] = Field([])
    controls: BaseControls | None = Field(None, exclude=True)  # what can be dragged in a browser

    def arrays(self) -> Arrays:
        """Return the drawn arrays by name: numbers, and the labels of their axes."""
        raise NotImplementedError(f"{type(self).__name__} can only be drawn in a browser")

    def drawings(self) -> list[Drawing]:
        """Return the drawings from which a browser makes the same picture."""
        return [self]

    def browser_drawings(self) -> Sequence[DrawingPart]:
        """Return `drawings`, or a single interactive one if numbers can be dragged."""
        drawn = self.drawings()
        return drawn if self.controls is None else self.controls.over(self.title, drawn)

    def figure(self) -> Figure:
        """Return a separate matplotlib figure, unknown to ``pyplot``: by default, the text."""
        return figures.typed(self.text(figures.TYPED).split("\n"))

    def fill(self, ax: Axes) -> None:
        """Draw into axes. Raises ``NotImplementedError`` if the drawing needs its own figure."""
        raise NotImplementedError(f"{type(self).__name__} needs its own figure: use figure()")

    def own_figure(self, width: float, height: float, caption: str = "") -> Figure:
        """Return a figure with one pair of axes, and a caption below."""
        made, [ax] = figures.subplots((width, height))
        self.fill(ax)
        if caption:
            made.supxlabel(caption, parse_math=False, **figures.SMALL)
        return made

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """Return the drawing for a terminal of ``width`` columns; without ``color`` in shades."""
        raise NotImplementedError(f"{type(self).__name__} can only be drawn in a browser")

    def caption_in(self, width: int | None) -> str:
        """Return the caption, in lines of at most ``width`` columns if there is a width."""
        return "\n".join(wrap(self.caption.splitlines(), width)) if width else self.caption

    def webp(self) -> bytes:
        """Return the drawing as a WebP picture; a film as an animated one."""
        return picture_bytes(self.figure(), "webp")

    def html(self) -> str:
        """Return the drawing as one page that needs no network, library or other file."""
        return page.chapters({"": self.browser_drawings()}, self.title or "foveate")

    def widget(self) -> object:
        """Return an ``anywidget.AnyWidget`` of the drawing; its trait ``selection`` is the choice.

        A notebook that is saved and opened without its kernel shows the page in its place. Raises
        ``ModuleNotFoundError`` if anywidget (the extra ``widget``) is not installed.
        """
        return page.widget(self.browser_drawings(), saved=self._repr_mimebundle_())

    def save(self, path: str | Path) -> Path:
        """Write the drawing in the format of the file extension, and return the path.

        Raises `UserError` with the supported extensions.
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

    __str__ = __repr__

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the notebook formats: the page in a frame if it is small enough, a PNG, a text.

        The page works without a kernel or a network: saved notebooks show it too.
        """
        bundle = {"text/plain": self.text(color=False)}
        bundle["image/png"] = base64.b64encode(picture_bytes(self.figure(), "png")).decode()
        document = self.html()
        if len(document.encode()) <= NOTEBOOK_LIMIT:
            bundle["text/html"] = (
                f'<iframe srcdoc="{html.escape(document)}" sandbox="allow-scripts allow-downloads" '
                'style="width:100%;height:780px;border:0" title="what is drawn"></iframe>'
            )
        return bundle


def finite(value: object) -> object:
    """Return a value for JSON, where NaN becomes null and infinity a string."""
    if isinstance(value, list):
        return [finite(each) for each in value]
    if not isinstance(value, float) or np.isfinite(value):
        return value
    return None if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _json(drawing: Drawing) -> bytes:
    arrays = {name: finite(array.tolist()) for name, array in drawing.arrays().items()}
    text = json.dumps(arrays, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace")


def _npz(drawing: Drawing) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **drawing.arrays())  # type: ignore[arg-type]
    return file.getvalue()


WRITERS: dict[str, Callable[[Drawing], bytes]] = {
    ".png": lambda drawing: picture_bytes(drawing.figure(), "png"),
    ".svg": lambda drawing: picture_bytes(drawing.figure(), "svg"),
    ".pdf": lambda drawing: picture_bytes(drawing.figure(), "pdf"),
    ".webp": lambda drawing: drawing.webp(),
    ".html": lambda drawing: drawing.html().encode(),
    ".json": _json,
    ".npz": _npz,
    ".txt": lambda drawing: (drawing.text(width=100, color=False) + "\n").encode(),
}
