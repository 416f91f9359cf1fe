"""Reading pictures: IDX files, and a folder or tar of JPEG and PNG with a table of what is said.

Lives here: from files to bytes of pixels, with the name of each picture and its label or captions.
Does not live here: chance changes in training (``augmentation``), tensors, what a label means.
"""

from __future__ import annotations

import gzip
import io
import math
import struct
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from foveate.atomic import cache_folder
from foveate.config import BaseConfig, Configurable
from foveate.data.catalogue import DataError
from foveate.data.download import find, mirror_folder

Pixels = NDArray[np.uint8]  # (C, H, W), 0 is black
AXES = 8  # of an array at most
UNSIGNED_BYTES = 8  # the only type of number that IDX pictures and labels have


@dataclass(frozen=True)
class Album:
    """Pictures of one size and what is said of each: one label, or several captions.

    ``pixels`` (N, C, H, W) are bytes; ``names`` tell pictures apart in messages.
    """

    pixels: NDArray[np.uint8]
    names: list[str]
    texts: list[list[str]]

    def __len__(self) -> int:
        return len(self.names)


class Pictures(Configurable):
    """Where pictures come from. Raises `DataError` that names the file that cannot be read."""

    class Config(BaseConfig, family="pictures"):
        """Which form they have."""

    def __init__(self, config: Config, splits: Mapping[str, str] | None = None) -> None:
        """``splits`` gives the names by which the files call train, valid and test."""
        self.config, self.splits = config, dict(splits or {})

    def album(self, split: str) -> Album:
        """The pictures of a split, in the order of the files."""
        raise NotImplementedError

    def open(self, path: str | Path) -> Pixels:
        """A JPEG or PNG of the user's own, with as many channels and the size of the album's."""
        raise NotImplementedError


class IDX(Pictures):
    """Pictures and labels in the format of MNIST (LeCun et al., 1998), plain or ``.gz``."""

    class Config(Pictures.Config, kind="idx"):
        """``{split}`` in both names is the split; the last ``held_out`` of train are valid."""

        images: str
        labels: str
        held_out: int = Field(5000, ge=0)

    config: Config

    def album(self, split: str) -> Album:
        held = self.config.held_out
        whole = "train" if split == "valid" and held else split
        name = self.splits.get(whole, whole)
        images = find(self.config.images.replace("{split}", name))
        labels = find(self.config.labels.replace("{split}", name))
        pixels, numbers = read_idx(images), read_idx(labels)
        if pixels.ndim != 3 or numbers.shape != pixels.shape[:1]:
            raise DataError(
                f"{images} holds {pixels.shape} and {labels} {numbers.shape}: pictures are "
                "(N, height, width) and labels (N); are these files of one set?"
            )
        if whole == "train" and held >= len(pixels):
            raise DataError(
                f"{images}: held_out = {held} leaves nothing of {len(pixels)} to train on"
            )
        cut = len(pixels) - held if whole == "train" else len(pixels)
        kept = range(cut, len(pixels)) if split != whole else range(cut)
        return Album(
            pixels[kept.start : kept.stop, None],
            [f"{images.name}#{n}" for n in kept],
            [[str(numbers[n])] for n in kept],
        )

    def open(self, path: str | Path) -> Pixels:
        name = self.splits.get("train", "train")
        height, width = read_idx(find(self.config.images.replace("{split}", name))).shape[1:]
        return decode(Path(path).read_bytes(), str(path), 1, (int(height), int(width)))


class Files(Pictures):
    """JPEG and PNG in a folder or a ``.tar``; a TSV says: split TAB file TAB label or caption.

    A picture is scaled until it just covers size × size, and its middle is kept. What stands in
    several lines has several captions.
    """

    class Config(Pictures.Config, kind="files"):
        """``channels`` 1 is grey, 3 is red, green, blue; ``size`` in pixels."""

        files: str
        table: str
        size: int = Field(64, gt=0)
        channels: Literal[1, 3] = 3

    config: Config

    def album(self, split: str) -> Album:
        table = find(self.config.table)
        said = _table(table, self.splits.get(split, split))
        side, channels = self.config.size, self.config.channels
        pixels = np.empty((len(said), channels, side, side), np.uint8)
        rows = {name: row for row, name in enumerate(said)}
        place = _place(self.config.files)
        for name, content in _contents(place, rows):
            where = f"{place}: {name}"
            pixels[rows.pop(name)] = decode(content, where, channels, (side, side))
        if rows:
            some = ", ".join(list(rows)[:5])
            raise DataError(
                f"{table} names {len(rows)} pictures that are not in {place}, such as {some}; "
                "put them there, or remove their lines"
            )
        return Album(pixels, list(said), list(said.values()))

    def open(self, path: str | Path) -> Pixels:
        side = self.config.size
        return decode(Path(path).read_bytes(), str(path), self.config.channels, (side, side))


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array of an IDX file of unsigned bytes, plain or gzip.

    Two zero bytes, the type, the number of axes, the length of each axis (big-endian, 4 bytes),
    and then the bytes. Raises `DataError` naming the file where it is damaged or of another type.
    """
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path} is a damaged gzip file: {error}; fetch it again") from None
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != UNSIGNED_BYTES:
        raise DataError(f"{path} is no IDX file of unsigned bytes (it starts {content[:4]!r})")
    axes = content[3]
    start = 4 + 4 * axes
    if len(content) < start:
        raise DataError(f"{path} ends within its header; fetch it again")
    shape = struct.unpack(f">{axes}I", content[4:start])
    wanted = math.prod(shape)
    if len(content) - start != wanted or axes > AXES:
        raise DataError(
            f"{path} says it holds {wanted:,} bytes {shape}, but has {len(content) - start:,}; "
            "fetch it again"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def decode(content: bytes, name: str, channels: int, size: tuple[int, int]) -> Pixels:
    """A JPEG or PNG as pixels (C, height, width): scaled to cover the size, the middle kept.

    Raises `DataError` with its name where it cannot be read.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content)) as image:
            upright = ImageOps.exif_transpose(image).convert("L" if channels == 1 else "RGB")
            fitted = ImageOps.fit(upright, size[::-1], Image.Resampling.BICUBIC)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        unknown = isinstance(error, UnidentifiedImageError)  # it names an object in memory
        reason = "neither JPEG nor PNG" if unknown else error
        raise DataError(f"{name} cannot be read as a picture ({reason}); replace it") from None
    array = np.asarray(fitted, dtype=np.uint8)
    return array[None] if channels == 1 else np.ascontiguousarray(array.transpose(2, 0, 1))


def _table(path: Path, split: str) -> dict[str, list[str]]:
    """What is said of each picture of a split, in the order in which they are first named."""
    said: dict[str, list[str]] = {}
    splits: set[str] = set()
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            parts = line.rstrip(b"\r").decode("utf-8").split("\t")
        except UnicodeDecodeError as error:
            raise DataError(f"{path}:{number}: not UTF-8 ({error.reason}); convert it") from None
        if len(parts) != 3:
            raise DataError(
                f"{path}:{number}: {len(parts)} columns; write split TAB file TAB label or caption"
            )
        splits.add(parts[0])
        if parts[0] == split:
            said.setdefault(parts[1], []).append(parts[2].strip())
    if not said:
        known = ", ".join(sorted(splits)) or "nothing"
        raise DataError(
            f"{path} has no split {split!r}, only {known}; "
            f'name it in [data]: splits = {{ {split} = "…" }}'
        )
    return said


def _place(name: str) -> Path:
    """A folder or tar file, here or below ``FOVEATE_DATA`` or the cache."""
    roots = [Path(), mirror_folder(), cache_folder()]
    places = [root / name for root in roots if root is not None]
    return next((place for place in places if place.is_dir()), None) or find(name)


def _contents(place: Path, names: Mapping[str, object]) -> Iterator[tuple[str, bytes]]:
    """The files of the given names, wherever they lie in the folder or tar; each name once."""
    wanted = set(names)
    if place.is_dir():
        for path in sorted(place.rglob("*")):
            if path.name in wanted and path.is_file():
                wanted.discard(path.name)
                yield path.name, path.read_bytes()
        return
    try:
        with tarfile.open(place) as archive:
            for member in archive:
                name = PurePosixPath(member.name).name
                file = archive.extractfile(member) if name in wanted else None
                if file is not None:
                    wanted.discard(name)
                    yield name, file.read()
    except (tarfile.TarError, EOFError) as error:
        raise DataError(f"{place} is no sound tar file ({error}); fetch it again") from None
