"""Attention scores, the normalizers that turn them into weights, and sampled (hard) attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from foveate.config import BaseConfig, Configurable
from foveate.errors import UserError
from foveate.native.kernels import AutogradContext, transformed
from foveate.nn.context import Probed
from foveate.nn.linear import single


def by_head(
    x: Float[Tensor, "B H T K"], matrix: Float[Tensor, "H K E"]
) -> Float[Tensor, "B H T E"]:
    """Return x_h W_h for each head h in one product of all rows; ``x @ matrix`` makes one each."""
    return torch.einsum("bhtk,hke->bhte", x, matrix.to(x.dtype))


class Score(Probed, Configurable, nn.Module):
    """Scores how well each query matches each key."""

    class Config(BaseConfig, family="score"):
        """The kind of score and its parameters."""

        @property
        def joins_sizes(self) -> bool:
            """True if the score has a matrix that compares queries with keys of another size."""
            return False

    equation = ""  # as printed, with e_i on the left
    reads_keys = True  # False if the score depends on the query only
    gives_weights = False  # whether it normalises by itself and returns weights
    scale: float | None = None
    """c where the score is c·qᵀk, so that a fused kernel may form it; a class that defines another
    `forward` has to set it anew."""

    def __init__(self, config: Config, num_heads: int, head_size: int) -> None:
        super().__init__()
        self.config = config

    def forward(
        self, query: Float[Tensor, "B H T K"], key: Float[Tensor, "B H S K"]
    ) -> Float[Tensor, "B H T S"]:
        raise NotImplementedError


class ScaledDot(Score, kind="scaled_dot"):
    """qᵀk / √K: the spread of the scores stays that of one product (Vaswani et al., 2017)."""

    equation = "e_i = q · k_i / √K"
    scale = 1.0

    def __init__(self, config: Score.Config, num_heads: int, head_size: int) -> None:
        super().__init__(config, num_heads, head_size)
        self.scale = 1 / math.sqrt(head_size)

    def forward(
        self, query: Float[Tensor, "B H T K"], key: Float[Tensor, "B H S K"]
    ) -> Float[Tensor, "B H T S"]:
        return (query * self.scale) @ key.mT


class Dot(Score, kind="dot"):
    """qᵀk (Luong et al., 2015)."""

    equation = "e_i = q · k_i"
    scale = 1.0

    def forward(
        self, query: Float[Tensor, "B H T K"], key: Float[Tensor, "B H S K"]
    ) -> Float[Tensor, "B H T S"]:
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

    def forward(
        self, query: Float[Tensor, "B H T K"], key: Float[Tensor, "B H S E"]
    ) -> Float[Tensor, "B H T S"]:
        return self._stage("query W", by_head(query, self.weight)) @ key.mT


class Additive(Score):
    """vᵀ tanh(q + k), with q = W_q s and k = W_k h projected outside (Bahdanau et al., 2015).

    With ``own_matrix`` vᵀ tanh(W_a [q; k]), "concat" of Luong et al. (2015), for states that are
    not projected: W_a = [W_q W_k] has K rows, and the sizes of q and k may differ.
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

    def forward(
        self, query: Float[Tensor, "B H T K"], key: Float[Tensor, "B H S E"]
    ) -> Float[Tensor, "B H T S"]:
        if self.config.own_matrix:
            query, key = by_head(query, self.of_query.mT), by_head(key, self.of_key.mT)
        sums = query.unsqueeze(3) + key.unsqueeze(2)  # (B, H, T, S, K)
        weight = self.weight[:, None, :, None].to(sums.dtype)  # (H, 1, K, 1)
        return (self._stage("tanh layer", torch.tanh(sums)) @ weight).squeeze(-1)


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

    def forward(
        self, query: Float[Tensor, "B H T K"], key: Float[Tensor, "B H S K"]
    ) -> Float[Tensor, "B H T S"]:
        unit_query = self._stage("unit query", F.normalize(query, dim=-1))
        unit_key = self._stage("unit key", F.normalize(key, dim=-1))
        return self.config.sharpness * unit_query @ unit_key.mT


class Location(Score):
    """W q: the query alone says where to look; row i of W scores place i (Luong et al., 2015).

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

    def forward(
        self, query: Float[Tensor, "B H T K"], key: Float[Tensor, "B H S E"]
    ) -> Float[Tensor, "B H T S"]:
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

    def all(
        self, query: Float[Tensor, "B H T K"], length: int | None = None
    ) -> Float[Tensor, "B H T S"]:
        """Return the scores of the first positions, or of all L_max without a length."""
        return by_head(query, self.weight[:, :length].mT)


class AffineLocation(Location, kind="affine_location"):
    """W q + b: the query says where to look, and b which places are looked at whatever it says."""

    row = "w_{} · q + b_{}"

    def __init__(self, config: Location.Config, num_heads: int, head_size: int) -> None:
        super().__init__(config, num_heads, head_size)
        self.bias = nn.Parameter(torch.zeros(num_heads, config.max_length))

    def all(
        self, query: Float[Tensor, "B H T K"], length: int | None = None
    ) -> Float[Tensor, "B H T S"]:
        scores = super().all(query, length)
        return scores + self.bias[:, None, :length].to(scores.dtype)


class Normalizer(Configurable, nn.Module):
    """Turns scores (…, S), −∞ where masked, into weights (…, S): 0 where masked, 1 in sum."""

    class Config(BaseConfig, family="normalizer"):
        """The kind of normaliser and its parameters."""

    equation = ""  # as printed, with α_i on the left
    sums_to_one = True  # whether weights are not negative and sum to 1
    fusable = False
    """Whether it is a softmax, so that a fused kernel may form it; a class that defines another
    `forward` has to set it anew."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

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


class Hardmax(Normalizer, kind="hardmax"):
    """1 at the highest score, the first among equals, and 0 elsewhere.

    Its gradient is that of softmax(e), since its own is 0 (straight-through estimator;
    Bengio et al., 2013).
    """

    equation = "α_i = [i = argmax_j e_j]"

    def forward(self, scores: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        soft = scores.softmax(dim=-1)
        hard = torch.zeros_like(soft).scatter_(-1, scores.argmax(dim=-1, keepdim=True), 1)
        return hard + (soft - soft.detach())


class Sparsemax(Normalizer, kind="sparsemax"):
    """[e − τ]₊ with τ such that the weights sum to 1: the point of the simplex nearest to e
    (Martins & Astudillo, 2016).
    """

    equation = "α_i = [e_i − τ]₊, τ such that Σ_i α_i = 1"

    def forward(self, scores: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        z = _below_top(scores)
        ordered, rank = _ordered(z)
        sums = ordered.cumsum(dim=-1)
        support = (1 + rank * ordered > sums).sum(dim=-1, keepdim=True)
        threshold = (sums.gather(-1, support - 1) - 1) / support
        weights = (z - threshold).clamp(min=0)
        slope = (weights > 0).to(weights.dtype)
        return _with_slope(scores, weights, slope)


class Entmax15(Normalizer, kind="entmax15"):
    """[e/2 − τ]₊² with τ such that the weights sum to 1: half-way from softmax to sparsemax
    (Peters, Niculae & Martins, 2019; their exact algorithm by sorting).
    """

    equation = "α_i = [e_i / 2 − τ]₊², τ such that Σ_i α_i = 1"

    def forward(self, scores: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        z = _below_top(scores) / 2
        ordered, rank = _ordered(z)
        mean = ordered.cumsum(dim=-1) / rank
        spread = ordered.square().cumsum(dim=-1) - rank * mean.square()  # Σ (z − mean)²
        thresholds = mean - ((1 - spread) / rank).clamp(min=0).sqrt()
        support = (thresholds <= ordered).sum(dim=-1, keepdim=True)
        root = (z - thresholds.gather(-1, support - 1)).clamp(min=0)
        return _with_slope(scores, root.square(), root)


class _EntmaxWeights(torch.autograd.Function):
    """Weights p computed without a graph, with the Jacobian of the entmax family:
    ∂p/∂e = diag(s) − s sᵀ / Σs, where s is p^(2 − α) (Peters, Niculae & Martins, 2019).
    """

    @staticmethod
    def forward(ctx: AutogradContext, scores: Tensor, weights: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        ctx.dtype = scores.dtype
        return weights

    @staticmethod
    def backward(ctx: AutogradContext, *grads: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        change = grads[0] * slope
        change = change - slope * change.sum(dim=-1, keepdim=True) / slope.sum(-1, keepdim=True)
        return change.to(ctx.dtype), None, None


def _with_slope(scores: Tensor, weights: Tensor, slope: Tensor) -> Tensor:
    """Return the weights, with the gradient of `_EntmaxWeights`."""
    if transformed():  # the same by a term that is 0: s ⊙ (e − e₀) − s sᵀ (e − e₀) / Σs
        change = (scores - scores.detach()).masked_fill(scores.isneginf(), 0) * slope
        total = change.sum(dim=-1, keepdim=True) / slope.sum(dim=-1, keepdim=True)
        return (weights + change - slope * total).to(scores.dtype)
    result: Tensor = _EntmaxWeights.apply(scores, weights, slope)  # type: ignore[no-untyped-call]
    return result


def _below_top(scores: Tensor) -> Tensor:
    """Return scores minus the highest, without a graph, at least −4, which keeps sums finite.

    The weight of a score 1 below the highest is 0 in sparsemax, of one 2 below in entmax-1.5.
    """
    scores = single(scores.detach())
    return (scores - scores.amax(dim=-1, keepdim=True)).clamp(min=-4)


def _ordered(z: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scores from high to low, and 1, 2, … S."""
    ordered = z.sort(dim=-1, descending=True).values
    return ordered, torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)


@dataclass(frozen=True)
class HardChoice:
    """A sampled choice for each row, for REINFORCE.

    ``log_probability`` is log p of the choice under the policy, (B,), or (B, T) if T steps are
    sampled at once. ``baseline`` (B,) is the reward that the model predicted; None without one.
    """

    log_probability: Tensor
    baseline: Tensor | None = None


class Chooser:
    """A module with a stochastic choice: a key of hard attention, the position of a glimpse.

    Without a ``listener`` it computes the expectation, so that validation and use are
    deterministic. With one (`choices`) it samples, and calls the listener with each choice.
    """

    listener: Callable[[HardChoice], None] | None = None


@contextmanager
def choices(model: nn.Module) -> Iterator[list[HardChoice]]:
    """Let every `Chooser` of a model sample, and collect the choices in order.

    with choices(model) as sampled:
        scores = model(pixels)
    sampled[0].log_probability
    """
    sampled: list[HardChoice] = []
    choosers = [module for module in model.modules() if isinstance(module, Chooser)]
    before = [chooser.listener for chooser in choosers]
    for chooser in choosers:
        chooser.listener = sampled.append
    try:
        yield sampled
    finally:
        for chooser, listener in zip(choosers, before, strict=True):
            chooser.listener = listener


class Sampled(Normalizer, Chooser):
    """Hard attention: s ~ softmax(e) has weight 1 and the rest 0; softmax without a listener.

    In training (objective "reinforce") a query keeps the expectation with probability
    ``expected``, which lowers the variance (Xu et al., 2015).
    """

    class Config(Normalizer.Config, kind="sampled"):
        expected: float = Field(0.5, ge=0, lt=1)
        """probability that training uses the expectation."""

    config: Config
    equation = "α_i = exp(e_i) / Σ_j exp(e_j)"

    def forward(self, scores: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
        weights = scores.softmax(dim=-1)
        if self.listener is None:
            return weights
        drawn = torch.multinomial(weights.detach().float().flatten(0, -2), 1).view(
            *weights.shape[:-1], 1
        )
        log_p = scores.float().log_softmax(dim=-1).gather(-1, drawn).squeeze(-1)  # (B, H, T)
        keeps = torch.rand(log_p.shape, device=log_p.device) < self.config.expected
        self.listener(HardChoice(log_p.masked_fill(keeps, 0.0).sum(dim=1)))  # all heads: (B, T)
        hard = F.one_hot(drawn.squeeze(-1), weights.shape[-1]).to(weights.dtype)
        return torch.where(keeps[..., None], weights, hard)
