"""Output projection and cross-entropy in one, by chunks of logits.

    L = Σ_n −Σ_v y_nv log softmax(W h_n)_v,   y = (1 − ε) one-hot + ε/V

The forward also computes the gradients, chunk by chunk, so that the logits (N, V) of a batch never
exist all at once.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from foveate.nn.linear import to_autocast_dtype
from foveate.nn.native.kernels import AutogradContext, cross_entropy_, transformed

CHUNK = 4_194_304  # logits at a time: 16 MB of floats, which stay in the cache
EVEN = 64  # rows of a chunk are a multiple of it: oneDNN compiles a kernel for each new shape


class _LinearLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: AutogradContext, hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        """Return the sums over N of the smoothed loss of the vectors (N, D), and of the plain."""
        with_grad = any(ctx.needs_input_grad)
        count, rows = len(hidden), _rows(len(hidden), len(weight))
        hidden = F.pad(hidden, (0, 0, 0, -count % rows))
        grad_hidden = torch.empty_like(hidden) if with_grad else None
        grad_weight = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device)
        weight = weight.to(hidden.dtype)
        logits = hidden.new_empty(rows, len(weight))
        sums = torch.zeros(2, dtype=torch.float64, device=hidden.device)
        for start in range(0, count, rows):
            chunk, real = slice(start, start + rows), slice(start, min(start + rows, count))
            torch.mm(hidden[chunk], weight.T, out=logits)
            losses = cross_entropy_(logits[: real.stop - start], target[real], smoothing, with_grad)
            sums += torch.stack(losses).sum(dim=1, dtype=torch.float64)
            if grad_hidden is None:
                continue
            logits[real.stop - start :] = 0
            torch.mm(logits, weight, out=grad_hidden[chunk])
            grad_weight += logits.T @ hidden[chunk]
        ctx.save_for_backward(None if grad_hidden is None else grad_hidden[:count], grad_weight)
        total, other = sums
        ctx.mark_non_differentiable(other)
        return total.float(), other

    @staticmethod
    def backward(ctx: AutogradContext, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        scale = grads[0]
        return grad_hidden * scale.to(grad_hidden.dtype), grad_weight * scale, None, None


def _rows(count: int, vocabulary: int) -> int:
    """Return the rows of a chunk: the same for all chunks, with little padding in the last."""
    chunks = -(-count * vocabulary // CHUNK) or 1
    even = -(-count // chunks // EVEN) * EVEN
    return max(1, min(count, even))


def linear_cross_entropy(
    hidden: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    target: Int[Tensor, "N"],
    smoothing: float = 0.0,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return the smoothed loss and the plain −log-likelihood, each summed over the N targets.

    Label smoothing is that of Szegedy et al. (2016). Under autocast the products run in its dtype
    and the softmax in fp32.
    """
    if transformed():  # all at once, for transforms, which the function above lacks
        log_p = F.linear(hidden, weight.to(hidden.dtype)).log_softmax(dim=-1, dtype=torch.float32)
        nll = -log_p.gather(1, target[:, None]).sum()
        return (1 - smoothing) * nll - smoothing * log_p.mean(dim=1).sum(), nll.detach()
    if not torch.is_grad_enabled():
        hidden, weight = hidden.detach(), weight.detach()
    hidden = to_autocast_dtype(hidden)
    with torch.autocast(hidden.device.type, enabled=False):
        return _LinearLoss.apply(hidden, weight, target, smoothing)  # type: ignore[no-untyped-call]
