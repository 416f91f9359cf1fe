"""Encoder–decoder: any encoder with any decoder, and the projection to the vocabulary."""

from __future__ import annotations

import copy
import os
from typing import TYPE_CHECKING, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from foveate.config import BaseConfig, Configurable
from foveate.models.base import Decoder, Encoder, Memory
from foveate.models.native import NativeReading, native_reading
from foveate.nn.state import State
from foveate.spec import Input, Tokens

if TYPE_CHECKING:
    from foveate.models.recorded import RecordedReading


class Model(Configurable, nn.Module):
    """What a task trains."""

    class Config(BaseConfig, family="model"):
        """Which model."""


class EncoderDecoder(Model):
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
        super().__init__()
        self.config = config
        self.encoder: Encoder = config.encoder.build(source)
        self.decoder: Decoder = config.decoder.build(target, self.encoder.output_size)
        self.output = output_projection(self.decoder, target, config.output_bias)
        if config.tie in ("target", "all"):
            tie(config.tie, self.output, "the output projection", self.decoder.embedding)
        if config.tie in ("inputs", "all"):
            table = self.encoder.embedding
            tie(config.tie, table, "the source embedding", self.decoder.embedding)

    def encode(self, inputs: Tensor, keys: Bool[Tensor, "B S"] | None = None) -> Memory:
        """Read the source; ``keys`` is true at real places, None where all are."""
        memory: Memory = self.encoder(inputs, keys)
        return memory

    def decode(
        self, ids: Int[Tensor, "B T"], memory: Memory, state: State | None = None
    ) -> Float[Tensor, "B T D"]:
        """A vector at each target place, from which the next token is predicted."""
        hidden: Tensor = self.decoder(ids, memory, state)
        return hidden

    def logits(self, hidden: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        """Scores of every next token."""
        scores: Tensor = self.output(hidden)
        return scores

    def forward(
        self,
        source: Tensor,
        target: Int[Tensor, "B T"],
        keys: Bool[Tensor, "B S"] | None = None,
    ) -> Float[Tensor, "B T V"]:
        return self.logits(self.decode(target, self.encode(source, keys)))


def output_projection(decoder: Decoder, target: Tokens, bias: bool = False) -> nn.Linear:
    """W, the vectors with which a decoder's outputs are compared: one for each token."""
    output = nn.Linear(decoder.output_size, target.vocab_size, bias=bias)
    nn.init.normal_(output.weight, std=decoder.output_size**-0.5)
    if bias:
        nn.init.zeros_(output.bias)
    return output


def rows_of(output: nn.Module, tokens: Int[Tensor, "W"]) -> nn.Module:
    """The map onto some of the outputs alone, of a linear map of any precision."""
    some = copy.copy(output)
    for kind in ("_parameters", "_buffers"):
        tensors = getattr(output, kind).items()
        rows = {name: None if t is None else t.detach()[tokens] for name, t in tensors}
        setattr(some, kind, rows)
    return some


def tie(
    setting: str, module: nn.Linear | nn.Embedding | None, name: str, to: nn.Embedding | None
) -> None:
    """Let a module share the weights of the target embedding.

    Raises ``ValueError`` where there is nothing to share, or the shapes differ.
    """
    if module is None or to is None:
        missing = name if module is None else "the target embedding"
        raise ValueError(f'model.tie = {setting!r}: {missing} is no table; set model.tie = "none"')
    if module.weight.shape != to.weight.shape:
        raise ValueError(
            f"model.tie = {setting!r}: {name} is {tuple(module.weight.shape)}, the "
            f"target embedding {tuple(to.weight.shape)}; make sizes and vocabularies equal "
            '(task.joint = true), or set model.tie = "none"'
        )
    module.weight = to.weight


class DecoderSteps:
    """One source batch being decoded step by step: what greedy and beam search ask of a model.

    The step is a native one where `foveate.models.native` has one that gives the same, or a
    recorded one (`foveate.models.recorded`); ``plain`` does without. With ``tokens`` (V') these
    alone may come next: logits and the ids of steps count them.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        memory: Memory,
        plain: bool = False,
        tokens: Int[Tensor, "W"] | None = None,
    ) -> None:
        self.model, self.memory, self.state, self.tokens = model, memory, State(), tokens
        self.device = memory.values.device
        self.output = model.output if tokens is None else rows_of(model.output, tokens)
        self.native: NativeReading | RecordedReading | None = None
        if not plain:
            given = model, self.output, memory
            self.native = native_reading(*given)
            if self.native is None and os.environ.get("FOVEATE_GRAPHS") == "1":
                from foveate.models.recorded import recorded_reading

                self.native = recorded_reading(*given)

    def step(self, ids: Int[Tensor, "N"]) -> Float[Tensor, "N V"]:
        """Logits of the next token after reading one more of each hypothesis."""
        if self.tokens is not None:
            ids = self.tokens[ids]
        if self.native is not None:
            return self.native.step(ids)
        hidden = self.model.decode(ids[:, None], self.memory, self.state)
        logits: Tensor = self.output(hidden[:, -1])
        return logits.float()

    def reorder(self, rows: Int[Tensor, "N"]) -> None:
        """Hypothesis i goes on from hypothesis ``rows[i]``."""
        (self.native or self.state).reorder(rows)

    def select(self, sources: Int[Tensor, "M"]) -> None:
        """Go on with these sources alone."""
        if self.native is not None:
            self.native.select(sources)
            return
        self.memory = self.memory.select(sources)
        self.state.select(sources)

    @property
    def enters(self) -> bool:
        """Whether sources may `enter` while others are being decoded."""
        return isinstance(self.native, NativeReading)

    def enter(self, sources: Int[Tensor, "K"]) -> None:
        """Take sources in that had been left out, a hypothesis each after the others'."""
        assert isinstance(self.native, NativeReading)
        self.native.enter(sources)
