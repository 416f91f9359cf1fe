"""Every token of an output with its p, and what else might have stood there.

p(y_t | y_<t, x) says how sure a model was of a token; H = −Σ p log p, the entropy in nats, how many
others it thought of. Lives here: the view. Who watches a search knows the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.look import colors
from foveate.look.drawing import Choice, Drawing, Word, WordsDrawing
from foveate.look.heatmap import FONT_SIZE
from foveate.look.picture import page_of
from foveate.look.view import View
from foveate.look.words import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NOTE = "#555555"
WIDTH, ROW = 5.0, 0.24  # inches
SHOWN = 4  # alternatives that a figure and a text have room for
LONGEST = 14
LEAST = 0.005  # p that a figure shows


@dataclass(frozen=True)
class Told:
    """A token of an output: its text, log p and entropy, and the likeliest tokens with their p.

    ``text`` begins with the space that stands before it, where one does.
    """

    text: str
    log_p: float
    entropy: float
    choices: Sequence[tuple[str, float]]

    @property
    def p(self) -> float:
        """The probability of the token, p(y_t | y_<t, x)."""
        return math.exp(self.log_p)


@dataclass(frozen=True, eq=False, repr=False)
class AlternativesView(View):
    """The tokens of an output, coloured by their p, with the likeliest in their places."""

    tokens: Sequence[Told]
    title: str = ""

    def drawings(self) -> list[Drawing]:
        words = [
            Word(
                text=token.text.removeprefix(" "),
                value=token.p,
                space=token.text.startswith(" "),
                note=f"p {token.p:.3f}, entropy {token.entropy:.2f} nats",
                alternatives=[Choice(text=text, p=p) for text, p in token.choices],
            )
            for token in self.tokens
        ]
        caption = "each token's p; choose one to see what else might have stood there"
        drawing = WordsDrawing(title=self.title, caption=caption, words=words, told="p")
        return [drawing]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """``log_p`` and ``entropy`` (T,), ``tokens`` (T,), ``choices`` and ``choice_p`` (T, k).

        Where fewer than k tokens may come, the rest is empty, with p = 0.
        """
        k = max((len(token.choices) for token in self.tokens), default=0)
        filled = [
            [*token.choices, *[("", 0.0)] * (k - len(token.choices))] for token in self.tokens
        ]
        return {
            "tokens": np.array([token.text for token in self.tokens]),
            "log_p": np.array([token.log_p for token in self.tokens]),
            "entropy": np.array([token.entropy for token in self.tokens]),
            "choices": np.array([[text for text, _ in row] for row in filled]),
            "choice_p": np.array([[p for _, p in row] for row in filled]),
        }

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """A line for each token: p, entropy, and the likeliest that are not it."""
        lines = [self.title] if self.title else []
        long = max((len(_label(token.text)) for token in self.tokens), default=5)
        lines.append(f"{'token':<{long}}      p  nats  instead")
        for token in self.tokens:
            others = "  ".join(f"{_label(text)} {p:.3f}" for text, p in _others(token))
            line = f"{_label(token.text):<{long}}  {token.p:.3f}  {token.entropy:4.2f}  {others}"
            lines.append(line.rstrip()[: width or 100])
        return "\n".join(lines)

    def html(self) -> str:
        return page_of(self, self.title or "alternatives")

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        size = WIDTH, ROW * len(self.tokens) + 0.8
        figure = Figure(figsize=size, layout="constrained")
        self.plot(figure.add_subplot())
        return figure

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw into the axes given, or into those of a figure of its own, and return them."""
        if ax is None:
            return self.figure().axes[0]
        places = range(len(self.tokens))
        ax.barh(places, [token.p for token in self.tokens], height=0.7, color=colors.line(6))
        ax.set_yticks(places, [_label(token.text) for token in self.tokens], parse_math=False)
        for place, token in zip(places, self.tokens, strict=True):
            likely = [(text, p) for text, p in _others(token) if p >= LEAST]
            others = "   ".join(f"{_label(text)} {p:.2f}" for text, p in likely)
            ax.text(
                1.03, place, others, size=FONT_SIZE - 1.5, va="center", color=NOTE,
                parse_math=False, clip_on=False,
            )  # fmt: skip
        ax.set(xlim=(0, 1), ylim=(len(self.tokens) - 0.4, -0.6), xticks=[0, 0.5, 1])
        ax.tick_params(length=0, labelsize=FONT_SIZE - 1)
        ax.spines[:].set_visible(False)
        ax.set_xlabel("p, and what might have stood there instead", size=FONT_SIZE - 1, color=NOTE)
        if self.title:
            ax.set_title(self.title, size=FONT_SIZE + 1, loc="left", parse_math=False)
        return ax


def alternatives(tokens: Sequence[Told], title: str = "") -> AlternativesView:
    """The picture of an output's tokens and what might have stood in their places."""
    return AlternativesView(tokens, title)


def _others(token: Told) -> list[tuple[str, float]]:
    return [(text, p) for text, p in token.choices if text != token.text][:SHOWN]


def _label(text: str) -> str:
    shown = visible(text.removeprefix(" ") or text)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"
