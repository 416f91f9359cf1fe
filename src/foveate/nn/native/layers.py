"""Operations that run the C kernels or fused ones instead of PyTorch's own."""

from __future__ import annotations

import ctypes

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.attention import SDPBackend, sdpa_kernel

from foveate.nn.context import AttentionContext
from foveate.nn.native.kernels import AutogradContext, fits_either, is_long, library, pointer


def _kernels() -> ctypes.CDLL:
    kernels = library()
    assert kernels is not None
    return kernels


def add_bias_(y: Tensor, bias: Tensor | None, relu: bool = False) -> Tensor:
    """Add b to rows y (N, O) in place; with ``relu`` also apply max(0, y + b)."""
    if bias is None and not relu:
        return y
    kernels = library() if y.dtype == torch.bfloat16 and y.device.type == "cpu" else None
    bias = y.new_zeros(y.shape[1], dtype=torch.float32) if bias is None else bias.float()
    if kernels is None:
        y += bias.to(y.dtype)
        return y.relu_() if relu else y
    kernels.add_bias(*y.shape, pointer(y), pointer(bias), relu, torch.get_num_threads())
    return y


def apply(function: type[torch.autograd.Function], *inputs: object) -> Tensor:
    """Return the single output of an autograd function."""
    return function.apply(*inputs)


class _Numbers(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("half", ctypes.c_int32))


def dropped(
    change: Tensor, seed: int, drop: int, dtype: torch.dtype, x: Tensor | None = None
) -> Tensor:
    """Return dropout and the residual sum in one pass: x + m ⊙ change · 256 / (256 − d).

    m is 1 where a random byte is at least ``drop`` d; ``seed`` and position determine the byte, so
    that the backward needs no mask. The result has dtype ``dtype``.
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
    left, middle, right = (None if each is None else ctypes.addressof(each) for each in structs)
    threads = torch.get_num_threads()
    kernels.dropout(change.numel(), left, middle, seed, drop, right, threads)
    return y


def random_bytes(seed: int, count: int) -> Tensor:
    """Return the first ``count`` bytes of splitmix64 (Steele et al., 2014), as (N) of uint8."""
    words = torch.arange(1, (count + 7) // 8 + 1) * (0x9E3779B97F4A7C15 - 2**64) + seed
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = _folded(words, shift) * (factor - 2**64)
    return _folded(words, 31).view(torch.uint8)[:count]


def _folded(words: Tensor, shift: int) -> Tensor:
    return words ^ (words >> shift & (1 << 64 - shift) - 1)


def _half(x: Tensor) -> bool:
    return x.dtype == torch.bfloat16


EVEN = 256  # rows of a product are a multiple of it: oneDNN compiles a kernel for each new shape


class _Outer(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "out", "columns")),
        *((name, ctypes.c_void_p) for name in ("g", "x", "sums", "sum")),
        ("threads", ctypes.c_int32),
    )


def outer(grad: Tensor, x: Tensor, bias: bool = False) -> tuple[Tensor, Tensor | None]:
    """Return a linear map's gradients in fp32: Σ_n g_n x_nᵀ (O, I) and, with ``bias``, Σ_n g_n (O).

    ``grad`` (N, O) and ``x`` (N, I) are rows in bf16.
    """
    grad, x = grad.contiguous(), x.contiguous()
    kernels = library() if grad.dtype == x.dtype == torch.bfloat16 else None
    if kernels is not None and x.device.type == "cpu" and len(x):
        weights = x.new_empty(grad.shape[1], x.shape[1], dtype=torch.float32)
        sums = weights.new_empty(grad.shape[1]) if bias else None
        pointers = map(pointer, (grad, x, weights, sums))
        struct = _Outer(*grad.shape, x.shape[1], *pointers, torch.get_num_threads())
        if kernels.outer(ctypes.addressof(struct)):
            return weights, sums
    return _outer(grad, x), grad.sum(dim=0).float() if bias else None


def _outer(grad: Tensor, x: Tensor) -> Tensor:
    whole = len(x) // EVEN * EVEN
    if whole == 0:
        return (grad.T @ x).float()
    product = (grad[:whole].T @ x[:whole]).float()
    rest = len(x) - whole
    if rest:  # zeros instead of the rows that are in the first product
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

    Queries (B, H, T, K), keys (B, H, S, K), values (B, H, S, V) and an additive mask (B or 1, 1, T
    or 1, S) yield the mixture (B, H, T, V), in the memory layout (B, T, H, V); see ``attend.h``.
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


# PyTorch's fused kernels except cuDNN's, which plans anew for each length: some 100 ms.
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def fused_attention(
    queries: Float[Tensor, "M H N K"],
    keys: Float[Tensor, "M H S K"],
    values: Float[Tensor, "M H S V"],
    context: AttentionContext,
    scale: float,
    dropout: float = 0.0,
) -> Float[Tensor, "M H N V"]:
    """Return softmax(c q kᵀ + bias + mask) v by a kernel that never forms the weights."""
    mask, at, device = context.mask, (context.query_at, context.key_at), queries.device
    if not is_long(queries, keys):
        added = mask.additive(*at, torch.float32, device)
        return apply(Attend, queries, keys, values, added, scale)
    bias = context.bias(device)
    causal = bias is None and mask.is_causal_only(*at)
    added = None if causal else mask.additive(*at, queries.dtype, device)
    if bias is not None:
        bias = bias.to(queries.dtype)
        added = bias[None] if added is None else bias + added
    with sdpa_kernel(KERNELS):
        mixed = F.scaled_dot_product_attention(
            queries, keys, values, added, dropout, causal, scale=scale
        )
    blind = None if device.type == "cpu" else mask.blind(*at, device)
    return mixed if blind is None else mixed.masked_fill(blind, 0)


def _run(query: Tensor, key: Tensor, value: Tensor, scale: float, **more: Tensor | None) -> None:
    struct = _Attend(*query.shape[:3], key.shape[2], key.shape[3], value.shape[3], scale)
    struct.half, struct.threads = query.dtype == torch.bfloat16, torch.get_num_threads()
    for name, x in {"q": query, "k": key, "v": value, **more}.items():
        if x is not None:
            setattr(struct, name, _Heads(pointer(x), *x.stride()[:3]))
    _kernels().attend_heads(ctypes.addressof(struct))


def _rowwise(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _laid_out(like: Tensor, size: Tensor) -> Tensor:
    """Return an empty (B, H, T, size) in which the heads of a position are adjacent in memory."""
    batch, heads, places = like.shape[:3]
    return like.new_empty(batch, places, heads, size.shape[3]).transpose(1, 2)


SEQUENCES = ("step", "u", "into", "out", "gate", "start", "keys")  # arrays with a row per sequence
OF_ALL = ("a", "bias", "skip")  # the same for all sequences
LEARNT = (*SEQUENCES[:-1], *OF_ALL)  # have gradients


class _Scan(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "steps", "channels", "size")),
        *((name, ctypes.c_void_p) for name in (*SEQUENCES, *OF_ALL)),
        *((name, ctypes.c_int32) for name in ("half", "backwards", "threads")),
    )


class _ScanGradients(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in ("y", "last", *LEARNT))


class Scan(torch.autograd.Function):
    """The selective scan in one native call each way; see ``scan.h`` for the equations.

    (δ, u, B, C, z), of one dtype, (h_0, keys), either of which may be None, and (a, b, D), all
    contiguous, yield y (B, T, E) and, with an h_0, the last h (B, E, N). ``backwards`` begins with
    the last step.
    """

    @staticmethod
    def forward(
        ctx: AutogradContext, backwards: bool, *inputs: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        _, u, *_, start, _ = inputs[: len(SEQUENCES)]
        ctx.save_for_backward(*inputs)
        ctx.backwards = backwards
        y = torch.empty_like(_there(u))
        last = None if start is None else torch.empty_like(start)
        struct = _scan_struct(inputs, backwards)
        _kernels().scan(ctypes.addressof(struct), pointer(y), pointer(last))
        return y, last

    @staticmethod
    @once_differentiable
    def backward(
        ctx: AutogradContext, dy: Tensor, dlast: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        inputs, backwards, dy = ctx.saved_tensors, ctx.backwards, dy.contiguous()
        dlast = None if dlast is None else dlast.contiguous()
        own = [None if x is None else torch.empty_like(x) for x in inputs[: len(SEQUENCES) - 1]]
        sums = [_of_groups(x, len(dy)) for x in inputs[len(SEQUENCES) :]]
        struct = _scan_struct(inputs, backwards)
        grads = _ScanGradients(*map(pointer, (dy, dlast, *own, *sums)))
        _kernels().scan_backward(ctypes.addressof(struct), ctypes.addressof(grads))
        return None, *own, None, *(x.sum(dim=0) for x in sums)


def _scan_struct(inputs: tuple[Tensor | None, ...], backwards: bool) -> _Scan:
    u, into = _there(inputs[1]), _there(inputs[2])
    threads = torch.get_num_threads()
    pointers = map(pointer, inputs)
    return _Scan(*u.shape, into.shape[2], *pointers, _half(u), backwards, threads)


class _Convolution(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "steps", "channels", "window")),
        *((name, ctypes.c_void_p) for name in ("x", "keys", "kernel", "bias")),
        *((name, ctypes.c_int32) for name in ("half", "backwards", "threads")),
    )


class Convolve(torch.autograd.Function):
    """SiLU of a causal convolution of each channel by itself; see ``convolve.h``.

    Contiguous x (B, T, E), keys (B, T) or None, kernel (W, E) and bias (E) yield u (B, T, E).
    ``backwards`` begins with the last step.
    """

    @staticmethod
    def forward(
        ctx: AutogradContext,
        backwards: bool,
        x: Tensor,
        keys: Tensor | None,
        kernel: Tensor,
        bias: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(x, keys, kernel, bias)
        ctx.backwards = backwards
        u = torch.empty_like(x)
        struct = _convolution_struct(ctx, (x, keys, kernel, bias))
        _kernels().convolve(ctypes.addressof(struct), pointer(u))
        return u

    @staticmethod
    @once_differentiable
    def backward(ctx: AutogradContext, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, _, kernel, bias = inputs = ctx.saved_tensors
        du, dx = grads[0].contiguous(), torch.empty_like(x)
        sums = [_of_groups(weight, len(x)) for weight in (kernel, bias)]
        struct = _convolution_struct(ctx, inputs)
        _kernels().convolve_backward(ctypes.addressof(struct), *map(pointer, (du, dx, *sums)))
        return None, dx, None, *(each.sum(dim=0) for each in sums)


def _convolution_struct(ctx: AutogradContext, inputs: tuple[Tensor | None, ...]) -> _Convolution:
    x, kernel, threads = _there(inputs[0]), _there(inputs[2]), torch.get_num_threads()
    pointers = map(pointer, inputs)
    return _Convolution(*x.shape, len(kernel), *pointers, _half(x), ctx.backwards, threads)


class RMSNormed(torch.autograd.Function):
    """γ x / √(mean x² + ε) of contiguous x (…, D) in fp32, with gain γ (D); see ``norm.h``."""

    @staticmethod
    def forward(ctx: AutogradContext, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        rows, y = x.view(-1, x.shape[-1]), torch.empty_like(x)
        r, threads = x.new_empty(len(rows)), torch.get_num_threads()
        at, by, *out = map(pointer, (x, gain, y, r))
        _kernels().rms_norm(*rows.shape, at, by, eps, *out, threads)
        ctx.save_for_backward(x, gain, r)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: AutogradContext, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, gain, r = ctx.saved_tensors
        dx, sums, dy = torch.empty_like(x), _of_groups(gain, len(r), NORMED), grads[0].contiguous()
        pointers, threads = map(pointer, (x, gain, r, dy, dx, sums)), torch.get_num_threads()
        _kernels().rms_norm_backward(len(r), len(gain), *pointers, threads)
        return dx, sums.sum(dim=0), None


def _there(x: Tensor | None) -> Tensor:
    assert x is not None
    return x


GROUP, NORMED = 8, 256  # rows whose gradients of weights are one sum, as in scan.h and norm.h


def _of_groups(weight: Tensor | None, rows: int, size: int = GROUP) -> Tensor:
    """Return zeros for the gradients of a weight, separately for each group of ``size`` rows."""
    return _there(weight).new_zeros(-(-rows // size), *_there(weight).shape)
