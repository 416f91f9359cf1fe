"""Tensors in files that a stranger may have written: bounded, verified, and never unpickled.

    8 bytes     N, the length of the header (unsigned, little-endian)
    N bytes     the header, JSON: for each tensor its dtype, shape and place
    the rest    the tensors

A tensor of which each rank holds a part (`torch.distributed.tensor.DTensor`) is seen as whole.
"""

from __future__ import annotations

import contextlib
import errno
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeGuard, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from foveate.train.sealed import DamagedError, TrainError

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

WEIGHTS = "model.safetensors"  # its name in a checkpoint
HEADER = 16 * 2**20  # bytes at most; a tensor takes about 100, so 160,000 tensors
FOREIGN = {b"PK": "a ZIP archive", b"\x80": "a pickle", b"\x1f\x8b": "packed by gzip"}


class Slice(Protocol):
    """A tensor of an open file, not yet read."""

    def get_shape(self) -> list[int]:
        """Its sizes along each axis."""
        ...


class TensorFile(Protocol):
    """An open file of named tensors, as ``safetensors.safe_open`` gives it."""

    def keys(self) -> list[str]:
        """The names of the tensors."""
        ...

    def get_tensor(self, name: str) -> Tensor:
        """Read a tensor."""
        ...

    def get_slice(self, name: str) -> Slice:
        """A tensor without reading it."""
        ...


@contextlib.contextmanager
def opened(path: Path) -> Iterator[TensorFile]:
    """A file of tensors, open for reading as by ``safetensors.safe_open``.

    Raises `DamagedError` that names the file where it is missing, of another kind, cut off, or
    damaged. A header is read into memory only if it is not too long.
    """
    try:
        if not path.is_file() and path.exists():
            raise OSError(errno.EINVAL, "it is no regular file")
        with path.open("rb") as stream:
            head = stream.read(8)
        size = path.stat().st_size
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror}") from None
    length = int.from_bytes(head, "little")
    if len(head) < 8 or length > min(size - 8, HEADER):
        why = f"it has {size:,} bytes, and its header would have {length:,}"
        if len(head) == 8 and length <= size - 8:
            why = f"its header has {length:,} bytes, and {HEADER:,} are the most that is read"
        for begin, kind in FOREIGN.items():
            if head.startswith(begin) and length > size:
                why = f"it looks like {kind}, which is never opened, for it could run any code"
        raise DamagedError(f"{path} is no safetensors file: {why}")
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise DamagedError(f"{path} is no sound safetensors file ({error})") from None


@dataclass(frozen=True)
class Size:
    """How many tensors a file has, and how many numbers they hold together."""

    tensors: int
    numbers: int

    def __str__(self) -> str:
        return f"the weights are {self.numbers:,} numbers in {self.tensors:,} tensors"


def size_of(file: TensorFile) -> Size:
    """The size of an open file, by its header."""
    shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
    return Size(len(shapes), sum(map(math.prod, shapes)))


def is_shard(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether this rank holds a part of it only."""
    return hasattr(tensor, "full_tensor")


def own_part(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor, as a plain tensor on the same memory."""
    return tensor.to_local() if is_shard(tensor) else tensor


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
    """Each name in the state of a model, and the first name of the same tensor."""
    first: dict[object, str] = {}
    names = {}
    for name, tensor in cast(dict[str, Tensor], model.state_dict(keep_vars=True)).items():
        place: object = id(tensor)
        if not is_shard(tensor):
            storage = tensor.untyped_storage().data_ptr()
            place = storage, tensor.storage_offset(), tensor.shape
        names[name] = first.setdefault(place, name) if tensor.numel() else name
    return names


def own_tensors(model: nn.Module) -> dict[str, Tensor]:
    """A model's tensors, a tied one once."""
    state = cast(dict[str, Tensor], model.state_dict())
    return {name: state[name] for name in dict.fromkeys(_names(model).values())}


def save_weights(model: nn.Module, path: Path) -> None:
    """Write the weights of a model, tied ones once."""
    write_tensors(own_tensors(model), path)


def write_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write named tensors; the same tensors give the same bytes."""
    plain = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    save_file(plain, path, metadata={"format": "pt"})  # further keys would stand in random order


def load_weights(model: nn.Module, path: Path) -> None:
    """Copy the weights of a file into ``model``; raise `TrainError` where they do not fit."""
    own = cast(dict[str, Tensor], model.state_dict())
    needed = set(_names(model).values())
    with opened(path) as file, torch.no_grad():
        there = set(file.keys())
        if there != needed:
            few, many = sorted(needed - there), sorted(there - needed)
            raise TrainError(
                f"{path} is of another model: it lacks {few[:3] or 'nothing'} and has "
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
            if value.dtype != tensor.dtype:
                raise TrainError(f"{path}: {name} is {value.dtype} there, not {tensor.dtype}")
            # a sum is quickly had; a large one may overflow
            if not (math.isfinite(value.sum()) or bool(value.isfinite().all())):
                raise TrainError(
                    f"{path}: {name} holds NaN or infinite numbers, so that every output would be "
                    "nonsense; take another checkpoint (--checkpoint), or train again"
                )
            assign(tensor, value)
