"""Descriptions of runs and their models, for the lists, pickers and forms of the studio.

All of it comes from the configs, logs, tasks and models themselves.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from pydantic import Field

import foveate.look.views.examples as examples
from foveate.config import PACKAGED, Config, kinds
from foveate.data.published import PublishedPieces
from foveate.data.tokenizer import Tokenizer
from foveate.decode.search import Search
from foveate.errors import FOR_THE_USER, message_of
from foveate.look.views import VIEWS, file_fields
from foveate.look.views.demos import DEMOS
from foveate.look.views.options import Question
from foveate.run import Run, device, task_of
from foveate.serve.runs import StoredRun
from foveate.studio.schemas import StudioResponse
from foveate.studio.state import StudioRuns
from foveate.studio.trainings import figures
from foveate.tasks.abilities import Classifies
from foveate.tasks.base import Gives, Reads
from foveate.tasks.forecasting import Forecasting
from foveate.tasks.text import TextToText
from foveate.train import journal
from foveate.train.checkpoint import origin_of
from foveate.train.journal import Line

CAN = {  # what a page can do with a run, by the output of its task
    "text": ("stream", "beam", "sample", "force"),
    "label": ("classify",),
    "words": ("fill",),
    "forecast": ("forecast",),
}


class ViewField(StudioResponse):
    """A field of the question that a view reads; ``form`` is its JSON Schema."""

    name: str
    description: str
    form: dict[str, object]


class ViewInfo(StudioResponse):
    """A view, and whether it fits the run; ``reason`` says why not.

    It takes up to ``most`` runs in one picture (any number where ``most`` is absent).
    """

    name: str
    summary: str
    fields: list[ViewField]
    fits: bool
    reason: str = ""
    most: int | None = 1


class Origin(StudioResponse):
    """The published folder that a run was imported from, and what its files say.

    ``positions`` is how many tokens it reads at most, ``dtype`` the type of its stored weights.
    """

    folder: str
    family: str
    languages: list[str]
    parameters: int | None = None
    positions: int | None = None
    dtype: str = ""


class RunInfo(StudioResponse):
    """A run: whether it ships with foveate, what it reads and gives, its size, its figures.

    ``origin`` is that of a run that was imported and not trained here.
    """

    id: str
    name: str
    packaged: bool = False
    origin: Origin | None = None
    task: str
    model: str
    reads: Reads
    gives: Gives
    parameters: int | None = None
    step: int | None = None
    figures: dict[str, float | None] = Field(default_factory=dict)


class SearchInfo(StudioResponse):
    """The run's own search, the other kinds of search, and their fields."""

    kind: str
    fields: dict[str, object]
    kinds: dict[str, dict[str, object]]


class RunDetail(RunInfo):
    """All that a page shows of a run; it has been loaded.

    ``layers`` is the first of ``depths``, those of each part: an encoder's, then its decoder's.
    ``vocabulary`` counts the pieces of each side as published, those that both have as "shared".
    ``can`` holds words such as stream, beam, sample, force, attention, gates, silence, evaluate.
    """

    can: list[str]
    languages: list[str] = Field(default_factory=list)
    layers: int | None = None
    depths: list[int] = Field(default_factory=list)
    heads: int | None = None
    hidden_size: int | None = None
    ffn_size: int | None = None
    activation: str = ""
    norm_order: str = ""
    tie: str = ""
    vocabulary: dict[str, int] = Field(default_factory=dict)
    labels: list[str] = Field(default_factory=list)
    channels: list[str] = Field(default_factory=list)
    most_tokens: int | None = None
    search: SearchInfo | None = None
    views: list[ViewInfo]
    device: str
    checkpoint: str
    folder: str


class RunList(StudioResponse):
    """The runs of the studio, and why some of them cannot be shown."""

    runs: list[RunInfo]
    left_out: dict[str, str] = Field(default_factory=dict)


class DemoInfo(StudioResponse):
    """A demo and its options; those that name files are left out."""

    name: str
    summary: str
    fields: list[ViewField]


class DemoList(StudioResponse):
    """All demos."""

    demos: list[DemoInfo]


def run_list(store: StudioRuns) -> RunList:
    """Return all runs; an unreadable one is left out, with the reason."""
    infos, left_out = [], {}
    for name in store.names():
        try:
            infos.append(info(store.find(name)))
        except FOR_THE_USER as error:
            left_out[name] = message_of(error)
    return RunList(runs=infos, left_out=left_out)


def info(stored: StoredRun[Run]) -> RunInfo:
    """Describe a run by its config and its log alone."""
    config, log = stored.config, journal.read(stored.folder)
    says = origin_of(stored.folder)
    origin = Origin.model_validate(says) if says else None
    task = task_of(config)
    return RunInfo(
        id=stored.name,
        name=stored.folder.name,
        packaged=stored.folder.parent == PACKAGED,
        origin=origin,
        task=str(config.task.kind),
        model=str(config.model.kind),
        reads=task.reads,
        gives=task.gives,
        parameters=origin.parameters if origin else _last(log, "start").get("parameters"),
        step=max((line["step"] for line in log), default=None),
        figures=figures(_last(log, "valid")),
    )


def _last(log: Sequence[Line], event: str) -> Line:
    return next((line for line in reversed(log) if line.get("event") == event), {})


def detail(stored: StoredRun[Run], run: Run) -> RunDetail:
    """Describe a run with its model, its task, its search and its views."""
    task, settings, basics = run.task, [*_settings(run.config.model.tree())], info(stored)
    first = dict(reversed(settings))  # the first of each name counts
    read = task.data.max_length if task.reads == "text" else None
    return RunDetail(
        **dict(basics),
        can=abilities(run),
        languages=task.sides.languages if isinstance(task, TextToText) else [],
        layers=first.get("num_layers"),
        depths=[number for key, number in settings if key == "num_layers"],
        heads=first.get("num_heads"),
        hidden_size=first.get("hidden_size"),
        ffn_size=first.get("ffn_size"),
        activation=first.get("feed_forward", {}).get("kind", ""),
        norm_order=first.get("norm_order", ""),
        tie=first.get("tie", ""),
        vocabulary=_pieces(task.tokenizers_by_name()),
        labels=list(task.label_names) if isinstance(task, Classifies) else [],
        channels=list(task.names) if isinstance(task, Forecasting) else [],
        most_tokens=basics.origin.positions if basics.origin else read,
        search=searches(run) if task.gives == "text" else None,
        views=[
            ViewInfo(
                name=entry.name,
                summary=entry.summary,
                fields=form_fields(Question, entry.reads),
                fits=(reason := entry.unfit(run)) is None,
                reason=reason or "",
                most=None if entry.spec.several else 1,
            )
            for entry in [*VIEWS.values()]
        ],
        device=device(),
        checkpoint=run.checkpoint,
        folder=str(run.folder),
    )


def abilities(run: Run) -> list[str]:
    """Return what can be done with a run, in the names that the page uses."""
    attention = ("attention", "silence") if examples.attends(run) is None else ()
    gates = ("gates",) if examples.recurs(run) is None else ()
    return [*CAN[run.task.gives], *attention, *gates, "evaluate"]


def _settings(tree: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the settings of a table, then those of the tables in it."""
    yield from tree.items()
    for value in tree.values():
        yield from _settings(value) if isinstance(value, dict) else ()


def _pieces(tokenizers: dict[str, Tokenizer]) -> dict[str, int]:
    """Return how many pieces each side has, without second rows; of one vocabulary, once."""
    sizes = {
        name: len({*each.published}) if isinstance(each, PublishedPieces) else each.vocab_size
        for name, each in tokenizers.items()
    }
    source, *others = [each.pieces for each in tokenizers.values()] or [[]]
    return {"shared": min(sizes.values())} if others == [source] else sizes


def searches(run: Run) -> SearchInfo:
    """Describe the run's search, and the fields of each kind with their defaults."""
    own = run.config.decode
    fields = {key: value for key, value in own.tree().items() if key != "kind"}
    others = {
        name: {
            key: field.get_default(call_default_factory=True)
            for key, field in config.model_fields.items()
            if isinstance(field.default, int | float | None)
        }
        for name, config in kinds(Search.Config.family)["search"].items()
    }
    return SearchInfo(kind=str(own.kind), fields=fields, kinds=others)


def form_fields(form: type[Config], names: Iterable[str]) -> list[ViewField]:
    """Return the fields of a form with their JSON Schemas, without those for files."""
    schemas, files = form.model_json_schema()["properties"], file_fields(form)
    return [
        ViewField(name=name, description=schemas[name].pop("description", ""), form=schemas[name])
        for name in names
        if name not in files
    ]


@cache
def demo_list() -> DemoList:
    """Return all demos with their options."""
    demos = []
    for entry in DEMOS.values():
        fields = form_fields(entry.options, entry.options.model_fields)
        demos.append(DemoInfo(name=entry.name, summary=entry.summary, fields=fields))
    return DemoList(demos=demos)
