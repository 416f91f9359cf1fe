"""A record of attention as the drawing of a browser. Nothing is measured or laid out here."""

from __future__ import annotations

from typing import Any

from foveate.look.drawing import AttentionDrawing, Block, Numbers
from foveate.look.page import shorten
from foveate.look.record import AttentionRecord
from foveate.look.words import visible


def drawing(record: AttentionRecord, **first: Any) -> AttentionDrawing:
    """All maps of a record; ``first`` says what is shown first (`AttentionDrawing`)."""
    blocks, lost = shorten(record)
    return AttentionDrawing(
        title=visible(record.title or " ".join(blocks[0].columns)),
        notes=[visible(note) for note in (*record.notes, *lost)],
        blocks=[
            Block(
                name=block.name,
                row_means="at" if block.row_means == "at" else "producing",
                rows=[visible(word) for word in block.rows],
                columns=[visible(word) for word in block.columns],
                layers=[Numbers.weights(heads) for heads in block.layers],
                has_heads=block.has_heads,
            )
            for block in blocks
        ],
        **first,
    )
