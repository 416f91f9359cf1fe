"""Views between input and answer: silenced heads, layers, states, gates, gradients, the loss."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

import foveate.look.draw.analyses as analyses
import foveate.look.draw.scenery as scenery
import foveate.look.perturbations as perturbations
import foveate.look.views.examples as needs
from foveate.config import ConfigError
from foveate.data.tokenizer import BOS, EOS
from foveate.errors import UserError
from foveate.look.draw.charts import LinesDrawing
from foveate.look.draw.scene import SceneDrawing
from foveate.look.draw.sheets import SHARES, LensDrawing, SheetGrid, sheet
from foveate.look.hooks import ForcedPass, everywhere
from foveate.look.perturbations import restored, shared, streams
from foveate.look.relevance import Embedded, influence
from foveate.look.stages import Gates, backwards, called, gates_of, over_steps, stages_by_name
from foveate.look.views import view
from foveate.look.views.examples import described, ready, text_of
from foveate.nn.recurrent import Cell
from foveate.run import Run
from foveate.tasks.abilities import Scores
from foveate.tasks.language import Language

LONGEST = 1000  # tokens of a text whose gradients are drawn


@view(needs.attends, needs.explains)
def ablation(
    run: Run, text: str | None = None, target: str | None = None, image: str | None = None,
    block: str | None = None,
) -> SheetGrid:  # fmt: skip
    """Draw the effect of silencing each head; for one block, two of its maps."""
    passes = [ready(run, text, target, image)]
    lost = perturbations.importance(passes, block or everywhere)
    drawn = analyses.importances(lost, passes, run.path.name)
    if len(drawn.sheets) > 1:
        return drawn
    [loss], record = drawn.sheets, passes[0].record()
    sharp = np.stack([record.drawn(name).max(axis=-1).mean(axis=-1) for name in lost])
    worth, names, sheets = loss.values.array, [*lost], []
    for of, which in (sharp, "sharpest"), (worth, "needed most"):
        layer, head = divmod(int(of.argmax()), of.shape[1])
        title = f"{which}: log p {-worth[layer, head]:+.2f}".replace("-", "−")
        values, (rows, columns) = record.drawn(names[layer])[head], record.axes(names[layer])
        sheets.append(sheet(title, values, rows, columns, "writes", "reads", SHARES))
    return SheetGrid(sheets=sheets, caption="mean change of log p per token without the head")


@view(needs.gives_probabilities, needs.layered, silence=True)
def lens(
    run: Run, text: str | None = None, target: str | None = None, image: str | None = None
) -> LensDrawing:
    """Draw the top token after each layer."""
    return analyses.lens(ready(run, text, target, image), run.path.name)


@view(needs.gives_probabilities, needs.stemmed, needs.reads_words)
def patching(
    run: Run, text: str | None = None, instead: str | None = None, target: str | None = None,
    foil: str | None = None,
) -> SheetGrid:  # fmt: skip
    """Draw how much of the answer to another text each of its states brings into the run on this.

    The answers are the model's own to both texts, or ``target`` and ``foil``. Without another text,
    the states of this one are put into the run on unknown words. Raises `ConfigError` for a
    language model without both answers.
    """
    text = text_of(run, text)
    if instead is None:
        if foil is not None:
            raise ConfigError("--not is the answer to another text: give --instead too")
        forced = ready(run, text, target, None)
        ours, theirs, title = [Embedded.of(forced).without()], [forced], text
        ends = "0: log p of the answer after unknown words; 1: after the text"
    else:
        answers = _answer(run, text, target), _answer(run, instead, foil)
        ours, theirs = (
            [ready(run, each, answer, None) for answer in answers] for each in (text, instead)
        )
        title, ends = " → ".join(answers), f"0: log p as after {text!r}; 1: as after {instead!r}"
    pairs = zip(shared(ours), shared(theirs), strict=False)
    drawn = sheet(
        "share of the answer that each state brings", restored(ours, theirs),
        [stream.name for stream in streams(run.model)],
        [a if a == b else f"{a} → {b}" for a, b in pairs], "state of", "at", written=True,
    )  # fmt: skip
    return SheetGrid(sheets=[drawn], title=f"{run.path.name}: {title}", caption=ends)


def _answer(run: Run, text: str, answer: str | None) -> str:
    """Return the answer, else the model's to a text."""
    if answer is not None:
        return answer
    if isinstance(run.task, Language):
        raise ConfigError("a language model needs both answers: give --target and --not")
    if isinstance(run.task, Scores):
        return str(run.translate([text])[0])
    return ready(run, text, None, None).produced[0]


@view(needs.explains, needs.stemmed)
def permutation(
    run: Run, text: str | None = None, target: str | None = None, image: str | None = None
) -> SceneDrawing:
    """Draw the effect of shuffling the input, with positions and without."""
    title = f"Does order matter to {run.path.name}?"
    return analyses.permutation(ready(run, text, target, image), title)


@view(needs.explains, needs.recurs)
def states(
    run: Run, text: str | None = None, target: str | None = None, image: str | None = None,
    layer: int = -1,
) -> LinesDrawing:  # fmt: skip
    """Draw the states of a cell, in the order of the text."""
    name, path, _, words = _cell(run, ready(run, text, target, image), layer)
    return analyses.states(path, words, f"{called(name)}: {run.path.name}")


@view(needs.explains, needs.recurs)
def gates(
    run: Run, text: str | None = None, target: str | None = None, image: str | None = None,
    layer: int = -1,
) -> SheetGrid:  # fmt: skip
    """Draw the gates of a cell, in the order of the text."""
    name, _, opened, words = _cell(run, ready(run, text, target, image), layer)
    try:
        return analyses.gates(opened, words, title=f"{called(name)}: {run.path.name}")
    except UserError as error:
        raise ConfigError(f"{name}: {error}") from None


def _cell(
    run: Run, forced: ForcedPass, layer: int
) -> tuple[str, analyses.Floats, Gates, Sequence[str]]:
    """Return a recurrent cell by number: its name, states (T, H), gates, and its input at each.

    Steps are in the order of the text; they are numbered if words and steps differ in number.
    Raises ``ConfigError`` if there are fewer cells.
    """
    with torch.inference_mode(), stages_by_name(run.model, Cell) as captured:
        forced.run()
    names = [name for name in captured if captured[name]]
    if not -len(names) <= layer < len(names):
        raise ConfigError(f"layer {layer}: {run.folder} has {len(names)}, counting from 0")
    name = names[layer]

    def of_example(values: Tensor) -> Tensor:
        row = values[[min(forced.row, len(values) - 1)]]
        return row.flip(1) if backwards(name) else row

    states = of_example(over_steps(captured[name]["state"]))[0].numpy()
    gates = {gate: of_example(values) for gate, values in gates_of(captured[name]).items()}
    return name, states, gates, forced.words(name, len(states))


@view(needs.explains)
def scene(
    run: Run, text: str | None = None, target: str | None = None, image: str | None = None,
    block: str | None = None, layer: int = -1, head: int | None = None, query: int | None = None,
    stop: str | None = None, train: bool = False,
) -> SceneDrawing:  # fmt: skip
    """Draw the model as one picture, from the whole down to the numbers of one word.

    ``block`` selects the box whose stages are shown; ``train`` draws the loss and its gradient.
    """
    if train and (reason := needs.gives_probabilities(run)):
        raise ConfigError(f"--train: {reason}")
    forced = ready(run, text, target, image)
    return scenery.scene(forced, run.path.name, block, layer, head or 0, query, stop, train)


@view(needs.gives_probabilities)
def surface(
    runs: Sequence[Run], text: str | None = None, target: str | None = None,
    image: str | None = None, steps: int = 7,
) -> SheetGrid:  # fmt: skip
    """Draw mean −log p of the example, along two directions of the same length for each run."""
    losses = {}
    for run in runs:
        loss = partial(_loss, ready(run, text, target, image))
        losses[run.path.name] = perturbations.surface(run.model, loss, steps)
    return analyses.surfaces(losses, title="Loss around the weights")


def _loss(forced: ForcedPass) -> float:
    return -float(np.mean(forced.scores()))


@view(needs.models_language, needs.embeds)
def gradients(runs: Sequence[Run], text: str | None = None) -> LinesDrawing:
    """Draw the gradient's norm against distance, for language models that read a text."""
    text, norms = text_of(runs[0], text), {}
    for name, run in zip(described(runs), runs, strict=True):
        ids, _ = reading(run, text)
        if ids.shape[1] > LONGEST:
            raise ConfigError(f"--text has {ids.shape[1]:,} tokens: expected {LONGEST:,} at most")
        decoder = run.model.decoder
        norms[name] = influence(partial(decoder, ids, None), decoder.stem)
    return analyses.gradients(norms)


def reading(run: Run, text: str) -> tuple[Tensor, list[str]]:
    """Return what a language model reads for a text, (1, T), after a line end; and its labels.

    Raises `ConfigError` for a run of another task.
    """
    task = run.need(Language, "read a text as a language model does")
    ids: list[int] = [task.start, *task.tokenizer.encode_lines(text)]
    labels = [task.name_of(i) if i in (BOS, EOS) else task.tokenizer.decode([i]) for i in ids]
    return torch.tensor([ids], device=run.model.output.weight.device), labels
