"""Output projection and a loss in one, by chunks of logits: cross-entropy, divergences.

    L = Σ_n −Σ_v y_nv log softmax(W h_n)_v,   y = (1 − ε) one-hot + ε/V
    D = Σ_n KL(p_n‖q_n) + KL(q_n‖p_n),        p_n = softmax(W h_n), q_n = softmax(W g_n)
    K = Σ_n KL(p̄_n‖p_n),                      p̄_n = 1/M Σ_m softmax(W_m g_mn)

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
from foveate.nn.native.kernels import AutogradContext, cross_entropy_, divergence_, transformed
from foveate.nn.native.layers import apply

Product = tuple[Float[Tensor, "N D"], Float[Tensor, "V D"]]  # vectors and the weight of the logits
ChunkLoss = Callable[..., Tensor]  # of a span and its logits, overwritten by their gradients
CHUNK = 4_194_304  # logits at a time: 16 MB of floats, which stay in the cache
EVEN = 64  # rows of a chunk are a multiple of it: oneDNN compiles a kernel for each new shape


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: AutogradContext, hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        """Return the sums over N of the smoothed loss and of −log p(target)."""
        with_grad = any(ctx.needs_input_grad)
        count, rows = len(hidden), _rows(len(hidden), len(weight))
        hidden = F.pad(hidden, (0, 0, 0, -count % rows))
        grad_hidden = torch.empty_like(hidden) if with_grad else None
        grad_weight = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device)
        weight = weight.to(hidden.dtype)
        logits = hidden.new_empty(rows, len(weight))
        sums = torch.zeros(2, dtype=torch.float64, device=hidden.device)
        for start in range(0, count, rows):
            h, y = hidden[start : start + rows], target[start : start + rows]
            torch.mm(h, weight.T, out=logits)
            losses = cross_entropy_(logits[: len(y)], y, smoothing, grad=with_grad)
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
    def backward(ctx: AutogradContext, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        scale = grads[0]
        return grad_hidden * scale.to(grad_hidden.dtype), grad_weight * scale, None, None


class _LinearChunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: AutogradContext, hidden: Tensor, weight: Tensor, loss: ChunkLoss) -> Tensor:
        """Return the sum over N of a loss of one or more vectors at each position, (M, N, D)."""
        rows = _rows(hidden.shape[1], len(weight))
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device)
        weight = weight.to(hidden.dtype)
        total = torch.zeros((), dtype=torch.float64, device=hidden.device)
        for start in range(0, hidden.shape[1], rows):
            part = slice(start, start + rows)
            logits = [h[part] @ weight.T for h in hidden]
            total += loss(part, *logits)
            for h, z, grad in zip(hidden, logits, grad_hidden, strict=True):
                torch.mm(z, weight, out=grad[part])
                grad_weight += z.T @ h[part]
        ctx.save_for_backward(grad_hidden, grad_weight)
        return total.float()

    @staticmethod
    def backward(ctx: AutogradContext, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        return *_LinearCrossEntropy.backward(ctx, *grads)[:2], None


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
    if not torch.is_grad_enabled():
        hidden, weight = hidden.detach(), weight.detach()
    if transformed():
        log_p = _log_p(hidden, weight)
        nll = -log_p.gather(1, target[:, None]).sum()
        return (1 - smoothing) * nll - smoothing * log_p.mean(dim=1).sum(), nll.detach()
    hidden = to_autocast_dtype(hidden)
    with torch.autocast(hidden.device.type, enabled=False):
        return _LinearCrossEntropy.apply(hidden, weight, target, smoothing)  # type: ignore[no-untyped-call]


def linear_divergence(
    hidden: Float[Tensor, "N D"], other: Float[Tensor, "N D"], weight: Float[Tensor, "V D"]
) -> Float[Tensor, ""]:
    """Return KL(p‖q) + KL(q‖p), p = softmax(W h), q = softmax(W g), summed over the N targets."""
    if transformed():
        log_p, log_q = (_log_p(each, weight) for each in (hidden, other))
        return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum()
    both = to_autocast_dtype(torch.stack((hidden, other)))
    with torch.autocast(both.device.type, enabled=False):
        return apply(
            _LinearChunks, both, weight, lambda _, *z: divergence_(*z).sum(dtype=torch.float64)
        )


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

    def loss(part: slice, logits: Tensor) -> Tensor:
        p = [(g[part] @ w.T).softmax(dim=-1, dtype=torch.float32) for g, w in taught]
        mean = torch.stack(p).mean(dim=0)
        log_p = logits.log_softmax(dim=-1, dtype=torch.float32)
        total = F.kl_div(log_p, mean, reduction="sum").double()
        logits.copy_(log_p.exp_().sub_(mean))
        return total

    with torch.autocast(hidden.device.type, enabled=False):
        return apply(_LinearChunks, hidden[None], weight, loss)
