"""Pictures of models as they are made, before any training: what their structure alone does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from foveate.look.draw import colors
from foveate.look.draw.charts import LinesDrawing, line_chart
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.figures import FONT_SIZE
from foveate.look.draw.sheets import ColorScale, SheetGrid, sheet
from foveate.look.hooks import capture
from foveate.look.views.demos import networks
from foveate.look.views.demos.networks import ids, transformer
from foveate.nn.attention import Attention, BaseAttention
from foveate.nn.efficient_attention import (
    BlockSparseAttention,
    LinearAttention,
    LocalAttention,
    LowRankAttention,
    RandomFeatureAttention,
)
from foveate.nn.ssm import scan_sequential
from history.drawing import Draw, OwnFigure, figure, plain


def depth(folder: Path) -> LinesDrawing:
    """The norm of the gradient of each layer's weights, norms before and after the sub-layers."""
    layers, text = 12, ids(32)
    curves = {}
    for order, name in (("post", "norm after (Vaswani 2017)"), ("pre", "norm before (GPT-2)")):
        model = transformer(num_layers=layers, norm_order=order)
        model(text, None)[0].log_softmax(dim=-1)[:, 7].sum().backward()
        squares = [
            sum(float(p.grad.square().sum()) for p in layer.feed_forward.parameters())
            for layer in model.get_submodule("layers")
        ]
        curves[name] = np.sqrt(squares)
    return line_chart(
        np.arange(1.0, layers + 1), curves, "layer, from first to last",
        "gradient norm of the feed-forward layer", "Before training: the gradient at each layer",
    )  # fmt: skip


# ------------------------------------------------------------------------------ state


def selection(folder: Path) -> Drawing:
    """One number of state: with the same Δ at every step, and with a Δ that each input makes."""
    steps, expected = 60, (8, 36)
    torch.manual_seed(0)
    inputs = 0.35 * torch.randn(steps)
    inputs[list(expected)] = torch.tensor([1.0, -1.0])
    chosen = torch.full((steps,), 1e-3)
    chosen[list(expected)] = 4.0
    ways = {"constant Δ": torch.full((steps,), 0.25), "Δ computed from the input": chosen}

    def state(delta: Tensor) -> Tensor:
        change = (1 - (-delta).exp()) * inputs  # Δ B u, exactly integrated, A = −1
        shape = 1, steps, 1, 1
        return scan_sequential(-delta.view(shape), change.view(shape), torch.zeros(1, 1, 1))[0]

    def draw() -> Figure:
        drawn = figure(4.2)
        for ax, (name, delta) in zip(drawn.subplots(2, 1, sharex=True), ways.items(), strict=True):
            plain(ax, name)
            ax.axhline(0, color="#999999", lw=0.6)
            marked = np.isin(np.arange(steps), expected)
            for mark, hue, label in (
                (~marked, "#999999", "noise"),
                (marked, colors.line(1), "to keep"),
            ):
                places = np.arange(steps)[mark]
                ax.vlines(places, 0, inputs[mark], color=hue, lw=2.2, label=f"input: {label}")
            ax.plot(state(delta).flatten(), color=colors.line(0), lw=2, label="state h")
            ax.set(ylim=(-1.25, 1.25))
        ax.set_xlabel("step", size=FONT_SIZE)
        handles, labels = ax.get_legend_handles_labels()
        drawn.legend(
            handles, labels, loc="outside upper left", ncols=3, frameon=False, fontsize=FONT_SIZE
        )
        return drawn

    return OwnFigure(make=draw)


# ------------------------------------------------------------------------------ patterns


@torch.no_grad()
def patterns(folder: Path) -> SheetGrid:
    """The weights of each kind of attention over the same 24 vectors."""
    length, size = 24, 32
    configs: dict[str, BaseAttention.Config] = {
        "full": Attention.Config(),
        "local, 4": LocalAttention.Config(window=4),
        "block-sparse, 4": BlockSparseAttention.Config(block_size=4),
        "linear": LinearAttention.Config(),
        "performer": RandomFeatureAttention.Config(features=256),
        "linformer, 6": LowRankAttention.Config(rank=6, max_length=length),
    }
    random = torch.Generator().manual_seed(3)
    walk = torch.randn(1, length, size, generator=random).cumsum(dim=1)  # neighbours are alike
    x = 1.3 * torch.nn.functional.layer_norm(walk, [size])
    drawn = []
    for name, config in configs.items():
        torch.manual_seed(1)
        attention = config.model_copy(update={"project": ()}).build(size).eval()
        with capture(attention) as maps:
            attention(x)
        weights = next(iter(maps.values()))[0, 0].numpy()
        drawn.append(
            sheet(name, np.where(weights == 0, np.nan, weights), scale=ColorScale(label=" "))
        )
    return SheetGrid(
        sheets=drawn, title="Attention over the same 24 vectors: queries down, keys across",
        caption="bright: the largest; empty: never computed; orange and violet: + and −", across=3,
    )  # fmt: skip


def heard(folder: Path) -> SheetGrid:
    """How strongly each output depends on each of 16 inputs, in all families but translators."""
    drawn = []
    for family, title in networks.FAMILIES.items():
        if family in networks.TRANSLATORS:
            continue
        norm = networks.reached(family, ids(16))
        with np.errstate(divide="ignore"):
            s = np.log10(norm / norm.max())
        scale = ColorScale(-5.0, 0.0, "log₁₀ of the dependence")
        s = np.where(np.isfinite(s), s, np.nan)
        drawn.append(sheet(title, s, down="output", across="input", scale=scale))
    return SheetGrid(
        sheets=drawn, across=3, title="Which inputs an output depends on, before training",
        caption="Bright: strongly; dark: 100,000 times less; empty: not at all. Recurrence forgets "
        "with distance; attention reads every position that its mask permits.",
    )  # fmt: skip


DRAWN: dict[str, Draw] = {
    "who-hears-whom": heard,
    "gradients": lambda folder: networks.vanishing(64),
    "norm-order": depth,
    "memory": lambda folder: networks.memory(),
    "selection": selection,
    "attention-patterns": patterns,
}
