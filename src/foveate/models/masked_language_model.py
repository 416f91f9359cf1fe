"""Masked language models: an encoder that guesses hidden tokens from both sides (BERT)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from foveate.models.encoder import Encoder, Memory
from foveate.models.encoder_decoder import Model, tie
from foveate.models.transformer import TransformerEncoder
from foveate.nn.norm import LayerNorm, Norm
from foveate.spec import Tokens

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


class MaskedLanguageModel(Model):
    """p(x_i | x with i hidden) = softmax(W · norm(f(T h_i)) + b), h = encode(x), f = gelu
    (Devlin et al., 2019).
    """

    class Config(Model.Config, kind="masked_language_model"):
        """``activation`` is f; ``tie`` "source" makes W the table of the encoder's embeddings."""

        encoder: Encoder.Config = TransformerEncoder.Config()
        activation: Literal["gelu", "gelu_tanh", "relu", "silu"] = "gelu"
        norm: Norm.Config = LayerNorm.Config()
        tie: Literal["none", "source"] = "source"

    config: Config

    def __init__(self, config: Config, source: Tokens) -> None:
        super().__init__()
        self.config = config
        self.encoder: Encoder = config.encoder.build(source)
        table = self.encoder.embedding
        size = self.encoder.output_size if table is None else table.embedding_dim
        self.transform = nn.Linear(self.encoder.output_size, size)
        self.activate = ACTIVATIONS[config.activation]
        self.norm: Norm = config.norm.build(size)
        self.output = nn.Linear(size, source.vocab_size)
        nn.init.normal_(self.output.weight, std=size**-0.5)
        nn.init.zeros_(self.output.bias)
        if config.tie != "none":
            tie(config.tie, self.output, "the output projection", table)

    def encode(self, inputs: Tensor, keys: Bool[Tensor, "B S"] | None = None) -> Memory:
        """Read the input; ``keys`` is true at real places, None where all are."""
        memory: Memory = self.encoder(inputs, keys)
        return memory

    def features(self, hidden: Float[Tensor, "*B D"]) -> Float[Tensor, "*B E"]:
        """The vectors that W is compared with, from those that the encoder leaves."""
        transformed: Tensor = self.norm(self.activate(self.transform(hidden)))
        return transformed

    def forward(
        self, inputs: Tensor, keys: Bool[Tensor, "B S"] | None = None
    ) -> Float[Tensor, "B S V"]:
        """Scores of every token at every place."""
        scores: Tensor = self.output(self.features(self.encode(inputs, keys).values))
        return scores
