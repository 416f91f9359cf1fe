"""Watching a search: the same output, and every beginning with its parent, its p and its fate."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.decode.beam import Beam, DiverseBeam, Greedy
from foveate.decode.constraints import Constraints
from foveate.decode.sample import Sample
from foveate.decode.search import Search, Watch, map_yields, result_of
from foveate.laws.searches import follows_search
from foveate.laws.trial import SIZES, Sizes, Trial
from foveate.tasks.metrics import MinimumBayesRisk
from laws.tables import END, START, A, B, Tables, limit, log_p, random_table
from tolerances import MODEL, ROW, near

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
    search, given = config.build(), ([0], START, END, None, Constraints([begun]))
    (plain,) = search(Tables([table]), *given)
    (result,) = result_of(map_yields(search.positions(Tables([table]), *given), watch.read))
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
    def never(prefix: tuple[int, ...]) -> list[float]:
        return [0.5, 0.3, 0.2, 0.0]

    search: Search = Beam.Config(beam_size=2, **limit(50)).build()
    tables = Tables([never])
    positions = search.positions(tables, [0], START, END)
    assert len([position for position, _ in zip(positions, range(2), strict=False)]) == 2
    assert len(tables.written[0]) == 2, "no fourth position was asked for"


def test_positions_of_several_sources_name_them() -> None:
    tables = [random_table(seed) for seed in (1, 2, 3)]
    for config in SEARCHES:
        search: Search = config.build()
        positions = list(search.positions(Tables(tables), [0] * 3, START, END, [7, 8, 9]))
        assert positions[0].sources == [7, 8, 9]
        for item, after in itertools.pairwise(positions):
            assert set(after.sources) <= set(item.sources)
            assert len(item.onward) == len(after.following.logits)
            assert item.token.shape == item.state.shape == item.parent.shape == item.score.shape
    with pytest.raises(ValueError, match="one source"):
        Watch().read(positions[0])


@pytest.mark.parametrize("config", [*SEARCHES, MinimumBayesRisk.Config()], ids=lambda c: c.kind)
@pytest.mark.parametrize("sizes", SIZES[:12:2])
def test_a_shortlist_and_who_follows_change_nothing(config: Search.Config, sizes: Sizes) -> None:
    follows_search(Trial(config, sizes))
