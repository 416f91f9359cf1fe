"""The logit lens: what a model would say if its layers ended here (nostalgebraist, 2020).

What layer l leaves is handed on in place of what the last one leaves, through the model's own last
norm and output. Early layers were never trained to be read so: what they "say" is a hint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.config import ConfigError
from foveate.look.drawing import Drawing
from foveate.look.forced import ForcedPass
from foveate.look.heatmap import FONT_SIZE
from foveate.look.sheets import Sheet, paint
from foveate.look.view import View
from foveate.look.words import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELL = 0.62, 0.3  # inches of a cell
LONGEST = 9  # letters in a cell
CAPTION = "most probable token if the layers ended here; colour: its p (nostalgebraist, 2020)"


@dataclass(frozen=True, eq=False, repr=False)
class LensView(View):
    """For each layer (rows; what enters the first on top) the top token at each place, and its p.

    ``tokens[l][t]`` has ``p[l, t]``; ``wanted`` (L + 1, T) is p of what was produced.
    """

    tokens: Sequence[Sequence[str]]
    p: NDArray[np.float64]
    wanted: NDArray[np.float64]
    produced: Sequence[str]
    title: str = ""

    @property
    def layers(self) -> list[str]:
        """The labels of the rows."""
        return ["input", *(f"after layer {n}" for n in range(len(self.p) - 1))]

    @property
    def sheet(self) -> Sheet:
        """The colours."""
        return Sheet(
            self.title, self.p, self.layers, list(self.produced), across="produced",
            least=0.0, most=1.0, aspect=CELL[1] / CELL[0], told="p: 0 … 1",
        )  # fmt: skip

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "tokens": np.array(self.tokens),
            "p": self.p,
            "p of what was produced": self.wanted,
            "produced": np.array(self.produced),
        }

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """A line for each place: the top token after each layer."""
        wide = LONGEST + 2
        lines = [
            self.title,
            f"{'produced':<{wide}}" + "".join(f"{n:<{wide + 2}}" for n in self._short),
        ]
        for t, produced in enumerate(self.produced):
            cells = (
                f"{_cut(visible(row[t])):<{LONGEST}} {self.p[n, t]:<{wide - LONGEST}.2f} "
                for n, row in enumerate(self.tokens)
            )
            lines.append(f"{_cut(visible(produced)):<{wide}}" + "".join(cells).rstrip())
        return "\n".join([*lines, CAPTION])

    @property
    def _short(self) -> list[str]:
        return ["input", *(f"layer {n}" for n in range(len(self.p) - 1))]

    def drawings(self) -> list[Drawing]:
        cells = [[visible(token) for token in row] for row in self.tokens]
        drawn = self.sheet.drawing(caption=CAPTION)
        return [drawn.model_copy(update={"cells": cells})]

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        height, width = self.p.shape
        size = max(CELL[0] * width + 1.2, 5.0), CELL[1] * height + 1.6
        figure = Figure(figsize=size, layout="constrained")
        ax = figure.add_subplot()
        paint(ax, self.sheet)
        for layer, row in enumerate(self.tokens):
            for t, token in enumerate(row):
                ax.text(
                    t + 0.5, layer + 0.5, _cut(visible(token)), size=FONT_SIZE - 2, ha="center",
                    va="center", color="black" if self.p[layer, t] > 0.5 else "white",
                    parse_math=False,
                )  # fmt: skip
        figure.supxlabel(CAPTION, size=FONT_SIZE - 1, color="#555555")
        return figure


def _cut(word: str) -> str:
    return word if len(word) <= LONGEST else word[: LONGEST - 1] + "…"


@torch.inference_mode()
def lens(forced: ForcedPass, title: str = "") -> LensView:
    """The top token of each layer at each place that produces something; the last is the model's.

    One pass for each layer. Raises ``ConfigError`` for a model whose output is no tokens, or
    without a stack of layers, one after the other, of vectors of one size.
    """
    layers, names = layers_of(forced.model), forced.token
    output = getattr(forced.model, "output", None)
    if names is None or layers is None or not isinstance(output, nn.Module):
        raise ConfigError(
            "a logit lens reads tokens (or labels) from a stack of layers, as Transformers have; "
            "this model has none"
        )
    tokens, p, wanted = [], [], []
    for stream in _streams(forced, layers):
        with _leaving(layers[-1], stream), _heard(output) as logits:
            scores = forced.run()
        rows = logits[-1][forced.row].reshape(-1, logits[-1].shape[-1])
        rows = rows[forced.first : forced.first + len(forced.produced)].float().softmax(dim=-1)
        best = rows.max(dim=-1)
        tokens.append([names(i) for i in best.indices.tolist()])
        p.append(best.values.double().cpu().numpy())
        wanted.append(scores.exp().double().cpu().numpy())
    return LensView(tokens, np.stack(p), np.stack(wanted), list(forced.produced), title)


def layers_of(model: nn.Module) -> nn.ModuleList | None:
    """The layers, one after the other, whose last one the output is read from; None without.

    They are the decoder's where there is one, else the encoder's.
    """
    side = getattr(model, "decoder", getattr(model, "encoder", None))
    layers = getattr(side, "layers", None)
    return layers if isinstance(layers, nn.ModuleList) and len(layers) else None


def _streams(forced: ForcedPass, layers: nn.ModuleList) -> list[Tensor]:
    """What enters the first layer, and what each of them leaves."""
    found: list[Tensor] = []

    def enter(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        found.append(args[0])

    def leave(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        found.append(output)

    handles = [layers[0].register_forward_pre_hook(enter)]
    handles += [layer.register_forward_hook(leave) for layer in layers]
    try:
        forced.run()
    finally:
        for handle in handles:
            handle.remove()
    return found


@contextmanager
def _leaving(layer: nn.Module, stream: Tensor) -> Iterator[None]:
    """Let a layer leave something else."""
    handle = layer.register_forward_hook(lambda module, args, output: stream)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _heard(module: nn.Module) -> Iterator[list[Tensor]]:
    """What a module gives, call by call."""
    found: list[Tensor] = []
    handle = module.register_forward_hook(
        lambda module, args, output: found.append(cast(Tensor, output))
    )
    try:
        yield found
    finally:
        handle.remove()
