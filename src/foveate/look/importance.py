"""What a model loses with each head: heads silenced one after the other (Michel et al., 2019)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from foveate.look.edit import edit, silence
from foveate.look.forced import ForcedPass
from foveate.look.record import block_of
from foveate.look.seams import Where, chosen
from foveate.look.sheets import Sheet, SheetsView

Figures = NDArray[np.float64]


def importance(
    passes: Sequence[ForcedPass], where: Where = lambda name: True
) -> dict[str, Figures]:
    """How much each head is worth: by the name of its map (H,) means over all scores of

        log p − log p with the head silent

    (of a forecast how far it moves). Positive: the model is worse without the head. All passes are
    of one model; each is run once for every head, and once more. Raises ``ConfigError`` naming
    what exists where ``where`` fits nothing.
    """
    model, found = passes[0].model, chosen(passes[0].model, where)
    whole = [forced.scores() for forced in passes]
    heads = {name: len(weights) for name, weights in passes[0].maps(where).items()}
    lost: dict[str, Figures] = {}
    for name in (name for name in found if name in heads):
        lost[name] = np.zeros(heads[name])
        for head in range(heads[name]):
            with edit(model, {name: silence(head)}):
                moved = [
                    forced.difference(before, forced.scores())
                    for forced, before in zip(passes, whole, strict=True)
                ]
            lost[name][head] = np.concatenate(moved).mean()
    return lost


def importances(
    lost: Mapping[str, Figures], passes: Sequence[ForcedPass], title: str = ""
) -> SheetsView:
    """The picture of `importance`: for each block a sheet, layers down and heads across."""
    blocks: dict[str, list[Figures]] = {}
    for name, figures in lost.items():
        blocks.setdefault(block_of(name), []).append(figures)
    most = max((float(np.abs(figures).max()) for figures in lost.values()), default=0.0)
    sheets = []
    for block, layers in blocks.items():
        values = np.full((len(layers), max(map(len, layers))), np.nan)
        for row, figures in zip(values, layers, strict=True):
            row[: len(figures)] = figures
        sheets.append(
            Sheet(
                block.replace("_", "-").replace(".", " "), values, down="layer", across="head",
                rows=[str(n) for n in range(len(layers))],
                columns=[str(n) for n in range(values.shape[1])],
                least=-most, most=most, aspect=0.6,
            )
        )  # fmt: skip
    count = sum(len(forced.produced) for forced in passes)
    caption = f"how far the forecast moves without the head, mean of {count} steps"
    if passes[0].told == "log p":
        caption = f"log p lost without the head, mean of {count} (+: the model is worse without it)"
    return SheetsView(sheets, title, caption, across=1 if len(sheets) == 1 else 2)
