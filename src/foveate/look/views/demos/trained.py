"""Demos that show what small networks learn: stored results of repeatable training runs.

`tools/small_trainings.py` trains them, and ``python tools/packaged_runs.py`` stores the results.
"""

import json
from itertools import pairwise
from typing import Annotated, Literal, TypedDict, TypeVar

import numpy as np
import torch
from pydantic import Field

from foveate.config import PACKAGED, ConfigError
from foveate.data.tokenizer import EOS
from foveate.look.draw.charts import LinesDrawing, line_chart
from foveate.look.draw.film import FilmDrawing
from foveate.look.draw.parts import Floats
from foveate.look.draw.scene import CELL, HIGH, WIDE, SceneDrawing, SceneMaker
from foveate.look.relevance import influence
from foveate.look.views.demos import TABLES, demo
from foveate.look.views.inside import reading
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
    return json.loads(STORED.read_text(encoding="utf-8"))[name]


AROUND: list[tuple[str, float, float, float]] = TABLES["around the surfaces"]["texts"]


@demo
def landscape() -> SceneDrawing:
    """Draw the loss as heights over a plane through trained weights (Li et al., 2018)."""
    result, made, at = stored("landscape", Planes), SceneMaker(), np.arange(0.0, 640, 5)
    for left, name, title in (0.0, "plain", "f(x) alone"), (610.0, "residual", "x + f(x)"):
        values, above = np.log10(np.array(result[name], float)).clip(-1, 3), np.inf + 0 * at
        made.label(f"{name} title", title, (left + 60, 0, 250, 44), level=1)
        places, (x, y) = np.linspace(-1, 1, len(values)), map(float, projected(0, 0, -1))
        for row in range(len(values) - 1, -1, -1):  # from the front; what is behind is hidden
            line = np.interp(at, *projected(places, places[row], values[row]), np.nan, np.nan)
            seen, above = line < above, np.fmin(line, above)
            seen = (np.convolve(seen, [1, 1, 1], "same") > 0) & (line < np.inf)  # to what hides it
            for start, end in np.flatnonzero(np.diff(seen, prepend=False)).reshape(-1, 2).tolist():
                points = zip(left + at[start:end], above[start:end].round(1), strict=True)
                made.edge(f"{name} {row} {start}", *points, weight=0.03, hue=int(left == 0))
        for text, *place in AROUND:
            across, down = map(float, projected(*place))
            made.label(f"{name} {text} {place}", text, (left + across - 50, down - 20, 100, 40))
        back, front = ((1, k, values[(k - 1) // 2, -1]) for k in (-1, 1))  # right corners
        low = (-1, 1, 3), (-1, 1, 3), (-1, 1, 3), (-1, 1, -1), (1, 1, -1), front, (1, 1, -1)
        walls = [projected(*place) for place in (*low, (1, -1, -1), back)]
        made.edge(f"{name} walls", *[(left + float(x), float(y)) for x, y in walls], weight=0.02)
        made.label(f"{name} θ", "θ", (left + x - 20, 0, 40, 44))
        made.edge(f"{name} θ", (left + x, 44), (left + x, y), weight=0.01, tag="")
        made.label(f"{name} θ at", "●", (left + x - 20, y - 20, 40, 40))
    made.stop("surfaces", "f(x): dents and steep walls. x + f(x): a smooth valley.", ["stream"])
    text = "θ + α δ + β η: δ and η are random, each row scaled to the norm of that of θ."
    return made.drawing("The loss around a trained network with 20 layers", caption=text)


def projected(alpha: Floats | float, beta: float, height: Floats | float) -> tuple[Floats, Floats]:
    """Return where a point of the surface is drawn: β = 1 is at the front, −1 at the back."""
    return 345 + 185 * np.asarray(alpha) - 55 * beta, 318 + 160 * beta - 34 * np.asarray(height)


@demo
def steadiness() -> LinesDrawing:
    """Draw losses of short runs of a deep residual network, with and without layer norms."""
    result, curves = stored("steadiness", Curves), {}
    del result["no norm, rate\xa00.0003"]  # stable, but slow
    for name, losses in result.items():
        values = np.array(losses[:30], float)
        finite = np.logical_and.accumulate(values < 1e6)
        label = name if finite.all() else f"{name}: diverged at step {finite.sum() + 1}"
        curves[label] = np.where(finite, values, np.nan)
    return line_chart(
        None, curves, "step", "loss, logarithmic", "Norms keep training stable", "y",
        caption="Sixteen layers learn to tell two spirals apart; without a norm the sums grow.",
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
        middles, title = made.row(text, [], words, low + 40), f"too {words[-1]}: predicts “{noun}”"
        over = float(middles[0]) - 10 - 8 * len(words[0]), low - 204, 480, 40
        made.label(f"{text} title", title, over, level=1)
        place, wide = words.index(noun), 40 + 16.0 * len(noun)
        box = middles[place] - wide / 2, low - 7, wide, 46.0
        made.node(f"{text} frame {place}", "", box, form="frame", hue=5)
        last = [weights for name, weights in heads.items() if name[0] == max(heads)[0]]
        for head, s in np.argwhere(np.array(last) >= 0.05).tolist():
            name, high = f"{text} head {head} {s}", low - 10 - 90 - 50 * head
            (x, u), weight = middles[[IT, s]], last[head][s] or 0.0
            bends = (x, low - 10), (x, high), (u, high), (u, low - 10)
            made.edge(name, *bends, weight=0.5 * weight, hue=2 * head, tag="")
            box = (0.4 * x + 0.6 * u - 150, low - 128 - 37 * head, 300, 40)
            made.label(name, f"head {head}: α = {weight:.3f}", box)
    made.stop("it", "A toy model: head 0 stays; head 1 and the prediction (framed) move.", [])
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
    rows, predicts = {"true y_{t−1}": (inputs := gold[:, :-1])}, "predicts ŷ_t"
    if own.each:
        rows = {"1. reads y_{t−1}": inputs, "1. writes ŷ_t": own.each(inputs, "greedy")}
        mixed, predicts = second_pass(own, gold, shown, "greedy")[:, :-1], "2. writes ŷ′_t"
        caption = "Blue: true. Orange: its own. Filled: errors. Framed: another word in pass 2."
    else:
        mixed = autoregressive(own, gold, shown, "greedy")[:, :-1]
        caption = "Blue: true words. Orange: its own. Filled: errors."
    written = model.predict(mixed, memory).argmax(-1)
    if not (own.each or keep):
        predicted = model.predict(inputs, memory).argmax(-1)
        rows = {"inference: ŷ_{t−1}": mixed, "writes ŷ_t": written}
        rows |= {"training: y_{t−1}": inputs, predicts: predicted}
        few, more = ((y != true).sum() for y in (predicted, written))
        caption = f"Filled: errors, {few} in training and {more} at inference."
    else:
        rows |= {f"{'2. ' * bool(own.each)}reads y′_{{t−1}}": mixed, predicts: written}
    rows["loss: true y_t"] = true
    words = {name: [writes.name(i).lstrip("▁") for i in ids[0]] for name, ids in rows.items()}
    return _mixed(words, shown[0, :-1].tolist()).drawing(f"“{text}”", caption=caption)


def _mixed(rows: dict[str, list[str]], shown: list[bool]) -> SceneMaker:
    """Draw rows of words, from below, with arrows to each word that is read from its origin.

    Blue words are true, orange ones the model's own. Of five rows the first two and the last three
    are passes; of two passes, what the second writes in another way is framed.
    """
    names, made, count = [*rows], SceneMaker(), len(shown)
    read = next(k for k, n in enumerate(names) if n.startswith(("reads", "2. reads", "inference")))
    left, apart = 236.0, (HIGH - CELL - 8) / (len(rows) - 1)
    pitch, tops = (WIDE - left) / count, [HIGH - CELL - 4 - apart * row for row in range(len(rows))]
    middles = left + pitch * (np.arange(count) + 0.5)
    truth = next(name for name in names if name.startswith(("true", "1. reads", "training")))
    for name, top in zip(names, tops, strict=True):
        made.label(name, name, (0, top, left - 16, CELL))
        right = rows[truth if "t−1" in name else names[-1]]
        for k, (word, true) in enumerate(zip(rows[name], right, strict=True)):
            mixed, box = k and not shown[k], (middles[k] - pitch / 2 + 4, top, pitch - 8, CELL)
            own = mixed if name == names[read] else name not in (truth, names[-1])
            form = "word" if read == 1 and name == truth and mixed else "box"  # skipped, or read
            fill = {"form": form, "hue": int(own), "level": 0.5 * (word != true)}
            made.node(f"{name} {k}", "", box, texts=[word], **fill)
    origin = tops[2 if read == 1 else 1]  # of the words that the model reads again
    into = origin > tops[read]
    for k, x in enumerate(middles):
        gap = 4 * (read == 2 and rows[names[1]][k] != rows[names[3]][k])  # below a frame
        for row in (1, 3) if gap else ():
            frame = x - pitch / 2 + 4, tops[row], pitch - 8, CELL
            made.node(f"other {row} {k}", "", frame, form="frame", hue=2)
        for row, (low, top) in enumerate(pairwise(tops)):
            if row != 1 if len(rows) == 5 else row or k == 0 or shown[k]:
                made.edge(f"up {row} {k}", (x, low), (x, top + CELL + gap * (row < 3)), tag="")
        if k and not shown[k]:
            ends = (x - pitch, origin + CELL * (not into)), (x - 16, tops[read] + CELL * into)
            made.edge(f"own {k}", *ends, hue=1, tag="")
    return made


def learned(family: str, text: str) -> Floats:
    """Return how strongly each output of a trained network depends on each word, (T, S)."""
    runs = {"elman": "lm-rnn", "bi-attention": "rnn"}
    if family not in runs:
        raise ConfigError(f"no packaged {family}: choose {' or '.join(runs)}")
    model = (run := load(f"packaged/{runs[family]}")).model
    if family == "elman":
        read, _ = reading(run, text)
        return influence(lambda: model.decode(read), model.decoder.stem)[1:, 1:]  # of a line's end
    reads, writes = run.need(Translation, "translate a text").tokenizers
    answer = str(run.translate([text])[0])
    batch, encode = collate([reads.encode(text).ids], [writes.encode(answer).ids]), model.encode
    return influence(lambda: model.decode(batch.inputs, encode(batch.source)), model.encoder.stem)


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
        made.label(f"{row} label", f"→ {kinds[best]}", (940, y - 30, 300, 60))
        for place, (sign, token) in enumerate(ends.items()):
            chance, box = p[token].item(), (570 + 190.0 * place, y - 48, 160, 96)
            texts_of = [f"“{sign}”", f"p = {chance:.2f}"]
            made.node(f"{row} {sign}", "", box, texts=texts_of, level=chance, hue=place)
        made.edge(f"{row} next", (440, y), (566, y))
        made.label(f"{row} step", "next", (440, y - 44, 126, 40))
    text = "The next token that the model expects is the label."
    return made.drawing("A label is a possible next token", caption=text)


@demo
def learn() -> FilmDrawing:
    """Draw how attention forms while a small Transformer learns to write words backwards."""
    return FilmDrawing.model_validate(stored("learn", dict))


@demo
def growth(
    of: Annotated[Literal["models", "hardware"], Field(description="what to show")] = "models",
) -> LinesDrawing:
    """Draw published sizes of language models or speeds of a processor, and the largest leap."""
    chart = TABLES[of]
    years, values = chart["years"], chart["values"]
    name, leap = chart["title"], int(np.diff(np.log(values)).argmax())
    ends = [np.where(np.arange(len(years)) == leap + 1, v, np.nan) for v in values[leap : leap + 2]]
    drawn = line_chart(
        years, {name: values}, "year", chart["up"], chart["title"], "y", {name: (ends[0], ends[1])},
        chart["names"], chart.get("marks"), chart["caption"])  # fmt: skip
    return drawn.model_copy(update={"named": True, "joined": False, "ends": tuple(chart["ends"])})
