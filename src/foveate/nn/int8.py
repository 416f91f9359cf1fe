"""Weights in eight bits: a quarter of the memory, and products of whole numbers.

    y = s_x s_w ⊙ (W_q x_q) + b,   W_q = round(W / s_w), s_w = max |W| / 127 of each output,
                                   x_q = round(x / s_x), s_x = max |x| / 127 of each vector

(dynamic symmetric quantisation; Jacob et al., 2018). For use, not for training. Lives here: the
equation and its module. Does not live here: the kernel (`foveate.native`), which gives the same.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from foveate.native.kernels import fits, library
from foveate.native.linear import Packed, mapped, pack_int8

FOURS = 4  # inputs that one instruction multiplies


class Int8Linear(nn.Module):
    """A linear map whose weights, and what comes in, are rounded to whole numbers up to 127."""

    weight: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().float()
        scale = weight.abs().amax(dim=1).clamp(min=1e-12) / 127
        bias = None if linear.bias is None else linear.bias.detach().float()
        self.register_buffer("weight", (weight / scale[:, None]).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.register_buffer("bias", bias)
        self._pack: Packed | None = None

    def pack(self) -> Packed | None:
        """The weights as the kernels read them, made once; None without kernels."""
        kernels = library()
        if self._pack is None and kernels is not None and self.weight.device.type == "cpu":
            self._pack = pack_int8(self.weight, self.scale, self.bias, kernels.int8_panel())
        return self._pack

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B O"]:
        x = x.float().contiguous()
        packed = self.pack() if fits(x) else None
        if packed is None:
            return self.plain(x)
        return mapped(packed, x)

    def plain(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B O"]:
        """The same by PyTorch: sums of whole numbers that fp32 holds exactly."""
        most = x.abs().amax(dim=-1, keepdim=True)
        whole = (x * (127 / most).nan_to_num(posinf=0)).round()
        y = F.linear(whole, self.weight.to(x.dtype)) * (most / 127) * self.scale
        return y if self.bias is None else y + self.bias

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_pack": None}  # pointers are not for other processes


def quantized(model: nn.Module) -> nn.Module:
    """A copy of a model whose linear maps are in eight bits; what else it has stays fp32."""
    made = copy.deepcopy(model)
    for module in list(made.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear) and child.in_features % FOURS == 0:
                setattr(module, name, Int8Linear(child))
    return made
