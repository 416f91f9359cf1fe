"""Whether quality moves with the precision: one config, several seeds, in fp32 and in bf16.

    python benchmarks/seeds.py CONFIG [--seeds 5] [--jobs 2] [--split valid] [OVERRIDE…]

Each training is a `foveate train` of its own with one thread, ``--jobs`` of them at a time; each is
then judged greedily. Welch's t of two samples says how many standard errors their means are apart:
t = (m₂ − m₁) / √(s₁² / n + s₂² / n). Writes docs/results/seeds.json.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

from typer import Argument

import foveate
import harness

PRECISIONS = ("fp32", "bf16")
FIGURES = ("bleu", "chrf")


def main(
    config: Path,
    overrides: Annotated[list[str] | None, Argument(metavar="OVERRIDE…")] = None,
    seeds: int = 5,
    jobs: int = 2,
    split: str = "valid",
) -> None:
    def trained(setting: tuple[str, int]) -> dict[str, Any]:
        """One training, and its figures."""
        precision, seed = setting
        path = Path(folder) / f"{precision}-{seed}"
        changes = [f"seed={seed}", f"train.precision={precision}", *(overrides or [])]
        command = harness.foveate("train", config, "--run", path, *changes)
        one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, env=one_thread, stdout=subprocess.DEVNULL)
        figures = foveate.load(path).evaluate(split=split, beam_size=1).figures
        row = {"seed": seed, **{name: round(figures[name], 2) for name in FIGURES}}
        print(precision, row, file=sys.stderr, flush=True)
        return row

    settings = [(precision, seed) for seed in range(1, seeds + 1) for precision in PRECISIONS]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        rows = list(pool.map(trained, settings))
    count = len(PRECISIONS)
    runs = {precision: rows[start::count] for start, precision in enumerate(PRECISIONS)}
    figures = {
        name: compared([[row[name] for row in runs[precision]] for precision in PRECISIONS])
        for name in FIGURES
    }
    print(harness.write("seeds", {"figures": figures, "runs": runs}).read_text(encoding="utf-8"))


def compared(samples: list[list[float]]) -> dict[str, Any]:
    """Means and deviations of two samples, and how far the means are apart."""
    means, spreads = map(statistics.mean, samples), map(statistics.stdev, samples)
    (item, other), (s, t) = means, spreads
    error = ((s**2 + t**2) / len(samples[0])) ** 0.5
    return {
        **{
            precision: {"mean": round(mean, 2), "deviation": round(spread, 2)}
            for precision, mean, spread in zip(PRECISIONS, (item, other), (s, t), strict=True)
        },
        "difference": round(other - item, 2),
        "welch_t": round((other - item) / error, 2),
    }


if __name__ == "__main__":
    harness.run(main)
