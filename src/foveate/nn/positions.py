"""Position encodings.

An encoding overrides one of three methods: ``embed`` changes the embeddings, ``rotate`` the
projected queries and keys, ``bias`` the scores. ``at`` are the positions of the vectors, (T,)
integers from 0.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from foveate.config import BaseConfig, FromConfig
from foveate.errors import UserError


class Position(FromConfig, nn.Module):
    """An encoding of positions; the base class changes nothing."""

    class Config(BaseConfig, family="position"):
        """The kind of encoding and its parameters."""

        def token_size(self, hidden_size: int) -> int:
            """Return how many of D features belong to the token: those that ``embed`` reads."""
            return hidden_size

    config: Config
    equation = "b_i"  # as printed: the bias of a score, or an embedding
    adds = True  # whether `embed`, if there is one, adds to x what does not depend on x

    def __init__(self, config: Config, hidden_size: int, num_heads: int) -> None:
        super().__init__(config)
        self.rotates = type(self).rotate is not Position.rotate
        self.biases = type(self).bias is not Position.bias

    def forward(self, x: Float[Tensor, "B T E"], at: Int[Tensor, "T"]) -> Float[Tensor, "B T D"]:
        return self.embed(x, at)

    def embed(self, x: Float[Tensor, "B T D"], at: Int[Tensor, "T"]) -> Float[Tensor, "B T D"]:
        """Return the embeddings with their positions added."""
        return x

    def rotate(self, x: Float[Tensor, "B H T K"], at: Int[Tensor, "T"]) -> Float[Tensor, "B H T K"]:
        """Return queries or keys, rotated by their positions."""
        return x

    def bias(
        self, query_at: Int[Tensor, "T"], key_at: Int[Tensor, "S"]
    ) -> Float[Tensor, "H T S"] | None:
        """Return what is added to the score of each query and key; None for nothing."""
        return None


class NoPosition(Position, kind="none"):
    """No position: self-attention then ignores the order of its input."""


NO_POSITION = NoPosition(NoPosition.Config(), 1, 1)


class Sinusoidal(Position):
    """PE(t, 2i) = sin(t / 10000^(2i/D)), PE(t, 2i+1) = cos(…), added (Vaswani et al., 2017)."""

    class Config(Position.Config, kind="sinusoidal"):
        base: float = Field(10_000.0, gt=0)  # of the wavelengths, from 2π to base · 2π

    config: Config
    embedding = "x + PE(t)"  # as printed, with the encoding
    waves = "PE(t, 2i) = sin(ω), PE(t, 2i + 1) = cos(ω)"

    def __init__(self, config: Config, hidden_size: int, num_heads: int) -> None:
        super().__init__(config, hidden_size, num_heads)
        powers = f"ω = t / {config.base:.6g}^(2i / {hidden_size + hidden_size % 2})"
        self.equation = f"{self.embedding}, {self.waves}, {powers}"

    def embed(self, x: Float[Tensor, "B T D"], at: Int[Tensor, "T"]) -> Float[Tensor, "B T D"]:
        return x + self.encode(at, x.shape[-1]).to(x.dtype)

    def encode(self, at: Int[Tensor, "T"], size: int) -> Float[Tensor, "T D"]:
        """Return the encoding of each position."""
        angles = _angles(at, size + size % 2, self.config.base)  # (T, ⌈D/2⌉)
        waves = torch.stack((angles.sin(), angles.cos()), dim=-1)
        return waves.flatten(-2)[..., :size]


class Learned(Position):
    """A learned vector for each position below ``max_length``, added (BERT, GPT).

    Raises `UserError` for a later position.
    """

    class Config(Position.Config, kind="learned"):
        max_length: int = Field(512, gt=0)  # positions that have a vector

    config: Config

    def __init__(self, config: Config, hidden_size: int, num_heads: int) -> None:
        super().__init__(config, hidden_size, num_heads)
        self.table = nn.Embedding(config.max_length, hidden_size)
        nn.init.normal_(self.table.weight, std=0.02)

    def embed(self, x: Float[Tensor, "B T D"], at: Int[Tensor, "T"]) -> Float[Tensor, "B T D"]:
        whole = self.training and len(at) > 1  # from position 0: the device need not be asked
        if len(at) and (last := len(at) - 1 if whole else int(at[-1])) >= self.config.max_length:
            raise UserError(
                f"position {last} is past the learned position's max_length = "
                f"{self.config.max_length}; cut the text, or train with a larger max_length"
            )
        return x + self.table(at)


class SinusoidalHalves(Sinusoidal, kind="sinusoidal_halves"):
    """The same sines and cosines, all sines before all cosines, added (tensor2tensor, Marian)."""

    waves = "PE(t, i) = sin(ω), PE(t, ⌈D/2⌉ + i) = cos(ω)"

    def encode(self, at: Int[Tensor, "T"], size: int) -> Float[Tensor, "T D"]:
        angles = _angles(at, size + size % 2, self.config.base)  # (T, ⌈D/2⌉)
        return torch.cat((angles.sin(), angles.cos()), dim=-1)[..., :size]


class Rotary(Position):
    """Turns each pair (x_i, x_{i+K/2}) by the angle t / base^(2i/K), so that qᵀk depends on the
    distance alone (RoPE; Su et al., 2021).
    """

    differs = (
        "rotates pairs (i, i + K/2), as in GPT-NeoX; Su et al. (2021), adjacent pairs (2i, 2i + 1)"
    )

    class Config(Position.Config, kind="rope"):
        base: float = Field(10_000.0, gt=0)  # of the wavelengths, from 2π to base · 2π

    config: Config

    def rotate(self, x: Float[Tensor, "B H T K"], at: Int[Tensor, "T"]) -> Float[Tensor, "B H T K"]:
        if x.shape[-1] % 2:
            raise UserError(
                f"rope turns pairs: the head size {x.shape[-1]} must be even; it is "
                "attention.head_size, or hidden_size / num_heads"
            )
        angles = at.float()[:, None] * self.frequencies(x.shape[-1], at.device)  # (T, K/2)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    def frequencies(self, size: int, device: torch.device) -> Float[Tensor, "F"]:
        """Return by which angle each pair of a head turns at each step: base^(−2i/K)."""
        return _frequencies(size, self.config.base, device)


def _angles(at: Tensor, size: int, base: float) -> Tensor:
    """Return t · base^(−2i/size): (T, size/2)."""
    return at.float()[:, None] * _frequencies(size, base, at.device)


def _frequencies(size: int, base: float, device: torch.device) -> Tensor:
    """Return base^(−2i/size): (size/2,)."""
    powers = torch.arange(0, size, 2, device=device, dtype=torch.float32) / size
    return torch.exp(-math.log(base) * powers)
