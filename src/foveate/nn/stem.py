"""Stems: how raw input becomes a sequence of vectors."""

from __future__ import annotations

import math

from jaxtyping import Float, Int
from torch import Tensor, nn


class TokenStem(nn.Module):
    """Embeds ids, E[id] · scale; scale √D keeps embeddings level with positions (Vaswani, 2017)."""

    def __init__(self, vocab_size: int, embedding_size: int, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale
        self.embedding = nn.Embedding(vocab_size, embedding_size)
        nn.init.normal_(self.embedding.weight, std=1 / math.sqrt(embedding_size))

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        x = self.embedding(ids)
        return x if self.scale == 1.0 else x * self.scale
