"""Position encodings as heat maps: what each place is told, and what a pair of places is worth.

An encoding is drawn by the doors that it opens (`foveate.nn.position`), whatever its kind.
"""

from __future__ import annotations

import torch
from torch import Tensor

from foveate.look.sheets import Sheet, SheetsView
from foveate.nn.position import Position

HEADS_SHOWN = 4


def sheets(position: Position, length: int, hidden_size: int, num_heads: int) -> list[Sheet]:
    """The sheets of an encoding; empty where it tells no places apart.

    ``embed``: the vector of each place, (T, D), and the products of the vectors of two places,
    (T, S), divided by the largest. ``rotate``: the same of a vector of ones that is turned.
    ``bias``: what each head adds to the score of a pair, (T, S); some heads from first to last.
    """
    at = torch.arange(length)
    found: list[Sheet] = []
    with torch.no_grad():
        nothing = torch.zeros(1, length, hidden_size)
        told = position.embed(nothing, at)[0]
        if not torch.equal(told, told[:1].expand_as(told)):
            found += _vectors("added to place t", told)
        ones = torch.ones(1, 1, length, hidden_size // num_heads)
        turned = position.rotate(ones, at)[0, 0]
        if not torch.equal(turned, ones[0, 0]):
            found += _vectors("ones, turned at place t", turned)
        bias = position.bias(at, at)
    if bias is None:
        return found
    picked = torch.linspace(0, len(bias) - 1, min(len(bias), HEADS_SHOWN)).round().long()
    return found + [_pairs(f"head {head} adds to score", bias[head]) for head in picked.tolist()]


def positions(
    position: Position, length: int = 64, hidden_size: int = 64, num_heads: int = 4
) -> SheetsView:
    """The picture of an encoding over ``length`` places, of vectors of ``hidden_size`` numbers.

    Raises ``ValueError`` for one that opens no door, for it has nothing to show, or whose table is
    shorter than ``length``.
    """
    drawn = sheets(position, length, hidden_size, num_heads)
    if not drawn:
        raise ValueError(
            f'position = "{position.config.kind}" tells no two places apart: nothing to draw'
        )
    return SheetsView(drawn, f"Positions: {position.config.kind}")


def _vectors(title: str, vectors: Tensor) -> list[Sheet]:
    """The vectors themselves, (T, D), and their products, (T, S)."""
    products = vectors @ vectors.mT
    length, size = vectors.shape
    return [
        Sheet(title, vectors.numpy(), down="place t", across="dimension", aspect=size / length),
        _pairs("product of two places", products / products.abs().max()),
    ]


def _pairs(title: str, values: Tensor) -> Sheet:
    return Sheet(title, values.numpy(), down="place t", across="place s")
