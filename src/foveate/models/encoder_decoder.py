"""Encoders, decoders, and the encoder–decoder that joins one of each with an output projection."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from foveate.config import BaseConfig, FromConfig
from foveate.nn.context import DecoderState, Mask
from foveate.nn.embedding import Stem, TokenStem, output_projection, rows_of, tie
from foveate.nn.native.kernels import definer, overridden
from foveate.nn.recurrent import Hidden
from foveate.nn.spec import Input, Tokens

TargetIds = Int[Tensor, "B T"]


@dataclass
class Memory:
    """The output of an encoder, which a decoder attends to.

    ``values`` (B, S, D); ``source_mask`` (B, S), true at real positions, None if all are real;
    ``final``: the last hidden state of each layer of a recurrent encoder, None for other encoders.
    """

    values: Float[Tensor, "B S D"]
    source_mask: Bool[Tensor, "B S"] | None = None
    final: list[Hidden] | None = None

    @cached_property
    def mask(self) -> Mask:
        """The mask of the real positions, shared by all layers and steps that attend to them."""
        return Mask(self.source_mask)

    def summary(self) -> Float[Tensor, "B D"]:
        """Return the source as one vector: the last hidden state, else the mean of the values."""
        return self.mean() if self.final is None else self.final[-1][0]

    def mean(self) -> Float[Tensor, "B D"]:
        """Return the mean of the values at real positions."""
        if self.source_mask is None:
            return self.values.mean(dim=1)
        real = self.source_mask.unsqueeze(-1).to(self.values.dtype)
        return (self.values * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)

    def select(self, rows: Tensor) -> Memory:
        """Return the memory of the sources ``rows``."""
        source_mask = None if self.source_mask is None else self.source_mask[rows]
        final = self.final and [tuple(part[rows] for part in hidden) for hidden in self.final]
        return Memory(self.values[rows], source_mask, final)


class Encoder(FromConfig, nn.Module):
    """Reads a sequence and gives a vector of ``output_size`` for each of its positions.

    It is made of its config and the kind of its input (of `foveate.nn.spec`). Its stem
    (`foveate.nn.embedding`) decides what it reads: ids, patches of an image, a series.
    """

    class Config(BaseConfig, family="encoder"):
        """The kind of encoder."""

    output_size: int
    final_states: tuple[int, int] | None = None  # layers, and tensors of each, in `Memory.final`

    @property
    def embedding(self) -> nn.Embedding | None:
        """The embedding table of the input, which may be tied; None if the input is not text."""
        stem = self._modules.get("stem")
        return stem.embedding if isinstance(stem, TokenStem) else None

    def forward(self, inputs: Tensor, source_mask: Bool[Tensor, "B S"] | None = None) -> Memory:
        """Read ids (B, S), pixels (B, C, H, W) or series (B, S, C).

        ``source_mask`` is true at real positions, None if all are real.
        """
        raise NotImplementedError


class Decoder(FromConfig, nn.Module):
    """Turns ids (B, T) into vectors (B, T, ``output_size``) that predict the next token of each.

    It is made of its config, the `Tokens` that it writes, and the size of the memory; without one
    (None) it is the decoder of a language model. With ``state=None`` it reads a whole sequence;
    with a state it continues at ``state.position``.
    """

    class Config(BaseConfig, family="decoder"):
        """The kind of decoder."""

    reads_memory: ClassVar[bool] = True  # False: for language models only, without a source
    constant_memory: ClassVar[bool] = False  # whether its state has the same size at any length
    parallel: ClassVar[bool] = True  # whether all positions of a sequence are computed at once
    output_size: int
    stem: Stem

    @property
    def embedding(self) -> nn.Embedding | None:
        """The embedding table of the target, which may be tied."""
        return self.stem.embedding if isinstance(self.stem, TokenStem) else None

    def check(self, encoder: Encoder) -> None:
        """Raise `UserError` if it cannot start from the output of this encoder."""

    def forward(
        self, ids: TargetIds, memory: Memory | None, state: DecoderState | None = None
    ) -> Float[Tensor, "B T D"]:
        raise NotImplementedError


class Model(FromConfig, nn.Module):
    """The network that a task trains."""

    class Config(BaseConfig, family="model"):
        """The kind of model."""

    scored_by: ClassVar[tuple[str, ...]] = ("forward",)
    """Methods of this class that give scores W h + b; a loss calls those of a derived class."""

    @property
    def scores_are_product(self) -> bool:
        """True if scores are W h + b, in parts for a loss; False where a class changes them."""
        return not overridden(self, definer(self, "scored_by"), *self.scored_by) and not overridden(
            self.get_submodule("output"), nn.Linear, "forward"
        )


class Reader(Model):
    """A model with an encoder of its input."""

    encoder: Encoder

    def encode(self, inputs: Tensor, source_mask: Bool[Tensor, "B S"] | None = None) -> Memory:
        """Read the input; ``source_mask`` is true at real positions, None if all are real."""
        return self.encoder(inputs, source_mask)


class Writer(Model):
    """A model that writes tokens: p(y_t | y_<t) = softmax(W · decode(y_<t)).

    The decoder reads a memory of the source, or none, as in a language model.
    """

    decoder: Decoder
    output: nn.Linear
    scored_by = "predict", "logits"

    def decode(
        self, ids: TargetIds, memory: Memory | None = None, state: DecoderState | None = None
    ) -> Float[Tensor, "B T D"]:
        """Return a vector at each target position, from which the next token is predicted."""
        return self.decoder(ids, memory, state)

    def logits(self, hidden: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        """Return unnormalised log-probabilities of every next token."""
        return self.output(hidden)

    def predict(
        self, ids: TargetIds, memory: Memory | None = None, state: DecoderState | None = None
    ) -> Float[Tensor, "B T V"]:
        """Return unnormalised log-probabilities of the token that follows each position."""
        return self.logits(self.decode(ids, memory, state))


class EncoderDecoder(Reader, Writer):
    """p(y_t | y_<t, x) = softmax(W · decode(y_<t, encode(x)))."""

    class Config(Model.Config, kind="encoder_decoder"):
        """``tie`` makes one table of the target's input and output ("target"), of these and the
        source's ("all"), or of the two inputs ("inputs"); ``output_bias`` adds b to W h.
        """

        encoder: Encoder.Config  # what reads the source
        decoder: Decoder.Config  # what writes the target
        tie: Literal["none", "target", "all", "inputs"] = "target"
        """Which embeddings and output weights are one matrix."""
        output_bias: bool = False  # whether the output layer has a bias

    config: Config

    def __init__(self, config: Config, source: Input, target: Tokens) -> None:
        super().__init__(config)
        self.encoder = config.encoder.build(source)
        self.decoder: Decoder = config.decoder.build(target, self.encoder.output_size)
        self.decoder.check(self.encoder)
        self.output = output_projection(
            self.decoder.output_size, target.vocab_size, config.output_bias
        )
        if config.tie in ("target", "all"):
            tie(config.tie, self.output, "the output projection", self.decoder.embedding)
        if config.tie in ("inputs", "all"):
            tie(config.tie, self.encoder.embedding, "the source embedding", self.decoder.embedding)

    def forward(
        self,
        source: Tensor,
        target: Int[Tensor, "B T"],
        source_mask: Bool[Tensor, "B S"] | None = None,
    ) -> Float[Tensor, "B T V"]:
        return self.predict(target, self.encode(source, source_mask))


class DecoderSteps:
    """Decodes a batch of sources step by step in PyTorch, for a search (`foveate.decode`).

    Rows are hypotheses, grouped by source. With ``tokens`` (V',) only these may come next: logits
    and ids are then numbered by their index in ``tokens``. Logits of the ids ``never`` are −∞.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        memory: Memory,
        tokens: Int[Tensor, "W"] | None = None,
        never: tuple[int, ...] = (),
    ) -> None:
        self.model, self.memory, self.state, self.tokens = model, memory, DecoderState(), tokens
        self.device, self.never = memory.values.device, list(never)
        rows = tokens if model.scores_are_product else None  # of the output layer's weight
        self.output = None if rows is None else rows_of(model.output, rows)

    def step(self, ids: Int[Tensor, "N"]) -> Float[Tensor, "N V"]:
        """Return logits of the next token after reading one more token of each hypothesis."""
        ids = ids if self.tokens is None else self.tokens[ids]
        if self.output is None:
            logits = self.model.predict(ids[:, None], self.memory, self.state)[:, -1].float()
            logits = logits if self.tokens is None else logits[:, self.tokens]
        else:
            hidden = self.model.decode(ids[:, None], self.memory, self.state)
            logits = self.output(hidden[:, -1]).float()
        if self.never:
            logits[:, self.never] = -torch.inf
        return logits

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        """Make hypothesis i continue hypothesis ``rows[i]``."""
        self.state.reorder(rows)

    def select(self, sources: Int[Tensor, "M"]) -> None:
        """Continue with these sources only."""
        self.memory = self.memory.select(sources)
        self.state.select(sources)
