"""6. Sinusoidal positions.

Attention does not know the order of its input, so a vector for its position,

    PE(t, 2i) = sin(t / 10000^(2i/D)),   PE(t, 2i + 1) = cos(t / 10000^(2i/D)),

is added to each embedding (Vaswani et al., 2017, §3.5). Sines are in the even columns, cosines in
the odd ones. `at` holds the positions, which may start anywhere.

Fill the gap, then run `foveate check docs/exercises/06_sinusoidal.py`.
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
