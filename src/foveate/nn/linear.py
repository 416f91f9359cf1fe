"""Linear maps, their autocast dtype, 8-bit weights, dropout, and normalization."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from foveate.config import BaseConfig, Configurable
from foveate.native.kernels import fits, library
from foveate.native.layers import EVEN, Packed, add_bias_, dropped, mapped, outer, pack_int8


def reduced(x: Tensor) -> Tensor:
    """X in the type of the products under autocast; itself elsewhere.

    Autocast turns what each map reads into its type by itself; maps that read what was turned
    before share that, and their gradients are summed before they are turned back.
    """
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


# ------------------------------------------------------------------------------------------ single
# Sums that half precision would spoil are taken in single precision; double stays double.


def single(x: Tensor) -> Tensor:
    """The same numbers in at least single precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


# ------------------------------------------------------------------------------------------ linear
# Linear maps in bf16 on a CPU: products of few shapes, however many rows a batch has.
#
# A library makes a kernel for each shape of matrices that it meets, which takes as long as some
# products and stays in memory. So most rows go in one product of a multiple of `EVEN`, and the
# last
# `EVEN` in one more; the rows that both have come out alike.


class _Map(torch.autograd.Function):
    """Y = f(X Wᵀ + b), f the identity or ReLU; dX = G W, dW = Gᵀ X, db = Σ_n g_n, G being dY ⊙ f'.

    W and b are fp32, X is bf16.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
        rows, weight = x.reshape(-1, x.shape[-1]), weight.to(x.dtype)
        y = x.new_empty(len(rows), len(weight))
        for some in spans(len(rows)):
            torch.mm(rows[some], weight.T, out=y[some])
        add_bias_(y, bias, relu)
        ctx.save_for_backward(rows, weight, y if relu else None)
        ctx.shape = x.shape
        return y.view(*x.shape[:-1], len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, y = ctx.saved_tensors
        grad = grads[0].reshape(len(rows), -1)
        if y is not None:
            grad = torch.ops.aten.threshold_backward(grad, y, 0)
        of_x, of_weight, of_bias, _ = ctx.needs_input_grad
        dx = torch.empty_like(rows) if of_x else None
        if dx is not None:
            for some in spans(len(rows)):
                torch.mm(grad[some], weight, out=dx[some])
        dw, db = outer(grad, rows, of_bias) if of_weight or of_bias else (None, None)
        return None if dx is None else dx.view(ctx.shape), dw, db, None


def spans(count: int) -> list[slice]:
    """Some rows and the last `EVEN`, which may overlap."""
    whole = count // EVEN * EVEN
    if whole in (0, count):
        return [slice(0, count)]
    return [slice(0, whole), slice(count - EVEN, count)]


class Linear(nn.Linear):
    """W x + b; under autocast to bf16 on a CPU with products of few shapes."""

    def forward(self, x: Float[Tensor, "*B I"], relu: bool = False) -> Float[Tensor, "*B O"]:
        """W x + b, or with ``relu`` what is positive of it."""
        x = reduced(x)
        if x.device.type != "cpu" or x.dtype != torch.bfloat16 or not torch.is_grad_enabled():
            y = super().forward(x)
            return F.relu(y) if relu else y
        y = _Map.apply(x, self.weight, self.bias, relu)  # type: ignore[no-untyped-call]
        return y


# -------------------------------------------------------------------------------------------- int8
# Weights in eight bits: a quarter of the memory, and products of whole numbers.
#
#     y = s_x s_w ⊙ (W_q x_q) + b,   W_q = round(W / s_w), s_w = max |W| / 127 of each output,
#                                    x_q = round(x / s_x), s_x = max |x| / 127 of each vector
#
# (dynamic symmetric quantisation; Jacob et al., 2018). For use, not for training. Lives here: the
# equation and its module. Does not live here: the kernel (`foveate.native`), which gives the same.

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


# ----------------------------------------------------------------------------------------- dropout
# Dropout whose masks are cheap on a CPU: one random 64-bit integer decides eight elements.
#
# The integers follow from a seed and the place, so that no mask is kept for the way back.


class _ByteDropout(torch.autograd.Function):
    """y = x + m ⊙ change / (1 − p̂); keeps the seed of m."""

    @staticmethod
    def forward(ctx: Any, change: Tensor, drop: int, x: Tensor | None) -> Tensor:
        seed = int(torch.empty((), dtype=torch.int64).random_(-(2**63), None))
        ctx.seed, ctx.drop, ctx.dtype, ctx.sum = seed, drop, change.dtype, x is not None
        wide = change.dtype if x is None else torch.promote_types(change.dtype, x.dtype)
        return dropped(change, seed, drop, wide, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, Tensor | None]:
        grad = grads[0]
        return dropped(grad, ctx.seed, ctx.drop, ctx.dtype), None, grad if ctx.sum else None


class Dropout(nn.Module):
    """Each element is zeroed with probability p and the rest scaled by 1/(1 − p) in training.

    On a CPU p is rounded down to a multiple of 1/256, so that a random byte decides; elsewhere
    PyTorch's own kernel is used.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def extra_repr(self) -> str:
        return f"p={self.p}"

    def forward(self, change: Tensor, x: Tensor | None = None) -> Tensor:
        """The change with dropout, added to ``x`` where that is given."""
        drop = int(256 * self.p)
        if self.training and drop and change.device.type == "cpu":
            y: Tensor = _ByteDropout.apply(change, drop, x)  # type: ignore[no-untyped-call]
            return y
        if self.training and drop:
            change = F.dropout(change, self.p)
        return change if x is None else x + change


# ------------------------------------------------------------------------------------ normalization


class Norm(Configurable, nn.Module):
    """Brings each hidden vector (…, D) to a common scale."""

    class Config(BaseConfig, family="norm"):
        """Which norm, and its ε."""

        eps: float = 1e-5  # added to the variance

    def __init__(self, config: Config, hidden_size: int) -> None:
        super().__init__()
        self.config = config

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        raise NotImplementedError


class LayerNorm(Norm):
    """γ (x − mean x) / √(var x + ε) + β (Ba et al., 2016)."""

    class Config(Norm.Config, kind="layer_norm"):
        pass

    def __init__(self, config: Config, hidden_size: int) -> None:
        super().__init__(config, hidden_size)
        self.norm = nn.LayerNorm(hidden_size, eps=config.eps)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        return self.norm(x)


class RMSNorm(Norm):
    """γ x / √(mean x² + ε) (Zhang & Sennrich, 2019)."""

    class Config(Norm.Config, kind="rms_norm"):
        pass

    def __init__(self, config: Config, hidden_size: int) -> None:
        super().__init__(config, hidden_size)
        self.norm = nn.RMSNorm(hidden_size, eps=config.eps)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        return self.norm(x)


# ------------------------------------------------------------------------------------- window norm
# Normalising each window by its own look-back, undone on the forecast.
#
# What a model reads is then alike whether the series stands high or low. Does not live here: the
# scaling of a whole series by its training rows (`foveate.data.series`).

Statistics = tuple[Tensor, Tensor]  # shift and scale, (B, 1, C) each


class WindowNorm(Configurable, nn.Module):
    """z = (x − shift) / scale, both taken from the look-back of the window; y = scale z + shift."""

    class Config(BaseConfig, family="window_norm"):
        """Which shift and scale."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

    def statistics(self, values: Float[Tensor, "B L C"]) -> Statistics:
        """Shift and scale of each window and channel."""
        raise NotImplementedError

    def enter(self, values: Float[Tensor, "B T C"], of: Statistics) -> Float[Tensor, "B T C"]:
        """What the model reads."""
        shift, scale = of
        return (values - shift) / scale

    def leave(self, values: Float[Tensor, "B T C Q"], of: Statistics) -> Float[Tensor, "B T C Q"]:
        """What the model says, on the scale of its input."""
        shift, scale = of
        return values * scale[..., None] + shift[..., None]


class NoWindowNorm(WindowNorm):
    """Windows as they are."""

    class Config(WindowNorm.Config, kind="none"):
        pass

    def statistics(self, values: Float[Tensor, "B L C"]) -> Statistics:
        last = values[:, -1:]
        return torch.zeros_like(last), torch.ones_like(last)


class LastValue(WindowNorm):
    """Minus the last value (NLinear: Zeng et al., 2023)."""

    class Config(WindowNorm.Config, kind="last_value"):
        pass

    def statistics(self, values: Float[Tensor, "B L C"]) -> Statistics:
        last = values[:, -1:]
        return last, torch.ones_like(last)


class Instance(WindowNorm):
    """Mean 0 and variance 1 (RevIN: Kim et al., 2022, without its learnt affine map)."""

    class Config(WindowNorm.Config, kind="instance"):
        eps: float = 1e-5  # added to the variance

    config: Config

    def statistics(self, values: Float[Tensor, "B L C"]) -> Statistics:
        variance = values.var(dim=1, keepdim=True, correction=0)
        return values.mean(dim=1, keepdim=True), (variance + self.config.eps).sqrt()
