"""What a browser asks: a source, how to search, which heads to silence. No answers."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from foveate.look.drawing import Part
from foveate.views.question import Question

MOST_CHARACTERS = 10_000


class SearchSettings(Part):
    """Choices of a search; the run's own where they are absent.

    ``kind`` is one of ``foveate kinds search``; a choice that the kind does not have is an error.
    """

    kind: str | None = None
    beam_size: int | None = Field(None, ge=1, le=64)
    length_penalty: float | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    num_samples: int | None = Field(None, ge=1, le=64)
    groups: int | None = None
    diversity: float | None = None
    max_ratio: float | None = None
    max_extra: int | None = Field(None, ge=1, le=2000)
    seed: int | None = None

    def fields(self) -> dict[str, Any]:
        """The choices that were made, but for the kind."""
        said = self.model_dump(exclude={"kind"})
        return {name: value for name, value in said.items() if value is not None}


class Head(Part):
    """A head of a layer of a block, as an attention drawing names them; absent, all of the layer.

    ``layer`` is counted from 0, from the end where negative.
    """

    block: str
    layer: int
    head: int | None = Field(None, ge=0)


class Ask(Part):
    """What a run is asked; each task reads the fields that it has a use for.

    ``text`` is a source, or what a text begins with; ``picture`` a data URI of a PNG or JPEG, or
    the number of a test picture; ``date`` the first row of a forecast (absent: what comes after
    the series), ``channel`` one of the series, ``csv`` a table of the user's with the same columns.
    Outputs begin with the ids of the ``prefix``, or with the text ``beginning``.
    """

    text: str = ""
    to: str | None = None
    picture: str | None = None
    date: str | None = None
    channel: str | None = None
    csv: str | None = None
    search: SearchSettings = SearchSettings()
    prefix: list[int] = Field(default_factory=list)
    beginning: str = ""
    silenced: list[Head] = Field(default_factory=list)
    hypotheses: int = Field(1, ge=1, le=20)
    top_k: int = Field(8, ge=0, le=50)


FILES = frozenset(
    name for name, field in Question.model_fields.items() if "Path" in str(field.annotation)
)  # fields of a question that name files of this machine: a browser may not


class FilmAsk(Part):
    """A view at several checkpoints of a training, ``most`` of them, the last among them."""

    view: str = "attention"
    question: Question = Question()
    most: int = Field(6, ge=1, le=24)


class ViewsAsk(Part):
    """A view of one run or of several in one picture, with heads silenced while it is made."""

    runs: list[str] = Field(min_length=1, max_length=12)
    question: Question = Question()
    silenced: list[Head] = Field(default_factory=list)
