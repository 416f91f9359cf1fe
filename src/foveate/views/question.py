"""What is asked of a run when it is looked at: one model for all views; each reads some fields."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from foveate.config import Config


class Question(Config):
    """What to look at, and how. A view says which fields it reads (`Entry.reads`).

    Where no ``text`` is given, an example of the run's last validation stands in.
    """

    text: str | None = Field(None, description="what the model reads; of a forecaster the date")
    target: str | None = Field(
        None, description="explain this instead of the answer; of a forecaster the channel"
    )
    image: str | None = Field(None, description="JPEG or PNG, or the number of a test picture")
    split: str = Field("test", description="train, valid or test")
    block: str | None = Field(None, description="cross_attention, self_attention, …")
    layer: int = Field(-1, description="from 0, or -1 for the last")
    head: int | None = Field(None, ge=0, description="mean of all if absent")
    scale: Literal["row", "absolute"] = Field("row", description="colours by row, or absolute")
    units: Literal["auto", "tokens", "words"] = Field(
        "auto", description="rows and columns; auto: by the tokenizer and the script"
    )
    top: int = Field(5, ge=1, description="how many alternatives of each token")
    num: int = Field(5, ge=1, description="how many outputs")
    beam_size: int | None = Field(
        None, ge=1, description="of the run, or as wide as --num, if absent"
    )
    length: int = Field(64, ge=2, description="places")
    steps: int = Field(7, ge=3, le=51, description="steps a side of the grid, an odd number")
    silence: tuple[str, ...] = Field((), description="heads that add nothing: PLACE:HEAD; repeat")
    across: Literal["step", "time"] = Field("step", description="what x is: step or time")
    gold: Path | None = Field(None, description="gold alignment of the split: 1-1 2p3 a line")
    source: Path | None = Field(None, description="sources, line by line")
    reference: Path | None = Field(None, description="references, line by line")
    hypotheses: tuple[Path, ...] = Field((), description="outputs, line by line; repeat")
