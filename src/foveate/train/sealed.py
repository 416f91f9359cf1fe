"""Folders written whole or not at all, with the size and sha256 of each of their files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from foveate.config import Tree
from foveate.errors import UserError
from foveate.files import read_bytes, sync

if TYPE_CHECKING:
    pass

MANIFEST = "manifest.json"
Record = Tree  # a JSON object
NEW, OLD = ".new-", ".old-"  # prefixes of what is being written, and of what is being replaced


class TrainError(UserError):
    """Training cannot continue: the message says what happened, what is safe, and what to do."""


class DamagedError(TrainError):
    """A folder that is not as it was written: names the file and what is wrong with it."""


@contextlib.contextmanager
def sealed_folder(target: Path, run_files: Mapping[str, str] | None = None) -> Iterator[Path]:
    """A folder to fill; at the end it gets its manifest and takes the place of ``target``.

    The manifest names its files and the `run_files` on which it depends. Whatever happens before
    that, ``target`` stays as it was and nothing half-written is left; raises `TrainError` where
    the disk refuses.
    """
    folder, old = target.with_name(NEW + target.name), target.with_name(OLD + target.name)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        yield folder
        files = {}
        for file in sorted(folder.iterdir()):
            files[file.name] = {"bytes": file.stat().st_size, "sha256": sha256(file)}
            sync(file)
        manifest = folder / MANIFEST
        tree = {"format": 1, "files": files, "run": dict(run_files or {})}
        manifest.write_text(json.dumps(tree, indent=1), encoding="utf-8")
        sync(manifest)
        sync(folder)
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)  # left by a process that was killed
            os.replace(target, old)
        os.replace(folder, target)
        sync(target.parent)
        shutil.rmtree(old, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        folders = [folder, *target.parent.glob("[!.]*")]
        sizes = [sum(f.stat().st_size for f in p.glob("*") if f.is_file()) for p in folders]
        shutil.rmtree(folder, ignore_errors=True)
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        parent = next((p for p in target.parents if p.exists()), Path())
        free = shutil.disk_usage(parent).free
        raise TrainError(
            f"cannot write {target}: {reason}. It takes at least {max(sizes) / 2**20:.1f} MiB, and "
            f"{free / 2**20:.1f} MiB are free in {parent}: make room there"
        ) from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def read_manifest(folder: Path) -> tuple[dict[str, tuple[int, str]], dict[str, str]]:
    """Bytes and sha256 of each file of a sealed folder, and the sha256 of each file of its run.

    Raises `DamagedError` where the manifest cannot be read.
    """
    try:
        tree = json.loads(read_bytes(folder / MANIFEST))
        files = {name: (e["bytes"], e["sha256"]) for name, e in tree["files"].items()}
        return files, {str(name): str(digest) for name, digest in tree.get("run", {}).items()}
    except (OSError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        raise DamagedError(f"{folder / MANIFEST} cannot be read ({error})") from None


def verify(folder: Path, only: str | None = None) -> None:
    """Compare every file with the manifest; raise `DamagedError` that names the wrong one.

    With ``only`` one file is compared, which the manifest must name.
    """
    files, _ = read_manifest(folder)
    if only is not None and only not in files:
        raise DamagedError(f"{folder / MANIFEST} names no {only}")
    for name, (size, digest) in files.items():
        if not is_beside(name):
            raise DamagedError(f"{folder / MANIFEST} names {name!r}, which is no file beside it")
        if only not in (None, name):
            continue
        file = folder / name
        if not file.is_file():
            raise DamagedError(f"{file} is missing")
        if (actual := file.stat().st_size) != size:
            raise DamagedError(f"{file} has {actual:,} bytes instead of {size}")
        if sha256(file) != digest:
            raise DamagedError(f"{file} has changed: its sha256 is not the manifest's")


def run_files(run: Path, newest: Path) -> dict[str, str]:
    """The sha256 of each file that `Task.prepare` has written into a run.

    They are verified by the ``newest`` checkpoint where there is one.
    """
    if newest.is_dir():
        return verify_run(run, newest)
    written = (f for f in run.iterdir() if f.is_file() and f.suffix not in (".jsonl", ".toml"))
    return {f.name: sha256(f) for f in sorted(written) if not f.name.startswith(".")}


def verify_run(run: Path, folder: Path) -> dict[str, str]:
    """The `run_files` of a checkpoint; raise `DamagedError` for one that is another by now.

    Checkpoints of earlier versions name none, and their runs cannot be verified.
    """
    _, files = read_manifest(folder)
    for name, digest in files.items():
        if not is_beside(name) or not (run / name).is_file():
            raise DamagedError(f"{run / name} is missing: {folder} was trained with it")
        if sha256(run / name) != digest:
            raise DamagedError(
                f"{run / name} is not the file that {folder} was trained with (its sha256 is "
                "another): put that one back"
            )
    return files


def is_beside(name: str) -> bool:
    """Whether a name that a file holds is that of a file beside it, and leads nowhere else."""
    return name not in ("", ".", "..") and Path(name).name == name


def remove(folder: Path) -> None:
    """Delete a sealed folder, atomically for readers of its name."""
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
