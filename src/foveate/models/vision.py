"""Convolutional encoders of images, and recurrent visual attention (Mnih et al., 2014)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from foveate.errors import UserError
from foveate.models.encoder_decoder import Encoder, Memory, Model
from foveate.nn.embedding import grid_labels
from foveate.nn.linear import Dropout, LayerNorm, Norm
from foveate.nn.normalizers import Chooser, HardChoice
from foveate.nn.recurrent import Cell, LSTMCell
from foveate.nn.spec import Input, Labels, Pixels


class ConvolutionalEncoder(Encoder):
    """x ← ReLU(norm(3×3 conv of stride 2)), once for each of ``channels``; then D features a cell.

    The memory has one vector for each cell of the last grid, row by row (Xu et al., 2015, take the
    14×14 grid of a VGG network). Norms are over all channels and cells of one image (Wu & He,
    2018), so that an image does not depend on its neighbours in the batch.
    """

    differs = (
        "three convolutions trained from scratch; Xu et al. (2015) use a VGG network pretrained on "
        "ImageNet"
    )

    class Config(Encoder.Config, kind="convolutional"):
        """Each of ``channels`` halves height and width; ``hidden_size`` D."""

        channels: tuple[int, ...] = (32, 64, 128)
        """Channels of each convolution; each halves the picture."""
        hidden_size: int = Field(256, gt=0)  # size of the features
        dropout: float = Field(0.1, ge=0, lt=1)  # of the features
        norm: Norm.Config = LayerNorm.Config()  # of the features

    reads: ClassVar[type] = Pixels

    def __init__(self, config: Config, source: Input) -> None:
        super().__init__(config, source)
        if not isinstance(source, Pixels):
            raise UserError(
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
        self, inputs: Float[Tensor, "B C H W"], source_mask: Bool[Tensor, "B S"] | None = None
    ) -> Memory:
        grid = self.layers(inputs).flatten(2).mT  # (B, C, h, w) -> (B, h·w, C)
        return Memory(self.dropout(self.norm(self.features(grid))), source_mask)


class Retina(nn.Module):
    """``scales`` patches of P × P values around a position, each twice as wide as the one before.

    Scale k covers P·2^k pixels by the means of 2^k × 2^k pixels, so that resolution falls with the
    distance from the centre. Values between pixels are interpolated; the border is repeated.
    """

    def __init__(self, patch_size: int, scales: int) -> None:
        super().__init__()
        self.patch_size, self.scales = patch_size, scales
        offsets = torch.arange(patch_size) - (patch_size - 1) / 2
        grid = torch.stack(torch.meshgrid(offsets, offsets, indexing="xy"), dim=-1)  # (P, P, 2)
        self.register_buffer("grid", grid, persistent=False)

    def pyramid(self, pixels: Float[Tensor, "B C H W"]) -> list[Float[Tensor, "B C h w"]]:
        """Return the image at every scale, computed once for all glimpses."""
        return [F.avg_pool2d(pixels, 2**k) if k else pixels for k in range(self.scales)]

    def forward(
        self, pyramid: list[Tensor], place: Float[Tensor, "B 2"]
    ) -> Float[Tensor, "B S C P P"]:
        seen = []
        for picture in pyramid:
            height, width = picture.shape[-2:]
            step = picture.new_tensor([2 / width, 2 / height])  # from one value to the next
            points = place[:, None, None] + self.get_buffer("grid") * step  # (B, P, P, 2)
            seen.append(F.grid_sample(picture, points, "bilinear", "border", align_corners=False))
        return torch.stack(seen, dim=1)


class GaussianPlace(nn.Module, Chooser):
    """l ~ N(μ, σ²) in each direction with a listener, else μ, clamped to the picture.

    log p is that of the position before clamping.
    """

    def __init__(self, deviation: float) -> None:
        super().__init__()
        self.deviation = deviation

    def forward(
        self, mean: Float[Tensor, "B 2"], baseline: Float[Tensor, "B"]
    ) -> Float[Tensor, "B 2"]:
        if self.listener is None:
            return mean
        place = (mean + self.deviation * torch.randn_like(mean)).detach()
        squares = ((place - mean) / self.deviation).square() / 2
        log_p = -squares - math.log(self.deviation * math.sqrt(2 * math.pi))
        self.listener(HardChoice(log_p.sum(dim=1), baseline))
        return place.clamp(-1, 1)


@dataclass(frozen=True)
class Glimpses:
    """The positions of T glimpses, ``places`` (B, T, 2) as (x, y), and the last state ``final``."""

    places: Tensor
    final: Tensor


class Glimpse(Model):
    """Reads a picture in T glimpses; each position is predicted from the glimpses before it.

    The positions are trained by REINFORCE with a learned baseline (objective "reinforce"); no
    gradient flows from policy and baseline into the recurrent core. Raises `UserError` if the
    coarsest scale does not divide the image.
    """

    class Config(Model.Config, kind="glimpse"):
        """``deviation`` σ is in units of half the picture."""

        patch_size: int = Field(12, gt=0)  # pixels a side of the finest patch
        scales: int = Field(3, gt=0)  # patches of a glimpse, each twice as wide as the one before
        num_glimpses: int = Field(6, gt=0)  # glimpses before the answer
        hidden_size: int = Field(256, gt=0)  # of the core
        glimpse_size: int = Field(128, gt=0)  # of what and where, before they are joined
        cell: Cell.Config = LSTMCell.Config()  # the recurrent cell of the core
        deviation: float = Field(0.15, gt=0)
        """standard deviation of the places, in halves of the picture."""

    config: Config

    def __init__(self, config: Config, source: Input, labels: Labels) -> None:
        super().__init__(config)
        if not isinstance(source, Pixels):
            raise UserError(f"a glimpse model reads pixels, not {type(source).__name__.lower()}")
        coarsest = 2 ** (config.scales - 1)
        if source.height % coarsest or source.width % coarsest:
            raise UserError(
                f"{config.scales} scales need a picture with sides in multiples of {coarsest}, "
                f"not {source.height}×{source.width}: lower model.scales"
            )
        part, size = config.glimpse_size, config.hidden_size
        values = config.scales * source.channels * config.patch_size**2
        self.retina = Retina(config.patch_size, config.scales)
        self.what = nn.Sequential(nn.Linear(values, part), nn.ReLU(), nn.Linear(part, size))
        self.where = nn.Sequential(nn.Linear(2, part), nn.ReLU(), nn.Linear(part, size))
        self.core: Cell = config.cell.build(size, size)
        self.place = nn.Linear(size, 2)
        self.baseline = nn.Linear(size, 1)
        self.policy = GaussianPlace(config.deviation)
        self.output = nn.Linear(size, len(labels.names))

    def look(self, pixels: Float[Tensor, "B C H W"]) -> Glimpses:
        """Take T glimpses, the first at the centre."""
        pyramid = self.retina.pyramid(pixels)
        place = pixels.new_zeros(len(pixels), 2)
        hidden = self.core.start(pixels)
        places = []
        for glimpse in range(self.config.num_glimpses):
            if glimpse:
                known = hidden[0].detach()
                mean = torch.tanh(self.place(known).float())
                place = self.policy(mean, self.baseline(known).squeeze(1))
            places.append(place)
            seen = F.relu(self.what(self.retina(pyramid, place).flatten(1)) + self.where(place))
            hidden = self.core(self.core.project(seen), hidden)
        return Glimpses(torch.stack(places, dim=1), hidden[0])

    def forward(self, pixels: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C"]:
        """Return scores of every label after the last glimpse."""
        return self.output(self.look(pixels).final)
