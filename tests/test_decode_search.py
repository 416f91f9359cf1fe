"""Searches: sampling, ensembles, what is chosen, and what is watched."""

import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from foveate.config import ConfigError
from foveate.decode.beam import Beam, DiverseBeam, another
from foveate.decode.constraints import Constraints, DecodingBatch, NoRepeat, Steps
from foveate.decode.sample import Sample, min_p, penalize_repetition, top_k, top_p
from foveate.decode.search import Followed, Greedy, Search
from foveate.decode.watch import STATES, Watch
from foveate.measure.laws.searches import A, B, Prefix, Table, Tables, log_p, random_table
from foveate.run import Run
from foveate.tasks.engine import EnsembleSteps, log_mean_p
from foveate.tasks.metrics import MinimumBayesRisk
from laws.conftest import each
from laws.tables import END, START, alike, limit
from tolerances import MODEL, ROW, close, near, rounding

ODDS = torch.tensor([[0.5, 0.25, 0.15, 0.1]])
SCORES = ODDS.log()
NOTHING = torch.empty(1, 0, dtype=torch.long)


def left(filtered: Tensor) -> list[int]:
    return filtered[0].isfinite().nonzero().flatten().tolist()


def fixed(*places: int) -> DecodingBatch:
    """Of a model that says the same whatever it has read."""
    tables = [lambda prefix: ODDS[0].tolist()] * len(places)
    return DecodingBatch(places, Tables(tables), [0] * len(places))


def two(steps: Steps) -> DecodingBatch:
    return DecodingBatch(range(2), steps, [1, 1])


def draw(count: int, rows: list[int] | None = None, **fields: object) -> list[list[int]]:
    search = Sample.Config.parse(limit(6) | fields).build()
    result = search(fixed(*(rows or range(count))), START, END)
    return [hypotheses[0].ids for hypotheses in result]


def test_filters_by_hand() -> None:
    tied = torch.tensor([[1.0, 2.0, 1.0, 0.0]])
    kept = [left(top_k(scores, k)) for scores, k in ((SCORES, 2), (SCORES, 9), (tied, 2))]
    assert kept == [[0, 1], [0, 1, 2, 3], [0, 1, 2]]
    assert [left(min_p(SCORES, p)) for p in (0.4, 0.19)] == [[0, 1], [0, 1, 2, 3]]
    scores, written = torch.tensor([[2.0, -2.0, 1.0]]), torch.tensor([[0, 1, 0]])
    assert penalize_repetition(scores, written, 2.0).tolist() == [[1.0, -4.0, 1.0]]
    cold = Sample.Config(temperature=0.5).build().filtered(SCORES, NOTHING).softmax(dim=1)
    close(cold, ODDS.square() / ODDS.square().sum())


@pytest.mark.parametrize(("p", "count"), [(0.4, 1), (0.51, 2), (0.76, 3), (1.0, 4)])
def test_top_p_keeps_the_fewest_that_reach_p(p: float, count: int) -> None:
    assert left(top_p(SCORES, p)) == [*range(count)]
    assert left(top_p(SCORES.flip(1), p)) == [*range(4 - count, 4)]


@given(st.integers(0, 2**31), st.floats(0.01, 1.0), st.integers(1, 9))
def test_every_chain_leaves_something_and_the_best(seed: int, p: float, k: int) -> None:
    torch.manual_seed(seed)
    scores = 5 * torch.randn(3, 9)
    best = scores.argmax(dim=1)
    search = Sample.Config(top_k=k, top_p=p, min_p=p, temperature=p).build()
    scores = search.filtered(scores, torch.empty(3, 0, dtype=torch.long))
    assert torch.equal(scores.argmax(dim=1), best)
    assert bool((scores.softmax(dim=1).sum(dim=1) - 1).abs().max() < rounding())


def test_tokens_come_as_often_as_they_are_probable_and_again_by_the_same_seed() -> None:
    first = [ids[0] if ids else END for ids in draw(4000, max_extra=1)]
    counts = torch.bincount(torch.tensor(first), minlength=4) / 4000
    torch.testing.assert_close(counts, ODDS[0], atol=0.03, rtol=0)
    assert draw(20, seed=1) == draw(20, seed=1) != draw(20, seed=2)
    assert draw(5, top_k=1) == [[0] * 6] * 5  # greedy


def test_the_log_probability_is_the_models_own() -> None:
    search = Sample.Config(temperature=0.3, **limit(3)).build()
    (result,) = search(fixed(0), START, END)[0]
    ids = [*result.ids, END] if result.ended else result.ids
    assert result.log_probability == near(float(SCORES[0, ids].sum()))


def test_several_draws_of_a_source_are_draws_of_their_own() -> None:
    """The first is the one draw there was; the others are as good, and neighbours do not matter."""
    search = Sample.Config(num_samples=5, **limit(6)).build()
    together = search(fixed(0, 1, 2), START, END)
    for row, (result, first) in enumerate(zip(together, draw(3), strict=True)):
        assert len(result) == 5 and first in [h.ids for h in result]
        assert [h.score for h in result] == sorted((h.score for h in result), reverse=True)
        assert search(fixed(row), START, END) == [result] and draw(1, [row]) == [first]
    many = Sample.Config(num_samples=4000, **limit(1)).build()
    (result,) = many(fixed(0), START, END)
    drawn = torch.tensor([h.ids[0] if h.ids else END for h in result])
    torch.testing.assert_close(torch.bincount(drawn) / 4000, ODDS[0], atol=0.03, rtol=0)
    risk = MinimumBayesRisk.Config(candidates=many.config, **limit(1)).build()
    assert risk.posterior(result) == [1 / 4000] * 4000


# ---- A search in place of another: what is kept, what is new, what is refused
RULES = (NoRepeat.Config(size=2),)


def with_beam(own: Search.Config, *choices: Any) -> Search.Config:
    return Run.search(SimpleNamespace(config=SimpleNamespace(decode=own)), *choices).config


def test_a_beam_size_makes_a_beam_that_keeps_limits_and_rules() -> None:
    greedy = Greedy.Config(max_extra=7, rules=RULES)
    assert with_beam(greedy, 3, None) == Beam.Config(beam_size=3, max_extra=7, rules=RULES)
    own = Beam.Config(beam_size=4, length_penalty=0.1)
    assert with_beam(own, None, None) == own
    assert with_beam(own, None, 1.0) == Beam.Config(beam_size=4, length_penalty=1.0)
    assert with_beam(DiverseBeam.Config(), 10, None) == DiverseBeam.Config(beam_size=10)
    with pytest.raises(ConfigError, match="does not divide into 5 groups"):
        with_beam(DiverseBeam.Config(), 6, None)
    with pytest.raises(ConfigError, match="search sample has no length_penalty; give a beam_size"):
        with_beam(Sample.Config(), None, 0.5)


def test_another_kind_keeps_what_both_know() -> None:
    both = {"max_ratio": 1.5, "rules": RULES}
    own = Beam.Config(beam_size=10, length_penalty=0.2, **both)
    expected = DiverseBeam.Config(beam_size=10, length_penalty=0.2, diversity=1.0, **both)
    assert another(own, "diverse_beam", {"diversity": 1.0}) == expected
    assert another(own, "sample", {}) == Sample.Config(**both)
    assert another(own, None, {"max_extra": 3}) == own.model_copy(update={"max_extra": 3})


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (Greedy.Config(max_extra=4), Beam.Config(beam_size=3, max_extra=4)),
        (Beam.Config(beam_size=2), Beam.Config(beam_size=3)),
        (Beam.Config(beam_size=8), Beam.Config(beam_size=8)),
        (Sample.Config(top_k=4), Sample.Config(top_k=4, num_samples=3)),
    ],
)
def test_every_kind_gives_as_many_outputs_as_are_asked_for(config, expected) -> None:
    assert config.giving(3) == expected  # type: ignore[attr-defined]
    assert config.giving(1) == config  # type: ignore[attr-defined]


# ---- Several models as one: the mean of p, by hand and through every search
def mean_of(tables: Sequence[Table]) -> Table:
    def table(prefix: Prefix) -> Sequence[float]:
        each = [item(prefix) for item in tables]
        return [sum(column) / len(each) for column in zip(*each, strict=True)]

    return table


def test_the_mean_is_of_probabilities() -> None:
    """By hand: 1/2 (0.8, 0.2) + 1/2 (0.4, 0.6) = (0.6, 0.4), wherever the logits stand."""
    logits = [torch.tensor([[0.8, 0.2]]).log() + 3, torch.tensor([[0.4, 0.6]]).log() - 70]
    close(log_mean_p(logits).exp(), torch.tensor([[0.6, 0.4]]))
    far = torch.tensor([[0.0, -200.0]])
    assert float(log_mean_p([far, far])[0, 1]) == near(-200.0, terms=ROW)


@each("search")
@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 3))
def test_searching_an_ensemble_is_searching_the_mean(config, seed, count) -> None:
    """Two sources, which leave the batch at different steps, in every member."""
    members = [[random_table(seed + 2 * m + s, ending=2.0) for s in range(2)] for m in range(count)]
    search = config.model_copy(update=limit(4)).build()
    together = search(two(EnsembleSteps([Tables(m) for m in members])), START, END)
    sources = [mean_of(tables) for tables in zip(*members, strict=True)]
    for result, expected in zip(together, search(two(Tables(sources)), START, END), strict=True):
        alike(result, expected)


# ---- Watching a search: the same output, and every beginning with its parent, its p and its fate
SEARCHES: list[Search.Config] = [
    Greedy.Config(**limit(6)),
    Sample.Config(num_samples=3, **limit(6)),
    Beam.Config(beam_size=1, **limit(6)),
    Beam.Config(beam_size=3, length_penalty=0.8, **limit(6)),
    Beam.Config(beam_size=9, length_penalty=0.0, **limit(3)),
    DiverseBeam.Config(beam_size=4, groups=2, **limit(6)),
]


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), begun=st.lists(st.sampled_from([A, B]), max_size=2))
@pytest.mark.parametrize("config", SEARCHES, ids=lambda c: f"{c.kind}-{c.build().width}")
def test_what_is_watched_is_what_is_found(config, seed, begun) -> None:
    table, watch = random_table(seed), Watch(top_k=3)
    search, given = config.build(), (START, END, Constraints([begun]))
    (plain,) = search(DecodingBatch([0], Tables([table]), [0]), *given)
    followed = Followed(search.positions(DecodingBatch([0], Tables([table]), [0]), *given))
    for position in followed:
        watch.read(position)
    (result,) = followed.outputs
    assert result == plain
    for item in result:
        path = watch.find(item.ids, END)
        assert path[-1].log_p == near(item.log_probability)
        assert path[-1].score == near(item.score, terms=ROW)
        assert sum(p.token_log_p for p in path) == near(item.log_probability)
    for number, beginnings in enumerate(watch.positions):
        assert sum(b.state == "live" for b in beginnings) <= search.width
        for beginning in beginnings:
            path = watch.path(beginning)
            tokens = tuple(p.token for p in path)
            assert len(path) == number + 1
            assert beginning.log_p == near(log_p(table, tokens), terms=MODEL)
            assert all(p.state == "live" for p in path[:-1]), "only what is live goes on"
    if not begun:
        best, p = watch.instead(watch.positions[0][0]), table(())
        assert best.tokens == sorted(range(4), key=lambda v: -p[v])[:3]
        assert best.log_p[0] == near(math.log(max(p)))
        assert best.entropy == near(-sum(v * math.log(v) for v in p))


def test_a_search_goes_no_further_than_its_positions_are_read() -> None:
    tables = Tables([lambda prefix: [0.5, 0.3, 0.2, 0.0]])
    search: Search = Beam.Config(beam_size=2, **limit(50)).build()
    positions = search.positions(DecodingBatch([0], tables, [0]), START, END)
    assert len([position for position, _ in zip(positions, range(2), strict=False)]) == 2
    assert len(tables.written[0]) == 2, "no fourth position was asked for"


def test_the_worked_step_of_the_spine_is_what_a_beam_does() -> None:
    page = (Path(__file__).parent.parent / "docs" / "spine.md").read_text("utf-8")
    rows = re.findall(r"^\| (\w \S) \| (\S+) × (\S+) = (\S+) \| −(\S+) \| (\w+)", page, re.M)
    first = {A: 0.6, B: 0.4}
    after = {A: (0.05, 0.4, 0.1, 0.45), B: (0.25, 0.15, 0.5, 0.1)}

    def table(prefix: Prefix) -> Sequence[float]:
        return after[prefix[-1]] if prefix else (0.6, 0.4, 0.0, 0.0)

    search: Search = Beam.Config(beam_size=2, length_penalty=0.6, **limit(9)).build()
    batch = DecodingBatch([0], Tables([table]), [0])
    _, position = itertools.islice(search.positions(batch, START, END), 2)
    parts = (position.parent, position.token, position.log_p, position.state)
    found = list(zip(*(part[0].tolist() for part in parts), strict=True))
    assert len(rows) == len(found) == 4
    for row, (parent, token, total, state) in zip(rows, found, strict=True):
        names, before, own, both, nats, said = row
        assert names == f"{'AB'[parent]} {'ABC⏎'[token]}" and said == STATES[state]
        assert (float(before), float(own)) == (first[parent], after[parent][token])
        assert math.exp(total) == near(float(both), terms=MODEL)
        assert f"{-total:.3f}" == nats
    assert f"{position.score[0, 0]:.3f}" == "-1.194"


def test_positions_of_several_sources_name_them() -> None:
    tables = [random_table(seed) for seed in (1, 2, 3)]
    for config in SEARCHES:
        search: Search = config.build()
        batch = DecodingBatch([7, 8, 9], Tables(tables), [0] * 3)
        positions = list(search.positions(batch, START, END))
        assert positions[0].sources == [7, 8, 9]
        for item, after in itertools.pairwise(positions):
            assert set(after.sources) <= set(item.sources)
            assert len(item.onward) == len(after.following.logits)
            assert item.token.shape == item.state.shape == item.parent.shape == item.score.shape
    with pytest.raises(ValueError, match="one source"):
        Watch().read(positions[0])
