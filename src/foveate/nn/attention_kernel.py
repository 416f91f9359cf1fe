"""Attention as a product of features, φ(q)ᵀ φ(k): sums over keys in place of weights over keys.

    A(q, K, V) = φ(q)ᵀ Σ_i φ(k_i) v_iᵀ / φ(q)ᵀ Σ_i φ(k_i)

The sums do not depend on the query, so work grows with the length and not with its square, and what
a decoder remembers does not grow at all. A new feature map is one class.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from foveate.nn.attention import BaseAttention, View
from foveate.nn.fold import fold, unfold
from foveate.nn.mask import take
from foveate.nn.single import single

CHUNK = 64  # causal queries that are answered together, their own keys by an explicit product


class KernelAttention(BaseAttention):
    """Weights proportional to φ(q)ᵀ φ(k), which are formed only where a tap wants to see them.

    Raises ``ValueError`` for a window, for a position that adds to scores, and for a tap when
    the keys of earlier steps are no longer there.
    """

    class Config(BaseAttention.Config):
        """Heads, and which parts are projected; there is no score and no normaliser."""

    def of_queries(self, x: Float[Tensor, "M H N K"]) -> Float[Tensor, "M H N R"]:
        """φ(q), nowhere negative; a factor of its own for each query cancels."""
        raise NotImplementedError

    def of_keys(self, x: Float[Tensor, "M H S K"]) -> Float[Tensor, "M H S R"]:
        """φ(k), nowhere negative."""
        raise NotImplementedError

    def _look(
        self, queries: Float[Tensor, "M H N K"], source: Tensor, memory: Tensor | None, view: View
    ) -> Float[Tensor, "M H N V"]:
        self._refuse(view, memory is None, queries.device)
        with _exact(queries):
            phi = self.of_queries(single(queries))
        total = self._own(phi, source, view) if memory is None else self._foreign(phi, memory, view)
        mixed, sums = total[..., :-1], total[..., -1:]
        mixed = mixed / sums.masked_fill(sums == 0, 1)  # a query that sees nothing gets zeros
        replaced = None if self.tap is None else self._show(phi, source, memory, view)
        return (mixed if replaced is None else replaced).to(queries.dtype)

    def _own(self, phi: Tensor, source: Tensor, view: View) -> Float[Tensor, "B H T V"]:
        """A sequence looks at itself; what it has read is remembered as one matrix of sums."""
        keys, values = self._features(source, view.query_at, view)
        sums = phi.new_zeros(*keys.shape[:2], keys.shape[-1], values.shape[-1])
        if view.state is not None:
            (sums,) = view.state.swap(self, lambda: (sums,))
        with _exact(phi):
            if view.mask.causal:
                total, sums = _running(phi, keys, values, sums)
            else:
                sums = sums + keys.mT @ values
                total = phi @ sums
        if view.state is not None:
            view.state.put(self, (sums,))
        return total

    def _foreign(self, phi: Tensor, memory: Tensor, view: View) -> Float[Tensor, "M H N V"]:
        """The sums of a memory are made once."""

        def make() -> tuple[Tensor, ...]:
            keys, values = self._features(memory, range(memory.shape[1]), view)
            with _exact(phi):
                return (keys.mT @ values,)

        (sums,) = make() if view.state is None else view.state.once(self, make)
        with _exact(phi):
            return phi @ sums

    def _features(
        self, x: Tensor, at: range, view: View
    ) -> tuple[Float[Tensor, "M H S R"], Float[Tensor, "M H S V"]]:
        """φ(k), 0 where masked, and [v; 1], so that one sum is numerator and denominator."""
        keys, values = self._project(x, view.position, at)
        keys, values = single(self._shared(keys)), single(self._shared(values))
        with _exact(keys):
            keys = self.of_keys(keys)
        if view.mask.keys is not None:
            keys = keys * take(view.mask.keys, at, 1)[:, None, :, None]
        return keys, F.pad(values, (0, 1), value=1.0)

    def _show(
        self, phi: Tensor, source: Tensor, memory: Tensor | None, view: View
    ) -> Float[Tensor, "M H N V"] | None:
        """Form the weights for the tap: φ(q)ᵀ φ(k_i) / Σ_j φ(q)ᵀ φ(k_j)."""
        read, at = source, view.query_at
        if memory is not None:
            read, at = memory, range(memory.shape[1])
        keys, values = self._features(read, at, view)
        with _exact(phi):
            weights = phi @ keys.mT
            if memory is None and view.mask.causal:
                weights = weights.tril()
            sums = weights.sum(dim=-1, keepdim=True)
            weights = weights / sums.masked_fill(sums == 0, 1)
            assert self.tap is not None
            replaced = self.tap(unfold(weights, len(view.query_at)))
            return None if replaced is None else fold(replaced, len(phi)) @ values[..., :-1]

    def _refuse(self, view: View, own: bool, device: torch.device) -> None:
        kind = self.config.kind or ""
        view.refuse_bias(kind, device)
        if view.mask.window is not None:
            raise ValueError(f'attention = "{kind}" sums over all that came before: no window')
        if self.tap is not None and own and view.query_at.start > 0:
            raise ValueError(
                f'attention = "{kind}" remembers sums and no keys, so step by step there are no '
                "weights to see; run the whole sequence at once (state=None)"
            )


class LinearAttention(KernelAttention):
    """φ(x) = elu(x) + 1 (Katharopoulos et al., 2020)."""

    class Config(KernelAttention.Config, kind="linear"):
        pass

    def of_queries(self, x: Float[Tensor, "M H N K"]) -> Float[Tensor, "M H N R"]:
        return F.elu(x) + 1

    def of_keys(self, x: Float[Tensor, "M H S K"]) -> Float[Tensor, "M H S R"]:
        return F.elu(x) + 1


class RandomFeatureAttention(KernelAttention):
    """φ(x) = exp(ωᵀx − ‖x‖²/2) for R random directions ω: φ(q)ᵀφ(k) is exp(qᵀk/√K) on average, so
    this is scaled dot product attention up to chance (Performer, FAVOR+; Choromanski et al., 2021).

    Directions are orthogonal in groups of K, drawn once and kept with the weights. Keys are not
    counted from their largest, which the future or padding might hold: φ(k) ≤ exp(‖ω‖²/2) stays
    finite for heads of up to about 128.
    """

    class Config(KernelAttention.Config, kind="performer"):
        """More ``features`` R, less chance."""

        features: int = Field(256, gt=0)

    config: Config
    directions: Tensor

    def _prepare(self, head_size: int) -> None:
        self.register_buffer("directions", _orthogonal(self.config.features, head_size))

    def of_queries(self, x: Float[Tensor, "M H N K"]) -> Float[Tensor, "M H N R"]:
        exponents = self._exponents(x)
        return (exponents - exponents.amax(dim=-1, keepdim=True).detach()).exp()

    def of_keys(self, x: Float[Tensor, "M H S K"]) -> Float[Tensor, "M H S R"]:
        return self._exponents(x).exp()

    def _exponents(self, x: Tensor) -> Tensor:
        x = x * x.shape[-1] ** -0.25  # qᵀk/√K is the product of these
        return x @ self.directions.mT - x.square().sum(dim=-1, keepdim=True) / 2


def _running(
    phi: Tensor, keys: Tensor, values: Tensor, sums: Tensor
) -> tuple[Float[Tensor, "B H T V"], Float[Tensor, "B H R V"]]:
    """φ(q_t)ᵀ Σ_{i ≤ t} φ(k_i) v_iᵀ for every t, and the sums after the last."""
    totals = []
    chunks = (x.split(CHUNK, dim=2) for x in (phi, keys, values))
    for q, k, v in zip(*chunks, strict=True):
        totals.append((q @ k.mT).tril() @ v + q @ sums)
        sums = sums + k.mT @ v
    return torch.cat(totals, dim=2), sums


def _orthogonal(rows: int, size: int) -> Float[Tensor, "R K"]:
    """Gaussian rows, orthogonal to each other in groups of ``size``."""
    groups = []
    for _ in range(-(-rows // size)):
        q, r = torch.linalg.qr(torch.randn(size, size))
        groups.append((q * r.diagonal().sign()).mT)  # the signs make every direction as likely
    lengths = torch.randn(rows, size).norm(dim=-1, keepdim=True)
    return torch.cat(groups)[:rows] * lengths


def _exact(x: Tensor) -> torch.autocast:
    """Single precision: long sums want all their digits."""
    return torch.autocast(x.device.type, enabled=False)
