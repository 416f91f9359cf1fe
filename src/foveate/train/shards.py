"""Tensors of which each rank holds a part (`torch.distributed.tensor.DTensor`), seen as whole.

Lives here: making one whole, and filling its parts from a whole one. A plain tensor is its own
whole, so that nobody else has to ask. Does not live here: who shards (`foveate.train.parallel`).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor


def is_shard(tensor: Tensor) -> bool:
    """Whether this rank holds a part of it only."""
    return hasattr(tensor, "full_tensor")


def own_part(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor, as a plain tensor on the same memory."""
    part: Any = tensor
    return part.to_local() if is_shard(tensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor; for a shard every rank must call it, and each gets a copy of its own."""
    part: Any = tensor
    return part.full_tensor() if is_shard(tensor) else tensor


def assign(target: Tensor, value: Tensor) -> None:
    """Copy a whole tensor into another; a shard takes its part, and speaks to nobody."""
    if is_shard(target):
        from torch.distributed.tensor import distribute_tensor

        shard: Any = target
        value = value.to(target.device)
        value = distribute_tensor(value, shard.device_mesh, shard.placements, src_data_rank=None)
    target.copy_(value)
