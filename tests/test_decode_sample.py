"""Filters one by one, and sampling: right frequencies, reproducible, blind to its neighbours."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from foveate.decode.sample import Sample, min_p, penalize_repetition, top_k, top_p
from tolerances import close, near, rounding

ODDS = torch.tensor([[0.5, 0.25, 0.15, 0.1]])
SCORES = ODDS.log()
NOTHING = torch.empty(1, 0, dtype=torch.long)
END = 3


class Fixed:
    """Steps of a model that says the same whatever it has read: (V,) log-probabilities."""

    device, enters = torch.device("cpu"), False

    def __init__(self, scores: Tensor) -> None:
        self.scores = scores

    def step(self, ids: Tensor) -> Tensor:
        return self.scores.expand(len(ids), -1).clone()

    def reorder(self, rows: Tensor) -> None: ...

    def select(self, sources: Tensor) -> None: ...


def left(filtered: Tensor) -> list[int]:
    return filtered[0].isfinite().nonzero().flatten().tolist()


def draw(count: int, rows: list[int] | None = None, **fields: object) -> list[list[int]]:
    limits = {"max_ratio": 0.0, "max_extra": 6}
    search = Sample.Config.parse(limits | fields).build()
    result = search(Fixed(SCORES[0]), [0] * count, 0, END, rows)
    return [hypotheses[0].ids for hypotheses in result]


def test_top_k_keeps_k_and_ties() -> None:
    assert left(top_k(SCORES, 2)) == [0, 1]
    assert left(top_k(SCORES, 9)) == [0, 1, 2, 3]
    tied = torch.tensor([[1.0, 2.0, 1.0, 0.0]])
    assert left(top_k(tied, 2)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("p", "remaining"), [(0.4, [0]), (0.51, [0, 1]), (0.76, [0, 1, 2]), (1.0, [0, 1, 2, 3])]
)
def test_top_p_keeps_the_fewest_that_reach_p(p: float, remaining: list[int]) -> None:
    assert left(top_p(SCORES, p)) == remaining
    mirrored = top_p(SCORES.flip(1), p)
    assert left(mirrored) == sorted(3 - i for i in remaining)


def test_min_p_compares_with_the_best() -> None:
    assert left(min_p(SCORES, 0.4)) == [0, 1]
    assert left(min_p(SCORES, 0.19)) == [0, 1, 2, 3]


def test_repetition_makes_what_was_written_less_probable() -> None:
    scores = torch.tensor([[2.0, -2.0, 1.0]])
    result = penalize_repetition(scores, torch.tensor([[0, 1, 0]]), 2.0)
    assert result.tolist() == [[1.0, -4.0, 1.0]]


def test_temperature_scales() -> None:
    result = Sample.Config(temperature=0.5).build().filtered(SCORES, NOTHING).softmax(dim=1)
    close(result, ODDS.square() / ODDS.square().sum())


@given(st.integers(0, 2**31), st.floats(0.01, 1.0), st.integers(1, 9))
def test_every_chain_leaves_something_and_the_best(seed: int, p: float, k: int) -> None:
    torch.manual_seed(seed)
    scores = 5 * torch.randn(3, 9)
    best = scores.argmax(dim=1)
    search = Sample.Config(top_k=k, top_p=p, min_p=p, temperature=p).build()
    scores = search.filtered(scores, torch.empty(3, 0, dtype=torch.long))
    assert torch.equal(scores.argmax(dim=1), best)
    assert bool((scores.softmax(dim=1).sum(dim=1) - 1).abs().max() < rounding())


def test_tokens_come_as_often_as_they_are_probable() -> None:
    first = [ids[0] if ids else END for ids in draw(4000, max_extra=1)]
    counts = torch.bincount(torch.tensor(first), minlength=4) / 4000
    torch.testing.assert_close(counts, ODDS[0], atol=0.03, rtol=0)


def test_the_same_seed_draws_the_same_and_another_does_not() -> None:
    assert draw(20, seed=1) == draw(20, seed=1)
    assert draw(20, seed=1) != draw(20, seed=2)


def test_neighbours_do_not_matter() -> None:
    """A source's draws are those of its number, alone, permuted or among others."""
    together = draw(12)
    for row in range(12):
        assert draw(1, [row]) == [together[row]]
    mixed = [7, 2, 11]
    assert draw(3, mixed) == [together[row] for row in mixed]


def test_top_k_of_one_is_greedy() -> None:
    assert draw(5, top_k=1) == [[0] * 6] * 5


def test_the_log_probability_is_the_models_own() -> None:
    search = Sample.Config.parse({"max_ratio": 0.0, "max_extra": 3, "temperature": 0.3}).build()
    (result,) = search(Fixed(SCORES[0]), [0], 0, END)[0]
    ids = [*result.ids, END] if result.ended else result.ids
    assert result.log_probability == near(float(SCORES[0, ids].sum()))


def test_several_draws_of_a_source_are_draws_of_their_own() -> None:
    """The first is the one draw there was; the others are as good, and neighbours do not matter."""
    limits = {"max_ratio": 0.0, "max_extra": 6}
    search = Sample.Config.parse(limits | {"num_samples": 5}).build()
    together = search(Fixed(SCORES[0]), [0, 0, 0], 0, END)
    for row, (result, first) in enumerate(zip(together, draw(3), strict=True)):
        assert len(result) == 5
        assert first in [h.ids for h in result]
        assert [h.score for h in result] == sorted((h.score for h in result), reverse=True)
        assert search(Fixed(SCORES[0]), [0], 0, END, [row]) == [result]
    many = Sample.Config.parse({"max_ratio": 0.0, "max_extra": 1, "num_samples": 4000}).build()
    (result,) = many(Fixed(SCORES[0]), [0], 0, END)
    drawn = torch.tensor([h.ids[0] if h.ids else END for h in result])
    torch.testing.assert_close(torch.bincount(drawn) / 4000, ODDS[0], atol=0.03, rtol=0)
    assert many.posterior(result) == [1 / 4000] * 4000
