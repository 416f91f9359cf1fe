"""Layers that compute every position by itself: linear maps, dropout, norms, feed-forward
networks; and the residual block around each of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from foveate.config import BaseConfig, FromConfig
from foveate.nn.native.kernels import AutogradContext, fits, library, overridden, transformed
from foveate.nn.native.layers import EVEN, RMSNormed, add_bias_, apply, dropped, outer


def to_autocast_dtype(x: Tensor) -> Tensor:
    """Convert x to the dtype of matrix products under autocast; return it unchanged without.

    Autocast would convert the input of every map separately. Converted once, it is shared by
    several maps, and their gradients are summed before they are converted back.
    """
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x


def single(x: Tensor) -> Tensor:
    """Convert x to at least single precision, for sums that half precision would spoil."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class _Map(torch.autograd.Function):
    """Y = f(X Wᵀ + b), f the identity or ReLU; dX = G W, dW = Gᵀ X, db = Σ_n g_n, G being dY ⊙ f'.

    W and b are fp32, X is bf16. oneDNN compiles a kernel for each new shape of matrices, which
    takes time and memory, so most rows are computed in one product of a multiple of `EVEN` rows and
    the last `EVEN` in another; rows that are in both come out the same.
    """

    @staticmethod
    def forward(
        ctx: AutogradContext, x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool
    ) -> Tensor:
        rows, weight = x.reshape(-1, x.shape[-1]), weight.to(x.dtype)
        y = x.new_empty(len(rows), len(weight))
        for span in spans(len(rows)):
            torch.mm(rows[span], weight.T, out=y[span])
        add_bias_(y, bias, relu)
        ctx.save_for_backward(rows, weight, y if relu else None)
        ctx.shape = x.shape
        return y.view(*x.shape[:-1], len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: AutogradContext, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, y = ctx.saved_tensors
        grad = grads[0].reshape(len(rows), -1)
        if y is not None:
            grad = torch.ops.aten.threshold_backward(grad, y, 0)
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        dx = torch.empty_like(rows) if needs_x else None
        if dx is not None:
            for span in spans(len(rows)):
                torch.mm(grad[span], weight, out=dx[span])
        dw, db = outer(grad, rows, needs_bias) if needs_weight or needs_bias else (None, None)
        return None if dx is None else dx.view(ctx.shape), dw, db, None


def spans(count: int) -> list[slice]:
    """Return slices of a multiple of `EVEN` rows and of the last `EVEN`, which may overlap."""
    whole = count // EVEN * EVEN
    if whole in (0, count):
        return [slice(0, count)]
    return [slice(0, whole), slice(count - EVEN, count)]


def linear(
    x: Float[Tensor, "*B I"],
    weight: Float[Tensor, "O I"],
    bias: Float[Tensor, "O"] | None = None,
    relu: bool = False,
) -> Float[Tensor, "*B O"]:
    """Return W x + b, with ``relu`` max(0, W x + b); see `Linear`."""
    x = to_autocast_dtype(x)
    plain = x.device.type != "cpu" or x.dtype != torch.bfloat16 or not torch.is_grad_enabled()
    if plain or transformed():
        y = F.linear(x, weight, bias)
        return F.relu(y) if relu else y
    return apply(_Map, x, weight, bias, relu)


class Linear(nn.Linear):
    """W x + b; under autocast to bf16 on a CPU with products of few shapes."""

    def forward(self, x: Float[Tensor, "*B I"], relu: bool = False) -> Float[Tensor, "*B O"]:
        """Return W x + b, with ``relu`` max(0, W x + b)."""
        return linear(x, self.weight, self.bias, relu)


class CappedLinear(nn.Linear):
    """c tanh(y / c), y = W x + b: logits that never exceed ±c (Gemma 2)."""

    def __init__(self, size: int, output_size: int, bias: bool, cap: float) -> None:
        super().__init__(size, output_size, bias)
        self.cap = cap

    def forward(self, x: Float[Tensor, "*B I"]) -> Float[Tensor, "*B O"]:
        return self.cap * torch.tanh(super().forward(x) / self.cap)


class _ByteDropout(torch.autograd.Function):
    """y = x + m ⊙ change / (1 − p̂); the backward recomputes m from its seed."""

    @staticmethod
    def forward(ctx: AutogradContext, change: Tensor, drop: int, x: Tensor | None) -> Tensor:
        seed = int(torch.empty((), dtype=torch.int64).random_(-(2**63), None))
        ctx.seed, ctx.drop, ctx.dtype, ctx.residual = seed, drop, change.dtype, x is not None
        wide = change.dtype if x is None else torch.promote_types(change.dtype, x.dtype)
        return dropped(change, seed, drop, wide, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: AutogradContext, *grads: Tensor) -> tuple[Tensor, None, Tensor | None]:
        grad = grads[0]
        return dropped(grad, ctx.seed, ctx.drop, ctx.dtype), None, grad if ctx.residual else None


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

    @property
    def drop(self) -> int:
        """The number of the 256 bytes that zero an element."""
        return int(256 * self.p)

    def forward(self, x: Tensor) -> Tensor:
        if self.by_bytes(x):
            return apply(_ByteDropout, x, self.drop, None)
        return F.dropout(x, self.p) if self.training and self.drop else x

    def by_bytes(self, x: Tensor) -> bool:
        """Return whether random bytes zero elements of x."""
        return self.training and self.drop > 0 and x.device.type == "cpu" and not transformed()


class Norm(FromConfig, nn.Module):
    """Brings each hidden vector (…, D) to a common scale; made of its config and D."""

    class Config(BaseConfig, family="norm"):
        """The kind of norm, and its ε."""

        eps: float = 1e-5  # added to the variance

    config: Config

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        raise NotImplementedError


class LayerNorm(Norm, kind="layer_norm"):
    """γ (x − mean x) / √(var x + ε) + β (Ba et al., 2016)."""

    def __init__(self, config: Norm.Config, hidden_size: int) -> None:
        super().__init__(config, hidden_size)
        self.norm = nn.LayerNorm(hidden_size, eps=config.eps)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        return self.norm(x)


class RMSNorm(Norm, kind="rms_norm"):
    """γ x / √(mean x² + ε) (Zhang & Sennrich, 2019)."""

    def __init__(self, config: Norm.Config, hidden_size: int) -> None:
        super().__init__(config, hidden_size)
        self.norm = nn.RMSNorm(hidden_size, eps=config.eps)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        native = torch.is_grad_enabled() and library() and fits(x) and fits(self.norm.weight)
        if native and not overridden(self.norm, nn.RMSNorm, "forward"):
            return apply(RMSNormed, x, self.norm.weight, self.config.eps)
        return self.norm(x)


class NoNorm(Norm, kind="none"):
    """x as it is, whatever ``eps`` is: shows what normalisation is for."""

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        return x


class BatchNorm(Norm):
    """γ (x − μ) / √(σ² + ε) + β for each feature (Ioffe & Szegedy, 2015).

    In training μ and σ² are those of a feature over all real positions of a batch (``real``), and
    padding becomes 0. In use they are running means from training, so that an output depends on
    neither the batch nor its padding, and a decoder computes a whole sequence and single steps
    alike. When a decoder is trained, μ and σ² also include later tokens, which steps do not know:
    this is why validation falls behind training.
    """

    class Config(Norm.Config, kind="batch_norm"):
        momentum: float = Field(0.1, gt=0, le=1)  # share of a new batch in the running means

    config: Config
    mean: Tensor
    variance: Tensor

    def __init__(self, config: Config, hidden_size: int) -> None:
        super().__init__(config, hidden_size)
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.bias = nn.Parameter(torch.zeros(hidden_size))
        self.register_buffer("mean", torch.zeros(hidden_size))
        self.register_buffer("variance", torch.ones(hidden_size))

    def forward(
        self, x: Float[Tensor, "*B D"], real: Bool[Tensor, "*B"] | None = None
    ) -> Float[Tensor, "*B D"]:
        """Normalise x; ``real`` is true at real positions, None if all are real."""
        if real is None or not self.training:
            return self._scaled(single(x).flatten(0, -2)).view(x.shape)
        rows = self._scaled(single(x[real]))
        return torch.zeros(x.shape, dtype=rows.dtype, device=x.device).masked_scatter(
            real[..., None], rows
        )

    def _scaled(self, rows: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        learns = self.training and len(rows) > 1  # one row has no variance
        return F.batch_norm(
            *(rows, self.mean, self.variance, self.weight, self.bias),
            learns,
            self.config.momentum,
            self.config.eps,
        )


def normalize(
    norm: nn.Module, x: Float[Tensor, "*B D"], real: Bool[Tensor, "*B"] | None
) -> Float[Tensor, "*B D"]:
    """Apply ``norm`` to x; batch statistics count only the real positions."""
    return norm(x, real) if isinstance(norm, BatchNorm) else norm(x)


class FeedForward(FromConfig, nn.Module):
    """f(x W₁ + b₁) W₂ + b₂ at every position."""

    class Config(BaseConfig, family="feed_forward"):
        """The kind of activation; dropout after it; ``bias`` False leaves out b₁ and b₂."""

        dropout: float = Field(0.0, ge=0, lt=1)  # of the inner layer
        bias: bool = True  # whether the layers have a bias

    config: Config
    layers = "f(x W₁ + b₁) W₂ + b₂"  # the equation as printed, with biases
    activation = ""  # f(x)

    def __init__(self, config: Config, hidden_size: int, ffn_size: int) -> None:
        super().__init__(config)
        self.inner = Linear(hidden_size, ffn_size, bias=config.bias)
        self.outer = Linear(ffn_size, hidden_size, bias=config.bias)
        self.dropout = Dropout(config.dropout)

    @property
    def equation(self) -> str:
        """The equation of the block, with the biases that it has."""
        text = self.layers
        for bias in () if self.config.bias else (" + b₁", " + b₂", " + c"):
            text = text.replace(bias, "")
        return f"{text}, f(x) = {self.activation}" if self.activation else text

    def activate(self, x: Float[Tensor, "*B F"]) -> Float[Tensor, "*B F"]:
        """Return the non-linearity f."""
        raise NotImplementedError

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        return self.outer(self.dropout(self.activate(self.inner(x))))


class ReLU(FeedForward, kind="relu"):
    """max(0, x W₁ + b₁) W₂ + b₂ (Vaswani et al., 2017)."""

    activation = "max(0, x)"

    def activate(self, x: Float[Tensor, "*B F"]) -> Float[Tensor, "*B F"]:
        return F.relu(x)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        other = overridden(self, ReLU, "activate") or overridden(self.inner, Linear, "forward")
        # in training the activation is part of the kernel of the product
        fused = self.training and not other
        inner = self.inner(x, relu=True) if fused else self.activate(self.inner(x))
        return self.outer(self.dropout(inner))


class GELU(FeedForward, kind="gelu"):
    """x Φ(x), Φ the normal distribution function (Hendrycks & Gimpel, 2016)."""

    activation = "x Φ(x)"

    def activate(self, x: Float[Tensor, "*B F"]) -> Float[Tensor, "*B F"]:
        return F.gelu(x)


class GELUTanh(FeedForward, kind="gelu_tanh"):
    """x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))), close to GELU: that of GPT-2 (Hendrycks, 2016)."""

    activation = "x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))"

    def activate(self, x: Float[Tensor, "*B F"]) -> Float[Tensor, "*B F"]:
        return F.gelu(x, approximate="tanh")


class SiLU(FeedForward, kind="silu"):
    """x sigmoid(x), also named swish (Ramachandran et al., 2017)."""

    activation = "x σ(x)"

    def activate(self, x: Float[Tensor, "*B F"]) -> Float[Tensor, "*B F"]:
        return F.silu(x)


class NoFeedForward(FeedForward, kind="none"):
    """No feed-forward sub-layer: a layer is its attention alone, whose outputs are mixtures of
    linear maps of its inputs (Dong et al., 2021, show what a Transformer loses without it).

    The layer has no residual block for it; ``ffn_size``, ``dropout`` and ``bias`` have no meaning.
    """

    layers = "x"

    def __init__(self, config: FeedForward.Config, hidden_size: int, ffn_size: int) -> None:
        FromConfig.__init__(self, config)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        return x


class GatedFeedForward(FeedForward):
    """(f(x W₁ + b₁) ⊙ (x V + c)) W₂ + b₂ (Shazeer, 2020)."""

    layers = "(f(x W₁ + b₁) ⊙ (x V + c)) W₂ + b₂"

    def __init__(self, config: FeedForward.Config, hidden_size: int, ffn_size: int) -> None:
        super().__init__(config, hidden_size, ffn_size)
        self.gate = Linear(hidden_size, ffn_size, bias=config.bias)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        x = to_autocast_dtype(x)
        return self.outer(self.dropout(self.activate(self.inner(x)) * self.gate(x)))


class SwiGLU(GatedFeedForward, SiLU, kind="swiglu"):
    """(silu(x W₁ + b₁) ⊙ (x V + c)) W₂ + b₂ (Shazeer, 2020; Llama)."""

    differs = "has biases; Shazeer (2020) has none (bias = false)"


class GEGLU(GatedFeedForward, GELUTanh, kind="geglu"):
    """(gelu(x W₁ + b₁) ⊙ (x V + c)) W₂ + b₂, with the tanh form of GELU (Shazeer, 2020; T5 1.1)."""

    differs = "has biases; Shazeer (2020) has none (bias = false); GELU in its tanh approximation"


Sublayer = Callable[[Tensor], Tensor]


class ResidualBlock(nn.Module):
    """A residual connection around a sub-layer f, with dropout and a norm.

    ``order`` "pre": x + dropout(f(norm(x))); "post": norm(x + dropout(f(x))); "plain":
    norm(dropout(f(x))), without the sum; "sandwich": x + dropout(after(f(norm(x)))), with a norm
    ``after`` f (Ding et al., 2021: CogView; Gemma 2).
    """

    def __init__(self, norm: Norm, dropout: float, order: str, after: Norm | None = None) -> None:
        super().__init__()
        self.norm, self.dropout, self.order, self.after = norm, Dropout(dropout), order, after

    def around(self, sublayer: Sublayer, x: Tensor, real: Tensor | None) -> Tensor:
        """Return x (B, T, D) after the sub-layer f.

        ``real`` (B, T) is true at real positions, for a norm that is over several of them.
        """
        if self.order in ("pre", "sandwich"):
            change = sublayer(normalize(self.norm, x, real))
            return self(x, change if self.after is None else normalize(self.after, change, real))
        change = sublayer(x)
        y = self.dropout(change) if self.order == "plain" else self(x, change)
        return normalize(self.norm, y, real)

    def forward(self, x: Tensor, change: Tensor) -> Tensor:
        """Return x + dropout(change), in one pass where random bytes decide."""
        dropout = self.dropout
        if dropout.by_bytes(change) and not overridden(dropout, Dropout, "forward"):
            return apply(_ByteDropout, change, dropout.drop, x)
        return x + dropout(change)


def through(
    blocks: nn.ModuleList, sublayers: Iterable[Sublayer], x: Tensor, real: Tensor | None
) -> Tensor:
    """Return x after each sub-layer, in its block; one without, `NoFeedForward`, is left out."""
    for block, sublayer in zip(cast(list[ResidualBlock], blocks), sublayers, strict=False):
        x = block.around(sublayer, x, real)
    return x
