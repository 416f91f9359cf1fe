"""Pictures of words: a search in a table, bags, and links found by counting."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from foveate.align.ibm import HMM, Model1, WordAligner
from foveate.data.words import split_words
from foveate.look.draw import colors
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.figures import FONT_SIZE, paint, write_words
from foveate.look.views.demos import text
from grammar.pairs import SyntheticPair, pairs
from history.drawing import Draw, OwnFigure, figure

TRAINED_ON = 4000  # pairs


# ------------------------------------------------------------------------------ links


@cache
def corpus() -> list[tuple[list[str], list[str]]]:
    """Words of the embedded corpus."""
    return [(split(pair.source), split(pair.target)) for pair in pairs("train", TRAINED_ON)]


def split(line: str) -> list[str]:
    """The words of a line."""
    return [line[start:end] for start, end in split_words(line)]


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


DRAWN: dict[str, Draw] = {
    "beam": lambda folder: text.beam(),
    "counts": lambda folder: text.bag(),
    "links": links,
}
