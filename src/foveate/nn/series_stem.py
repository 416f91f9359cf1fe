"""Stems that read series: steps as they are, or patches of consecutive steps."""

from __future__ import annotations

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from foveate.nn.stem import Stem
from foveate.spec import Input, Series


class SeriesStem(Stem):
    """Reads series of (B, L, C) and gives ``places`` vectors."""

    reads = Series
    places: int

    def starts(self) -> list[int]:
        """The first step of what each vector is about."""
        raise NotImplementedError


class SeriesPatches(SeriesStem):
    """Patches of P steps, a new one every S steps, each projected: x_i = W p_i + b.

    The last value is repeated S times at the end, so that no step is left out and the last patch
    is about the newest steps (Nie et al., 2023).
    """

    class Config(Stem.Config, kind="series_patches"):
        """``size`` is P, ``stride`` S."""

        size: int = Field(16, gt=0)
        stride: int = Field(8, gt=0)

    config: Config

    def __init__(self, config: Config, source: Input, size: int) -> None:
        super().__init__(config, source, size)
        assert isinstance(source, Series)
        self.length = source.length + config.stride  # with the repeated steps
        if self.length < config.size:
            raise ValueError(
                f"a patch of {config.size} steps does not fit into {source.length}: "
                "make stem.size smaller, or the look-back longer"
            )
        self.places = (self.length - config.size) // config.stride + 1
        self.project = nn.Linear(config.size * source.channels, size)

    def starts(self) -> list[int]:
        last = self.length - self.config.stride - 1  # where nothing but the repeated value is seen
        return [min(i * self.config.stride, last) for i in range(self.places)]

    def forward(self, inputs: Float[Tensor, "B L C"]) -> Float[Tensor, "B T D"]:
        repeated = inputs[:, -1:].expand(-1, self.config.stride, -1)
        padded = torch.cat((inputs, repeated), dim=1)
        patches = padded.unfold(1, self.config.size, self.config.stride)  # (B, T, C, P)
        x: Tensor = self.project(patches.flatten(2))
        return x


class SeriesSteps(SeriesStem):
    """Each row of a series by itself, projected: x_t = W r_t + b."""

    class Config(Stem.Config, kind="series_steps"):
        pass

    def __init__(self, config: Config, source: Input, size: int) -> None:
        super().__init__(config, source, size)
        assert isinstance(source, Series)
        self.places = source.length
        self.project = nn.Linear(source.channels, size)

    def starts(self) -> list[int]:
        return list(range(self.places))

    def forward(self, inputs: Float[Tensor, "B L C"]) -> Float[Tensor, "B T D"]:
        x: Tensor = self.project(inputs)
        return x
