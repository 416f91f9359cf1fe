"""Classifiers: an encoder, one vector of what it leaves, a score for each label."""

from __future__ import annotations

from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from foveate.config import BaseConfig, Configurable
from foveate.models.encoder import Encoder, Memory
from foveate.models.encoder_decoder import Model
from foveate.models.transformer import TransformerEncoder
from foveate.nn.dropout import Dropout
from foveate.spec import Input, Labels


class Pooling(Configurable, nn.Module):
    """One vector of a memory."""

    class Config(BaseConfig, family="pooling"):
        """Which pooling."""

    def __init__(self, config: Config, size: int) -> None:
        super().__init__()
        self.config = config

    def forward(self, memory: Memory) -> Float[Tensor, "B D"]:
        raise NotImplementedError


class Mean(Pooling):
    """Σ_i h_i / n over the n real places."""

    class Config(Pooling.Config, kind="mean"):
        pass

    def forward(self, memory: Memory) -> Float[Tensor, "B D"]:
        return memory.mean()


class Summary(Pooling):
    """The last state of a recurrent encoder; the mean where an encoder has none."""

    class Config(Pooling.Config, kind="summary"):
        pass

    def forward(self, memory: Memory) -> Float[Tensor, "B D"]:
        return memory.summary()


class First(Pooling):
    """The vector at the first place: that of a class token (Devlin et al., 2019)."""

    class Config(Pooling.Config, kind="first"):
        pass

    def forward(self, memory: Memory) -> Float[Tensor, "B D"]:
        return memory.values[:, 0]


class Classifier(Model):
    """p(label | x) = softmax(W · pool(encode(x)) + b)."""

    class Config(Model.Config, kind="classifier"):
        """``dropout`` is that of the pooled vector."""

        encoder: Encoder.Config = TransformerEncoder.Config()
        pooling: Pooling.Config = Mean.Config()
        dropout: float = Field(0.1, ge=0, lt=1)

    config: Config

    def __init__(self, config: Config, source: Input, labels: Labels) -> None:
        super().__init__()
        self.config = config
        self.encoder: Encoder = config.encoder.build(source)
        size = self.encoder.output_size
        self.pooling: Pooling = config.pooling.build(size)
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(size, len(labels.names))
        nn.init.zeros_(self.output.bias)

    def encode(self, inputs: Tensor, keys: Bool[Tensor, "B S"] | None = None) -> Memory:
        """Read the input; ``keys`` is true at real places, None where all are."""
        memory: Memory = self.encoder(inputs, keys)
        return memory

    def forward(
        self, inputs: Tensor, keys: Bool[Tensor, "B S"] | None = None
    ) -> Float[Tensor, "B C"]:
        """Scores of every label."""
        scores: Tensor = self.output(self.dropout(self.pooling(self.encode(inputs, keys))))
        return scores
