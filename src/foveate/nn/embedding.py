"""Embeddings of tokens, pixels and the values of a series, and the projection back to tokens."""

from __future__ import annotations

import copy
import math
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from foveate.config import BaseConfig, Configurable
from foveate.errors import UserError
from foveate.nn.linear import CappedLinear
from foveate.nn.spec import Input, Pixels, Series, Tokens


class Stem(Configurable, nn.Module):
    """Turns the input of a model into vectors (B, T, D), one for each position.

    ``reads`` is the kind of input (of `foveate.nn.spec`). Raises `UserError` for another kind.
    """

    class Config(BaseConfig, family="stem"):
        """The kind of stem."""

    reads: ClassVar[type] = Tokens

    def __init__(self, config: Config, source: Input, size: int) -> None:
        super().__init__()
        self.config, self.source = config, source
        if not isinstance(source, self.reads):
            fitting = f"{self.reads.__name__.lower()}, not {type(source).__name__.lower()}"
            raise UserError(f"the stem {config.kind!r} reads {fitting}; choose another stem")

    def forward(self, inputs: Tensor) -> Float[Tensor, "B T D"]:
        raise NotImplementedError


class TokenStem(Stem):
    """Embeds ids, E[id] · scale; √D keeps embeddings level with positions (Vaswani, 2017)."""

    class Config(Stem.Config, kind="tokens"):
        """``scale`` "sqrt" is √D."""

        scale: Literal["none", "sqrt"] = "none"
        """Whether embeddings are multiplied by the square root of their size."""

    config: Config

    def __init__(self, config: Config, source: Input, size: int) -> None:
        super().__init__(config, source, size)
        assert isinstance(source, Tokens)
        self.scale = math.sqrt(size) if config.scale == "sqrt" else 1.0
        self.embedding = nn.Embedding(source.vocab_size, size)
        nn.init.normal_(self.embedding.weight, std=1 / math.sqrt(size))

    def forward(self, inputs: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        x: Tensor = self.embedding(inputs)
        return x if self.scale == 1.0 else x * self.scale


class DenseStem(TokenStem, kind="dense"):
    """h_t = σ(W x_t + b), x_t = E[id] · scale, σ the logistic function: a hidden layer at each
    position by itself, the recurrent network without U h_{t−1}.

    With ``encoder = "cbow"`` nothing else is between tokens and attention.
    """

    def __init__(self, config: TokenStem.Config, source: Input, size: int) -> None:
        super().__init__(config, source, size)
        self.dense = nn.Linear(size, size)
        nn.init.xavier_uniform_(self.dense.weight)
        nn.init.zeros_(self.dense.bias)

    def forward(self, inputs: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        return torch.sigmoid(self.dense(super().forward(inputs)))


class SegmentStem(TokenStem):
    """E[id] · scale + S[segment], the segment being the number of a token's text (BERT; Devlin
    et al., 2019).

    Reads ids (B, T), all of segment 0, or ids with their segments (B, T, 2).
    """

    class Config(TokenStem.Config, kind="segments"):
        """``num_segments`` is how many texts may be joined."""

        num_segments: int = Field(2, gt=0)  # kinds of segments that have a vector

    config: Config

    def __init__(self, config: Config, source: Input, size: int) -> None:
        super().__init__(config, source, size)
        self.segment = nn.Embedding(config.num_segments, size)
        nn.init.normal_(self.segment.weight, std=0.02)

    def forward(self, inputs: Int[Tensor, "B T *two"]) -> Float[Tensor, "B T D"]:
        if inputs.ndim == 2:
            return super().forward(inputs) + self.segment.weight[0]
        return super().forward(inputs[..., 0]) + self.segment(inputs[..., 1])


CLASS = "[class]"  # the label of the class token


class PatchStem(Stem):
    """x_i = E p_i + b for each of the H/P × W/P patches p_i, row by row (Dosovitskiy, 2020).

    E is a convolution of P × P pixels with stride P. With a class token, a learned vector comes
    before them. Raises `UserError` if patches do not fill the image.
    """

    class Config(Stem.Config, kind="patches"):
        """``patch_size`` P in pixels."""

        patch_size: int = Field(4, gt=0)  # pixels a side of a patch
        class_token: bool = False  # whether a learned vector stands before the patches

    config: Config
    reads: ClassVar[type] = Pixels

    def __init__(self, config: Config, source: Input, size: int) -> None:
        super().__init__(config, source, size)
        assert isinstance(source, Pixels)
        patch = config.patch_size
        if source.height % patch or source.width % patch:
            raise UserError(
                f"patches of {patch}×{patch} do not fill a picture of "
                f"{source.height}×{source.width}: choose a patch_size that divides both"
            )
        self.labels = grid_labels(source.height // patch, source.width // patch)
        self.patches = nn.Conv2d(source.channels, size, patch, stride=patch)
        spread = 1 / math.sqrt(source.channels * patch * patch)
        nn.init.trunc_normal_(self.patches.weight, std=spread)
        assert self.patches.bias is not None
        nn.init.zeros_(self.patches.bias)
        self.class_token = None
        if config.class_token:
            self.labels = [CLASS, *self.labels]
            self.class_token = nn.Parameter(0.02 * torch.randn(size))

    def forward(self, inputs: Float[Tensor, "B C H W"]) -> Float[Tensor, "B T D"]:
        x: Tensor = self.patches(inputs).flatten(2).mT  # (B, D, h, w) -> (B, h·w, D)
        if self.class_token is None:
            return x
        first = self.class_token.to(x.dtype).expand(len(x), 1, -1)
        return torch.cat((first, x), dim=1)


def grid_labels(height: int, width: int) -> list[str]:
    """Return the label "row,column" of each cell of a grid, row by row, counted from 0."""
    return [f"{row},{column}" for row in range(height) for column in range(width)]


class SeriesPatches(Stem):
    """Patches of P steps, a new one every S steps, each projected: x_i = W p_i + b.

    Reads series (B, L, C) and returns ``places`` vectors. The last value is repeated S times at
    the end, so that the last patch covers the newest steps (PatchTST; Nie et al., 2023).
    """

    class Config(Stem.Config, kind="series_patches"):
        """``size`` is P, ``stride`` S."""

        size: int = Field(16, gt=0)  # steps of a patch
        stride: int = Field(8, gt=0)  # steps from one patch to the next

    config: Config
    reads = Series

    def __init__(self, config: Config, source: Input, size: int) -> None:
        super().__init__(config, source, size)
        assert isinstance(source, Series)
        self.length = source.length + config.stride  # with the repeated steps
        if self.length < config.size:
            raise UserError(
                f"a patch of {config.size} steps does not fit into {source.length}: "
                "make stem.size smaller, or the look-back longer"
            )
        self.places = (self.length - config.size) // config.stride + 1
        self.project = nn.Linear(config.size * source.channels, size)

    def starts(self) -> list[int]:
        """Return the first time step of each vector."""
        last = self.length - self.config.stride - 1  # the last step that is not repeated
        return [min(i * self.config.stride, last) for i in range(self.places)]

    def forward(self, inputs: Float[Tensor, "B L C"]) -> Float[Tensor, "B T D"]:
        repeated = inputs[:, -1:].expand(-1, self.config.stride, -1)
        padded = torch.cat((inputs, repeated), dim=1)
        patches = padded.unfold(1, self.config.size, self.config.stride)  # (B, T, C, P)
        return self.project(patches.flatten(2))


def output_projection(
    hidden_size: int, vocab_size: int, bias: bool = False, cap: float | None = None
) -> nn.Linear:
    """Return W (V, D), which turns the vectors of a decoder into logits, within a cap if any."""
    sizes = hidden_size, vocab_size, bias
    output = nn.Linear(*sizes) if cap is None else CappedLinear(*sizes, cap)
    nn.init.normal_(output.weight, std=hidden_size**-0.5)
    if bias:
        nn.init.zeros_(output.bias)
    return output


def rows_of(output: nn.Module, tokens: Int[Tensor, "W"]) -> nn.Module:
    """Return the output projection onto some tokens only, in whatever precision it has."""
    projection = copy.copy(output)
    for tensors in ("_parameters", "_buffers"):
        rows = {
            name: None if t is None else t.detach()[tokens]
            for name, t in vars(output)[tensors].items()
        }
        vars(projection)[tensors] = rows
    return projection


def tie(
    setting: str, module: nn.Linear | nn.Embedding | None, name: str, to: nn.Embedding | None
) -> None:
    """Make ``module`` share the weights of the target embedding ``to``.

    Raises `UserError` without an embedding to share, or if the shapes differ.
    """
    if module is None or to is None:
        missing = name if module is None else "the target embedding"
        raise UserError(
            f'model.tie = {setting!r}: {missing} is not an embedding table; set model.tie = "none"'
        )
    if module.weight.shape != to.weight.shape:
        raise UserError(
            f"model.tie = {setting!r}: {name} is {tuple(module.weight.shape)}, the "
            f"target embedding {tuple(to.weight.shape)}; make sizes and vocabularies equal "
            '(task.joint = true), or set model.tie = "none"'
        )
    module.weight = to.weight
