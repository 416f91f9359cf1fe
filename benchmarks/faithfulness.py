"""How faithful each method of relevance is: log p lost by the words that it ranks first.

    python benchmarks/faithfulness.py RUN… [--examples 50]

For each run and method the mean over examples of the area between the curve of random orders and
that of the method (`foveate.look.relevance.faithfulness`), per deleted word, in nats, with its
standard error. Examples are the first of the test split, or of --source, with at least four words;
the answer is the model's own. RUN may be the folder of a published model. Adds its rows to
docs/results/faithfulness.json. Five minutes of one processor core for a translator.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import harness
from foveate.cli.options import as_run
from foveate.look.relevance import METHODS, area, faithfulness
from foveate.run import Run, load
from foveate.tasks.text import TextTask

LEAST = 4  # words


def areas(run: Run, texts: list[str]) -> dict[str, list[float]]:
    """The area of each method that the model has, for each text."""
    by_method: dict[str, list[float]] = {}
    for text in texts:
        curves = faithfulness(run.forced(text))
        for name in METHODS:
            if name in curves:
                by_method.setdefault(name, []).append(area(curves, name))
    return by_method


def main(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…")],
    source: Annotated[Path | None, typer.Option(help="sentences, one per line")] = None,
    examples: int = 50,
) -> None:
    results = harness.previous("faithfulness").get("runs", {})
    for path in runs:
        run = load(path if (path / "config.toml").is_file() else as_run(path))
        lines = source.read_text("utf-8").split("\n") if source else None
        texts = lines or run.need(TextTask, "give texts").corpus("test").sources
        some = [text for text in texts if len(text.split()) >= LEAST][:examples]
        key = f"{path.parent.name}/{path.name}"
        results[key] = {
            name: {
                "area": round(float(np.mean(own)), 3),
                "error": round(float(np.std(own, ddof=1) / len(own) ** 0.5), 3),
                "examples": len(own),
            }
            for name, own in areas(run, some).items()
        }
        print(key, json.dumps(results[key]))
    harness.write("faithfulness", {"runs": results})


if __name__ == "__main__":
    harness.run(main)
