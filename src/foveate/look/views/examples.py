"""The example that a view draws, and what a view needs of a run: each a reason why not, or None."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from foveate.config import ConfigError
from foveate.look.inside import layers_of
from foveate.look.models import encodings, side_of
from foveate.look.records import AttentionRecord, ForcedPass
from foveate.look.words import Units
from foveate.models.encoder_decoder import Decoder, EncoderDecoder
from foveate.models.language_model import LanguageModel
from foveate.nn.attention import BaseAttention
from foveate.nn.recurrent import Cell
from foveate.run import Run
from foveate.tasks.base import Aligns, Generates, Scores, Task
from foveate.tasks.forecasting import Forecasting
from foveate.tasks.image_classification import PictureTask
from foveate.tasks.language import Language
from foveate.train.journal import last_samples, read

Picture = int | Path


def source(run: Run, text: str | None = None, image: str | None = None) -> Picture | str | None:
    """What the task of a run explains: a line of text, a picture, or the date of a forecast."""
    if isinstance(run.task, PictureTask):
        return picture_of(image or "0")
    return text if isinstance(run.task, Forecasting) else text_of(run, text)


def text_of(run: Run, text: str | None = None) -> str:
    """The text, else the first source of the last validation that logged samples.

    Raises `ConfigError` where there is neither.
    """
    if text is not None:
        return text
    sources = [sample["source"].splitlines()[0] for sample in last_samples(run.path)]
    if not sources:
        raise ConfigError(f"{run.path} has kept no example: give --text")
    return str(sources[0])


def picture_of(name: str) -> Picture:
    """A file, or the number of a picture of the test data. Raises `ConfigError` for neither."""
    if Path(name).is_file():
        return Path(name)
    if name.isascii() and name.isdecimal():
        return int(name)
    raise ConfigError(f"{name}: no such file; give a JPEG or PNG, or the number of a test picture")


def ready(
    run: Run, text: str | None, target: str | None, image: str | None, units: Units = "auto"
) -> ForcedPass:
    """The forced pass over the example that is named, or over the run's own."""
    return run.forced(source(run, text, image), target, units)


def explained(
    run: Run, text: str | None, target: str | None, image: str | None, units: Units = "auto"
) -> AttentionRecord:
    """What every attention of a run attends to in the example."""
    return run.explain(source(run, text, image), target, units)


# ------------------------------------------------------------------------------------------- needs


def attends(run: Run) -> str | None:
    """A model with attention."""
    has = any(isinstance(part, BaseAttention) for part in run.model.modules())
    return None if has else "its model has no attention"


def crosses(run: Run) -> str | None:
    """A model whose decoder attends to the source."""
    has = any(
        isinstance(part, BaseAttention) and name.endswith("cross_attention")
        for name, part in run.model.named_modules()
    )
    return None if has else "its model has no attention to a source"


def explains(run: Run) -> str | None:
    """A task that can tell what was attended to."""
    has = isinstance(run.task, Task) and type(run.task).forced_pass is not Task.forced_pass
    return None if has else f"the task {run.config.task.kind} has nothing to explain"


def recurs(run: Run) -> str | None:
    """A model with recurrent cells."""
    has = any(isinstance(part, Cell) for part in run.model.modules())
    return None if has else "its model has no recurrent cells"


def decoder_of(model: nn.Module) -> Decoder | None:
    """The decoder of a model that writes tokens."""
    return model.decoder if isinstance(model, EncoderDecoder | LanguageModel) else None


def embeds(run: Run) -> str | None:
    """A model whose decoder has a stem that gives embeddings."""
    decoder = decoder_of(run.model)
    has = decoder is not None and "stem" in dict(decoder.named_children())
    return None if has else "its model has no embeddings that a gradient could be asked of"


def gives_probabilities(run: Run) -> str | None:
    """A model that gives a probability, of an example that can be forced."""
    forecasts = isinstance(run.task, Forecasting)
    return "a forecast has no probability" if forecasts else explains(run)


def layered(run: Run) -> str | None:
    """A stack of layers behind each other, whose last one tokens or labels are read from."""
    has = layers_of(run.model) is not None and "output" in dict(run.model.named_children())
    return None if has else "its model has no stack of layers that an output is read from"


def stemmed(run: Run) -> str | None:
    """A model that reads places, one vector each."""
    return None if side_of(run.model) else "its model reads no places that could be shuffled"


def models_language(run: Run) -> str | None:
    """A language model."""
    return _of_kind(run, Language, "models no plain text")


def translates(run: Run) -> str | None:
    """A run that makes a text of a text, and can be forced to one."""
    return _of_kind(run, Scores, "makes no text of a text")


def writes(run: Run) -> str | None:
    """A run that writes tokens one after the other."""
    return _of_kind(run, Generates, "writes no text")


def forced_to_text(run: Run) -> str | None:
    """A model that writes a text, token by token, and can be forced to one."""
    if reason := explains(run):
        return reason
    return None if decoder_of(run.model) is not None else "its model writes no text"


def reads_words(run: Run) -> str | None:
    """A run that reads words."""
    has = isinstance(run.task, Task) and not isinstance(run.task, PictureTask | Forecasting)
    return None if has else "it reads no words"


def reads_pictures(run: Run) -> str | None:
    """A run about pictures that can draw over them."""
    return _of_kind(run, PictureTask, "is not about pictures")


def forecasts(run: Run) -> str | None:
    """A run about series."""
    return _of_kind(run, Forecasting, "is not about series")


def crosses_words(run: Run) -> str | None:
    """A model with cross-attention whose maps are known between words."""
    return crosses(run) or _of_kind(run, Aligns, "has no maps between words")


def trained(run: Run) -> str | None:
    """A run whose log has lines of training."""
    return _logged(run, "train", "its log has no line of training")


def watched(run: Run) -> str | None:
    """A run whose log has the norms of its modules."""
    return _logged(run, "health", "its log has no norms of modules: train with train.health_every")


def places(run: Run) -> str | None:
    """A model with a position encoding."""
    return None if encodings(run.model) else "its model has no position encoding"


def _logged(run: Run, event: str, otherwise: str) -> str | None:
    return None if any(line.get("event") == event for line in read(run.path)) else otherwise


def _of_kind(run: Run, kind: type, otherwise: str) -> str | None:
    fits = isinstance(run.task, kind)
    return None if fits else f"the task {run.config.task.kind} {otherwise}"
