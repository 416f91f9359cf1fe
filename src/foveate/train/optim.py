"""Optimisers by kind: which parameters decay, and PyTorch's fused steps over them.

Lives here: building a `torch.optim.Optimizer` from a config. Does not live here: the learning
rate over time (`foveate.train.schedule`); ``lr`` here is the rate that a schedule scales.
"""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field
from torch import nn

from foveate.config import Config
from foveate.train.shards import is_shard

Group = dict[str, Any]
FUSED = ("cpu", "cuda", "mps")  # devices on which PyTorch steps all parameters in one kernel


class OptimizerConfig(Config, family="optimizer"):
    """How gradients become steps; ``config.build(model)`` gives the optimiser of a model."""

    lr: float = Field(default=1e-3, gt=0)

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimiser of the trainable parameters of ``model``."""
        raise NotImplementedError


class AdamConfig(OptimizerConfig, kind="adam"):
    """Adam (Kingma & Ba, 2015), with the constants of Vaswani et al. (2017).

    m ← β₁m + (1 − β₁)g,  v ← β₂v + (1 − β₂)g²,  θ ← θ − lr · m̂ / (√v̂ + ε),
    where m̂ = m / (1 − β₁ᵗ) and v̂ = v / (1 − β₂ᵗ). ``weight_decay`` λ adds λθ to g, everywhere.
    """

    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = Field(default=1e-9, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Adam over all trainable parameters."""
        return torch.optim.Adam(
            _trainable(model),
            lr=self.lr,
            betas=self.betas,
            eps=self.eps,
            weight_decay=self.weight_decay,
            fused=_fused(model),
        )


class AdamWConfig(OptimizerConfig, kind="adamw"):
    """Adam with decoupled weight decay (Loshchilov & Hutter, 2019).

    θ ← θ − lr · (m̂ / (√v̂ + ε) + λθ). Biases, norms and embeddings do not decay.
    """

    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = Field(default=1e-9, gt=0)
    weight_decay: float = Field(default=0.01, ge=0)

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """AdamW over two groups: the weights that decay, and those that do not."""
        return torch.optim.AdamW(
            decay_groups(model, self.weight_decay),
            lr=self.lr,
            betas=self.betas,
            eps=self.eps,
            fused=_fused(model),
        )


class SGDConfig(OptimizerConfig, kind="sgd"):
    """Stochastic gradient descent: u ← μu + g,  θ ← θ − lr · u (Polyak, 1964; μ = 0: plain)."""

    momentum: float = Field(default=0.0, ge=0, lt=1)
    nesterov: bool = False
    weight_decay: float = Field(default=0.0, ge=0)

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """SGD over all trainable parameters."""
        return torch.optim.SGD(
            _trainable(model),
            lr=self.lr,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
            fused=_fused(model) and not any(map(is_shard, _trainable(model))),  # PyTorch has none
        )


def decay_groups(model: nn.Module, weight_decay: float) -> list[Group]:
    """The trainable parameters in two groups: those that decay, and those that do not.

    A parameter does not decay if it has fewer than two axes (biases, gains of norms), or if any
    module that holds it is an embedding or a norm: a tied output layer goes with its embedding.
    """
    spared: set[nn.Parameter] = set()
    for module in model.modules():
        name = type(module).__name__.lower()
        if isinstance(module, nn.Embedding) or "norm" in name or "embedding" in name:
            spared.update(module.parameters(recurse=False))
    trainable = _trainable(model)
    kept = [p for p in trainable if p.ndim < 2 or p in spared]
    decayed = [p for p in trainable if not (p.ndim < 2 or p in spared)]
    groups = [(decayed, weight_decay), (kept, 0.0)]
    return [{"params": params, "weight_decay": decay} for params, decay in groups if params]


def _trainable(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _fused(model: nn.Module) -> bool:
    return all(p.device.type in FUSED and p.is_floating_point() for p in _trainable(model))
