"""Figures of a trained run of any task on its test data, as JSON in docs/results.

    python benchmarks/judge_task.py NAME RUN

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
    name, path = sys.argv[1:3]
    run = foveate.load(path)
    found = {}
    for split in ("valid", "test"):
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
        "command": f"python benchmarks/judge_task.py {name} runs/{Path(path).name}",
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
