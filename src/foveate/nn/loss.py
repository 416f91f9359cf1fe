"""Output projection and a loss in one, by chunks of logits: cross-entropy, distillation.

    L = Σ_n −Σ_v y_nv log softmax(W h_n)_v,   y = (1 − ε) one-hot + ε/V
    K = Σ_n KL(p̄_n‖p_n),   p_n = softmax(W h_n), p̄_n = 1/M Σ_m softmax(W_m g_mn)

The forward also computes the gradients, chunk by chunk, so that the logits (N, V) of a batch never
exist all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from foveate.nn.linear import to_autocast_dtype
from foveate.nn.native.kernels import AutogradContext, cross_entropy_, transformed

Product = tuple[Float[Tensor, "N D"], Float[Tensor, "V D"]]  # vectors and the weight of the logits
# of a span, whether gradients overwrite the logits, and the logits
ChunkLoss = Callable[[slice, bool, Tensor], Tensor]
CHUNK = 4_194_304  # logits at a time: 16 MB of floats, which stay in the cache
EVEN = 64  # rows of a chunk are a multiple of it: oneDNN compiles a kernel for each new shape


class _LinearLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: AutogradContext, hidden: Tensor, weight: Tensor, loss: ChunkLoss
    ) -> tuple[Tensor, Tensor]:
        """Return two sums over N, of the loss of the vectors (N, D) and of one without gradient."""
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
            sums += loss(real, with_grad, logits[: real.stop - start])
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
    def backward(ctx: AutogradContext, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        scale = grads[0]
        return grad_hidden * scale.to(grad_hidden.dtype), grad_weight * scale, None


def _linear_loss(hidden: Tensor, weight: Tensor, loss: ChunkLoss) -> tuple[Tensor, Tensor]:
    """Return the two sums over N of a loss in the dtype of autocast, or without gradients."""
    if not torch.is_grad_enabled():
        hidden, weight = hidden.detach(), weight.detach()
    hidden = to_autocast_dtype(hidden)
    with torch.autocast(hidden.device.type, enabled=False):
        return _LinearLoss.apply(hidden, weight, loss)  # type: ignore[no-untyped-call]


def _rows(count: int, vocabulary: int) -> int:
    """Return the rows of a chunk: the same for all chunks, with little padding in the last."""
    chunks = -(-count * vocabulary // CHUNK) or 1
    even = -(-count // chunks // EVEN) * EVEN
    return max(1, min(count, even))


def _log_p(hidden: Tensor, weight: Tensor) -> Float[Tensor, "N V"]:
    """Return log p of all tokens at once, for transforms, which the functions above lack."""
    return F.linear(hidden, weight.to(hidden.dtype)).log_softmax(dim=-1, dtype=torch.float32)


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
    if transformed():
        log_p = _log_p(hidden, weight)
        nll = -log_p.gather(1, target[:, None]).sum()
        return (1 - smoothing) * nll - smoothing * log_p.mean(dim=1).sum(), nll.detach()

    def loss(part: slice, grad: bool, logits: Tensor) -> Tensor:
        losses = cross_entropy_(logits, target[part], smoothing, grad)
        return torch.stack(losses).sum(dim=1, dtype=torch.float64)

    return _linear_loss(hidden, weight, loss)


def linear_taught(
    hidden: Float[Tensor, "N D"], weight: Float[Tensor, "V D"], teachers: Sequence[Product]
) -> Float[Tensor, ""]:
    """Return KL(p̄‖p) of p = softmax(W h), summed over the N targets.

    p̄ is the mean p of ``teachers``, each its vectors and its weight; these get no gradient.
    """
    hidden = to_autocast_dtype(hidden)
    taught = [[each.detach().to(hidden.dtype) for each in teacher] for teacher in teachers]
    if transformed():
        mean = torch.stack([_log_p(*teacher).exp() for teacher in taught]).mean(dim=0)
        return F.kl_div(_log_p(hidden, weight), mean, reduction="sum")

    def loss(part: slice, grad: bool, logits: Tensor) -> Tensor:
        p = [(g[part] @ w.T).softmax(dim=-1, dtype=torch.float32) for g, w in taught]
        mean = torch.stack(p).mean(dim=0)
        log_p = logits.log_softmax(dim=-1, dtype=torch.float32)
        total = F.kl_div(log_p, mean, reduction="sum").double()
        logits.copy_(log_p.exp_().sub_(mean))
        return total

    return _linear_loss(hidden, weight, loss)[0]
