"""The bag of words, and the feed-forward language model over a window of n-grams."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from foveate.errors import UserError
from foveate.models.encoder_decoder import Decoder, Encoder, Memory
from foveate.nn.context import DecoderState
from foveate.nn.embedding import Stem, TokenStem
from foveate.nn.linear import Dropout
from foveate.nn.spec import Input, Tokens


class BagEncoder(Encoder):
    """The embeddings of the tokens, whose mean is CBOW's h = Σ_i E[x_i] / n (Mikolov et al., 2013).

    Positions do not depend on each other or on their order. Documents as counts of terms are in
    `foveate.data.words`: with the counts c (V), h = Eᵀ c / n.
    """

    differs = (
        "averages a whole text to predict a label; Mikolov et al. (2013) predict the centre word "
        "of a window (see cbow_window)"
    )

    class Config(Encoder.Config, kind="cbow"):
        """``dropout`` is that of the embeddings."""

        stem: Stem.Config = TokenStem.Config()  # how tokens become vectors
        embedding_size: int = Field(256, gt=0)  # size of the word vectors
        dropout: float = Field(0.1, ge=0, lt=1)  # of the word vectors

    def __init__(self, config: Config, source: Input) -> None:
        super().__init__(config, source)
        self.output_size = config.embedding_size
        self.stem = config.stem.build(source, config.embedding_size)
        self.dropout = Dropout(config.dropout)

    def forward(self, inputs: Tensor, source_mask: Bool[Tensor, "B S"] | None = None) -> Memory:
        return Memory(self.dropout(self.stem(inputs)), source_mask)


class NeighbourEncoder(BagEncoder):
    """h_t = Σ_i E[x_i] / n over the n ≤ 2c tokens around t, 0 < |i − t| ≤ c, that at t left out:
    CBOW, which guesses the centre word from it (Mikolov et al., 2013).

    In a masked language model with ``transform = false``, and a task with ``choose = 1`` and ``hide
    = replace = 0``, p(x_t) = softmax(W h_t) at every position.
    """

    differs = (
        "full softmax, by default tied to the input embeddings; Mikolov et al. (2013) use a "
        "hierarchical softmax with separate output embeddings"
    )

    class Config(BagEncoder.Config, kind="cbow_window"):
        window: int = Field(5, gt=0)  # c: tokens before, and tokens after, the centre

    config: Config

    def forward(self, inputs: Tensor, source_mask: Bool[Tensor, "B S"] | None = None) -> Memory:
        x = self.dropout(self.stem(inputs))
        at = torch.arange(x.shape[1], device=x.device)
        distance = (at[:, None] - at).abs()
        near = ((distance > 0) & (distance <= self.config.window))[None]  # (1, S, S)
        near = (near if source_mask is None else near & source_mask[:, None, :]).to(x.dtype)
        return Memory(near @ x / near.sum(dim=-1, keepdim=True).clamp(min=1), source_mask)


class WindowDecoder(Decoder):
    """o_t = R tanh(W [e_{t−N+2}; …; e_t] + b) + c: an (N−1)-th order Markov model
    (Bengio et al., 2003). Before the beginning of the text e is 0.

    Raises `UserError` for a memory: it is a language model's decoder.
    """

    differs = (
        "no direct connections from the embeddings to the output; uses dropout, unlike Bengio "
        "et al. (2003)"
    )

    class Config(Decoder.Config, kind="window"):
        """``order`` is N: a token is predicted from the N − 1 before it."""

        stem: Stem.Config = TokenStem.Config()  # how tokens become vectors
        order: int = Field(5, gt=1)  # of the n-grams: the token and the order - 1 before it
        embedding_size: int = Field(256, gt=0)  # size of the token vectors
        hidden_size: int = Field(512, gt=0)  # size of the hidden layer
        dropout: float = Field(0.1, ge=0, lt=1)  # of embeddings and of the hidden layer

    config: Config
    reads_memory = False
    constant_memory = True

    def __init__(self, config: Config, target: Tokens, memory_size: int | None) -> None:
        super().__init__(config, target, memory_size)
        if memory_size is not None:
            raise UserError(
                "the window decoder reads only its own output and has no attention to a source; "
                "use it in a language_model, or choose another decoder"
            )
        size = config.embedding_size
        self.stem = config.stem.build(target, size)
        self.dropout = Dropout(config.dropout)
        self.inner = nn.Linear((config.order - 1) * size, config.hidden_size)
        self.outer = nn.Linear(config.hidden_size, size)
        self.output_size = size

    def forward(
        self, ids: Int[Tensor, "B T"], memory: Memory | None, state: DecoderState | None = None
    ) -> Float[Tensor, "B T D"]:
        embedded = self.dropout(self.stem(ids))
        state = DecoderState() if state is None else state
        rows, steps, size = embedded.shape
        older = self.config.order - 2  # embeddings of the window that were read before
        (before,) = state.current(self, lambda: (embedded.new_zeros(rows, older, size),))
        joined = torch.cat((before, embedded), dim=1)  # (B, N−2+T, E)
        state.replace(self, (joined[:, steps:],))
        state.position += steps
        windows = joined.unfold(1, older + 1, 1).transpose(2, 3)  # (B, T, N−1, E)
        hidden = torch.tanh(self.inner(windows.flatten(2)))
        out: Tensor = self.outer(self.dropout(hidden))
        return self.dropout(out)
