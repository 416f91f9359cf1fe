"""Demos of equations: scores, normalizers, positions, learning rates, path lengths."""

from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

import foveate.nn.scores as kinds
from foveate.config import ConfigError
from foveate.errors import UserError
from foveate.look.draw.analyses import schedule, sheets
from foveate.look.draw.charts import BarsDrawing, LinesDrawing, PanelGrid, bar_chart, line_chart
from foveate.look.draw.interactive import Controls, Slider, geometric
from foveate.look.draw.parts import Floats, Numbers
from foveate.look.draw.sheets import SHARES, ColorScale, SheetGrid, alike, sheet
from foveate.look.views.demos import demo
from foveate.nn.loss import linear_cross_entropy
from foveate.nn.more_positions import ALiBi
from foveate.nn.normalizers import Hardmax, Sparsemax
from foveate.nn.positions import Rotary, Sinusoidal
from foveate.train.optim import Noam

Length = Annotated[int, Field(ge=2, le=512, description="positions")]
Size = Annotated[int, Field(ge=2, le=1024, description="vector size D")]
Base = Annotated[float, Field(gt=1, description="of the wavelengths")]
SCORES: dict[str, type[kinds.Score]] = {
    "cosine": kinds.CosineScore, "additive": kinds.Additive, "location: no key": kinds.Location,
    "general": kinds.General, "dot": kinds.Dot, "scaled dot": kinds.ScaledDot,
}  # fmt: skip


def small_score(kind: type[kinds.Score]) -> kinds.Score:
    """Return a score for vectors of two numbers, with the same weights at every call."""
    torch.manual_seed(5)
    plain = {"sharpness": 1.0} if kind is kinds.CosineScore else {}
    score: kinds.Score = kind.Config.parse(plain).build(num_heads=1, head_size=2)
    return score


@torch.no_grad()
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
def scores(
    x: Annotated[float, Field(description="of the query")] = 1.5,
    y: Annotated[float, Field(description="of the query")] = 0.5,
    reach: Annotated[float, Field(gt=0, description="half the width of the plane")] = 3.0,
    points: Annotated[int, Field(ge=3, le=201, description="keys per side of the plane")] = 25,
) -> SheetGrid:
    """Draw the score of one query with keys anywhere in the plane."""
    query = torch.tensor([x, y])
    dot = (1 - y / reach) / 2 * (points - 1), (1 + x / reach) / 2 * (points - 1)
    drawn = [sheet("", landscape(kind, query, reach, points).numpy()) for kind in SCORES.values()]
    drawn = alike(drawn[:3]) + alike(drawn[3:])
    for k, (name, kind) in enumerate(SCORES.items()):
        title = f"{name}, ±{drawn[k].most:.2g}" if kind.reads_keys else name
        drawn[k] = drawn[k].model_copy(update={"title": title, "dots": [dot]})
    weights = {
        name: Numbers.exact(next(small_score(kind).parameters()).detach().flatten().numpy())
        for name, kind in (("additive", kinds.Additive), ("general", kinds.General))
    }
    stops = np.linspace(-reach, reach, 121)
    return SheetGrid(
        sheets=drawn, across=3, title=f"The score of a key in the plane, query ({x:g}, {y:g})",
        caption="One colour scale above, one below. A dot product grows with the length of the "
        "key, a cosine depends only on its direction, and a location score does not read keys; "
        "the dot is the query. Cosine: Graves et al. (2014); additive: Bahdanau et al. (2015); "
        "location, general, dot: Luong et al. (2015); scaled: Vaswani et al. (2017).",
        controls=Controls(
            formula="scores", data=weights | {"reach": Numbers.exact(np.array([reach]))},
            sliders=[Slider.of("x", x, stops, label="query, x"),
                     Slider.of("y", y, stops, label="query, y")],
            plane=("x", "y"),
        ),
    )  # fmt: skip


@demo
@torch.no_grad()
def angle(
    lengths: Annotated[tuple[float, ...], Field(min_length=1, description="of the key; repeat")]
    = (0.5, 1.0, 2.0),
) -> LinesDrawing:  # fmt: skip
    """Draw the score of a query of length 1 with keys at every angle to it."""
    degrees, query = torch.linspace(0, 180, 37), torch.tensor([[[[1.0, 0.0]]]])
    turned = torch.stack((degrees.deg2rad().cos(), degrees.deg2rad().sin()), dim=-1)
    dot, cosine = kinds.Dot.Config(), kinds.CosineScore.Config.parse({"sharpness": 1.0})
    curves = {
        f"q · k, |k| = {length:g}": kinds.Dot(dot, 1, 2)(query, length * turned)
        for length in lengths
    }
    curves["cosine, any length"] = kinds.CosineScore(cosine, 1, 2)(query, max(lengths) * turned)
    return line_chart(
        degrees.numpy(), {name: scores.flatten().numpy() for name, scores in curves.items()},
        "angle between query and key, degrees", "score", "Similarity as an angle",
        marks={"right angle": 90.0},
        caption="q · k = |q| |k| cos θ: 0 at a right angle, negative beyond it. The cosine divides "
        "by the lengths, so only the angle remains.",
    )  # fmt: skip


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": F.relu, "gelu": F.gelu, "silu": F.silu,
}  # fmt: skip


@demo
def activations(
    names: Annotated[
        tuple[Literal["sigmoid", "tanh", "relu", "gelu", "silu"], ...],
        Field(min_length=1, strict=False, description="which; repeat"),
    ] = ("sigmoid", "tanh", "relu", "gelu"),
    reach: Annotated[float, Field(gt=0, description="range of x on each side of 0")] = 5.0,
) -> PanelGrid:
    """Draw activations and their slopes."""
    values, slopes = dict[str, Floats](), dict[str, Floats]()
    x = torch.linspace(-reach, reach, 201, requires_grad=True)
    for name in names:
        y = ACTIVATIONS[name](x)
        [slope] = torch.autograd.grad(y.sum(), x)
        values[name], slopes[name] = y.detach().double().numpy(), slope.double().numpy()
    places = x.detach().double().numpy()
    return PanelGrid(
        panels=[line_chart(places, values, "x", "f(x)"), line_chart(places, slopes, "x", "slope")],
        title=f"Activations and their slopes: {', '.join(names)}",
        caption="No gradient passes where the slope is near 0: sigmoid and tanh saturate on both "
        "sides, ReLU is 0 on one side; GELU, x Φ(x), has no corner.",
    )


def entmax(scores: Floats, alpha: float) -> Floats:
    """Return [(α − 1) e − τ]₊^(1/(α − 1)) by bisection for τ, with sum 1; softmax for α = 1
    (Peters, Niculae & Martins, 2019).
    """
    if alpha == 1:
        weights: Floats = np.exp(scores - scores.max())
        return weights / weights.sum()
    z, power = (alpha - 1) * scores, 1 / (alpha - 1)
    low, high = z.max() - 1, z.max() - len(z) ** (1 - alpha)
    for _ in range(60):
        middle = (low + high) / 2
        enough = ((z - middle).clip(min=0) ** power).sum() >= 1
        low, high = (middle, high) if enough else (low, middle)
    return (z - low).clip(min=0) ** power


@demo
def normalizers(
    scores: Annotated[tuple[float, ...], Field(min_length=1, description="one per key; repeat")]
    = (2.0, 1.6, 1.1, 0.3, -0.4, -1.5),
    temperature: Annotated[float, Field(gt=0, description="of the second softmax")] = 0.3,
    alpha: Annotated[float, Field(ge=1, le=4, description="of entmax")] = 1.5,
) -> SheetGrid:  # fmt: skip
    """Draw the weights that each normalizer gives to the same scores."""
    softmax, tau = kinds.Softmax.Config(), kinds.Softmax.Config(temperature=temperature)
    rows = {
        name: config.build()(torch.tensor(scores)).double().numpy()
        for name, config in (
            ("softmax", softmax), (f"softmax, τ = {temperature:g}", tau), ("entmax", softmax),
            ("sparsemax", Sparsemax.Config()), ("hardmax", Hardmax.Config()),
        )
    }  # fmt: skip
    rows["entmax"] = entmax(np.array(scores), alpha)
    names = [f"entmax, α = {alpha:g}" if name == "entmax" else name for name in rows]
    weights = np.stack([*rows.values()])
    drawn = sheet(
        "", weights, names, [f"{score:g}".replace("-", "−") for score in scores],
        across="scores of the keys", scale=SHARES, aspect=0.6,
        cells=[["0" if w == 0 else f"{w:.2f}" for w in row] for row in weights],
    )  # fmt: skip
    return SheetGrid(
        sheets=[drawn], across=1,
        title="Five sets of weights for the same scores",
        caption="0 is exactly 0: softmax gives every key some weight, sparsemax and entmax give "
        "low scores none; a small temperature τ brings softmax close to hardmax.",
        controls=Controls(
            formula="normalizers",
            sliders=[
                *(Slider.of("scores", score, np.linspace(-3, 3, 61), k, f"score {k + 1}")
                  for k, score in enumerate(scores)),
                Slider.of("temperature", temperature, geometric(0.02, 10), label="τ of softmax"),
                Slider.of("alpha", alpha, np.linspace(1, 4, 61), label="α of entmax"),
            ],
        ),
    )  # fmt: skip


def position_sliders(length: int, option: str, size: int, base: float) -> list[Slider]:
    """Return the sliders of an encoding: positions, vector size, base of the wavelengths."""
    return [
        Slider.of("length", length, np.arange(8.0, 129, 4), label="positions T"),
        Slider.of(option, size, np.arange(8.0, 129, 4), label=option.replace("_", " ")),
        Slider.of("base", base, geometric(2, 1e6), label="base of the wavelengths"),
    ]


@demo
def sinusoids(length: Length = 64, hidden_size: Size = 64, base: Base = 10_000.0) -> SheetGrid:
    """Draw the vector of each position, sines and cosines, and the products of two positions."""
    position = Sinusoidal(Sinusoidal.Config(base=base), hidden_size, 1)
    return SheetGrid(
        sheets=sheets(position, length, hidden_size, 1), title="Sinusoidal positions",
        caption="Waves become longer along the dimensions; the product of two positions depends "
        "only on their distance.",
        controls=Controls(
            formula="sinusoids",
            sliders=position_sliders(length, "hidden_size", hidden_size, base),
        ),
    )  # fmt: skip


@demo
def rotary(length: Length = 64, head_size: Size = 64, base: Base = 10_000.0) -> SheetGrid:
    """Draw the angles of pairs of dimensions at each position, and products of two positions."""
    position = Rotary(Rotary.Config(base=base), head_size, 1)
    places, pairs = torch.arange(length), head_size // 2
    first = torch.cat((torch.ones(pairs), torch.zeros(pairs))).expand(1, 1, length, -1)
    cos, sin = position.rotate(first, places)[0, 0].chunk(2, dim=-1)  # of the rotated (1, 0)
    turns = sheet(
        "angle of each pair", torch.atan2(sin, cos).numpy(), down="position t", across="pair i",
        scale=ColorScale(-np.pi, np.pi, "−π … π"), aspect=pairs / length,
    )  # fmt: skip
    return SheetGrid(
        sheets=[turns, sheets(position, length, head_size, 1)[1]], title="Rotary positions",
        caption="Pair i of a query or key at position t is rotated by t / base^(2i/K), fast pairs "
        "first; the product depends only on the distance.",
        controls=Controls(
            formula="rotary", sliders=position_sliders(length, "head_size", head_size, base)
        ),
    )  # fmt: skip


@demo
def alibi(
    length: Length = 24, num_heads: Annotated[int, Field(ge=1, description="heads")] = 4
) -> SheetGrid:
    """Draw what ALiBi adds to the scores of each head: −m_h |t − s| (Press et al., 2022)."""
    position = ALiBi(ALiBi.Config(), 8 * num_heads, num_heads)
    farthest = -float(position.slopes.max()) * (length - 1)
    slopes = position.slopes.tolist()
    drawn = [
        each.model_copy(update={"title": f"head {h}, m = 1/{1 / slope:.4g}", "least": farthest})
        for h, (each, slope) in enumerate(
            zip(sheets(position, length, 8 * num_heads, num_heads), slopes, strict=False), start=1
        )
    ]
    return SheetGrid(
        sheets=drawn, title="Added to the score of a query (down) and a key (across)",
        caption="Nothing is learned: distant keys have lower scores, with a different slope in "
        "each head; the first heads look nearby, the last far away.",
    )  # fmt: skip


@demo
def noam(
    pairs: Annotated[tuple[str, ...], Field(min_length=1, description="D:warmup; repeat")]
    = ("512:4000", "512:8000", "256:4000"),
    steps: Annotated[int, Field(ge=1, description="training steps")] = 20_000,
) -> LinesDrawing:  # fmt: skip
    """Draw learning rates d^−0.5 · min(step^−0.5, step · warmup^−1.5) (Vaswani et al., 2017)."""
    rates = {}
    for pair in pairs:
        size, colon, warmup = pair.partition(":")
        if not (colon and size.isdecimal() and warmup.isdecimal() and int(size) * int(warmup)):
            raise ConfigError(f"{pair!r} is not a pair D:warmup such as 512:4000", ("pairs",))
        rate = Noam(Noam.Config(hidden_size=int(size), warmup_steps=int(warmup)), 0.0).rate
        rates[f"{pair}, peak {rate(int(warmup)):.5f}"] = rate
    drawn = schedule(rates, steps, title="Learning rates with warm-up, D:steps")
    caption = "The rate rises during warm-up, then falls as 1/√step; its peak is 1/√(D · warm-up)."
    return drawn.model_copy(update={"caption": caption})


@demo
def smoothing(
    words: Annotated[tuple[str, ...], Field(min_length=2, description="the vocabulary; repeat")]
    = ("elle", "il", "ferme", "fenêtre", "</s>"),
    right: Annotated[int, Field(ge=1, description="index of the correct word, from 1")] = 3,
    alpha: Annotated[float, Field(ge=0, lt=1, description="share spread over all words")] = 0.1,
) -> SheetGrid:  # fmt: skip
    """Draw y = (1 − α) y_hot + α / K, computed as softmax(e) minus the loss's gradient in e.

    Raises `UserError` for an unknown word.
    """
    count = len(words)
    if right > count:
        raise UserError(f"word {right} does not exist, only {count}: choose another or add --words")
    rows = dict[str, Tensor]()
    for name, share in (("one-hot y", 0.0), (f"smoothed, α = {alpha:g}", alpha)):
        logits = torch.zeros(1, count, requires_grad=True)
        loss, _ = linear_cross_entropy(logits, torch.eye(count), torch.tensor([right - 1]), share)
        [gradient] = torch.autograd.grad(loss, logits)
        rows[name] = (logits.detach().softmax(dim=-1) - gradient)[0]
    table = sheet(
        "", torch.stack([*rows.values()]).numpy(), [*rows], words, scale=SHARES, written=True
    )
    return SheetGrid(
        sheets=[table], across=1, title=f"The target distribution over K = {count} words",
        caption="Label smoothing takes α from the correct word and gives every word α / K, so no "
        "score has to grow without bound (Szegedy et al., 2016).",
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
    names = [*checkpoints][-last:]
    checkpoints["mean"] = torch.stack([checkpoints[name] for name in names]).mean(dim=0)
    least = (x @ torch.linalg.lstsq(x, y[:, None]).solution[:, 0] - y).square().mean()
    losses = {n: float((x @ checkpoints[n] - y).square().mean() - least) for n in (*names, "mean")}
    each, mean = np.mean([losses[name] for name in names]), losses["mean"]
    return bar_chart(
        [*losses], {"loss": np.array([*losses.values()])}, "loss above the minimum",
        f"Checkpoints: {each:.3f} on average; averaged weights: {mean:.3f}",
        "Each checkpoint is somewhere around the minimum; their average is closer to it. Linear "
        "regression with SGD; squared errors over all examples.", at=mean,
    )  # fmt: skip


@demo
def paths(
    hidden_size: Size = 512,
    kernel: Annotated[int, Field(ge=2, description="width of a convolution")] = 3,
    window: Annotated[int, Field(ge=1, description="keys each way of local attention")] = 64,
    length: Annotated[int, Field(ge=2, description="maximum length")] = 4096,
    of: Annotated[
        tuple[Literal["path", "steps", "operations"], ...],
        Field(min_length=1, strict=False, description="path, serial steps, operations; repeat"),
    ] = ("path", "steps", "operations"),
) -> PanelGrid:
    """Draw path length, serial steps and operations per layer (Vaswani et al., 2017, table 1)."""
    n = 2.0 ** np.arange(1, np.log2(length) + 1)
    d, at_once, logarithm = hidden_size, np.ones_like(n), np.ceil(np.log(n) / np.log(kernel))
    layers = {  # longest path, serial steps, multiplications
        "recurrent": (n - 1, n, n * d * d),
        "convolutions, dilated": (logarithm, at_once, kernel * n * d * d),
        "local attention": (np.ceil(n / window), at_once, n * np.minimum(2 * window + 1, n) * d),
        "self-attention": (at_once, at_once, n * n * d),
    }
    titles = {"path": "longest path between two positions", "steps": "serial steps",
              "operations": "multiplications per layer, projections left out"}  # fmt: skip
    panels = [
        line_chart(n, {name: f[k] for name, f in layers.items()}, "length n", title, log="xy",
                   marks={f"n = D = {d}": d} if part == "operations" else None)
        for k, (part, title) in enumerate(titles.items())
        if part in of
    ]  # fmt: skip
    return PanelGrid(
        panels=panels, across=1, title=f"Cost against length n, D = {hidden_size}",
        caption="Self-attention connects any two positions in one step, but its n² D operations "
        "exceed those of recurrence above n = D. Its projections, 4 n D², are left out.",
    )  # fmt: skip
