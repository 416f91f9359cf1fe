"""Demos that show what small networks learn: stored results of repeatable training runs.

`tools/small_trainings.py` trains them, and ``python tools/packaged_runs.py`` stores the results.
"""

import json
from itertools import pairwise
from typing import Annotated, Literal, TypedDict, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field

from foveate.config import PACKAGED
from foveate.data.tokenizer import EOS
from foveate.look.draw.charts import LinesDrawing, line_chart
from foveate.look.draw.figures import contours
from foveate.look.draw.film import FilmDrawing
from foveate.look.draw.parts import Floats
from foveate.look.draw.scene import CELL, HIGH, WIDE, SceneDrawing, SceneMaker
from foveate.look.views.demos import TABLES, demo
from foveate.run import load
from foveate.tasks.language import Language
from foveate.tasks.teacher_forcing import autoregressive, second_pass, tokens_of
from foveate.tasks.text import collate
from foveate.tasks.translation import Translation

T = TypeVar("T")
Curves = dict[str, list[float | None]]
Planes = dict[str, list[list[float | None]]]
STORED = PACKAGED / "trained.json"


def stored(name: str, kind: type[T]) -> T:
    """Return the stored result of a training run."""
    result: T = json.loads(STORED.read_text(encoding="utf-8"))[name]
    return result


def minima(values: Floats) -> NDArray[np.intp]:
    """Return the inner cells (N, 2) of a grid that are lower than the eight cells around them."""
    lowest = -F.max_pool2d(-torch.from_numpy(values)[None], 3, 1)[0].numpy()
    return 1 + np.argwhere(values[1:-1, 1:-1] == lowest)


LEVELS = [*range(-4, 6)]  # of log₁₀ of a loss, where contours are drawn


@demo
def landscape() -> SceneDrawing:
    """Draw contours of the loss on a plane through trained weights (Li et al., 2018)."""
    result, made = stored("landscape", Planes), SceneMaker()
    for number, (name, title) in enumerate((("plain", "f(x) alone"), ("residual", "x + f(x)"))):
        left, values = 640.0 * number, np.log10(np.array(result[name], float))
        lowest, (down, across) = minima(values), (np.array(values.shape) - 1)
        title += f": {len(lowest)} {'minima' if len(lowest) != 1 else 'minimum'}"
        made.node(f"{name} title", title, (left, 0, 600, 44), form="label")
        box = left + 60, 50.0, 530.0, 460.0
        made.node(f"{name} plane", "", box, form="group")
        made.node(f"{name} α", "α, along δ", (left + 225, 514, 200, 40), form="label")
        made.node(f"{name} β", "β", (left + 8, 250, 40, 40), form="label")
        scale = np.array([box[2] / across, box[3] / down])
        for level, lines in zip(LEVELS, contours(values, LEVELS), strict=True):
            paths = [line * scale + box[:2] for line in lines if len(line)]
            for k, path in enumerate(paths):
                made.edge(f"{name} {level} {k}", *path.tolist(), weight=0.03, hue=1 - number)
            if level in (0, 1):
                x, y = max(max(paths, key=len).tolist())  # the end at the right
                place = x + 2, min(y - 20, 468), 6 + 17 * (level + 1), 40
                made.node(f"{name} {level}", str(10**level), place, form="label")
        for v, u in lowest.tolist():
            x, y = box[0] + u * scale[0], box[1] + v * scale[1]
            made.node(f"{name} minimum {v} {u}", "●", (x - 20, y - 23, 40, 40), form="label")
    text = "Lines: the loss, × 10 from line to line. Dots: minima, θ in the middle."
    made.stop("contours", text, ["stream"])
    return made.drawing(
        "The loss around a trained network with 20 layers",
        caption="θ + α δ + β η around the trained θ; δ and η are random, each row scaled to the "
        "norm of that of θ. Both networks tell two spirals apart.",
    )  # fmt: skip


@demo
def steadiness() -> LinesDrawing:
    """Draw losses of short runs of a deep residual network, with and without layer norms."""
    result = stored("steadiness", Curves)
    curves = {}
    for name, losses in result.items():
        values = np.array(losses, float)
        lost = np.flatnonzero(~(values < 1e5))
        if len(lost):
            values[lost[0] :] = np.nan
        curves[f"{name}: diverged at step {lost[0] + 1}" if len(lost) else name] = values
    steps = np.arange(1.0, 1 + max(map(len, curves.values())))
    return line_chart(
        steps, curves, "step", "loss", "Norms keep training stable", "y",
        caption="Sixteen layers x + ReLU(W x + b) learn to tell two spirals apart. Without a norm "
        "the sums grow, and only a rate a hundred times smaller does not diverge.",
    )  # fmt: skip


IT = 8  # the position of "it"


class Coreference(TypedDict):
    """Weights of "it" by sentence and head, predicted nouns, accuracy on held-out sentences."""

    maps: dict[str, Curves]
    nouns: dict[str, str]
    right: float
    trained: int
    held: int


@demo
def coreference() -> SceneDrawing:
    """Draw what "it" attends to in a small Transformer that has learned what it refers to."""
    result, made = stored("coreference", Coreference), SceneMaker()
    for number, (text, heads) in enumerate(result["maps"].items(), start=1):
        words, noun, low = text.split(), result["nouns"][text], HIGH / 2 * number - 50
        middles, title = made.row(text, [], words, low + 40), f"too {words[-1]}: “it” is the {noun}"
        made.node(f"{text} title", title, (0, low - 204, 480, 40), form="label")
        for k in (IT, words.index(noun)):
            wide = 40 + 16.0 * len(words[k])
            box = middles[k] - wide / 2, low - 7, wide, 46.0
            made.node(f"{text} frame {k}", "", box, form="frame", hue=5)
        last = [weights for name, weights in heads.items() if name[0] == max(heads)[0]]
        for head, s in np.argwhere(np.array(last) >= 0.05).tolist():
            name, high = f"{text} head {head} {s}", low - 10 - 90 - 50 * head
            (x, u), weight = middles[[IT, s]], last[head][s] or 0.0
            bends = (x, low - 10), (x, high), (u, high), (u, low - 10)
            made.edge(name, *bends, weight=0.5 * weight, hue=2 * head, tag="")
            box = ((x + u) / 2 - 150, low - 128 - 37 * head, 300, 40)
            made.node(name, f"head {head}: α = {weight:.2f}", box, form="label")
    text = "Head 1 of “it”: “tired” above, “street” below. Framed: the answer."
    made.stop("it", text, [])
    text = f"With new pairs of nouns, {result['right']:.0%} of {result['held']} are correct."
    return made.drawing("Weights of the query “it” in the last layer", caption=text)


WRITERS = {"transformer": "en-fr", "recurrent": "rnn", "one-vector": "no-attention"}


@demo
@torch.inference_mode()
def sampling(
    text: Annotated[str, Field(min_length=1, description="source")]
    = "The old woman closes the window.",
    target: Annotated[str, Field(min_length=1, description="training target")]
    = "La vieille femme ouvre cette porte.",
    keep: Annotated[float, Field(ge=0, le=1, description="p of reading a true word, ε")] = 0.5,
    seed: Annotated[int, Field(ge=0, description="seed of the choices")] = 3,
    network: Annotated[Literal["transformer", "recurrent", "one-vector"], Field(description="kind")]
    = "transformer",
) -> SceneDrawing:  # fmt: skip
    """Draw scheduled sampling, by steps (Bengio et al., 2015) or two passes (Mihaylova, 2019).

    A recurrent network that reads no true word is drawn at inference, beside its training.
    """
    run = load(f"packaged/{WRITERS[network]}")
    task, model = run.need(Translation, "mix two passes"), run.model
    reads, writes = task.tokenizers
    batch = collate([reads.encode(text).ids], [writes.encode(target).ids])
    memory = model.encode(batch.source, batch.source_mask)
    own = tokens_of(model, memory)
    gold, true = torch.cat((batch.inputs, batch.targets[:, -1:]), dim=1), batch.targets
    torch.manual_seed(seed)
    shown = torch.rand(gold.shape) < keep
    rows, predicts = {"true y_{t−1}": gold[:, :-1]}, "predicts ŷ_t"
    if own.each:
        rows["pass 1: ŷ_t"] = own.each(gold[:, :-1], "greedy")
        mixed, predicts = second_pass(own, gold, shown, "greedy")[:, :-1], "pass 2: ŷ_t"
        caption = "Pass 2 reads true words, and some of pass 1 (orange). Filled: errors."
    else:
        mixed = autoregressive(own, gold, shown, "greedy")[:, :-1]
        caption = "Orange arrows: the model reads its own last word. Filled: errors."
    written = model.predict(mixed, memory).argmax(-1)
    if not (own.each or keep):
        predicted = model.predict(gold[:, :-1], memory).argmax(-1)
        rows = {
            "inference: ŷ_{t−1}": mixed,
            "writes ŷ_t": written,
            "training: y_{t−1}": gold[:, :-1],
        }
        rows[predicts], (few, more) = predicted, [(y != true).sum() for y in (predicted, written)]
        caption = f"Filled: errors, {few} in training and {more} at inference, which reads them."
    else:
        rows |= {"reads y′_{t−1}": mixed, predicts: written}
    rows["loss: true y_t"] = true
    words = {name: [writes.name(i).lstrip("▁") for i in ids[0]] for name, ids in rows.items()}
    return _mixed(words, shown[0, :-1].tolist()).drawing(f"“{text}”", caption=caption)


def _mixed(rows: dict[str, list[str]], shown: list[bool]) -> SceneMaker:
    """Draw rows of words, from below, with arrows to each word that is read from its origin.

    The last row has the true words. Of five rows the first two and the last three are passes.
    """
    names, made, count, left = [*rows], SceneMaker(), len(shown), 236.0
    pitch, apart = (WIDE - left) / count, (HIGH - CELL - 8) / (len(rows) - 1)
    tops = [HIGH - CELL - 4 - apart * row for row in range(len(rows))]
    middles = left + pitch * (np.arange(count) + 0.5)
    read = next(k for k, name in enumerate(names) if name.startswith(("reads", "inference")))
    truth = next(name for name in names if name.startswith(("true", "training")))
    for name, top in zip(names, tops, strict=True):
        made.node(name, name, (0, top, left - 16, CELL), form="label")
        right = rows[truth if "t−1" in name else names[-1]]
        wrong = [0.5 * (w != other) for w, other in zip(rows[name], right, strict=True)]
        made.cells(name, middles, top, pitch - 8, rows[name], wrong, hue=1 if any(wrong) else 5)
    origin = tops[2 if read == 1 else 1]  # of the words that the model reads again
    into = origin > tops[read]
    for k, x in enumerate(middles):
        for row, (low, top) in enumerate(pairwise(tops)):
            if row != 1 if len(rows) == 5 else row or k == 0 or shown[k]:
                made.edge(f"up {row} {k}", (x, low), (x, top + CELL), tag="")
        if k and not shown[k]:
            ends = (x - pitch, origin + CELL * (not into)), (x - 16, tops[read] + CELL * into)
            made.edge(f"own {k}", *ends, hue=1, tag="")
    return made


@demo
@torch.inference_mode()
def signs(
    texts: Annotated[tuple[str, ...], Field(min_length=1, description="without end mark; repeat")]
    = ("Is she old", "She is old", "Will Lucas be curious", "Lucas will be curious"),
) -> SceneDrawing:  # fmt: skip
    """Draw which mark a language model would write after each text: a classification."""
    run, made, kinds = load("packaged/lm"), SceneMaker(), {"?": "a question", ".": "a statement"}
    task, pitch = run.need(Language, "read a text as a language model does"), HIGH / len(texts)
    ends = {sign: task.tokenizer.encode_lines(f"{texts[0]}{sign}")[-1] for sign in kinds}
    for row, text in enumerate(texts):
        ids = torch.tensor([[EOS, *task.tokenizer.encode_lines(text)]])
        p = run.model.logits(run.model.decode(ids)[:, -1]).softmax(-1)[0]
        y, best = pitch * (row + 0.5), max(ends, key=lambda sign: p[ends[sign]].item())
        made.node(f"{row} text", "", (4, y - 36, 436, 72), texts=[text])
        made.node(f"{row} label", kinds[best], (960, y - 30, 270, 60), form="label")
        for place, (sign, token) in enumerate(ends.items()):
            chance, box = p[token].item(), (570 + 190.0 * place, y - 48, 160, 96)
            texts_of = [f"“{sign}”", f"p = {chance:.2f}"]
            made.node(f"{row} {sign}", "", box, texts=texts_of, level=chance, hue=place)
        made.edge(f"{row} next", (440, y), (566, y))
    made.stop("signs", "The next token that the model expects is the label.", ["stream"])
    return made.drawing(
        "A label is a possible next token",
        caption="The language model was trained only to write on; what follows is the label.",
    )


@demo
def learn() -> FilmDrawing:
    """Draw how attention forms while a small Transformer learns to write words backwards."""
    return FilmDrawing.model_validate(json.loads(STORED.read_text(encoding="utf-8"))["learn"])


@demo
def growth(
    of: Annotated[Literal["models", "hardware"], Field(description="what to show")] = "models",
) -> LinesDrawing:
    """Draw published sizes of language models, or the published speed of one processor."""
    chart = TABLES[of]
    years, values = chart["years"], chart["values"]
    times, span = values[-1] / values[0], years[-1] - years[0]
    drawn = line_chart(
        years, {f"×{times:,.0f} in {span} years": values}, "year", chart["up"],
        chart["title"], "y", labels=chart["names"], caption=chart["caption"],
    )  # fmt: skip
    return drawn.model_copy(update={"named": True, "joined": False})
