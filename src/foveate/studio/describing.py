"""What a run is and can, told without words of its author: for lists, pickers and forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foveate.config import kinds
from foveate.decode.search import Search
from foveate.errors import is_for_the_user, message_of
from foveate.run import Run, device
from foveate.studio.answers import Answerer, Filler, Foreteller, PictureLabeller, TextLabeller
from foveate.studio.asking import FILES
from foveate.studio.errors import Refused
from foveate.studio.shelf import Shelf
from foveate.studio.told import RunDetail, RunInfo, RunList, SearchInfo, ViewField, ViewInfo
from foveate.studio.writing import Captions, GoingOn, Translating
from foveate.train.journal import Line
from foveate.views import fits
from foveate.views.question import Question
from foveate.views.registry import VIEWS, Entry

BOOKKEEPING = {"step", "epoch", "seconds", "best"}  # of a line of a validation
ANSWERERS: Sequence[Answerer] = (
    Translating(),
    GoingOn(),
    Captions(),
    PictureLabeller(),
    TextLabeller(),
    Foreteller(),
    Filler(),
)


def answerer(task: Any) -> Answerer:
    """Who answers for a task, or for a class of tasks. Raises `Refused` where nobody does."""
    for one in ANSWERERS:
        if hasattr(task, one.method):
            return one
    name = task.__name__ if isinstance(task, type) else type(task).__name__
    raise Refused(422, "no_answer", f"the studio cannot ask a run of the task {name}")


def run_list(shelf: Shelf) -> RunList:
    """All runs; one that cannot be read is said, and takes none of the others away."""
    found, left_out = [], {}
    for name in shelf.folders:
        try:
            found.append(info(shelf, name))
        except Exception as error:
            if not is_for_the_user(error):
                raise
            left_out[name] = message_of(error)
    return RunList(runs=found, left_out=left_out)


def info(shelf: Shelf, name: str) -> RunInfo:
    """A run by its config and its log alone."""
    config, log = shelf.config(name), shelf.log(name)
    who = answerer(config.task.owner)
    return RunInfo(
        id=name,
        name=shelf.folder(name).name,
        task=str(config.task.kind),
        model=str(config.model.kind),
        reads=who.reads,
        gives=who.gives,
        parameters=_last(log, "start").get("parameters"),
        step=max((line.get("step", 0) for line in log), default=None),
        figures=figures(_last(log, "valid")),
    )


def figures(line: Line) -> dict[str, float | None]:
    """The measures in a line of a validation."""
    return {
        key: value
        for key, value in line.items()
        if key not in BOOKKEEPING and isinstance(value, int | float)
    }


def _last(log: Sequence[Line], event: str) -> Line:
    return next((line for line in reversed(log) if line.get("event") == event), {})


def detail(shelf: Shelf, name: str) -> RunDetail:
    """A run with what its model and its task say of themselves; it is loaded for it."""
    run = shelf.run(name)
    task, who = run.task, answerer(run.task)
    tokenizer = getattr(task, "source_tokenizer", None)
    views = [view_info(run, entry) for entry in VIEWS.values()]
    sizes = {"source": "source_tokenizer", "target": "target_tokenizer", "text": "tokenizer"}
    vocabulary = {
        key: getattr(task, name).vocab_size for key, name in sizes.items() if hasattr(task, name)
    }
    return RunDetail(
        **dict(info(shelf, name)),
        can=abilities(run, who),
        languages=[tag[2:-1] for tag in getattr(tokenizer, "tags", ())],
        **shape(run),
        vocabulary=vocabulary,
        labels=label_names(task),
        channels=list(task.names) if who.reads == "series" else [],
        most_tokens=task.data.max_length if who.reads == "text" else None,
        search=searches(run) if who.gives == "text" else None,
        views=views,
        device=device(),
        checkpoint=run.checkpoint,
    )


def abilities(run: Run, who: Answerer) -> list[str]:
    """What can be done with a run, in words that a program knows."""
    attends = fits.attends(run) is None
    found = [*who.can, *(("attention", "silence") if attends else ())]
    found += ["gates"] if fits.recurs(run) is None else []
    return [*found, "evaluate"]


def label_names(task: Any) -> list[str]:
    """The labels of a task that gives one."""
    labels = getattr(task, "labels", None)
    names = getattr(labels, "names", getattr(task, "names", ()))
    return [] if hasattr(task, "forecast") else [str(name) for name in names]


def shape(run: Run) -> dict[str, int | None]:
    """Layers, heads and the hidden size, where the config says them anywhere."""
    found: dict[str, int] = {}
    _search(run.config.model.tree(), found)
    return {
        "layers": found.get("num_layers"),
        "heads": found.get("num_heads"),
        "hidden_size": found.get("hidden_size"),
    }


def _search(tree: Any, found: dict[str, int]) -> None:
    """The first number under each name, the outermost table first."""
    if not isinstance(tree, dict):
        return
    for key, value in tree.items():
        if isinstance(value, int) and not isinstance(value, bool):
            found.setdefault(key, value)
    for value in tree.values():
        _search(value, found)


def searches(run: Run) -> SearchInfo:
    """The run's search, and the fields of each kind with their defaults."""
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


def view_info(run: Run | None, entry: Entry) -> ViewInfo:
    """A view and whether it fits; without a run, the view alone."""
    reason = None if run is None else entry.unfit(run)
    form = Question.model_json_schema()["properties"]
    least, most = entry.runs
    return ViewInfo(
        name=entry.name,
        summary=entry.summary,
        fields=[
            ViewField(name=name, description=form[name].pop("description", ""), form=form[name])
            for name in entry.reads
            if name not in FILES
        ],
        fits=reason is None,
        reason=reason or "",
        least=least,
        most=None if most == float("inf") else int(most),
    )
