"""The example that a view draws, and its requirements: each returns why not, or None."""

from collections.abc import Callable, Sequence
from pathlib import Path

from torch import nn

from foveate.config import ConfigError
from foveate.data.catalogue import MissingData
from foveate.look.hooks import ForcedPass
from foveate.look.perturbations import encodings, layers_of, output_of, stems_of
from foveate.look.records import Units
from foveate.look.views import Need
from foveate.models.encoder_decoder import Decoder, Writer
from foveate.nn.attention import BaseAttention
from foveate.nn.recurrent import Cell
from foveate.run import Run
from foveate.run.evaluation import examples
from foveate.run.passes import UNEXPLAINED, forced_pass
from foveate.tasks.abilities import Generates, Scores
from foveate.tasks.base import AnyTask, Task
from foveate.tasks.forecasting import Forecasting
from foveate.tasks.image_classification import PictureTask
from foveate.tasks.language import Language
from foveate.train.journal import SNAPSHOTS, last_samples, read

Picture = int | Path


def described(runs: Sequence[Run]) -> list[str]:
    """Return what each run is: its kind of network, and its folder's name where two are alike."""
    names = []
    for run in runs:
        parts = [*run.model.modules()]
        cells = {type(p).__name__.removesuffix("Cell") for p in parts if isinstance(p, Cell)}
        attends = any(isinstance(part, BaseAttention) for part in parts)
        kind = " and ".join(sorted(cells)).replace("Elman", "RNN") or "Transformer" * attends
        names.append(kind + " with attention" * bool(cells and attends))
    return [
        name if name and names.count(name) == 1 else " ".join([name, run.path.name]).strip()
        for name, run in zip(names, runs, strict=True)
    ]


def example_of(run: Run, text: str | None = None, image: str | None = None) -> Picture | str | None:
    """Return what the task of a run explains: a line of text, a picture, or a forecast's date."""
    if isinstance(run.task, PictureTask):
        return picture_of(image or "0")
    return text if isinstance(run.task, Forecasting) else text_of(run, text)


def text_of(run: Run, text: str | None = None) -> str:
    """Return the text, else the first source of the last validation that logged samples.

    Raises `ConfigError` if there is neither, and for a text of spaces only.
    """
    if text is not None:
        if not text.strip():
            raise ConfigError(f"--text {text!r} is blank: give some words, or omit the option")
        return text
    sources = [sample["source"].split("\n")[0] for sample in last_samples(run.path)]
    if not sources:
        raise ConfigError(f"{run.folder} has no stored example: give --text")
    return str(sources[0])


def picture_of(name: str) -> Picture:
    """Return a file, or the number of a test picture. Raises `ConfigError` for anything else."""
    if Path(name).is_file():
        return Path(name)
    if name.isascii() and name.isdecimal():
        return int(name)
    raise ConfigError(
        f"{name}: file not found; give a JPEG or PNG, or the number of a test picture"
    )


def ready(
    run: Run, text: str | None, target: str | None, image: str | None, units: Units = "auto"
) -> ForcedPass:
    """Return the forced pass over the given example, or over the run's own."""
    return run.forced(example_of(run, text, image), target, units)


def evaluated_split(task: AnyTask) -> str:
    """Return the test split, or valid if there is none."""
    try:
        return "test" if len(examples(task, "test")) else "valid"
    except (MissingData, ConfigError):  # no file of it, or a series that is too short
        return "valid"


def condition(met: Callable[[Run], bool], reason: str) -> Need:
    """Return a requirement of a view: called with a run, it returns the reason why not, or None.

    ``{task}`` in a ``reason`` is the kind of the run's task.
    """
    return lambda run: None if met(run) else reason.format(task=run.config.task.kind)


def has_part(kind: type[nn.Module], reason: str, suffix: str = "") -> Need:
    """Return a condition: the model has a module of ``kind`` whose name ends in ``suffix``."""
    return condition(
        lambda run: any(
            isinstance(part, kind) and name.endswith(suffix)
            for name, part in run.model.named_modules()
        ),
        reason,
    )


def task_is(kind: type, reason: str) -> Need:
    """Return a condition: the task is of the class ``kind``."""
    return condition(lambda run: isinstance(run.task, kind), f"the task {{task}} {reason}")


def logs(event: str, reason: str) -> Need:
    """Return a condition: the log has a line for ``event``."""
    return condition(lambda run: any(line.get("event") == event for line in read(run.path)), reason)


def decoder_of(model: nn.Module) -> Decoder | None:
    """Return the decoder of a model that writes tokens, else None."""
    return model.decoder if isinstance(model, Writer) else None


def gives_probabilities(run: Run) -> str | None:
    """Return why a run gives no probability of an example, or None if it does."""
    forecast = isinstance(run.task, Forecasting)
    return "a forecast has no probability" if forecast else explains(run)


attends = has_part(BaseAttention, "its model has no attention")
crosses = has_part(BaseAttention, "its model has no attention to a source", "cross_attention")
recurs = has_part(Cell, "its model has no recurrent cells")
models_language = task_is(Language, "does not model plain text")
translates = task_is(Scores, "does not map text to text")
writes = task_is(Generates, "does not write text")
reads_pictures = task_is(PictureTask, "is not about pictures")
forecasts = task_is(Forecasting, "is not about series")
trained = logs("train", "its log contains no training steps")
watched = logs("health", "its log has no module norms: train with train.health_every")
filmed = condition(
    lambda run: (run.path / SNAPSHOTS).is_file(),
    "it has no attention snapshots: train with train.snapshots.every",
)
explains = condition(
    lambda run: forced_pass.dispatch(type(run.task)) is not forced_pass.dispatch(object),
    f"the task {{task}} {UNEXPLAINED}",
)
exposed = condition(
    lambda run: (
        run.model.feeds_back
        if isinstance(run.task, Forecasting)
        else isinstance(run.task, Generates)
    ),
    "its model does not read its own output",
)
reads_words = condition(
    lambda run: isinstance(run.task, Task) and not isinstance(run.task, PictureTask | Forecasting),
    "it does not read words",
)
forced_to_text = condition(
    lambda run: decoder_of(run.model) is not None, "its model does not write text"
)
embeds = condition(
    lambda run: "stem" in dict((decoder_of(run.model) or nn.Module()).named_children()),
    "its model has no embeddings to take gradients of",
)
layered = condition(
    lambda run: layers_of(run.model) is not None and output_of(run.model) is not None,
    "its model has no stack of layers that produces an output",
)
stemmed = condition(
    lambda run: bool(stems_of(run.model)), "its model has no input positions to shuffle"
)
places = condition(lambda run: bool(encodings(run.model)), "its model has no position encoding")
