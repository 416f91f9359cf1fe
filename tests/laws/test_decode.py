"""Laws of search: toy models given by tables, brute force, and every real family; of beginnings
and rules: every search writes as it was told, and scores the whole output.
"""

import copy
import math
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from foveate.config import ConfigError
from foveate.decode.beam import Beam, DiverseBeam
from foveate.decode.constraints import DecodingBatch, MinLength, NoRepeat, OutputRule
from foveate.decode.engine import Hypothesis
from foveate.decode.sample import Sample
from foveate.decode.search import Greedy, Search, token_log_probabilities
from foveate.measure.laws.searches import END, A, B, C, Prefix, Table, log_p, random_table
from foveate.models.encoder_decoder import DecoderSteps, EncoderDecoder
from laws.conftest import KEYS, MODELS, build, defaults, each, ids
from laws.tables import alike, everything, limit, search
from tolerances import MODEL, near

Output = tuple[float, Prefix, bool]  # log p, ids, whether it ended


def score(output: Output, alpha: float) -> float:
    """log p of an output, its length with its end penalised."""
    return output[0] / ((5 + len(output[1]) + output[2]) / 6) ** alpha


def hypotheses(outputs: Iterable[Output], alpha: float) -> list[Hypothesis]:
    """The outputs, best first."""
    found = [Hypothesis(list(o[1]), o[0], score(o, alpha), o[2]) for o in outputs]
    return sorted(found, key=lambda hypothesis: -hypothesis.score)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    prefixes=st.lists(st.lists(st.sampled_from([A, B, C]), max_size=2), min_size=1, max_size=3),
    alpha=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    longest=st.integers(1, 3),
)
def test_a_beam_as_wide_as_the_space_is_brute_force(seed, prefixes, alpha, longest) -> None:
    """Of the outputs that begin as they must: beams keep only such, so all of them are found."""
    config = Beam.Config(beam_size=60, length_penalty=alpha, **limit(longest))
    tables = [random_table(seed + n) for n in range(len(prefixes))]
    results = search(config, tables, prefixes=prefixes)
    for table, prefix, result in zip(tables, prefixes, results, strict=True):
        outputs = everything(table, len(prefix) + longest)
        begun = [output for output in outputs if list(output[1][: len(prefix)]) == prefix]
        alike(result, hypotheses(begun, alpha))


@torch.no_grad()
def forced(model: EncoderDecoder, source: Tensor, outputs: Sequence[Sequence[int]]) -> list[float]:
    """Σ log p of each output of one source; the last id may be the end."""
    whole = pad_sequence([torch.tensor(ids) for ids in outputs], batch_first=True)
    read = torch.nn.functional.pad(whole[:, :-1], (1, 0), value=2)
    result = token_log_probabilities(model(source.expand(len(outputs), -1), read), whole)
    return [float(row[: len(ids)].sum()) for row, ids in zip(result, outputs, strict=True)]


@settings(max_examples=30)
@given(
    seeds=st.lists(st.integers(0, 10**6), min_size=1, max_size=5, unique=True),
    width=st.integers(1, 6),
    data=st.data(),
)
def test_no_source_notices_its_neighbours(seeds, width, data) -> None:
    """Sources leave the batch at different steps; none loses a hypothesis by it."""
    tables = [random_table(seed) for seed in seeds]
    lengths = data.draw(st.lists(st.integers(0, 6), min_size=len(seeds), max_size=len(seeds)))
    for config in (
        Greedy.Config(**limit(2, 1.0)),
        Beam.Config(beam_size=width, **limit(2, 1.0)),
        DiverseBeam.Config(beam_size=2 * width, groups=2, **limit(2, 1.0)),
        Sample.Config(num_samples=width, **limit(2, 1.0)),
    ):
        together = search(config, tables, lengths)
        for table, length, result in zip(tables, lengths, together, strict=True):
            (alone,) = search(config, [table], [length], [tables.index(table)])
            alike(result, alone)


def plain_groups(
    table: Table, groups: int, size: int, diversity: float, longest: int
) -> list[list[Output]]:
    """Beam search as the books tell it, group after group (Vijayakumar et al., 2016): lists, no
    batch, every extension looked at.
    """
    live: list[list[tuple[float, Prefix]]] = [[(0.0, ())] for _ in range(groups)]
    result: list[list[Output]] = [[] for _ in range(groups)]
    for length in range(1, longest + 1):
        used: list[int] = []
        for g in range(groups):
            extended = [
                (p + math.log(q) - diversity * used.count(token), p + math.log(q), (*y, token))
                for p, y in live[g]
                for token, q in enumerate(table(y))
            ]
            extended.sort(key=lambda item: -item[0])
            result[g] += [(p, y[:-1], True) for _, p, y in extended[:size] if y[-1] == END]
            live[g] = [(p, y) for _, p, y in extended if y[-1] != END][:size]
            used += [y[-1] for _, y in live[g]]
            if length == longest:
                result[g] += [(p, y, False) for p, y in live[g]]
            if len(result[g]) >= size:
                live[g] = []
    return result


@settings(max_examples=100)
@given(
    seed=st.integers(0, 10**6),
    groups=st.integers(1, 4),
    size=st.integers(1, 4),
    diversity=st.sampled_from([0.0, 0.3, 2.0]),
    longest=st.integers(1, 5),
    alpha=st.sampled_from([0.0, 0.6, 1.0]),
)
def test_batched_beams_are_plain_ones(seed, groups, size, diversity, longest, alpha) -> None:
    """Of one group, which is a beam, and of several."""
    fields: Any = {"beam_size": groups * size, "length_penalty": alpha, **limit(longest)}
    configs = [DiverseBeam.Config(groups=groups, diversity=diversity, **fields)]
    configs += [Beam.Config(**fields)] if groups == 1 else []
    tables = [random_table(seed + n, vocabulary=8, ending=2.0) for n in range(2)]
    results = zip(*(search(config, tables) for config in configs), strict=True)
    for table, outputs in zip(tables, results, strict=True):
        found = plain_groups(table, groups, size, diversity, longest)
        best = {(*h.ids, h.ended): h for group in found for h in hypotheses(group, alpha)[:size]}
        for result in outputs:
            alike(result, sorted(best.values(), key=lambda h: -h.score))


def test_beams_make_whole_groups() -> None:
    with pytest.raises(ConfigError, match="beam_size = 4 does not divide into 3 groups"):
        Search.Config.parse({"kind": "diverse_beam", "beam_size": 4, "groups": 3})
    config = DiverseBeam.Config(beam_size=6, groups=3)
    assert config.giving(7).beam_size == 9
    assert config.giving(2) == config


@each("search")
def test_each_source_has_its_own_limit(config: Search.Config) -> None:
    def endless(prefix: Prefix) -> Sequence[float]:
        return 1e-7, 1.0 - 2e-7, 1e-7, 0.0

    def brief(prefix: Prefix) -> Sequence[float]:
        return 0.0, 0.0, 0.0, 1.0

    limited = type(config)(max_ratio=1.5, max_extra=2)
    result = search(limited, [endless, brief, endless, endless], [0, 9, 3, 1])
    assert [len(h[0].ids) for h in result] == [2, 0, 6, 3]
    assert [h[0].ended for h in result] == [False, True, False, False]
    assert all(set(h[0].ids) == {B} for h in result if h[0].ids)
    assert result[1][0].log_probability == near(0.0)


@each("search")
def test_no_sources_no_outputs(config: Search.Config) -> None:
    assert search(config, []) == []


SEARCHES = defaults("search") | {
    "beam of 1": Beam.Config(beam_size=1),
    "wide beam": Beam.Config(beam_size=12),
    "pairs of beams": DiverseBeam.Config(beam_size=6, groups=3),
}
SOURCE, LENGTHS = ids(2, 5), (5, 3)  # KEYS


@torch.no_grad()
def found_by(
    config: Search.Config, model: EncoderDecoder, source: Tensor, keys: Tensor, rows: Sequence[int]
) -> list[list[Hypothesis]]:
    short: Search = config.model_copy(update=limit(2, 0.6)).build()
    steps = DecoderSteps(model, model.encode(source, keys))
    return short(DecodingBatch(rows, steps, keys.sum(dim=1).tolist()), 2, END)


def searched_rightly(model: EncoderDecoder, searches: dict[str, Search.Config]) -> None:
    """Beam of one is greedy, scores are forced scores, and neighbours and padding do not matter."""
    model = copy.deepcopy(model).double()  # in which outputs hardly ever score the same
    outputs = {
        name: found_by(config, model, SOURCE, KEYS, [0, 1]) for name, config in searches.items()
    }
    for item, other in zip(outputs["greedy"], outputs["beam of 1"], strict=True):
        assert [(h.ids, h.ended) for h in item] == [(h.ids, h.ended) for h in other]
    for row, length in enumerate(LENGTHS):
        source = SOURCE[row : row + 1, :length]
        for name, result in outputs.items():
            every = KEYS[row : row + 1, :length]
            alike(found_by(SEARCHES[name], model, source, every, [row])[0], result[row])
        best = [hypothesis for result in outputs.values() for hypothesis in result[row]]
        expected = forced(model, source, [h.ids + [END] * h.ended for h in best])
        for hypothesis, log_probability in zip(best, expected, strict=True):
            assert hypothesis.log_probability == near(log_probability, terms=MODEL)


def test_every_family_is_searched_rightly(family: EncoderDecoder) -> None:
    names = "greedy", "beam of 1", "pairs of beams"  # the others ask the same of a model
    searched_rightly(family, {name: SEARCHES[name] for name in names})


@pytest.mark.parametrize("name", ["transformer", "recurrent", "mamba", "ssru", "location"])
def test_every_search_is_right(name: str) -> None:
    searched_rightly(build(MODELS[name]), SEARCHES)


BEGINNINGS = st.lists(st.sampled_from([A, B, C]), max_size=6)
BEGUN = defaults("search") | {"two groups": DiverseBeam.Config(beam_size=4, groups=2)}


def whole(hypothesis: Hypothesis) -> tuple[int, ...]:
    return (*hypothesis.ids, *[END] * hypothesis.ended)


@pytest.mark.parametrize("config", BEGUN.values(), ids=BEGUN)
@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), prefixes=st.lists(BEGINNINGS, min_size=1, max_size=4))
def test_outputs_begin_as_asked_and_score_as_a_whole(config, seed, prefixes) -> None:
    tables = [random_table(seed + n) for n in range(len(prefixes))]
    short = config.model_copy(update=limit(3))
    results = search(short, tables, prefixes=prefixes)
    for table, prefix, result in zip(tables, prefixes, results, strict=True):
        assert result
        for item in result:
            assert item.ids[: len(prefix)] == prefix
            assert len(whole(item)) <= len(prefix) + 3, "there is room behind a beginning"
            assert item.log_probability == near(log_p(table, whole(item)), terms=MODEL)


@each("search")
@settings(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_empty_beginnings_change_nothing(config: Search.Config, seed: int) -> None:
    tables = [random_table(seed), random_table(seed + 1)]
    short = config.model_copy(update=limit(4))
    assert search(short, tables, prefixes=[[], []]) == search(short, tables)


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), prefixes=st.lists(BEGINNINGS, min_size=2, max_size=2))
def test_a_beam_of_one_is_greedy_behind_a_beginning(seed: int, prefixes: list[list[int]]) -> None:
    tables = [random_table(seed), random_table(seed + 1)]
    greedy = search(Greedy.Config(**limit(6)), tables, prefixes=prefixes)
    beam = Beam.Config(beam_size=1, length_penalty=0.0, **limit(6))
    item = search(beam, tables, prefixes=prefixes)
    for left, right in zip(greedy, item, strict=True):
        alike(left, right)


@each("search")
def test_beginnings_go_by_the_numbers_of_the_sources(config: Search.Config) -> None:
    """A source leaves early, others stand in another order: each keeps its own beginning."""
    prefixes = [[B, B, B, B], [], [A], [C, A]]
    tables = [random_table(n, ending=5.0) for n in range(4)]
    short = config.model_copy(update=limit(5))
    together = search(short, tables, prefixes=prefixes)
    order = [2, 0, 3]
    mixed = search(short, [tables[n] for n in order], [1, 1, 1], order, prefixes)
    for n, result in zip(order, mixed, strict=True):
        alike(result, together[n])
    for n, table in enumerate(tables):
        (alone,) = search(short, [table], [1], [n], prefixes)
        alike(alone, together[n])


@each("search")
def test_rules_wait_for_the_beginning(config: Search.Config) -> None:
    rules = NoRepeat.Config(size=1), MinLength.Config(length=4)
    ruled = config.like(config, rules=rules, max_ratio=0.0, max_extra=6)
    (result,) = search(ruled, [random_table(3)], prefixes=[[A, A]])
    for item in result:
        assert item.ids[:2] == [A, A] and item.ids.count(A) == 2
        assert len(item.ids) == len({*item.ids}) + 1


def test_draws_behind_a_beginning_are_draws_of_the_rest() -> None:
    """p(y | prefix): the rest is drawn as if the beginning had been drawn by chance."""
    table = random_table(5)
    config = Sample.Config(num_samples=4000, **limit(1))
    (result,) = search(config, [table], prefixes=[[A]])
    first = [item.ids[1] if len(item.ids) > 1 else END for item in result]
    counts = torch.bincount(torch.tensor(first), minlength=4) / len(first)
    torch.testing.assert_close(counts, torch.tensor(table((A,))), atol=0.03, rtol=0)


def ruled(config: Search.Config, *rules: OutputRule.Config) -> list[list[Hypothesis]]:
    tables = [random_table(seed, vocabulary=8) for seed in range(3)]
    return search(config.like(config, rules=rules, **limit(30)), tables)


def grams(hypothesis: Hypothesis, n: int) -> list[tuple[int, ...]]:
    written = hypothesis.ids
    return [tuple(written[i : i + n]) for i in range(len(written) - n + 1)]


@each("search")
def test_no_gram_stands_twice(config: Search.Config) -> None:
    for n in (1, 2, 3):
        for outputs in ruled(config, NoRepeat.Config(size=n), MinLength.Config(length=7)):
            assert outputs and all(len(h.ids) >= 7 for h in outputs)
            assert all(len(set(grams(h, n))) == len(grams(h, n)) for h in outputs)


@each("search")
def test_outputs_are_long_enough_and_other_rules_change_nothing(config: Search.Config) -> None:
    long = ruled(config, MinLength.Config(length=9))
    assert all(outputs and all(len(h.ids) >= 9 for h in outputs) for outputs in long)
    assert any(len(set(grams(h, 2))) < len(grams(h, 2)) for outputs in long for h in outputs)
    plain = ruled(config)
    assert any(len(h.ids) < 9 for outputs in plain for h in outputs), "a rule has work to do"
    assert ruled(config, NoRepeat.Config(size=99)) == plain


def pairs(rule: OutputRule.Config, written: torch.Tensor) -> list[tuple[int, int]]:
    rows, tokens = rule.build().forbidden(written, END)
    return sorted(set(zip(rows.tolist(), tokens.tolist(), strict=True)))


def test_repeats_by_hand() -> None:
    written = torch.tensor([[4, 5, 4, 5], [4, 4, 4, 6]])
    assert pairs(NoRepeat.Config(size=2), written) == [(0, 4)]
    assert pairs(NoRepeat.Config(size=1), written) == [(0, 4), (0, 5), (1, 4), (1, 6)]
    assert pairs(NoRepeat.Config(size=3), written[:, :2]) == []
    assert pairs(MinLength.Config(length=5), written) == [(0, END), (1, END)]
    assert pairs(MinLength.Config(length=4), written) == []


def test_where_nothing_is_allowed_the_output_ends() -> None:
    rules = NoRepeat.Config(size=1), MinLength.Config(length=20)
    ((best,),) = search(Greedy.Config(rules=rules, **limit(50)), [random_table(1)])
    assert best.ended and sorted(best.ids) == [A, B, C]
