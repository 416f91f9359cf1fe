"""What a browser is told: runs, the events of an answer, drawings. No computing."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from foveate.look.drawing import AnyDrawing, Node, Part


class Told(Part):
    """Whatever is told: every field is there, those with a default too."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)


# ------------------------------------------------------------------------------ runs


class ViewField(Told):
    """A field of the question that a view reads; ``form`` is its JSON Schema."""

    name: str
    description: str
    form: dict[str, Any]


class ViewInfo(Told):
    """A view, and whether it fits the run; ``reason`` says why not.

    It takes from ``least`` to ``most`` runs in one picture (any number where ``most`` is absent).
    """

    name: str
    summary: str
    fields: list[ViewField]
    fits: bool
    reason: str = ""
    least: int = 1
    most: int | None = 1


class RunInfo(Told):
    """A run: what it reads and gives, how large it is, its figures."""

    id: str
    name: str
    task: str
    model: str
    reads: Literal["text", "picture", "series"]
    gives: Literal["text", "label", "forecast", "words"]
    parameters: int | None = None
    step: int | None = None
    figures: dict[str, float | None] = Field(default_factory=dict)


class SearchInfo(Told):
    """The run's own search, the kinds that it can change to, and their fields."""

    kind: str
    fields: dict[str, Any]
    kinds: dict[str, dict[str, Any]]


class RunDetail(RunInfo):
    """All that a screen needs to know of a run; it has been loaded.

    ``can`` holds words such as stream, beam, sample, force, attention, gates, silence, evaluate.
    """

    can: list[str]
    languages: list[str] = Field(default_factory=list)
    layers: int | None = None
    heads: int | None = None
    hidden_size: int | None = None
    vocabulary: dict[str, int] = Field(default_factory=dict)
    labels: list[str] = Field(default_factory=list)
    channels: list[str] = Field(default_factory=list)
    most_tokens: int | None = None
    search: SearchInfo | None = None
    views: list[ViewInfo]
    device: str
    checkpoint: str


class Example(Told):
    """Something to try: a text, the number of a picture, a date; ``wanted`` is the right answer."""

    text: str = ""
    picture: str | None = None
    thumbnail: str = ""
    date: str | None = None
    wanted: str = ""


class Examples(Told):
    """Examples of the run's own data; none, and a note why, where the data are not here."""

    examples: list[Example]
    note: str = ""


class RunList(Told):
    """The runs that the studio was given, and why some folders are none that can be shown."""

    runs: list[RunInfo]
    left_out: dict[str, str] = Field(default_factory=dict)


# ------------------------------------------------------------------------------ events of an answer


class SourceToken(Told):
    """A piece of what was read and its characters in it (first, one after the last)."""

    text: str
    start: int
    end: int


class Start(Told):
    """The answer begins: what is read."""

    event: Literal["start"] = "start"
    run: str
    source: list[SourceToken] = Field(default_factory=list)
    prefix: list[int] = Field(default_factory=list)
    cut: int = 0


class Alternative(Told):
    """A token that might have stood here; to force it, send the ids before it and its own."""

    id: int
    text: str
    p: float


class Token(Told):
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


class BeamStep(Told):
    """A step of a search that follows several outputs: its beginnings, best first.

    ``best`` is the node of the best output so far, ``text`` that output.
    """

    event: Literal["beam"] = "beam"
    step: int
    nodes: list[Node]
    best: int
    text: str


class Hypothesis(Told):
    """An output: its tokens (the end among them), and its nodes in the beam."""

    text: str
    log_p: float
    score: float
    ended: bool
    tokens: list[Token]
    path: list[int]


class TextDone(Told):
    """The outputs, best first."""

    event: Literal["done"] = "done"
    kind: Literal["text"] = "text"
    hypotheses: list[Hypothesis]
    drawings: list[AnyDrawing] = Field(default_factory=list)
    milliseconds: float = 0.0


class Probability(Told):
    """A label and its p."""

    label: str
    p: float


class LabelDone(Told):
    """The labels, the most probable first."""

    event: Literal["done"] = "done"
    kind: Literal["label"] = "label"
    labels: list[Probability]
    cut: int = 0
    drawings: list[AnyDrawing] = Field(default_factory=list)
    milliseconds: float = 0.0


class DrawnDone(Told):
    """An answer that is best drawn: a forecast, a text with its hidden words filled in."""

    event: Literal["done"] = "done"
    kind: Literal["drawn"] = "drawn"
    drawings: list[AnyDrawing]
    milliseconds: float = 0.0


Done = Annotated[TextDone | LabelDone | DrawnDone, Field(discriminator="kind")]


class Failed(Told):
    """The answer ends in an error."""

    event: Literal["error"] = "error"
    code: str
    message: str
    hint: str = ""


class Ping(Told):
    """Nothing new; the connection lives."""

    event: Literal["ping"] = "ping"


AnswerEvent = Annotated[
    Start | Token | BeamStep | TextDone | LabelDone | DrawnDone | Failed | Ping,
    Field(discriminator="event"),
]  # fmt: skip


class Answer(Told):
    """All events of an answer together: for those who do not stream."""

    start: Start
    beam: list[BeamStep] = Field(default_factory=list)
    done: Done


class Frame(Told):
    """A view at one step of a training."""

    step: int
    drawings: list[AnyDrawing]


class Film(Told):
    """A view as it changed over the checkpoints of a training that are still there."""

    frames: list[Frame]


class Drawings(Told):
    """A view as drawings; arrays above 64 kB are had from their URLs."""

    drawings: list[AnyDrawing]
    milliseconds: float
