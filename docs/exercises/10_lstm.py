"""10. The cell of an LSTM.

Gates decide what enters the cell c, what stays in it and what leaves it, so that a value may last:

    i, f, o = σ(…),  c̃ = tanh(…),  c_t = f ⊙ c_{t−1} + i ⊙ c̃,  h_t = o ⊙ tanh(c_t)

(Hochreiter & Schmidhuber, 1997; the forget gate f: Gers, Schmidhuber & Cummins, 2000). One product
gives the arguments of all four; its columns are those of i, f, c̃ and o, in this order.

Fill the gap; the answer is `foveate check docs/exercises/10_lstm.py`.
"""

import torch
from torch.nn.functional import linear

from foveate.nn.recurrent import Cell


class MyLSTM(Cell):
    reimplements = "lstm"

    class Config(Cell.Config, kind="my_lstm"):
        pass

    gates, states = 4, 2

    def forward(self, projected, hidden):
        # projected (B, 4H), hidden (h, c), each (B, H) -> (h, c)
        h, c = hidden
        total = projected + linear(h, self.weight_hh, self.bias_hh)
        i, f, candidate, o = total.chunk(4, dim=-1)  # before σ and tanh
        raise NotImplementedError
