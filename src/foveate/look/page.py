"""One HTML file of the attention of many sentences: no network, no library, no other file.

Lives here: what goes into the page and how it is packed. How it looks and acts is in
``page.html``, ``page.css``, ``page-draw.js`` (what is seen) and ``page.js`` (what is done) beside
this file.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foveate.atomic import replace_file
from foveate.look import colors
from foveate.look.record import AttentionRecord
from foveate.look.words import visible

MOST_SENTENCES = 200
MOST_CELLS = 1_000_000  # of one sentence, 2.7 bytes each
MOST_BYTES = 24_000_000  # of all sentences: a browser opens this in about a second
LONGEST_SIDE = 256  # words along a side before neighbours are drawn together
STEPS = 65535  # a weight is kept as a whole number of these

Heads = NDArray[np.float32]  # (H, T, S)


@dataclass(frozen=True)
class PageReport:
    """What became of the records: where they are, how many are in it, and what was left out."""

    path: Path
    num_bytes: int
    num_sentences: int
    num_left_out: int
    notes: list[str]


@dataclass(frozen=True)
class _Block:
    """The maps of one block as they go into the page."""

    name: str
    row_means: str
    rows: list[str]
    columns: list[str]
    layers: list[Heads]
    has_heads: bool = True

    @property
    def num_cells(self) -> int:
        return sum(heads.size for heads in self.layers)

    @property
    def longest(self) -> int:
        return max(len(self.rows), len(self.columns))

    def averaged(self) -> _Block:
        """The same with the mean of the heads of each layer alone."""
        means = [heads.mean(axis=0, keepdims=True) for heads in self.layers]
        return replace(self, layers=means, has_heads=False)

    def tiled(self, tile: int) -> _Block:
        """The same with one cell, the largest, for each tile × tile."""
        if tile == 1:
            return self
        return replace(
            self,
            rows=_tiled(self.rows, tile),
            columns=_tiled(self.columns, tile),
            layers=[pool(heads, tile) for heads in self.layers],
        )


def pack(weights: Heads) -> str:
    """Weights as base64 of 16-bit numbers, within 1/65,535 of the true ones; 0 is kept for 0."""
    steps = np.rint(weights.clip(0, 1) * np.float64(STEPS))
    steps[(weights > 0) & (steps == 0)] = 1
    return base64.b64encode(steps.astype("<u2").tobytes()).decode()


def pool(weights: Heads, tile: int) -> Heads:
    """The largest weight of each tile × tile cells: (H, T, S) to (H, ⌈T/tile⌉, ⌈S/tile⌉)."""
    height, width = (-(-n // tile) * tile for n in weights.shape[1:])
    padded = np.zeros((len(weights), height, width), np.float32)
    padded[:, : weights.shape[1], : weights.shape[2]] = weights
    tiles = padded.reshape(len(weights), height // tile, tile, width // tile, tile)
    most: Heads = tiles.max(axis=(2, 4))
    return most


def _tiled(labels: list[str], tile: int) -> list[str]:
    runs = [labels[k : k + tile] for k in range(0, len(labels), tile)]
    return [f"{run[0]} … {run[-1]}" for run in runs]


def _blocks(record: AttentionRecord) -> list[_Block]:
    found = []
    for block, names in record.blocks().items():
        shapes = {record.drawn(name).shape[1:] for name in names}
        groups = {block: names} if len(shapes) == 1 else {name: [name] for name in names}
        for title, members in groups.items():
            layers = [record.drawn(name) for name in members]
            height, width = layers[0].shape[1:]
            rows, columns = record.axes(members[0])
            rows, columns = rows or [*map(str, range(height))], columns or [*map(str, range(width))]
            found.append(_Block(title, record.row_means(title), rows, columns, layers))
    return found


def shorten(record: AttentionRecord) -> tuple[list[_Block], list[str]]:
    """The blocks of a record within `MOST_CELLS`, and what had to go, in words.

    First the single heads (their mean stays), then the size of the cells.
    """
    blocks, notes = _blocks(record), []
    if sum(block.num_cells for block in blocks) > MOST_CELLS:
        blocks = [block.averaged() for block in blocks]
        notes.append("too long for single heads: only the mean of the heads of each layer is here")
    tile = 1
    while any(block.tiled(tile).num_cells > MOST_CELLS // len(blocks) for block in blocks) or any(
        block.longest > LONGEST_SIDE * tile for block in blocks
    ):
        tile += 1
    if tile > 1:
        blocks = [block.tiled(tile) for block in blocks]
        notes.append(f"too long for single words: a cell is the largest weight of {tile} × {tile}")
    return blocks, notes


def _sentence(record: AttentionRecord) -> tuple[str, list[str]]:
    """A record as the JSON that the page reads, and what had to go."""
    blocks, lost = shorten(record)
    words = " ".join(blocks[0].columns)
    entry = {
        "title": visible(record.title or words),
        "notes": [visible(note) for note in [*record.notes, *lost]],
        "blocks": [
            {
                "name": block.name,
                "rowMeans": block.row_means,
                "rows": [visible(word) for word in block.rows],
                "columns": [visible(word) for word in block.columns],
                "hasHeads": block.has_heads,
                "layers": [{"heads": len(h), "weights": pack(h)} for h in block.layers],
            }
            for block in blocks
        ],
    }
    return _json(entry), lost


def _json(value: object) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _asset(name: str) -> str:
    return resources.files("foveate.look").joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _assemble(sentences: Sequence[str], left_out: int, start: Mapping[str, object]) -> str:
    """Put sentences (JSON) into the page; the policy lets only our own style and script act."""
    style, script = _asset("page.css"), _asset("page-draw.js") + _asset("page.js")
    settings = {
        "start": dict(start),
        "leftOut": left_out,
        "steps": STEPS,
        "colors": base64.b64encode(colors.table().tobytes()).decode(),
        "scales": {
            name: {"caption": s.caption, "marks": s.marks} for name, s in colors.SCALES.items()
        },
    }
    parts = {
        "policy": f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'",
        "style": style,
        "script": script,
        "settings": _json(settings),
        "sentences": f"[{','.join(sentences)}]",
    }
    pieces = _asset("page.html").split("{{")
    return pieces[0] + "".join(
        parts[key] + rest for key, rest in (piece.split("}}", 1) for piece in pieces[1:])
    )


@dataclass(frozen=True)
class _Page:
    text: str
    num_sentences: int
    notes: list[str]


def _compose(
    records: Sequence[AttentionRecord], max_sentences: int, start: Mapping[str, object]
) -> _Page:
    """The page of as many records as it may hold, and what was left out.

    Raises ``ValueError`` where there is nothing to show.
    """
    if not records:
        raise ValueError("no sentence to show; give at least one record")
    if not all(record.maps for record in records):
        raise ValueError("a record without maps: this model has no attention to show")
    kept: list[str] = []
    notes: list[str] = []
    size = 0
    for number, record in enumerate(records[:max_sentences], 1):
        sentence, lost = _sentence(record)
        size += len(sentence)
        if kept and size > MOST_BYTES:
            break
        kept.append(sentence)
        notes += [f"sentence {number}: {note}" for note in lost]
    left_out = len(records) - len(kept)
    if left_out:
        notes.append(f"{left_out} of {len(records)} sentences left out of the page")
    return _Page(_assemble(kept, left_out, start), len(kept), notes)


def html(
    records: Sequence[AttentionRecord],
    max_sentences: int = MOST_SENTENCES,
    start: Mapping[str, object] | None = None,
) -> str:
    """The page of the records as text; ``start`` says the block, layer, head and scale shown first.

    Raises ``ValueError`` where there is no record, or one without maps.
    """
    return _compose(records, max_sentences, start or {}).text


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
    page = _compose(records, max_sentences, {})
    content = page.text.encode()
    replace_file(path, content)
    left_out = len(records) - page.num_sentences
    return PageReport(path, len(content), page.num_sentences, left_out, page.notes)
