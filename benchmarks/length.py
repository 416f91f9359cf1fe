"""Time and memory of every kind of attention against the length of the sequence.

    python benchmarks/length.py [--lengths 128 256 512 1024 2048] [--picture docs/length.svg]

One sequence that looks at itself goes forward and backward through one layer (D = 256, 4 heads), on
one thread. Each figure comes from a process of its own: milliseconds of its processor time (so that
other work on the machine counts little), the best of those done in the time; MB by which its peak
memory grew. Full attention stands twice: as PyTorch's
fused kernel computes it, without keeping its weights, and explicitly, with all T² of them.
Writes docs/results/attention-length.json.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from pathlib import Path
from typing import Any

import torch

from foveate.config import kinds
from foveate.kinds import load_kinds
from foveate.nn.attention import BaseAttention
from foveate.nn.mask import Mask
from machine import describe, write

SIZE, HEADS = 256, 4


def measure(config: BaseAttention.Config, causal: bool, length: int, seconds: float) -> list[float]:
    """Milliseconds and megabytes of one kind at one length."""
    torch.manual_seed(0)
    attention = config.build(SIZE)
    x = torch.randn(1, length, SIZE, requires_grad=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    best, until = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < until or best == float("inf"):
        started = time.process_time()
        attention(x, None, Mask(causal=causal)).sum().backward()
        best = min(best, time.process_time() - started)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return [round(1000 * best, 3), round(grown / 1024, 2)]


def explicit(*job: Any) -> list[float]:
    """The same with the weights formed, as it is for a tap, a score of one's own or entmax."""
    from foveate.nn import attention

    attention.EXPLICIT_UP_TO = 10**12
    return measure(*job)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--lengths", type=int, nargs="+", default=[128, 256, 512, 1024, 2048])
    options.add_argument("--seconds", type=float, default=0.5)
    options.add_argument("--picture", type=Path)
    given = options.parse_args()
    torch.set_num_threads(1)
    load_kinds()
    found: dict[str, dict[str, list[float]]] = {}
    fresh = multiprocessing.get_context("fork")
    for name, causal, work, config in rows(max(given.lengths)):
        for length in given.lengths:
            with fresh.Pool(1) as pool:
                figures = pool.apply(work, (config, causal, length, given.seconds))
            row = found.setdefault(name, {"milliseconds": [], "megabytes": []})
            row["milliseconds"].append(figures[0])
            row["megabytes"].append(figures[1])
        print(f"{name:24}", *(f"{f:9.2f}" for f in found[name]["milliseconds"]), "ms", flush=True)
        print(" " * 24, *(f"{f:9.2f}" for f in found[name]["megabytes"]), "MB", flush=True)
    result = {
        "hidden_size": SIZE,
        "num_heads": HEADS,
        "lengths": given.lengths,
        "kinds": found,
        "machine": describe(),
    }
    print(write("attention-length", result))
    if given.picture is not None:
        draw(result, given.picture)


def rows(longest: int) -> list[tuple[str, bool, Any, Any]]:
    """Name, causal, what measures it, config: each kind without and with a causal mask."""
    found: list[tuple[str, bool, Any, Any]] = []
    for name, kind in kinds("attention")["attention"].items():
        values: dict[str, Any] = {"num_heads": HEADS}
        if "max_length" in kind.model_fields:
            values["max_length"] = longest
        config = kind(**values)
        roads = {"full": [("full, fused", measure), ("full, explicit", explicit)]}
        for label, work in roads.get(name, [(name, measure)]):
            found.append((label, False, work, config))
            if config.owner.causal:  # type: ignore[union-attr]
                found.append((f"{label}, causal", True, work, config))
    return found


def draw(result: dict[str, Any], path: Path) -> None:
    """Both figures against length, on logarithmic axes: a square rises twice as steeply."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    for axis, what in zip(axes, ("milliseconds", "megabytes"), strict=True):
        for name, row in result["kinds"].items():
            style = "--" if name.endswith("causal") else "-"
            axis.loglog(result["lengths"], row[what], style, marker=".", label=name)
        axis.set(xlabel="length T", ylabel=f"{what}, forward and backward")
    axes[0].legend(fontsize=7)
    figure.savefig(path)
    print(path)


if __name__ == "__main__":
    main()
