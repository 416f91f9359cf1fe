"""A bag of words: embeddings without any order."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from foveate.models.encoder import Encoder, Memory
from foveate.nn.dropout import Dropout
from foveate.nn.stem import TokenStem
from foveate.spec import Input


@dataclass
class Bag(Memory):
    """A memory that has no order: its mean adds the values in the ``order`` (B, S) of their ids.

    Sums of floats depend on their order in the last bits; so any permutation of the tokens gives
    the identical mean.
    """

    order: Int[Tensor, "B S"] | None = None

    def mean(self) -> Float[Tensor, "B D"]:
        if self.order is None:
            return super().mean()
        places = self.order.unsqueeze(-1).expand_as(self.values)
        keys = None if self.keys is None else self.keys.gather(1, self.order)
        return Memory(self.values.gather(1, places), keys).mean()

    def select(self, rows: Tensor) -> Bag:
        chosen = super().select(rows)
        order = None if self.order is None else self.order[rows]
        return Bag(chosen.values, chosen.keys, None, order)


class BagEncoder(Encoder):
    """The embeddings of the tokens, whose mean is CBOW's h = Σ_i E[x_i] / n (Mikolov et al., 2013).

    No place sees another, and none knows where it stands. Documents as counts of their terms are
    `foveate.data.bag`: with the counts c (V), h = Eᵀ c / n.
    """

    class Config(Encoder.Config, kind="cbow"):
        """``dropout`` is that of the embeddings."""

        embedding_size: int = Field(256, gt=0)
        dropout: float = Field(0.1, ge=0, lt=1)

    config: Config

    def __init__(self, config: Config, source: Input) -> None:
        super().__init__(config, source)
        self.output_size = config.embedding_size
        self.stem = TokenStem.Config().build(source, config.embedding_size)
        self.dropout = Dropout(config.dropout)

    def forward(self, inputs: Int[Tensor, "B S"], keys: Bool[Tensor, "B S"] | None = None) -> Bag:
        ids = inputs if keys is None else inputs.masked_fill(~keys, torch.iinfo(inputs.dtype).max)
        return Bag(self.dropout(self.stem(inputs)), keys, None, ids.argsort(dim=1, stable=True))
