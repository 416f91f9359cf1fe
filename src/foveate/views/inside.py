"""What goes on between input and answer: views of one forced pass, or of the weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.config import ConfigError
from foveate.look import inside as heads
from foveate.look import models
from foveate.look.capture import AttentionRecord, ForcedPass
from foveate.look.charts import CurvesView
from foveate.look.inside import LensView, StatesView, backwards, capture_gates, capture_states
from foveate.look.inside import gates as draw_gates
from foveate.look.inside import lens as draw_lens
from foveate.look.inside import states as draw_states
from foveate.look.models import permutation as draw_permutation
from foveate.look.models import surface as around
from foveate.look.models import surfaces
from foveate.look.picture import over_picture
from foveate.look.sheets import SheetsView
from foveate.look.view import View
from foveate.run import Run
from foveate.views import examples
from foveate.views.attention import block, part
from foveate.views.question import Question


def ready(run: Run, question: Question) -> ForcedPass:
    """The example that the question names, or the run's own, made ready to be looked at."""
    return run.forced(examples.source(run, question), question.target, question.units)


def rollout(runs: Sequence[Run], question: Question) -> View:
    """The layers multiplied, up to the one that is asked for."""
    return shown(runs[0], models.rollout(ready(runs[0], question)), question)


def relevance(runs: Sequence[Run], question: Question) -> View:
    """Of what was read for what was said."""
    return shown(runs[0], models.relevance(ready(runs[0], question)), question)


def shown(run: Run, record: AttentionRecord, question: Question) -> View:
    """A map of a record; of a picture over the picture."""
    if hasattr(run.task, "shown"):
        pixels = run.task.shown(examples.source(run, question))[0]
        return over_picture(record, pixels, block(record, question), question.layer)
    return part(record, question)


def ablation(runs: Sequence[Run], question: Question) -> SheetsView:
    """Each head silenced in turn; of a block, or of all."""
    forced = ready(runs[0], question)
    lost = heads.importance([forced], question.block or (lambda name: True))
    return heads.importances(lost, [forced], runs[0].path.name)


def lens(runs: Sequence[Run], question: Question) -> LensView:
    """The top token after each layer."""
    return draw_lens(ready(runs[0], question), runs[0].path.name)


def permutation(runs: Sequence[Run], question: Question) -> CurvesView:
    """The input shuffled, with positions and without."""
    return draw_permutation(ready(runs[0], question), f"Does order matter to {runs[0].path.name}?")


def states(runs: Sequence[Run], question: Question) -> StatesView:
    """Of the cell that is asked for, in the order of the text."""
    forced = ready(runs[0], question)
    with torch.inference_mode(), capture_states(runs[0].model) as found:
        forced.run()
    name = _cell(runs[0], list(found), question.layer)
    seen = _of_example(found[name], forced, name).numpy()
    return draw_states(seen, _steps(forced, name, len(seen)), f"{name}: {runs[0].path.name}")


def gates(runs: Sequence[Run], question: Question) -> SheetsView:
    """Of the cell that is asked for, in the order of the text."""
    forced = ready(runs[0], question)
    with torch.inference_mode(), capture_gates(runs[0].model) as found:
        forced.run()
    name = _cell(runs[0], list(found), question.layer)
    seen = {gate: _of_example(opened, forced, name) for gate, opened in found[name].items()}
    words = _steps(forced, name, max(map(len, seen.values()), default=0))
    title = f"{name}: {runs[0].path.name}"
    try:
        return draw_gates({gate: one[None] for gate, one in seen.items()}, words, title=title)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None


def _cell(run: Run, names: Sequence[str], layer: int) -> str:
    """A recurrent cell by its number. Raises ``ConfigError`` where there are fewer."""
    if not -len(names) <= layer < len(names):
        raise ConfigError(f"layer {layer}: {run.path} has {len(names)}, counted from 0")
    return names[layer]


def _of_example(steps: Tensor, forced: ForcedPass, name: str) -> Tensor:
    """Of the steps of a cell (B, T, H) those of the example, (T, H), in the order of the text."""
    seen = steps[min(forced.row, len(steps) - 1)].cpu()
    return seen.flip(0) if backwards(name) else seen


def _steps(forced: ForcedPass, name: str, count: int) -> Sequence[str]:
    """What a cell reads at each step, or the numbers of the steps."""
    words = forced.read.get(name.split(".")[0], ())
    return words if len(words) == count else [str(t) for t in range(count)]


def surface(runs: Sequence[Run], question: Question) -> SheetsView:
    """Mean −log p of the example, over the same two directions' lengths for each run."""
    found = {}
    for run in runs:
        scores = ready(run, question).scores
        found[run.path.name] = around(run.model, partial(_loss, scores), question.steps)
    return surfaces(found, title="Loss around the weights")


def _loss(scores: Callable[[], NDArray[np.float64]]) -> float:
    return -float(scores().mean())
