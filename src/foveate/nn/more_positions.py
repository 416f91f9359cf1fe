"""More position encodings: stretched rotations, sinusoids beside the embedding, and biases."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from foveate.errors import UserError
from foveate.nn.positions import Position, Rotary, Sinusoidal, SinusoidalHalves


class LinearRotary(Rotary):
    """Turns pairs by t / factor instead of t: a context longer by ``factor`` has the angles of the
    one in training (position interpolation; Chen et al., 2023; Gemma 3).
    """

    class Config(Rotary.Config, kind="rope_linear"):
        factor: float = Field(8.0, ge=1)  # by which the context is longer than in training

    config: Config

    def frequencies(self, size: int, device: torch.device) -> Float[Tensor, "F"]:
        return super().frequencies(size, device) / self.config.factor


class Llama3Rotary(Rotary):
    """Turns slow pairs by t / factor and fast pairs by t; those between, by a mixture of both.

    With n = length · ω / 2π, the turns of a pair of frequency ω in ``length`` positions, its
    frequency is ω s + ω (1 − s) / factor, s = (n − low) / (high − low) between 0 and 1
    (Grattafiori et al., 2024: Llama 3.1).
    """

    class Config(Rotary.Config, kind="rope_llama3"):
        factor: float = Field(8.0, ge=1)  # by which the context is longer than in training
        low: float = Field(1.0, gt=0)  # turns up to which a pair is slow
        high: float = Field(4.0, gt=0)  # turns from which a pair is fast
        length: int = Field(8192, gt=0)  # positions in the first training

    config: Config

    def __init__(self, config: Config, hidden_size: int, num_heads: int) -> None:
        super().__init__(config, hidden_size, num_heads)
        if config.low >= config.high:
            raise UserError(
                f"position.low = {config.low:g} must be less than high = {config.high:g}: the "
                "turns of slow pairs are fewer than those of fast ones"
            )

    def frequencies(self, size: int, device: torch.device) -> Float[Tensor, "F"]:
        config, omega = self.config, super().frequencies(size, device)
        turns = config.length * omega / (2 * math.pi)
        s = ((turns - config.low) / (config.high - config.low)).clamp(0, 1)
        return omega * s + omega * (1 - s) / config.factor


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
    adds = False

    def __init__(self, config: Config, hidden_size: int, num_heads: int) -> None:
        super().__init__(config, config.size, num_heads)
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
    adds = False

    def __init__(self, config: Config, hidden_size: int, num_heads: int) -> None:
        super().__init__(config, config.features, num_heads)

    def embed(self, x: Float[Tensor, "B T E"], at: Int[Tensor, "T"]) -> Float[Tensor, "B T D"]:
        encoding = self.encode(at, self.config.features).to(x.dtype)
        return torch.cat((x, encoding.expand(len(x), -1, -1)), dim=-1)


class ALiBi(Position, kind="alibi"):
    """Head h adds −m_h · |t − s| to a score, m_h = 2^(−8h/H): near keys get more weight, also in
    texts longer than any in training (Press et al., 2022).
    """

    differs = (
        "also lowers the scores of keys after the query, for encoders; Press et al. (2022) treat "
        "only the causal case"
    )

    slopes: Tensor
    equation = "b_i = −m_h |t − i|"

    def __init__(self, config: Position.Config, hidden_size: int, num_heads: int) -> None:
        super().__init__(config, hidden_size, num_heads)
        self.register_buffer("slopes", _slopes(num_heads), persistent=False)

    def bias(
        self, query_at: Int[Tensor, "T"], key_at: Int[Tensor, "S"]
    ) -> Float[Tensor, "H T S"] | None:
        distance = (query_at[:, None] - key_at[None, :]).abs()  # (T, S)
        return -self.slopes[:, None, None] * distance


def _slopes(heads: int) -> Tensor:
    """Return m_h for H heads.

    If H is not a power of two, they are those of the power below, and every second one of the
    power above.
    """
    whole = 2 ** int(math.log2(heads))
    slopes = [2 ** (-8 * h / whole) for h in range(1, whole + 1)]
    slopes += [2 ** (-4 * h / whole) for h in range(1, 2 * (heads - whole), 2)]
    return torch.tensor(slopes)


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
