"""A convolutional encoder: a picture becomes a grid of features, the memory of a captioner."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from foveate.models.encoder import Encoder, Memory
from foveate.nn.dropout import Dropout
from foveate.nn.norm import LayerNorm, Norm
from foveate.nn.stem_pixels import grid_labels
from foveate.spec import Input, Pixels


class ConvolutionalEncoder(Encoder):
    """x ← ReLU(norm(3×3 conv of stride 2)), once for each of ``channels``; then D features a cell.

    The memory has one vector for each cell of the last grid, row by row (Xu et al., 2015, take the
    14×14 grid of a VGG network). Norms are over all channels and cells of one picture (Wu & He,
    2018), so that a picture does not depend on its neighbours in the batch.
    """

    class Config(Encoder.Config, kind="convolutional"):
        """Each of ``channels`` halves height and width; ``hidden_size`` D."""

        channels: tuple[int, ...] = (32, 64, 128)
        hidden_size: int = Field(256, gt=0)
        dropout: float = Field(0.1, ge=0, lt=1)
        norm: Norm.Config = LayerNorm.Config()  # of the features

    config: Config
    reads: ClassVar[type] = Pixels

    def __init__(self, config: Config, source: Input) -> None:
        super().__init__(config, source)
        if not isinstance(source, Pixels):
            raise ValueError(
                "the encoder 'convolutional' reads pixels, not "
                f"{type(source).__name__.lower()}; choose another encoder"
            )
        height, width, before = source.height, source.width, source.channels
        layers: list[nn.Module] = []
        for channels in config.channels:
            convolution = nn.Conv2d(before, channels, 3, stride=2, padding=1, bias=False)
            layers += [convolution, nn.GroupNorm(1, channels), nn.ReLU()]
            height, width, before = -(-height // 2), -(-width // 2), channels
        self.layers = nn.Sequential(*layers)
        self.features = nn.Linear(before, config.hidden_size)
        self.norm = config.norm.build(config.hidden_size)
        self.dropout = Dropout(config.dropout)
        self.labels = grid_labels(height, width)
        self.output_size = config.hidden_size

    def forward(
        self, inputs: Float[Tensor, "B C H W"], keys: Bool[Tensor, "B S"] | None = None
    ) -> Memory:
        grid = self.layers(inputs).flatten(2).mT  # (B, C, h, w) -> (B, h·w, C)
        return Memory(self.dropout(self.norm(self.features(grid))), keys)
