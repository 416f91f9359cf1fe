"""Draw the pictures of docs/history: python benchmarks/pictures.py FOLDER [NAME …].

FOLDER keeps the small models that are looked at, trained on what foveate makes itself where they
are missing (some minutes each, on one thread); nobody's sentences or pictures are drawn but ours.
Without names every picture is drawn; the same models give the same files.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from history import counted, formulas, learned, measured, seen, untrained
from history.drawing import Draw

PICTURES = Path(__file__).parent.parent / "docs" / "history" / "pictures"
DRAWN: dict[str, Draw] = {}
for source in (counted, formulas, learned, measured, seen, untrained):
    DRAWN |= source.DRAWN


def main() -> None:
    if not sys.argv[1:] or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    PICTURES.mkdir(exist_ok=True)
    for name in sys.argv[2:] or DRAWN:
        path = DRAWN[name](folder).save(PICTURES / f"{name}.svg")
        print(f"{path} {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
