"""7. Rotary positions.

Instead of adding a vector, rotate queries and keys: each pair (x_i, x_{i + K/2}) by the angle t ·
10000^(−2i/K). Then qᵀk depends only on the distance between their positions:

    a' = a cos φ − b sin φ,   b' = b cos φ + a sin φ        (Su et al., 2021, §3.2)

where a is the first half of a vector and b the second.

Fill the gap, then run `foveate check docs/exercises/07_rotary.py`.
"""

import torch

from foveate.nn.positions import Position


class MyRotary(Position):
    reimplements = "rope"

    class Config(Position.Config, kind="my_rotary"):
        pass

    def rotate(self, x, at):
        # x (B, H, T, K), at (T,) -> the same shape, rotated
        half = x.shape[-1] // 2
        angles = at[:, None] * 10_000.0 ** (-torch.arange(half) / half)  # (T, K/2)
        a, b = x.chunk(2, dim=-1)
        raise NotImplementedError
