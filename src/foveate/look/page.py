"""One HTML file of drawings: no network, no library, no other file.

Lives here: what goes into the page and how it is packed. How it looks and acts is ``web/src``,
which is built into ``embed.js`` beside this file.
"""

from __future__ import annotations

import base64
import hashlib
import html as markup
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from pydantic import Field

from foveate.atomic import replace_file
from foveate.look import maps
from foveate.look.drawing import AnyDrawing, Drawing, Part, Text
from foveate.look.record import AttentionRecord

MOST_SENTENCES = 200
MOST_BYTES = 24_000_000  # of all sentences: a browser opens this in about a second


@dataclass(frozen=True)
class PageReport:
    """What became of the records: where they are, how many are in it, and what was left out."""

    path: Path
    num_bytes: int
    num_sentences: int
    num_left_out: int
    notes: list[str]


class Group(Part):
    """What is seen of a page at a time: the drawings of one sentence."""

    title: Text
    notes: list[Text]
    drawings: list[AnyDrawing]


class Cover(Part):
    """What a page says of itself: the names of its groups, and how many it could not hold."""

    title: Text
    groups: list[Text]
    notes: list[Text] = Field(default_factory=list)
    left_out: int = 0


@dataclass(frozen=True)
class _Page:
    text: str
    num_sentences: int
    notes: list[str]


def drawn(drawings: Sequence[Drawing], title: str = "") -> str:
    """The page of drawings that are seen together; a word chosen in one lights in all."""
    group = Group.model_validate({"title": "", "notes": [], "drawings": list(drawings)})
    return _assemble(Cover(title=title or "foveate", groups=[""]), [_json(group)])


def html(records: Sequence[AttentionRecord], max_sentences: int = MOST_SENTENCES) -> str:
    """The page of the records as text, each a sentence that can be chosen.

    Raises ``ValueError`` where there is no record, or one without maps.
    """
    return _compose(records, max_sentences).text


def save_html(
    records: Sequence[AttentionRecord], path: str | Path, max_sentences: int = MOST_SENTENCES
) -> PageReport:
    """Write the page of the records to one file, whole or not at all, and say what is in it.

    At most ``max_sentences`` and `MOST_BYTES` go in; the rest is counted in the page and in the
    report. Raises ``ValueError`` where there is no record, or one without maps, or the name does
    not end in ``.html``.
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{path}: a page is written as .html; end the name so")
    page = _compose(records, max_sentences)
    content = page.text.encode()
    replace_file(path, content)
    left_out = len(records) - page.num_sentences
    return PageReport(path, len(content), page.num_sentences, left_out, page.notes)


def _compose(records: Sequence[AttentionRecord], max_sentences: int) -> _Page:
    """The page of as many records as it may hold, and what was left out.

    Raises ``ValueError`` where there is nothing to show.
    """
    if not records:
        raise ValueError("no sentence to show; give at least one record")
    if not all(record.maps for record in records):
        raise ValueError("a record without maps: this model has no attention to show")
    titles: list[str] = []
    kept: list[str] = []
    notes: list[str] = []
    size = 0
    for number, record in enumerate(records[:max_sentences], 1):
        drawing = maps.drawing(record)
        group = Group(
            title=drawing.title,
            notes=drawing.notes,
            drawings=[drawing.model_copy(update={"title": "", "notes": []})],
        )
        sentence = _json(group)
        size += len(sentence)
        if kept and size > MOST_BYTES:
            break
        titles.append(drawing.title)
        kept.append(sentence)
        lost = drawing.notes[len(record.notes) :]
        notes += [f"sentence {number}: {note}" for note in lost]
    left_out = len(records) - len(kept)
    if left_out:
        notes.append(f"{left_out} of {len(records)} sentences left out of the page")
    said = ["numbers are exact to 0.00002"]
    cover = Cover(title="Attention", groups=titles, notes=said, left_out=left_out)
    return _Page(_assemble(cover, kept), len(kept), notes)


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


def _json(part: Part) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element."""
    text = part.model_dump_json(by_alias=True)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@cache
def _asset(name: str) -> str:
    return resources.files("foveate.look").joinpath(name).read_text("utf-8")
