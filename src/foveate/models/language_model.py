"""Language models: a decoder alone, and the projection to the vocabulary; texts being continued."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
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


class LanguageSteps:
    """Texts being continued step by step: what searches ask of a language model.

    The first step reads the start and the whole prompt after it. ``reach`` is how many tokens the
    model was made to read at once, None where any number will do: past it the last half is read
    anew as the beginning of a text. ``never`` are ids that no text holds. ``tap`` is called with
    the ids (N,) that each later step reads.
    """

    def __init__(
        self,
        model: LanguageModel,
        prompts: Int[Tensor, "N P"],
        reach: int | None = None,
        never: tuple[int, ...] = (),
        tap: Callable[[Tensor], None] | None = None,
    ) -> None:
        self.model, self.prompts, self.reach, self.tap = model, prompts, reach, tap
        self.state, self.device, self.never = State(), prompts.device, list(never)
        self.text = prompts[:, :0]  # (N, t) all that was read

    def step(self, ids: Int[Tensor, "N"]) -> Float[Tensor, "N V"]:
        """Logits of the next token after reading one more of each text."""
        new = ids[:, None]
        if not self.text.shape[1]:
            new = torch.cat((new, self.prompts), dim=1)
        elif self.tap is not None:
            self.tap(ids)
        self.text = torch.cat((self.text, new), dim=1)
        if self.reach is not None and self.state.position + new.shape[1] > self.reach:
            self.state, new = State(), self.text[:, -max(1, self.reach // 2) :]
        logits = self.model.logits(self.model.decode(new, self.state)[:, -1]).float()
        logits[:, self.never] = -torch.inf
        return logits

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        """Text i goes on from what text ``rows[i]`` was."""
        self.state.reorder(rows)
        self.text = self.text.index_select(0, rows)

    def select(self, sources: Int[Tensor, "M"]) -> None:
        """Go on with these prompts alone; nothing is kept of them but their texts."""
