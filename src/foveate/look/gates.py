"""Gates of recurrent cells over time, seen from outside: what is let in, kept and let out.

with capture_gates(model) as gates:
    model(ids)
gates["decoder.cells.0"]["forget"]        # (B, T, H)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MethodType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.look.sheets import Sheet, SheetsView
from foveate.nn.recurrent import Cell, Gates, Hidden

UNITS_SHOWN = 24
Hear = Callable[[Cell, tuple[Tensor, Hidden], Hidden], None]  # a cell, what it read and left


@contextmanager
def capture_gates(model: nn.Module) -> Iterator[dict[str, Gates]]:
    """Collect the gates (B, T, H) of every recurrent cell, by its dotted name, then by the gate's.

    Steps stand in the order in which they are made: those of a layer that reads backwards begin
    with the last word. Meanwhile cells go step by step, as their equations do; numbers differ from
    those of a kernel by rounding.
    """
    found: dict[str, Gates] = {}
    cells = {name: part for name, part in model.named_modules() if isinstance(part, Cell)}

    def listen(name: str) -> Hear:
        def see(cell: Cell, inputs: tuple[Tensor, Hidden], after: Hidden) -> None:
            seen = found.setdefault(name, {})
            for gate, opened in cell.open(*inputs).items():
                step = opened.detach().float()[:, None]
                seen[gate] = torch.cat((seen[gate], step), dim=1) if gate in seen else step

        return see

    with stepping({cell: listen(name) for name, cell in cells.items()}):
        yield found


@contextmanager
def stepping(heard: Mapping[Cell, Hear]) -> Iterator[None]:
    """Let cells go step by step, as their equations do, and tell who listens of each step."""
    before = {cell: cell.__dict__.get("run") for cell in heard}
    handles = [cell.register_forward_hook(hear) for cell, hear in heard.items()]
    for cell in heard:
        cell.run = MethodType(Cell.run, cell)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for cell, run in before.items():
            if run is None:
                del cell.run


def gates(
    opened: Gates, words: Sequence[str], units: int = UNITS_SHOWN, title: str = ""
) -> SheetsView:
    """The picture of one layer's gates (1, T, H) over the words that were read, a row a unit.

    The ``units`` that change most over the text (the standard deviation of their gates, summed),
    the same ones in every sheet. Raises ``ValueError`` where a cell has no gates, or where there is
    not one word for each step.
    """
    if not opened:
        raise ValueError("this cell has no gates to draw; an LSTM and a GRU have")
    over: dict[str, NDArray[np.float32]] = {n: g[0].T.cpu().numpy() for n, g in opened.items()}
    steps = next(iter(over.values())).shape[1]
    if steps != len(words):
        raise ValueError(f"{len(words)} words for {steps} steps; give one for each step")
    lively = sum(gate.std(axis=1) for gate in over.values())
    shown = np.sort(np.argsort(-np.asarray(lively), kind="stable")[:units])
    drawn = [
        Sheet(
            f"{name} gate", gate[shown], columns=words, down="unit", least=0.0, most=1.0,
            told="0 shut … 1 open", rows=[str(unit) for unit in shown], aspect=0.35,
        )
        for name, gate in over.items()
    ]  # fmt: skip
    return SheetsView(drawn, title, across=1)
