"""Attention scores e(q, k): how well a query matches a key. A new score is one class here.

Every score maps projected queries and keys to one number a pair, before masking and normalising.
Shapes: query (B, H, T, K), key (B, H, S, K), scores (B, H, T, S).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from foveate.config import BaseConfig, Configurable


class Score(Configurable, nn.Module):
    """How well each query matches each key."""

    class Config(BaseConfig, family="score"):
        """Which score, and what it needs."""

    reads_keys = True  # False where the query alone decides

    def __init__(self, config: Config, num_heads: int, head_size: int) -> None:
        super().__init__()
        self.config = config

    @property
    def scale(self) -> float | None:
        """C where the score is c·qᵀk, so that a fused kernel may form it; else None."""
        return None

    def forward(
        self, query: Float[Tensor, "B H T K"], key: Float[Tensor, "B H S K"]
    ) -> Float[Tensor, "B H T S"]:
        raise NotImplementedError


class ScaledDot(Score):
    """qᵀk / √K: the spread of the scores stays that of one product (Vaswani et al., 2017)."""

    class Config(Score.Config, kind="scaled_dot"):
        pass

    def __init__(self, config: Config, num_heads: int, head_size: int) -> None:
        super().__init__(config, num_heads, head_size)
        self.head_size = head_size

    @property
    def scale(self) -> float:
        return 1 / math.sqrt(self.head_size)

    def forward(
        self, query: Float[Tensor, "B H T K"], key: Float[Tensor, "B H S K"]
    ) -> Float[Tensor, "B H T S"]:
        return (query * self.scale) @ key.mT


class Dot(Score):
    """qᵀk (Luong et al., 2015)."""

    class Config(Score.Config, kind="dot"):
        pass

    @property
    def scale(self) -> float:
        return 1.0

    def forward(
        self, query: Float[Tensor, "B H T K"], key: Float[Tensor, "B H S K"]
    ) -> Float[Tensor, "B H T S"]:
        return query @ key.mT


class General(Score):
    """qᵀ W k, with a matrix W for each head (Luong et al., 2015)."""

    class Config(Score.Config, kind="general"):
        pass

    def __init__(self, config: Config, num_heads: int, head_size: int) -> None:
        super().__init__(config, num_heads, head_size)
        self.weight = nn.Parameter(torch.empty(num_heads, head_size, head_size))
        nn.init.uniform_(self.weight, -1 / head_size**0.5, 1 / head_size**0.5)

    def forward(
        self, query: Float[Tensor, "B H T K"], key: Float[Tensor, "B H S K"]
    ) -> Float[Tensor, "B H T S"]:
        return query @ self.weight.to(query.dtype) @ key.mT


class Additive(Score):
    """vᵀ tanh(q + k), with q = W_q s and k = W_k h projected outside (Bahdanau et al., 2015)."""

    class Config(Score.Config, kind="additive"):
        pass

    def __init__(self, config: Config, num_heads: int, head_size: int) -> None:
        super().__init__(config, num_heads, head_size)
        self.weight = nn.Parameter(torch.empty(num_heads, head_size))
        nn.init.uniform_(self.weight, -1 / head_size**0.5, 1 / head_size**0.5)

    def forward(
        self, query: Float[Tensor, "B H T K"], key: Float[Tensor, "B H S K"]
    ) -> Float[Tensor, "B H T S"]:
        sums = query.unsqueeze(3) + key.unsqueeze(2)  # (B, H, T, S, K)
        weight = self.weight[:, None, :, None].to(sums.dtype)  # (H, 1, K, 1)
        return (torch.tanh(sums) @ weight).squeeze(-1)


class Cosine(Score):
    """sharpness · cos(q, k): content-based addressing (Graves et al., 2014)."""

    class Config(Score.Config, kind="cosine"):
        sharpness: float = Field(10.0, gt=0)

    config: Config

    def forward(
        self, query: Float[Tensor, "B H T K"], key: Float[Tensor, "B H S K"]
    ) -> Float[Tensor, "B H T S"]:
        return self.config.sharpness * F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).mT


class Location(Score):
    """W q: the query alone says where to look; row i of W scores place i (Luong et al., 2015).

    Raises ``ValueError`` for more keys than ``max_length``.
    """

    class Config(Score.Config, kind="location"):
        max_length: int = Field(256, gt=0)

    config: Config
    reads_keys = False

    def __init__(self, config: Config, num_heads: int, head_size: int) -> None:
        super().__init__(config, num_heads, head_size)
        self.weight = nn.Parameter(torch.empty(num_heads, config.max_length, head_size))
        nn.init.uniform_(self.weight, -1 / head_size**0.5, 1 / head_size**0.5)

    def forward(
        self, query: Float[Tensor, "B H T K"], key: Float[Tensor, "B H S E"]
    ) -> Float[Tensor, "B H T S"]:
        length, limit = key.shape[2], self.config.max_length
        if length > limit:
            raise ValueError(
                f"a source of {length} tokens is longer than the location score's "
                f"max_length = {limit}; raise it in the config, or cut the source"
            )
        return query @ self.weight[:, :length].to(query.dtype).mT


class AffineLocation(Location):
    """W q + b: the query says where to look, and b which places are looked at whatever it says."""

    class Config(Location.Config, kind="affine_location"):
        pass

    config: Config

    def __init__(self, config: Config, num_heads: int, head_size: int) -> None:
        super().__init__(config, num_heads, head_size)
        self.bias = nn.Parameter(torch.zeros(num_heads, config.max_length))

    def forward(
        self, query: Float[Tensor, "B H T K"], key: Float[Tensor, "B H S E"]
    ) -> Float[Tensor, "B H T S"]:
        scores = super().forward(query, key)
        return scores + self.bias[:, None, : key.shape[2]].to(scores.dtype)
