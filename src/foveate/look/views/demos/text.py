"""Demos of words: searches in a table, word alignment, merges, probability chains, counts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from math import log, prod
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from foveate.align.ibm import EMTraining, Model1, em_step
from foveate.config import PACKAGED, ConfigError
from foveate.data.tokenizer import BPE, SPECIALS
from foveate.data.words import document_terms
from foveate.decode.beam import Beam
from foveate.decode.constraints import DecodingBatch
from foveate.decode.engine import Hypothesis
from foveate.decode.search import Followed
from foveate.decode.watch import PartialHypothesis, Watch
from foveate.look.draw.charts import LinesDrawing, line_chart
from foveate.look.draw.colors import Hue
from foveate.look.draw.lanes import LanesDrawing, Node, lanes
from foveate.look.draw.parts import Floats
from foveate.look.draw.scene import CELL, HIGH, WIDE, SceneDrawing, SceneMaker
from foveate.look.draw.sheets import SHARES, ColorScale, SheetDrawing, SheetGrid, sheet
from foveate.look.draw.texts import TableDrawing, total_of
from foveate.look.views.demos import TABLES, demo
from foveate.look.views.demos.networks import NARROW, SMALL, encoder
from foveate.models.classic import BagEncoder
from foveate.models.encoder_decoder import Encoder
from foveate.models.transformer import TransformerEncoder

WRITTEN = 9  # columns up to which the numbers of a sheet are written
Texts = Annotated[tuple[str, ...], Field(description="your own texts; repeat")]


MODEL = TABLES["beam"]
TOKENS: list[str] = MODEL["tokens"]
END = len(TOKENS) - 1


def next_p(prefix: Sequence[int]) -> list[float]:
    """Return p(next token | prefix) from a table, whose last step applies to all later ones."""
    steps: list[list[float]] = MODEL["steps"]
    row = steps[min(len(prefix), len(steps) - 1)]
    return MODEL["after"].get(" ".join(TOKENS[i] for i in prefix), row)


class _TableSteps:
    """A table as the steps of a search."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.prefixes: list[tuple[int, ...]] = []

    def step(self, ids: Tensor) -> Tensor:
        pairs = zip(self.prefixes, ids.tolist(), strict=True)
        self.prefixes = [(*prefix, i) for prefix, i in pairs] if self.prefixes else [()]
        return torch.tensor(list(map(next_p, self.prefixes))).log()

    def reorder(self, rows: Tensor) -> None:
        self.prefixes = [self.prefixes[row] for row in rows.tolist()]

    def select(self, sources: Tensor) -> None:
        """Do nothing: there is one source."""


def search(beam_size: int, length_penalty: float) -> tuple[Watch, Hypothesis]:
    """Return what a beam search in the table does at each step, and its best output."""
    fields = {"beam_size": beam_size, "length_penalty": length_penalty, "max_ratio": 0.0}
    beam = Beam.Config.parse({**fields, "max_extra": 2 * len(MODEL["steps"])}).build()
    followed = Followed(beam.positions(DecodingBatch([0], _TableSteps(), [1]), END, END))
    watch = Watch()
    for position in followed:
        watch.read(position)
    ((best, *_),) = followed.outputs
    return watch, best


@demo
def beam(
    beam_size: Annotated[int, Field(ge=1, le=20, description="hypotheses at each step")] = 2,
    length_penalty: Annotated[float, Field(ge=0, description="exponent of the length")] = 0.0,
    tables: Annotated[bool, Field(description="p of every token along both outputs")] = False,
) -> LanesDrawing | SceneDrawing:
    """Draw the partial hypotheses of a beam search in a small table, with the greedy output."""
    (alone, greedy), (watch, best) = search(1, 0.0), search(beam_size, length_penalty)

    def name(output: Hypothesis) -> str:
        text = " ".join(TOKENS[i] for i in written(output))
        return f"{text}, p = {probability(output):.3g}"

    def node(partial: PartialHypothesis) -> Node:
        factor = f"{np.exp(partial.token_log_p):.2g}".lstrip("0")
        product = "" if partial.parent is None else f": ×{factor} ="
        return Node(
            id=partial.id, parent=partial.parent, log_p=partial.log_p, state=partial.state,
            text=f"{TOKENS[partial.token]}{product}", score=np.exp(partial.log_p),
        )  # fmt: skip

    if tables:
        made, both = SceneMaker(), {"greedy": greedy, f"beam of {beam_size}": best}
        for number, (kind, output) in enumerate(both.items()):
            box, texts = (0.0, 92 + 266.0 * number, 230.0, 140.0), [kind, *name(output).split(", ")]
            made.label(kind, "", box, texts=texts)
            _path(made, kind, written(output))
        caption = "Filled: the chosen token. Green: it has the largest p of its step; orange: not."
        return made.drawing("p of each token after the chosen ones", caption=caption)
    path = [partial.id for partial in watch.find(best.ids, END)]
    steps = [[node(partial) for partial in step] for step in watch.positions]
    title = f"Greedy: {name(greedy)}; beam of {beam_size}: {name(best)}"
    caption = "A token, times its p, and the product so far. ■: finished; dashed: dropped."
    of_greedy = [node(partial) for partial in alone.find(greedy.ids, END)]
    return lanes(steps, path, title, of_greedy).model_copy(update={"caption": caption})


def written(output: Hypothesis) -> list[int]:
    """Return the tokens of an output, with the end if it has one."""
    return [*output.ids, END] if output.ended else output.ids


def probability(output: Hypothesis) -> float:
    """Return p of an output in the table."""
    ids = written(output)
    return prod(next_p(ids[:t])[token] for t, token in enumerate(ids))


def _path(made: SceneMaker, kind: str, ids: Sequence[int]) -> None:
    """Draw p of every token at each step of an output, with arrows between its own tokens."""
    band, pitch = 42 + 266.0 * (len(made.edges) > 0), (WIDE - 250) / len(ids)
    high = 250 / len(TOKENS)
    for t, token in enumerate(ids):
        row, step = next_p(ids[:t]), (250 + pitch * t, 0, pitch - 50, 40)
        made.label(f"{kind} step {t}", f"step {t + 1}", step)
        for k, p in enumerate(row):
            box = 250 + pitch * t, band + high * k + 4, pitch - 50, high - 10
            label, form = f"{TOKENS[k]} {p:.2f}", "box" if k == token else "word"
            made.node(f"{kind} {t} {k}", label, box, form=form, hue=1 + (p == max(row)), level=0.5)
    for t, (token, after) in enumerate(pairwise(ids)):
        made.link(f"{kind} {t} {token}", f"{kind} {t + 1} {after}", hue=2, tag="")


SENTENCE: dict[str, float] = TABLES["sentence"]
ALTERNATIVES: dict[str, dict[str, float]] = TABLES["alternatives"]


@demo
def chain() -> SceneDrawing:
    """Draw p(w_1 … w_n) = Π_i p(w_i | w_1 … w_{i−1}): each word above others that might follow."""
    made, pitch = SceneMaker(), WIDE / len(SENTENCE)
    for t, (word, p) in enumerate(SENTENCE.items()):
        classes = {word: p} | ALTERNATIVES.get(word, {})
        classes["others"] = 1 - sum(classes.values())
        for k, (name, chance) in enumerate(classes.items()):
            box = pitch * t + 6, 110.0 * k + 18 * (k > 0), pitch - 12, 90.0
            fill = {"hue": Hue.LAYER} if k else {"hue": Hue.QUERY, "level": 0.4}
            made.node(f"step {t} {k}", "", box, texts=[name, f"{chance:.3f}"], **fill)
    product, surprise = total_of([log(p) for p in SENTENCE.values()]).split("; ")
    texts = [f"product of the orange p {product}", surprise]
    made.label("total", "", (pitch + 20, 464, WIDE - pitch - 26, 90), texts=texts)
    caption = "Every step is a classification: one class per word of the vocabulary."
    return made.drawing(f"p of the sentence: {prod(SENTENCE.values()):.2g}", caption=caption)


@demo
def em(
    iterations: Annotated[int, Field(ge=1, le=1000, description="iterations of EM")] = 20,
    hard: Annotated[bool, Field(description="show the links with the highest t")] = False,
) -> SheetGrid | SceneDrawing:
    """Draw t(f|e) for all word pairs after some iterations of IBM Model 1 (Brown et al., 1993)."""
    texts = ("the house", "das Haus"), ("the book", "das Buch"), ("a book", "ein Buch")
    pairs = [(source.split(), target.split()) for source, target in texts[: 2 if hard else 3]]
    corpus = EMTraining(pairs)
    model = Model1(Model1.Config())
    numbers, lexicon = model.numbers, model.lexicon = corpus.numbers, corpus.lexicon
    alike = 1 / len(numbers.target)  # every word f
    lexicon.probability[:-1] = np.where(hard & (lexicon.keys < numbers.width), 0, alike)  # no NULL
    shown, drawn = sorted({0, 1, min(5, iterations), iterations}), []
    for iteration in range(iterations + 1):
        if iteration in shown:
            empty = np.nan if iteration else alike  # never in one pair
            table = np.full((len(numbers.source) + 1, len(numbers.target)), empty)
            table[np.divmod(lexicon.keys, numbers.width)] = lexicon.probability[:-1]
            title, names = f"iteration {iteration}", ["NULL", *numbers.source]
            drawn.append(sheet(title, table, names, [*numbers.target], scale=SHARES, written=True))
        em_step([model], [corpus])
    if hard:
        return linked(drawn[-1], pairs, iterations)
    return SheetGrid(
        sheets=drawn, title="t(f|e): rows e, columns f; each row sums to 1",
        caption="Words that occur together in several pairs explain each other. NULL can produce "
        "any word.",
    )  # fmt: skip


def linked(
    table: SheetDrawing, pairs: Sequence[tuple[list[str], list[str]]], iterations: int
) -> SceneDrawing:
    """Draw t(f|e) and the pairs: each f is linked to its best word e."""
    made, t, names = SceneMaker(), np.nan_to_num(table.values.array.T[:, 1:]), table.rows[1:]
    made.label("t", "t(f|e)", (0, 66, 140, 44))
    for k, e in enumerate(names):
        made.node(f"of e {k}", "", (156 + 172.0 * k, 62, 156, 52), texts=[e], hue=0, level=0.25)
    for j, row in enumerate(t):
        y, f = 136 + 136.0 * j, table.columns[j]
        made.node(f"of f {j}", "", (4, y + 26, 130, 64), texts=[f], hue=1, level=0.25)
        for k, value in enumerate(row.tolist()):
            fill = {"hue": 2, "level": 0.5} if value == row.max() else {}
            p = f"{value:.2f}" if value else "0"
            made.node(f"t {j} {k}", p, (156 + 172.0 * k, y, 156, 116), **fill)
    made.label("one", "one link per f", (828, 2, 350, 44))
    for number, (source, target) in enumerate(pairs):
        for side, words, y in (("f", target, 62.0), ("e", source, 202.0)):
            for k, word in enumerate(words):
                box, fill = (828 + 200.0 * k, y + 260 * number, 150.0, 56.0), {"hue": side == "f"}
                made.node(f"{side} {number} {k}", "", box, texts=[word], level=0.25, **fill)
        for j, f in enumerate(target):
            best = names[int(t[table.columns.index(f)].argmax())]
            k, y = source.index(best), 118 + 260.0 * number
            ends = (903 + 200.0 * j, y), (903 + 200.0 * k, y + 84)
            made.edge(f"f {number} {j} to e {number} {k}", *ends, hue=2, weight=0.6)
    caption = f"{iterations} rounds of EM on these two pairs: each f with its best e (green)."
    return made.drawing("Hard links: for each f the e with the highest t(f|e)", caption=caption)


TEXT = "the old woman closes the door and she sings in the park ."
PAIR = "she closes the window", "elle ferme la fenêtre"
TABLE: dict[str, list[str]] = TABLES["prices"]


@demo
def targets(
    of: Annotated[Literal["text", "pair", "table"], Field(description="kind of data")] = "text",
    size: Annotated[int, Field(ge=2, le=12, description="tokens per block of text")] = 4,
) -> SceneDrawing:
    """Draw what a model reads in training, and what it learns to predict."""
    made = SceneMaker()
    if of == "text":
        caption = _blocks(made, TEXT.split(), size)
    elif of == "pair":
        _sides(made, *(text.split() for text in PAIR))
        caption = "Both sides are read; only target words are predicted."
    else:
        for k, (head, cells) in enumerate(TABLE.items()):
            box = 110 + 195.0 * k + 155 * (k == 4), 60.0, 180.0, 490.0
            made.column(head, head, box, cells, hue=5 if k == 4 else 0)
        made.column("x", "", (4, 60, 96, 490), ["x_1", "x_2", "x_3", "x_4"])
        for t, so_far in enumerate(("x_1", "x_1 … x_2", "x_1 … x_3", "x_1 … x_4")):
            made.link(f"value {t}", f"next value {t}")
            made.label(f"so far {t}", so_far, (884, 78 + 122.5 * t, 170, 40))
        for y in 60 + 122.5 * np.arange(1, 4):  # the value of a row is the next of the one above
            points = (785, y + 25), (785, y), (1140, y), (1140, y - 25)
            made.edge(f"same {y:g}", *points, hue=5)
        caption = "All rows so far predict the value of the next row."
    return made.drawing("Inputs and targets", caption=caption)


def _blocks(made: SceneMaker, words: list[str], size: int) -> str:
    """Draw a text as blocks, each word below what follows it, and what one of them is read for."""
    starts, pitch, text = range(0, len(words) - 1, size), (WIDE - 154) / size, ""
    tall, gap = (216.0, 108.0) if len(starts) < 3 else ((HIGH - 14) / len(starts) - 6, 6.0)
    named = [f"u_{{{i}}} {word}" for i, word in enumerate(words, 1)]
    for number, k in enumerate(starts):
        own, top = named[k : k + size + 1], (tall + gap) * number + 20
        low, half = top + tall - 70, top + tall / 2 - 10  # of the block, of the ways
        middles, at = 148 + pitch * (np.arange(len(own) - 1) + 0.5), min(3, len(own) - 2)
        made.node(f"frame {number}", "", (0, top - 10, WIDE, tall), form="group")
        for name, y, row, hue in (("block", low, own[:-1], 0), ("predicted", top, own[1:], 5)):
            label = f"block {number + 1}" if name == "block" else name
            made.label(f"{name} {number}", label, (6, y, 138, CELL))
            made.cells(f"{name} {number}", middles, y, pitch - 8, row, 0.35 + 0 * middles, hue=hue)
        for s, x in enumerate(middles[: at + 1]):
            bends = (x, low), (x, half), (middles[at], half), (middles[at], top + CELL)
            made.edge(f"reads {number} {s}", *bends, hue=1, tag="")
        if number and gap > CELL:
            x, y, says = middles[at], top - 10 - gap / 2, f"block {number} is not read"
            last = 148 + pitch * (size - 0.5), y - gap / 2 - 10  # word of the block before
            made.edge(f"not {number}", last, (last[0], y), (x + 20, y), hue=4)
            made.label(f"not {number} ✕", "✕", (x - 18, y - 20, 36, 36))
            made.label(says, says, (x - 330, y - 22, 300, 44))
        text = f"u_{{{k + at + 2}}} is predicted from u_{{{k + 1}}} … u_{{{k + at + 1}}}"
        text += f", not from block {number}" * (number > 0)
    return f"{text}."


def _sides(made: SceneMaker, source: list[str], target: list[str]) -> None:
    """Draw an encoder that reads, and a decoder that reads and predicts."""
    sides = ("encoder", source, 4.0, 2), ("decoder", ["<s>", *target], 580.0, 3)
    for name, words, left, hue in sides:
        middles = left + 130 * (np.arange(len(words)) + 0.5)
        made.node(name, name, (left, 270, 130 * len(words), 84), hue=hue, level=0.2)
        made.cells(f"{name} reads", middles, 490, 122, words, 0.35 + 0 * middles, hue=0)
        for k, x in enumerate(middles):
            made.edge(f"{name} in {k}", (x, 490), (x, 354))
    for k, x in enumerate(middles):
        made.edge(f"decoder out {k}", (x, 270), (x, 134))
    made.cells("predicted", middles, 84, 122, [*target, "</s>"], 0.5 + 0 * middles, hue=5)
    made.cells("loss", middles, 26, 120, ["−log p"] * len(middles), 0 * middles, form="label")
    made.edge("states", (524, 312), (580, 312), hue=0)
    made.label("no loss", "x: no prediction, no loss", (4, 84, 520, CELL))


@demo
def bpe(
    texts: Texts = (), merges: Annotated[int, Field(ge=1, le=50, description="merges")] = 10
) -> TableDrawing:
    """Draw repeated merges of the most frequent adjacent pair (Sennrich et al., 2016)."""
    lines = texts or ("low " * 5 + "lower " * 2 + "newest " * 6 + "widest " * 3,)
    words = list(dict.fromkeys(" ".join(lines).split()))[:6]
    rows: list[list[str | float | None]] = []
    for count in range(merges + 1):
        size = len(SPECIALS) + 256 + count
        learnt = BPE(BPE.Config(vocab_size=size, min_frequency=1))
        learnt.train(lines)
        if learnt.vocab_size < size:
            break
        split = ["·".join(f"[{learnt.name(i)}]" if count and i == size - 1 else learnt.name(i)
                          for i in learnt.encode(word).ids) for word in words]  # fmt: skip
        seen = sum(learnt.encode(line).ids.count(size - 1) for line in lines)
        rows.append([f"{learnt.name(size - 1)}, {seen} ×" if count else "letters", *split])
    times = [f"{word}, {' '.join(lines).split().count(word)} ×" for word in words]
    return TableDrawing(
        title="Byte pair encoding", columns=["merged", *times], rows=rows,
        caption="Marked: the pair that was just merged; a rare word stays split.",
    )  # fmt: skip


@demo
def bag(texts: Texts = ()) -> SheetGrid | SceneDrawing:
    """Draw how often each word occurs in each text; frames are around equal rows.

    If all texts have the same words, it draws how far another order moves their vectors.
    """
    default = ("yes , we have no bananas", "say yes for bananas", "no bananas , we say",
               "we say , no bananas")  # fmt: skip
    documents = [line.split() for line in texts or default]
    if not all(documents):
        raise ConfigError("a text has no words", ("texts",))
    counts = document_terms(documents)
    table = counts.table.T
    if len(table) == 1 or (table != table[0]).any():
        names = [f"x{chr(0x2080 + k)}: {' '.join(text)}" for k, text in enumerate(documents, 1)]
        rows = table.tolist()
        frames = [(float(k), 0.0, 1.0, float(len(counts.terms)))
                  for k, row in enumerate(rows) if rows.count(row) > 1]  # fmt: skip
        cells = [[str(count) for count in row] for row in rows if len(row) <= WRITTEN]
        labels, scale = "framed: same counts, other order", ColorScale(label=" ")
        drawn = sheet("", table * 1.0, names, counts.terms, across=labels, scale=scale, cells=cells)
        return SheetGrid(
            sheets=[drawn.model_copy(update={"outlines": frames})], across=1,
            title="Texts as counts", caption="A text is a row of counts, whatever its word order.",
        )  # fmt: skip
    shape = {"num_layers": 1, "num_heads": 4, **SMALL}
    configs: dict[str, Encoder.Config] = {
        "counts": BagEncoder.Config.parse(NARROW),
        "attention": TransformerEncoder.Config.parse({"position": "none", **shape}),
        "+ positions": TransformerEncoder.Config.parse(shape),
    }
    orders = [[counts.terms.index(word) for word in words] for words in documents]
    moved = [distances(config, orders) for config in configs.values()]
    made, pitch = SceneMaker(), (HIGH - 60) / len(documents)
    for k, name in enumerate(configs):
        made.label(name, name, (664.0 + 192 * k, 0, 184, 44))
    for row, order in enumerate(orders):
        y, wide = 60 + pitch * row, 640 / len(order)
        for k, word in enumerate(order):
            box = 4 + wide * k, y + pitch / 2 - 30, wide - 6, 60.0
            fill = {"hue": (0, 1, 2, 3, 5, 6)[word % 6], "level": 0.4}
            made.node(f"{row} {k}", "", box, texts=[counts.terms[word]], **fill)
        for k, far in enumerate(each[row] for each in moved):
            box = 696.0 + 192 * k, y + pitch / 2 - 34, 120.0, 68.0
            texts_of = [f"{far:.2f}" if row else "–"]  # the first is compared with itself
            made.node(f"{row} moved {k}", "", box, texts=texts_of, level=min(1, far), hue=1)
    caption = "Distance from sentence 1: only positions tell the orders apart."
    return made.drawing("Does the vector of the text change?", caption=caption)


@torch.no_grad()
def distances(config: Encoder.Config, orders: list[list[int]]) -> Floats:
    """Return how far the vector of each text, one for all its words, is from the first, (N,)."""
    words = 1 + max(map(max, orders))
    made = encoder(config, words)(torch.tensor(orders)).summary()
    return (made - made[:1]).norm(dim=1).double().numpy()


LINEAGE = PACKAGED / "lineage.json"  # written by `foveate compare lineage`


@demo
def bottleneck() -> LinesDrawing:
    """Draw BLEU of three models by source length, in words."""
    tree = json.loads(LINEAGE.read_text(encoding="utf-8"))
    bleu, curves, bands = tree["chapters"]["Length of the source"]["BLEU"], {}, {}
    for model in tree["models"]:
        y, low, high = (np.array(bleu[f"{model}{kind}"]) for kind in ("", ", low", ", high"))
        name = f"{TABLES['models by length'][model]}: {y[0]:.0f}\xa0→\xa0{y[-1]:.0f}"
        curves[name], bands[name] = y, (low, high)
    return line_chart(
        bleu["x"], curves, "words of the source", "BLEU; bands: 95 % intervals",
        "BLEU falls with length without attention", bands=bands,
        labels=[label.partition(" ")[0] for label in bleu["labels"]],
        caption="Without attention, the decoder only has the encoder's last states. Bands: 95 % "
        f"intervals. Measured by `foveate compare lineage`: {tree['terms']['budget']}.",
    )  # fmt: skip
