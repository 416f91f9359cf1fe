"""What forecasts minimise: squared, absolute, or quantile error."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from foveate.tasks.base import Loss
from foveate.tasks.objective import Objective


class ForecastObjective(Objective):
    """A loss between values predicted (…, Q) and wanted (…), summed over all of them.

    Raises ``ValueError`` where the levels do not fit the objective.
    """

    many_levels = False  # whether it is about quantiles

    def __call__(
        self,
        predicted: Float[Tensor, "*B Q"],
        wanted: Float[Tensor, "*B"],
        levels: tuple[float, ...],
    ) -> Loss:
        self.check_levels(levels)
        return Loss(self.total(predicted, wanted, levels), wanted.numel())

    def check_levels(self, levels: tuple[float, ...]) -> None:
        """Raise ``ValueError`` where the levels do not fit the objective."""
        if self.many_levels != bool(levels):
            have = "task.quantiles are given" if levels else "task.quantiles is empty"
            remedy = 'set objective.kind = "quantile"' if levels else "name them: [0.1, 0.5, 0.9]"
            raise ValueError(f"objective {self.config.kind!r}, but {have}; {remedy}")

    def total(self, predicted: Tensor, wanted: Tensor, levels: tuple[float, ...]) -> Tensor:
        """The sum over all values."""
        raise NotImplementedError


class SquaredError(ForecastObjective):
    """Σ (ŷ − y)²; its best forecast is the mean."""

    class Config(Objective.Config, kind="squared_error"):
        pass

    def total(self, predicted: Tensor, wanted: Tensor, levels: tuple[float, ...]) -> Tensor:
        return (predicted[..., 0] - wanted).square().sum()


class AbsoluteError(ForecastObjective):
    """Σ |ŷ − y|; its best forecast is the median."""

    class Config(Objective.Config, kind="absolute_error"):
        pass

    def total(self, predicted: Tensor, wanted: Tensor, levels: tuple[float, ...]) -> Tensor:
        return (predicted[..., 0] - wanted).abs().sum()


class QuantileError(ForecastObjective):
    """Σ mean_q max(q (y − ŷ_q), (q − 1)(y − ŷ_q)): the pinball loss (Koenker & Bassett, 1978)."""

    class Config(Objective.Config, kind="quantile"):
        pass

    many_levels = True

    def total(self, predicted: Tensor, wanted: Tensor, levels: tuple[float, ...]) -> Tensor:
        q = predicted.new_tensor(levels)
        above = wanted[..., None] - predicted
        return (q * above).maximum((q - 1) * above).mean(dim=-1).sum()
