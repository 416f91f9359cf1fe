"""Feed-forward sub-layers: the same two-layer network at every position."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from foveate.config import BaseConfig, Configurable
from foveate.nn.linear import Dropout, Linear, to_autocast_dtype
from foveate.nn.native.kernels import overridden


class FeedForward(Configurable, nn.Module):
    """f(x W₁ + b₁) W₂ + b₂ at every position."""

    class Config(BaseConfig, family="feed_forward"):
        """The kind of activation; dropout after it; ``bias`` False leaves out b₁ and b₂."""

        dropout: float = Field(0.0, ge=0, lt=1)  # of the inner layer
        bias: bool = True  # whether the layers have a bias

    layers = "f(x W₁ + b₁) W₂ + b₂"  # the equation as printed, with biases
    activation = ""  # f(x)

    def __init__(self, config: Config, hidden_size: int, ffn_size: int) -> None:
        super().__init__()
        self.config = config
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
        nn.Module.__init__(self)
        self.config = config

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
