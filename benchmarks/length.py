"""Time and memory of one layer against the length: kinds of attention, an LSTM, Mamba.

    python benchmarks/length.py [LENGTH…] [--only full] [--seconds 0.5] [--picture length.svg]

Forward and backward, each figure in a process of its own; figures that would take too long or too
much memory are left out. Exponents are fitted to the longest lengths. Writes
docs/results/attention-length.json, or ``--out``.
"""

from __future__ import annotations

import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor, nn

import harness
from foveate.config import Tree, kinds
from foveate.kinds import load_kinds
from foveate.look.draw.charts import PanelGrid, line_chart
from foveate.measure.machine import ceilings, describe, quickest
from foveate.measure.training import Say, mute
from foveate.nn.attention import Attention, BaseAttention
from foveate.nn.context import Mask
from foveate.nn.recurrent import LSTMCell
from foveate.nn.ssm import SelectiveStateSpace
from foveate.train.journal import peak_memory

SIZE, HEADS = 256, 4
START_METHOD = "spawn" if sys.platform == "win32" else "forkserver"  # for child processes
LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
PATIENCE = 60.0  # seconds: a figure that would take longer is left out
ROOM = 8000.0  # MB: the same
Layer = Callable[[Tensor], Tensor]
Maker = Callable[["Variant", int], Layer]  # of a variant and the longest length
FITTED = 4  # the number of longest lengths to which an exponent is fitted


@dataclass(frozen=True)
class Variant:
    """A layer to measure; ``make`` is called in a process of its own."""

    name: str
    make: Maker
    kind: str = ""  # of attention
    causal: bool = False


Figures = list[tuple[float, float] | None]  # ms and MB; None: it would take too long or too much


def measure(
    lengths: Sequence[int] = LENGTHS,
    seconds: float = 0.5,
    report: Say = mute,
    only: Sequence[str] = (),
) -> Tree:
    """All variants (or those whose names hold one of ``only``) at all lengths, shortest first."""
    fresh = multiprocessing.get_context(START_METHOD)
    if START_METHOD == "forkserver":
        fresh.set_forkserver_preload(["foveate.measure.training"])  # imports once, then forks
    load_kinds()
    growths = {}
    for variant in variants():
        if only and not any(part in variant.name for part in only):
            continue
        figures: Figures = []
        for length in sorted(lengths):
            if worth(figures, sorted(lengths)):
                with fresh.Pool(1) as pool:
                    figures.append(pool.apply(cost, (variant, length, max(lengths), seconds)))
            else:
                figures.append(None)
        growths[variant.name] = described(figures, sorted(lengths))
        times = ("-" if each is None else f"{each[0]:.4g}" for each in figures)
        report(f"{variant.name:24}" + "".join(f"{time:>10}" for time in times) + " ms")
    return {
        "what": "length",
        "hidden_size": SIZE,
        "num_heads": HEADS,
        "lengths": sorted(lengths),
        "kinds": growths,
        "ceilings_gflops": ceilings(0.3),
        "machine": describe(),
    }


def variants() -> list[Variant]:
    """Each kind of attention without and with a causal mask, an LSTM, a selective state space."""
    layers = []
    for kind, config in kinds("attention")["attention"].items():
        names = {"full": ("full, fused", "full, explicit")}.get(kind, (kind,))
        for name in names:
            make = explicit if name.endswith("explicit") else attention
            layers.append(Variant(name, make, kind))
            if config.owner.causal:  # type: ignore[union-attr]
                layers.append(Variant(f"{name}, causal", make, kind, True))
    return [*layers, Variant("lstm", lstm, causal=True), Variant("mamba", mamba, causal=True)]


# ------------------------------------------------------------------------------ one figure


def exponent(
    lengths: Sequence[int], figures: Sequence[float | None], fitted: int = FITTED
) -> float | None:
    """Fit p of figure ∝ length^p by least squares of the logarithms over the longest ``fitted``.

    None if fewer than two figures are known; infinite figures and NaN count as unknown.
    """
    pairs = zip(lengths, figures, strict=True)
    known = [(n, f) for n, f in pairs if f is not None and 0 < f < math.inf]
    if len(known) < 2:
        return None
    x, y = np.log(np.array(known[-fitted:], dtype=float)).T
    return round(float(np.polyfit(x, y, 1)[0]), 2)


def cost(variant: Variant, length: int, longest: int, seconds: float) -> tuple[float, float]:
    """Milliseconds and megabytes of a variant at one length, in this process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    load_kinds()
    layer = variant.make(variant, longest)
    x = torch.randn(1, length, SIZE, requires_grad=True)
    before = peak_memory() or 0.0
    best = quickest(lambda: layer(x).sum().backward(), seconds, clock=time.process_time)
    return round(1000 * best, 3), round((peak_memory() or 0.0) - before, 1)


def attention(variant: Variant, longest: int) -> Layer:
    """A kind of attention."""
    config = kinds("attention")["attention"][variant.kind]
    values: Tree = {"num_heads": HEADS}
    if "max_length" in config.model_fields:
        values["max_length"] = longest
    layer: BaseAttention = config(**values).build(SIZE)
    mask = Mask(causal=variant.causal)
    return lambda x: layer(x, None, mask)


def explicit(variant: Variant, longest: int) -> Layer:
    """Full attention with its weights formed, as it is for a tap, a score of one's own, entmax."""
    layer: BaseAttention = Attention.Config.parse({"num_heads": HEADS}).build(SIZE)
    layer.tap = lambda weights: None
    mask = Mask(causal=variant.causal)
    return lambda x: layer(x, None, mask)


def lstm(variant: Variant, longest: int) -> Layer:
    """A recurrent layer of LSTM cells."""
    cell: LSTMCell = LSTMCell.Config().build(SIZE, SIZE)
    return lambda x: cell.run(x, cell.start(x[:, 0]))[0]


def mamba(variant: Variant, longest: int) -> Layer:
    """A selective state space."""
    layer: nn.Module = SelectiveStateSpace.Config().build(SIZE)
    return layer


# ------------------------------------------------------------------------------ growth


def worth(figures: Figures, lengths: Sequence[int]) -> bool:
    """Whether the next figure should fit into the patience and the memory that there are.

    Time and memory are taken to grow by the square from the last length to the next.
    """
    if not figures:
        return True
    if figures[-1] is None:
        return False
    milliseconds, megabytes = figures[-1]
    times = (lengths[len(figures)] / lengths[len(figures) - 1]) ** 2
    return milliseconds * times < 1000 * PATIENCE and megabytes * times < ROOM


def described(figures: Figures, lengths: Sequence[int]) -> Tree:
    """The figures of one variant and how they grow."""
    times, sizes = zip(*((None, None) if each is None else each for each in figures), strict=True)
    return {
        "milliseconds": list(times),
        "megabytes": list(sizes),
        "exponent_time": exponent(lengths, times),
        "exponent_memory": exponent(lengths, sizes),
    }


def view(result: Mapping[str, Any]) -> PanelGrid:
    """The picture of a bench of lengths: a panel of milliseconds and one of megabytes.

    Both axes are logarithmic: a square rises twice as steeply as a line.
    """
    kinds = result["kinds"]
    panels = [
        line_chart(
            result["lengths"], {name: np.array(row[panel], float) for name, row in kinds.items()},
            "length", panel, log="xy",
        )
        for panel in ("milliseconds", "megabytes")
    ]  # fmt: skip
    return PanelGrid(panels=panels, title="Forward and backward through one layer")


def main(
    lengths: Annotated[list[int] | None, typer.Argument(metavar="[LENGTH…]")] = None,
    only: list[str] | None = None,
    seconds: float = 0.5,
    picture: Path | None = None,
    out: Path | None = None,
) -> None:
    result = measure(lengths or LENGTHS, seconds, print, only or [])
    harness.write("attention-length", result, out)
    for name, row in result["kinds"].items():
        print(f"{name:<24} {row['exponent_time']!s:>6} {row['exponent_memory']!s:>6}")
    if picture:
        view(result).save(picture)


if __name__ == "__main__":
    harness.run(main)
