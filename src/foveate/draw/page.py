"""Drawings as an offline HTML page and as a notebook widget."""

from __future__ import annotations

import base64
import hashlib
import html as markup
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module, resources
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from foveate.draw.drawings import (
    AttentionDrawing,
    BarsDrawing,
    Drawing,
    DrawingPart,
    LanesDrawing,
    LinesDrawing,
    Numbers,
    PictureDrawing,
    SheetDrawing,
    TableDrawing,
    Text,
    WordsDrawing,
    changed,
)
from foveate.draw.film import FilmDrawing
from foveate.draw.maps import all_maps
from foveate.draw.model import ModelDrawing
from foveate.draw.stages import StepsDrawing
from foveate.errors import UserError
from foveate.files import replace_file
from foveate.inspect.records import AttentionRecord

MOST_SENTENCES = 200
MOST_BYTES = 24_000_000  # of all sentences: a browser opens this in about a second

AnyDrawing = Annotated[
    AttentionDrawing | FilmDrawing | SheetDrawing | StepsDrawing | LinesDrawing | BarsDrawing
    | WordsDrawing | LanesDrawing | PictureDrawing | ModelDrawing | TableDrawing,
    Field(discriminator="kind"),
]  # fmt: skip


@dataclass(frozen=True)
class AttentionPage:
    """The page of some records: how many are in it, how many are not, and what was left out."""

    text: str
    num_sentences: int
    num_left_out: int
    notes: list[str]


class PageGroup(DrawingPart):
    """The part of a page that is shown at a time: the drawings of one sentence."""

    title: Text
    notes: list[Text]
    drawings: list[AnyDrawing]


class Cover(DrawingPart):
    """The title of a page, the names of its groups, and how many were left out."""

    title: Text
    groups: list[Text]
    notes: list[Text] = Field(default_factory=list)
    left_out: int = 0


def drawn(drawings: Sequence[Drawing], title: str = "", notes: Sequence[str] = ()) -> str:
    """The page of drawings that are shown together; a word chosen in one is marked in all.

    The ``notes`` stand below.
    """
    group = PageGroup.model_validate(
        {"title": "", "notes": list(notes), "drawings": list(drawings)}
    )
    return _assemble(Cover(title=title or "foveate", groups=[""]), [_json(group)])


def chapters(drawings: Mapping[str, Sequence[Drawing]], title: str) -> str:
    """The page of drawings in groups by their names, one group shown at a time."""
    groups = [
        PageGroup.model_validate({"title": name, "notes": [], "drawings": list(part)})
        for name, part in drawings.items()
    ]
    return _assemble(Cover(title=title, groups=list(drawings)), list(map(_json, groups)))


def groups_of(page: str) -> list[PageGroup]:
    """The groups of a page. Raises ``ValueError`` for drawings that another version wrote."""
    parts = page.split('<script class="group" type="application/json">')[1:]
    return [PageGroup.model_validate_json(part.partition("</script>")[0]) for part in parts]


def save_html(
    records: Sequence[AttentionRecord], path: str | Path, max_sentences: int = MOST_SENTENCES
) -> AttentionPage:
    """Write the page of the records to one file, whole or not at all, and return it.

    Raises as `attention_page`, and `UserError` where the name does not end in ``.html``.
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"{path}: a page is written as .html; end the name so")
    page = attention_page(records, max_sentences)
    replace_file(path, page.text.encode())
    return page


def attention_page(
    records: Sequence[AttentionRecord], max_sentences: int = MOST_SENTENCES
) -> AttentionPage:
    """The page of the records, each a sentence that can be chosen.

    At most ``max_sentences`` and `MOST_BYTES` go in; the page and its notes say how many do not.
    Raises `UserError` where there is no record, or one without maps.
    """
    if not records:
        raise UserError("no sentence to show; give at least one record")
    if not all(record.maps for record in records):
        raise UserError("a record without maps: this model has no attention to show")
    titles: list[str] = []
    sentences: list[str] = []
    notes: list[str] = []
    size = 0
    for number, record in enumerate(records[:max_sentences], 1):
        drawing = all_maps(record)
        untitled = drawing.model_copy(update={"title": "", "notes": []})
        group = PageGroup(title=drawing.title, notes=drawing.notes, drawings=[untitled])
        sentence = _json(group)
        size += len(sentence)
        if sentences and size > MOST_BYTES:
            break
        titles.append(drawing.title)
        sentences.append(sentence)
        notes += [f"sentence {number}: {note}" for note in drawing.notes[len(record.notes) :]]
    left_out = len(records) - len(sentences)
    if left_out:
        notes.append(f"{left_out} of {len(records)} sentences left out of the page")
    remarks = ["numbers are exact to 0.00002"]
    cover = Cover(title="Attention", groups=titles, notes=remarks, left_out=left_out)
    return AttentionPage(_assemble(cover, sentences), len(sentences), left_out, notes)


def _assemble(cover: Cover, groups: Sequence[str]) -> str:
    """Put groups (JSON) into the page; the policy lets only our own script act."""
    script = _asset("embed.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        "policy": f"default-src 'none'; script-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        "title": markup.escape(" · ".join(dict.fromkeys((cover.title, "foveate")))),
        "page": _json(cover),
        "groups": "\n".join(
            f'<script class="group" type="application/json">{group}</script>' for group in groups
        ),
        "script": script,
    }
    pieces = _asset("page.html").split("{{")
    return pieces[0] + "".join(
        parts[key] + rest for key, rest in (piece.split("}}", 1) for piece in pieces[1:])
    )


def _json(part: DrawingPart) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element."""
    text = part.model_dump_json(by_alias=True)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@cache
def _asset(name: str) -> str:
    return resources.files("foveate.draw").joinpath(name).read_text("utf-8")


# ------------------------------------------------------------------------------------------ widget
# Drawings live in a notebook (anywidget), drawn by the code that draws pages and the studio.

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
        arrays.append(numbers.bytes())  # as bytes: a third less than base64
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
    script = resources.files("foveate.draw").joinpath("widget.js")
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
