"""Files and folders that are whole or not there, and that know when they have been damaged.

Lives here: atomic replacement, the manifest with sizes and sha256, cleaning up after a kill.
Does not live here: what the files hold (`foveate.train.checkpoint`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

MANIFEST = "manifest.json"
NEW, OLD = ".new-", ".old-"  # prefixes of what is being written, and of what is being replaced


class TrainError(RuntimeError):
    """Training cannot go on: says what happened, what is safe, and what to do."""


class DamagedError(TrainError):
    """A folder that is not as it was written: names the file and what is wrong with it."""


def write_atomically(path: Path, text: str) -> None:
    """Replace a file by another at once: who reads sees the old text or the new."""
    new = path.with_name(NEW + path.name)
    try:
        new.write_text(text, encoding="utf-8")
        _sync(new)
        os.replace(new, path)
        _sync(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink()
        raise TrainError(f"cannot write {path}: {error.strerror}") from error


@contextlib.contextmanager
def sealed_folder(target: Path) -> Iterator[Path]:
    """A folder to fill; at the end it gets its manifest and takes the place of ``target``.

    Whatever happens before that, ``target`` stays as it was and nothing half-written is left;
    raises `TrainError` where the disk refuses.
    """
    folder = target.with_name(NEW + target.name)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        yield folder
        _seal(folder)
        _move(folder, target)
    except (OSError, SafetensorError) as error:
        needed = max(map(_size, [folder, *target.parent.glob("[!.]*")]), default=0)
        shutil.rmtree(folder, ignore_errors=True)
        raise TrainError(_refused(target, error, needed)) from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _seal(folder: Path) -> None:
    files = {}
    for file in sorted(folder.iterdir()):
        files[file.name] = {"bytes": file.stat().st_size, "sha256": sha256(file)}
        _sync(file)
    manifest = folder / MANIFEST
    manifest.write_text(json.dumps({"format": 1, "files": files}, indent=1), encoding="utf-8")
    _sync(manifest)
    _sync(folder)


def _move(folder: Path, target: Path) -> None:
    old = target.with_name(OLD + target.name)
    if target.exists():
        shutil.rmtree(old, ignore_errors=True)  # left by a process that was killed
        os.replace(target, old)
    os.replace(folder, target)
    _sync(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _refused(target: Path, error: Exception, needed: int) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    place = next((p for p in target.parents if p.exists()), Path())
    free = shutil.disk_usage(place).free
    return (
        f"cannot write {target}: {reason}. It takes at least {needed / 2**20:.1f} MiB, and "
        f"{free / 2**20:.1f} MiB are free in {place}: make room there"
    )


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*") if file.is_file())


def verify(folder: Path, only: str | None = None) -> None:
    """Compare every file with the manifest; raise `DamagedError` that names the wrong one.

    With ``only`` one file is compared, which the manifest must name.
    """
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        entries = [(name, e["bytes"], e["sha256"]) for name, e in files.items()]
    except (OSError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        raise DamagedError(f"{folder / MANIFEST} cannot be read ({error})") from None
    if only is not None and only not in files:
        raise DamagedError(f"{folder / MANIFEST} names no {only}")
    for name, size, digest in entries:
        if not is_beside(name):
            raise DamagedError(f"{folder / MANIFEST} names {name!r}, which is no file beside it")
        if only in (None, name):
            _compare(folder / name, size, digest)


def is_beside(name: str) -> bool:
    """Whether a name that a file holds is that of a file beside it, and leads nowhere else."""
    return name not in ("", ".", "..") and Path(name).name == name


def _compare(file: Path, size: Any, digest: Any) -> None:
    if not file.is_file():
        raise DamagedError(f"{file} is missing")
    if (found := file.stat().st_size) != size:
        raise DamagedError(f"{file} has {found:,} bytes instead of {size}")
    if sha256(file) != digest:
        raise DamagedError(f"{file} has changed: its sha256 is not the manifest's")


def remove(folder: Path) -> None:
    """Delete a sealed folder, at once for those who look by its name."""
    gone = folder.with_name(NEW + folder.name)
    shutil.rmtree(gone, ignore_errors=True)
    os.replace(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)


def clean(place: Path) -> None:
    """Undo in a folder what a killed process left half-written or half-replaced."""
    for old in place.glob(OLD + "*"):
        target = old.with_name(old.name.removeprefix(OLD))
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.replace(old, target)
    for new in place.glob(NEW + "*"):
        if new.is_dir():
            shutil.rmtree(new, ignore_errors=True)
        else:
            new.unlink()


def sha256(file: Path) -> str:
    """The sha256 of a file's content, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows has no handle of a folder to wait for
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
