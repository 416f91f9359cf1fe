"""6. Sinusoidal positions.

Attention does not know the order of its input; so each embedding gets a vector of its position,

    PE(t, 2i) = sin(t / 10000^(2i/D)),   PE(t, 2i + 1) = cos(t / 10000^(2i/D)),

added to it (Vaswani et al., 2017, §3.5). Sines stand in the even columns, cosines in the odd ones.
`at` are the positions: reading may begin anywhere.

Fill the gap; the answer is `foveate check docs/exercises/06_sinusoidal.py`.
"""

import torch

from foveate.nn.positions import Position


class MySinusoidal(Position):
    reimplements = "sinusoidal"

    class Config(Position.Config, kind="my_sinusoidal"):
        pass

    def embed(self, x, at):
        # x (B, T, D), at (T,) integers -> x with its positions (B, T, D); D is even
        raise NotImplementedError
