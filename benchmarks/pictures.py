"""Draw the pictures of docs/history: python benchmarks/pictures.py FOLDER.

FOLDER keeps the small models that are looked at, trained on the embedded corpus where they are
missing (some minutes each); nobody's sentences are drawn but ours.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import foveate
from foveate.data import synthetic
from foveate.look.heads import heads
from foveate.look.heatmap import attention
from foveate.look.view import View
from foveate.run import Run

PICTURES = Path(__file__).parent.parent / "docs" / "history" / "pictures"
SENTENCE = "The young Italian woman closes the big white door."
RUNS = {"transformer": [], "bahdanau": ['model="bahdanau-2015"', "train.max_minutes=5"]}


def trained(name: str, folder: Path) -> Run:
    """The small model of a name, trained if it is not there."""
    data = folder / "data"
    if not data.is_dir():
        synthetic.write(data, {"train": 60_000, "valid": 200, "test": 500})
    config = folder / f"{name}.toml"
    template = files("foveate").joinpath("quickstart.toml").read_text(encoding="utf-8")
    config.write_text(template.replace("{folder}", folder.as_posix()), encoding="utf-8")
    return foveate.train(config, RUNS[name], folder / name)


def bahdanau(folder: Path) -> View:
    """One head, one layer: the map of Bahdanau, Cho & Bengio (2015)."""
    return attention(trained("bahdanau", folder).translate([SENTENCE])[0].record())


def transformer(folder: Path) -> View:
    """Cross-attention of every layer and head of a small Transformer."""
    return heads(trained("transformer", folder).translate([SENTENCE])[0].record())


DRAWN: dict[str, Callable[[Path], View]] = {"bahdanau": bahdanau, "transformer": transformer}


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    PICTURES.mkdir(exist_ok=True)
    for name in sys.argv[2:] or DRAWN:
        print(DRAWN[name](folder).save(PICTURES / f"{name}.svg"))


if __name__ == "__main__":
    main()
