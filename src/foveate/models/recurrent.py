"""Recurrent encoder and decoder, with attention in Bahdanau's or Luong's order, or without."""

from __future__ import annotations

from typing import Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from foveate.config import BaseConfig, Config, FromConfig
from foveate.errors import UserError
from foveate.models.encoder_decoder import Decoder, Encoder, Memory
from foveate.nn.attention import Attention, Projection
from foveate.nn.context import DecoderState, Mask
from foveate.nn.embedding import Stem, TokenStem
from foveate.nn.linear import Dropout
from foveate.nn.recurrent import Cell, GRUCell, Hidden, RecurrentStack
from foveate.nn.scores import Additive, AffineLocation, Score
from foveate.nn.spec import Input, Tokens


class RecurrentConfig(Config):
    """The fields that encoder and decoders share."""

    stem: Stem.Config = TokenStem.Config()  # how tokens become vectors
    cell: Cell.Config = GRUCell.Config()  # the recurrent cell
    embedding_size: int = Field(256, gt=0)  # size of the token vectors
    hidden_size: int = Field(256, gt=0)  # size of the state


class RecurrentEncoder(Encoder):
    """Layers of a cell over the embeddings, in one direction or both (Schuster & Paliwal, 1997)."""

    class Config(RecurrentConfig, Encoder.Config, kind="recurrent"):
        """``hidden_size`` is that of each direction."""

        num_layers: int = Field(1, gt=0)  # layers of cells, one above the other
        bidirectional: bool = False  # whether it also reads from right to left
        dropout: float = Field(0.1, ge=0, lt=1)  # of embeddings and between layers

    config: Config

    def __init__(self, config: Config, source: Input) -> None:
        super().__init__(config, source)
        self.stem = config.stem.build(source, config.embedding_size)
        self.dropout = Dropout(config.dropout)
        self.stack = RecurrentStack(
            config.cell,
            config.embedding_size,
            config.hidden_size,
            config.num_layers,
            2 if config.bidirectional else 1,
            config.dropout,
        )
        self.output_size = self.stack.output_size
        self.final_states = (config.num_layers, cast(type[Cell], config.cell.owner).states)

    def forward(self, inputs: Tensor, source_mask: Bool[Tensor, "B S"] | None = None) -> Memory:
        values, final = self.stack(self.dropout(self.stem(inputs)), source_mask)
        return Memory(self.dropout(values), source_mask, final)


class RecurrentAttention(Attention.Config, family="recurrent_attention", kind="full"):
    """Cross-attention of a recurrent decoder; ``query`` is the decoder state that attends.

    ``"previous"`` is s_{t−1}, before the cell (Bahdanau et al., 2015); ``"current"`` is s_t, after
    it, and the read-out is fed into the next step (Luong et al., 2015).
    """

    query: Literal["previous", "current"] = "previous"
    """The decoder state that attends: before the step (Bahdanau) or after it (Luong)."""
    score: Score.Config = Additive.Config()  # how the query is compared with each source state
    project: tuple[Projection, ...] = ("query", "key")
    """Which of query, key, value and output are projected."""


def first_states(bridge: nn.Module, memory: Memory, rows: int, size: int) -> Hidden:
    """Return tanh(B m) for each row, m the summary of its source: equal for its hypotheses."""
    first = torch.tanh(bridge(memory.summary()))
    return torch.split(first.repeat_interleave(rows // len(first), dim=0), size, dim=-1)


class Bridge(FromConfig, nn.Module):
    """Passes the source to a recurrent decoder: its first states, and a vector read at each step.

    ``memory_size`` is D of the encoder, ``hidden_size`` H and ``states`` those of the decoder: over
    all layers, an LSTM's h and c counted as two.
    """

    class Config(BaseConfig, family="bridge"):
        """The kind of bridge."""

    context_size = 0  # size of the vector that each step reads besides its token

    def check(self, encoder: Encoder, layers: int, states: int) -> None:
        """Raise `UserError` if the encoder lacks the states that the bridge passes on."""

    def start(self, memory: Memory, state: DecoderState) -> Hidden:
        """Return the first states of all layers, (B, H) each, a row for each source."""
        raise NotImplementedError

    def read(
        self, embedded: Float[Tensor, "N T E"], memory: Memory, state: DecoderState
    ) -> Float[Tensor, "N T K"]:
        """Return what the decoder reads at each step, given the embeddings of its tokens."""
        return embedded


class StatesBridge(Bridge, kind="states"):
    """Every layer of the decoder begins with the last state of that layer of the encoder, an LSTM
    with h and c (Sutskever, Vinyals & Le, 2014).

    s_0^l = h_S^l, c_0^l = c_S^l;  where D ≠ H a linear map of each: P h_S^l + p. h_S and c_S of a
    bidirectional encoder are those of both directions, joined. Encoder and decoder must have as
    many layers, of cells with as many states.
    """

    def __init__(
        self, config: Bridge.Config, memory_size: int, hidden_size: int, states: int
    ) -> None:
        super().__init__(config, memory_size, hidden_size, states)
        same = memory_size == hidden_size
        self.maps = nn.ModuleList(
            nn.Identity() if same else nn.Linear(memory_size, hidden_size) for _ in range(states)
        )

    def check(self, encoder: Encoder, layers: int, states: int) -> None:
        if encoder.final_states != (layers, states):
            raise UserError(
                'decoder.bridge = "states" needs a recurrent encoder with a state for each: '
                f"num_layers = {layers} and cells of {states} states (an LSTM has 2, others 1); "
                'change encoder.num_layers or encoder.cell, or take bridge = "summary"'
            )

    def start(self, memory: Memory, state: DecoderState) -> Hidden:
        parts = [part for hidden in memory.final or () for part in hidden]
        return tuple(to_start(part) for to_start, part in zip(self.maps, parts, strict=True))


class SummaryBridge(Bridge, kind="summary"):
    """One vector c of the source is the first state and read at every step (Cho et al., 2014).

    c = tanh(V m), m the summary of the source, the mean of its output if it is not recurrent
    s_0 = tanh(B c);  s_t = cell([e_t; c], s_{t−1});  o_t = tanh(R [s_t; e_t; c])
    """

    def __init__(
        self, config: Bridge.Config, memory_size: int, hidden_size: int, states: int
    ) -> None:
        super().__init__(config, memory_size, hidden_size, states)
        self.context_size = hidden_size
        self.summary = nn.Linear(memory_size, hidden_size)
        self.first = nn.Linear(hidden_size, states * hidden_size)

    def start(self, memory: Memory, state: DecoderState) -> Hidden:
        first = torch.tanh(self.first(self.context(memory, state)))
        return torch.split(first, self.context_size, dim=-1)

    def read(
        self, embedded: Float[Tensor, "N T E"], memory: Memory, state: DecoderState
    ) -> Float[Tensor, "N T K"]:
        context, steps = self.context(memory, state)[:, None], embedded.shape[1]
        context = context.repeat_interleave(len(embedded) // len(context), dim=0)
        return torch.cat((embedded, context.expand(-1, steps, -1)), dim=-1)

    def context(self, memory: Memory, state: DecoderState) -> Float[Tensor, "B H"]:
        """Return c, computed once for each source."""
        return state.cached(self, lambda: (torch.tanh(self.summary(memory.summary())),))[0]


class RecurrentDecoder(Decoder):
    """Layers of a recurrent cell, with or without attention to the source at each step.

    s_0 = tanh(B m), m the summary of the source, or as a bridge says; 0 in a language model
    s_t = cell(e_t, s_{t−1})           without attention
    s_t = cell(e_t, C f_t, s_{t−1})    with attention: f_t is the context c_t, or o_{t−1}
    o_t = tanh(R [s_t; c_t; e_t]), or s_t itself
    """

    differs = (
        "the read-out is tanh(R […]) of state, context and token; Bahdanau et al. (2015) use a "
        "maxout layer, and Luong et al. (2015) leave out the token"
    )

    class Config(RecurrentConfig, Decoder.Config, kind="recurrent"):
        """Without ``attention`` the decoder knows the source by its ``bridge`` only.

        ``readout`` "mixed" is tanh(R […]) of the embedding's size, "state" is s_t, as in language
        models.
        """

        num_layers: int = Field(1, gt=0)  # layers of cells, one above the other
        dropout: float = Field(0.1, ge=0, lt=1)
        """Of embeddings, between layers and before the output."""
        attention: RecurrentAttention | None = None  # over the source; absent: none
        bridge: Bridge.Config | None = None
        """How it gets the source; absent: s_0 = tanh(B m), m the last h of the top layer."""
        readout: Literal["mixed", "state"] = "mixed"
        """The output layer sees state, context and token, or the state alone."""

    parallel = False
    config: Config
    constant_memory = True
    bridge: nn.Module

    def __init__(self, config: Config, target: Tokens, memory_size: int | None) -> None:
        super().__init__(config, target, memory_size)
        embedded, hidden = config.embedding_size, config.hidden_size
        self.stem = config.stem.build(target, embedded)
        self.dropout = Dropout(config.dropout)
        states = cast(type[Cell], config.cell.owner).states
        self.states = states  # tensors in the state of a layer
        token = embedded  # size of the first layer's input from a token
        if config.bridge is not None:
            if memory_size is None:
                raise UserError("decoder.bridge: a language model has no source")
            bridge: Bridge = config.bridge.build(memory_size, hidden, config.num_layers * states)
            self.bridge = bridge
            token += bridge.context_size
        sizes = [token] + [hidden] * (config.num_layers - 1)
        self.cells = nn.ModuleList(config.cell.build(size, hidden) for size in sizes)
        if memory_size is None:
            if config.attention is not None:
                raise UserError("decoder.attention: a language model has no memory to attend to")
        elif config.bridge is None:
            self.bridge = nn.Linear(memory_size, config.num_layers * states * hidden)
        self.output_size = embedded
        if config.readout == "state":
            if config.attention is not None:
                raise UserError(
                    'decoder.readout = "state" ignores the context of attention: use "mixed"'
                )
            self.output_size = hidden
            return
        context = fed = 0
        if config.attention is not None and memory_size is not None:
            attention: Attention = config.attention.build(hidden, memory_size)
            self.cross_attention = attention
            context = self.cross_attention.output_size
            fed = context if config.attention.query == "previous" else embedded
            first = cast(Cell, self.cells[0])
            self.feed = nn.Linear(fed, first.gates * hidden, bias=False)
            previous = config.attention.query == "previous"
            first.fed = "a_t, the context of h_{t−1}" if previous else "a_t, the read-out of t − 1"
        self.readout = nn.Linear(hidden + context + token, embedded)

    def check(self, encoder: Encoder) -> None:
        if isinstance(self.bridge, Bridge):
            self.bridge.check(encoder, self.config.num_layers, self.states)

    def forward(
        self, ids: Int[Tensor, "B T"], memory: Memory | None, state: DecoderState | None = None
    ) -> Float[Tensor, "B T D"]:
        state = DecoderState() if state is None else state
        embedded = self.stem(ids)
        if memory is not None and isinstance(self.bridge, Bridge):
            embedded = self.bridge.read(embedded, memory, state)
        embedded = self.dropout(embedded)
        attention = self.config.attention
        steps = getattr(self, "without_attention" if attention is None else attention.query)
        outputs: Tensor = steps(embedded, memory, state)
        state.position += ids.shape[1]
        return outputs

    def without_attention(
        self, embedded: Tensor, memory: Memory | None, state: DecoderState
    ) -> Tensor:
        """s_t = cell(e_t, s_{t−1}); o_t = tanh(R [s_t; e_t]), or s_t. One layer after another."""
        before = state.current(self, lambda: self._start(embedded, memory, state))
        x, after = embedded, Hidden()
        for number, cell in enumerate(self.cells):
            own = before[number * self.states : (number + 1) * self.states]
            x, last = cast(Cell, cell).run(self.dropout(x) if number else x, own)
            after += last
        state.replace(self, after)
        return self._read(x, embedded)

    def previous(self, embedded: Tensor, memory: Memory, state: DecoderState) -> Tensor:
        """c_t = A(s_{t−1}, m); s_t = cell(e_t, C c_t, s_{t−1}); o_t = tanh(R [s_t; c_t; e_t])."""
        hidden = state.current(self, lambda: self._start(embedded, memory, state))
        first, mask = cast(Cell, self.cells[0]), memory.mask
        projected = first.project(embedded)
        tops, contexts = [], []
        for entered in projected.unbind(dim=1):  # one backward for all steps, not one each
            context = self._attend(self._top(hidden), memory, mask, state)
            hidden = self._step(first.feed(entered, self.feed, context), hidden)
            tops.append(self._top(hidden))
            contexts.append(context)
        state.replace(self, hidden)
        return self._read(torch.stack(tops, dim=1), torch.stack(contexts, dim=1), embedded)

    def current(self, embedded: Tensor, memory: Memory, state: DecoderState) -> Tensor:
        """s_t = cell(e_t, C o_{t−1}, s_{t−1}); c_t = A(s_t, m); o_t = tanh(R [s_t; c_t; e_t])."""

        def start() -> Hidden:
            return (
                *self._start(embedded, memory, state),
                embedded.new_zeros(len(embedded), self.output_size),
            )

        *parts, fed = state.current(self, start)
        hidden: Hidden = tuple(parts)
        first, mask = cast(Cell, self.cells[0]), memory.mask
        projected = first.project(embedded)
        outputs = []
        for entered, word in zip(projected.unbind(dim=1), embedded.unbind(dim=1), strict=True):
            hidden = self._step(first.feed(entered, self.feed, fed), hidden)
            context = self._attend(self._top(hidden), memory, mask, state)
            fed = self._read(self._top(hidden), context, word)
            outputs.append(fed)
        state.replace(self, (*hidden, fed))
        return torch.stack(outputs, dim=1)

    def _start(self, embedded: Tensor, memory: Memory | None, state: DecoderState) -> Hidden:
        """Return the first states of all layers: the bridge's, tanh(B m), or zeros."""
        if memory is None:
            zeros = embedded.new_zeros(len(embedded), self.config.hidden_size)
            return (zeros,) * (self.config.num_layers * self.states)
        if isinstance(self.bridge, Bridge):
            parts = self.bridge.start(memory, state)
            return tuple(p.repeat_interleave(len(embedded) // len(p), dim=0) for p in parts)
        return first_states(self.bridge, memory, len(embedded), self.config.hidden_size)

    def _top(self, hidden: Hidden) -> Tensor:
        """Return the output of the last layer."""
        return hidden[-self.states]

    def _step(self, projected: Tensor, hidden: Hidden) -> Hidden:
        """Run one step of all layers; the input of the first layer is already projected."""
        states = self.states
        after: Hidden = ()
        for number, cell in enumerate(self.cells):
            if number:
                projected = cast(Cell, cell).project(self.dropout(after[-states]))
            after += cell(projected, hidden[number * states : (number + 1) * states])
        return after

    def _attend(self, query: Tensor, memory: Memory, mask: Mask, state: DecoderState) -> Tensor:
        return self.cross_attention(query[:, None], memory.values, mask, state).squeeze(1)

    def _read(self, *parts: Tensor) -> Tensor:
        if self.config.readout == "state":
            return self.dropout(parts[0])
        return self.dropout(torch.tanh(self.readout(torch.cat(parts, dim=-1))))


class LocationDecoder(Decoder):
    """Location-based attention over L_max positions, mixed into the cell's input by a ReLU.

        α_t = softmax(W_a [h_{t−1}; x_t] + b_a);  c_t = Σ_i α_ti m_i
        z_t = ReLU(W_c [x_t; c_t] + b_c);  h_t = cell(z_t, h_{t−1});  o_t = tanh(R h_t)
        h_0 = tanh(B m̄), m̄ the summary of the source

    The score does not depend on the source (Luong et al., 2015): row i of W_a belongs to position i
    of every source. Raises `UserError` for a source longer than L_max, unless ``softmax_over`` is
    "max_length".
    """

    differs = AffineLocation.differs

    class Config(RecurrentConfig, Decoder.Config, kind="location"):
        """``max_length`` L_max, the end of the sentence counted."""

        max_length: int = Field(64, gt=0)  # source positions that can be attended to
        softmax_over: Literal["length", "max_length"] = "length"
        """Positions that share the softmax: those of the source, or all (as printed)."""
        dropout: float = Field(0.1, ge=0, lt=1)  # of embeddings and outputs

    config: Config

    def __init__(self, config: Config, target: Tokens, memory_size: int | None) -> None:
        super().__init__(config, target, memory_size)
        if memory_size is None:
            raise UserError(
                'decoder = "location" attends to a source, which a language model lacks; '
                'use "recurrent"'
            )
        embedded, hidden = config.embedding_size, config.hidden_size
        self.stem = config.stem.build(target, embedded)
        self.dropout = Dropout(config.dropout)
        limit, over = config.max_length, config.softmax_over
        score = AffineLocation.Config(max_length=limit, softmax_over=over)
        attention = RecurrentAttention(query="previous", score=score, project=())
        self.cross_attention: Attention = attention.build(hidden + embedded, memory_size)
        self.mix = nn.Linear(embedded + memory_size, hidden)
        self.cell: Cell = config.cell.build(hidden, hidden)
        self.bridge = nn.Linear(memory_size, self.cell.states * hidden)
        self.readout = nn.Linear(hidden, embedded)
        self.output_size = embedded

    def forward(
        self, ids: Int[Tensor, "B T"], memory: Memory | None, state: DecoderState | None = None
    ) -> Float[Tensor, "B T D"]:
        assert memory is not None
        state = DecoderState() if state is None else state
        embedded, mask = self.dropout(self.stem(ids)), memory.mask
        size = self.config.hidden_size
        hidden = state.current(self, lambda: first_states(self.bridge, memory, len(ids), size))
        tops = []
        for x in embedded.unbind(dim=1):
            query = torch.cat((hidden[0], x), dim=-1)
            context = self.cross_attention(query[:, None], memory.values, mask, state).squeeze(1)
            mixed = torch.relu(self.mix(torch.cat((x, context), dim=-1)))
            hidden = self.cell(self.cell.project(mixed), hidden)
            tops.append(hidden[0])
        state.replace(self, hidden)
        state.position += ids.shape[1]
        return self.dropout(torch.tanh(self.readout(torch.stack(tops, dim=1))))
