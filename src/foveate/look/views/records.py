"""Views of packed files that need only a record of attention, without PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import foveate.look.draw.maps as maps
from foveate.errors import ConfigError
from foveate.look.draw.drawings import Drawing
from foveate.look.views.options import Question

if TYPE_CHECKING:
    from foveate.engine.packed import PackedModel

WHERE = ("block", "layer", "head", "scale")
VIEWS: Mapping[str, tuple[Callable[..., Drawing], tuple[str, ...]]] = {  # and what each reads
    "attention": (maps.attention, WHERE),
    "links": (lambda *record, **where: maps.links(maps.attention(*record, **where)), WHERE),
    "heads": (maps.heads, ("block", "scale")),
}


def draw(name: str, model: PackedModel, question: Question) -> Drawing:
    """Draw a view of a packed file. Raises `ConfigError` if it needs PyTorch, or lacks a text."""
    if name not in VIEWS or question.silence or question.image is not None:
        what = "other views, pictures and silenced heads need PyTorch and the original run"
        raise ConfigError(f"{model.path} is a packed file, for look {', '.join(VIEWS)}; {what}")
    if not (question.text or "").strip():
        raise ConfigError(f"{model.path} is a packed file without a stored example: give --text")
    record = model.explain(str(question.text), question.target, question.units)
    function, fields = VIEWS[name]
    return function(record, **{field: getattr(question, field) for field in fields})
