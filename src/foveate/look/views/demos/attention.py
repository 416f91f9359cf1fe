"""Demos of attention: a lookup, masks, weights that depend on the input, and their effects."""

from collections.abc import Callable, Sequence
from itertools import pairwise, product
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from foveate.errors import UserError
from foveate.look.draw.charts import BarsDrawing, PanelGrid, bar_chart, line_chart
from foveate.look.draw.interactive import Controls, Slider
from foveate.look.draw.parts import Floats, Numbers
from foveate.look.draw.scene import CELL, HIGH, SceneDrawing, SceneMaker
from foveate.look.views.demos import TABLES, demo
from foveate.look.views.demos.layer import WORDS, Seed
from foveate.look.views.demos.networks import attends, bidirectional, ids, transformer
from foveate.nn.attention import Attention
from foveate.nn.context import DecoderState, Mask
from foveate.nn.normalizers import Hardmax
from foveate.nn.scores import Dot, ScaledDot, Softmax

Words = Annotated[str, Field(description="words with spaces between them")]


def words_of(text: str, least: int = 1) -> list[str]:
    """Return the words of a text. Raises `UserError` if it has fewer than ``least``."""
    if len(text.split()) < least:
        raise UserError(f"{text!r} has too few words: give {least} or more, separated by spaces")
    return text.split()


TITLES = "train times", "weather", "recipes", "news"
PAGES = "7:42\n8:12", "18 °C\nrain", "bread\nrice", "new\nmetro"  # under these titles


@demo
@torch.no_grad()
def lookup(
    blend: Annotated[float, Field(ge=0, le=1, description="similarity to the next key")] = 0.1,
    temperature: Annotated[tuple[float, ...], Field(description="τ; repeat")] = (1.0, 0.1),
    pages: Annotated[bool, Field(description="values are pages, and the best one comes back")]
    = False,
) -> SceneDrawing:  # fmt: skip
    """Draw one query against one-hot keys: out = Σ_i α_i v_i, α = softmax(e / τ), or hardmax."""
    count, values = len(TITLES), 10.0 * torch.arange(1, len(TITLES) + 1)
    keys = torch.eye(count)
    query = (1 - blend) * keys[1] + blend * keys[2]
    scores = Dot(Dot.Config(), 1, count)(query.view(1, 1, 1, -1), keys.view(1, 1, count, -1))
    normalizers: dict[str, nn.Module] = {
        "softmax" if tau == 1 else f"softmax, τ = {tau:g}":
            Softmax.Config.parse({"temperature": tau}).build()
        for tau in temperature * (not pages)
    } | {"hardmax": Hardmax.Config().build()}  # fmt: skip
    sought = f"{1 - blend:.2g} {TITLES[1]}\n+ {blend:.2g} {TITLES[2]}"
    made, of_keys = SceneMaker(), [f"{score:.2f}" for score in scores.flatten().tolist()]
    made.column("q", "query q", (4, 60, 220, 500), [sought], hue=1)
    made.column("k", "one-hot keys k_i", (312, 60, 190, 500), TITLES, hue=0)
    made.column("e", "e_i = q · k_i", (580, 60, 112, 500), of_keys)
    for k in range(count):
        made.link("q 0", f"k {k}")
        made.link(f"k {k}", f"e {k}")
    for number, (name, normalizer) in enumerate(normalizers.items()):
        weights, tag = normalizer(scores).flatten(), f"normalizer {number}"
        alphas, out = weights.tolist(), f"{float(weights @ values):.1f}"
        α, v, c = (f"{letter} {number}" for letter in "αvc")
        cells = [f"{alpha:.2f}" for alpha in alphas]
        made.column(α, f"α_i: {name}", (766, 60, 112, 500), cells, alphas, hue=5, tag=tag)
        cells = [f"{value:g}" for value in values]
        if pages:
            cells, out = [*PAGES], PAGES[int(weights.argmax())]
        made.column(v, "values v_i", (952, 60, 104, 500), cells, alphas, hue=2, tag=tag)
        head = "result" if pages else "Σ_i α_i v_i"
        made.column(c, head, (1120, 60, 116, 500), [out], hue=3, tag=tag)
        for k, alpha in enumerate(alphas):
            made.link(f"e {k}", f"{α} {k}", tag=tag)
            made.label(f"by {number} {k}", "×", (890, 105 + 125 * k, 50, 35), tag=tag)
            if alpha:
                made.link(f"{v} {k}", f"{c} 0", weight=alpha, hue=2, tag=tag)
        text = f"{name.capitalize()}: every value counts, the best match most: {out}."
        if name == "hardmax":
            text = f"Hardmax takes the value of the best key alone: {out}.".replace("\n", ", ")
        made.stop(name, text, ["stream", tag])
    caption = "The smaller τ, the closer softmax is to hardmax, which picks one key."
    return made.drawing(f"A lookup: the query asks for {TITLES[1]}", caption=caption)


@demo
def scaling(
    num_keys: Annotated[int, Field(ge=2, le=256, description="number of keys")] = 16,
    size: Annotated[int, Field(ge=1, le=1024, description="d, rounded to a power of 2")] = 64,
) -> PanelGrid:
    """Draw mean ‖∂α/∂e‖ of softmax over random scores q · k, with and without dividing by √d."""
    random, sizes = torch.Generator().manual_seed(0), 2 ** np.arange(0, 11)
    curves: dict[str, list[float]] = {"q · k": [], "q · k / √d": []}
    for width in sizes.tolist():
        query = torch.randn(200, 1, width, generator=random)
        scores = (query @ torch.randn(200, width, num_keys, generator=random)).squeeze(1)
        for name, factor in (("q · k", 1.0), ("q · k / √d", width**-0.5)):
            weights = (scores * factor).softmax(dim=-1)
            jacobian = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None]
            curves[name].append(float(jacobian.norm(dim=(1, 2)).mean()))
    size = int(sizes[round(np.log2(size))])
    query, keys = (torch.randn(size, n, generator=random) for n in (1, num_keys))
    products = (query * keys).sum(dim=0)
    shares = {name: (products * factor).softmax(dim=-1).numpy()
              for name, factor in (("q · k", 1.0), ("q · k / √d", size**-0.5))}  # fmt: skip
    labels = [f"k{chr(0x2080 + n)}" if n < 10 else str(n) for n in range(1, num_keys + 1)]
    return PanelGrid(
        panels=[
            line_chart(sizes.astype(float), curves, "key size d", "‖∂α/∂e‖",
                       "Mean gradient of softmax", log="x"),
            bar_chart(labels, shares, "weight of the key", f"Softmax of one query, d = {size}"),
        ],
        title="Why scores are divided by √d",
        caption=f"q · k has the standard deviation √d = {size**0.5:.1f}; divided by √d it has 1, "
        "whatever d is, and softmax keeps its gradient.",
    )  # fmt: skip


@demo
def local(
    position: Annotated[float, Field(ge=0, le=16, description="p, the centre of the window")] = 8,
    window: Annotated[float, Field(gt=0, le=20, description="D, positions each way")] = 4,
) -> BarsDrawing:
    """Draw local attention of one query: a window and a Gaussian, σ = D/2 (Luong et al., 2015).

    local-m: softmax over p − D … p + D, here of equal scores. local-p: the weights of local-m, each
    multiplied by exp(−(s − p)² / 2σ²).
    """
    scores, away = np.zeros(17), np.arange(17.0) - position
    inside = np.where(np.abs(away) <= window, scores, -np.inf)
    if np.isinf(inside).all():
        raise UserError(f"no position within {window:g} of {position:g}: widen the window")
    weights = Softmax.Config().build()(torch.tensor(inside)).numpy()
    bell = np.exp(-(away**2) / (2 * (window / 2) ** 2))
    return bar_chart(
        words_of("the man saw an old dog in a hut by the sea and it ran off ."),
        {"local-m: softmax over p ± D": weights, "local-p: the same × Gaussian": weights * bell},
        "weight, for equal scores",
        f"The window p − D … p + D, p = {position:g}, D = {window:g}, σ = D/2",
        "The window keeps only nearby keys; the Gaussian makes the position p differentiable, and "
        "its weights sum to less than 1.",
    ).model_copy(update={"across": "word s, from 0", "controls": Controls(
        formula="local", data={"scores": Numbers.exact(scores)},
        sliders=[
            Slider.of("position", position, np.linspace(0, 16, 65), label="p, centre"),
            Slider.of("window", window, np.linspace(0.5, 20, 40), label="D, positions each way"),
        ],
    )})  # fmt: skip


Families = tuple[Literal["encoder", "decoder", "encoder-decoder"], ...]


@demo
def masks(
    source: Words = "the sun rises", target: Words = "le soleil se lève",
    families: Annotated[Families, Field(min_length=1, strict=False, description="kinds; repeat")]
    = ("encoder", "decoder", "encoder-decoder"),
) -> SceneDrawing:  # fmt: skip
    """Draw a line from each word to each position that may attend to it, in three families."""
    read, written = words_of(source), words_of(target)
    words, count = [*read, *written], len(read) + len(written)
    causal = Mask(causal=True).dense(range(count), range(count))
    assert causal is not None
    made, band, alone = SceneMaker(), HIGH / len(families), families == ("decoder",)
    for number, family in enumerate(families):
        end = band * (number + 1) - (54 if alone else 8)  # of brackets
        top = band * number + (80 if len(families) == 1 else 20)
        first = {"encoder": count, "decoder": 0}.get(family, len(read))  # of the decoder
        letters = [f"{'hs'[0 < first <= t]}_{t + 1 - first * (t >= first)}" for t in range(count)]
        decodes, is_x = np.arange(count) >= first, np.arange(count) < len(read)
        hues = np.where(decodes & ~is_x, 3, 2)
        titles = [""] if alone else TABLES["masks"][family]
        middles = made.row(family, titles, words, end - 4, hues=hues.tolist())
        sides = (0, "x"), (count if family == "encoder" else len(read), "y")
        for t, name in sides * (len(families) > 1):
            for x in middles[t : t + 1] - 34 - 8.5 * len((words[t:] or [""])[0]):
                made.label(f"{family} {name}", name, (x - 30, end - 48, 40, 40))
        made.cells(f"{family} h", middles, top, 64, letters, np.zeros(count))
        if alone:
            none, over = np.zeros(len(written) + 1), middles[len(read) - 1 :]
            made.cells("decoder writes", over, top - 66, 110, [*written, "</s>"], none, form="word")
            for name, y in ("writes", top - 66), ("reads", end - 53):
                made.label(f"given {name}", name, (0, y, 236, CELL))
            for letter, of in ("x", middles[is_x]), ("y", middles[~is_x]):
                left, wide = float(of[0]) - 50, float(np.ptp(of)) + 100
                made.edge(f"given {letter}", (left, end + 8), (left + wide, end + 8), weight=0.05)
                made.label(f"given {letter} name", letter, (left, end + 12, wide, 42))
        allowed = np.where(decodes[:, None], causal[0, 0].numpy() & decodes, ~decodes)
        kinds = np.where(hues[:, None] == hues, hues, 0)  # 0: from y to x
        for kind in (2, 3, 0):
            lines = 0.1 * (allowed & (kinds == kind))
            made.fan(f"{family} {kind}", middles, (end - 52, top + CELL), lines, hue=kind or 3)
        if family == "encoder-decoder":
            for side, at, hue in ("h", middles[is_x], 2), ("s", middles[~is_x], 3):
                box = float(at[0]) - 42, top - 10, float(np.ptp(at)) + 84, 70.0
                made.node(f"{family} {side} frame", "", box, form="frame", hue=hue)
            x, u = middles[first - 1] + 42, middles[first] - 42
            made.edge(f"{family} cross", (x, top + 25), (u, top + 25), hue=1)
            below, lines_of = ((x + u) / 2 - 80, top + 32, 160.0, 66.0), ["cross-", "attention"]
            made.label(f"{family} cross", "", below, texts=lines_of)
    if families == ("decoder",):
        own = [f"h {t}" for t in range(len(read) - 1, count)] + ["word", "writes"]
        own += [f"{kind} {s} {len(read)}" for kind in (0, 3) for s in range(count)]
        lit = ["given", *(f"decoder {name}" for name in own)]
        made.stop("one", f"h_{len(read) + 1} reads all of x by self-attention.", ["stream"], lit)
    text = "A line: may attend. Green: x and what x reads; pink: y."
    made.stop("all", text, ["stream"])
    return made.drawing(f"x = {source}; y = {target}", caption=text)


def fan(
    made: SceneMaker, name: str, left: float, wide: float, above: Sequence[str],
    below: Sequence[list[str]], weights: Floats, hues: Floats, looks: Sequence[int | None] = (),
) -> None:  # fmt: skip
    """Draw outputs above inputs, whose lines are in boxes, and arcs as wide as the weights."""
    over, under, lines = wide / len(above), wide / len(below), above[0].count("\n")
    end, low = 52.0 + 42 * lines, 400.0 - 34 * lines
    top = end + 18 * (lines == 0)  # of the arcs, close to a box
    under_boxes = low + (36 + 3.0 * lines) * len(below[0]) + 24
    for t, word in enumerate(above):
        box, form = (left + over * (t + 0.04), 4.0, over * 0.92, end - 4), "box" * (lines > 0)
        made.node(f"{name} out {t}", "", box, texts=word.split("\n"), form=form or "label")
    for s, texts in enumerate(below):
        box = left + under * (s + 0.04), low, under * 0.92, (36 + 3.0 * lines) * len(texts) + 12
        hue = looks[s] if looks else None
        made.node(f"{name} in {s}", "", box, texts=texts, hue=hue, level=0.25 * (hue is not None))
    for (t, s), weight in sorted(np.ndenumerate(weights), key=lambda each: hues[each[0]]):
        x, y, bend = left + over * (t + 0.5), left + under * (s + 0.5), 0.3 * (low - top)
        points = (x, top), (x, top + bend), (y, low - bend), (y, low)
        if weight >= 0.02:
            hue = int(hues[t, s]) if hues[t, s] >= 0 else None
            made.edge(f"{name} out {t} in {s}", *points, weight=float(weight), hue=hue)
    made.node(f"{name} title", name, (left, under_boxes, wide, 44), form="word")


@demo
def leak(text: Words = "[START] The chef who was") -> SceneDrawing:
    """Draw which inputs each step depends on, with and without a causal mask."""
    *words, last = words_of(text, least=2)
    read, gpt, bert = ids(len(words)), transformer(), bidirectional()
    norms = {
        "without a mask": attends(bert, lambda: bert(read).values),
        "with a causal mask": attends(gpt, lambda: gpt(read, None)),
    }
    made, read_as = SceneMaker(), [[word] for word in words]
    for place, (name, norm) in enumerate(norms.items()):
        own, left = np.eye(len(norm), k=1), 116 + 576.0 * place  # of each step, its own target
        lines, hues = (0.03 + 0.3 * own) * (norm > 0), 2 * own - 1  # -1: grey
        fan(made, name, left, 548, [*words[1:], last], read_as, lines, hues)
    for text, y in ("targets", 4), ("inputs", 402):
        made.label(text, text, (0, y, 110, 44))
    text = "Orange: without a mask, a step reads its own target."
    return made.drawing("The inputs that each step depends on", caption=text)


@demo
@torch.no_grad()
def parallel(length: Annotated[int, Field(ge=2, le=8, description="tokens")] = 5) -> SceneDrawing:
    """Draw the pass that computes each output, in training and generation, with equal outputs."""
    model, text, state = transformer(), ids(length), DecoderState()
    whole = model(text, None)
    rows = torch.cat([model(text[:, t : t + 1], None, state) for t in range(length)], dim=1)
    made, pitch, each = SceneMaker(), 590 / length, [*range(length)]
    kinds = {"training: 1 pass": [0] * length, f"generation: {length} passes": each}
    for left, (name, passes) in zip((0.0, 650.0), kinds.items(), strict=True):
        made.label(name, name, (left, 0, 590, 44))
        middles = [left + pitch * (t + 0.5) for t in each]
        for t, hue in enumerate(passes):
            box = middles[t] - pitch / 2 + 18, 490.0, pitch - 36, 66.0
            made.node(f"{name} x {t}", f"x_{t + 1}", box)
            box, texts = (box[0], 70.0, box[2], 84.0), [f"o_{t + 1}", f"pass {hue + 1}"]
            made.node(f"{name} o {t}", "", box, hue=hue, level=0.35, texts=texts)
            for s in range(t + 1):
                ends = (middles[s], 490), (middles[t], 154)
                made.edge(f"{name} {s} {t}", *ends, hue=hue, tag="")
            if t and hue:  # what was written last is read
                x, start = middles[t] - pitch / 2, middles[t - 1] + pitch / 2 - 18
                back = (start, 112), (x, 112), (x, 523), (x + 18, 523)
                made.edge(f"{name} fed {t}", *back, hue=6, tag="")
    made.stop("passes", "Training: one pass. Generation reads o_t as x_{t+1}: a pass each.", [])
    difference = float((whole - rows).abs().max())
    caption = f"Keys and values are cached: the same outputs (largest difference {difference:.0e})."
    return made.drawing("The pass that computes each output", caption=caption)


@demo
@torch.no_grad()
def weights(seed: Seed = 0) -> SceneDrawing:
    """Draw Z = W X, the same W for every input, and Z = W(X) X, W(X) = softmax(X Xᵀ)."""
    random, length = torch.Generator().manual_seed(seed), 3
    fixed = torch.randn(length, length, generator=random).softmax(dim=-1)
    x = torch.randn(2, length, 1, generator=random).mul(15).round() / 10
    own = Softmax.Config().build()(x @ x.mT)
    made, lit = SceneMaker(), list[str]()
    written = np.vectorize(lambda v: f"{round(v, 2) + 0.0:.2f}".replace("-", "−"))
    for kind, both in enumerate(([fixed, fixed], own)):
        for k, used in enumerate(both):
            name = f"{('W', 'W(X)')[kind]}, {('first', 'second')[k]} X"
            left, own_hue = 84 + 290.0 * (2 * kind + k), np.full((length, length), (4.0, 1.0)[kind])
            own_hue[0] += 0.5  # row 1 is drawn over the others
            below, above = (written(each).tolist() for each in (x[k], used @ x[k]))
            outputs = ["\n".join((f"z_{t}", *row)) for t, row in enumerate(above, 1)]
            inputs = [[f"x_{s}", row[0][:-1]] for s, row in enumerate(below, 1)]
            fan(made, name, left, 270, outputs, inputs, used.numpy(), own_hue)
            for s, weight in enumerate(written(used[0]).tolist()):
                made.label(f"{name} α {s}", weight, (left + 90 * s, 512, 90, 44))
            lit += [f"{name} {part}" for part in ("out 0", "in", "title", "α")]
    made.label("row", "row 1:", (0, 512, 84, 44))
    text = "Grey: the same weights W for both inputs X. Orange: another W(X) for each input."
    made.stop("weights", text, ["stream"], [*lit, "row"])
    return made.drawing("The weights that mix the positions, for two inputs", caption=text)


@demo
@torch.no_grad()
def permutation() -> SceneDrawing:
    """Compare X + A(X) of numbers and of their reversal: A(P X) = P A(X) (Lee et al., 2019)."""
    attention = Attention.Config.parse({"bias": False}).build(1)
    for name, weight in {"query": 0.0, "key": 1.0, "value": 2.0, "output": 1.0}.items():
        attention.get_submodule(name).get_parameter("weight").fill_(weight)

    def outputs(x: Tensor, mask: Mask | None = None) -> Tensor:
        read = x.view(1, -1, 1)
        return (read + attention(read, mask=mask)).flatten()

    x, places, mean = torch.arange(1.0, 5.0), torch.arange(4), "A(X) = 2 × the mean"
    full, causal = torch.ones(4, 4), Mask(causal=True)
    networks: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {  # and what attends to what
        f"f(X) = X + A(X), {mean}": (outputs, full),
        "With positions p, f(X) = X + p + A(X + p)": (lambda x: outputs(x + places), full),
        f"With a causal mask, {mean} so far": (lambda x: outputs(x, causal), full.tril()),
        "Feed-forward, f(X) = 2 max(0, X)": (lambda x: 2 * x.relu(), 0 * full),
    }
    made, ends = SceneMaker(), range(len(x))
    for number, (name, (give, allowed)) in enumerate(networks.items()):
        forth, back, tag = give(x), give(x.flip(0)), f"network {number}"
        added = " + p" * ("+ p" in name)
        sign = "=" if torch.allclose(forth.flip(0), back, atol=1e-5) else "≠"
        rows = {f"X{added}": x, "f(X)": forth, "P f(X)": forth.flip(0)}, {
            "X ": x, f"P X{added}": x.flip(0), f"{sign} f(P X)": back}  # fmt: skip
        for top, row in zip((46.0, 340.0), rows, strict=True):
            for place, (head, column) in enumerate(row.items()):
                cells = [f"{x:.3g}" for x in (column + 0.0).tolist()]
                if head.endswith("+ p"):
                    cells = [f"{cell} + {p}" for p, cell in enumerate(cells)]
                hue = None if "f" not in head else 3 if place == 2 else 0
                box = 130.0 + 440 * place, top, 100.0, 220.0
                made.column(f"{tag} {head}", head, box, cells, hue=hue, tag=tag)
            for place, (start, end) in enumerate(pairwise(row)):
                over, letter = (380.0 + 440 * place, top - 46, 40.0, 40.0), "fP"[end[0] == "P"]
                made.label(f"{tag} {start} to", letter, over, tag=tag)
                for j, k in allowed.nonzero().tolist() * (letter == "f"):
                    made.link(f"{tag} {start} {k}", f"{tag} {end} {j}", weight=0.02, hue=5, tag=tag)
                for k in ends:
                    to = ends[-k - 1] if end.startswith("P") else k
                    made.link(f"{tag} {start} {k}", f"{tag} {end} {to}", hue=5, tag=tag)
        made.stop(name, f"{name}: P f(X) {sign} f(P X).", [tag])
    caption = "P reverses its input. Positions or a mask make the output depend on the order."
    return made.drawing(f"Does order matter? f(X) = X + A(X), {mean}", caption=caption)


@demo
@torch.no_grad()
def heads(
    part: Annotated[Literal["split", "weights"], Field(description="what to show")] = "weights",
) -> SceneDrawing:
    """Draw one softmax over the whole keys, and two over their halves: who ate, and what."""
    words, halves = ["the", "man", "ate", "the", "apple"], ("head 0", "head 1")
    if part == "split":
        return _split()
    query, keys, values = torch.full((1, 4), 6.0), torch.zeros(5, 4), torch.zeros(5, 4)
    keys[1, :2], keys[4, 2:] = 1.0, 1.0  # may be a subject; may be an object
    values[1, ::2], values[4, 1::2] = 1.0, 1.0  # in each half: is it the man, is it the apple
    made = SceneMaker()
    titles = {
        "c = {0:.2f} man + {1:.2f} apple": ["ate, one head"],
        "c = [{0:.2f} man; {3:.2f} apple]": [f"ate, {half}" for half in halves],
    }
    for count, (title, above) in enumerate(titles.items(), start=1):
        parts = [x.view(1, -1, count, 4 // count).transpose(1, 2) for x in (query, keys, values)]
        scores = ScaledDot(ScaledDot.Config(), count, 4 // count)(*parts[:2])
        weights = Softmax.Config().build()(scores)
        output, alphas = (weights @ parts[2]).flatten().tolist(), weights[0, :, 0]
        rows = zip(words, alphas.amax(dim=0).tolist(), strict=True)
        below = [[word, f"{alpha:.2f}"] for word, alpha in rows]
        name, left, hues = title.format(*output), 640.0 * (count - 1), np.indices(alphas.shape)[0]
        looks = [int(a.argmax()) if a.max() > 0.1 else None for a in alphas.T]
        fan(made, name, left, 600, above, below, alphas.numpy(), hues, looks)
    text = "One head blends man and apple; two keep them apart."
    return made.drawing("Who ate, and what?", caption=text)


def _split() -> SceneDrawing:
    """Draw three vectors of four numbers as one matrix, as two halves of each, and by head."""
    made, wide, high = SceneMaker(), 94.0, 68.0
    shapes = ("3 × 4", 78.0, 4), ("3 × 2 × 2", 608.0, 2), ("2 × 3 × 2", 942.0, 2)
    for number, (shape, left, columns) in enumerate(shapes):
        made.label(shape, shape, (left, 0, wide * columns, 44))
        for word, head in product(range(3), range(2)):
            y, right = 54 + 160.0 * word, wide * 2 * head * (number == 0)
            top = (y + high / 2, y + high * head, 54 + 252.0 * head + high * word)[number]
            middles, name = left + right + wide * np.array([0.5, 1.5]), f"{shape}, {word} {head}"
            texts = [str(4 * word + 2 * head + k) for k in (1, 2)]
            made.cells(name, middles, top + 9, wide, texts, [0.3, 0.3], hue=head)
            if number == 2 or not head:
                beside = left - 82, top + (number == 1) * high / 2, 74.0, high
                made.node(f"{name} word", WORDS[word], beside, form="word")
    for k in (0, 1):
        made.edge(f"reshape {k}", (474 + 334 * k, 273), (526 + 334 * k, 273))
        made.label(f"head {k}", f"head {k}", (1140, 54 + 252.0 * k + high, 100, high))
    text = "Blue: head 0, orange: head 1. No number changes, only their order."
    return made.drawing("A colour for each head", caption=text)


@demo
@torch.no_grad()
def quadratic(
    size: Annotated[int, Field(ge=2, le=256, description="D")] = 8,
    outputs: Annotated[bool, Field(description="leave the scores out")] = False,
) -> PanelGrid:
    """Draw the score and the output of self-attention for inputs X₁ + λ X₂."""
    random, x = torch.Generator().manual_seed(10), torch.arange(-20, 21).double() / 10
    first, second = torch.randn(2, 4, size, generator=random).double()
    queries, keys, values = torch.randn(3, size, size, generator=random).double() / size**0.5
    read = first + x[:, None, None] * second  # (41, T, D)
    scores = read @ queries @ (read @ keys).mT / size**0.5
    weights = {"α\xa0fixed": scores[20].softmax(dim=-1), "α\xa0from\xa0X": scores.softmax(dim=-1)}
    curves = {name: (α @ read @ values)[:, 0, 0].numpy() for name, α in weights.items()}
    e, slope = scores[:, 0, 0].numpy(), (scores[21] - scores[19])[0, 0] / 2  # at λ = 0
    score = {"tangent": e[20] + 10 * x.numpy() * float(slope), "e": e}
    left = line_chart(x.numpy(), score, "λ", "score e of word 1", marks={"λ = 0": 0.0})
    right = line_chart(x.numpy(), curves, "λ", "output c of word 1", marks={"λ = 0": 0.0})
    return PanelGrid(
        panels=[left, right][outputs:],
        title="Quadratic inside, linear outside",
        caption="X appears twice in a score, once in the output for weights fixed at λ = 0.",
    )  # fmt: skip
