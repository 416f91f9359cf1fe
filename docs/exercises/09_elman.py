"""9. The cell of a simple recurrent network.

A state of H numbers is what the network remembers. At each step it is computed anew from the input
and the state before:

    h_t = tanh(W x_t + b + U h_{t−1} + c)        (Elman, 1990)

`projected` is W x_t + b, computed for all steps at once; U is `self.weight_hh`, c `self.bias_hh`.
Hidden states are tuples: here of one tensor, h.

Fill the gap; the answer is `foveate check docs/exercises/09_elman.py`.
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
