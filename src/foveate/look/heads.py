"""All heads of a block side by side: small matrices, layers down, heads across."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.look import colors, measure
from foveate.look.drawing import Drawing
from foveate.look.heatmap import FONT_SIZE, paint
from foveate.look.record import AttentionRecord, block_of
from foveate.look.view import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIDE = 1.25  # inches of one small matrix


@dataclass(frozen=True, eq=False, repr=False)
class HeadsView(View):
    """Every layer and head of one block of a record."""

    record: AttentionRecord
    block: str
    scale: str

    def arrays(self) -> dict[str, NDArray[Any]]:
        names = self.record.names(self.block)
        rows, columns = self.record.axes(names[0])
        drawn: dict[str, NDArray[Any]] = {name: self.record.drawn(name) for name in names}
        return drawn | {"rows": np.array(rows), "columns": np.array(columns)}

    def text(self, width: int | None = None, color: bool | None = None) -> str:
        """A table of figures: small matrices of a few letters would not be legible."""
        lines = [f"{'map':<36} head  entropy (bits)  confidence  diagonality  kind"]
        alike: dict[str, list[str]] = {}
        for name in self.record.names(self.block):
            heads = self.record.drawn(name)
            figures = (
                measure.entropy(heads),
                measure.confidence(heads),
                measure.diagonality(heads),
            )
            for head, (broad, sure, straight) in enumerate(zip(*figures, strict=True)):
                kind = self.kinds[name][head]
                alike.setdefault(kind, []).append(f"{name}:{head}")
                figured = f"{broad:>14.2f}  {sure:>10.2f}  {straight:>11.2f}"
                lines.append(f"{name:<36} {head:>4}  {figured}  {kind}")
        lines += [f"{kind}: {', '.join(alike[kind])}" for kind in measure.KINDS if kind in alike]
        return "\n".join(lines)

    @cached_property
    def kinds(self) -> dict[str, list[str]]:
        """What each head of each map does (`foveate.look.measure.kind_of`)."""
        names = self.record.names(self.block)
        return measure.kinds_of({name: self.record.drawn(name) for name in names})

    def drawings(self) -> list[Drawing]:
        from foveate.look.maps import drawing

        block = block_of(self.record.names(self.block)[0])
        return [drawing(self.record, block=block, form="heads", scale=self.scale)]

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        names = self.record.names(self.block)
        maps, kinds = [self.record.drawn(name) for name in names], list(self.kinds.values())
        across = max(len(heads) for heads in maps)
        figure = Figure(figsize=(SIDE * across + 0.9, SIDE * len(maps) + 0.9), layout="constrained")
        grid = figure.subplots(len(maps), across, squeeze=False)
        for layer, heads in enumerate(maps):
            for head in range(across):
                ax = grid[layer, head]
                ax.set(xticks=[], yticks=[])
                if head >= len(heads):
                    ax.set_axis_off()
                    continue
                paint(ax, heads[head], self.scale)
                ax.set_xlabel(kinds[layer][head], size=FONT_SIZE - 2, color="#555555", labelpad=2)
                if layer == 0:
                    ax.set_title(f"head {head}", size=FONT_SIZE)
            grid[layer, 0].set_ylabel(f"layer {layer}", size=FONT_SIZE)
        figure.supxlabel(
            f"{self.block.replace('_', '-')} · {colors.scale(self.scale).caption}",
            size=FONT_SIZE,
            color="#555555",
        )
        return figure


def heads(record: AttentionRecord, block: str = "cross_attention", scale: str = "row") -> HeadsView:
    """The picture of all layers and heads of a block.

    Raises ``KeyError`` naming the blocks that exist, ``ValueError`` naming the scales.
    """
    for name in record.layers(block):
        record.drawn(name)
    colors.scale(scale)
    return HeadsView(record, block, scale)
