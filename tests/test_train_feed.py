"""The feed: each batch once and in order, from any place, and errors that come through."""

from __future__ import annotations

import threading
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.data.batches import BatchPlan
from foveate.train.checkpoint import TrainError
from foveate.train.trainer import Feed, Indices, fingerprint, mix, portions
from train_toy import ToyCopy


class Numbers:
    """Epoch e has e % 3 + 2 batches, each of one number that says which it is."""

    def epoch(self, number: int, /, rank: int = 0, world: int = 1) -> list[Indices]:
        return [np.array([100 * number + i]) for i in range(number % 3 + 2)]


class Nothing:
    def epoch(self, number: int, /, rank: int = 0, world: int = 1) -> list[Indices]:
        return []


@given(accumulate=st.integers(1, 7), epochs=st.integers(1, 6), skip=st.integers(0, 20))
def test_from_any_place_the_rest_is_the_same(accumulate: int, epochs: int, skip: int) -> None:
    whole = list(portions(Numbers(), accumulate, (0, 0), epochs))
    flat = [int(b[0]) for portion in whole for b in portion.indices]
    assert flat == [int(b[0]) for e in range(epochs) for b in Numbers().epoch(e)]
    assert all(len(portion.indices) == accumulate for portion in whole[:-1])
    assert all(n // 100 == e for p in whole for (n,), e in zip(p.indices, p.epochs, strict=True))
    skip = min(skip, len(whole) - 1)
    rest = list(portions(Numbers(), accumulate, whole[skip].after, epochs))
    assert [str(portion) for portion in rest] == [str(portion) for portion in whole[skip + 1 :]]


def test_without_a_limit_epochs_go_on() -> None:
    assert len(list(islice(portions(Numbers(), 2, (0, 0), None), 100))) == 100


def test_a_plan_without_batches_is_an_error() -> None:
    with pytest.raises(TrainError, match="epoch 0 has no batches"):
        next(portions(Nothing(), 1, (0, 0), None))


def test_noise_is_a_function_of_seed_epoch_and_index() -> None:
    feed = Feed(ToyCopy(ToyCopy.Config()), portions(Numbers_of(5), 2, (0, 0), 2), seed=3)
    _, batches = feed.next()
    again = ToyCopy(ToyCopy.Config()).batch("train", [5], noise=mix(3, "noise", 0))
    assert batches[0].tokens.tolist() == again.tokens.tolist()
    assert feed.next() is None
    feed.close()


class Numbers_of:
    """Every epoch is one batch of one example."""

    def __init__(self, index: int) -> None:
        self.index = index

    def epoch(self, number: int, /, rank: int = 0, world: int = 1) -> list[Indices]:
        return [np.array([self.index])]


def test_errors_come_through_and_the_thread_ends() -> None:
    def fail(what: str, number: int) -> None:
        if number == 3:
            raise ZeroDivisionError("third")

    plan = BatchPlan(ToyCopy(ToyCopy.Config()).lengths("train"), 40, 1)
    feed = Feed(ToyCopy(ToyCopy.Config(), fail), portions(plan, 1, (0, 0), None), seed=1)
    assert feed.next() is not None and feed.next() is not None
    with pytest.raises(ZeroDivisionError, match="third"):
        feed.next()
    feed.close()
    endless = Feed(ToyCopy(ToyCopy.Config()), portions(plan, 1, (0, 0), None), seed=1)
    endless.close()  # while its queue is full
    assert not [t for t in threading.enumerate() if t.name == "foveate-feed"]


def test_the_fingerprint_tells_plans_apart() -> None:
    lengths = ToyCopy(ToyCopy.Config()).lengths("train")
    prints = {
        fingerprint(BatchPlan(lengths, *pair)) for pair in [(40, 1), (40, 2), (48, 1), (80, 1)]
    }
    assert len(prints) == 4
    assert fingerprint(BatchPlan(lengths, 40, 1)) in prints


def test_mixed_seeds_fit_a_generator() -> None:
    seeds = {mix(1, "step", n) for n in range(1000)}
    assert len(seeds) == 1000 and all(0 <= seed < 2**63 for seed in seeds)
