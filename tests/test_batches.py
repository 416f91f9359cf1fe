"""Batches: what they hold and cost, padding, and epochs of several corpora."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from foveate.data.batches import BatchPlan, Indices, Mixture, pad, sorted_batches
from foveate.data.tokenizer import PAD

Lengths = NDArray[np.int32]
shapes = st.tuples(st.integers(0, 60), st.integers(1, 3))
lengths_of_pairs = hnp.arrays(np.int32, shapes, elements=st.integers(0, 40))


def like_captions(examples: int) -> Lengths:
    """Lengths of captions and their translations in subwords: about 15 and 16, long to the right.

    Source log-normal, target 9 % longer and within two tokens or so of that.
    """
    random = np.random.default_rng(0)
    source = np.clip(np.rint(np.exp(random.normal(2.65, 0.3, examples))), 5, 50)
    target = np.clip(np.rint(source * 1.09 + random.normal(0, 2.3, examples)), 4, 60)
    return np.stack([source, target], axis=1).astype(np.int32)


def padding(batches: list[Indices], lengths: Lengths) -> float:
    padded = sum(len(batch) * int(lengths[batch].max(axis=0).sum()) for batch in batches)
    return 1 - int(lengths.sum()) / padded


def obeys(batches: list[Indices], lengths: Lengths, budget: int, max_rows: int | None) -> None:
    together = np.concatenate([np.empty(0, dtype=np.int64), *batches])
    assert sorted(together.tolist()) == list(range(len(lengths)))
    for batch in batches:
        cost = len(batch) * int(lengths[batch].max())
        assert len(batch) >= 1 and (cost <= budget or len(batch) == 1)
        assert max_rows is None or len(batch) <= max_rows


@given(lengths_of_pairs, st.integers(1, 200), st.none() | st.integers(1, 5), st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_every_example_once_and_within_the_budget(lengths, budget, max_rows, epoch) -> None:
    obeys(BatchPlan(lengths, budget, 1).epoch(epoch), lengths, budget, None)
    obeys(sorted_batches(lengths, budget, max_rows), lengths, budget, max_rows)


def test_the_plan_is_a_function_of_seed_and_epoch() -> None:
    def epoch(seed: int, *others: int) -> list[list[int]]:
        plan = BatchPlan(lengths, 2048, seed)
        return [[batch.tolist() for batch in plan.epoch(n)] for n in (*others, 1)][-1]

    lengths = like_captions(3000)
    assert epoch(7) == epoch(7, 1, 5) != epoch(8)


def test_epochs_differ_in_order_and_in_company() -> None:
    plan = BatchPlan(like_captions(29_000), 4096, seed=1)
    item, two = plan.epoch(0), plan.epoch(1)
    label = np.empty(29_000, dtype=np.int64)
    for number, batch in enumerate(two):
        label[batch] = number
    pairs = sum(len(batch) * (len(batch) - 1) for batch in item)
    again = sum((counts * (counts - 1)).sum() for counts in (np.bincount(label[b]) for b in item))
    assert again / pairs < 0.6
    widths = [int(plan.lengths[batch].max()) for batch in item]
    assert abs(np.corrcoef(widths, np.arange(len(widths)))[0, 1]) < 0.3


def test_little_is_padding() -> None:
    lengths = like_captions(29_000)
    for epoch in range(3):
        assert padding(BatchPlan(lengths, 4096, seed=1).epoch(epoch), lengths) < 0.05
    assert sum(map(len, BatchPlan(like_captions(1_000_000), 4096, seed=1).epoch(0))) == 1_000_000
    dealt = np.array_split(np.random.default_rng(0).permutation(29_000), 120)
    assert padding(dealt, lengths) > 0.4  # without buckets


def test_an_example_longer_than_the_budget_stands_alone_and_inference_begins_with_it() -> None:
    lengths = np.array([[3, 3], [50, 2], [3, 3], [2, 90]], dtype=np.int32)
    batches = sorted(sorted(batch.tolist()) for batch in BatchPlan(lengths, 10, seed=0).epoch(0))
    assert batches == [[0, 2], [1], [3]]
    longest_first = sorted_batches(np.array([4, 9, 1, 9, 5], dtype=np.int32), 18)
    assert [batch.tolist() for batch in longest_first] == [[1, 3], [4, 0, 2]]


@pytest.mark.parametrize(
    ("lengths", "budget", "message"),
    [
        (np.ones((3, 2), dtype=np.int32), 0, "batch_tokens must be at least 1, not 0"),
        (np.ones((2, 2, 2), dtype=np.int32), 8, r"must have the shape \(N,\) or \(N, sides\)"),
        (-np.ones((3, 2), dtype=np.int32), 8, "lengths must not be negative, but one is -1"),
    ],
)
def test_what_cannot_be_planned_is_named(lengths: Lengths, budget: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BatchPlan(lengths, budget, seed=1)


ids = st.lists(st.integers(4, 9), max_size=7)


@given(st.lists(ids, max_size=6))
def test_what_went_in_comes_out(sequences: list[list[int]]) -> None:
    padded = pad(sequences, value=0)
    assert padded.shape == (len(sequences), max(map(len, sequences), default=0))
    assert [row[row > 0].tolist() for row in padded] == sequences
    assert pad([[5, 6], [], [8]]).tolist() == [[5, 6], [PAD, PAD], [8, PAD]]  # on the right
    assert (pad([np.array(s, dtype=np.int32) for s in sequences], 0) == padded).all()


LENGTHS = np.random.default_rng(0).integers(1, 20, (60, 2))
CORPORA = np.repeat([0, 1], [50, 10])


def mixture(*weights: float) -> Mixture:
    return Mixture(LENGTHS, 64, 7, CORPORA, weights)


def examples(plan: Mixture, number: int) -> list[int]:
    return np.concatenate(plan.epoch(number)).tolist()


@pytest.mark.parametrize(("weights", "first"), [((1, 1), 30), ((50, 10), 50), ((1, 5), 10)])
def test_each_corpus_has_its_share_in_each_epoch(weights: tuple[int, int], first: int) -> None:
    for number in range(3):
        result = Counter(CORPORA[examples(mixture(*weights), number)].tolist())
        assert result == {0: first, 1: 60 - first}


def test_no_example_comes_again_before_all_others_have_come() -> None:
    plan, other = mixture(1, 1), mixture(1, 1)
    epochs = [examples(plan, number) for number in range(5)]
    assert examples(other, 3) == epochs[3] and examples(other, 1) == epochs[1] != epochs[2]
    for corpus, size in ((0, 50), (1, 10)):
        times = Counter(i for epoch in epochs for i in epoch if CORPORA[i] == corpus)
        assert max(times.values()) - min(times.values()) <= 1 and len(times) == size
