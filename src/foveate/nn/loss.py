"""Output projection and smoothed cross-entropy in one: logits live for one chunk and are forgotten.

    L = Σ_n −Σ_v y_nv log softmax(W h_n)_v,   y = (1 − α) one-hot + α/V

Gradients are formed in the forward, chunk by chunk, while the probabilities are at hand.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from foveate.native.kernels import cross_entropy_

CHUNK = 4_194_304  # logits at a time: 16 MB of floats, which stay in the cache
EVEN = 64  # rows of a chunk are a multiple: a library makes a kernel of each shape that it meets


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        """Sums over N of the smoothed loss and of −log p(target)."""
        wanted = any(ctx.needs_input_grad)
        count, rows = len(hidden), _rows(len(hidden), len(weight))
        hidden = F.pad(hidden, (0, 0, 0, -count % rows))
        grad_hidden = torch.empty_like(hidden) if wanted else None
        grad_weight = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device)
        weight = weight.to(hidden.dtype)
        logits = hidden.new_empty(rows, len(weight))
        sums = torch.zeros(2, dtype=torch.float64, device=hidden.device)
        for start in range(0, count, rows):
            h, y = hidden[start : start + rows], target[start : start + rows]
            torch.mm(h, weight.T, out=logits)
            losses = cross_entropy_(logits[: len(y)], y, smoothing, grad=wanted)
            sums += torch.stack(losses).sum(dim=1, dtype=torch.float64)
            if grad_hidden is None:
                continue
            logits[len(y) :] = 0
            torch.mm(logits, weight, out=grad_hidden[start : start + rows])
            grad_weight += logits.T @ h
        ctx.save_for_backward(None if grad_hidden is None else grad_hidden[:count], grad_weight)
        total, nll = sums
        ctx.mark_non_differentiable(nll)
        return total.float(), nll

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        scale = grads[0]
        return grad_hidden * scale.to(grad_hidden.dtype), grad_weight * scale, None, None


def _rows(count: int, vocabulary: int) -> int:
    """How many rows a chunk has, so that all chunks have as many and little is left over."""
    chunks = -(-count * vocabulary // CHUNK) or 1
    even = -(-count // chunks // EVEN) * EVEN
    return max(1, min(count, even))


def linear_cross_entropy(
    hidden: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    target: Int[Tensor, "N"],
    smoothing: float = 0.0,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The smoothed loss and the plain −log-likelihood, each summed over the N targets.

    Label smoothing is that of Szegedy et al. (2016). Under autocast the products run in its type
    and the softmax in fp32.
    """
    if not torch.is_grad_enabled():
        hidden, weight = hidden.detach(), weight.detach()
    if torch.is_autocast_enabled(hidden.device.type):
        hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
    with torch.autocast(hidden.device.type, enabled=False):
        return _LinearCrossEntropy.apply(hidden, weight, target, smoothing)  # type: ignore[no-untyped-call]
