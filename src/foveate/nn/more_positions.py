"""More position encodings: sinusoids beside the embedding, and the learned biases of T5."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from foveate.errors import UserError
from foveate.nn.positions import Position, Sinusoidal, SinusoidalHalves


class LaterHalves(SinusoidalHalves):
    """The same, counted from another position than 0: from 2 in M2M100 and NLLB."""

    class Config(Sinusoidal.Config, kind="sinusoidal_later"):
        first: int = Field(2, ge=0)  # position of the first token

    config: Config

    def encode(self, at: Int[Tensor, "T"], size: int) -> Float[Tensor, "T D"]:
        return super().encode(at + self.config.first, size)


class Concatenated(Sinusoidal):
    """W [x; PE(t)] + b: sinusoids of their own ``size`` beside the embedding, not on top of it,
    and a linear map back to D.
    """

    class Config(Sinusoidal.Config, kind="concatenated"):
        size: int = Field(64, gt=0)  # features of the position beside those of the token

    config: Config
    embedding = "W [x; PE(t)] + b"

    def __init__(self, config: Config, hidden_size: int, num_heads: int) -> None:
        super().__init__(config, hidden_size, num_heads)
        self.join = nn.Linear(hidden_size + config.size, hidden_size)
        nn.init.xavier_uniform_(self.join.weight)
        nn.init.zeros_(self.join.bias)

    def embed(self, x: Float[Tensor, "B T D"], at: Int[Tensor, "T"]) -> Float[Tensor, "B T D"]:
        encoding = self.encode(at, self.config.size).to(x.dtype)
        return self.join(torch.cat((x, encoding.expand(len(x), -1, -1)), dim=-1))


class Appended(Sinusoidal):
    """[x; PE(t)], without a map that joins them: the last ``features`` of D are the position's, and
    the token has the D − ``features`` before them.

    Raises `UserError` if no feature is left for the token.
    """

    class Config(Sinusoidal.Config, kind="appended"):
        features: int = Field(32, gt=0)  # of the position, the last ones of D

        def token_size(self, hidden_size: int) -> int:
            if self.features >= hidden_size:
                raise UserError(
                    f"position.features = {self.features} leaves nothing of the hidden size "
                    f"{hidden_size} for the token; lower it"
                )
            return hidden_size - self.features

    config: Config
    embedding = "[x; PE(t)]"

    def embed(self, x: Float[Tensor, "B T E"], at: Int[Tensor, "T"]) -> Float[Tensor, "B T D"]:
        encoding = self.encode(at, self.config.features).to(x.dtype)
        return torch.cat((x, encoding.expand(len(x), -1, -1)), dim=-1)


class T5Bias(Position):
    """Adds b[bucket(k − q)] to a score, b learned for each head, one table for all layers.

    Half of the buckets are for keys after the query, half for those before it. In each half small
    distances have a bucket of their own, larger ones share buckets that grow with the logarithm,
    and all past ``max_distance`` share the last (Raffel et al., 2020).
    """

    class Config(Position.Config, kind="t5"):
        """``num_buckets`` in all; ``max_distance`` in tokens."""

        num_buckets: int = Field(32, ge=4, multiple_of=2)
        """Classes of distances, each with a bias of its own."""
        max_distance: int = Field(128, gt=0)  # from which all distances share a class

    config: Config
    equation = "b_i = B[bucket(i − t)]"
    sides = 2  # before and after

    def __init__(self, config: Config, hidden_size: int, num_heads: int) -> None:
        super().__init__(config, hidden_size, num_heads)
        each = config.num_buckets // self.sides
        if config.max_distance <= each // 2:
            raise UserError(
                f"max_distance = {config.max_distance} must be more than the {each // 2} distances "
                "that have buckets of their own; raise it, or lower num_buckets"
            )
        self.table = nn.Embedding(config.num_buckets, num_heads)
        nn.init.normal_(self.table.weight, std=hidden_size**-0.5)

    def bias(self, query_at: Int[Tensor, "T"], key_at: Int[Tensor, "S"]) -> Float[Tensor, "H T S"]:
        buckets = self.buckets(key_at[None, :] - query_at[:, None])
        return self.table(buckets).permute(2, 0, 1)  # (T, S, H) -> (H, T, S)

    def buckets(self, ahead: Int[Tensor, "T S"]) -> Int[Tensor, "T S"]:
        """Return the bucket of a key that is ``ahead`` positions after its query."""
        after = (ahead > 0).long() * (self.config.num_buckets // 2)
        return after + self.steps(ahead.abs())

    def steps(self, distance: Int[Tensor, "T S"]) -> Int[Tensor, "T S"]:
        """Return the bucket of a distance ≥ 0 on one side."""
        each = self.config.num_buckets // self.sides
        exact = each // 2
        growth = torch.log(distance.clamp(min=1).float() / exact)
        growth = growth / math.log(self.config.max_distance / exact)
        shared = exact + (growth * (each - exact)).long()
        return torch.where(distance < exact, distance, shared.clamp(max=each - 1))


class T5CausalBias(T5Bias, kind="t5_causal"):
    """The same for a decoder: all buckets are for keys before the query."""

    sides = 1

    def buckets(self, ahead: Int[Tensor, "T S"]) -> Int[Tensor, "T S"]:
        return self.steps((-ahead).clamp(min=0))
