"""Pictures of models as they are made, before any training: what their structure alone does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from foveate.look import colors
from foveate.look.drawings import LinesDrawing, SheetGrid, line_chart, sheet
from foveate.look.inside import gradients, influence
from foveate.look.records import capture
from foveate.look.render_matplotlib import FONT_SIZE
from foveate.models.classic import BagEncoder, WindowDecoder
from foveate.models.encoder_decoder import Decoder, Encoder
from foveate.models.mamba import MambaDecoder
from foveate.models.recurrent import RecurrentDecoder, RecurrentEncoder
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.attention import Attention, BaseAttention
from foveate.nn.efficient_attention import (
    BlockSparseAttention,
    LinearAttention,
    LocalAttention,
    LowRankAttention,
    RandomFeatureAttention,
)
from foveate.nn.recurrent import LSTMCell
from foveate.nn.ssm import scan_sequential
from foveate.nn.state import State
from foveate.spec import Tokens
from history.drawing import Draw, OwnFigure, figure, plain

WORDS = Tokens(100)
SMALL = {"hidden_size": 64, "dropout": 0.0}
NARROW = {"embedding_size": 64, "dropout": 0.0}
ORDER = (
    "bag of words", "window of 4 words", "Elman's network",
    "LSTM, gates open", "bidirectional GRU", "GPT",
    "BERT", "local attention", "Mamba",
)  # fmt: skip


def decoder(config: Decoder.Config) -> Decoder:
    """A decoder that is a language model: nothing stands before it."""
    torch.manual_seed(1)
    return config.build(WORDS, None).eval()


def encoder(config: Encoder.Config) -> Encoder:
    torch.manual_seed(1)
    return config.build(WORDS).eval()


def ids(length: int) -> Tensor:
    """Tokens by chance, (1, T)."""
    return torch.randint(5, 100, (1, length), generator=torch.Generator().manual_seed(2))


def recurrent(cell: str, forget: float = 0.0) -> Decoder:
    """One layer of a cell; ``forget`` is added to the LSTM's forget gate before its sigmoid."""
    made = decoder(
        RecurrentDecoder.Config.parse({"cell": cell, "readout": "state", **SMALL, **NARROW})
    )
    if forget:
        inner = made.cells[0]
        assert isinstance(inner, LSTMCell)
        with torch.no_grad():
            inner.bias_ih[inner.hidden_size : 2 * inner.hidden_size] += forget
    return made


def transformer(**values: object) -> Decoder:
    return decoder(
        TransformerDecoder.Config.parse({"num_layers": 2, "num_heads": 4, **SMALL, **values})
    )


def attends(model: nn.Module, run: Callable[[], Tensor]) -> np.ndarray:
    """How strongly each output answers to each input, (T, S)."""
    return influence(run, model.stem)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------ who hears whom


def families(folder: Path) -> SheetGrid:
    """Who hears whom: every family at its first breath, a row an output, a column an input."""
    text = ids(16)
    bag = encoder(BagEncoder.Config.parse(NARROW))
    both = encoder(
        RecurrentEncoder.Config.parse({"bidirectional": True, "cell": "gru", **SMALL, **NARROW})
    )
    whole = encoder(TransformerEncoder.Config.parse({"num_layers": 2, "num_heads": 4, **SMALL}))
    alone = {
        "window of 4 words": decoder(WindowDecoder.Config.parse({**SMALL, **NARROW})),
        "Elman's network": recurrent("rnn"),
        "LSTM, gates open": recurrent("lstm", forget=3.0),
        "GPT": transformer(),
        "local attention": transformer(attention={"kind": "local", "window": 3}),
        "Mamba": decoder(MambaDecoder.Config.parse({"num_layers": 2, **SMALL})),
    }
    result = {
        "bag of words": attends(bag, lambda: bag(text).mean()[:, None].expand(-1, 16, -1)),
        **{name: attends(item, partial(item, text, None)) for name, item in alone.items()},
        "bidirectional GRU": attends(both, lambda: both(text).values),
        "BERT": attends(whole, lambda: whole(text).values),
    }
    drawn = []
    for name in ORDER:
        with np.errstate(divide="ignore"):
            strength = np.log10(result[name] / result[name].max())
        strength = np.where(np.isfinite(strength), strength, np.nan)
        drawn.append(sheet(name, strength, least=-5.0, most=0.0, told=" "))
    return SheetGrid(
        sheets=drawn, title="Who hears whom: outputs downwards, inputs across",
        caption="bright: strongly; dark: 100,000 times less; empty: not at all", across=3,
    )  # fmt: skip


def vanishing(folder: Path) -> LinesDrawing:
    """The gradient's norm against distance: vanishing in one picture."""
    text = ids(64)
    models = {
        "Elman": recurrent("rnn"),
        "LSTM, forget gate at ½": recurrent("lstm"),
        "LSTM, forget gate at 0.95": recurrent("lstm", forget=3.0),
        "Transformer": transformer(),
    }
    norms = {name: attends(item, partial(item, text, None)) for name, item in models.items()}
    view = gradients(norms)
    saved = {name: curve[:49] for name, curve in view.arrays().items() if name != "x"}
    return line_chart(view.x[:49], saved, view.across, view.up, view.title, view.log)


def depth(folder: Path) -> LinesDrawing:
    """The norm of the gradient of each layer's weights, norms before and after the sub-layers."""
    layers, text = 12, ids(32)
    curves = {}
    for order, name in (("post", "norm after (Vaswani 2017)"), ("pre", "norm before (GPT-2)")):
        model = transformer(num_layers=layers, norm_order=order)
        model(text, None)[0].log_softmax(dim=-1)[:, 7].sum().backward()
        squares = [
            sum(float(p.grad.square().sum()) for p in layer.feed_forward.parameters())
            for layer in model.layers
        ]
        curves[name] = np.sqrt(squares)
    return line_chart(
        np.arange(1.0, layers + 1), curves, "layer, from the first to the last",
        "gradient norm of its feed-forward", "Before training: how much each layer is told",
    )  # fmt: skip


# ------------------------------------------------------------------------------ memory


@torch.no_grad()
def memory(folder: Path) -> LinesDrawing:
    """How many numbers are remembered after each length of text: counted in the state."""
    shape = {"hidden_size": 128, "num_layers": 4, "dropout": 0.0}
    models = {
        "Transformer": decoder(TransformerDecoder.Config.parse({"num_heads": 4, **shape})),
        "Transformer, 1 key head of 4": decoder(
            TransformerDecoder.Config.parse(
                {"num_heads": 4, "attention": {"key_heads": 1}, **shape}
            )
        ),
        "Mamba": decoder(MambaDecoder.Config.parse(shape)),
        "LSTM": decoder(
            RecurrentDecoder.Config.parse(
                {"cell": "lstm", "readout": "state", "embedding_size": 128, **shape}
            )
        ),
    }
    lengths = [1, 4, 16, 64, 256, 1024]
    curves: dict[str, np.ndarray] = {}
    for name, model in models.items():
        counts = []
        for length in lengths:
            state = State()
            model(ids(length), None, state)
            counts.append(state.numbers)
        curves[name] = np.array(counts, dtype=float)
    return line_chart(
        np.array(lengths, dtype=float), curves, "tokens read", "numbers remembered",
        "Memory while writing; 4 layers, D = 128", "xy",
    )  # fmt: skip


def selection(folder: Path) -> Drawing:
    """One number of state: with the same Δ at every step, and with a Δ that each input makes."""
    steps, expected = 60, (8, 36)
    torch.manual_seed(0)
    inputs = 0.35 * torch.randn(steps)
    inputs[list(expected)] = torch.tensor([1.0, -1.0])
    chosen = torch.full((steps,), 1e-3)
    chosen[list(expected)] = 4.0
    ways = {"Δ the same at every step": torch.full((steps,), 0.25), "Δ made by the input": chosen}

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
        drawn.append(sheet(name, np.where(weights == 0, np.nan, weights), told=" "))
    return SheetGrid(
        sheets=drawn, title="Weights of the same 24 vectors: queries down, keys across",
        caption="bright: the largest; empty: never computed; orange and violet: + and −", across=3,
    )  # fmt: skip


DRAWN: dict[str, Draw] = {
    "who-hears-whom": families,
    "gradients": vanishing,
    "norm-order": depth,
    "memory": memory,
    "selection": selection,
    "attention-patterns": patterns,
}
