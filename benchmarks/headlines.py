"""ROUGE of headlines: the first sentence, its first words, and a run where one is given.

    FOVEATE_DATA=… python benchmarks/headlines.py [RUN]

The baselines are those of headline generation: the first sentence of the text, and its first 75
characters (the prefix of DUC 2004; Rush, Chopra & Weston, 2015).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from typer import Argument

import foveate
import harness
from foveate.data.text import TextData, read_split
from foveate.tasks.metrics import figures_of

NAMES = ["rouge1", "rouge2", "rougeL"]
SOURCE = "news-headlines/{split}.tsv.gz"


def first_sentence(text: str) -> str:
    """Up to the first full stop, question or exclamation mark that a blank follows."""
    return re.split(r"(?<=[.!?]) ", text, maxsplit=1)[0]


def prefix(text: str, size: int = 75) -> str:
    """The first whole words within so many characters."""
    return text if len(text) <= size else text[: size + 1].rpartition(" ")[0]


def main(run: Annotated[Path | None, Argument()] = None) -> None:
    test = read_split(SOURCE, None, "test", TextData())
    outputs = {
        "first sentence": [first_sentence(text) for text in test.sources],
        "first 75 characters": [prefix(text) for text in test.sources],
    }
    if run:
        outputs["model"] = foveate.load(run).evaluate().outputs
    results = {}
    for name, lines in outputs.items():
        figures, signatures = figures_of(lines, test.targets, NAMES)
        results[name] = {n: round(value, 2) for n, value in figures.items()}
        print(f"{name:20}", results[name])
    harness.write("headlines", {"signatures": signatures, "test": results})


if __name__ == "__main__":
    harness.run(main)
