"""Attention scores, and the normalizers that turn them into weights."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from foveate.config import BaseConfig, FromConfig
from foveate.errors import UserError, returned
from foveate.nn.context import Probed

Query = Float[Tensor, "B H T K"]
Key = Float[Tensor, "B H S E"]  # E is K, or K' if `joins_sizes`
Scores = Float[Tensor, "B H T S"]


def by_head(
    x: Float[Tensor, "B H T K"], matrix: Float[Tensor, "H K E"]
) -> Float[Tensor, "B H T E"]:
    """Return x_h W_h for each head h in one product; ``x @ matrix`` computes one per row of B."""
    return torch.einsum("bhtk,hke->bhte", x, matrix.to(x.dtype))


class Score(Probed, FromConfig, nn.Module):
    """Scores how well each query matches each key: `forward` is the equation of a paper."""

    class Config(BaseConfig, family="score"):
        """The kind of score and its parameters."""

        @property
        def joins_sizes(self) -> bool:
            """True if it compares queries with keys of another size, which are not projected."""
            return False

    equation = ""  # as printed, with e_i on the left
    reads_keys = True  # False if the score depends on the query only
    gives_weights = False  # whether it normalises by itself and returns weights
    scale: float | None = None
    """c where the score is c·qᵀk, so that a fused kernel may form it; a class that defines another
    `forward` has to set it anew."""

    def forward(self, query: Query, key: Key) -> Scores:
        raise NotImplementedError

    def check(self, scores: Tensor, query: Query, key: Key) -> None:
        """Raise `UserError` unless the `forward` of a user's class returned (B, H, T, S)."""
        if type(self).__module__.startswith("foveate."):
            return
        name, expected = f"{type(self).__qualname__}.forward", (*query.shape[:3], key.shape[2])
        if (shape := tuple(returned(scores, Tensor, name).shape)) != expected:
            raise UserError(f"{name} returned {shape}: expected (B, H, T, S) = {expected}")


class ScaledDot(Score, kind="scaled_dot"):
    """qᵀk / √K: the spread of the scores stays that of one product (Vaswani et al., 2017)."""

    equation = "e_i = q · k_i / √K"
    scale = 1.0  # 1/√K in an object; here only so that `_may_fuse` finds this class

    def __init__(self, config: Score.Config, num_heads: int, head_size: int) -> None:
        super().__init__(config, num_heads, head_size)
        self.scale = 1 / math.sqrt(head_size)

    def forward(self, query: Query, key: Key) -> Scores:
        return (query * self.scale) @ key.mT


class Dot(Score, kind="dot"):
    """qᵀk (Luong et al., 2015)."""

    equation = "e_i = q · k_i"
    scale = 1.0

    def forward(self, query: Query, key: Key) -> Scores:
        return query @ key.mT


class General(Score):
    """qᵀ W k, with a matrix W (K, K') for each head (Luong et al., 2015); K' is the size of the
    keys, which may be another than K where they are not projected.
    """

    class Config(Score.Config, kind="general"):
        @property
        def joins_sizes(self) -> bool:
            return True

    def __init__(
        self, config: Config, num_heads: int, head_size: int, key_size: int | None = None
    ) -> None:
        super().__init__(config, num_heads, head_size)
        self.weight = nn.Parameter(torch.empty(num_heads, head_size, key_size or head_size))
        nn.init.uniform_(self.weight, -1 / head_size**0.5, 1 / head_size**0.5)

    equation = "e_i = qᵀ W k_i"

    def equations(self) -> dict[str, str]:
        return {"query W": "qᵀ W"}

    def forward(self, query: Query, key: Key) -> Scores:
        return self._stage("query W", by_head(query, self.weight)) @ key.mT


class Additive(Score):
    """vᵀ tanh(q + k), with q = W s and k = U h projected outside (Bahdanau et al., 2015).

    With ``own_matrix`` the score has W and U itself, for states that are not projected and whose
    sizes may differ: vᵀ tanh(W_a [q; k]), W_a = [W U], is "concat" of Luong et al. (2015). v, W and
    U are ``weight``, ``of_query`` and ``of_key``.
    """

    differs = (
        "query and key use the projections of the attention module, with biases; Bahdanau et al. "
        "(2015) have no biases (attention.bias = false); for the W_a of Luong et al. (2015), set "
        "own_matrix = true"
    )

    class Config(Score.Config, kind="additive"):
        own_matrix: bool = False  # whether the score has W_a, for states that are not projected

        @property
        def joins_sizes(self) -> bool:
            return self.own_matrix

    config: Config

    def __init__(
        self, config: Config, num_heads: int, head_size: int, key_size: int | None = None
    ) -> None:
        super().__init__(config, num_heads, head_size)
        self.layer = "tanh(W_a [q; k_i])" if config.own_matrix else "tanh(q + k_i)"
        self.equation = f"e_i = vᵀ {self.layer}"
        self.weight = nn.Parameter(torch.empty(num_heads, head_size))
        nn.init.uniform_(self.weight, -1 / head_size**0.5, 1 / head_size**0.5)
        if config.own_matrix:  # (H, K, K) and (H, K, K')
            sizes, bound = (head_size, key_size or head_size), head_size**-0.5
            self.of_query, self.of_key = (
                nn.Parameter(torch.empty(num_heads, head_size, size).uniform_(-bound, bound))
                for size in sizes
            )

    def equations(self) -> dict[str, str]:
        return {"tanh layer": self.layer}

    def forward(self, query: Query, key: Key) -> Scores:
        if self.config.own_matrix:  # W q and U k
            query, key = by_head(query, self.of_query.mT), by_head(key, self.of_key.mT)
        sums = query.unsqueeze(3) + key.unsqueeze(2)  # W s + U h: (B, H, T, S, K)
        v = self.weight[:, None, :, None].to(sums.dtype)  # (H, 1, K, 1)
        return (self._stage("tanh layer", torch.tanh(sums)) @ v).squeeze(-1)


class CosineScore(Score):
    """sharpness · cos(q, k): content-based addressing (Graves et al., 2014)."""

    differs = "a constant sharpness; in Graves et al. (2014), the controller emits it at each step"

    class Config(Score.Config, kind="cosine"):
        sharpness: float = Field(10.0, gt=0)  # factor of the cosine

    config: Config

    def __init__(self, config: Config, num_heads: int, head_size: int) -> None:
        super().__init__(config, num_heads, head_size)
        self.equation = f"e_i = {config.sharpness:.6g} q · k_i / (‖q‖ ‖k_i‖)"

    def equations(self) -> dict[str, str]:
        return {"unit query": "q / ‖q‖", "unit key": "k_i / ‖k_i‖"}

    def forward(self, query: Query, key: Key) -> Scores:
        unit_query = self._stage("unit query", F.normalize(query, dim=-1))
        unit_key = self._stage("unit key", F.normalize(key, dim=-1))
        return self.config.sharpness * unit_query @ unit_key.mT


class Location(Score):
    """W q: the query alone says where to look; row i of W scores position i (Luong et al., 2015).

    The softmax is over the positions of the source. As printed by Luong et al., it is over all
    ``max_length`` positions and truncated to the length: the weights of a short source sum to less
    than 1, and the end of a longer one gets 0. Otherwise a longer one raises `UserError`.
    """

    differs = (
        "the softmax is over the source positions; Luong et al. (2015) compute it over L_max "
        'positions and truncate the result: set softmax_over = "max_length"'
    )

    class Config(Score.Config, kind="location"):
        max_length: int = Field(256, gt=0)  # positions that have a score
        softmax_over: Literal["length", "max_length"] = "length"
        """Positions that share the softmax: those of the source, or all (as printed)."""

    config: Config
    reads_keys = False
    row = "w_{} · q"  # the score of a position, as printed

    def __init__(self, config: Config, num_heads: int, head_size: int) -> None:
        super().__init__(config, num_heads, head_size)
        self.gives_weights = config.softmax_over == "max_length"
        i, j = self.row.format("i", "i"), self.row.format("j", "j")
        self.equation = f"e_i = {i}"
        if self.gives_weights:
            self.equation = f"e_i = exp({i}) / Σ_j exp({j}), j from 1 to {config.max_length}"
        self.weight = nn.Parameter(torch.empty(num_heads, config.max_length, head_size))
        nn.init.uniform_(self.weight, -1 / head_size**0.5, 1 / head_size**0.5)

    def forward(self, query: Query, key: Key) -> Scores:
        length, limit = key.shape[2], self.config.max_length
        if self.gives_weights:
            weights = self.all(query).softmax(dim=-1)[..., :length]
            return F.pad(weights, (0, length - weights.shape[-1]))
        if length > limit:
            raise UserError(
                f"a source of {length} tokens is longer than the location score's "
                f"max_length = {limit}; raise it in the config, or cut the source"
            )
        return self.all(query, length)

    def all(self, query: Query, length: int | None = None) -> Scores:
        """Return the scores of the first positions, or of all L_max without a length."""
        return by_head(query, self.weight[:, :length].mT)


class AffineLocation(Location, kind="affine_location"):
    """W q + b: W q depends on the query, b favours the same positions for every query."""

    row = "w_{} · q + b_{}"

    def __init__(self, config: Location.Config, num_heads: int, head_size: int) -> None:
        super().__init__(config, num_heads, head_size)
        self.bias = nn.Parameter(torch.zeros(num_heads, config.max_length))

    def all(self, query: Query, length: int | None = None) -> Scores:
        scores = super().all(query, length)
        return scores + self.bias[:, None, :length].to(scores.dtype)


class Normalizer(FromConfig, nn.Module):
    """Turns scores (…, S), −∞ where masked, into weights (…, S): 0 where masked, 1 in sum."""

    class Config(BaseConfig, family="normalizer"):
        """The kind of normaliser and its parameters."""

    equation = ""  # as printed, with α_i on the left
    sums_to_one = True  # whether weights are not negative and sum to 1
    fusable = False
    """Whether it is a softmax, so that a fused kernel may form it; a class that defines another
    `forward` has to set it anew."""

    def forward(self, scores: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        raise NotImplementedError


class Softmax(Normalizer):
    """exp(e_i / τ) / Σ_j exp(e_j / τ), τ the temperature."""

    class Config(Normalizer.Config, kind="softmax"):
        temperature: float = Field(1.0, gt=0)  # divides the scores

    config: Config
    fusable = True

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.fusable = config.temperature == 1.0
        over = "" if self.fusable else f" / {config.temperature:.6g}"
        self.equation = f"α_i = exp(e_i{over}) / Σ_j exp(e_j{over})"

    def forward(self, scores: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        if self.config.temperature != 1.0:
            scores = scores / self.config.temperature
        return scores.softmax(dim=-1)
