"""Small sets of pictures for tests: bars as IDX files, coloured squares as PNG with captions."""

import gzip
import io
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.models.transformer import TransformerEncoder
from foveate.nn.embedding import PatchStem
from foveate.nn.linear import GELU
from foveate.nn.positions import Learned

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (30, 60, 220)}


def idx(array: NDArray[np.uint8]) -> bytes:
    """An array as an IDX file of unsigned bytes."""
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


def bars(count: int, side: int = 8) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Pictures of one bright row (label 0) or column (label 1), each at another place."""
    images = np.zeros((count, side, side), np.uint8)
    labels = (np.arange(count) % 2).astype(np.uint8)
    for n in range(count):
        place = (n // 2) % side
        images[n, place if n % 2 == 0 else slice(None), slice(None) if n % 2 == 0 else place] = 255
    return images, labels


def write_bars(folder: Path, count: int = 24, side: int = 8) -> str:
    """IDX files of train and test; gives the pattern of the folder."""
    for split in ("train", "test"):
        images, labels = bars(count, side)
        (folder / f"{split}-images.gz").write_bytes(gzip.compress(idx(images)))
        (folder / f"{split}-labels").write_bytes(idx(labels))
    return str(folder / "{split}")


def png(colour: str, size: tuple[int, int] = (20, 16)) -> bytes:
    """A square of a colour on grey, as PNG; ``size`` is (width, height)."""
    image = Image.new("RGB", size, (128, 128, 128))
    image.paste(COLOURS[colour], (4, 4, 12, 12))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def write_squares(folder: Path) -> Path:
    """``pictures/`` and ``pictures.tar`` of three squares, ``table.tsv`` of two captions each."""
    (folder / "pictures" / "deep").mkdir(parents=True, exist_ok=True)
    lines = []
    for colour in COLOURS:
        place = folder / "pictures" / "deep" / f"{colour}.png"
        place.write_bytes(png(colour))
        for split in ("train", "valid", "test"):
            lines.append(f"{split}\t{colour}.png\tA {colour} square on grey .")
            lines.append(f"{split}\t{colour}.png\tThe square is {colour} .")
    (folder / "table.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with tarfile.open(folder / "pictures.tar", "w") as archive:
        archive.add(folder / "pictures", arcname="images")
    return folder


def vit(patch_size: int, places: int, sizes: tuple[int, ...]) -> TransformerEncoder.Config:
    """The encoder of a Vision Transformer; ``sizes`` are D, heads, layers, feed-forward."""
    names = "hidden_size", "num_heads", "num_layers", "ffn_size"
    stem = PatchStem.Config(patch_size=patch_size, class_token=True)
    position, gelu = Learned.Config(max_length=places), GELU.Config()
    fixed: Any = {"stem": stem, "position": position, "dropout": 0.0, "feed_forward": gelu}
    return TransformerEncoder.Config(**dict(zip(names, sizes, strict=True)), **fixed)
