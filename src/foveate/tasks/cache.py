"""A cache of the last words: attention to what was just read, beside a language model.

    p(x_t) = (1 − λ) p_model(x_t) + λ Σ_i w_i [x_i = x_t]
    w = softmax_i(θ cos(h_t, h_i)),   t − n ≤ i < t

h_i is the vector from which the model predicts x_i: words that followed like contexts are likely
again. Nothing is trained; θ and λ are chosen on held-out text. Grave et al. (2017), whose products
h_t·h_i are not divided by the norms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

FLATNESS = (2.0, 4.0, 6.0, 8.0, 11.0, 16.0)  # values of θ that are tried
SHARES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)  # values of λ that are tried
ROWS = 512  # places whose weights are formed at a time


@dataclass(frozen=True)
class Predicted:
    """Places of a text: vectors (T, D), the tokens (T,) that follow them, and their log p (T,)."""

    hidden: Float[Tensor, "T D"]
    token: Int[Tensor, "T"]
    log_p: Float[Tensor, "T"]

    def split(self, rows: int) -> Iterator[Predicted]:
        """The same, a few places at a time."""
        columns = (self.hidden.split(rows), self.token.split(rows), self.log_p.split(rows))
        return (Predicted(*part) for part in zip(*columns, strict=True))


@dataclass(frozen=True)
class Cache:
    """The last n = ``size`` places, θ = ``flatness`` and λ = ``share``."""

    size: int
    flatness: float = 0.0
    share: float = 0.0

    def __str__(self) -> str:
        chosen = f"θ {self.flatness:g} and λ {self.share:g}, chosen on the validation data"
        return f"a cache of the last {self.size} tokens, {chosen}" if self.share else "no cache"

    def log_p(self, text: Iterable[Predicted]) -> tuple[Float[Tensor, "T"], Float[Tensor, "T"]]:
        """Log p of each token of a text, which comes piece by piece: by the model, and by both."""
        log_p, (cached,) = probabilities(text, self.size, [self.flatness])
        return log_p, mixed(log_p, cached, self.share)


def fit(text: Iterable[Predicted], size: int) -> Cache:
    """The θ and λ with which a held-out text is likeliest; λ is 0 where none helps."""
    log_p, each = probabilities(text, size, FLATNESS)
    tried = [
        (float(mixed(log_p, cached, share).sum()), Cache(size, flatness, share))
        for flatness, cached in zip(FLATNESS, each, strict=True)
        for share in SHARES
    ]
    return max([(float(log_p.sum()), Cache(size)), *tried], key=lambda pair: pair[0])[1]


def mixed(
    log_p: Float[Tensor, "T"], cached: Float[Tensor, "T"], share: float
) -> Float[Tensor, "T"]:
    """Log of (1 − λ) p + λ p_cache; the model alone at the first place, which nothing precedes."""
    both = ((1 - share) * log_p.exp() + share * cached).log()
    return torch.cat((log_p[:1], both[1:]))


def probabilities(
    text: Iterable[Predicted], size: int, flatness: Sequence[float]
) -> tuple[Float[Tensor, "T"], Float[Tensor, "N T"]]:
    """Log p of each token by the model, and its probability by the cache for each of N θ."""
    log_p: list[Tensor] = []
    cached: list[Tensor] = []
    hidden = token = None  # of the last ``size`` places
    for piece in (part for whole in text for part in whole.split(ROWS)):
        unit = F.normalize(piece.hidden.float(), dim=1)
        hidden = unit if hidden is None else torch.cat((hidden, unit))
        token = piece.token if token is None else torch.cat((token, piece.token))
        i = torch.arange(len(token), device=token.device)
        t = i[-len(unit) :, None]
        masked = (i >= t) | (i < t - size)
        cosine = (unit @ hidden.T).masked_fill(masked, -math.inf)
        same = piece.token[:, None] == token
        weights = ((theta * cosine).softmax(dim=1).nan_to_num() for theta in flatness)
        cached.append(torch.stack([(w * same).sum(dim=1) for w in weights]))
        log_p.append(piece.log_p.double())
        hidden, token = hidden[-size:], token[-size:]
    return torch.cat(log_p), torch.cat(cached, dim=1).double()
