"""Quality against speed of decoders made for serving: a deep one, one layer, an SSRU.

    python benchmarks/presets.py RUN RUN… [--rounds 3] [--sentences 300]

The runs translate the same test set (multi30k-en-fr.toml, -shallow, -ssru, trained alike). BLEU and
chrF are of the whole set, with the beam of each run; speeds are sentences for each second of
processor time, one thread, the runs in turn, the median of all rounds. Writes
docs/results/serving-presets.json.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

import harness
from foveate.cli.workers import at_precision
from foveate.run import Run, load

WAYS: dict[str, dict[str, Any]] = {
    "beam 5, batches": {},
    "greedy, batches": {"beam_size": 1},
    "greedy, one by one": {"beam_size": 1, "batch_tokens": 1},
}


def speed(run: Run, lines: list[str], choices: dict[str, Any]) -> float:
    """Sentences for each second of processor time."""
    before = time.process_time()
    run.translate(lines, **choices)
    return len(lines) / (time.process_time() - before)


def main(runs: list[Path], rounds: int = 3, sentences: int = 300) -> None:
    """Measure each run at both precisions."""
    torch.set_num_threads(1)
    results: dict[str, dict[str, Any]] = {}
    ready: dict[tuple[str, str], Run] = {}
    for path in runs:
        results[path.name] = {"parameters": sum(p.numel() for p in load(path).model.parameters())}
        for precision in ("fp32", "int8"):
            run = ready[path.name, precision] = at_precision(load(path), precision)
            figures = run.evaluate().figures
            item = {"bleu": round(figures["bleu"], 2), "chrf": round(figures["chrf"], 2)}
            results[path.name][precision] = item
            print(path.name, precision, item, file=sys.stderr, flush=True)
    lines = ready[runs[0].name, "fp32"].pairs()[0][:sentences]
    for method, choices in WAYS.items():
        speeds = [
            {key: speed(run, lines, choices) for key, run in ready.items()} for _ in range(rounds)
        ]
        for name, precision in ready:
            median = statistics.median(item[name, precision] for item in speeds)
            results[name][precision][method] = round(median, 1)
    result = {"unit": "sentences a second of processor time", "runs": results}
    print(harness.write("serving-presets", result).read_text(encoding="utf-8"))


if __name__ == "__main__":
    harness.run(main)
