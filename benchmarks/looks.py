"""Draw the pictures of docs/looking.md: python benchmarks/looks.py TRANSFORMER RNNSEARCH LSTM.

The first two are runs of configs/translation (Multi30k, English to French), the third is one of a
recurrent language model. The sentences are ours; the same runs give the same files.
"""

from __future__ import annotations

from pathlib import Path

import torch

import harness
from foveate.look.views import find
from foveate.look.views.options import Question
from foveate.run import load

PICTURES = harness.ROOT / "docs" / "looking"
SENTENCE = "A woman in a red coat is reading an old book."
CLAUSE = "the company said it expects a loss for the third quarter"
# the file: the run by its place on the command line, and the view
DRAWN = {
    "attention-transformer": (0, "attention"),
    "heads-transformer": (0, "heads"),
    "relevance-transformer": (0, "relevance"),
    "attention-rnn": (1, "attention"),
    "states-rnn": (1, "states"),
    "gates-lstm": (2, "gates"),
    "steps-transformer": (0, "steps"),
}
FIELDS = {"steps": {"block": "decoder.self_attention", "layer": 0, "head": 1, "query": 4}}


def main(transformer: Path, rnnsearch: Path, lstm: Path) -> None:
    """Write each picture as SVG and say how large it is."""
    torch.set_num_threads(1)
    runs = [load(path) for path in (transformer, rnnsearch, lstm)]
    texts = [SENTENCE, SENTENCE, CLAUSE]
    PICTURES.mkdir(exist_ok=True)
    for name, (place, view) in DRAWN.items():
        question = Question.parse({"text": texts[place], **FIELDS.get(view, {})})
        path = find(view).draw([runs[place]], question).save(PICTURES / f"{name}.svg")
        print(f"{path} {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    harness.run(main)
