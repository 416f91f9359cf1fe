"""What a view may need of a run: each a question to the run, answered by the reason why not.

Nothing heavy is imported before a run is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from foveate.run import Run

Need = Callable[["Run"], str | None]


def attends(run: Run) -> str | None:
    """A model with attention."""
    from foveate.nn.attention import BaseAttention

    has = any(isinstance(part, BaseAttention) for part in run.model.modules())
    return None if has else "its model has no attention"


def crosses(run: Run) -> str | None:
    """A model whose decoder attends to the source."""
    from foveate.nn.attention import BaseAttention

    has = any(
        isinstance(part, BaseAttention) and name.endswith("cross_attention")
        for name, part in run.model.named_modules()
    )
    return None if has else "its model has no attention to a source"


def explains(run: Run) -> str | None:
    """A task that can say what was attended to."""
    from foveate.tasks.base import Task

    has = getattr(type(run.task), "forced", Task.forced) is not Task.forced
    return None if has else f"the task {run.config.task.kind} has nothing to explain"


def recurs(run: Run) -> str | None:
    """A model with recurrent cells."""
    from foveate.nn.recurrent import Cell

    has = any(isinstance(part, Cell) for part in run.model.modules())
    return None if has else "its model has no recurrent cells"


def embeds(run: Run) -> str | None:
    """A model whose decoder has a stem that gives embeddings."""
    has = hasattr(getattr(run.model, "decoder", None), "stem")
    return None if has else "its model has no embeddings that a gradient could be asked of"


def says(run: Run) -> str | None:
    """A model that says something with a probability, of an example that can be made ready."""
    forecast = hasattr(run.task, "forecast")
    return "a forecast has no probability" if forecast else explains(run)


def layered(run: Run) -> str | None:
    """A stack of layers behind each other, whose last one tokens or labels are read from."""
    from foveate.look.inside import layers_of

    has = layers_of(run.model) is not None and hasattr(run.model, "output")
    return None if has else "its model has no stack of layers that an output is read from"


def stemmed(run: Run) -> str | None:
    """A model that reads places, one vector each."""
    from foveate.look.models import side_of

    return None if side_of(run.model) else "its model reads no places that could be shuffled"


def models_language(run: Run) -> str | None:
    """A language model."""
    return _can(run, "ids_of", "models no plain text")


def translates(run: Run) -> str | None:
    """A run that makes a text of a text, and can be forced to one."""
    return _can(run, "force", "makes no text of a text")


def writes(run: Run) -> str | None:
    """A run that writes tokens one after the other."""
    from foveate.tasks.base import Generates

    has = isinstance(run.task, Generates)
    return None if has else f"the task {run.config.task.kind} writes no text"


def forced(run: Run) -> str | None:
    """A model that writes a text, token by token, and can be forced to one."""
    if reason := explains(run):
        return reason
    has = hasattr(run.model, "decoder") and hasattr(run.model, "logits")
    return None if has else "its model writes no text"


def worded(run: Run) -> str | None:
    """A run that reads words."""
    reads = any(hasattr(run.task, name) for name in ("source_tokenizer", "tokenizer"))
    return None if reads and sees(run) else "it reads no words"


def sees(run: Run) -> str | None:
    """A run about pictures that can draw over them."""
    return _can(run, "view", "is not about pictures")


def forecasts(run: Run) -> str | None:
    """A run about series."""
    return _can(run, "forecast", "is not about series")


def crosses_words(run: Run) -> str | None:
    """A model with cross-attention whose maps are known between words."""
    return crosses(run) or _can(run, "word_maps", "has no maps between words")


def trained(run: Run) -> str | None:
    """A run whose log has lines of training."""
    return _logged(run, "train", "its log has no line of training")


def watched(run: Run) -> str | None:
    """A run whose log says how its modules do."""
    return _logged(run, "health", "its log has no norms of modules: train with train.health_every")


def _logged(run: Run, event: str, not_so: str) -> str | None:
    from foveate.train.journal import read

    return None if any(line.get("event") == event for line in read(run.path)) else not_so


def places(run: Run) -> str | None:
    """A model that is told places."""
    return None if owners(run.model) else "its model is told no places"


def owners(model: nn.Module) -> list[tuple[str, Any]]:
    """The parts of a model that tell places by an encoding of their own, with their names."""
    from foveate.nn.positions import NoPosition, Position

    return [
        (name, part)
        for name, part in model.named_modules()
        if isinstance(encoding := getattr(part, "position", None), Position)
        and not isinstance(encoding, NoPosition)
    ]


def _can(run: Run, method: str, not_so: str) -> str | None:
    return None if hasattr(run.task, method) else f"the task {run.config.task.kind} {not_so}"
