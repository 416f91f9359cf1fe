"""Whether quality moves with the precision: one config, several seeds, fp32 and bf16 roads.

    python benchmarks/seeds.py CONFIG [--seeds 5] [--jobs 2] [--split valid] [OVERRIDE…]

Each training is a `foveate train` of its own with one thread, ``--jobs`` of them at a time; each is
then judged greedily. Welch's t of two samples says how many standard errors their means are apart:
t = (m₂ − m₁) / √(s₁² / n + s₂² / n). Writes docs/results/seeds.json.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import foveate
from machine import describe, write

ROADS = ("fp32", "bf16")
FIGURES = ("bleu", "chrf")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("config", type=Path)
    options.add_argument("changes", nargs="*")
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--split", default="valid")
    given = options.parse_intermixed_args()
    each = [(road, seed) for seed in range(1, given.seeds + 1) for road in ROADS]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as jobs:
        done = list(jobs.map(lambda one: trained(given, Path(folder), *one), each))
    runs = {
        road: [one for (r, _), one in zip(each, done, strict=True) if r == road] for road in ROADS
    }
    figures = {
        name: compared([[one[name] for one in runs[road]] for road in ROADS]) for name in FIGURES
    }
    said = [given.config.name if word == str(given.config) else word for word in sys.argv[1:]]
    command = " ".join(["python benchmarks/seeds.py", *said])
    result = {"command": command, "machine": describe(), "figures": figures, "runs": runs}
    print(write("seeds", result).read_text(encoding="utf-8"))


def trained(given: argparse.Namespace, folder: Path, road: str, seed: int) -> dict[str, Any]:
    """One training, and its figures."""
    path = folder / f"{road}-{seed}"
    changes = [f"seed={seed}", f"train.precision={road}", *given.changes]
    command = [sys.executable, "-m", "foveate", "train", str(given.config), "--run", str(path)]
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([*command, *changes], check=True, env=alone, stdout=subprocess.DEVNULL)
    found = foveate.load(path).evaluate(split=given.split, beam_size=1).figures
    said = {"seed": seed, **{name: round(found[name], 2) for name in FIGURES}}
    print(road, said, file=sys.stderr, flush=True)
    return said


def compared(samples: list[list[float]]) -> dict[str, Any]:
    """Means and deviations of two samples, and how far the means are apart."""
    means, spreads = map(statistics.mean, samples), map(statistics.stdev, samples)
    (one, other), (s, t) = means, spreads
    error = ((s**2 + t**2) / len(samples[0])) ** 0.5
    return {
        **{
            road: {"mean": round(mean, 2), "deviation": round(spread, 2)}
            for road, mean, spread in zip(ROADS, (one, other), (s, t), strict=True)
        },
        "difference": round(other - one, 2),
        "welch_t": round((other - one) / error, 2),
    }


if __name__ == "__main__":
    main()
