"""The simpler simple recurrent unit (Kim et al., 2019), which takes the place of self-attention in
decoders that are to be fast: its state is one vector, however long the text.

    f_t = σ(W_f x_t + b_f),   c_t = f_t ⊙ c_{t−1} + (1 − f_t) ⊙ W x_t,   o_t = max(0, c_t)
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from foveate.nn.state import State


class SSRU(nn.Module):
    """A recurrence without products of the state: both products of a sequence are made at once."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.forget = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size, bias=False)
        nn.init.xavier_uniform_(self.forget.weight)
        nn.init.xavier_uniform_(self.value.weight)
        nn.init.zeros_(self.forget.bias)

    def forward(
        self, x: Float[Tensor, "B T D"], state: State | None = None
    ) -> Float[Tensor, "B T D"]:
        forget = self.forget(x).sigmoid()
        change = (1 - forget) * self.value(x)
        state = State() if state is None else state
        (cell,) = state.swap(self, lambda: (torch.zeros_like(change[:, 0]),))
        cells = []
        for kept, new in zip(forget.unbind(1), change.unbind(1), strict=True):
            cell = torch.addcmul(new, kept, cell)
            cells.append(cell)
        state.put(self, (cell,))
        return torch.stack(cells, dim=1).relu()
