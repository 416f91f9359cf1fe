"""Views of packed files that need only a record of attention, without PyTorch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import foveate.look.draw.maps as drawn
from foveate.errors import ConfigError
from foveate.look.draw.drawings import Drawing
from foveate.look.records import AttentionRecord
from foveate.look.views.options import Block, Head, Layer, Question, Scale

if TYPE_CHECKING:
    from foveate.engine.packed import PackedModel


def attention(
    record: AttentionRecord, block: Block = None, layer: Layer = -1, head: Head = None,
    scale: Scale = None,
) -> drawn.AttentionView:  # fmt: skip
    """Draw one layer of a block: one head, or the mean of all."""
    return drawn.attention(record, drawn.block_in(record, block), layer, head, scale)


def links(
    record: AttentionRecord, block: Block = None, layer: Layer = -1, head: Head = None,
    scale: Scale = None,
) -> drawn.LinksView:  # fmt: skip
    """Draw the same map as lines between words."""
    return drawn.links(attention(record, block, layer, head, scale))


def heads(record: AttentionRecord, block: Block = None, scale: Scale = None) -> drawn.HeadsView:
    """Draw all layers and heads of a block."""
    return drawn.heads(record, drawn.block_in(record, block), scale)


VIEWS: Mapping[str, Callable[..., Drawing]] = {
    "attention": attention, "links": links, "heads": heads,
}  # fmt: skip


def fields_of(name: str) -> tuple[str, ...]:
    """Return the fields of a `Question` that a view of a packed file reads."""
    return ("text", "target", "units", *list(inspect.signature(VIEWS[name]).parameters)[1:])


def draw(name: str, model: PackedModel, question: Question) -> Drawing:
    """Draw a view of a packed file. Raises `ConfigError` if it needs PyTorch, or lacks a text."""
    if name not in VIEWS or question.silence or question.image is not None:
        what = "other views, pictures and silenced heads need PyTorch and the original run"
        raise ConfigError(f"{model.path} is a packed file, for look {', '.join(VIEWS)}; {what}")
    if not (question.text or "").strip():
        raise ConfigError(f"{model.path} is a packed file without a stored example: give --text")
    record = model.explain(str(question.text), question.target, question.units)
    chosen = {field: getattr(question, field) for field in fields_of(name)[3:]}
    return VIEWS[name](record, **chosen)
