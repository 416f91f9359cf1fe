"""Diverse beams against a plain reading of the paper, and against a plain beam."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.config import ConfigError
from foveate.decode.beam import Beam, DiverseBeam
from foveate.decode.engine import Hypothesis
from foveate.decode.search import Search
from laws.tables import END, Prefix, Table, alike, limit, random_table, search


def plain_groups(
    table: Table, sizes: tuple[int, int], diversity: float, longest: int
) -> list[Hypothesis]:
    """Vijayakumar et al. (2016) with lists: group after group, each step every extension."""
    groups, size = sizes
    live: list[list[tuple[float, Prefix]]] = [[(0.0, ())] for _ in range(groups)]
    result: list[list[Hypothesis]] = [[] for _ in range(groups)]
    for length in range(1, longest + 1):
        used: list[int] = []
        for g in range(groups):
            extended = [
                (p + math.log(q) - diversity * used.count(token), p + math.log(q), (*y, token))
                for p, y in live[g]
                for token, q in enumerate(table(y))
            ]
            extended.sort(key=lambda item: -item[0])
            for _, p, y in extended[:size]:
                if y[-1] == END:
                    result[g].append(Hypothesis(list(y[:-1]), p, p, True))
            live[g] = [(p, y) for _, p, y in extended if y[-1] != END][:size]
            used += [y[-1] for _, y in live[g]]
            if length == longest:
                result[g] += [Hypothesis(list(y), p, p, False) for p, y in live[g]]
            if len(result[g]) >= size:
                live[g] = []
    best = [h for group in result for h in sorted(group, key=lambda h: -h.score)[:size]]
    distinct: dict[tuple[int, ...], Hypothesis] = {}
    for h in sorted(best, key=lambda h: -h.score):
        distinct.setdefault((*h.ids, h.ended), h)
    return list(distinct.values())


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    groups=st.integers(1, 4),
    size=st.integers(1, 3),
    diversity=st.sampled_from([0.0, 0.3, 2.0]),
    longest=st.integers(1, 5),
)
def test_the_batched_search_is_the_plain_one(seed, groups, size, diversity, longest) -> None:
    config = DiverseBeam.Config(
        beam_size=groups * size, groups=groups, diversity=diversity, length_penalty=0.0,
        **limit(longest),
    )  # fmt: skip
    tables = [random_table(seed + n, vocabulary=8, ending=2.0) for n in range(2)]
    for table, result in zip(tables, search(config, tables), strict=True):
        alike(result, plain_groups(table, (groups, size), diversity, longest))


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), width=st.integers(1, 6), alpha=st.sampled_from([0.0, 0.6]))
def test_one_group_is_a_beam(seed: int, width: int, alpha: float) -> None:
    tables = [random_table(seed), random_table(seed + 1, ending=3.0)]
    fields = {"beam_size": width, "length_penalty": alpha, **limit(6)}
    beam = search(Beam.Config(**fields), tables)
    assert search(DiverseBeam.Config(groups=1, **fields), tables) == beam


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_without_diversity_all_groups_find_what_one_beam_finds(seed: int) -> None:
    table = random_table(seed)
    groups = DiverseBeam.Config(beam_size=6, groups=3, diversity=0.0, **limit(5))
    (result,) = search(groups, [table])
    (beam,) = search(Beam.Config(beam_size=2, **limit(5)), [table])
    alike(result, beam)


def test_groups_part_where_a_beam_does_not() -> None:
    """The more diversity, the more first tokens among the five best."""
    tables = [random_table(seed, vocabulary=12) for seed in range(40)]

    def firsts(config: Search.Config) -> int:
        return sum(len({h.ids[0] for h in f if h.ids}) for f in search(config, tables))

    counts = [
        firsts(DiverseBeam.Config(diversity=diversity, **limit(6))) for diversity in (0.0, 0.5, 4.0)
    ]
    assert counts[0] < counts[1] < counts[2]
    assert firsts(Beam.Config(**limit(6))) < counts[2]


def test_beams_make_whole_groups() -> None:
    with pytest.raises(ConfigError, match="beam_size = 4 does not divide into 3 groups"):
        Search.Config.parse({"kind": "diverse_beam", "beam_size": 4, "groups": 3})
    config = DiverseBeam.Config(beam_size=6, groups=3)
    assert config.giving(7).beam_size == 9
    assert config.giving(2) == config
