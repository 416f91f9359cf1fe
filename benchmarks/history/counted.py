"""Pictures of words that are counted: bags, and links found by counting."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from foveate.align.ibm import HMM, Model1, WordAligner
from foveate.data.synthetic import SyntheticPair, pairs
from foveate.data.words import document_terms, split_words
from foveate.look import colors
from foveate.look.render_matplotlib import FONT_SIZE, paint, write_words
from foveate.models.classic import BagEncoder
from foveate.models.encoder_decoder import Encoder
from foveate.models.recurrent import RecurrentEncoder
from foveate.spec import Tokens
from history.drawing import Draw, OwnFigure, figure, note, plain

DOCUMENTS = ["yes , we have no bananas", "say yes for bananas", "no bananas , we say"]
SHUFFLED = "bananas no have we , yes"
TRAINED_ON = 4000  # pairs


# ------------------------------------------------------------------------------ bags


@torch.no_grad()
def vectors(config: Encoder.Config) -> np.ndarray:
    """What an encoder makes of the first document and of its permutation, (2, D)."""
    counts = document_terms([text.split() for text in DOCUMENTS])
    torch.manual_seed(1)
    encoder = config.build(Tokens(len(counts.terms))).eval()
    texts = [[counts.terms.index(word) for word in t.split()] for t in (DOCUMENTS[0], SHUFFLED)]
    return encoder(torch.tensor(texts)).summary().numpy()


def counts(folder: Path) -> Drawing:
    """The table of counts, and what is left of an order in a bag and in a recurrent network."""
    size = {"embedding_size": 32, "dropout": 0.0}
    read = {
        "bag of words": vectors(BagEncoder.Config.parse(size)),
        "recurrent network": vectors(RecurrentEncoder.Config.parse({"hidden_size": 32, **size})),
    }

    def draw() -> Figure:
        drawn = figure(6.2)
        table, *strips = drawn.subplots(3, 1, gridspec_kw={"height_ratios": [3.6, 1, 1]})
        _table(table)
        for ax, (name, made) in zip(strips, read.items(), strict=True):
            apart = float(np.abs(made[0] - made[1]).max())
            output = "identical, to the last bit" if apart == 0 else f"up to {apart:.2f} apart"
            plain(ax, f"{name}: {output}")
            ax.pcolormesh(made, cmap="PuOr_r", vmin=-np.abs(made).max(), vmax=np.abs(made).max(),
                          edgecolor="white", linewidth=1.5, rasterized=True)  # fmt: skip
            ax.invert_yaxis()
            ax.set_yticks([0.5, 1.5], [DOCUMENTS[0], SHUFFLED], size=FONT_SIZE)
            ax.tick_params(length=0)
        return drawn

    return OwnFigure(make=draw)


def _table(ax: Axes) -> None:
    result = document_terms([text.split() for text in DOCUMENTS])
    plain(ax)
    ax.pcolormesh(result.table, cmap="cividis", vmin=-0.8, vmax=1.2, edgecolor="white", lw=2,
                  rasterized=True)  # fmt: skip
    ax.invert_yaxis()
    for (row, column), count in np.ndenumerate(result.table):
        ink = "black" if count else "white"
        note(
            ax,
            column + 0.5,
            row + 0.5,
            str(count),
            ha="center",
            va="center",
            color=ink,
            size=FONT_SIZE,
        )
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    titles = ["yes, we have\nno bananas", "say yes\nfor bananas", "no bananas,\nwe say"]
    ax.set_xticks(np.arange(3) + 0.5, titles, size=FONT_SIZE)
    ax.set_yticks(np.arange(len(result.terms)) + 0.5, result.terms, size=FONT_SIZE)


# ------------------------------------------------------------------------------ links


@cache
def corpus() -> list[tuple[list[str], list[str]]]:
    """Words of the embedded corpus."""
    return [(split(pair.source), split(pair.target)) for pair in pairs("train", TRAINED_ON)]


def split(text: str) -> list[str]:
    return [text[start:end] for start, end in split_words(text)]


def posterior(config: WordAligner.Config, pair: SyntheticPair) -> np.ndarray:
    """p(a_j = i | f, e) of a pair, NULL first: (T, S + 1)."""
    model: WordAligner = config.build()
    model.train(corpus())
    words = model.ready([(split(pair.source), split(pair.target))])
    (group,) = model.numbers.groups(words)
    return model.posterior(group)[0]


def links(folder: Path) -> Drawing:
    """Posteriors of Model 1 and of the HMM for one pair, the gold links framed."""
    pair = next(p for p in pairs("train", TRAINED_ON) if crosses(p))
    source, target = split(pair.source), split(pair.target)
    models = {"IBM Model 1": Model1.Config(), "HMM": HMM.Config()}

    def draw() -> Figure:
        drawn = figure(8.0)
        for ax, (name, config) in zip(drawn.subplots(2, 1), models.items(), strict=True):
            paint(ax, posterior(config, pair).astype(np.float32), "absolute", grid=True)
            write_words(ax, target, ["NULL", *source])
            ax.set_aspect("equal")
            for i, j in pair.alignment:
                frame = Rectangle((i + 1, j), 1, 1, fill=False, edgecolor=colors.line(1), lw=2)
                ax.add_patch(frame)
            ax.set_xlabel(f"{name}; bright: probable; frames: the true links", size=FONT_SIZE)
        return drawn

    return OwnFigure(make=draw)


def crosses(pair: SyntheticPair) -> bool:
    """Whether a short pair has links that cross, and words that are linked twice."""
    order = [i for _, i in sorted((j, i) for i, j in pair.alignment)]
    several = len(order) > len(set(order))
    words = len(split(pair.source))
    return 7 <= words <= 9 and several and any(a == b + 1 for a, b in pairwise(order))


DRAWN: dict[str, Draw] = {"counts": counts, "links": links}
