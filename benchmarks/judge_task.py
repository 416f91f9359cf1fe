"""Figures of a trained run of any task on held-out data, as JSON in docs/results.

    python benchmarks/judge_task.py NAME RUN [SPLIT…]          valid and test by default

What `foveate evaluate` says, with tables; examples/s; what the training cost; how it was run.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path

import foveate
from cost import training
from machine import describe, write


def main() -> None:
    name, path, *splits = sys.argv[1:]
    run = foveate.load(path)
    found = {}
    for split in splits or ("valid", "test"):
        started = time.perf_counter()
        evaluation = run.evaluate(split=split)
        seconds = time.perf_counter() - started
        found[split] = {
            "examples": len(evaluation.outputs),
            **{figure: round(value, 4) for figure, value in evaluation.figures.items()},
            "examples_per_second": round(len(evaluation.outputs) / seconds, 1),
            **{table: asdict(value) for table, value in evaluation.tables.items()},
        }
    result = {
        "what": f"{run.config.task.kind}, {run.config.model.kind}",
        "command": " ".join(
            ("python benchmarks/judge_task.py", name, f"runs/{Path(path).name}", *splits)
        ),
        "machine": describe(),
        **found,
        "signatures": evaluation.signatures,
        "training": training(run),
        "weights": run.checkpoint,
        "config": run.config.differences(),
    }
    print(write(name, result).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
