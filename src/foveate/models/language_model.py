"""Language models: a decoder alone, and the projection to the vocabulary."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor

from foveate.models.decoder import Decoder
from foveate.models.encoder_decoder import Model, output_projection, tie
from foveate.models.transformer import TransformerDecoder
from foveate.nn.state import State
from foveate.spec import Tokens


class LanguageModel(Model):
    """p(x_t | x_<t) = softmax(W · decode(x_<t))."""

    class Config(Model.Config, kind="language_model"):
        """``tie`` "target" makes one table of the embedding and of W."""

        decoder: Decoder.Config = TransformerDecoder.Config()
        tie: Literal["none", "target"] = "target"

    config: Config

    def __init__(self, config: Config, target: Tokens) -> None:
        super().__init__()
        self.config = config
        self.decoder: Decoder = config.decoder.build(target, None)
        self.output = output_projection(self.decoder, target)
        if config.tie != "none":
            tie(config.tie, self.output, "the output projection", self.decoder.embedding)

    def decode(self, ids: Int[Tensor, "B T"], state: State | None = None) -> Float[Tensor, "B T D"]:
        """A vector at each place, from which the next token is predicted."""
        hidden: Tensor = self.decoder(ids, None, state)
        return hidden

    def logits(self, hidden: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        """Scores of every next token."""
        scores: Tensor = self.output(hidden)
        return scores

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        return self.logits(self.decode(ids))
