"""Objectives that compare several passes over a batch: distillation."""

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor, nn

from foveate.errors import UserError
from foveate.nn.loss import Product, linear_taught
from foveate.tasks.base import AnyTask, Loss
from foveate.tasks.objectives import CrossEntropy, with_bias


class Compared(CrossEntropy):
    """Cross-entropy, and what several passes over the same batch say, compared."""

    def __init__(self, config: CrossEntropy.Config) -> None:
        super().__init__(config)
        self._products: list[Product] | None = None  # of the passes so far

    def __call__(
        self, hidden: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None = None
    ) -> Loss:
        hidden, weight = with_bias(hidden, weight, bias)
        if self._products is not None and self.fused:
            self._products.append((hidden, weight))
        return super().__call__(hidden, weight, target)

    def passes(
        self, task: AnyTask, models: Sequence[nn.Module], batch: object
    ) -> tuple[list[Loss], list[Product]]:
        """The loss of each model, and the vectors and the weight of which its logits are made.

        Raises `UserError` for a model whose probabilities are not those of its output layer.
        """
        products: list[Product] = []
        self._products = products
        try:
            losses = [task.loss(model, batch, self) for model in models]
        finally:
            self._products = None
        if len(products) != len(models):
            raise UserError(
                f"{self.config.kind} compares the scores of one output layer, and this model's "
                "probabilities are made of others: use cross_entropy"
            )
        return losses, products


class Distillation(Compared):
    """The truth, and what trained models say of the same positions: L = (1 − λ) L_CE + λ K,
    K = Σ_t KL(p̄_t‖p_t), p̄ the mean p of the teachers (Hinton et al., 2015).

    Teachers are runs of the same task, of any model, with the same tokens; a step takes a pass of
    each besides. Raises `UserError` for models whose probabilities are not of an output layer.
    """

    class Config(CrossEntropy.Config, kind="distillation"):
        """``weight`` is λ."""

        teachers: tuple[str, ...] = Field(min_length=1)  # folders of runs
        weight: float = Field(0.5, ge=0, le=1)  # of what the teachers say

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.teachers: Sequence[nn.Module] = ()  # `foveate.run.training` reads the runs

    def loss(self, task: AnyTask, model: nn.Module, batch: object) -> Loss:
        with torch.no_grad():
            _, taught = self.passes(task, self.teachers, batch)
        (own,), (product,) = self.passes(task, (model,), batch)
        divergence = linear_taught(*product, taught)
        total = (1 - self.config.weight) * own.total + self.config.weight * divergence
        return Loss(total, own.count, own.logged | {"divergence": divergence.detach()})
