"""A recurrent decoder that looks at places by their number: attention of a fixed length."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from foveate.models.decoder import Decoder
from foveate.models.encoder import Memory
from foveate.models.recurrent import RecurrentAttention
from foveate.nn.attention import Attention
from foveate.nn.dropout import Dropout
from foveate.nn.recurrent import Cell, GRUCell, Hidden
from foveate.nn.score import AffineLocation
from foveate.nn.state import State
from foveate.nn.stem import Stem, TokenStem
from foveate.spec import Tokens


class LocationDecoder(Decoder):
    """Attention over L_max numbered places, mixed into the cell's input by a ReLU.

    α_t = softmax(W_a [h_{t−1}; x_t] + b_a); c_t = Σ_i α_ti m_i; z_t = ReLU(W_c [x_t; c_t] + b_c);
    h_t = cell(z_t, h_{t−1}), h_0 = tanh(B m̄), m̄ the summary of the source; read-out tanh(R h_t).

    What is asked does not depend on what stands at a place (Luong et al., 2015, call such a score
    location-based), so row i of W_a is about place i of every source. The softmax is over the
    places that the source has. Raises ``ValueError`` for a source longer than L_max.
    """

    class Config(Decoder.Config, kind="location"):
        """``max_length`` L_max, the end of the sentence counted."""

        stem: Stem.Config = TokenStem.Config()
        cell: Cell.Config = GRUCell.Config()
        embedding_size: int = Field(256, gt=0)
        hidden_size: int = Field(256, gt=0)
        max_length: int = Field(64, gt=0)
        dropout: float = Field(0.1, ge=0, lt=1)

    config: Config
    needs_memory = True

    def __init__(self, config: Config, target: Tokens, memory_size: int | None) -> None:
        super().__init__(config, target, memory_size)
        if memory_size is None:
            raise ValueError(
                'decoder = "location" looks at a source, and a language model has none; '
                'take "recurrent"'
            )
        embedded, hidden = config.embedding_size, config.hidden_size
        self.stem = config.stem.build(target, embedded)
        self.dropout = Dropout(config.dropout)
        score = AffineLocation.Config(max_length=config.max_length)
        look = RecurrentAttention(query="previous", score=score, project=())
        self.cross_attention: Attention = look.build(hidden + embedded, memory_size)
        self.mix = nn.Linear(embedded + memory_size, hidden)
        self.cell: Cell = config.cell.build(hidden, hidden)
        self.bridge = nn.Linear(memory_size, self.cell.states * hidden)
        self.readout = nn.Linear(hidden, embedded)
        self.output_size = embedded

    def forward(
        self, ids: Int[Tensor, "B T"], memory: Memory | None, state: State | None = None
    ) -> Float[Tensor, "B T D"]:
        assert memory is not None
        state = State() if state is None else state
        embedded, mask = self.dropout(self.stem(ids)), memory.mask
        hidden = state.swap(self, lambda: self._start(len(ids), memory))
        tops = []
        for x in embedded.unbind(dim=1):
            query = torch.cat((hidden[0], x), dim=-1)
            context = self.cross_attention(query[:, None], memory.values, mask, state).squeeze(1)
            mixed = torch.relu(self.mix(torch.cat((x, context), dim=-1)))
            hidden = self.cell(self.cell.project(mixed), hidden)
            tops.append(hidden[0])
        state.put(self, hidden)
        state.position += ids.shape[1]
        return self.dropout(torch.tanh(self.readout(torch.stack(tops, dim=1))))

    def _start(self, rows: int, memory: Memory) -> Hidden:
        """tanh(B m̄) for each row; hypotheses of one source start alike."""
        first = torch.tanh(self.bridge(memory.summary()))
        first = first.repeat_interleave(rows // len(first), dim=0)
        return torch.split(first, self.config.hidden_size, dim=-1)
