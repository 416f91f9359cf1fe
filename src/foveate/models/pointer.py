"""Pointer-generator: each word is one of the vocabulary or a copy from the source.

See, Liu & Manning (2017), "Get to the point", after the pointer network (Vinyals et al., 2015).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from foveate.data.tokenizer import UNK
from foveate.errors import UserError
from foveate.models.encoder_decoder import EncoderDecoder, Memory, TargetIds
from foveate.nn.attention import Attention, Projection, unfold_heads
from foveate.nn.context import AttentionContext, DecoderState, Mask
from foveate.nn.linear import single
from foveate.nn.scores import Additive, Score
from foveate.nn.spec import Input, Tokens


class PointerAttention(Attention.Config, family="pointer_attention", kind="full"):
    """The attention whose weights are the copy distribution; one head."""

    score: Score.Config = Additive.Config()  # how the decoder's vector is compared with the source
    project: tuple[Projection, ...] = ("query", "key")
    """Which of query, key, value and output are projected."""


@dataclass
class Pointed:
    """A pointer's results for the decoder's vectors.

    ``vectors`` o_t (N, T, D), ``switch`` the log odds of p_gen (N, T), ``weights`` α_t (N, T, S)
    and ``coverage`` Σ_i min(α_ti, c_ti) (N, T), zeros without coverage.
    """

    vectors: Float[Tensor, "N T D"]
    switch: Float[Tensor, "N T"]
    weights: Float[Tensor, "N T S"]
    coverage: Float[Tensor, "N T"]


class CoveredAttention(Attention):
    """Attention that also returns its weights, and may know what it has attended to before.

        c_t = Σ_{u < t} α_u;  k_ti = k_i + w_c c_ti

    With the additive score e_ti = vᵀ tanh(W_s s_t + W_h h_i + w_c c_ti + b), equation 11 of See et
    al. (2017). ``covers`` False leaves c_t out, and all steps are computed at once.
    """

    def __init__(
        self, config: Attention.Config, hidden_size: int, memory_size: int, covers: bool
    ) -> None:
        super().__init__(config, hidden_size, memory_size)
        if self.num_heads != 1:
            raise UserError(
                f"model.attention.num_heads = {self.num_heads}: the weights of one head are the "
                "copy distribution; set it to 1"
            )
        if config.dropout:
            raise UserError(
                f"model.attention.dropout = {config.dropout}: the weights are the copy "
                "distribution, whose sum stays 1; set it to 0"
            )
        self.covered = nn.Parameter(torch.zeros(self.key_size)) if covers else None

    def point(
        self, query: Float[Tensor, "N T D"], memory: Memory, state: DecoderState
    ) -> tuple[Float[Tensor, "N T O"], Float[Tensor, "N T S"], Float[Tensor, "N T"]]:
        """Return the contexts, the weights and Σ_i min(α_ti, c_ti) of each query."""
        each, places = len(query) // len(memory.values), range(memory.values.shape[1])
        query_at = (range(query.shape[1]),) * each  # a range for each hypothesis
        context = AttentionContext(memory.mask, query_at, places, state=state)
        queries = self._queries(query.reshape(len(memory.values), -1, query.shape[2]), context)
        keys, values = self._keys_and_values(query, memory.values, context)
        if self.covered is None:
            weights = self._tapped(self._weights(queries, keys, context), context)
            contexts = unfold_heads(self._stage("context", weights @ values), each)
            alpha = unfold_heads(weights, each).squeeze(1)
            cost = alpha.new_zeros(alpha.shape[:2])
        else:
            queries = unfold_heads(queries, each)
            alpha, cost = self._cover(queries, keys.repeat_interleave(each, 0), memory, state)
            contexts = alpha[:, None] @ values.repeat_interleave(each, 0)
        return self._stage("output", self.output(contexts.squeeze(1))), alpha, cost

    def _cover(
        self, queries: Tensor, keys: Tensor, memory: Memory, state: DecoderState
    ) -> tuple[Float[Tensor, "N T S"], Float[Tensor, "N T"]]:
        """Return the weights and their overlap with c_t, computed one query after another."""
        assert self.covered is not None
        each, places = len(queries) // len(memory.values), range(keys.shape[2])
        real = None if memory.source_mask is None else memory.source_mask.repeat_interleave(each, 0)
        context = AttentionContext(Mask(real), range(1), places)
        (before,) = state.current(self, lambda: (keys.new_zeros(len(keys), len(places)),))
        weights, costs = [], []
        for query in queries.split(1, dim=2):
            covered = keys + before[:, None, :, None] * self.covered
            alpha = self._tapped(self._weights(query, covered, context), context)[:, 0, 0]
            costs.append(torch.minimum(alpha, before).sum(dim=1))
            weights.append(alpha)
            before = before + alpha
        state.replace(self, (before,))
        return torch.stack(weights, dim=1), torch.stack(costs, dim=1)


class PointerGenerator(EncoderDecoder):
    """P(w) = p_gen P_vocab(w) + (1 − p_gen) Σ_{i: x_i = w} α_ti (See, Liu & Manning, 2017).

        α_t = attention of s_t to the source h;  h*_t = Σ_i α_ti h_i
        o_t = V [s_t; h*_t] + b;  P_vocab = softmax(W o_t)
        p_gen = σ(w_h · h*_t + w_s · s_t + b_p)

    s_t is the decoder's vector of step t, h_i the encoder's at position i. Source ids from |V| on,
    V the vocabulary, are words outside it: they are read as ``<unk>``, have P_vocab = 0 and can be
    copied. With ``coverage`` λ the attention knows what it has attended to, and the loss gains λ
    Σ_i min(α_ti, c_ti) at each step.
    """

    differs = (
        "p_gen is computed from the read-out s_t, which already contains the token x_t, without "
        "x_t as a separate input; coverage is used from the start instead of after 230,000 steps"
    )

    class Config(EncoderDecoder.Config, kind="pointer_generator"):
        """Source and target share one vocabulary: ``task.joint = true``."""

        attention: PointerAttention = PointerAttention()  # whose weights are the copies
        coverage: float | None = Field(None, ge=0)
        """Weight of the coverage loss; absent: no coverage."""

    config: Config

    def __init__(self, config: Config, source: Input, target: Tokens) -> None:
        super().__init__(config, source, target)
        if source != target:
            raise UserError(
                "a pointer_generator copies ids of the source into the target: both need one "
                "vocabulary; set task.joint = true"
            )
        hidden, size = self.decoder.output_size, self.encoder.output_size
        self.vocab_size = target.vocab_size
        covers = config.coverage is not None
        self.cross_attention = CoveredAttention(config.attention, hidden, size, covers)
        joined = hidden + self.cross_attention.output_size
        self.join = nn.Linear(joined, hidden)
        self.switch = nn.Linear(joined, 1)

    def encode(self, inputs: Tensor, source_mask: Bool[Tensor, "B S"] | None = None) -> Memory:
        return replace(super().encode(self.known(inputs), source_mask), ids=inputs)

    def decode(
        self, ids: TargetIds, memory: Memory | None = None, state: DecoderState | None = None
    ) -> Float[Tensor, "B T D"]:
        """Return o_t, from which a word of the vocabulary is predicted."""
        assert memory is not None
        return self.point(ids, memory, state).vectors

    def point(
        self, ids: Int[Tensor, "N T"], memory: Memory, state: DecoderState | None = None
    ) -> Pointed:
        """Return the decoder's vectors with their copy distributions and p_gen."""
        state = DecoderState() if state is None else state
        hidden = super().decode(self.known(ids), memory, state)
        context, weights, coverage = self.cross_attention.point(hidden, memory, state)
        both = torch.cat((hidden, context), dim=-1)
        return Pointed(self.join(both), self.switch(both).squeeze(-1), weights, coverage)

    def known(self, ids: Tensor) -> Tensor:
        """Return the ids with ``<unk>`` for those outside the vocabulary."""
        return torch.where(ids < self.vocab_size, ids, UNK)

    def predict(
        self, ids: TargetIds, memory: Memory | None = None, state: DecoderState | None = None
    ) -> Float[Tensor, "N T W"]:
        """Return log P(w) of every word of the vocabulary and of the sources' others, W ≥ |V|."""
        assert memory is not None
        pointed = self.point(ids, memory, state)
        copied = self._source(memory, len(ids))[:, None].expand_as(pointed.weights)
        width = max(self.vocab_size, int(copied.max()) + 1)
        generated = single(self.logits(pointed.vectors)).softmax(dim=-1)
        p_gen = torch.sigmoid(single(pointed.switch))[..., None]
        p = F.pad(p_gen * generated, (0, width - self.vocab_size))
        return p.scatter_add(2, copied, (1 - p_gen) * single(pointed.weights)).log()

    def score(
        self, ids: Int[Tensor, "N T"], memory: Memory, target: Int[Tensor, "N T"]
    ) -> tuple[Float[Tensor, "N T"], Float[Tensor, "N T"], Float[Tensor, "N T"]]:
        """Return log P of each target, the mean log P_vocab of all words, and the coverage cost.

        Log P is the logaddexp of its two parts, which preserves the gradient of a part near zero.
        """
        pointed = self.point(ids, memory)
        vocabulary = single(self.logits(pointed.vectors)).log_softmax(dim=-1)
        same = self._source(memory, len(ids))[:, None] == target[..., None]  # (N, T, S)
        copied = (single(pointed.weights) * same).sum(dim=-1)
        switch = single(pointed.switch)
        by_copy = F.logsigmoid(-switch) + copied.clamp_min(torch.finfo(copied.dtype).tiny).log()
        own = vocabulary.gather(-1, self.known(target)[..., None]).squeeze(-1)
        parts = torch.stack(
            (
                (F.logsigmoid(switch) + own).masked_fill(target >= self.vocab_size, -torch.inf),
                by_copy.masked_fill(~same.any(dim=-1), -torch.inf),
            )
        )
        return parts.logsumexp(dim=0), vocabulary.mean(dim=-1), pointed.coverage

    def output_rows(self, tokens: Int[Tensor, "W"]) -> nn.Module:
        raise UserError(
            "decode.shortlist: a pointer_generator copies words that are not in a shortlist; "
            "set decode.shortlist = false"
        )

    def _source(self, memory: Memory, rows: int) -> Int[Tensor, "N S"]:
        """Return the ids of the source of each row."""
        assert memory.ids is not None
        return memory.ids.repeat_interleave(rows // len(memory.ids), dim=0)
