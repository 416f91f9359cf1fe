"""Schemas of the studio's API: its requests, the events of its streams, its responses."""

from typing import Annotated, Literal

from pydantic import Field

from foveate.documents.alternatives import Formality
from foveate.look.draw.kinds import AnyDrawing
from foveate.look.draw.lanes import Node
from foveate.look.draw.parts import DrawingPart
from foveate.look.views.options import Question


class StudioResponse(DrawingPart):
    """A response: every field is present, including those with a default."""


class SearchSettings(DrawingPart):
    """Fields of a search; the run's own where they are absent.

    ``kind`` is one of ``foveate kinds search``; a field that the kind does not have is an error.
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


class SilencedHead(DrawingPart):
    """A head of a layer of a block, as an attention drawing names them; absent, all of the layer.

    ``layer`` is counted from 0, from the end where negative.
    """

    block: str
    layer: int
    head: int | None = Field(None, ge=0)


class AnswerRequest(DrawingPart):
    """The input of a run; each task reads the fields that it needs.

    ``text`` is a source, or the beginning of a text; ``picture`` a data URI of a PNG or JPEG, or
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
    silenced: list[SilencedHead] = Field(default_factory=list)
    hypotheses: int = Field(1, ge=1, le=64)
    top_k: int = Field(8, ge=0, le=50)


class ViewRequest(DrawingPart):
    """A view of one run or of several in one picture, with heads silenced while it is drawn."""

    runs: list[str] = Field(min_length=1, max_length=12)
    question: Question = Question()
    silenced: list[SilencedHead] = Field(default_factory=list)


class SourceToken(StudioResponse):
    """A token of the source and its characters there (first, one after the last)."""

    text: str
    start: int
    end: int


class AnswerStart(StudioResponse):
    """The answer begins: the tokens of the source, and its words that training never showed."""

    event: Literal["start"] = "start"
    run: str
    source: list[SourceToken] = Field(default_factory=list)
    unknown: list[str] = Field(default_factory=list)
    prefix: list[int] = Field(default_factory=list)
    cut: int = 0


class Alternative(StudioResponse):
    """Another token for the same place; to force it, send the ids before it and its own."""

    id: int
    text: str
    p: float


class Token(StudioResponse):
    """A token of an output. The ``text`` of all tokens in a row is the text of the output.

    ``text`` is empty where a token holds only a part of a character; ``piece`` is its name in the
    vocabulary. ``special`` tokens (the end) have no text.
    """

    event: Literal["token"] = "token"
    i: int
    id: int
    text: str
    piece: str
    special: bool = False
    log_p: float
    entropy: float
    alternatives: list[Alternative] = Field(default_factory=list)


class BeamStep(StudioResponse):
    """A step of a search with several hypotheses: its partial hypotheses, best first.

    ``best`` is the node of the best output so far, ``text`` that output.
    """

    event: Literal["beam"] = "beam"
    step: int
    nodes: list[Node]
    best: int
    text: str


class AnswerHypothesis(StudioResponse):
    """An output: its tokens (the end among them), its nodes in the beam, its form of address."""

    text: str
    formality: Formality
    log_p: float
    score: float
    ended: bool
    tokens: list[Token]
    path: list[int]


class TextDone(StudioResponse):
    """The outputs, best first."""

    event: Literal["done"] = "done"
    kind: Literal["text"] = "text"
    hypotheses: list[AnswerHypothesis]
    drawings: list[AnyDrawing] = Field(default_factory=list)
    milliseconds: float = 0.0


class Probability(StudioResponse):
    """A label and its probability."""

    label: str
    p: float


class LabelDone(StudioResponse):
    """The labels, the most probable first."""

    event: Literal["done"] = "done"
    kind: Literal["label"] = "label"
    labels: list[Probability]
    cut: int = 0
    drawings: list[AnyDrawing] = Field(default_factory=list)
    milliseconds: float = 0.0


class DrawnDone(StudioResponse):
    """An answer as drawings: a forecast, a text with its hidden words filled in."""

    event: Literal["done"] = "done"
    kind: Literal["drawn"] = "drawn"
    drawings: list[AnyDrawing]
    milliseconds: float = 0.0


Done = Annotated[TextDone | LabelDone | DrawnDone, Field(discriminator="kind")]


class Failed(StudioResponse):
    """The answer ends in an error."""

    event: Literal["error"] = "error"
    error: str


class Ping(StudioResponse):
    """Nothing new; it keeps the connection open."""

    event: Literal["ping"] = "ping"


class CompleteAnswer(StudioResponse):
    """All events of an answer together: for clients that do not stream."""

    start: AnswerStart
    beam: list[BeamStep] = Field(default_factory=list)
    done: Done


class Drawings(StudioResponse):
    """A view as drawings; arrays above 64 kB are fetched from their URLs.

    ``unknown`` are the words of its text that training never showed.
    """

    drawings: list[AnyDrawing]
    milliseconds: float
    unknown: list[str] = Field(default_factory=list)


class Progress(StudioResponse):
    """Number of examples that are done."""

    event: Literal["progress"] = "progress"
    done: int
    total: int
