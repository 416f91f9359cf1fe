"""Minimum Bayes risk: by hand, against sacreBLEU, and over draws and n-best lists."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu import sentence_chrf

from foveate.config import ConfigError
from foveate.decode.beam import Beam
from foveate.decode.constraints import MinLength
from foveate.decode.sample import Sample
from foveate.decode.search import Hypothesis, Search
from foveate.tasks.metrics import MinimumBayesRisk
from laws.tables import limit, random_table, search

TEXTS = ["the dog runs", "a dog runs", "the dog ran", "cats", ""]


def text(ids: list[int]) -> str:
    return TEXTS[ids[0]]


def outputs(*which: int) -> list[Hypothesis]:
    return [Hypothesis([i], -1.0 - n, -1.0 - n) for n, i in enumerate(which)]


def risk(**fields: object) -> MinimumBayesRisk:
    made: MinimumBayesRisk = MinimumBayesRisk.Config.parse(fields).build()
    return made


@given(st.lists(st.integers(0, 4), min_size=1, max_size=7))
def test_the_answer_is_the_argmax_of_the_mean_utility(which: list[int]) -> None:
    """Eikema & Aziz (2020) word for word: mean sentence chrF with all draws, repeats included."""
    mean = {
        y: sum(sentence_chrf(TEXTS[y], [TEXTS[other]]).score for other in which) / len(which)
        for y in which
    }
    decided = risk().decide(outputs(*which), text)
    assert [h.score for h in decided] == pytest.approx(sorted(mean.values(), reverse=True))
    for item in decided:
        assert item.score == pytest.approx(mean[item.ids[0]])
    assert len({text(h.ids) for h in decided}) == len(decided)


def test_the_most_probable_may_lose_to_the_most_alike() -> None:
    """By hand: "cats" was drawn most often, but two thirds of the draws are about a dog."""
    drawn = outputs(3, 3, 0, 1, 2)
    assert text(risk().decide(drawn, text)[0].ids) == "the dog runs"
    mode = risk(utility="exact_match").decide(drawn, text)
    assert text(mode[0].ids) == "cats" and mode[0].score == pytest.approx(40.0)


def test_errors_are_turned_round() -> None:
    """The fewest edits win: two of three outputs are one word away from "the dog runs"."""
    decided = risk(utility="ter").decide(outputs(1, 0, 2), text)
    assert text(decided[0].ids) == "the dog runs"
    assert decided[0].score == pytest.approx(-200 / 9)
    assert decided[-1].score < decided[0].score


def test_an_n_best_list_weighs_by_probability() -> None:
    """Kumar & Byrne (2004): p by hand 0.7, 0.2, 0.1 of outputs that share nothing."""
    made = risk(candidates={"kind": "beam"}, utility="exact_match")
    result = [Hypothesis([i], math.log(p) - 9, 0.0) for i, p in ((3, 0.2), (0, 0.1), (4, 0.7))]
    decided = made.decide(result, text)
    assert [h.ids[0] for h in decided] == [4, 3, 0]
    assert [h.score for h in decided] == pytest.approx([70, 20, 10])


def test_no_candidates_no_answer() -> None:
    assert risk().decide([], text) == []


@pytest.mark.parametrize("candidates", [Sample.Config(num_samples=9, top_k=2), Beam.Config()])
def test_candidates_are_what_their_search_finds(candidates: Search.Config) -> None:
    tables = [random_table(1), random_table(2)]
    made = MinimumBayesRisk.Config(candidates=candidates, **limit(4))
    alone = candidates.model_copy(update=limit(4))
    assert search(made, tables) == search(alone, tables)
    assert made.build().width == alone.build().width


def test_limits_and_rules_are_said_once() -> None:
    with pytest.raises(ConfigError, match="say max_extra of the search itself"):
        Search.Config.parse({"kind": "minimum_bayes_risk", "candidates": {"max_extra": 3}})
    with pytest.raises(ConfigError, match=r"rougeL.*given: 'chrof'"):
        risk(utility="chrof")
    rules = (MinLength.Config(length=3),)
    made = MinimumBayesRisk.Config(rules=rules, **limit(5))
    assert all(len(h.ids) >= 3 for h in search(made, [random_table(4)])[0])
    assert Search.Config.parse(made.tree()) == made


def test_more_hypotheses_need_more_candidates() -> None:
    config = MinimumBayesRisk.Config(candidates=Sample.Config(num_samples=4, seed=7))
    for count, expected in itertools.product((1, 4), (4,)):
        assert config.giving(count).build().width == expected
    assert config.giving(6).candidates == Sample.Config(num_samples=6, seed=7)
