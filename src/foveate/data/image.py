"""Images: reading, resizing, normalising and augmenting them."""

from __future__ import annotations

import contextlib
import io
import math
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from foveate.config import BaseConfig, Configurable, FromConfig
from foveate.data.catalogue import DataError, find, unpacked
from foveate.data.text import decoded_lines
from foveate.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = NDArray[np.uint8]  # (C, H, W), 0 is black
AXES = 8  # most axes of an array
UNSIGNED_BYTES = 8  # the only number type of IDX images and labels


@dataclass(frozen=True)
class Album:
    """Images of one size and the texts of each: one label, or several captions.

    ``pixels`` (N, C, H, W) are bytes; ``names`` identify the images in messages.
    """

    pixels: NDArray[np.uint8]
    names: list[str]
    texts: list[list[str]]

    def __len__(self) -> int:
        return len(self.names)


class PictureData(Configurable):
    """Reads images. Raises `DataError` with the file that cannot be read."""

    class Config(BaseConfig, family="pictures"):
        """The form of the images."""

    def __init__(self, config: Config, splits: Mapping[str, str] | None = None) -> None:
        """Take ``splits``, the names of train, valid and test in the files."""
        self.config, self.splits = config, dict(splits or {})

    def album(self, split: str) -> Album:
        """Return the images of a split, in the order of the files."""
        raise NotImplementedError

    def open(self, path: str | Path) -> Pixels:
        """Read a user's JPEG or PNG, with the channels and size of the album's."""
        raise NotImplementedError


class IDX(PictureData):
    """Pictures and labels in the format of MNIST (LeCun et al., 1998), plain or ``.gz``."""

    class Config(PictureData.Config, kind="idx"):
        """``{split}`` in both names is the split; the last ``held_out`` of train are valid."""

        images: str  # IDX file of the pictures, with {split}
        labels: str  # IDX file of their labels, with {split}
        held_out: int = Field(5000, ge=0)  # last pictures of train, which are valid

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
                "(N, height, width) and labels (N); do these files belong together?"
            )
        if whole == "train" and held >= len(pixels):
            raise DataError(f"{images}: held_out = {held} leaves none of {len(pixels)} to train on")
        cut = len(pixels) - held if whole == "train" else len(pixels)
        rows = range(cut, len(pixels)) if split != whole else range(cut)
        return Album(
            pixels[rows.start : rows.stop, None],
            [f"{images.name}#{n}" for n in rows],
            [[str(numbers[n])] for n in rows],
        )

    def open(self, path: str | Path) -> Pixels:
        name = self.splits.get("train", "train")
        height, width = read_idx(find(self.config.images.replace("{split}", name))).shape[1:]
        return decode(Path(path).read_bytes(), str(path), 1, (int(height), int(width)))


class ImageFiles(PictureData):
    """JPEG and PNG in a folder or a ``.tar``; a TSV says: split TAB file TAB label or caption.

    A picture is scaled until it just covers size × size, and its middle is kept. One that occurs
    in several lines has several captions.
    """

    class Config(PictureData.Config, kind="files"):
        """``channels`` 1 is grey, 3 is red, green, blue; ``size`` in pixels."""

        files: str  # folder, .tar or .zip of the pictures
        table: str  # TSV of split, file and label or caption
        size: int = Field(64, gt=0)  # pixels a side to which pictures are scaled
        channels: Literal[1, 3] = 3  # 1: grey, 3: colours

    config: Config

    def album(self, split: str) -> Album:
        table = find(self.config.table)
        texts = _table(table, self.splits.get(split, split))
        side, channels = self.config.size, self.config.channels
        pixels = np.empty((len(texts), channels, side, side), np.uint8)
        rows = {name: row for row, name in enumerate(texts)}
        place = find(self.config.files, folders=True)
        for name, content in _contents(place, rows):
            pixels[rows.pop(name)] = decode(content, f"{place}: {name}", channels, (side, side))
        if rows:
            some = ", ".join(list(rows)[:5])
            raise DataError(
                f"{table} names {len(rows)} pictures that are missing from {place}, such as "
                f"{some}; put them there, or remove their lines"
            )
        return Album(pixels, list(texts), list(texts.values()))

    def open(self, path: str | Path) -> Pixels:
        side = self.config.size
        return decode(Path(path).read_bytes(), str(path), self.config.channels, (side, side))


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Return the array of an IDX file of unsigned bytes, plain or gzip.

    The format is two zero bytes, the type, the number of axes, the length of each axis (big-endian,
    4 bytes), and then the bytes. Raises `DataError` for a damaged file or another type.
    """
    content = unpacked(path.read_bytes(), str(path))
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != UNSIGNED_BYTES:
        raise DataError(f"{path} is not an IDX file of unsigned bytes (it starts {content[:4]!r})")
    axes = content[3]
    start = 4 + 4 * axes
    if len(content) < start:
        raise DataError(f"{path} ends within its header; fetch it again")
    shape = struct.unpack(f">{axes}I", content[4:start])
    size = math.prod(shape)
    if len(content) - start != size or axes > AXES:
        raise DataError(
            f"{path} says it holds {size:,} bytes {shape}, but has {len(content) - start:,}; "
            "fetch it again"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def decode(content: bytes, name: str, channels: int, size: tuple[int, int]) -> Pixels:
    """Return a JPEG or PNG as pixels (C, height, width), scaled to cover the size and cropped.

    Raises `DataError` with its name if it cannot be read.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content)) as image:
            upright = _opaque(ImageOps.exif_transpose(image))
            upright = upright.convert("L" if channels == 1 else "RGB")
            fitted = ImageOps.fit(upright, size[::-1], Image.Resampling.BICUBIC)
    except Exception as error:  # each of Pillow's formats has its own errors
        unknown = isinstance(error, UnidentifiedImageError)  # it names an object in memory
        reason = "neither JPEG nor PNG" if unknown else error
        raise DataError(f"{name} cannot be read as a picture ({reason}); replace it") from None
    array = np.asarray(fitted, dtype=np.uint8)
    return array[None] if channels == 1 else np.ascontiguousarray(array.transpose(2, 0, 1))


def _opaque(image: Image) -> Image:
    """Return an image in 8 bits on white, as browsers show transparency."""
    from PIL import Image

    if image.mode in ("I", "F"):
        raise ValueError(f"pixels of 32 bits, Pillow's mode {image.mode}: convert it to 8 bits")
    if image.mode.startswith("I;16"):  # 16-bit grey, which Pillow clips at 255
        grey = np.asarray(image)
        clear = grey == image.info.get("transparency", -1)
        return Image.fromarray((np.where(clear, 0xFFFF, grey) >> 8).astype(np.uint8))
    if not image.has_transparency_data:
        return image
    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)


def animation(frames: Sequence[NDArray[np.uint8]], milliseconds: Sequence[int]) -> bytes:
    """Return images (H, W, 3), each shown for its time, as a WebP that repeats forever."""
    from PIL import Image

    file, (first, *others) = io.BytesIO(), (Image.fromarray(frame) for frame in frames)
    film = {"save_all": True, "append_images": others, "duration": list(milliseconds), "loop": 0}
    first.save(file, "webp", lossless=True, method=4, **(film if others else {}))
    return file.getvalue()


def _table(path: Path, split: str) -> dict[str, list[str]]:
    """Return the texts of each image of a split, in the order of their first lines."""
    texts: dict[str, list[str]] = {}
    splits: set[str] = set()
    for number, (line, why) in enumerate(decoded_lines(path), start=1):
        if not line.strip():
            continue
        if why:
            raise DataError(f"{path}:{number}: {why}")
        parts = line.split("\t")
        if len(parts) != 3:
            raise DataError(
                f"{path}:{number}: {len(parts)} columns; write split TAB file TAB label or caption"
            )
        splits.add(parts[0])
        if parts[0] == split:
            texts.setdefault(parts[1], []).append(parts[2].strip())
    if not texts:
        known = ", ".join(sorted(splits)) or "nothing"
        raise DataError(
            f"{path} has no split {split!r}, only {known}; "
            f'name it in [data]: splits = {{ {split} = "…" }}'
        )
    return texts


def _contents(place: Path, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the files of the given names in the folder, tar or zip, each once, in stored order.

    A name may leave out the folders above a file. Raises `DataError` if several then match.
    """
    wanted = {_normal(name): name for name in names}
    by_tail: dict[str, list[str]] = {}
    try:
        with _members(place) as members:
            for path in members:
                parts = PurePosixPath(path).parts
                for tail in {"/".join(parts[i:]) for i in range(len(parts))} & wanted.keys():
                    by_tail.setdefault(tail, []).append(path)
            for tail, paths in by_tail.items():
                path = tail if tail in paths else paths[0]
                if len(paths) > 1 and path != tail:
                    raise DataError(
                        f"{place} has {tail} several times, as {' and as '.join(paths[:2])}: write "
                        "the folder before the name in the table"
                    )
                yield wanted[tail], members[path]()
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, RuntimeError) as error:
        raise DataError(
            f"{place} is damaged, or not a tar or zip file ({error}); fetch it again"
        ) from None


@contextlib.contextmanager
def _members(place: Path) -> Iterator[dict[str, Callable[[], bytes]]]:
    """Yield the paths of all files in a folder, a tar or a zip, each with a function to read it."""
    if place.is_dir():
        files = (path for path in sorted(place.rglob("*")) if path.is_file())
        yield {path.relative_to(place).as_posix(): path.read_bytes for path in files}
    elif zipfile.is_zipfile(place):
        with zipfile.ZipFile(place) as archive:
            yield {_normal(name): partial(archive.read, name) for name in archive.namelist()}
    else:
        with tarfile.open(place) as tape:
            yield {_normal(m.name): partial(_extracted, tape, m) for m in tape if m.isfile()}


def _normal(path: str) -> str:
    return PurePosixPath(path).as_posix()


def _extracted(tape: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tape.extractfile(member)
    return b"" if file is None else file.read()


Size = tuple[int, int]  # height, width


class Augmentation(FromConfig):
    """Changes an image before a model sees it."""

    class Config(BaseConfig, family="augmentation"):
        """The kind of change."""

    def size(self, before: Size) -> Size:
        """Return the height and width of images afterwards."""
        return before

    def vary(self, pixels: Pixels, random: np.random.Generator) -> Pixels:
        """Return the image as training sees it, different each time."""
        return self.settle(pixels, random)

    def settle(self, pixels: Pixels, random: np.random.Generator) -> Pixels:
        """Return the image for evaluation; the generator is the same for it every time."""
        return pixels


class Unchanged(Augmentation, kind="none"):
    """The picture as it is."""


class Shift(Augmentation):
    """In training moved by up to ``pixels`` in each direction; background comes in."""

    class Config(Augmentation.Config, kind="shift"):
        pixels: int = Field(2, ge=0)  # largest shift in each direction

    config: Config

    def vary(self, pixels: Pixels, random: np.random.Generator) -> Pixels:
        by = self.config.pixels
        down, right = random.integers(0, 2 * by + 1, 2)
        _, height, width = pixels.shape
        wide = np.pad(pixels, ((0, 0), (by, by), (by, by)))
        return wide[:, down : down + height, right : right + width]


class Canvas(Augmentation):
    """Set at a place by chance on a square of background (translated MNIST; Mnih et al., 2014).

    In training the place changes from epoch to epoch; in evaluation each picture keeps its own.
    Raises `UserError` if the picture is larger than ``size``.
    """

    class Config(Augmentation.Config, kind="canvas"):
        size: int = Field(60, gt=0)
        """Pixels a side of the empty square in which the picture is placed."""

    config: Config

    def size(self, before: Size) -> Size:
        side = self.config.size
        if max(before) > side:
            raise UserError(
                f"a picture of {before[0]}×{before[1]} does not fit on a canvas of {side}×{side}: "
                "raise task.augmentation.size"
            )
        return side, side

    def settle(self, pixels: Pixels, random: np.random.Generator) -> Pixels:
        channels, height, width = pixels.shape
        side, _ = self.size((height, width))
        top, left = (int(random.integers(0, side - n + 1)) for n in (height, width))
        canvas = np.zeros((channels, side, side), np.uint8)
        canvas[:, top : top + height, left : left + width] = pixels
        return canvas


class Crop(Augmentation):
    """In training a part by chance, half of them mirrored; judged by the middle.

    Raises `UserError` if the picture is smaller than ``size``.
    """

    class Config(Augmentation.Config, kind="crop"):
        size: int = Field(56, gt=0)  # pixels a side of the part that is cut out

    config: Config

    def size(self, before: Size) -> Size:
        side = self.config.size
        if min(before) < side:
            raise UserError(
                f"no part of {side}×{side} can be cut from a picture of {before[0]}×{before[1]}: "
                "lower task.augmentation.size, or raise task.pictures.size"
            )
        return side, side

    def vary(self, pixels: Pixels, random: np.random.Generator) -> Pixels:
        _, height, width = pixels.shape
        side, _ = self.size((height, width))
        top, left = (int(random.integers(0, n - side + 1)) for n in (height, width))
        part = pixels[:, top : top + side, left : left + side]
        return part[:, :, ::-1] if random.random() < 0.5 else part

    def settle(self, pixels: Pixels, random: np.random.Generator) -> Pixels:
        _, height, width = pixels.shape
        side, _ = self.size((height, width))
        top, left = (height - side) // 2, (width - side) // 2
        return pixels[:, top : top + side, left : left + side]
