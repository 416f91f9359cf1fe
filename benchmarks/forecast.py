"""Figures of trained forecasters on their test rows, as JSON in docs/results.

    python benchmarks/forecast.py NAME RUN

Squared and absolute error (free-running, teacher-forced, naive), MASE, error against horizon, and
what the training cost.
"""

from __future__ import annotations

import sys
import time

import foveate
from cost import training
from machine import describe, write


def main() -> None:
    name, path = sys.argv[1:3]
    run = foveate.load(path)
    started = time.perf_counter()
    evaluation = run.evaluate()
    seconds = time.perf_counter() - started
    task = run.config.task
    result = {
        "what": f"{run.config.model.kind}, {task.series.path}, {task.look_back} to {task.horizon}",
        "machine": describe(),
        "test": {figure: round(value, 4) for figure, value in evaluation.figures.items()},
        "windows": len(evaluation.outputs),
        "seconds": round(seconds, 1),
        "mse_by_step": {
            curve: [round(value, 4) for value in values]
            for curve, values in evaluation.curves.items()
        },
        "training": training(run),
        "weights": run.checkpoint,
        "config": run.config.differences(),
    }
    print(write(name, result).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
