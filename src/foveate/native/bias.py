"""The bias of a linear map, and the ReLU that may follow, added to rows in their place."""

from __future__ import annotations

import torch
from torch import Tensor

from foveate.native.kernels import at, library


def add_bias_(y: Tensor, bias: Tensor | None, relu: bool = False) -> Tensor:
    """Y + b, or max(0, y + b) with ``relu``, of rows (N, O), in their place; None is no b."""
    if bias is None and not relu:
        return y
    kernels = library() if y.dtype == torch.bfloat16 and y.device.type == "cpu" else None
    bias = y.new_zeros(y.shape[1], dtype=torch.float32) if bias is None else bias.float()
    if kernels is None:
        y += bias.to(y.dtype)
        return y.relu_() if relu else y
    kernels.add_bias(*y.shape, at(y), at(bias), relu, torch.get_num_threads())
    return y
