"""The options of views: their parameters by type, and all of them together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from foveate.config import Config

Text = Annotated[str | None, Field(description="what the model reads; of a forecaster the date")]
Target = Annotated[
    str | None, Field(description="explain this instead of the answer; of a forecaster the channel")
]
Image = Annotated[str | None, Field(description="JPEG or PNG, or the number of a test picture")]
Split = Annotated[str, Field(description="train, valid or test")]
Block = Annotated[str | None, Field(description="cross_attention, self_attention, …")]
Layer = Annotated[int, Field(description="from 0, or -1 for the last")]
Head = Annotated[int | None, Field(ge=0, description="the mean of all if absent; of steps head 0")]
Train = Annotated[bool, Field(description="the loss, and its gradient from the output back")]
Query = Annotated[
    int | None, Field(ge=0, description="which query, or step of a cell, from 0; all if absent")
]
Scale = Annotated[
    Literal["row", "absolute"] | None,
    Field(description="colours: absolute (default; of pictures by panel), or by row"),
]
AxisUnits = Annotated[
    Literal["auto", "tokens", "words"],
    Field(description="rows and columns; auto: by the tokenizer and the script"),
]
Top = Annotated[int, Field(ge=1, description="how many alternatives of each token")]
Num = Annotated[int, Field(ge=1, description="how many outputs")]
BeamSize = Annotated[
    int | None, Field(ge=1, description="of the run, or as wide as --num, if absent")
]
Length = Annotated[int, Field(ge=2, le=4096, description="positions")]
Steps = Annotated[int, Field(ge=3, le=51, description="steps a side of the grid, an odd number")]
Silent = Annotated[tuple[str, ...], Field(description="heads that add nothing: PLACE:HEAD; repeat")]
Across = Annotated[Literal["step", "time"], Field(description="what x is: step or time")]
Drop = Annotated[
    tuple[Literal["order", "positions", "scaling"], ...],
    Field(
        strict=False, description="order (words are shuffled), positions, scaling (÷ √K); repeat"
    ),
]
GoldFile = Annotated[Path | None, Field(description="gold alignment of the split: 1-1 2p3 a line")]
Sources = Annotated[Path | None, Field(description="sources, line by line")]
ReferenceFile = Annotated[Path | None, Field(description="references, line by line")]
Outputs = Annotated[tuple[Path, ...], Field(description="outputs, line by line; repeat")]


class Question(Config):
    """What to look at, and how. A view reads those fields that it has as parameters.

    Where no ``text`` is given, an example of the run's last validation stands in.
    """

    text: Text = None
    target: Target = None
    image: Image = None
    split: Split = "test"
    block: Block = None
    layer: Layer = -1
    head: Head = None
    query: Query = None
    train: Train = False
    scale: Scale = None
    units: AxisUnits = "auto"
    top: Top = 5
    num: Num = 5
    beam_size: BeamSize = None
    length: Length = 64
    steps: Steps = 7
    silence: Silent = ()
    across: Across = "step"
    drop: Drop = ("order",)
    gold: GoldFile = None
    source: Sources = None
    reference: ReferenceFile = None
    hypotheses: Outputs = ()
