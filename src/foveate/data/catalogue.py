"""Data sets by name: their descriptions, checksums and download."""

import contextlib
import functools
import gzip
import hashlib
import io
import os
import re
import time
import tomllib
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Literal
from urllib.parse import urljoin

from foveate.config import PACKAGED, Config
from foveate.errors import UserError
from foveate.files import cache_folder, replace_file


class DataError(UserError):
    """Data that is missing, damaged or badly formed: gives the file, the line and the fix."""


class MissingData(DataError):
    """No file or no share for a split; the fix differs before and after training."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason} {remedy}")
        self.reason = reason


class File(Config):
    """One file of a set, as stored in a mirror.

    ``sha256`` and ``bytes`` are those of the file itself, ``content_sha256`` that of the content of
    a ``.gz`` (absent: the file is not packed). ``origin`` is its address, relative to that of the
    set (absent: it cannot be made from there); ``convert`` says how the original becomes this file.
    """

    name: str
    count: int
    unit: str = "lines"
    origin: str | None = None
    convert: Literal["member", "column", "strip"] | None = None
    argument: str = ""
    bytes: int
    sha256: str
    content_sha256: str | None = None

    @property
    def content(self) -> str:
        """The checksum that identifies the file, however it is packed."""
        return self.content_sha256 or self.sha256


class DataSet(Config):
    """One set: its licence and attribution in short, its public address and its files.

    ``address`` is the folder that the origins of the files are relative to; ``page`` is for people.
    ``differs`` states why a set cannot be made from its public address.
    """

    name: str
    title: str
    task: str
    languages: tuple[str, ...]
    page: str
    address: str = ""
    licence: str
    attribution: str
    differs: str | None = None
    note: str = ""
    files: tuple[File, ...]

    @property
    def bytes(self) -> int:
        """Total size of all files."""
        return sum(file.bytes for file in self.files)


@functools.cache
def catalogue() -> dict[str, DataSet]:
    """Return every set by its name, which is also the name of its folder."""
    tables = tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8"))
    return {name: DataSet.parse({"name": name, **table}) for name, table in tables.items()}


def named(name: str) -> DataSet:
    """Return the set of that name; raise `DataError` listing the available names."""
    known = catalogue()
    if name not in known:
        raise DataError(f"unknown data set {name!r}; available: {', '.join(known)}")
    return known[name]


Progress = Callable[[str, int, int | None], None]  # file, bytes so far, total bytes if known
ATTEMPTS = 3
PAUSE = 0.5  # seconds before the second attempt, twice as many before the third
PATIENCE = 30  # seconds without a byte until an attempt counts as failed
CHUNK = 1 << 16


def mirror_folder() -> Path | None:
    """Return the folder of data sets set in ``FOVEATE_DATA``."""
    folder = os.environ.get("FOVEATE_DATA")
    return Path(folder).expanduser() if folder else None


def find(path: str | Path, folders: bool = False) -> Path:
    """Return the file at a path, or, for a relative path, below ``FOVEATE_DATA`` or the cache.

    ``multi30k/train.en`` also resolves to ``$FOVEATE_DATA/multi30k/train.en.gz``: in every place, a
    missing file is replaced by the one with ``.gz`` after its name. With ``folders`` a folder of
    that name counts too. Raise `DataError` that lists the places and the fix.
    """
    expanded = Path(path).expanduser()
    roots = [Path(), mirror_folder(), cache_folder()]
    if expanded.parts[:1] == ("packaged",):  # data of foveate's own runs
        roots.append(PACKAGED.parent)
    places = list(dict.fromkeys(root / expanded for root in roots if root is not None))
    for place in places:
        for candidate in (place, Path(f"{place}.gz")):
            if candidate.exists() and (folders or not candidate.is_dir()):
                return candidate
    listed = ", ".join(str(place) for place in places)
    reason = f"no file {expanded} (nor with .gz); looked for {listed}."
    folder = next((p.parent for p in places[1:] or places if p.parent.is_dir()), None)
    if folder is not None:
        raise MissingData(reason, _files_in(folder, places[0].suffix))
    name = places[0].parts[0] if places[0].parts else ""
    remedy = f"To fetch it: foveate data get {name}"
    raise DataError(
        f"{reason} {remedy if name in catalogue() else 'Sets to fetch: foveate data list'}"
    )


def _files_in(folder: Path, ending: str) -> str:
    """Return the files of a folder with this ending, and how to set other names for splits."""
    files = [f for f in sorted(folder.iterdir()) if not f.name.startswith(".")]
    names = [f.name for f in files if not ending or ending in f.suffixes]
    present = ", ".join(names[:8] + ["…"] * (len(names) > 8)) or f"no {ending or 'file'}"
    return f'{folder} has {present}; other names for splits: data.splits = {{ valid = "val" }}'


def get(name: str | DataSet, into: Path | None = None, mirror: Path | None = None,
        progress: Progress | None = None) -> Path:  # fmt: skip
    """Put a set of the catalogue into the folder ``into/name`` (the cache) and return that.

    Files come from a folder of sets, ``mirror`` or ``FOVEATE_DATA``, or else from the public
    address. The sha256 of each content is verified before the file is put in place atomically; what
    is already there and correct is not touched. Raise `DataError` with address and fix after all
    files were tried; the others remain, and an empty folder is removed.
    """
    data = named(name) if isinstance(name, str) else name
    folder = (into or cache_folder()) / data.name
    mirror = mirror or mirror_folder()
    failed: dict[str, DataError] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        missing = [file for file in data.files if not _is_there(folder / file.name, file)]
        import tempfile

        with tempfile.TemporaryDirectory(prefix=".get-", dir=folder) as scratch:
            for file in missing:
                try:
                    _put(_verified(data, file, mirror, Path(scratch), progress), folder / file.name)
                except DataError as error:
                    failed[file.name] = error
        if not any(folder.iterdir()):
            folder.rmdir()
    except OSError as error:
        raise DataError(f"cannot write {error.filename or folder}: {error.strerror}") from error
    if failed:
        first, others = next(iter(failed.values())), len(data.files) - len(failed)
        rest = f"; missing: {', '.join(failed)}; the others are in {folder}" if others else ""
        raise DataError(f"{first}{rest}") from first
    return folder


def _is_there(place: Path, file: File) -> bool:
    with contextlib.suppress(DataError, OSError):
        return _sha256(unpacked(place.read_bytes(), str(place))) == file.content
    return False


def _verified(
    data: DataSet, file: File, mirror: Path | None, scratch: Path, progress: Progress | None
) -> bytes:
    if mirror is not None:
        content, where = _from_mirror(data, file, mirror)
    else:
        content, where = _from_origin(data, file, scratch, progress)
    digest = _sha256(unpacked(content, where))
    if digest != file.content:
        raise DataError(
            f"{where} is not the {file.name} that the catalogue knows: its content has sha256"
            f" {digest}, not {file.content}. Nothing was kept; fetch again or use another mirror"
        )
    return content


def _from_mirror(data: DataSet, file: File, mirror: Path) -> tuple[bytes, str]:
    places = [mirror / data.name / name for name in (file.name, file.name.removesuffix(".gz"))]
    for place in places:
        if place.is_file():
            return place.read_bytes(), str(place)
    raise DataError(
        f"no {places[0]}; the mirror {mirror} needs a folder {data.name} with {file.name}, or, to"
        f" take the set from {data.page}, leave out --mirror and unset FOVEATE_DATA"
    )


def _from_origin(
    data: DataSet, file: File, scratch: Path, progress: Progress | None
) -> tuple[bytes, str]:
    if file.origin is None:
        raise DataError(
            f"{data.name} cannot be made from its public address {data.address or data.page}:"
            f" {data.differs}. From a folder that holds it: {_by_mirror(data)}"
        )
    address = urljoin(data.address, file.origin)
    original = scratch / _sha256(address.encode())  # one archive may serve several files
    if not original.exists():
        _download(address, original, file, data, progress)
    content = original.read_bytes()
    try:
        return _CONVERT[file.convert](content, file.argument), address
    except (KeyError, IndexError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{address} is not what {file.name} was made from: {error}") from None


def _by_mirror(data: DataSet) -> str:
    return f"foveate data get {data.name} --mirror DIR (or FOVEATE_DATA=DIR)"


def _download(
    address: str, place: Path, file: File, data: DataSet, progress: Progress | None
) -> None:
    """Fetch an address in at most three attempts; errors that a retry cannot fix end it at once."""
    from http.client import HTTPException
    from urllib.error import HTTPError

    reason = ""
    for attempt in range(ATTEMPTS):
        time.sleep(PAUSE * attempt)
        try:
            return _stream(address, place, file, progress)
        except HTTPError as error:
            error.close()
            reason = f"{error.code} {error.reason}"
            if error.code < 500 and error.code != 429:
                break
        except (OSError, HTTPException) as error:
            reason = str(error) or type(error).__name__
    raise DataError(
        f"cannot fetch {address} ({reason}; {attempt + 1} of {ATTEMPTS} attempts)."
        f" Without a network: {_by_mirror(data)}"
    )


def _stream(address: str, place: Path, file: File, progress: Progress | None) -> None:
    from urllib.request import urlopen

    partial = place.with_suffix(".part")
    with urlopen(address, timeout=PATIENCE) as answer, partial.open("wb") as out:
        length = answer.headers.get("Content-Length")
        total = int(length) if length else None
        done = 0
        while chunk := answer.read(CHUNK):
            done += out.write(chunk)
            if progress is not None:
                progress(file.name, done, total)
    if total is not None and done != total:
        raise ConnectionError(f"the connection closed after {done} of {total} bytes")
    partial.rename(place)


def _member(content: bytes, name: str) -> bytes:
    """Return the member of a zip archive whose path ends in a name."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {PurePosixPath(path).name: path for path in archive.namelist()}
        return archive.read(members[name])


def _column(content: bytes, number: str) -> bytes:
    """Return one column, from 1, of lines ``source ||| target``, without spaces around it."""
    lines = content.removesuffix(b"\n").split(b"\n")
    return b"".join(line.split(b"|||")[int(number) - 1].strip() + b"\n" for line in lines)


_CONVERT: dict[str | None, Callable[[bytes, str], bytes]] = {
    None: lambda content, _: content,
    "member": _member,
    "column": _column,
    "strip": lambda content, _: re.sub(rb" +\t", b"\t", content),  # spaces before a tab
}


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def unpacked(content: bytes, where: str) -> bytes:
    """Return what a file holds, unpacked if it is gzip. Raises `DataError` for a damaged one."""
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{where} is a damaged gzip file: {error}; fetch it again") from None


def _put(content: bytes, place: Path) -> None:
    """Write a file atomically, gzipped or plain according to its name."""
    if place.suffix == ".gz" and not content.startswith(b"\x1f\x8b"):
        content = gzip.compress(content, mtime=0)
    elif place.suffix != ".gz":
        content = unpacked(content, str(place))
    replace_file(place, content, mode=0o644)
