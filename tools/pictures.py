"""Draw the pictures of docs/history and docs/looking: python tools/pictures.py FOLDER [NAME …].

FOLDER keeps the small models that are looked at, trained on what foveate makes itself where they
are missing (some minutes each, on one thread); nobody's sentences or pictures are drawn but ours.
Without names every picture is drawn; the same models give the same files.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from foveate.look.views import find
from foveate.look.views.options import Question
from history import counted, formulas, learned, measured, seen, untrained
from history.drawing import Draw
from history.models import trained

DOCS = Path(__file__).parent.parent / "docs"
DRAWN: dict[str, Draw] = {}
for source in (counted, formulas, learned, measured, seen, untrained):
    DRAWN |= source.DRAWN
SENTENCE = "The worried woman speaks to the young Italian doctor in the quiet garden."
VIEWS = {  # of docs/guide/looking.md: the model and the view
    "attention-transformer": ("transformer", "attention"),
    "heads-transformer": ("transformer", "heads"),
    "relevance-transformer": ("transformer", "relevance"),
    "attention-rnn": ("bahdanau", "attention"),
    "states-rnn": ("bahdanau", "states"),
}


def drawn(name: str, folder: Path) -> Path:
    """Draw a picture of either folder and save it there."""
    if name in DRAWN:
        return DRAWN[name](folder).save(DOCS / "history" / "pictures" / f"{name}.svg")
    model, view = VIEWS[name]
    question = Question.parse({"text": SENTENCE})
    drawing = find(view).draw([trained(model, folder)], question)
    return drawing.save(DOCS / "looking" / f"{name}.svg")


def main() -> None:
    """Draw what was named, or all."""
    if not sys.argv[1:] or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or [*DRAWN, *VIEWS]:
        path = drawn(name, folder)
        print(f"{path} {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
