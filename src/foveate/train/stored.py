"""The files of a training: folders written whole or not at all, tensors that are never unpickled.

A stranger may have written them, or a disk damaged them: sizes are bounded and the sha256 of each
file is verified before it is used. A file of tensors (safetensors) has

    8 bytes     N, the length of the header (unsigned, little-endian)
    N bytes     the header, JSON: for each tensor its dtype, shape and position
    the rest    the tensors

A tensor of which each rank holds a part (`torch.distributed.tensor.DTensor`) is seen as whole.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from foveate.config import ConfigError, Tree
from foveate.errors import UserError
from foveate.files import read_bytes, sync, write_text

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

MANIFEST = "manifest.json"
Record = Tree  # a JSON object
NEW, OLD = ".new-", ".old-"  # prefixes of what is being written, and of what is being replaced
WEIGHTS = "model.safetensors"  # its name in a checkpoint
HEADER = 16 * 2**20  # bytes at most; a tensor takes about 100, so 160,000 tensors
FOREIGN = {b"PK": "a ZIP archive", b"\x80": "a pickle", b"\x1f\x8b": "packed by gzip"}
SMALL = 10_000_000  # the largest number of any config, whatever the weights
TABLES = 50_000_000  # numbers that are made beside the weights at most
MAKERS = (torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn, torch.full, torch.arange)


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
        write_text(manifest, json.dumps(tree, indent=1))
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
            raise DamagedError(f"{folder / MANIFEST} names {name!r}, which is not a file beside it")
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
    """Return the sha256 of each file that `Task.prepare` has written into a run.

    They are verified by the ``newest`` checkpoint where there is one. Other files in the folder,
    such as a log of the user's, may change.
    """
    if newest.is_dir():
        return verify_run(run, newest)
    written = (f for f in run.iterdir() if f.is_file() and f.suffix in (".json", ".align"))
    return {f.name: sha256(f) for f in sorted(written)}


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
    """Return whether a name in a file is that of a file beside it, and leads nowhere else."""
    return name not in ("", ".", "..") and Path(name).name == name


def remove(folder: Path) -> None:
    """Delete a sealed folder, atomically for readers of its name."""
    gone = folder.with_name(NEW + folder.name)
    shutil.rmtree(gone, ignore_errors=True)
    os.replace(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)


def clean(folder: Path) -> None:
    """Undo in a folder what a killed process left half-written or half-replaced."""
    for old in folder.glob(OLD + "*"):
        target = old.with_name(old.name.removeprefix(OLD))
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.replace(old, target)
    for new in folder.glob(NEW + "*"):
        if new.is_dir():
            shutil.rmtree(new, ignore_errors=True)
        else:
            new.unlink()


def sha256(file: Path) -> str:
    """The sha256 of a file's content, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def opened(path: Path) -> Iterator[safe_open]:
    """A file of tensors, open for reading as by ``safetensors.safe_open``.

    Raises `DamagedError` that names the file where it is missing, of another kind, cut off, or
    damaged. A header is read into memory only if it is not too long.
    """
    try:
        if not path.is_file() and path.exists():
            raise OSError(errno.EINVAL, "it is not a regular file")
        with path.open("rb") as stream:
            head = stream.read(8)
        size = path.stat().st_size
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror}") from None
    length = int.from_bytes(head, "little")
    if len(head) < 8 or length > min(size - 8, HEADER):
        why = f"it has {size:,} bytes, and its header would have {length:,}"
        if len(head) == 8 and length <= size - 8:
            why = f"its header has {length:,} bytes, and {HEADER:,} are the most allowed"
        for begin, kind in FOREIGN.items():
            if head.startswith(begin) and length > size:
                why = f"it looks like {kind}, which is never opened, since it could run any code"
        raise DamagedError(f"{path} is not a safetensors file: {why}")
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise DamagedError(f"{path} is not a valid safetensors file ({error})") from None


@dataclass(frozen=True)
class Size:
    """The number of tensors in a file, and of the numbers in them."""

    tensors: int
    numbers: int

    def __str__(self) -> str:
        return f"the weights are {self.numbers:,} numbers in {self.tensors:,} tensors"


def size_of(file: safe_open) -> Size:
    """The size of an open file, by its header."""
    shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
    return Size(len(shapes), sum(map(math.prod, shapes)))


def is_shard(tensor: Tensor) -> TypeGuard[DTensor]:
    """Return whether this rank holds only a part of a tensor."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor; for a shard every rank must call it, and each gets a copy of its own."""
    return tensor.full_tensor() if is_shard(tensor) else tensor


def assign(target: Tensor, value: Tensor) -> None:
    """Copy a whole tensor into another; a shard takes its part, without collectives."""
    if is_shard(target):
        from torch.distributed.tensor import distribute_tensor

        mesh, placements = target.device_mesh, target.placements
        value = distribute_tensor(value.to(target.device), mesh, placements, src_data_rank=None)
    target.copy_(value)


def _names(model: nn.Module) -> dict[str, str]:
    """Each name in the state of a model, and the first name of the same tensor.

    What is frozen beside adapters is left out: the run that they started from has it.
    """
    first: dict[object, str] = {}
    names = {}
    state: dict[str, Tensor] = model.state_dict(keep_vars=True)
    adapted = any(".parametrizations." in name for name in state)
    for name, tensor in state.items():
        if adapted and isinstance(tensor, nn.Parameter) and not tensor.requires_grad:
            continue
        memory: object = id(tensor)
        if not is_shard(tensor):
            memory = tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.shape
        names[name] = first.setdefault(memory, name) if tensor.numel() else name
    return names


def own_tensors(model: nn.Module) -> dict[str, Tensor]:
    """A model's tensors, a tied one once."""
    state: dict[str, Tensor] = model.state_dict()
    return {name: state[name] for name in dict.fromkeys(_names(model).values())}


def write_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write named tensors; the same tensors give the same bytes."""
    plain = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    save_file(plain, path, metadata={"format": "pt"})  # further keys would stand in random order


def load_weights(model: nn.Module, path: Path) -> None:
    """Copy the weights of a file into ``model``; raise `TrainError` where they do not fit."""
    own: dict[str, Tensor] = model.state_dict()
    needed = set(_names(model).values())
    with opened(path) as file, torch.no_grad():
        there = set(file.keys())
        if there != needed:
            few, many = sorted(needed - there), sorted(there - needed)
            raise TrainError(
                f"{path} belongs to another model: it lacks {few[:3] or 'nothing'} and has "
                f"{many[:3] or 'nothing'} besides; use the config.toml beside it"
            )
        for name in sorted(needed):
            shape, tensor = tuple(file.get_slice(name).get_shape()), own[name]
            if shape != tuple(tensor.shape):
                raise TrainError(
                    f"{path}: {name} is {shape} there and {tuple(tensor.shape)} in "
                    "the model: a size or the vocabulary has changed; use the config.toml beside it"
                )
            value = file.get_tensor(name)
            if value.dtype not in (tensor.dtype, tensor.is_floating_point() and torch.float16):
                raise TrainError(f"{path}: {name} is {value.dtype} there, not {tensor.dtype}")
            # a sum is quickly had; a large one may overflow
            if not (math.isfinite(value.sum()) or bool(value.isfinite().all())):
                raise TrainError(
                    f"{path}: {name} holds NaN or infinite numbers, so every output would be "
                    "nonsense; use another checkpoint (--checkpoint), or train again"
                )
            assign(tensor, value)


def refuse_larger(value: object, there: Size, where: str) -> None:
    """Raise ``ConfigError`` for a number of a config that is larger than all its weights."""
    if isinstance(value, dict):
        for key, part in value.items():
            refuse_larger(part, there, f"{where}.{key}")
    elif isinstance(value, list):
        for part in value:
            refuse_larger(part, there, where)
    elif isinstance(value, int) and abs(value) > max(there.numbers, SMALL):
        raise ConfigError(f"{where} = {value:,} cannot be: {there}")


class Within(TorchFunctionMode):
    """Within, this thread may make tensors of so many numbers together, and no more of them.

    A tied weight is made more than once, and so are tables that no file keeps. Raises
    ``ConfigError`` before more is made.
    """

    def __init__(self, there: Size, where: str) -> None:
        super().__init__()
        self.there, self.where = there, where
        self.numbers, self.tensors = 8 * there.numbers + TABLES, 16 * there.tensors + 1000

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Record | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if func in MAKERS:
            self.numbers -= _numbers((*args, kwargs.get("size", ())))
            self.tensors -= 1
            if self.numbers < 0 or self.tensors < 0:
                larger = f"{self.where} asks for a larger model than is there"
                raise ConfigError(f"{larger}: {self.there}")
        return func(*args, **kwargs)


def _numbers(size: object) -> int:
    """Return how many numbers a tensor of a size has, given as numbers or as lists of them."""
    if isinstance(size, Sequence):
        return math.prod(map(_numbers, size))
    return max(1, int(size)) if isinstance(size, int | float) else 1
