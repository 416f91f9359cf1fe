"""Draw the pictures of docs/looking.md: python benchmarks/looks.py FOLDER.

FOLDER keeps the small models of `pictures.py`, a Transformer and RNNsearch of the embedded corpus,
which are trained where they are missing; the same models give the same files.
"""

from __future__ import annotations

from pathlib import Path

import torch

import harness
from foveate.views import find
from foveate.views.options import Question
from history.models import trained

PICTURES = harness.ROOT / "docs" / "looking"
SENTENCE = "The worried woman speaks to the young Italian doctor in the quiet garden."
# the file: the model and the view
DRAWN = {
    "attention-transformer": ("transformer", "attention"),
    "heads-transformer": ("transformer", "heads"),
    "relevance-transformer": ("transformer", "relevance"),
    "attention-rnn": ("bahdanau", "attention"),
    "states-rnn": ("bahdanau", "states"),
    "steps-transformer": ("transformer", "steps"),
}
FIELDS = {
    "steps": {
        "text": "She closes the old window.",
        "block": "decoder.self_attention",
        "layer": 0,
        "head": 1,
        "query": 4,
    }
}


def main(folder: Path) -> None:
    """Write each picture as SVG and say how large it is."""
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    for name, (model, view) in DRAWN.items():
        question = Question.parse({"text": SENTENCE, **FIELDS.get(view, {})})
        path = find(view).draw([trained(model, folder)], question).save(PICTURES / f"{name}.svg")
        print(f"{path} {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    harness.run(main)
