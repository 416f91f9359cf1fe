"""Figures of a trained run of any task on held-out data, as JSON in docs/results/NAME.json.

    python benchmarks/judge.py NAME RUN [SPLIT …]     valid and test by default

What ``foveate evaluate`` prints, with its tables and curves; examples a second; what the training
cost. Of a translation without SPLIT: the test data, searched with a beam of 1 and of 5, and BLEU by
the length of the source (the claim of attention).
"""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from typer import Argument

import foveate
import harness
from foveate.run import Run
from foveate.tasks.base import Evaluation
from foveate.tasks.forecasting import ForecastEvaluation
from foveate.tasks.metrics import figures_of
from foveate.tasks.translation import Translation
from foveate.train.journal import read

LENGTHS = (10, 15, 20, 1000)  # words of the source, upper ends of the bins


def main(
    name: str, path: Path, splits: Annotated[list[str] | None, Argument(metavar="SPLIT…")] = None
) -> None:
    run = foveate.load(path)
    if isinstance(run.task, Translation) and not splits:
        measured = searches(run)
    else:
        chosen = splits or ("valid", "test")
        measured = {split: evaluated(run, split=split)[1] for split in chosen}
    result = {
        "what": f"{run.config.task.kind}, {run.config.model.kind}",
        **measured,
        "training": training(run),
        "weights": run.checkpoint,
        "config": run.config.differences(),
    }
    print(harness.write(name, result).read_text(encoding="utf-8"))


def evaluated(run: Run, **options: Any) -> tuple[list[Any], dict[str, Any]]:
    """The outputs of one evaluation, and its figures."""
    started = time.perf_counter()
    evaluation = run.evaluate(**options)
    seconds = time.perf_counter() - started
    return evaluation.outputs, {
        "examples": len(evaluation.outputs),
        **{figure: round(value, 4) for figure, value in evaluation.figures.items()},
        "seconds": round(seconds, 1),
        "examples_per_second": round(len(evaluation.outputs) / seconds, 1),
        **{name: asdict(table) for name, table in evaluation.tables.items()},
        **({"mse_by_step": by_step(evaluation)} if by_step(evaluation) else {}),
        "signatures": evaluation.signatures,
    }


def by_step(evaluation: Evaluation) -> dict[str, list[float]]:
    """The error of forecasts at each step ahead; of other tasks nothing."""
    curves = evaluation.curves if isinstance(evaluation, ForecastEvaluation) else {}
    return {name: [round(value, 4) for value in curve] for name, curve in curves.items()}


def searches(run: Run) -> dict[str, Any]:
    """The test data with two beams, and BLEU by the length of the source."""
    sources, references = run.pairs("test")
    figures = {}
    for beam in (1, 5):
        outputs, figures[f"beam {beam}"] = evaluated(run, split="test", beam_size=beam)
    by_length, low = {}, 0
    for high in LENGTHS:
        rows = [i for i, source in enumerate(sources) if low < len(source.split()) <= high]
        name = f"{low + 1}-{high}" if high < LENGTHS[-1] else f"over {low}"
        if rows:
            texts = [outputs[i] for i in rows], [references[i] for i in rows]
            bleu = figures_of(*texts, ("bleu",))[0]["bleu"]
            by_length[name] = {"sentences": len(rows), "bleu": round(bleu, 2)}
        low = high
    return {"test": figures, "by_source_words": by_length}


def training(run: Run) -> dict[str, Any]:
    """What the training cost, from its log."""
    log = read(run.path)
    steps = [line for line in log if line["event"] == "train"]
    start = next(line for line in log if line["event"] == "start")
    rates = sorted(line["tokens_per_second"] for line in steps)
    return {
        "minutes": round(steps[-1]["seconds"] / 60, 1),
        "steps": steps[-1]["step"],
        "epochs": steps[-1]["epoch"],
        **{field: start[field] for field in ("parameters", "precision", "threads", "device")},
        "targets": steps[-1]["target_tokens"],
        "targets_per_second": rates[len(rates) // 2],
    }


if __name__ == "__main__":
    harness.run(main)
