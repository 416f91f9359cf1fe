"""Classifiers: an encoder, a pooling of its output, a score for each label."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from foveate.config import BaseConfig, FromConfig
from foveate.models.encoder_decoder import Encoder, Memory, Model, Reader
from foveate.models.transformer import TransformerEncoder
from foveate.nn.attention import Attention, Projection
from foveate.nn.linear import Dropout
from foveate.nn.scores import Additive, Score
from foveate.nn.spec import Input, Labels


class Pooling(FromConfig, nn.Module):
    """Reduces a memory to one vector (B, D); made of its config and D."""

    class Config(BaseConfig, family="pooling"):
        """The kind of pooling."""

    def forward(self, memory: Memory) -> Float[Tensor, "B D"]:
        raise NotImplementedError


class Mean(Pooling, kind="mean"):
    """Σ_i h_i / n over the n real positions."""

    def forward(self, memory: Memory) -> Float[Tensor, "B D"]:
        return memory.mean()


class Summary(Pooling, kind="summary"):
    """The last state of a recurrent encoder; the mean where an encoder has none."""

    def forward(self, memory: Memory) -> Float[Tensor, "B D"]:
        return memory.summary()


class First(Pooling, kind="first"):
    """The vector at the first position, that of a class token (Devlin et al., 2019)."""

    def forward(self, memory: Memory) -> Float[Tensor, "B D"]:
        return memory.values[:, 0]


class Max(Pooling, kind="max"):
    """The largest value at a real position in each dimension (Collobert et al., 2011)."""

    def forward(self, memory: Memory) -> Float[Tensor, "B D"]:
        values = memory.values
        if memory.source_mask is not None:
            values = values.masked_fill(~memory.source_mask.unsqueeze(-1), -torch.inf)
        return values.amax(dim=1)


class PoolingAttention(Attention.Config, family="pooling_attention", kind="full"):
    """Attention of a pooling: the values are not projected."""

    score: Score.Config = Additive.Config()  # how the query is compared with each state
    project: tuple[Projection, ...] = ("query", "key")
    """Which of query, key, value and output are projected."""


class Attentive(Pooling):
    """Σ_i softmax_i(e(u, h_i)) h_i, with one learned query u (Yang et al., 2016)."""

    class Config(Pooling.Config, kind="attention"):
        """``attention`` says how the weights are formed."""

        attention: PoolingAttention = PoolingAttention()  # the attention that weights the states

    def __init__(self, config: Config, size: int) -> None:
        super().__init__(config, size)
        self.query = nn.Parameter(torch.randn(size) * size**-0.5)
        self.attention: Attention = config.attention.build(size)

    def forward(self, memory: Memory) -> Float[Tensor, "B D"]:
        query = self.query.to(memory.values.dtype).expand(len(memory.values), 1, -1)
        pooled: Tensor = self.attention(query, memory.values, memory.mask)
        return pooled.squeeze(1)


class Classifier(Reader):
    """p(label | x) = softmax(W · pool(encode(x)) + b)."""

    class Config(Model.Config, kind="classifier"):
        """``dropout`` is that of the pooled vector."""

        encoder: Encoder.Config = TransformerEncoder.Config()  # what reads the input
        pooling: Pooling.Config = Mean.Config()  # how the states of all positions become one vector
        dropout: float = Field(0.1, ge=0, lt=1)  # of that vector
        output_bias: bool = True  # whether the output layer has a bias

    config: Config
    scored_by = ("forward",)

    def __init__(self, config: Config, source: Input, labels: Labels) -> None:
        super().__init__(config)
        self.labels = labels
        self.encoder = config.encoder.build(source)
        size = self.encoder.output_size
        self.pooling: Pooling = config.pooling.build(size)
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(size, len(labels.names), bias=config.output_bias)
        if config.output_bias:
            nn.init.zeros_(self.output.bias)

    def features(
        self, inputs: Tensor, source_mask: Bool[Tensor, "B S"] | None = None
    ) -> Float[Tensor, "B D"]:
        """Return the pooled vector of each input, from which its label is predicted."""
        return self.dropout(self.pooling(self.encode(inputs, source_mask)))

    def forward(
        self, inputs: Tensor, source_mask: Bool[Tensor, "B S"] | None = None
    ) -> Float[Tensor, "B C"]:
        """Return the scores of every label."""
        return self.output(self.features(inputs, source_mask))
