"""Laws of beginnings: every search writes them first, and scores the whole output."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.decode.beam import Beam, DiverseBeam
from foveate.decode.constraints import Constraints, DecodingBatch, MinLength, NoRepeat
from foveate.decode.engine import Hypothesis
from foveate.decode.sample import Sample
from foveate.decode.search import Greedy, Search, token_log_probabilities
from foveate.models.encoder_decoder import DecoderSteps
from laws.conftest import MODELS, build, defaults, each, ids
from laws.tables import END, A, B, C, alike, everything, limit, log_p, random_table, search
from tolerances import MODEL, near

BEGINNINGS = st.lists(st.sampled_from([A, B, C]), max_size=6)
SEARCHES = defaults("search") | {"two groups": DiverseBeam.Config(beam_size=4, groups=2)}


def whole(hypothesis: Hypothesis) -> tuple[int, ...]:
    return (*hypothesis.ids, *[END] * hypothesis.ended)


@pytest.mark.parametrize("config", SEARCHES.values(), ids=SEARCHES)
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


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), prefix=st.lists(st.sampled_from([A, B, C]), max_size=2))
def test_a_wide_beam_is_brute_force_over_what_begins_so(seed: int, prefix: list[int]) -> None:
    """Beams keep only live beginnings, so all that end or are cut later are found."""
    table, longest = random_table(seed), len(prefix) + 2
    config = Beam.Config(beam_size=60, length_penalty=1.0, **limit(2))

    def score(output: tuple[float, tuple[int, ...], bool]) -> float:
        return output[0] / ((5 + len(output[1]) + output[2]) / 6)

    begun = [o for o in everything(table, longest) if list(o[1][: len(prefix)]) == prefix]
    expected = sorted(begun, key=score, reverse=True)
    (result,) = search(config, [table], prefixes=[prefix])
    alike(result, [Hypothesis(list(o[1]), o[0], score(o), o[2]) for o in expected])


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


@pytest.mark.parametrize("name", ["transformer", "recurrent", "mamba"])
@pytest.mark.parametrize("config", SEARCHES.values(), ids=SEARCHES)
@torch.no_grad()
def test_models_score_what_begins_so_as_if_forced(config: Search.Config, name: str) -> None:
    model = build(MODELS[name]).double()
    source, prefixes = ids(3, 5), [[7, 8, 9], [], [20]]
    short: Search = config.model_copy(update=limit(4)).build()
    steps = DecoderSteps(model, model.encode(source))
    result = short(DecodingBatch(range(3), steps, [5] * 3), 2, END, Constraints(prefixes))
    for row, outputs in enumerate(result):
        assert outputs
        for item in outputs[:4]:
            assert item.ids[: len(prefixes[row])] == prefixes[row]
            expected = forced(model, source[row : row + 1], whole(item))
            assert item.log_probability == near(expected, terms=MODEL)


def forced(model: torch.nn.Module, source: torch.Tensor, output: Sequence[int]) -> float:
    """Σ log p of the given ids, whose last may be the end."""
    read = torch.tensor([[2, *output[:-1]]])
    return float(token_log_probabilities(model(source, read), torch.tensor([list(output)])).sum())
