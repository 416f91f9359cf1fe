"""Demos of attention: a lookup, masks, weights that depend on the input, and their effects."""

from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from foveate.errors import UserError
from foveate.look.draw.charts import BarsDrawing, LinesDrawing, PanelGrid, bar_chart, line_chart
from foveate.look.draw.interactive import Controls, Slider, geometric
from foveate.look.draw.parts import Numbers
from foveate.look.draw.scene import CELL, HIGH, SceneDrawing, SceneMaker
from foveate.look.draw.sheets import SHARES, ColorScale, SheetGrid, sheet
from foveate.look.draw.texts import TableDrawing
from foveate.look.views.demos import demo
from foveate.look.views.demos.layer import numbers
from foveate.look.views.demos.networks import attends, bidirectional, ids, transformer
from foveate.nn.attention import Attention
from foveate.nn.context import DecoderState, Mask
from foveate.nn.feed_forward import ReLU
from foveate.nn.normalizers import Hardmax
from foveate.nn.scores import Dot, ScaledDot, Softmax

Words = Annotated[str, Field(description="words with spaces between them")]
Seed = Annotated[int, Field(ge=0, description="seed of the inputs and matrices")]


def words_of(text: str, least: int = 1) -> list[str]:
    """Return the words of a text. Raises `UserError` if it has fewer than ``least``."""
    if len(text.split()) < least:
        raise UserError(f"{text!r} has too few words: give {least} or more, separated by spaces")
    return text.split()


TITLES = "train times", "weather", "recipes", "news"


@demo
@torch.no_grad()
def lookup(
    values: Annotated[tuple[float, ...], Field(min_length=2, description="one per key; repeat")]
    = (10.0, 20.0, 30.0, 40.0),
    key: Annotated[int, Field(ge=1, description="the key that the query asks for, from 1")] = 2,
    blend: Annotated[float, Field(ge=0, le=1, description="similarity to the next key")] = 0.3,
    temperature: Annotated[tuple[float, ...], Field(description="of softmax; repeat")] = (1.0, 0.1),
) -> SheetGrid:  # fmt: skip
    """Draw one query against one-hot keys: out = Σ_i w_i v_i, w = softmax(qᵀk / τ), or hardmax.

    Raises `UserError` for an unknown key.
    """
    count = len(values)
    if key > count:
        raise UserError(f"key {key} does not exist, only {count}: choose another or add --values")
    keys, mixed = torch.eye(count), torch.tensor(values)
    query = (1 - blend) * keys[key - 1] + blend * keys[key % count]
    scores = Dot(Dot.Config(), 1, count)(query.view(1, 1, 1, -1), keys.view(1, 1, count, -1))
    columns = {"Q · K": scores.flatten()}
    for tau in temperature:
        normalizer = Softmax.Config.parse({"temperature": tau}).build()
        columns["softmax" if tau == 1 else f"softmax, τ = {tau:g}"] = normalizer(scores).flatten()
    columns["hardmax"] = Hardmax.Config().build()(scores).flatten()
    numbers = torch.stack([*columns.values()], dim=1)  # a row for each key
    results = ["", *(f"{float(column @ mixed):.1f}" for column in numbers.T[1:]), ""]
    cells = [[*(f"{x:.2f}" for x in row), f"{v:g}"] for row, v in zip(numbers, values, strict=True)]
    titles = [TITLES[k] if k < len(TITLES) else f"key {k + 1}" for k in range(count)]
    sought = f"{1 - blend:.2g} {titles[key - 1]} + {blend:.2g} {titles[key % count]}"
    table = sheet(
        "", np.pad(numbers.numpy(), ((0, 1), (0, 1)), constant_values=np.nan),
        [*titles, "result: Σ w V"], [*columns, "V"], "K: titles", f"Q: {sought}",
        scale=SHARES, aspect=0.5, cells=[*cells, results],
    )  # fmt: skip
    return SheetGrid(
        sheets=[table], across=1, title=f"A lookup: the query asks for {titles[key - 1]}",
        caption="Softmax mixes the values of all keys, giving the most similar key the largest "
        "weight. The smaller τ, the closer it is to hardmax, which picks one key.",
        controls=Controls(
            formula="lookup", data={"values": Numbers.exact(mixed.numpy())},
            sliders=[
                Slider.of("key", key, np.arange(1.0, count + 1), label="key asked for"),
                Slider.of("blend", blend, np.linspace(0, 1, 101), label="similarity to next key"),
                *(Slider.of("temperature", tau, geometric(0.02, 10), k, f"τ of softmax {k + 1}")
                  for k, tau in enumerate(temperature)),
            ],
        ),
    )  # fmt: skip


@demo
def scaling(
    num_keys: Annotated[int, Field(ge=2, le=256, description="number of keys")] = 16,
    size: Annotated[int, Field(ge=1, le=1024, description="K, rounded to a power of 2")] = 64,
) -> PanelGrid:
    """Draw mean ‖∂α/∂e‖ of softmax over random scores q · k, with and without dividing by √K."""
    random, sizes = torch.Generator().manual_seed(0), 2 ** np.arange(0, 11)
    curves: dict[str, list[float]] = {"q · k": [], "q · k / √K": []}
    for width in sizes.tolist():
        query = torch.randn(200, 1, width, generator=random)
        scores = (query @ torch.randn(200, width, num_keys, generator=random)).squeeze(1)
        for name, factor in (("q · k", 1.0), ("q · k / √K", width**-0.5)):
            weights = (scores * factor).softmax(dim=-1)
            jacobian = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None]
            curves[name].append(float(jacobian.norm(dim=(1, 2)).mean()))
    query, keys = (torch.randn(int(sizes[-1]), n, generator=random) for n in (1, num_keys))
    place = round(np.log2(size))
    size, sums = int(sizes[place]), (query * keys).cumsum(dim=0)[sizes - 1]  # q · k for each K
    shares = {
        name: (sums[place] * factor).softmax(dim=-1).numpy()
        for name, factor in (("softmax(q · k)", 1.0), ("softmax(q · k / √K)", size**-0.5))
    }
    labels = [str(key) for key in range(1, num_keys + 1)]
    return PanelGrid(
        panels=[
            line_chart(
                sizes.astype(float), curves, "key size K", "mean norm of ∂α/∂e",
                log="x", marks={f"K = {size}": size},
            ),
            bar_chart(labels, shares, "weight of the key", f"Weights of one query, K = {size}"),
        ],
        title="Why scores are divided by √K",
        caption="Dot products of K random numbers have a standard deviation of √K: softmax then "
        "picks one key and passes no gradient. Divided by √K, their scale does not depend on K.",
        controls=Controls(
            formula="scaling", data={"scores": Numbers.exact(sums.numpy())},
            sliders=[Slider.of("size", size, sizes.astype(float), label="key size K")],
        ),
    )  # fmt: skip


@demo
def local(
    position: Annotated[float, Field(ge=0, le=19, description="p, the centre of the window")] = 9,
    window: Annotated[float, Field(gt=0, le=20, description="D, positions each way")] = 4,
) -> BarsDrawing:
    """Draw local attention of one query: a window and a Gaussian, σ = D/2 (Luong et al., 2015).

    local-m: softmax over p − D … p + D. local-p: the weights of local-m, each multiplied by
    exp(−(s − p)² / 2σ²).
    """
    scores = torch.randn(20, generator=torch.Generator().manual_seed(3)).numpy()
    away = np.arange(20.0) - position
    inside = np.where(np.abs(away) <= window, scores, -np.inf)
    if np.isinf(inside).all():
        raise UserError(f"no position within {window:g} of {position:g}: widen the window")
    weights = Softmax.Config().build()(torch.tensor(inside)).numpy()
    bell = np.exp(-(away**2) / (2 * (window / 2) ** 2))
    return bar_chart(
        [str(s) for s in range(20)],
        {"align: softmax in the window (local-m)": weights,
         "align × Gaussian (local-p)": weights * bell},
        "weight, random scores",
        f"The window p − D … p + D, p = {position:g}, D = {window:g}, σ = D/2",
        "The window keeps only nearby keys; the Gaussian makes the position p differentiable, and "
        "its weights sum to less than 1.",
    ).model_copy(update={"controls": Controls(
        formula="local", data={"scores": Numbers.exact(scores)},
        sliders=[
            Slider.of("position", position, np.linspace(0, 19, 77), label="p, centre"),
            Slider.of("window", window, np.linspace(0.5, 20, 40), label="D, positions each way"),
        ],
    )})  # fmt: skip


Families = tuple[Literal["encoder", "decoder", "encoder-decoder"], ...]


NAMES = {"encoder": "encoder: BERT", "decoder": "decoder: GPT",
         "encoder-decoder": "encoder– decoder: T5"}  # fmt: skip


@demo
def masks(
    source: Words = "the sun rises", target: Words = "le soleil se lève",
    families: Annotated[Families, Field(min_length=1, strict=False, description="which; repeat")]
    = ("encoder", "decoder", "encoder-decoder"),
) -> SceneDrawing:  # fmt: skip
    """Draw a line from each word to each position that may attend to it, in three families."""
    read, written = words_of(source), words_of(target)
    words, count = [*read, *written], len(read) + len(written)
    causal = Mask(causal=True).dense(range(count), range(count))
    assert causal is not None
    made, band = SceneMaker(), HIGH / len(families)
    for number, family in enumerate(families, start=1):
        end, top = band * number, band * (number - 1) + 52
        middles = made.row(family, NAMES[family].split(" "), words, end)
        first = {"encoder": count, "decoder": 0}.get(family, len(read))  # of the decoder
        letters = [f"{'hs'[0 < first <= t]}_{t + 1 - first * (t >= first)}" for t in range(count)]
        made.cells(family, middles, top, 64, letters, np.zeros(count), hue=5)
        decodes = np.arange(count) >= first
        own = causal[0, 0].numpy() & decodes[:, None] & decodes
        for hue, allowed in ((2, ~decodes[:, None] & ~decodes), (1, own)):
            ends = end - 44, top + CELL
            made.fan(f"{family} {hue}", middles, ends, 0.1 * allowed, hue=hue)
        for t, s in np.argwhere(decodes[:, None] & ~decodes).tolist():
            x, u = middles[[t, s]]
            bends = (u, top), (u, top - 46), (x, top - 46), (x, top)
            made.edge(f"{family} cross {t} {s}", *bends, weight=0.1, hue=0, tag="")
    text = "Lines: what a position may attend to." + " Blue: cross-attention." * (len(families) > 1)
    return made.drawing(f"x = {source}; y = {target}", caption=text)


@demo
def leak(text: Words = "[START] The chef who was") -> SheetGrid:
    """Draw which inputs each step depends on, with and without a causal mask."""
    *words, last = words_of(text, least=2)
    steps = [f"{word} → {after}" for word, after in zip(words, [*words[1:], last], strict=True)]
    read, gpt, bert = ids(len(words)), transformer(), bidirectional()
    norms = {
        "without a mask": attends(bert, lambda: bert(read).values),
        "with a causal mask": attends(gpt, lambda: gpt(read, None)),
    }
    drawn = [
        sheet(name, np.where(norm == 0, np.nan, norm / norm.max()), steps, words,
              "reads → writes", "may read",
              scale=ColorScale(0.0, 1.0, "0: none, 1: most")).model_copy(update={
            "outlines": [(t, s, 1, 1) for t, s in np.argwhere(np.triu(norm, 1) > 0).tolist()]})
        for name, norm in norms.items()
    ]  # fmt: skip
    return SheetGrid(
        sheets=drawn, title="How strongly a step (down) depends on each input (across)",
        caption="Without a mask, the first step reads the words that it should predict; at "
        "inference they do not exist yet. With the mask, it sees nothing of the future.",
    )  # fmt: skip


@demo
@torch.no_grad()
def parallel(length: Annotated[int, Field(ge=2, le=32, description="tokens")] = 8) -> SheetGrid:
    """Draw the pass that computes each pair of positions; both ways give the same outputs."""
    model, text, state = transformer(), ids(length), DecoderState()
    whole = model(text, None)
    rows = torch.cat([model(text[:, t : t + 1], None, state) for t in range(length)], dim=1)
    difference = float((whole - rows).abs().max())
    seen = np.tril(np.ones((length, length)))
    seen[seen == 0] = np.nan
    passes = {
        "training: 1 pass": seen,
        f"generation: {length} passes": seen * np.arange(1, length + 1)[:, None],
    }
    places = [str(t) for t in range(1, length + 1)]
    few = length <= 12  # larger cells would be too narrow for numbers
    drawn = [
        sheet(name, values, places, places, "query t", "key s",
              ColorScale(0.0, float(length), "number of the pass"), cells=[
                  ["" if np.isnan(v) else f"{v:.0f}" for v in row] for row in values if few])
        for name, values in passes.items()
    ]  # fmt: skip
    return SheetGrid(
        sheets=drawn, title="The pass in which the weight of a query and a key is computed",
        caption="Training knows all tokens and computes all rows at once; generation computes "
        "row by row, with a cache of the keys and values of earlier rows. The outputs are the "
        f"same (largest difference {difference:.0e}).",
    )  # fmt: skip


@demo
@torch.no_grad()
def weights(
    length: Annotated[int, Field(ge=2, le=24, description="positions")] = 6,
    seed: Seed = 0,
) -> SheetGrid:
    """Draw Z = W X, the same W for every input, and Z = W(X) X, W(X) = softmax(X Xᵀ / √D)."""
    random = torch.Generator().manual_seed(seed)
    fixed = torch.randn(length, length, generator=random).softmax(dim=-1)
    x = 1.5 * torch.randn(2, length, 4, generator=random)
    own = Softmax.Config().build()(x @ x.mT / 2)
    drawn = [
        sheet(f"{kind}, input {k}", used.numpy(), down="output", across="input",
              scale=ColorScale(0.0, 1.0, "weight"))
        for kind, both in (("W", [fixed, fixed]), ("W(X)", own))
        for k, used in enumerate(both, start=1)
    ]  # fmt: skip
    return SheetGrid(
        sheets=drawn, title="The weights that mix the positions, for two inputs",
        caption="A layer with fixed weights mixes every input in the same way; attention "
        "computes its weights from the input.",
    )  # fmt: skip


@demo
@torch.no_grad()
def permutation(
    inputs: Annotated[tuple[float, ...], Field(min_length=2, description="numbers; repeat")]
    = (1.0, 2.0, 3.0, 4.0),
    value: Annotated[float, Field(description="weight of the values")] = 2.0,
    query: Annotated[float, Field(description="weight of the queries; 0: equal weights")] = 0.0,
) -> TableDrawing:  # fmt: skip
    """Compare X + A(X) of numbers and of their reversal: A(P X) = P A(X) (Lee et al., 2019)."""
    attention = Attention.Config.parse({"bias": False}).build(1)
    for name, weight in {"query": query, "key": 1.0, "value": value, "output": 1.0}.items():
        attention.get_submodule(name).get_parameter("weight").fill_(weight)

    def outputs(x: Tensor, mask: Mask | None = None) -> Tensor:
        read = x.view(1, -1, 1)
        return (read + attention(read, mask=mask)).flatten()

    def text(x: Tensor) -> str:
        return " ".join(f"{number + 0.0:.4g}" for number in x.tolist())

    x, places = torch.tensor(inputs), torch.arange(len(inputs))
    networks: dict[str, Callable[[Tensor], Tensor]] = {
        f"X + A(X), A = {value:g} × {'the mean' if query == 0 else 'a weighted mean'}": outputs,
        "… with positions": lambda x: outputs(x + places),
        "… with a causal mask": lambda x: outputs(x, Mask(causal=True)),
        "feed-forward": lambda x: value * x.relu(),
    }
    rows: list[list[str | float | None]] = []
    for name, give in networks.items():
        forth, back = give(x), give(x.flip(0))
        same = "=" if torch.allclose(forth.flip(0), back, atol=1e-5) else "≠"
        rows.append([name, text(forth), text(forth.flip(0)), same, text(back)])
    return TableDrawing(
        title=f"Does order matter? f(X) = X + A(X), A(X) = {value:g} × a mean of X",
        columns=[f"X = {text(x)}", "f(X)", "P f(X)", "", "f(P X)"], rows=rows,
        caption="P reverses the input. Attention then reverses its output: it does not "
        "know the order, and neither does a feed-forward layer. Positions or a mask change that.",
    )  # fmt: skip


@demo
@torch.no_grad()
def equivariance(text: Words = "the sun rises", seed: Seed = 1) -> SheetGrid:
    """Draw A(P X) = P A(X), matrix by matrix: scores S, weights, outputs, for X and for P X."""
    words, random, drawn = words_of(text), torch.Generator().manual_seed(seed), []
    x = torch.randn(len(words), 4, generator=random)
    queries, keys, values = torch.randn(3, 4, 4, generator=random)
    for names, order in (
        (("scores S", "weights α", "outputs α X W"), [*range(len(words))]),
        (("P S Pᵀ", "P α Pᵀ", "P α X W"), [*range(1, len(words)), 0]),
    ):
        read, rows = x[order], [words[k] for k in order]
        scores = read @ queries @ (read @ keys).T / 2
        weights = scores.softmax(dim=-1)
        matrices = scores, weights, weights @ read @ values
        labels = rows, rows, ()
        drawn += [
            numbers(name, x, rows, c) for name, x, c in zip(names, matrices, labels, strict=True)
        ]
    return SheetGrid(
        sheets=drawn, across=3, title="Attention over X, and below over P X: the same, permuted",
        caption="P permutes the rows of X and so the rows and columns of the scores; softmax acts "
        "on each row; since Pᵀ P = 1, the rows of the outputs are permuted.",
    )  # fmt: skip


@demo
@torch.no_grad()
def heads(
    part: Annotated[Literal["split", "weights"], Field(description="what to show")] = "weights",
) -> SheetGrid:
    """Draw one softmax over the whole keys, and two over their halves: who ate, and what."""
    words, halves = ["the", "man", "ate", "the", "apple"], ("head 1", "head 2")
    if part == "split":
        whole = torch.arange(20.0).view(5, 4)
        split = whole.view(5, 2, 2).transpose(0, 1)
        matrices = {"n × d": (whole, range(4))}
        matrices |= {name: (split[h], range(2 * h, 2 * h + 2))
                     for h, name in enumerate(halves)}  # fmt: skip
        return SheetGrid(
            sheets=[sheet(name, 0.2 + 0.75 * (matrix.numpy() % 4 // 2), words, [*map(str, columns)],
                          scale=ColorScale(0.0, 1.0, " "),
                          cells=[[f"{x:.0f}" for x in row] for row in matrix])
                    for name, (matrix, columns) in matrices.items()],
            across=3, title="A colour for each head: d/h columns of each word",
            caption="No number changes: each head takes d/h columns of the whole matrix.",
        )  # fmt: skip
    query, keys, values = torch.full((1, 4), 4.0), torch.zeros(5, 4), torch.zeros(5, 4)
    keys[1, :2], keys[4, 2:] = 1.0, 1.0  # may be a subject; may be an object
    values[1, ::2], values[4, 1::2] = 10.0, 10.0  # in each half: is it the man, is it the apple
    weights, outputs = [], []
    for count in (1, 2):
        parts = [x.view(1, -1, count, 4 // count).transpose(1, 2) for x in (query, keys, values)]
        scores = ScaledDot(ScaledDot.Config(), count, 4 // count)(*parts[:2])
        weights.append(Softmax.Config().build()(scores))
        outputs.append((weights[-1] @ parts[2]).flatten())
    output = torch.stack(outputs)
    return SheetGrid(
        sheets=[
            sheet("weights of the query “ate”", torch.cat(weights, 1)[0, :, 0].numpy(),
                  ["one head", *halves], words, scale=SHARES, written=True),
            sheet("output, half: word", output.numpy(), ["one head", "two heads"],
                  ["1: man", "1: apple", "2: man", "2: apple"],
                  scale=ColorScale(0.0, 10.0, " "),
                  cells=[[f"{x:.1f}" for x in row] for row in output]),
        ],
        across=1, title="Who ate, and what?",
        caption="One head returns the mean of subject and object. With two concatenated heads, "
        "the first half says who ate, the second half what.",
    )  # fmt: skip


@demo
@torch.no_grad()
def quadratic(size: Annotated[int, Field(ge=2, le=256, description="D")] = 8) -> LinesDrawing:
    """Draw the score and the output of self-attention for inputs x₁ + a x₂."""
    random, x = torch.Generator().manual_seed(0), torch.arange(-20, 21).double() / 10
    first, second = torch.randn(2, 4, size, generator=random).double()
    queries, keys, values = torch.randn(3, size, size, generator=random).double() / size**0.5
    read = first + x[:, None, None] * second  # (41, T, D)
    scores = read @ queries @ (read @ keys).mT / size**0.5
    fixed = scores[20].softmax(dim=-1)
    curves = {"score, inside the softmax": scores[:, 0, 0],
              "output, with fixed weights": (fixed @ read @ values)[:, 0, 0]}  # fmt: skip
    return line_chart(
        x.numpy(), {name: y.numpy() for name, y in curves.items()}, "a in the inputs x₁ + a x₂",
        "score, or first number of the output", "Quadratic inside, linear outside",
        caption="X appears twice in the scores X W_Q W_Kᵀ Xᵀ: a parabola. It appears once in the "
        "output: a straight line.",
    )  # fmt: skip


@demo
@torch.no_grad()
def linear(
    layers: Annotated[int, Field(ge=1, le=12, description="layers of each network")] = 2,
    size: Annotated[int, Field(ge=2, le=256, description="vector size D")] = 16,
) -> LinesDrawing:
    """Draw outputs for the values v₁ + a v₂: straight lines if the network is linear in them."""
    torch.manual_seed(0)
    length, x = 6, torch.arange(-20, 21).double() / 10
    first, second = torch.randn(2, length, size).double()
    mixing = torch.randn(layers, length, length).double().softmax(dim=-1)  # does not depend on x
    matrices = torch.randn(layers, size, size).double() / size**0.5
    feed_forward = ReLU.Config().build(size, 4 * size).double()
    for weight in (feed_forward.inner.weight, feed_forward.outer.weight):
        nn.init.kaiming_normal_(weight)
    networks = {
        "attention alone, fixed weights": nn.Identity(),
        "with feed-forward layers (ReLU)": feed_forward,
    }
    curves = {}
    for name, layer in networks.items():
        values = first + x[:, None, None] * second  # (41, T, D)
        for mix, matrix in zip(mixing, matrices, strict=True):
            values = layer(mix @ values @ matrix)
        curves[name] = values[:, 0, 0].numpy()
    return line_chart(
        x.numpy(), curves, "a in the values v₁ + a v₂", "first number of the output",
        f"{layers} layers with fixed attention weights",
        caption="The weights are fixed: attention then only averages its values, a straight line. "
        "Feed-forward layers bend it; so do weights that depend on the input.",
    )  # fmt: skip
