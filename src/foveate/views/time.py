"""How far back in time language models can learn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from foveate.data.tokenizer import EOS
from foveate.look.charts import CurvesView
from foveate.look.inside import gradients as draw_gradients
from foveate.look.inside import influence
from foveate.run import Run
from foveate.tasks.language import END_OF_LINE
from foveate.views import examples
from foveate.views.question import Question


def gradients(runs: Sequence[Run], question: Question) -> CurvesView:
    """The gradient's norm against distance, for language models that read a text."""
    text, norms = examples.text(runs[0], question), {}
    for run in runs:
        read, _ = reading(run, text)
        decoder = run.model.decoder
        norms[run.path.name] = influence(partial(decoder, read, None), decoder.stem)
    return draw_gradients(norms)


def reading(run: Run, text: str) -> tuple[torch.Tensor, list[str]]:
    """What a language model reads of a text, (1, T), the end of a line before it; and its labels.

    Raises `ConfigError` for a run of another task.
    """
    ids: list[int] = [EOS, *run.can("ids_of", "read a text as a language model does")(text)]
    labels = [END_OF_LINE if i == EOS else run.task.tokenizer.decode([i]) for i in ids]
    return torch.tensor([ids], device=run.model.output.weight.device), labels
