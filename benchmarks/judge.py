"""Figures of a trained run on its test data, as JSON in docs/results.

    python benchmarks/judge.py NAME RUN

BLEU, chrF and TER by sacreBLEU with beam search and greedily, BLEU by source length (the claim of
attention), sentences/s, and what the training cost.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import foveate
from cost import training
from foveate.tasks.metrics import figures_of
from machine import describe, write

LENGTHS = (10, 15, 20, 1000)  # words of the source, upper ends of the bins


def by_length(sources: list[str], references: list[str], outputs: list[str]) -> dict[str, Any]:
    """BLEU of the sentences whose sources have so many words."""
    found, low = {}, 0
    for high in LENGTHS:
        rows = [i for i, s in enumerate(sources) if low < len(s.split()) <= high]
        if rows:
            figures, _ = figures_of(
                [outputs[i] for i in rows], [references[i] for i in rows], ("bleu",)
            )
            name = f"{low + 1}-{high}" if high < LENGTHS[-1] else f"over {low}"
            found[name] = {"sentences": len(rows), "bleu": round(figures["bleu"], 2)}
        low = high
    return found


def main() -> None:
    name, path = sys.argv[1:3]
    run = foveate.load(path)
    sources, references = run.pairs("test")
    searches = {}
    for beam in (1, 5):
        started = time.perf_counter()
        evaluation = run.evaluate(sources, references, beam_size=beam)
        seconds = time.perf_counter() - started
        searches[f"beam {beam}"] = {
            **{figure: round(value, 2) for figure, value in evaluation.figures.items()},
            "sentences_per_second": round(len(sources) / seconds, 1),
        }
    outputs = evaluation.outputs
    result = {
        "what": f"{run.config.model.kind}, {run.config.task.tree()['target']}",
        "machine": describe(),
        "test": searches,
        "signature": evaluation.signatures["bleu"],
        "by_source_words": by_length(sources, references, outputs),
        "training": training(run),
        "weights": run.checkpoint,
        "config": run.config.differences(),
    }
    print(write(name, result).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
