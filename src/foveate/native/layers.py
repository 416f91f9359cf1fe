"""Operations that run the C kernels in place of PyTorch's."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_float, c_int32, c_void_p

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


class PackedLinear(ctypes.Structure):
    """W x + b in the layout of ``linear.h``, with the tensors that it points to."""

    tensors: Sequence[Tensor | None]  # alive as long as the pointers

    _fields_ = (
        ("columns", ctypes.c_int32),
        ("rows", ctypes.c_int32),
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("scale", ctypes.c_void_p),
        ("shift", ctypes.c_void_p),
    )


def pack(weight: Tensor, bias: Tensor | None, panel: int) -> PackedLinear:
    """The linear map of W (out, in) in fp32, in panels of ``panel`` outputs."""
    panels = _panels(weight.detach(), panel).transpose(1, 2).contiguous()  # (P, in, panel)
    return _packed(weight, [panels, _wide(bias, weight, panels.shape[0] * panel), None, None])


def pack_int8(weight: Tensor, scale: Tensor, bias: Tensor | None, panel: int) -> PackedLinear:
    """The linear map of W = ``scale`` (out) ⊙ ``weight`` (out, in) of int8; ``in`` is 4 n."""
    panels = _panels(weight, panel)
    wide = panels.shape[0] * panel
    fours = panels.unflatten(2, (-1, 4)).transpose(1, 2).contiguous()  # (P, in / 4, panel, 4)
    shift = 128 * panels.sum(dim=2, dtype=torch.int32).flatten()  # bytes are x + 128
    parts = [fours, _wide(bias, scale, wide), _wide(scale, scale, wide), shift]
    return _packed(weight, parts)


def linear_map(packed: PackedLinear, x: Tensor) -> Tensor:
    """W x + b by the kernels, (*B, in) -> (*B, out), of contiguous fp32."""
    kernels, size = library(), x.shape[-1]
    assert kernels is not None
    y, rows = x.new_empty(*x.shape[:-1], packed.rows), x.view(-1, size)
    outputs = y.view(-1, packed.rows)

    def compute(first: int, count: int) -> None:
        scratch = x.new_empty(count * (size + 1))
        spans = pointer(rows[first:]), pointer(outputs[first:])
        kernels.linear(address(packed), count, *spans, pointer(scratch))

    run_rows(compute, len(rows))
    return y


def _packed(weight: Tensor, parts: Sequence[Tensor | None]) -> PackedLinear:
    packed = PackedLinear(weight.shape[1], weight.shape[0], *map(pointer, parts))
    packed.tensors = parts
    return packed


def _panels(weight: Tensor, panel: int) -> Tensor:
    """(out, in) -> (P, panel, in), zeros after the last output."""
    missing = -len(weight) % panel
    return torch.nn.functional.pad(weight, (0, 0, 0, missing)).view(-1, panel, weight.shape[1])


def _wide(values: Tensor | None, like: Tensor, size: int) -> Tensor:
    """The values (or zeros where there are none), padded with zeros to ``size``."""
    wide = torch.zeros(size, dtype=torch.float32)
    if values is not None:
        wide[: len(values)] = values.detach()
    return wide


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


class NormStruct(ctypes.Structure):
    """γ (x − mean x) / √(var x + ε) + β; the identity where ``gain`` is null."""

    _fields_ = (("gain", c_void_p), ("shift", c_void_p), ("eps", c_float))


class LayerStruct(ctypes.Structure):
    """The linear maps and norms of a layer; without a memory those of cross-attention are empty."""

    _fields_ = (
        ("own", PackedLinear),
        ("own_out", PackedLinear),
        ("query", PackedLinear),
        ("cross_out", PackedLinear),
        ("inner", PackedLinear),
        ("outer", PackedLinear),
        ("norm", NormStruct * 3),
    )


class StackStruct(ctypes.Structure):
    """The layers of an encoder or decoder and the norm after them."""

    _fields_ = (
        ("layers", c_int32),
        ("size", c_int32),
        ("heads", c_int32),
        ("ffn", c_int32),
        ("post", c_int32),
        ("layer", POINTER(LayerStruct)),
        ("last", NormStruct),
    )


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


NAMES = ("delta", "u", "a", "into", "out", "start")


class _Scan(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "steps", "channels", "size")),
        *((name, ctypes.c_void_p) for name in NAMES),
    )


class Scan(torch.autograd.Function):
    """The selective scan in one native call each way; see ``scan.h`` for the equations.

    (Δ, u, a, B, C, h_0), contiguous fp32, give y (B, T, E) and the last h (B, E, N).
    """

    @staticmethod
    def forward(ctx: AutogradContext, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(*inputs)
        y, last = torch.empty_like(inputs[1]), torch.empty_like(inputs[5])
        kernels = library()
        assert kernels is not None

        def compute(first: int, count: int) -> None:
            span = slice(first, first + count)
            struct = _scan_struct(inputs, span)
            scratch = torch.empty(struct.steps + 1, struct.size)
            outputs = pointer(y[span]), pointer(last[span])
            kernels.scan(address(struct), *outputs, pointer(scratch))

        run_rows(compute, len(y), LEAST)
        return y, last

    @staticmethod
    @once_differentiable
    def backward(ctx: AutogradContext, dy: Tensor, dlast: Tensor) -> tuple[Tensor, ...]:
        inputs = ctx.saved_tensors
        delta, _, a, into, _, _ = inputs
        dy, dstart = dy.contiguous(), dlast.clone(memory_format=torch.contiguous_format)
        ddelta, du = torch.empty_like(delta), torch.empty_like(delta)
        dinto, dout = torch.zeros_like(into), torch.zeros_like(into)
        da = a.new_zeros(len(dy), *a.shape)  # summed in one order, whatever thread is first
        kernels = library()
        assert kernels is not None

        def compute(first: int, count: int) -> None:
            span = slice(first, first + count)
            struct = _scan_struct(inputs, span)
            scratch = torch.empty(2 * struct.steps + 1, struct.size)
            pointers = [pointer(x[span]) for x in (dy, dstart, ddelta, du, da, dinto, dout)]
            kernels.scan_backward(address(struct), *pointers, pointer(scratch))

        run_rows(compute, len(dy), LEAST)
        return ddelta, du, da.sum(dim=0), dinto, dout, dstart


def _scan_struct(inputs: tuple[Tensor, ...], span: slice) -> _Scan:
    """The inputs of a span of the sequences; a is the same for all."""
    parts = [x if name == "a" else x[span] for name, x in zip(NAMES, inputs, strict=True)]
    return _Scan(*parts[0].shape, parts[2].shape[1], *map(pointer, parts))


class DecoderStruct(ctypes.Structure):
    """A decoder: embeddings, layers and the projection to the vocabulary."""

    _fields_ = (
        ("stack", StackStruct),
        ("scale", c_float),
        ("table", c_void_p),
        ("first", NormStruct),
        ("output", PackedLinear),
    )


class StepStruct(ctypes.Structure):
    """The state of N hypotheses of M sources before a step: see ``step.h``."""

    _fields_ = (
        ("first", c_int32),
        ("rows", c_int32),
        ("each", c_int32),
        ("longest", c_int32),
        ("time", c_int32),
        ("ids", c_void_p),
        ("places", c_void_p),
        ("sources", c_void_p),
        ("begun", c_void_p),
        ("starts", c_void_p),
        ("memory", c_void_p),
        ("blocks", POINTER(c_void_p)),
        ("known", c_int32),
        ("ancestors", c_void_p),
    )
