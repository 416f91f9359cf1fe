"""The options of all views together, of which each reads its parameters; views of packed files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field

import foveate.look.draw.maps as maps
from foveate.config import Config
from foveate.errors import ConfigError
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.maps import ScaleName
from foveate.look.records import Units

if TYPE_CHECKING:
    from foveate.engine.packed import PackedModel

Across = Literal["step", "time"]
Method = Literal["attention", "gradient", "integrated", "occlusion", "values"]


class Question(Config):
    """Options of a view: what to look at, and how. It reads those fields that it has as parameters.

    Where no ``text`` is given, an example of the run's last validation stands in.
    """

    text: str | None = Field(None, description="input of the model; for a forecaster, the date")
    target: str | None = Field(
        None, description="explain this output instead of the answer; for a forecaster, the channel"
    )
    image: str | None = Field(None, description="JPEG or PNG, or the number of a test picture")
    split: str = Field("test", description="train, valid or test")
    block: str | None = Field(None, description="cross_attention, self_attention, …")
    layer: int = Field(-1, description="counting from 0; -1 is the last")
    head: int | None = Field(None, ge=0, description="default: the mean of all; for scene, head 0")
    query: int | None = Field(
        None, ge=0, description="query, or step of a cell, counting from 0; default: all"
    )
    stop: str | None = Field(None, description="stops whose names begin so: whole, step, …")
    train: bool = Field(False, description="show the loss, and its gradient from the output back")
    scale: ScaleName | None = Field(
        None, description="colours: absolute (default; per panel for pictures) or by row"
    )
    units: Units = Field(
        "auto", description="rows and columns; auto depends on the tokenizer and the script"
    )
    top: int = Field(5, ge=1, description="number of alternatives for each token")
    num: int = Field(5, ge=1, description="number of outputs")
    beam_size: int | None = Field(None, ge=1, description="default: that of the run, or --num")
    length: int = Field(64, ge=2, le=4096, description="positions")
    steps: int = Field(7, ge=3, le=51, description="grid points per side, an odd number")
    silence: tuple[str, ...] = Field((), description="head to silence, PLACE:HEAD; repeat")
    across: Across = Field("step", description="x axis: step or time")
    method: Method | None = Field(
        None, description="default: attention (× gradient), or integrated (gradients) without it"
    )
    foil: str | None = Field(None, description="alternative to explain against: a word or label")
    instead: str | None = Field(None, description="text of as many tokens; default: unknown words")


# Views of packed files, which need only a record of attention, without PyTorch.

WHERE = ("block", "layer", "head", "scale")
PACKED_VIEWS: Mapping[
    str, tuple[Callable[..., Drawing], tuple[str, ...]]
] = {  # and what each reads
    "attention": (maps.attention, WHERE),
    "links": (lambda *record, **where: maps.links(maps.attention(*record, **where)), WHERE),
    "heads": (maps.heads, ("block", "scale")),
}


def draw_packed(name: str, model: PackedModel, question: Question) -> Drawing:
    """Draw a view of a packed file. Raises `ConfigError` if it needs PyTorch, or lacks a text."""
    if name not in PACKED_VIEWS or question.silence or question.image is not None:
        what = "other views, pictures and silenced heads need PyTorch and the original run"
        known = ", ".join(PACKED_VIEWS)
        raise ConfigError(f"{model.path} is a packed file, for look {known}; {what}")
    if not (question.text or "").strip():
        raise ConfigError(f"{model.path} is a packed file without a stored example: give --text")
    record = model.explain(str(question.text), question.target, question.units)
    function, fields = PACKED_VIEWS[name]
    return function(record, **{field: getattr(question, field) for field in fields})
