"""Sums that half precision would spoil are taken in single precision; double stays double."""

from __future__ import annotations

import torch
from torch import Tensor


def single(x: Tensor) -> Tensor:
    """The same numbers in at least single precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
