"""Hidden states of recurrent cells over time: a path through the plane in which they move most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.look.colors import LINES
from foveate.look.curves import CurvesView
from foveate.look.drawing import Drawing
from foveate.look.gates import Hear, stepping
from foveate.look.heatmap import FONT_SIZE
from foveate.look.view import View
from foveate.look.words import visible
from foveate.nn.recurrent import Cell, Hidden

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.floating]
SHOWN = 3  # components


@contextmanager
def capture_states(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Collect the hidden states h (B, T, H) of every recurrent cell, by its dotted name.

    Steps stand in the order in which they are made. Meanwhile cells go step by step; numbers differ
    from those of a kernel by rounding.
    """
    found: dict[str, Tensor] = {}
    cells = {name: part for name, part in model.named_modules() if isinstance(part, Cell)}

    def listen(name: str) -> Hear:
        def see(cell: Cell, inputs: tuple[Tensor, Hidden], after: Hidden) -> None:
            step = after[0].detach().float()[:, None]
            found[name] = torch.cat((found[name], step), dim=1) if name in found else step

        return see

    with stepping({cell: listen(name) for name, cell in cells.items()}):
        yield found


def backwards(name: str) -> bool:
    """Whether a cell of this name reads from the end: the second direction of a layer."""
    return name.endswith(".1.cell")


def principal(states: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Principal components of states (T, H): coordinates (T, min(T, H)), shares of the variance.

    The largest coordinate of each component is positive, so that pictures are the same.
    """
    centred = states - states.mean(axis=0, dtype=np.float64)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    path = left * sizes
    signs = np.sign(path[np.abs(path).argmax(axis=0), np.arange(path.shape[1])])
    squares = sizes**2
    return path * np.where(signs == 0, 1, signs), squares / max(squares.sum(), 1e-12)


@dataclass(frozen=True, eq=False, repr=False)
class StatesView(View):
    """The path of one layer's states over the words that were read."""

    path: NDArray[np.float64]  # (T, K)
    shares: NDArray[np.float64]  # (K,) of the variance
    words: Sequence[str]
    title: str = ""

    @property
    def caption(self) -> str:
        """How much of what moves is seen."""
        named = ", ".join(f"{share:.0%}" for share in self.shares[:SHOWN])
        return f"principal components of the hidden state; shares of the variance: {named}"

    @property
    def lines(self) -> CurvesView:
        """The first components over the words."""
        curves = {
            f"component {k + 1}": self.path[:, k] for k in range(min(SHOWN, self.path.shape[1]))
        }
        return CurvesView(
            np.arange(len(self.path), dtype=float), curves, "read", "coordinate", self.title,
            labels=[visible(word) for word in self.words], caption=self.caption,
        )  # fmt: skip

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"path": self.path, "shares": self.shares, "words": np.array(self.words)}

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        return self.lines.text(width, color)

    def drawings(self) -> list[Drawing]:
        return self.lines.drawings()

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.0, 4.6), layout="constrained")
        self.plot(figure.add_subplot())
        return figure

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw into the axes given, or into those of a figure of its own, and return them."""
        if ax is None:
            return self.figure().axes[0]
        x, y = self.path[:, 0], self.path[:, 1] if self.path.shape[1] > 1 else 0 * self.path[:, 0]
        ax.plot(x, y, color="#999999", linewidth=1)
        ax.plot(x, y, "o", color=LINES[0], markersize=4)
        ax.plot(x[:1], y[:1], "o", color=LINES[1], markersize=7)
        for t, word in enumerate(self.words):
            ax.annotate(
                visible(word), (x[t], y[t]), xytext=(4, 4), textcoords="offset points",
                size=FONT_SIZE - 1, parse_math=False,
            )  # fmt: skip
        names = [f"component {k + 1} ({share:.0%})" for k, share in enumerate(self.shares[:2])]
        ax.set_xlabel(names[0], size=FONT_SIZE)
        ax.set_ylabel(names[1] if len(names) > 1 else "", size=FONT_SIZE)
        ax.set_title(self.title, size=FONT_SIZE + 1, parse_math=False)
        ax.tick_params(labelsize=FONT_SIZE - 1)
        ax.margins(0.12)
        ax.spines[["top", "right"]].set_visible(False)
        return ax


def states(hidden: Floats, words: Sequence[str], title: str = "") -> StatesView:
    """The picture of states (T, H) over the words that were read; a large dot is the first.

    Raises ``ValueError`` where there is not one word for each of at least two steps.
    """
    if len(hidden) != len(words) or len(words) < 2:
        raise ValueError(f"{len(words)} words for {len(hidden)} steps; give one for each, and two")
    return StatesView(*principal(hidden), words, title)
