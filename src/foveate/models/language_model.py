"""Language models: left to right, and masked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from foveate.models.encoder_decoder import Decoder, Encoder, Model, Reader, Writer
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.context import DecoderState
from foveate.nn.embedding import output_projection, tie
from foveate.nn.linear import LayerNorm, Norm
from foveate.nn.spec import Tokens


class LanguageModel(Writer):
    """p(x_t | x_<t) = softmax(W · decode(x_<t))."""

    class Config(Model.Config, kind="language_model"):
        """``tie`` "target" makes one table of the embedding and of W."""

        decoder: Decoder.Config = TransformerDecoder.Config()
        """What reads the text and predicts its next token."""
        tie: Literal["none", "target"] = "target"
        """Whether embeddings and output weights are one matrix."""
        output_bias: bool = False  # whether the output layer has a bias
        logit_cap: float | None = Field(None, gt=0)  # c of logits c tanh(W h / c) (Gemma 2)

    config: Config

    def __init__(self, config: Config, target: Tokens) -> None:
        super().__init__(config)
        self.decoder: Decoder = config.decoder.build(target, None)
        self.output = output_projection(
            self.decoder.output_size, target.vocab_size, config.output_bias, config.logit_cap
        )
        if config.tie != "none":
            tie(config.tie, self.output, "the output projection", self.decoder.embedding)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        return self.predict(ids)


class LanguageSteps:
    """Continues texts step by step with a language model, for a search (`foveate.decode`).

    The first step reads the start and the whole prompt after it. ``reach`` is the number of tokens
    that the model can read at once, None for any: past it, the last half is read again as the
    beginning of a text. ``never`` are ids that no text contains; ``bare`` prompts have no start.
    """

    def __init__(
        self,
        model: LanguageModel,
        prompts: Int[Tensor, "N P"],
        reach: int | None = None,
        never: tuple[int, ...] = (),
        bare: bool = False,
    ) -> None:
        self.model, self.prompts, self.reach, self.bare = model, prompts, reach, bare
        self.state, self.device, self.never = DecoderState(), prompts.device, list(never)
        self.text = prompts[:, :0]  # (N, t) all that was read

    def step(self, ids: Int[Tensor, "N"]) -> Float[Tensor, "N V"]:
        """Return logits of the next token after reading one more of each text."""
        new = ids[:, None]
        if not self.text.shape[1]:
            new = self.prompts if self.bare else torch.cat((new, self.prompts), dim=1)
        self.text = torch.cat((self.text, new), dim=1)
        if self.reach is not None and self.state.position + new.shape[1] > self.reach:
            self.state, new = DecoderState(), self.text[:, -max(1, self.reach // 2) :]
        logits = self.model.logits(self.model.decode(new, None, self.state)[:, -1]).float()
        logits[:, self.never] = -torch.inf
        return logits

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        """Make text i continue text ``rows[i]``."""
        self.state.reorder(rows)
        self.text = self.text.index_select(0, rows)

    def select(self, sources: Int[Tensor, "M"]) -> None:
        """Do nothing: these prompts continue, and nothing is stored of them but their texts."""


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


class MaskedLanguageModel(Reader):
    """p(x_i | x with i hidden) = softmax(W · norm(f(T h_i)) + b), h = encode(x), f = gelu
    (Devlin et al., 2019).
    """

    class Config(Model.Config, kind="masked_language_model"):
        """``activation`` is f; ``tie`` "source" makes W the table of the encoder's embeddings."""

        encoder: Encoder.Config = TransformerEncoder.Config()  # what reads the text
        activation: Literal["gelu", "gelu_tanh", "relu", "silu"] = "gelu"
        """Between the two layers of the output."""
        norm: Norm.Config = LayerNorm.Config()  # before the output layer
        tie: Literal["none", "source"] = "source"
        """Whether embeddings and output weights are one matrix."""
        transform: bool = True
        """Whether T, its activation and its norm stand before W; false for softmax(W h) (CBOW)."""
        output_bias: bool = True  # whether the output layer has a bias

    config: Config
    scored_by = ("forward",)

    def __init__(self, config: Config, source: Tokens) -> None:
        super().__init__(config)
        self.encoder = config.encoder.build(source)
        table = self.encoder.embedding
        size = self.encoder.output_size
        if config.transform:
            size = size if table is None else table.embedding_dim
            self.transform = nn.Linear(self.encoder.output_size, size)
            self.activate = ACTIVATIONS[config.activation]
            self.norm: Norm = config.norm.build(size)
        self.output = output_projection(size, source.vocab_size, config.output_bias)
        if config.tie != "none":
            tie(config.tie, self.output, "the output projection", table)

    def features(self, hidden: Float[Tensor, "*B D"]) -> Float[Tensor, "*B E"]:
        """Return the vectors that W is compared with, from those of the encoder."""
        if not self.config.transform:
            return hidden
        return self.norm(self.activate(self.transform(hidden)))

    def forward(
        self, inputs: Tensor, source_mask: Bool[Tensor, "B S"] | None = None
    ) -> Float[Tensor, "B S V"]:
        """Return scores of every token at every position."""
        return self.output(self.features(self.encode(inputs, source_mask).values))
