"""Demos of equations: scores, normalizers, positions, learning rates, path lengths."""

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

import foveate.nn.scores as kinds
from foveate.config import ConfigError
from foveate.errors import UserError
from foveate.look.draw.analyses import sheets
from foveate.look.draw.charts import BarsDrawing, LinesDrawing, PanelGrid, bar_chart, line_chart
from foveate.look.draw.interactive import Controls, Slider
from foveate.look.draw.parts import Floats, Numbers
from foveate.look.draw.scene import BESIDE, CELL, HIGH, WIDE, SceneDrawing, SceneMaker
from foveate.look.draw.sheets import SHARES, SheetGrid, alike, sheet
from foveate.look.draw.texts import TableDrawing
from foveate.look.views.demos import demo
from foveate.nn.loss import linear_cross_entropy
from foveate.nn.more_positions import ALiBi
from foveate.nn.normalizers import Entmax15, Hardmax, Sparsemax
from foveate.nn.positions import Rotary, Sinusoidal
from foveate.train.optim import Noam

Length = Annotated[int, Field(ge=2, le=512, description="positions")]
Size = Annotated[int, Field(ge=2, le=1024, description="vector size D")]
Base = Annotated[float, Field(gt=1, description="base of the wavelengths")]
SCORES: dict[str, tuple[type[kinds.Score], str, str]] = {  # a formula, a paper
    "cosine": (kinds.CosineScore, "q · k / (|q| |k|)", "Graves 2014"),
    "additive": (kinds.Additive, "v · tanh(W q + U k)", "Bahdanau 2015"),
    "location": (kinds.Location, "entry i of W q", "Luong 2015"),
    "general": (kinds.General, "q · W k", "Luong 2015"),
    "dot": (kinds.Dot, "q · k", "Luong 2015"),
    "scaled dot": (kinds.ScaledDot, "q · k / √d", "Transformer 2017"),
}


def small_score(kind: type[kinds.Score], plain: bool = False) -> kinds.Score:
    """Return a score for vectors of two numbers, with random weights or W = U = 2 I, v = (1, 1)."""
    torch.manual_seed(5)
    own: dict[str, object] = {"own_matrix": plain} if kind is kinds.Additive else {}
    score = kind.Config.parse({"sharpness": 1.0} if kind is kinds.CosineScore else own).build(1, 2)
    for weight in score.parameters() if plain else ():
        weight.copy_(2 * torch.eye(*weight.shape[1:]) if weight.dim() == 3 else torch.ones(1))
    return score


def landscape(kind: type[kinds.Score], query: Tensor, reach: float, points: int) -> Tensor:
    """Return the score of a query (2,) with all keys in a square of the plane, (points, points)."""
    score = small_score(kind)
    across = torch.linspace(-reach, reach, points)
    keys = torch.cartesian_prod(-across, across).flip(1)  # rows of equal y, the highest first
    if not kind.reads_keys:
        return torch.full((points, points), torch.nan)
    result: Tensor = score(query.view(1, 1, 1, 2), keys.view(1, 1, -1, 2))
    return result.view(points, points)


@demo
@torch.no_grad()
def scores(
    x: Annotated[float, Field(description="x of the query")] = 1.5,
    y: Annotated[float, Field(description="y of the query")] = 0.5,
    reach: Annotated[float, Field(gt=0, description="half the width of the plane")] = 3.0,
    points: Annotated[int, Field(ge=3, le=201, description="keys per side of the plane")] = 25,
    of: Annotated[Literal["planes", "table"], Field(description="maps, or formulas")] = "planes",
) -> SheetGrid | TableDrawing:
    """Draw the score of one query with keys anywhere in the plane, or list the formulas."""
    if of == "table":
        q, k = torch.tensor([x, y]).view(1, 1, 1, 2), torch.tensor([1.0, 2.0]).view(1, 1, 1, 2)
        rows: list[list[str | float | None]] = [
            [name, formula, f"{small_score(kind, True)(q, k).item():.2f}", paper]
            for name, (kind, formula, paper) in SCORES.items()
        ]
        rows[-1] = [f"[{cell}]" for cell in rows[-1]]
        return TableDrawing(
            title="Scores of a query q and a key k of d numbers",
            columns=["score", "formula", "value", "paper"], rows=rows,
            caption=f"For q = ({x:g}, {y:g}), k = (1, 2), W = U = 2 I, v = (1, 1), i = 1.",
        )  # fmt: skip
    query, ends = torch.tensor([x, y]), {0: -reach, points // 2: 0.0, points - 1: reach}
    across = [f"{ends[k]:g}".replace("-", "−") if k in ends else "" for k in range(points)]
    dot = (1 - y / reach) / 2 * (points - 1), (1 + x / reach) / 2 * (points - 1)
    drawn = [
        sheet(f"{name}: {formula}", landscape(kind, query, reach, points).numpy(), across[::-1],
              across, "key, y", "key, x").model_copy(update={"dots": [dot]})
        for name, (kind, formula, *_) in SCORES.items()
    ]  # fmt: skip
    drawn = alike(drawn[:3]) + alike(drawn[3:])
    weights = {
        name: Numbers.exact(next(small_score(kind).parameters()).detach().flatten().numpy())
        for name, kind in (("additive", kinds.Additive), ("general", kinds.General))
    }
    stops = np.linspace(-reach, reach, 121)
    return SheetGrid(
        sheets=drawn, across=3, title=f"The score of a key in the plane, query ({x:g}, {y:g})",
        caption="The dot is the query. A cosine depends only on the direction of the key.",
        controls=Controls(
            formula="scores", data=weights | {"reach": Numbers.exact(np.array([reach]))},
            sliders=[Slider.of("x", x, stops, label="query, x"),
                     Slider.of("y", y, stops, label="query, y")],
            plane=("x", "y"),
        ),
    )  # fmt: skip


def arrows(
    pairs: Sequence[Sequence[float]], length: float, below: Sequence[list[str]], title: str,
    caption: str, names: Sequence[tuple[str, str]],
) -> SceneDrawing:  # fmt: skip
    """Draw q (orange) and k (blue, ``length`` times as long) at angles in degrees, side by side.

    ``below`` are the lines under each pair.
    """
    made, wide = SceneMaker(), WIDE / len(pairs)
    turned = np.radians(pairs)
    all_ends = np.stack([np.cos(turned), -np.sin(turned)], axis=2) * [[1], [length]]
    lows, highs = all_ends.min(axis=1).clip(max=0), all_ends.max(axis=1).clip(min=0)
    foot = HIGH - 44.0 * len(below[0])
    tall = lows[:, 1].min(), highs[:, 1].max()  # feet are at one height
    unit = min(0.8 * wide / (highs - lows)[:, 0].max(), (foot - 70) / (tall[1] - tall[0]))
    for number, (turns, lines) in enumerate(zip(turned, below, strict=True), start=1):
        left, ends = wide * (number - 1), unit * all_ends[number - 1]
        middle = unit * np.array([(lows + highs)[number - 1, 0], tall[0] + tall[1]]) / 2
        origin = np.array([left + wide / 2, foot / 2 - 10]) - middle
        turn = np.sign(ends[0, 0] * ends[1, 1] - ends[0, 1] * ends[1, 0]) or -1
        for name, label, end, to in zip("qk", names[number - 1], ends, (-turn, turn), strict=True):
            aside = to * np.array([-end[1], end[0]]) / np.hypot(*end)
            start = origin + 5 * aside * bool(turns[0] == turns[1])  # beside each other
            points = start.tolist(), (start + end).tolist()
            made.edge(f"{name} {number}", *points, hue=int(name == "q"), tag="")
            x, y = origin + 0.8 * end + (18 + 6 * len(label)) * aside
            made.label(f"{name} {number}", label, (x - 40, y - 20, 80.0, 40.0))
        bend = turns[0] + np.linspace(0, 1, 25) * np.diff(np.unwrap(turns))
        arc = origin + 0.35 * unit * np.stack([np.cos(bend), -np.sin(bend)], axis=1)
        if turns[0] != turns[1]:
            made.edge(f"angle {number}", *arc.tolist(), hue=5, tag="")
            box = *(origin + 1.3 * (arc[12] - origin) - 20), 40.0, 40.0
            made.label(f"θ {number}", "θ" * (names[0][0] == "q"), box)
        lines = [line.replace("-0.00", "0.00").replace("-", "−") for line in lines]
        for row, line in enumerate(lines):
            box, facts = (left, foot + 44 * row, wide, 40.0), lines * (line is lines[-1])
            made.label(f"pair {number}, {row}", line, box, detail=facts)
    return made.drawing(title, caption=caption)


@demo
@torch.no_grad()
def angle(
    degrees: Annotated[tuple[float, ...], Field(min_length=1, max_length=6, description="angles")]
    = (0.0, 45.0, 90.0, 135.0, 180.0),
    length: Annotated[float, Field(gt=0, le=4, description="length of the key")] = 1.5,
) -> SceneDrawing:  # fmt: skip
    """Draw a query of length 1 and a key at some angles to it, with their dot product."""
    query, below = torch.tensor([[[[1.0, 0.0]]]]), []
    for theta in degrees:
        turn = torch.tensor(theta).deg2rad()
        key = length * torch.stack((turn.cos(), turn.sin())).view(1, 1, 1, 2)
        score = float(kinds.Dot(kinds.Dot.Config(), 1, 2)(query, key))
        below.append([f"θ = {theta:g}°, cos θ = {turn.cos():.2f}", f"q · k = {score:.2f}"])
    return arrows(
        [(0.0, theta) for theta in degrees], length, below, f"|q| = 1, |k| = {length:g}",
        "q · k = |q| |k| cos θ: largest in the same direction, 0 at a right angle.",
        [("q", "k")] * len(degrees),
    )  # fmt: skip


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": F.relu, "gelu": F.gelu, "silu": F.silu,
}  # fmt: skip
SPOKEN = {"relu": "ReLU", "gelu": "GELU", "silu": "SiLU"}


@demo
def activations(
    names: Annotated[
        tuple[Literal["sigmoid", "tanh", "relu", "gelu", "silu"], ...],
        Field(min_length=1, strict=False, description="kinds; repeat"),
    ] = ("sigmoid", "tanh", "relu", "gelu"),
    reach: Annotated[float, Field(gt=0, description="range of x on each side of 0")] = 5.0,
) -> PanelGrid:
    """Draw activations and their slopes."""
    values, slopes = dict[str, Floats](), dict[str, Floats]()
    x = torch.linspace(-reach, reach, 1001, requires_grad=True)
    for name in names:
        y = ACTIVATIONS[name](x)
        [slope] = torch.autograd.grad(y.sum(), x)
        spoken = SPOKEN.get(name, name)
        values[spoken], slopes[spoken] = y.detach().double().numpy(), slope.double().numpy()
    places = x.detach().double().numpy()
    panels = [line_chart(places, values, "x", "f(x)"), line_chart(places, slopes, "x", "slope")]
    if names == ("sigmoid",):
        curves = {"σ(x)": values["sigmoid"], "σ′(x) ≤ 1/4": slopes["sigmoid"]}
        panels = [line_chart(places, curves, "x")]
    title = f"Activations and their slopes: {', '.join(values)}"
    caption = "No gradient passes where the slope is near 0."
    return PanelGrid(panels=panels, title=title, caption=caption)


@demo
def normalizers(
    scores: Annotated[tuple[float, ...], Field(min_length=1, description="one per key; repeat")]
    = (2.0, 1.6, 1.1, 0.3, -0.4, -1.5),
    temperature: Annotated[float, Field(gt=0, description="τ of the second softmax")] = 0.3,
    choice: Annotated[bool, Field(description="softmax and hardmax of two keys")] = False,
) -> SheetGrid | LinesDrawing:  # fmt: skip
    """Draw the weights that each normalizer gives to the same scores."""
    if choice:
        first = np.sort(np.append(np.linspace(-4, 4, 161), -1e-9))
        both = torch.tensor(np.stack((first, 0 * first), axis=1))
        made = {"softmax": kinds.Softmax.Config().build()(both)[:, 0],
                "hardmax": Hardmax.Config().build()(both)[:, 0]}  # fmt: skip
        return line_chart(
            first, {name: weight.numpy() for name, weight in made.items()},
            "difference of the scores, e₁ − e₂",
            "weight of key 1, of two", "A hard choice or a soft one",
            marks={f"e₁ = e₂ + 1: {torch.tensor(1.0).sigmoid():.2f} or 1": 1.0},
            caption="Hardmax has slope 0: nothing is learned from it.",
        )  # fmt: skip
    tau = kinds.Softmax.Config(temperature=temperature)
    rows = {
        "softmax": kinds.Softmax.Config(), f"softmax, τ = {temperature:g}": tau,
        "entmax, α = 1.5": Entmax15.Config(), "sparsemax": Sparsemax.Config(),
        "hardmax": Hardmax.Config(),
    }  # fmt: skip
    built = [config.build()(torch.tensor(scores)) for config in rows.values()]
    weights = torch.stack(built).double().numpy()
    drawn = sheet(
        "", weights, [*rows], [f"{score:g}".replace("-", "−") for score in scores],
        across="scores of the keys", scale=SHARES, aspect=0.6,
        cells=[["0" if w == 0 else f"{w:.2f}" for w in row] for row in weights],
    )  # fmt: skip
    return SheetGrid(
        sheets=[drawn], across=1,
        title="Five sets of weights for the same scores",
        caption="0 is exactly 0: softmax gives every key some weight, sparsemax and entmax give "
        "low scores none; a small temperature τ brings softmax close to hardmax.",
    )  # fmt: skip


@demo
def sinusoids(
    length: Length = 64, hidden_size: Size = 64, base: Base = 10_000.0,
    waves: Annotated[tuple[int, ...], Field(description="sines i to draw as waves; repeat")] = (),
) -> SheetGrid | LinesDrawing:  # fmt: skip
    """Draw the vector of each position, sines and cosines, and the products of two positions."""
    position = Sinusoidal(Sinusoidal.Config(base=base), hidden_size, 1)
    rates = base ** (-2 * np.arange(hidden_size // 2) / hidden_size)
    if wrong := [i for i in waves if not 0 <= i < len(rates)]:
        raise UserError(f"sine {wrong[0]} does not exist: choose i from 0 to {len(rates) - 1}")
    if waves:
        t, turn = np.linspace(0, length, 32 * length + 1), 2 * np.pi / rates
        curves, blank = dict[str, Floats](), np.isin(np.arange(len(t)), (1, 31, 33, len(t) - 2))
        for i in waves:  # blank around the points
            points = ",\xa0".join(f"{np.sin(n * rates[i]):.2f}" for n in (0, 1, length))
            name = f"i\xa0=\xa0{i}: wavelength\xa0{turn[i]:,.{turn[i] < 100:d}f}; ●\xa0{points}"
            curves[name.replace("-", "−")] = np.where(blank, np.nan, np.sin(t * rates[i]))
        return line_chart(
            t, curves, "position t", f"sin(2π t / wavelength); ● t = 0, 1, {length}", "Sinusoids",
            caption="Fast waves tell neighbours apart, slow ones the beginning from the end.",
        )  # fmt: skip
    vectors, products = sheets(position, length, hidden_size, 1)
    entries = {"title": "PE(t): sin, cos, sin, cos, …", "across": "entry", "aspect": 0.62}
    dots = [(s + length // 4, s) for s in range(0, length - length // 4, 2)]
    update = {"title": "cosine of PE(t) and PE(s)", "dots": dots, "aspect": 0.62}
    return SheetGrid(
        sheets=[vectors.model_copy(update=entries), products.model_copy(update=update)],
        title="Equal distance, equal cosine",
        caption="Waves become longer along i; products depend only on the distance.", across=2,
    )  # fmt: skip


@demo
def rotary(
    distances: Annotated[tuple[int, ...], Field(min_length=1, description="s − t; repeat")]
    = (1, 2),
) -> SceneDrawing:  # fmt: skip
    """Draw a pair of numbers of q at position t and of k at s = t + distance, as RoPE turns them.

    It is the fastest pair, turned by 1 radian from position to position.
    """
    both = torch.tensor([[1.0, 0.0], [0.87, -0.5]])[None, :, None].expand(1, 2, 70, 2)
    q, k = Rotary(Rotary.Config(), 2, 1).rotate(both, torch.arange(70))[0].double()
    places = [(t, t + distance) for distance in distances for t in (0, 2)]
    turned = torch.stack([torch.stack((q[t], k[s])) for t, s in places])
    degrees = torch.atan2(turned[..., 1], turned[..., 0]).rad2deg().tolist()
    below = [
        [f"t = {t}, s = {s}", f"s − t = {s - t}", f"(R_t q)ᵀ R_s k = {float(q[t] @ k[s]):.2f}"]
        for t, s in places
    ]
    return arrows(
        degrees, 1.0, below, "A pair of numbers, rotated by its position",
        "Equal distances s − t: equal angles, equal products.",
        [(f"R_{t} q", f"R_{s} k") for t, s in places],
    )  # fmt: skip


@demo
def alibi(
    text: Annotated[str, Field(min_length=1, description="words; the last is the query")]
    = "she opens every letter with great care",
    num_heads: Annotated[int, Field(ge=1, le=5, description="heads to draw, of eight")] = 4,
) -> SceneDrawing:  # fmt: skip
    """Draw what ALiBi adds to the scores of each head: −m_h |t − s| (Press et al., 2022)."""
    words, made, band = text.split(), SceneMaker(), (HIGH - 196) / num_heads
    position = ALiBi(ALiBi.Config(), 64, 8)
    bias = position.bias(torch.tensor([len(words) - 1]), torch.arange(len(words)))
    assert bias is not None
    heading = f"added to the score e of each word, for the query “{words[-1]}” (framed)"
    made.label("heading", heading, (BESIDE - 10, 4, WIDE - BESIDE, 44), level=1)
    middles = made.row("words", ["distance |t − s|"], words, 118, WIDE - 10, up=-37)
    wide, away = min(128, 900 / len(words)), [*map(str, range(len(words)))][::-1]
    made.node("query", "", (middles[-1] - 56, 70.0, 112.0, 52.0), form="frame", hue=1)
    made.cells("distance", middles, 130, wide, away, 0 * middles, form="word")
    for h, (slope, row) in enumerate(zip(position.slopes.tolist(), bias[:num_heads], strict=False)):
        top, values = 196 + band * h + (band - CELL) / 2, row[0].double().numpy() + 0.0
        title = [f"head {h + 1} of 8:", f"m = 1/{1 / slope:.4g}"]
        made.label(f"head {h} title", "", (0, top - 23, 236, 96), texts=title)
        written = [f"{v:g}".replace("-", "−") for v in values]
        made.cells(f"head {h}", middles, top, wide, written, np.exp(values), hue=2)
    caption = "Each head subtracts its slope m times the distance: far words count less."
    return made.drawing("Distance penalties, with a slope for each head", caption=caption)


@demo
def noam(
    pairs: Annotated[tuple[str, ...], Field(min_length=1, description="D:warmup; repeat")]
    = ("512:4000", "512:8000", "256:4000"),
    steps: Annotated[int, Field(ge=1, description="training steps")] = 20_000,
) -> LinesDrawing:  # fmt: skip
    """Draw learning rates d^−0.5 · min(step^−0.5, step · warmup^−1.5) (Vaswani et al., 2017)."""
    places, curves = np.unique(np.linspace(1, steps, min(steps, 400)).round()), {}
    for pair in pairs:
        size, colon, warmup = pair.partition(":")
        if not (colon and size.isdecimal() and warmup.isdecimal() and int(size) * int(warmup)):
            raise ConfigError(f"{pair!r} is not a pair D:warmup such as 512:4000", ("pairs",))
        rate = Noam(Noam.Config(hidden_size=int(size), warmup_steps=int(warmup)), 0.0).rate
        most = f"highest\xa0{rate(int(warmup)):.5f}"
        curves[f"d = {size}, warmup {warmup}: {most}"] = [rate(int(step)) for step in places]
    return line_chart(
        places, curves, "step", "learning rate", "Learning rates with warm-up",
        caption="It rises during warm-up, then falls as 1/√step; its peak is 1/√(D · warm-up).",
    )  # fmt: skip


@demo
def smoothing(
    alpha: Annotated[float, Field(ge=0, lt=1, description="share spread over all words")] = 0.1,
) -> BarsDrawing:
    """Draw y = (1 − α) y_hot + α / K, computed as softmax(e) minus the loss's gradient in e."""
    words, right = ("elle", "il", "ferme", "fenêtre", "</s>"), torch.tensor([2])
    rows, count = dict[str, Tensor](), len(words)
    for name, share in (("one-hot y", 0.0), ("smoothed y", alpha)):
        logits = torch.zeros(1, count, requires_grad=True)
        loss, _ = linear_cross_entropy(logits, torch.eye(count), right, share)
        [gradient] = torch.autograd.grad(loss, logits)
        rows[name] = (logits.detach().softmax(dim=-1) - gradient)[0]
    return bar_chart(
        words, {name: row.double().numpy() for name, row in rows.items()}, "target probability",
        f"The target distribution over K = {count} words",
        "α is taken from the correct word, and every word gets α / K (Szegedy et al., 2016).",
    )  # fmt: skip


@demo
def averaging(
    last: Annotated[int, Field(ge=2, le=40, description="number of checkpoints")] = 8,
    rate: Annotated[float, Field(gt=0, le=0.3, description="learning rate of SGD")] = 0.1,
) -> BarsDrawing:
    """Draw the losses of the last checkpoints of SGD, and of the mean of their weights.

    The model is a linear regression of 8 numbers: 400 steps of 4 of 256 examples, 40 checkpoints.
    """
    random = torch.Generator().manual_seed(0)
    x, truth = torch.randn(256, 8, generator=random), torch.randn(8, generator=random)
    y, weights = x @ truth + torch.randn(256, generator=random), torch.zeros(8)
    checkpoints = dict[str, Tensor]()
    for step in range(1, 401):
        rows = torch.randint(256, (4,), generator=random)
        weights = weights - rate * x[rows].T @ (x[rows] @ weights - y[rows]) / 4
        checkpoints |= {f"step {step}": weights} if step % 10 == 0 else {}
    names = [*[*checkpoints][-last:], "mean θ"]
    checkpoints[names[-1]] = torch.stack([checkpoints[name] for name in names[:-1]]).mean(dim=0)
    least = (x @ torch.linalg.lstsq(x, y[:, None]).solution[:, 0] - y).square().mean()
    losses = {n: float((x @ checkpoints[n] - y).square().mean() - least) for n in names}
    *each, mean = losses.values()
    return bar_chart(
        [*losses], {"loss": np.array([*losses.values()])}, "loss above the minimum",
        f"Checkpoints: {np.mean(each):.3f} on average; averaged weights: {mean:.3f}",
        "Checkpoints lie around the minimum of a linear regression, their average closer.", at=mean,
    )  # fmt: skip


@demo
def paths(
    hidden_size: Size = 512,
    length: Annotated[int, Field(ge=2, description="maximum length")] = 1024,
    of: Annotated[Literal["path", "steps", "operations", "sum"], Field(description="what to draw")]
    = "path",
) -> LinesDrawing | SceneDrawing:  # fmt: skip
    """Draw path length, serial steps or operations per layer (Vaswani et al., 2017, table 1)."""
    words = ["the", "chef", "who", "ran", "to", "the", "store", "was"]
    if of in ("path", "steps"):
        return _path(words, length) if of == "path" else _steps(words)
    n = np.unique(np.linspace(1, length, 65).round())
    inner, rest, at = 2 * n**2 * hidden_size, 4 * n * hidden_size**2, 2 * hidden_size
    curves = {"recurrent: n\xa0steps": rest / 2, "scores and sums": inner}
    mark, name, drawn = "n = 2D", "projections", rest
    if of == "sum":
        mark, at, name, drawn = "n = D", at // 2, "attention: 1\xa0step", inner + rest
    return line_chart(
        n, curves | {name: drawn}, f"length n, D = {hidden_size}", "multiplications",
        "Cost against length n", marks={f"{mark} = {at}": at} if at < length else {},
        caption="Scores and sums are quadratic in n; the projections of q, k, v, o are not.",
    )  # fmt: skip


def _path(words: list[str], length: int) -> SceneDrawing:
    """Draw the way from the second word to the last: through all states, or by one weight."""
    made, away = SceneMaker(), len(words) - 2
    for number, steps in enumerate((away, 1)):
        end, kind = 220 + 290.0 * number, ("recurrent", "attention")[number]
        top, texts = end - 106, ["", "0", *[""] * (away - 1), str(steps)]
        middles = made.row(kind, [f"{kind}:", f"{steps} step{'s' * (steps > 1)}"], words, end)
        x, u = middles[[1, -1]]
        if number:
            made.edge("path", (x, top), (x, top - 80), (u, top - 80), (u, top), hue=1, tag="")
        else:
            texts = ["", *map(str, range(away + 1))]
            made.chain("before", middles[:2], 30, top + 25)
            made.chain("path", middles[1:], 30, top + 25, hue=1)
        for k, text in enumerate(texts):
            fill = {"level": 0.5, "hue": 1} if text else {}
            made.node(f"{kind} {k}", "", (middles[k] - 30, top, 60, CELL), texts=[text], **fill)
    text = f"Among {length:,} words: up to {length - 1:,} steps, or 1."
    return made.drawing("The path between two words", caption=text)


def _steps(words: list[str]) -> SceneDrawing:
    """Draw two layers over words, with the earliest serial step in which each box is ready."""
    made, count = SceneMaker(), len(words)
    for number, steps in enumerate(([f"{count + 1} steps"], ["2 steps", "(lines of “to”)"])):
        end, kind = HIGH / 2 * (number + 1), ("recurrent", "attention")[number]
        middles = made.row(kind, [f"{kind}:", *steps], words, end, up=155)
        for layer in (0, 1):
            top, name = end - 150 - 110 * layer, f"{kind} {layer}"
            ready = layer + 1 + np.arange(count) * (1 - number)
            made.cells(name, middles, top, 60, [*map(str, ready)], 0.8 * ready / count, hue=2)
            ends, own = (top + (110 if layer else 108), top + CELL), np.eye(count)
            lines = np.outer(own[count // 2], np.ones(count)) if number else own  # to one box
            made.fan(f"mesh {name}", middles, ends, 0.05 * lines, bend=0.4)
            if not number:
                made.chain(f"{name} on", middles, 30, top + 25, hue=1)
    text = f"Number = earliest step: the RNN ends at {count + 1}, attention at 2."
    return made.drawing("Serial steps", caption=text)
