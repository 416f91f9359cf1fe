"""Output projection and smoothed cross-entropy in one: logits live for one chunk and are forgotten.

    L = Σ_n −Σ_v y_nv log softmax(W h_n)_v,   y = (1 − α) one-hot + α/V

Gradients are formed in the forward, chunk by chunk, while the probabilities are at hand.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

CHUNK = 4_194_304  # logits at a time: 16 MB of floats, which stay in the cache


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        """Sums over N of the smoothed loss and of −log p(target)."""
        size, vocabulary = hidden.shape[1], weight.shape[0]
        wanted = any(ctx.needs_input_grad)
        grad_hidden = torch.empty_like(hidden) if wanted else None
        grad_weight = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device)
        weight = weight.to(hidden.dtype)
        mean_weight = weight.float().mean(dim=0)  # mean_v W_v, so mean_v logit_v = h · mean_weight
        total = torch.zeros((), dtype=torch.float64, device=hidden.device)
        nll = torch.zeros_like(total)
        rows = max(1, CHUNK // vocabulary)
        for start in range(0, len(hidden), rows):
            h, y = hidden[start : start + rows], target[start : start + rows]
            logits = (h @ weight.T).float()
            picked = logits.gather(1, y[:, None]).squeeze(1)
            top = logits.amax(dim=1, keepdim=True)
            odds = logits.sub_(top).exp_()
            mass = odds.sum(dim=1, keepdim=True)
            log_z = (mass.log() + top).squeeze(1)
            part = (log_z - picked).double().sum()
            nll += part
            total += (1 - smoothing) * part
            if smoothing:
                total += smoothing * (log_z - h.float() @ mean_weight).double().sum()
            if grad_hidden is None:
                continue
            # d total / d logits = p − (1 − α) one-hot − α/V; the last term is of rank one
            grad = odds.div_(mass)
            grad.scatter_add_(1, y[:, None], grad.new_full((len(y), 1), smoothing - 1))
            grad = grad.to(hidden.dtype)
            g_h = grad @ weight
            grad_hidden[start : start + rows] = g_h - (smoothing * mean_weight).to(g_h.dtype)
            grad_weight += grad.T @ h
        if smoothing and wanted:
            grad_weight -= (smoothing / vocabulary) * hidden.float().sum(dim=0).view(1, size)
        ctx.save_for_backward(grad_hidden, grad_weight)
        ctx.mark_non_differentiable(nll)
        return total.float(), nll

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        scale = grads[0]
        return grad_hidden * scale.to(grad_hidden.dtype), grad_weight * scale, None, None


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
