"""The options of views: their parameters by type, and all of them together."""

from typing import Annotated, Literal

from pydantic import Field

from foveate.config import Config

Text = Annotated[str | None, Field(description="input of the model; for a forecaster, the date")]
Target = Annotated[
    str | None,
    Field(description="explain this output instead of the answer; for a forecaster, the channel"),
]
Image = Annotated[str | None, Field(description="JPEG or PNG, or the number of a test picture")]
Split = Annotated[str, Field(description="train, valid or test")]
Block = Annotated[str | None, Field(description="cross_attention, self_attention, …")]
Layer = Annotated[int, Field(description="counting from 0; -1 is the last")]
Head = Annotated[int | None, Field(ge=0, description="default: the mean of all; for scene, head 0")]
Train = Annotated[bool, Field(description="show the loss, and its gradient from the output back")]
Query = Annotated[
    int | None, Field(ge=0, description="query, or step of a cell, counting from 0; default: all")
]
Stop = Annotated[str | None, Field(description="stops whose names begin so: whole, step, …")]
Scale = Annotated[
    Literal["row", "absolute"] | None,
    Field(description="colours: absolute (default; per panel for pictures) or by row"),
]
AxisUnits = Annotated[
    Literal["auto", "tokens", "words"],
    Field(description="rows and columns; auto depends on the tokenizer and the script"),
]
Top = Annotated[int, Field(ge=1, description="number of alternatives for each token")]
Num = Annotated[int, Field(ge=1, description="number of outputs")]
BeamSize = Annotated[int | None, Field(ge=1, description="default: that of the run, or --num")]
Length = Annotated[int, Field(ge=2, le=4096, description="positions")]
Steps = Annotated[int, Field(ge=3, le=51, description="grid points per side, an odd number")]
Silent = Annotated[tuple[str, ...], Field(description="head to silence, PLACE:HEAD; repeat")]
Across = Annotated[Literal["step", "time"], Field(description="x axis: step or time")]
Method = Annotated[
    Literal["attention", "gradient", "integrated", "occlusion", "values"] | None,
    Field(description="default: attention (× gradient), or integrated (gradients) without it"),
]
Foil = Annotated[str | None, Field(description="why not this word, label or other answer")]
Instead = Annotated[str | None, Field(description="text of as many tokens; default: unknown words")]


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
    stop: Stop = None
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
    method: Method = None
    foil: Foil = None
    instead: Instead = None
