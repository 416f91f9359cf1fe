"""The sliding-window language model: the last N − 1 words, a feed-forward network, a softmax."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from foveate.models.decoder import Decoder
from foveate.models.encoder import Memory
from foveate.nn.dropout import Dropout
from foveate.nn.state import State
from foveate.nn.stem import Stem, TokenStem
from foveate.spec import Tokens


class WindowDecoder(Decoder):
    """o_t = R tanh(W [e_{t−N+2}; …; e_t] + b) + c: an (N−1)-th order Markov model
    (Bengio et al., 2003). Before the beginning of the text e is 0.

    Raises ``ValueError`` where it is given a memory, which it has no place for.
    """

    class Config(Decoder.Config, kind="window"):
        """``order`` is N: a token is predicted from the N − 1 before it."""

        stem: Stem.Config = TokenStem.Config()
        order: int = Field(5, gt=1)
        embedding_size: int = Field(256, gt=0)
        hidden_size: int = Field(512, gt=0)
        dropout: float = Field(0.1, ge=0, lt=1)

    config: Config
    reads_memory = False
    constant_memory = True

    def __init__(self, config: Config, target: Tokens, memory_size: int | None) -> None:
        super().__init__(config, target, memory_size)
        if memory_size is not None:
            raise ValueError(
                "the window decoder reads only what is written: it has no attention to a source; "
                "use it in a language_model, or take another decoder"
            )
        size = config.embedding_size
        self.stem = config.stem.build(target, size)
        self.dropout = Dropout(config.dropout)
        self.inner = nn.Linear((config.order - 1) * size, config.hidden_size)
        self.outer = nn.Linear(config.hidden_size, size)
        self.output_size = size

    def forward(
        self, ids: Int[Tensor, "B T"], memory: Memory | None, state: State | None = None
    ) -> Float[Tensor, "B T D"]:
        embedded = self.dropout(self.stem(ids))
        state = State() if state is None else state
        rows, steps, size = embedded.shape
        older = self.config.order - 2  # embeddings of the window that were read before
        (before,) = state.swap(self, lambda: (embedded.new_zeros(rows, older, size),))
        joined = torch.cat((before, embedded), dim=1)  # (B, N−2+T, E)
        state.put(self, (joined[:, steps:],))
        state.position += steps
        windows = joined.unfold(1, older + 1, 1).transpose(2, 3)  # (B, T, N−1, E)
        hidden = torch.tanh(self.inner(windows.flatten(2)))
        out: Tensor = self.outer(self.dropout(hidden))
        return self.dropout(out)
