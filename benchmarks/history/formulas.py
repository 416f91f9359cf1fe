"""Pictures of equations: every number comes from the class that the page names, none is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from foveate.look import colors
from foveate.look.drawings import LinesDrawing, SheetGrid, sheet
from foveate.look.models import schedule, sheets
from foveate.look.render_matplotlib import FONT_SIZE
from foveate.nn.positions import ALiBi, Rotary, Sinusoidal, T5Bias
from foveate.nn.scores import (
    Additive,
    CosineScore,
    Dot,
    Entmax15,
    General,
    Hardmax,
    Location,
    Normalizer,
    ScaledDot,
    Score,
    Softmax,
    Sparsemax,
)
from foveate.tasks.objectives import ExponentialDecay, InverseSigmoidDecay, LinearDecay
from foveate.train.optim import Cosine as CosineRate
from foveate.train.optim import Noam, Schedule, WarmupStableDecay
from history.drawing import Draw, OwnFigure, figure, note, plain

SCORES: dict[str, type[Score]] = {
    "cosine (Graves 2014)": CosineScore,
    "additive (Bahdanau 2015)": Additive,
    "location (Luong 2015)": Location,
    "general (Luong 2015)": General,
    "dot (Luong 2015)": Dot,
    "scaled dot (Vaswani 2017)": ScaledDot,
}
NORMALIZERS: dict[str, Normalizer.Config] = {
    "softmax": Softmax.Config(),
    "softmax, τ = 0.3": Softmax.Config(temperature=0.3),
    "entmax-1.5": Entmax15.Config(),
    "sparsemax": Sparsemax.Config(),
    "hardmax": Hardmax.Config(),
}


REACH = 3.0  # of the plane of keys, from its middle
ARROW: Any = {"arrowstyle": "-|>", "color": "white", "lw": 1.8, "shrinkA": 0, "shrinkB": 0}


# ------------------------------------------------------------------------------ attention


@torch.no_grad()
def landscape(kind: type[Score], reach: float, points: int) -> tuple[Tensor, Tensor]:
    """The query, and its score with every key of a square of the plane, (points, points)."""
    torch.manual_seed(5)
    score = kind.Config().build(num_heads=1, head_size=2)  # type: ignore[call-arg]
    across = torch.linspace(-reach, reach, points)
    keys = torch.cartesian_prod(across, across).flip(1)  # rows of equal y
    query = torch.tensor([1.5, 0.5])
    many = keys if kind.reads_keys else keys[:1]
    result = score(query.view(1, 1, 1, 2), many.view(1, 1, -1, 2)).flatten()
    return query, result.expand(points**2).reshape(points, points)


def scores(folder: Path) -> Drawing:
    """What a key has to be for the score to be high, one query, keys anywhere in the plane."""

    def draw() -> Figure:
        drawn = figure(5.1)
        for ax, (name, kind) in zip(drawn.subplots(2, 3).flat, SCORES.items(), strict=True):
            query, result = landscape(kind, REACH, 121)
            shared = landscape(Dot, REACH, 121)[1] if kind in (Dot, ScaledDot) else result
            ends = float(shared.min()), float(shared.max())
            plain(ax, name.replace(" (", "\n("))
            across = np.linspace(-REACH, REACH, len(result))
            ax.set_aspect("equal")
            ax.annotate("", xy=query.tolist(), xytext=(0, 0), arrowprops=ARROW)
            if not kind.reads_keys:
                ax.set_facecolor("#7b7b78")
                ax.set(xlim=(-REACH, REACH), ylim=(-REACH, REACH))
                note(ax, 0, -1.6, "reads no key", ha="center", color="white", size=FONT_SIZE)
                continue
            limits: Any = dict(zip(("vmin", "vmax"), ends, strict=True))
            ax.pcolormesh(across, across, result.numpy(), cmap="cividis", rasterized=True, **limits)
            levels = np.linspace(*ends, 9)
            ax.contour(across, across, result.numpy(), levels, colors="white", linewidths=0.6)
            messages = f"{float(result.min()):.1f} … {float(result.max()):.1f}".replace("-", "−")
            ax.set_xlabel(messages, size=FONT_SIZE - 0.5)
        title = "The score of a key anywhere in the plane, for one query (arrow)"
        drawn.suptitle(title, size=FONT_SIZE + 1)
        drawn.supxlabel(
            "dark low, bright high; lines join equal scores, dashed below 0", size=FONT_SIZE
        )
        return drawn

    return OwnFigure(make=draw)


def normalizers(folder: Path) -> Drawing:
    """The same six scores, and the weights that each normaliser makes of them."""
    inputs = torch.tensor([2.0, 1.6, 1.1, 0.3, -0.4, -1.5])

    def draw() -> Figure:
        drawn = figure(4.8)
        rows = drawn.subplots(len(NORMALIZERS), 1, sharex=True)
        for ax, (name, config) in zip(rows, NORMALIZERS.items(), strict=True):
            weights = config.build()(inputs).tolist()
            ax.bar(range(len(weights)), weights, color=colors.line(0), width=0.7)
            for place, weight in enumerate(weights):
                messages = "0" if weight == 0 else f"{weight:.2f}" if weight >= 0.005 else "> 0"
                bold = "bold" if weight == 0 else "normal"
                note(ax, place, weight + 0.04, messages, ha="center", weight=bold, size=FONT_SIZE)
            ax.set(ylim=(0, 1.25), yticks=[])
            ax.spines[["top", "right", "left"]].set_visible(False)
            ax.tick_params(length=0, labelsize=FONT_SIZE)
            ax.set_ylabel(
                name.replace(", ", "\n"), size=FONT_SIZE, rotation=0, ha="right", va="center"
            )
        rows[-1].set_xticks(
            range(len(inputs)), [f"{score:g}".replace("-", "−") for score in inputs.tolist()]
        )
        rows[-1].set_xlabel("scores of six keys", size=FONT_SIZE)
        drawn.suptitle("Weights made of the same scores; 0 is exactly 0", size=FONT_SIZE + 1)
        return drawn

    return OwnFigure(make=draw)


# ------------------------------------------------------------------------------ positions


def absolute(folder: Path) -> SheetGrid:
    """Sinusoids and rotations: what a place is told, and what a pair of places makes of it."""
    shape = 64, 64, 1
    waves = sheets(Sinusoidal(Sinusoidal.Config(), 64, 1), *shape)
    turns = sheets(Rotary(Rotary.Config(), 64, 1), *shape)
    named = [
        drawn.model_copy(update={"title": f"{name}: {drawn.title}"})
        for name, part in (("sinusoids", waves), ("RoPE", turns))
        for drawn in part
    ]
    return SheetGrid(sheets=named, title="Each place has a vector; products know the distance")


def relative(folder: Path) -> SheetGrid:
    """What is added to the score of a pair: slopes of ALiBi, buckets of T5."""
    length, heads = 48, 8
    slopes = sheets(ALiBi(ALiBi.Config(), 64, heads), length, 64, heads)
    at = torch.arange(length)
    t5 = T5Bias(T5Bias.Config(), 64, heads)
    buckets = t5.buckets(at[None, :] - at[:, None]).float().numpy()
    drawn = [
        sheet(
            f"ALiBi, {name} head",
            s.values.array,
            down=s.down,
            across=s.across,
            least=-12.0,
            most=0.0,
        )
        for name, s in (("steepest", slopes[0]), ("middle", slopes[1]), ("flattest", slopes[-1]))
    ]
    drawn.append(
        sheet(
            "T5: which number is added", buckets, down="place t", across="place s",
            scale_label="bucket 0 … 31, learned",
        )
    )  # fmt: skip
    return SheetGrid(sheets=drawn, title="What a pair of places adds to its score")


# ------------------------------------------------------------------------------ training


def rates(folder: Path) -> LinesDrawing:
    """Learning rates over the steps."""
    total, peak = 20_000, 7e-4
    drawn: dict[str, Schedule] = {
        f"{size}:{warmup}": Noam(Noam.Config(hidden_size=size, warmup_steps=warmup), peak)
        for size, warmup in ((512, 4000), (512, 8000), (256, 4000))
    }
    drawn["cosine"] = CosineRate(CosineRate.Config(warmup_steps=1000), peak, total)
    drawn["stable, decay"] = WarmupStableDecay(
        WarmupStableDecay.Config(warmup_steps=1000), peak, total
    )
    title = "Learning rates; D:warm-up is that of Vaswani et al."
    return schedule({name: item.rate for name, item in drawn.items()}, total, title=title)


def sampling(folder: Path) -> LinesDrawing:
    """How often the true token is read: ε over the steps."""
    drawn = {
        "linear": LinearDecay(LinearDecay.Config()),
        "exponential": ExponentialDecay(ExponentialDecay.Config(base=0.9997)),
        "inverse sigmoid": InverseSigmoidDecay(InverseSigmoidDecay.Config()),
    }
    return schedule(
        {name: item.epsilon for name, item in drawn.items()}, 15_000,
        "ε, share of true tokens read", "Scheduled sampling: from the teacher's hand",
    )  # fmt: skip


DRAWN: dict[str, Draw] = {
    "scores": scores,
    "normalizers": normalizers,
    "positions": absolute,
    "position-biases": relative,
    "learning-rates": rates,
    "scheduled-sampling": sampling,
}
