"""Operations that run the C kernels in place of PyTorch's."""

from __future__ import annotations

import ctypes

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from foveate.native.kernels import (
    LEAST,
    AutogradContext,
    address,
    fits_either,
    library,
    pointer,
    run_rows,
)


def add_bias_(y: Tensor, bias: Tensor | None, relu: bool = False) -> Tensor:
    """Y + b, with ``relu`` max(0, y + b), of rows (N, O), in place."""
    if bias is None and not relu:
        return y
    kernels = library() if y.dtype == torch.bfloat16 and y.device.type == "cpu" else None
    bias = y.new_zeros(y.shape[1], dtype=torch.float32) if bias is None else bias.float()
    if kernels is None:
        y += bias.to(y.dtype)
        return y.relu_() if relu else y
    kernels.add_bias(*y.shape, pointer(y), pointer(bias), relu, torch.get_num_threads())
    return y


class _Numbers(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("half", ctypes.c_int32))


def dropped(
    change: Tensor, seed: int, drop: int, dtype: torch.dtype, x: Tensor | None = None
) -> Tensor:
    """Dropout and the residual sum in one pass: x + m ⊙ change · 256 / (256 − d).

    m is 1 where a random byte is at least ``drop`` d; ``seed`` and position decide the byte, so
    that the backward needs no mask. The result has type ``dtype``.
    """
    kernels = library()
    if kernels is None or not all(fits_either(each) for each in (change, x) if each is not None):
        mask = random_bytes(seed, change.numel()).view(change.shape) >= drop
        change = (change.float() * (256 / (256 - drop))).mul_(mask)
        return (change if x is None else x + change).to(dtype)
    change = change.contiguous()
    x = x if x is None else x.contiguous()
    y = torch.empty_like(change, dtype=dtype)
    structs = [None if t is None else _Numbers(pointer(t), _half(t)) for t in (x, change, y)]
    left, middle, right = (None if each is None else address(each) for each in structs)
    threads = torch.get_num_threads()
    kernels.dropout(change.numel(), left, middle, seed, drop, right, threads)
    return y


def random_bytes(seed: int, count: int) -> Tensor:
    """The first ``count`` bytes of splitmix64 (Steele et al., 2014), as (N) of uint8."""
    words = torch.arange(1, (count + 7) // 8 + 1) * (0x9E3779B97F4A7C15 - 2**64) + seed
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = _folded(words, shift) * (factor - 2**64)
    return _folded(words, 31).view(torch.uint8)[:count]


def _folded(words: Tensor, shift: int) -> Tensor:
    return words ^ (words >> shift & (1 << 64 - shift) - 1)


def _half(x: Tensor) -> bool:
    return x.dtype == torch.bfloat16


EVEN = 256  # rows of a product are a multiple: oneDNN compiles a kernel for each new shape


class _Outer(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "out", "columns")),
        *((name, ctypes.c_void_p) for name in ("g", "x", "sums", "sum")),
        ("threads", ctypes.c_int32),
    )


def outer(grad: Tensor, x: Tensor, bias: bool = False) -> tuple[Tensor, Tensor | None]:
    """The gradients of a linear map, in fp32: Σ_n g_n x_nᵀ (O, I) and with ``bias`` Σ_n g_n (O).

    ``grad`` (N, O) and ``x`` (N, I) are rows in bf16.
    """
    grad, x = grad.contiguous(), x.contiguous()
    kernels = library() if grad.dtype == x.dtype == torch.bfloat16 else None
    if kernels is not None and x.device.type == "cpu" and len(x):
        weights = x.new_empty(grad.shape[1], x.shape[1], dtype=torch.float32)
        sums = weights.new_empty(grad.shape[1]) if bias else None
        pointers = map(pointer, (grad, x, weights, sums))
        struct = _Outer(*grad.shape, x.shape[1], *pointers, torch.get_num_threads())
        if kernels.outer(address(struct)):
            return weights, sums
    return _outer(grad, x), grad.sum(dim=0).float() if bias else None


def _outer(grad: Tensor, x: Tensor) -> Tensor:
    whole = len(x) // EVEN * EVEN
    if whole == 0:
        return (grad.T @ x).float()
    product = (grad[:whole].T @ x[:whole]).float()
    rest = len(x) - whole
    if rest:  # zeros in place of the rows that are in the first product
        grad, x = (F.pad(rows[whole:], (0, 0, 0, EVEN - rest)) for rows in (grad, x))
        product += grad.T @ x
    return product


_SIZES = ("batch", "heads", "queries", "keys", "size", "values")


class _Heads(ctypes.Structure):
    _fields_ = (
        ("at", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("text", "head", "row")),
    )


class _Attend(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in _SIZES),
        ("scale", ctypes.c_float),
        *((name, ctypes.c_int32) for name in ("half", "threads")),
        *(
            (name, _Heads)
            for name in ("q", "k", "v", "y", "weights", "mask", "dy", "dq", "dk", "dv")
        ),
    )


class Attend(torch.autograd.Function):
    """Attention of short sequences, softmax(scale q kᵀ + mask) v, in one native call each way.

    Queries (B, H, T, K), keys (B, H, S, K), values (B, H, S, V) and an additive mask (B or 1, 1,
    T or 1, S) give the mixture (B, H, T, V), in the memory layout (B, T, H, V); see ``attend.h``.
    """

    @staticmethod
    def forward(
        ctx: AutogradContext,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        scale: float,
    ) -> Tensor:
        query, key, value = map(_rowwise, (query, key, value))
        if mask is not None:
            mask = _rowwise(mask.float()).expand(len(query), 1, query.shape[2], -1)
        weights = query.new_empty(*query.shape[:3], key.shape[2])
        mixed = _laid_out(query, value)
        _run(query, key, value, scale, y=mixed, weights=weights, mask=mask)
        ctx.save_for_backward(query, key, value, weights)
        ctx.scale = scale
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: AutogradContext, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, weights = ctx.saved_tensors
        grads = _laid_out(query, query), _laid_out(key, key), _laid_out(value, value)
        names = dict(zip(("dq", "dk", "dv"), grads, strict=True))
        _run(query, key, value, ctx.scale, weights=weights, dy=_rowwise(grad), **names)
        return (*grads, None, None)


def attends(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the kernel of `Attend` reads these tensors."""
    alike = query.dtype == key.dtype == value.dtype
    return alike and fits_either(query) and library() is not None


def _run(query: Tensor, key: Tensor, value: Tensor, scale: float, **more: Tensor | None) -> None:
    kernels = library()
    assert kernels is not None
    struct = _Attend(*query.shape[:3], key.shape[2], key.shape[3], value.shape[3], scale)
    struct.half, struct.threads = query.dtype == torch.bfloat16, torch.get_num_threads()
    for name, x in {"q": query, "k": key, "v": value, **more}.items():
        if x is not None:
            setattr(struct, name, _Heads(pointer(x), *x.stride()[:3]))
    kernels.attend_heads(address(struct))


def _rowwise(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _laid_out(like: Tensor, size: Tensor) -> Tensor:
    """An empty (B, H, T, size) whose heads of a position lie side by side in memory."""
    batch, heads, places = like.shape[:3]
    return like.new_empty(batch, places, heads, size.shape[3]).transpose(1, 2)


NAMES = ("delta", "u", "a", "into", "out", "skip", "start")
OF_ALL = ("a", "skip")  # the same for all sequences


LANES = 16  # at most: channels that are scanned at once


class _Scan(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "steps", "channels", "size")),
        *((name, ctypes.c_void_p) for name in NAMES),
    )


class Scan(torch.autograd.Function):
    """The selective scan in one native call each way; see ``scan.h`` for the equations.

    (Δ, u, a, B, C, D, h_0), contiguous fp32, give y (B, T, E) and the last h (B, E, N).
    """

    @staticmethod
    def forward(ctx: AutogradContext, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(*inputs)
        y, last = torch.empty_like(inputs[1]), torch.empty_like(inputs[6])
        kernels = library()
        assert kernels is not None

        def compute(first: int, count: int) -> None:
            span = slice(first, first + count)
            struct = _scan_struct(inputs, span)
            scratch = torch.empty((struct.steps + 2) * struct.size + 2 * struct.steps, LANES)
            outputs = pointer(y[span]), pointer(last[span])
            kernels.scan(address(struct), *outputs, pointer(scratch))

        run_rows(compute, len(y), LEAST)
        return y, last

    @staticmethod
    @once_differentiable
    def backward(ctx: AutogradContext, dy: Tensor, dlast: Tensor) -> tuple[Tensor, ...]:
        inputs = ctx.saved_tensors
        delta, _, a, into, _, skip, _ = inputs
        dy, dstart = dy.contiguous(), dlast.clone(memory_format=torch.contiguous_format)
        ddelta, du = torch.empty_like(delta), torch.empty_like(delta)
        dinto, dout = torch.empty_like(into), torch.empty_like(into)
        # of each sequence: summed in one order, whatever thread is first
        da, dskip = (x.new_empty(len(dy), *x.shape) for x in (a, skip))
        kernels = library()
        assert kernels is not None

        def compute(first: int, count: int) -> None:
            span = slice(first, first + count)
            struct = _scan_struct(inputs, span)
            scratch = torch.empty((4 * struct.steps + 4) * struct.size + 2 * struct.steps, LANES)
            pointers = [pointer(x[span]) for x in (dy, dstart, ddelta, du, da, dinto, dout, dskip)]
            kernels.scan_backward(address(struct), *pointers, pointer(scratch))

        run_rows(compute, len(dy), LEAST)
        return ddelta, du, da.sum(dim=0), dinto, dout, dskip.sum(dim=0), dstart


def _scan_struct(inputs: tuple[Tensor, ...], span: slice) -> _Scan:
    """The inputs of a span of the sequences."""
    parts = [x if name in OF_ALL else x[span] for name, x in zip(NAMES, inputs, strict=True)]
    return _Scan(*parts[0].shape, parts[2].shape[1], *map(pointer, parts))
