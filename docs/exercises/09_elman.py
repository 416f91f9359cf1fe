"""9. The cell of a simple recurrent network.

The network remembers a state of H numbers. Each step computes a new state from the input and the
previous state:

    h_t = tanh(W x_t + b + U h_{t−1} + c)        (Elman, 1990)

`projected` is W x_t + b, computed for all steps at once; U is `self.weight_hh`, c `self.bias_hh`.
Hidden states are tuples, here of one tensor, h.

Fill the gap, then run `foveate check docs/exercises/09_elman.py`.
"""

import torch
from torch.nn.functional import linear

from foveate.nn.recurrent import Cell


class MyElman(Cell):
    reimplements = "rnn"

    class Config(Cell.Config, kind="my_elman"):
        pass

    def forward(self, projected, hidden):
        # projected (B, H), hidden (h,) with h (B, H) -> (h,); linear(x, U, c) is U x + c
        raise NotImplementedError
