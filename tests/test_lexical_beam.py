"""Phrases that outputs must hold, and must not: proved on a model that writes at random."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from foveate.config import ConfigError
from foveate.decode.beam import Beam, LexicalBeam
from foveate.decode.constraints import (
    START,
    Constraints,
    Phrase,
    RequiredPhrases,
    Spelling,
    WordPieces,
)
from foveate.decode.search import Hypothesis
from foveate.documents.memory import holds
from foveate.run import Run
from small_runs import made
from tolerances import MODEL, near

START_ID, END, SIZE = 2, 3, 12


class Random:
    """A model whose next token depends on the last one alone; ids from 4 on are its words."""

    device, enters = torch.device("cpu"), False

    def __init__(self, seed: int) -> None:
        self.table = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(seed)) * 3
        self.table[:, :3] = -torch.inf

    def step(self, ids: Tensor) -> Tensor:
        return self.table[ids].clone()

    def reorder(self, rows: Tensor) -> None: ...

    def select(self, sources: Tensor) -> None: ...


def searched(
    seed: int,
    demands: Sequence[RequiredPhrases],
    beam_size: int = 5,
    kind: type[Beam] = LexicalBeam,
) -> list[list[Hypothesis]]:
    search = kind(Beam.Config.parse({"beam_size": beam_size, "max_ratio": 0.0, "max_extra": 25}))
    constraints = Constraints(required=demands)
    return search(Random(seed), [3] * len(demands), START_ID, END, None, constraints)


def demand(*phrases: Sequence[Sequence[int]], goes_on: Sequence[int] = ()) -> RequiredPhrases:
    made: list[Phrase] = [tuple(Spelling(tuple(ids)) for ids in phrase) for phrase in phrases]
    flags = [i in goes_on for i in range(SIZE)]
    return RequiredPhrases(tuple(made), WordPieces(flags, [False] * SIZE))


ids = st.integers(4, SIZE - 1)
phrases = st.lists(
    st.lists(st.lists(ids, min_size=1, max_size=3), min_size=1, max_size=2), max_size=3
)


def within(phrase: Sequence[int], output: Sequence[int]) -> bool:
    n = len(phrase)
    return any(list(output[i : i + n]) == list(phrase) for i in range(len(output) - n + 1))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 9999), st.lists(phrases, min_size=1, max_size=3))
def test_what_ends_holds_its_phrases(seed: int, reference: list[list[list[list[int]]]]) -> None:
    result = searched(seed, [demand(*item) for item in reference])
    for outputs, requested in zip(result, reference, strict=True):
        assert outputs
        for output in outputs:
            if output.ended:
                assert all(any(within(s, output.ids) for s in phrase) for phrase in requested)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 9999))
def test_without_phrases_it_is_a_beam(seed: int) -> None:
    free = searched(seed, [demand(), demand()], kind=Beam)
    assert searched(seed, [demand(), demand()]) == free
    beside = searched(seed, [demand(), demand([[7, 8]])])
    assert beside[0] == free[0]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 9999), ids, ids)
def test_the_score_is_the_models(seed: int, first: int, second: int) -> None:
    best = searched(seed, [demand([[first, second]])])[0][0]
    log_p = Random(seed).table.log_softmax(dim=1)
    path = [START_ID, *best.ids, *([END] if best.ended else [])]
    total = sum(float(log_p[a, b]) for a, b in itertools.pairwise(path))
    assert best.log_probability == near(total, terms=MODEL)


def test_a_word_that_goes_on_is_not_the_phrase() -> None:
    item = demand([[5]], goes_on=[6])
    state = item.after(item.after(START, 4), 5)
    assert item.done(state)
    assert not item.done(item.after(state, 6))
    assert item.done(item.after(state, 7))
    assert item.progress(state) == 1


def test_a_bare_spelling_stands_behind_no_word() -> None:
    bare: Phrase = (Spelling((5,), bare=True),)
    item = RequiredPhrases((bare,), WordPieces([False] * SIZE, [i == 4 for i in range(SIZE)]))
    assert item.next_tokens(START) == {5}
    assert item.next_tokens(item.after(START, 4)) == set()
    assert not item.done(item.after(item.after(START, 4), 5))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return made(tmp_path_factory.mktemp("runs"), ["transformer"], steps=60)["transformer"]


def test_terms_of_a_trained_run(run: Run) -> None:
    lines = ["the dog runs", "", "a cat sleeps"]
    expected: list[list[list[str]]] = [[["mange", "dort"]], [], [["fille"], ["chante"]]]
    result = [str(a) for a in run.translate(lines, required=expected)]
    assert holds(result[0], ("mange", "dort"))
    assert result[1] == ""
    assert holds(result[2], ("fille",)) and holds(result[2], ("chante",))


def test_a_term_that_no_output_can_hold_is_left_out(run: Run) -> None:
    free = str(run.translate(["the dog runs"])[0])
    assert str(run.translate(["the dog runs"], required=[[["zzz"]]])[0]) == free


def test_banned_phrases(run: Run) -> None:
    free = [str(a) for a in run.translate(["the dog runs", "a cat sleeps"])]
    assert holds(free[0], ("chien",))
    banned = ["Chien", "un chat"]
    result = [str(a) for a in run.translate(["the dog runs", "a cat sleeps"], banned=banned)]
    assert not any(holds(text, ("chien", "un chat")) for text in result)


def test_only_a_beam_can_be_forced(run: Run) -> None:
    with pytest.raises(ConfigError, match=r"cannot force terms; use decode\.kind=beam"):
        run.decoding("greedy").translate(["a cat"], required=[[["chat"]]])
