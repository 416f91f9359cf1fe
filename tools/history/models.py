"""The small models that are looked at: trained where they are missing, on data made here."""

from __future__ import annotations

import struct
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import foveate
from foveate.data import synthetic
from foveate.files import replace_file
from foveate.run import Run

HERE = Path(__file__).parent
GRAMMAR = files("foveate").joinpath("grammar.toml")
LONG = "train.max_minutes=120"  # a number of steps, whatever the machine: the same weights again
OVERRIDES = {
    "transformer": [LONG],
    "bahdanau": [
        "model=bahdanau-2015", LONG, "train.max_steps=3000",
        "task.tokenizer={kind=word, vocab_size=8000, min_frequency=1}",
        "model.encoder={num_layers=1, embedding_size=128, hidden_size=128}",
        "model.decoder={num_layers=1, embedding_size=128, hidden_size=192}",
    ],
}  # fmt: skip
SHAPES = ("circle", "cross", "square", "triangle")  # labels 0 to 3
CANVAS = 28  # pixels
PICTURES = {"train": 6500, "test": 200}


@cache
def trained(name: str, folder: Path) -> Run:
    """The small model of a name, trained if it is not there."""
    data(folder)
    own = HERE / f"{name}.toml"
    template = (own if own.exists() else GRAMMAR).read_text(encoding="utf-8")
    config = folder / f"{name}.toml"
    config.write_text(
        template.replace("{folder}", folder.as_posix()), encoding="utf-8", newline="\n"
    )
    return foveate.train(config, OVERRIDES.get(name, []), folder / name)


def data(folder: Path) -> None:
    """Sentences of the embedded corpus, and pictures of shapes."""
    if not (folder / "data").is_dir():
        synthetic.write(folder / "data", {"train": 60_000, "valid": 200, "test": 500})
    place = folder / "shapes"
    if not place.is_dir():
        place.mkdir()
        for split, count in PICTURES.items():
            write_shapes(place / split, count)


def write_shapes(path: Path, count: int) -> None:
    """Pictures and labels as IDX, as many of each shape, each at a place by chance."""
    random = np.random.default_rng(count)
    labels = np.arange(count, dtype=np.uint8) % len(SHAPES)
    pixels = np.stack([shape(int(label), random) for label in labels])
    for name, array in (("images", pixels), ("labels", labels)):
        head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
        replace_file(path.with_name(f"{path.name}-{name}"), head + array.tobytes())


def shape(label: int, random: np.random.Generator) -> NDArray[np.uint8]:
    """A white shape on dusty black, (CANVAS, CANVAS)."""
    radius = random.uniform(5, 9)
    middle = random.uniform(radius + 1, CANVAS - radius - 1, 2)
    y, x = (np.indices((CANVAS, CANVAS)) + 0.5 - middle[:, None, None]) / radius
    inside = (
        np.hypot(x, y) < 1,
        (np.minimum(np.abs(x), np.abs(y)) < 0.3) & (np.maximum(np.abs(x), np.abs(y)) < 1),
        np.maximum(np.abs(x), np.abs(y)) < 0.85,
        (np.abs(x) < (y + 0.9) / 1.8) & (y < 0.85),
    )[label]
    return np.where(inside, 230, random.uniform(0, 50, inside.shape)).astype(np.uint8)
