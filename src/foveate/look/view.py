"""What every picture can do: show itself in a notebook, and be saved by the ending of a name.

Lives here: `View`. What is drawn is said by its subclasses.
"""

from __future__ import annotations

import base64
import html
import io
import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.files import replace_file
from foveate.look.drawing import Drawing
from foveate.look.layout import fit

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

NOTEBOOK_LIMIT = 2_000_000  # bytes of HTML in an output cell; above, the notebook gets the PNG


class View(ABC):
    """A picture that is drawn when it is asked for, in the form that is asked for."""

    @abstractmethod
    def figure(self) -> Figure:
        """The picture as a matplotlib figure of its own, known to no window and no ``pyplot``."""

    @abstractmethod
    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """The picture for a terminal of ``width`` columns; see `foveate.look.render_terminal`."""

    @abstractmethod
    def drawings(self) -> list[Drawing]:
        """What a browser is given to draw: the same numbers, without their looks."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """What is drawn, by name: the weights and the labels of their axes."""

    def html(self) -> str:
        """The drawings as one page that needs no network, no library and no other file."""
        from foveate.look import page

        return page.drawn(self.drawings(), str(getattr(self, "title", "")))

    def widget(self) -> Any:
        """The drawings live in a notebook; what is chosen in them is its trait ``selection``.

        A notebook that is saved and opened without its kernel shows the page in its place. Raises
        ``ModuleNotFoundError`` where anywidget (the extra ``widget``) is not installed.
        """
        from foveate.look.page import widget

        return widget(self.drawings(), saved=self._repr_mimebundle_())

    def save(self, path: str | Path) -> Path:
        """Write the picture in the form that the ending names, and return where.

        Raises ``ValueError`` naming the endings that exist.
        """
        path = Path(path)
        if path.suffix.lower() not in WRITERS:
            raise ValueError(
                f"{path}: no picture is written as {path.suffix or 'a name without ending'!r}; "
                f"end the name in {', '.join(WRITERS)}"
            )
        replace_file(path, WRITERS[path.suffix.lower()](self))
        return path

    def __repr__(self) -> str:
        return self.text()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """For notebooks: the page in a frame where it is small enough, a PNG, a text.

        The page can be pointed at without a kernel or a network: saved notebooks show it too.
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


def picture_bytes(view: View, form: str) -> bytes:
    """The figure of a view as a file of the form png, svg or pdf."""
    import matplotlib

    file = io.BytesIO()
    stamp = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
    # Text stays text, and the names inside an SVG are the same at every drawing.
    forms: Any = {"svg.fonttype": "none", "svg.hashsalt": "foveate", "pdf.fonttype": 42}
    with matplotlib.rc_context(forms), warnings.catch_warnings():
        # `fit` has named the scripts of which no font has glyphs.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = view.figure()
        fit(figure, warn=form != "svg")  # text of an SVG stays text: who shows it has the fonts
        figure.savefig(file, format=form, dpi=200, metadata=stamp, bbox_inches=_whole(figure))
    return file.getvalue()


def _whole(figure: Figure) -> Bbox | None:
    """Inches from edge to edge where something is written beyond the figure's, else None."""
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()
    drawn, own = figure.get_tightbbox(), Bbox.from_extents(0, 0, *figure.get_size_inches())
    whole = Bbox.union([own, drawn])
    return None if np.allclose(whole.extents, own.extents, atol=0.02) else whole.padded(0.05)


def _picture(form: str) -> Callable[[View], bytes]:
    return lambda view: picture_bytes(view, form)


def _json(view: View) -> bytes:
    listed = {name: array.tolist() for name, array in view.arrays().items()}
    return json.dumps(listed, ensure_ascii=False).encode("utf-8", "backslashreplace")


def _npz(view: View) -> bytes:
    file = io.BytesIO()
    arrays: dict[str, Any] = dict(view.arrays())
    np.savez_compressed(file, **arrays)
    return file.getvalue()


WRITERS: dict[str, Callable[[View], bytes]] = {
    ".png": _picture("png"),
    ".svg": _picture("svg"),
    ".pdf": _picture("pdf"),
    ".html": lambda view: view.html().encode(),
    ".json": _json,
    ".npz": _npz,
    ".txt": lambda view: (view.text(width=100, color=False) + "\n").encode(),
}
