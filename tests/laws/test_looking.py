"""Every score and every position learns to attend along the diagonal to copy, or against it.

One attention and nothing else: all queries are the same vector, so that only places tell them
apart, and only attending to the right token can write it. Whole models are in test_learning.py.
"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from foveate.nn.attention import Attention
from foveate.nn.positions import NoPosition, Position
from foveate.nn.scores import Dot, Score
from laws.conftest import changed, defaults, weights_of

WORDS, LENGTH, HEAD_SIZE = 12, 5, 16
ABSOLUTE = {"sinusoidal", "concatenated", "learned"}  # the others say how far, not where
SCORES, POSITIONS = defaults("score"), defaults("position")
# ALiBi's steepest slope is 2^(−8/H): one head hardly has any. Others learn with one.
HEADS, HEAD_SIZES = {"alibi": 8}, {"alibi": 4}
STEPS = {"additive": 300}  # a sum inside a tanh tells places apart later than a product
CAN = [
    (score, position, position in ABSOLUTE)  # reverse where a place is known, else copy
    for score in SCORES
    for position in POSITIONS
    if position not in ("none", "t5_causal")  # which takes all later places for one
    and (score in ("scaled_dot", "additive") or position in ("sinusoidal", "rope"))
]


QUICK = {("scaled_dot", "sinusoidal"), ("additive", "sinusoidal"), ("cosine", "rope")}


class Looker(nn.Module):
    """p(y_t) = softmax(E A(q + PE(t), E x + PE))."""

    def __init__(self, score: Score.Config, position: Position.Config) -> None:
        super().__init__()
        kind = position.kind or ""
        heads = HEADS.get(kind, 1)
        size = heads * HEAD_SIZES.get(kind, HEAD_SIZE)
        self.words = nn.Embedding(WORDS, size)
        with torch.no_grad():
            self.words.weight.mul_(0.3)  # no louder than the places
        self.query = nn.Parameter(torch.randn(size))
        self.position = position.build(size, heads)
        self.attention: Attention = Attention.Config(score=score, num_heads=heads).build(size)

    def inputs(self, x: Tensor) -> tuple[Any, ...]:
        at = torch.arange(x.shape[1])
        query = self.position.embed(self.query.expand(*x.shape, -1), at)
        memory = self.position.embed(self.words(x), at)
        return query, memory, None, None, self.position

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(*self.inputs(x)) @ self.words.weight.T


def places_looked_at(
    score: Score.Config, position: Position.Config, backwards: bool, steps: int
) -> Tensor:
    """Where each query looks most, in fresh sequences after learning: (B, H, T)."""
    torch.manual_seed(0)
    if "max_length" in type(score).model_fields:
        score = changed(score, max_length=LENGTH)
    model = Looker(score, position)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        x = torch.randint(WORDS, (32, LENGTH))
        expected = x.flip(1) if backwards else x
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), expected.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.param_groups[0]["lr"] = 0.02 * min(1, (step + 1) / 10, 2 - 2 * step / steps)
        optimizer.step()
    fresh = torch.randint(WORDS, (48, LENGTH))
    return weights_of(model.attention, *model.inputs(fresh)).argmax(dim=-1)


def share(views: Tensor, backwards: bool) -> float:
    """How often the best head looks at the right place."""
    expected = torch.arange(LENGTH)
    right = views == (expected.flip(0) if backwards else expected)
    return float(right.float().mean(dim=(0, 2)).max())


@pytest.mark.parametrize(
    ("score", "position", "backwards"),
    [
        pytest.param(
            score,
            position,
            backwards,
            marks=() if (score, position) in QUICK else pytest.mark.scale,
            id=f"{score} {position} {'reverse' if backwards else 'copy'}",
        )
        for score, position, backwards in CAN
    ],
)
def test_what_is_learnt_is_the_diagonal(score: str, position: str, backwards: bool) -> None:
    steps = STEPS.get(score, 150)
    views = places_looked_at(SCORES[score], POSITIONS[position], backwards, steps)
    assert share(views, backwards) > 0.9


@pytest.mark.parametrize("backwards", [False, True], ids=["copy", "reverse"])
def test_without_position_there_is_nothing_to_learn(backwards: bool) -> None:
    views = places_looked_at(Dot.Config(), NoPosition.Config(), backwards, steps=60)
    assert share(views, backwards) < 0.5
