"""Demos of equations: scores, normalizers, positions, learning rates, path lengths."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

import foveate.nn.scores as kinds
from foveate.config import ConfigError
from foveate.draw.analyses import schedule, sheets
from foveate.draw.charts import LinesDrawing, PanelGrid, line_chart
from foveate.draw.sheets import SheetGrid, sheet
from foveate.nn.positions import Rotary, Sinusoidal
from foveate.train.optim import Noam
from foveate.views.demos import demo

Length = Annotated[int, Field(ge=2, le=512, description="places")]
Size = Annotated[int, Field(ge=2, le=1024, description="numbers of a vector, D")]
SCORES: dict[str, type[kinds.Score]] = {
    "cosine (Graves 2014)": kinds.CosineScore,
    "additive (Bahdanau 2015)": kinds.Additive,
    "location (Luong 2015)": kinds.Location,
    "general (Luong 2015)": kinds.General,
    "dot (Luong 2015)": kinds.Dot,
    "scaled dot (Vaswani 2017)": kinds.ScaledDot,
}


# ------------------------------------------------------------------------------ attention


@torch.no_grad()
def landscape(kind: type[kinds.Score], query: Tensor, reach: float, points: int) -> Tensor:
    """The score of a query (2,) with every key of a square of the plane, (points, points)."""
    torch.manual_seed(5)
    score = kind.Config().build(num_heads=1, head_size=2)
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
    reach: Annotated[float, Field(gt=0, description="of the plane, from its middle")] = 3.0,
    points: Annotated[int, Field(ge=3, le=201, description="keys a side of the plane")] = 25,
) -> SheetGrid:
    """The score of one query with keys anywhere in the plane."""
    query, drawn = torch.tensor([x, y]), []
    most = float(landscape(kinds.Dot, query, reach, points).abs().max())
    for name, kind in SCORES.items():
        shared = (-most, most) if kind is kinds.ScaledDot else (None, None)
        least, best = shared if kind.reads_keys else (0.0, 1.0)
        values = landscape(kind, query, reach, points).numpy()
        label = "" if kind.reads_keys else "reads no key"
        drawn.append(sheet(name, values, least=least, most=best, scale_label=label))
    return SheetGrid(
        sheets=drawn, across=3, title=f"The score of a key in the plane, query ({x:g}, {y:g})",
        caption="A dot product grows with the length of a key, a cosine depends on its direction "
        "alone, and a location score reads no key.",
    )  # fmt: skip


@demo
def normalizers(
    scores: Annotated[tuple[float, ...], Field(min_length=1, description="one a key; repeat")]
    = (2.0, 1.6, 1.1, 0.3, -0.4, -1.5),
    temperature: Annotated[float, Field(gt=0, description="of the second softmax")] = 0.3,
) -> SheetGrid:  # fmt: skip
    """The weights that each normalizer makes of the same scores."""
    configs: dict[str, kinds.Normalizer.Config] = {
        "softmax": kinds.Softmax.Config(),
        f"softmax, τ = {temperature:g}": kinds.Softmax.Config(temperature=temperature),
        "entmax-1.5": kinds.Entmax15.Config(),
        "sparsemax": kinds.Sparsemax.Config(),
        "hardmax": kinds.Hardmax.Config(),
    }
    weights = np.array([c.build()(torch.tensor(scores)).tolist() for c in configs.values()])
    drawn = sheet(
        "", weights, list(configs), [f"{score:g}" for score in scores], across="scores of the keys",
        least=0.0, most=1.0, aspect=0.6, scale_label=" ",
        cells=[["0" if w == 0 else f"{w:.2f}" for w in row] for row in weights],
    )  # fmt: skip
    return SheetGrid(
        sheets=[drawn], across=1,
        title="Weights made of the same scores",
        caption="0 is exactly 0: softmax leaves every key some weight, sparsemax and entmax none "
        "to low scores; a small temperature τ brings softmax near hardmax.",
    )  # fmt: skip


# ------------------------------------------------------------------------------ positions


@demo
def sinusoids(length: Length = 64, hidden_size: Size = 64) -> SheetGrid:
    """The vector of each place, sines and cosines, and the products of two places."""
    position = Sinusoidal(Sinusoidal.Config(), hidden_size, 1)
    return SheetGrid(
        sheets=sheets(position, length, hidden_size, 1), title="Sinusoidal positions",
        caption="Waves become longer along the dimensions; the product of two places depends on "
        "their distance alone.",
    )  # fmt: skip


@demo
def rotary(length: Length = 64, head_size: Size = 64) -> SheetGrid:
    """The angle of each pair of dimensions at each place, and the products of two places."""
    position = Rotary(Rotary.Config(), head_size, 1)
    places, pairs = torch.arange(length), head_size // 2
    first = torch.cat((torch.ones(pairs), torch.zeros(pairs))).expand(1, 1, length, -1)
    cos, sin = position.rotate(first, places)[0, 0].chunk(2, dim=-1)  # of (1, 0), turned
    turns = sheet(
        "angle of a pair", torch.atan2(sin, cos).numpy(), down="place t", across="pair i",
        least=-np.pi, most=np.pi, aspect=pairs / length, scale_label="−π … π",
    )  # fmt: skip
    return SheetGrid(
        sheets=[turns, sheets(position, length, head_size, 1)[1]], title="Rotary positions",
        caption="Pair i of a query or key at place t is turned by t / 10000^(2i/K): fast pairs "
        "first; the product depends on the distance alone.",
    )  # fmt: skip


# ------------------------------------------------------------------------------ training and cost


@demo
def noam(
    pairs: Annotated[tuple[str, ...], Field(min_length=1, description="D:warmup; repeat")]
    = ("512:4000", "512:8000", "256:4000"),
    steps: Annotated[int, Field(ge=1, description="of training")] = 20_000,
) -> LinesDrawing:  # fmt: skip
    """Learning rates d^−0.5 · min(step^−0.5, step · warmup^−1.5) (Vaswani et al., 2017)."""
    rates = {}
    for pair in pairs:
        size, colon, warmup = pair.partition(":")
        if not (colon and size.isdecimal() and warmup.isdecimal() and int(size) * int(warmup)):
            raise ConfigError(f"{pair!r} is no pair D:warmup, such as 512:4000", ("pairs",))
        config = Noam.Config(hidden_size=int(size), warmup_steps=int(warmup))
        rate = Noam(config, 0.0).rate
        rates[f"{pair}, highest {rate(int(warmup)):.5f}"] = rate
    drawn = schedule(rates, steps, title="Learning rates with warm-up, D:steps")
    caption = "The rate rises for the warm-up and falls with 1/√step; its peak is 1/√(D · warm-up)."
    return drawn.model_copy(update={"caption": caption})


@demo
def paths(
    hidden_size: Size = 512,
    kernel: Annotated[int, Field(ge=2, description="width of a convolution")] = 3,
    window: Annotated[int, Field(ge=1, description="keys each way of local attention")] = 64,
    length: Annotated[int, Field(ge=2, description="the longest")] = 4096,
) -> PanelGrid:
    """Longest path, serial steps and operations of a layer (Vaswani et al., 2017, table 1)."""
    n = 2.0 ** np.arange(1, np.log2(length) + 1)
    d, at_once, logarithm = hidden_size, np.ones_like(n), np.ceil(np.log(n) / np.log(kernel))
    layers = {  # longest path, serial steps, multiplications
        "recurrent": (n, n, n * d * d),
        "convolutions, dilated": (logarithm, at_once, kernel * n * d * d),
        "local attention": (np.ceil(n / window), at_once, n * np.minimum(2 * window + 1, n) * d),
        "self-attention": (at_once, at_once, n * n * d),
    }
    titles = "longest path between two places", "serial steps", "multiplications of a layer"
    panels = [
        line_chart(n, {name: f[k] for name, f in layers.items()}, "length n", title, log="xy")
        for k, title in enumerate(titles)
    ]
    return PanelGrid(
        panels=panels, across=1, title=f"What the length n costs, D = {hidden_size}",
        caption="Self-attention joins any two places in one step, and pays with operations that "
        "grow with n²: above n = D it costs more than recurrence.",
    )  # fmt: skip
