"""Operations that run the C kernels in place of PyTorch's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import POINTER, c_float, c_int32, c_void_p
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from foveate.native.kernels import address, at, fits_either, library, shared


class Packed(ctypes.Structure):
    """``Linear`` of ``kernels.c``: W x + b; it keeps the tensors that it points to."""

    _fields_ = (
        ("columns", ctypes.c_int32),
        ("rows", ctypes.c_int32),
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("scale", ctypes.c_void_p),
        ("shift", ctypes.c_void_p),
    )


def pack(weight: Tensor, bias: Tensor | None, panel: int) -> Packed:
    """W (out, in) in fp32, in panels of so many outputs."""
    panels = _panels(weight.detach(), panel).transpose(1, 2).contiguous()  # (P, in, panel)
    return _packed(weight, [panels, _wide(bias, weight, panels.shape[0] * panel), None, None])


def pack_int8(weight: Tensor, scale: Tensor, bias: Tensor | None, panel: int) -> Packed:
    """W = ``scale`` ⊙ ``weight``, whole numbers (out, in) and what one is worth in each row.

    ``in`` is a multiple of 4.
    """
    panels = _panels(weight, panel)
    wide = panels.shape[0] * panel
    fours = panels.unflatten(2, (-1, 4)).transpose(1, 2).contiguous()  # (P, in / 4, panel, 4)
    shift = 128 * panels.sum(dim=2, dtype=torch.int32).flatten()  # bytes are x + 128
    parts = [fours, _wide(bias, scale, wide), _wide(scale, scale, wide), shift]
    return _packed(weight, parts)


def mapped(packed: Packed, x: Tensor) -> Tensor:
    """W x + b by the kernels, (*B, in) to (*B, out), of fp32 that lies row by row."""
    kernels, size = library(), x.shape[-1]
    assert kernels is not None
    y, rows = x.new_empty(*x.shape[:-1], packed.rows), x.view(-1, size)
    made = y.view(-1, packed.rows)

    def some(first: int, count: int) -> None:
        room = x.new_empty(count * (size + 1))
        kernels.linear(address(packed), count, at(rows[first:]), at(made[first:]), at(room))

    shared(some, len(rows))
    return y


def _packed(weight: Tensor, parts: Sequence[Tensor | None]) -> Packed:
    made = Packed(weight.shape[1], weight.shape[0], *map(at, parts))
    made.kept = parts  # as long as the pointers
    return made


def _panels(weight: Tensor, panel: int) -> Tensor:
    """(out, in) -> (P, panel, in), zeros after the last output."""
    missing = -len(weight) % panel
    return torch.nn.functional.pad(weight, (0, 0, 0, missing)).view(-1, panel, weight.shape[1])


def _wide(values: Tensor | None, like: Tensor, size: int) -> Tensor:
    """The values with zeros after them; zeros where there are none."""
    wide = torch.zeros(size, dtype=torch.float32)
    if values is not None:
        wide[: len(values)] = values.detach()
    return wide


# -------------------------------------------------------------------------------------------- bias
# The bias of a linear map, and the ReLU that may follow, added to rows in their place.


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


# ----------------------------------------------------------------------------------------- dropout
# Dropout by random bytes, and the residual sum that it stands in, in one pass over the numbers.


class _Numbers(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("half", ctypes.c_int32))


def dropped(
    change: Tensor, seed: int, drop: int, dtype: torch.dtype, x: Tensor | None = None
) -> Tensor:
    """X + m ⊙ change · 256 / (256 − d), m being 1 where a random byte is at least d.

    Seed and place decide the byte; the sum has type ``dtype``.
    """
    kernels = library()
    if kernels is None or not all(fits_either(each) for each in (change, x) if each is not None):
        kept = random_bytes(seed, change.numel()).view(change.shape) >= drop
        change = (change.float() * (256 / (256 - drop))).mul_(kept)
        return (change if x is None else x + change).to(dtype)
    change = change.contiguous()
    x = x if x is None else x.contiguous()
    y = torch.empty_like(change, dtype=dtype)
    of = [None if t is None else _Numbers(at(t), _half(t)) for t in (x, change, y)]
    left, middle, right = (None if each is None else address(each) for each in of)
    threads = torch.get_num_threads()
    kernels.dropout(change.numel(), left, middle, seed, drop, right, threads)
    return y


def random_bytes(seed: int, count: int) -> Tensor:
    """The first bytes of splitmix64 (Steele et al., 2014), eight of each word: (N) of uint8."""
    words = torch.arange(1, (count + 7) // 8 + 1) * (0x9E3779B97F4A7C15 - 2**64) + seed
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = _folded(words, shift) * (factor - 2**64)
    return _folded(words, 31).view(torch.uint8)[:count]


def _folded(words: Tensor, shift: int) -> Tensor:
    return words ^ (words >> shift & (1 << 64 - shift) - 1)


def _half(x: Tensor) -> bool:
    return x.dtype == torch.bfloat16


# ------------------------------------------------------------------------------------------ layers
# Layers of a Transformer as the kernels read them: the structures of ``layers.h``.


class Norm(ctypes.Structure):
    """γ (x − mean x) / √(var x + ε) + β; the identity where ``gain`` is null."""

    _fields_ = (("gain", c_void_p), ("shift", c_void_p), ("eps", c_float))


class Layer(ctypes.Structure):
    """The maps of a layer, those of cross-attention empty without a memory, and its norms."""

    _fields_ = (
        ("own", Packed),
        ("own_out", Packed),
        ("query", Packed),
        ("cross_out", Packed),
        ("inner", Packed),
        ("outer", Packed),
        ("norm", Norm * 3),
    )


class Stack(ctypes.Structure):
    """Layers, one on another, and the norm that closes them."""

    _fields_ = (
        ("layers", c_int32),
        ("size", c_int32),
        ("heads", c_int32),
        ("ffn", c_int32),
        ("post", c_int32),
        ("layer", POINTER(Layer)),
        ("last", Norm),
    )


# ------------------------------------------------------------------------------------------- outer
# Σ_n g_n x_nᵀ and Σ_n g_n: the gradients of a linear map's weight and bias; see ``outer.h``.

EVEN = 256  # rows of a product: a library makes a kernel for each shape that it meets


class _Outer(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "out", "columns")),
        *((name, ctypes.c_void_p) for name in ("g", "x", "sums", "sum")),
        ("threads", ctypes.c_int32),
    )


def outer(grad: Tensor, x: Tensor, alone: bool = False) -> tuple[Tensor, Tensor | None]:
    """Σ_n g_n x_nᵀ of rows in bf16, (N, O), (N, I) -> (O, I), and if asked for Σ_n g_n, in fp32."""
    grad, x = grad.contiguous(), x.contiguous()
    kernels = library() if grad.dtype == x.dtype == torch.bfloat16 else None
    if kernels is not None and x.device.type == "cpu" and len(x):
        sums, sum = x.new_empty(grad.shape[1], x.shape[1], dtype=torch.float32), None
        if alone:
            sum = sums.new_empty(grad.shape[1])
        sizes = (*grad.shape, x.shape[1])
        of = _Outer(*sizes, at(grad), at(x), at(sums), at(sum), torch.get_num_threads())
        if kernels.outer(address(of)):
            return sums, sum
    return _outer(grad, x), grad.sum(dim=0).float() if alone else None


def _outer(grad: Tensor, x: Tensor) -> Tensor:
    whole = len(x) // EVEN * EVEN
    if whole == 0:
        return (grad.T @ x).float()
    product = (grad[:whole].T @ x[:whole]).float()
    rest = len(x) - whole
    if rest:  # with zeros for the rows that have been
        grad, x = (F.pad(rows[whole:], (0, 0, 0, EVEN - rest)) for rows in (grad, x))
        product += grad.T @ x
    return product


# ------------------------------------------------------------------------------------------ attend
# Attention of short sequences as one native call forward and one back; see ``attend.h``.

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
    """Queries (B, H, T, K), keys, values (B, H, S, V), additive mask (B or 1, 1, T or 1, S).

    Gives the mixture (B, H, T, V), which lies in memory as (B, T, H, V).
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float
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
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, weights = ctx.saved_tensors
        grads = _laid_out(query, query), _laid_out(key, key), _laid_out(value, value)
        names = dict(zip(("dq", "dk", "dv"), grads, strict=True))
        _run(query, key, value, ctx.scale, weights=weights, dy=_rowwise(grad), **names)
        return (*grads, None, None)


def attends(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the kernel reads such tensors."""
    alike = query.dtype == key.dtype == value.dtype
    return alike and fits_either(query) and library() is not None


def _run(query: Tensor, key: Tensor, value: Tensor, scale: float, **more: Tensor | None) -> None:
    kernels = library()
    assert kernels is not None
    of = _Attend(*query.shape[:3], key.shape[2], key.shape[3], value.shape[3], scale)
    of.half, of.threads = query.dtype == torch.bfloat16, torch.get_num_threads()
    for name, x in {"q": query, "k": key, "v": value, **more}.items():
        if x is not None:
            setattr(of, name, _Heads(at(x), *x.stride()[:3]))
    kernels.attend_heads(address(of))


def _rowwise(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _laid_out(like: Tensor, size: Tensor) -> Tensor:
    """Room for (B, H, T, size) where the heads of a place lie side by side."""
    batch, heads, places = like.shape[:3]
    return like.new_empty(batch, places, heads, size.shape[3]).transpose(1, 2)


# -------------------------------------------------------------------------------------------- scan
# The selective scan as one native call forward and one back; see ``scan.h`` for the equations.

NAMES = ("delta", "u", "a", "into", "out", "start")


class _Scan(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "steps", "channels", "size")),
        *((name, ctypes.c_void_p) for name in NAMES),
    )


class Scan(torch.autograd.Function):
    """(Δ, u, a, B, C, h_0), fp32 and row by row, to y (B, T, E) and the last h (B, E, N)."""

    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(*given)
        y, last = torch.empty_like(given[1]), torch.empty_like(given[5])
        kernels = library()
        assert kernels is not None

        def part(some: slice) -> None:
            of = _of(given, some)
            room = torch.empty(of.steps + 1, of.size)
            kernels.scan(address(of), at(y[some]), at(last[some]), at(room))

        _in_parts(len(y), part)
        return y, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, dlast: Tensor) -> tuple[Tensor, ...]:
        given = ctx.saved_tensors
        delta, _, a, into, _, _ = given
        dy, dstart = dy.contiguous(), dlast.clone(memory_format=torch.contiguous_format)
        ddelta, du = torch.empty_like(delta), torch.empty_like(delta)
        dinto, dout = torch.zeros_like(into), torch.zeros_like(into)
        das: list[Tensor] = []
        kernels = library()
        assert kernels is not None

        def part(some: slice) -> None:
            of, da = _of(given, some), torch.zeros_like(a)
            das.append(da)
            room = torch.empty(2 * of.steps + 1, of.size)
            arrays = (dy, dstart, ddelta, du, None, dinto, dout)
            places = [at(da if array is None else array[some]) for array in arrays]
            kernels.scan_backward(address(of), *places, at(room))

        _in_parts(len(dy), part)
        return ddelta, du, torch.stack(das).sum(dim=0), dinto, dout, dstart


def _of(given: tuple[Tensor, ...], some: slice) -> _Scan:
    """The same of some of the sequences; a is one for all."""
    parts = [each if name == "a" else each[some] for name, each in zip(NAMES, given, strict=True)]
    return _Scan(*parts[0].shape, parts[2].shape[1], *map(at, parts))


def _in_parts(batch: int, work: Callable[[slice], None]) -> None:
    """Do the work on as many parts of a batch as there are threads."""
    size = -(-batch // torch.get_num_threads()) or 1
    parts = [slice(first, min(first + size, batch)) for first in range(0, batch, size)]
    with ThreadPoolExecutor(len(parts) or 1) as threads:
        list(threads.map(work, parts))


# -------------------------------------------------------------------------------------------- step
# One step of a Transformer decoder as the kernels read it: the structures of ``step.h``.


class Decoder(ctypes.Structure):
    """Embeddings, layers and the projection to the vocabulary."""

    _fields_ = (
        ("stack", Stack),
        ("scale", c_float),
        ("table", c_void_p),
        ("first", Norm),
        ("output", Packed),
    )


class Reading(ctypes.Structure):
    """What N hypotheses of M sources have read: see ``step.h``."""

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
