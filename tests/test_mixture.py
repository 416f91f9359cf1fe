"""Epochs of several corpora: the shares, the turns, and that nothing else decides."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from foveate.data.batches import Mixture

LENGTHS = np.random.default_rng(0).integers(1, 20, (60, 2))
CORPORA = np.repeat([0, 1], [50, 10])


def mixture(*weights: float) -> Mixture:
    return Mixture(LENGTHS, 64, 7, CORPORA, weights)


def examples(plan: Mixture, number: int) -> list[int]:
    return np.concatenate(plan.epoch(number)).tolist()


@pytest.mark.parametrize(
    ("weights", "counts"), [((1, 1), (30, 30)), ((50, 10), (50, 10)), ((1, 5), (10, 50))]
)
def test_each_corpus_has_its_share_in_each_epoch(
    weights: tuple[float, float], counts: tuple[int, int]
) -> None:
    for number in range(3):
        found = Counter(CORPORA[examples(mixture(*weights), number)].tolist())
        assert (found[0], found[1]) == counts


def test_no_example_comes_again_before_all_others_have_come() -> None:
    plan = mixture(1, 1)
    seen = [i for number in range(5) for i in examples(plan, number)]
    for corpus, size in ((0, 50), (1, 10)):
        times = Counter(i for i in seen if CORPORA[i] == corpus)
        assert max(times.values()) - min(times.values()) <= 1 and len(times) == size


def test_an_epoch_is_a_function_of_the_seed_and_its_number() -> None:
    one, other = mixture(1, 2), mixture(1, 2)
    other.epoch(3)
    assert [b.tolist() for b in one.epoch(1)] == [b.tolist() for b in other.epoch(1)]
    assert examples(one, 1) != examples(one, 2)
    two = [b.tolist() for rank in (0, 1) for b in one.epoch(1, rank, 2) if len(b)]
    assert sorted(map(str, two)) == sorted(str(b.tolist()) for b in one.epoch(1))
