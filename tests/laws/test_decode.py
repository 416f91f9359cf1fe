"""Laws of search: toy models given by tables, brute force, and every real family."""

import copy
import itertools
import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from foveate.decode.beam import Beam, DiverseBeam
from foveate.decode.constraints import DecodingBatch
from foveate.decode.engine import Hypothesis
from foveate.decode.sample import Sample
from foveate.decode.search import Greedy, Search, token_log_probabilities
from foveate.models.encoder_decoder import DecoderSteps, EncoderDecoder
from laws.conftest import KEYS as TWO
from laws.conftest import MODELS, build, defaults, each, ids, keeps_laws
from laws.tables import (
    END,
    A,
    B,
    C,
    Prefix,
    Table,
    alike,
    everything,
    limit,
    log_p,
    random_table,
    search,
)
from tolerances import MODEL, near

TOY = {  # p of A, B, C and the end
    (): (0.5, 0.2, 0.3, 0.0),
    (A,): (0.25, 0.4, 0.3, 0.05),
    (A, B): (0.3, 0.3, 0.4, 0.0),
    (A, B, C): (0.2, 0.1, 0.1, 0.6),
    (A, C): (0.2, 0.6, 0.2, 0.0),
    (A, C, B): (0.2, 0.1, 0.1, 0.6),
}


def toy(prefix: Prefix) -> Sequence[float]:
    return TOY.get(prefix, (0.3, 0.3, 0.3, 0.1))


def test_greedy_goes_astray() -> None:
    ((best,),) = search(Greedy.Config(), [toy])
    assert best.ids == [A, B, C]
    assert best.ended
    assert math.exp(best.log_probability) == near(0.048)


@pytest.mark.parametrize("width", range(2, 9))
def test_a_beam_finds_the_better_path(width: int) -> None:
    (result,) = search(Beam.Config(beam_size=width, length_penalty=0.0), [toy])
    assert result[0].ids == [A, C, B]
    assert math.exp(result[0].log_probability) == near(0.054)
    assert result[0].score == result[0].log_probability


@settings(max_examples=25)
@given(
    seeds=st.lists(st.integers(0, 10**6), min_size=1, max_size=3),
    alpha=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    longest=st.integers(1, 3),
)
def test_a_beam_as_wide_as_the_space_is_brute_force(seeds, alpha, longest) -> None:
    config = Beam.Config(beam_size=60, length_penalty=alpha, **limit(longest))
    tables = [random_table(seed) for seed in seeds]
    for table, result in zip(tables, search(config, tables), strict=True):

        def score(output: tuple[float, Prefix, bool]) -> float:
            return output[0] / ((5 + len(output[1]) + output[2]) / 6) ** alpha

        expected = sorted(everything(table, longest), key=score, reverse=True)
        assert len(result) == len(expected)
        alike(result, [Hypothesis(list(o[1]), o[0], score(o), o[2]) for o in expected])


@torch.no_grad()
def test_a_wide_beam_over_a_model_is_brute_force(model_pair: EncoderDecoder) -> None:
    source, length = ids(1, 4, vocabulary=5), 3
    memory = model_pair.encode(source)
    prefixes = [p for n in range(length) for p in itertools.product((0, 1, 2, 4), repeat=n)]
    outputs = [[*prefix, END] for prefix in prefixes]
    outputs += map(list, itertools.product((0, 1, 2, 4), repeat=length))
    config = Beam.Config(beam_size=len(outputs), length_penalty=0.0, **limit(length))
    batch = DecodingBatch([0], DecoderSteps(model_pair, memory), [4])
    (result,) = config.build()(batch, 2, END)
    log_p = forced(model_pair, source, outputs)
    order = sorted(range(len(outputs)), key=lambda i: -log_p[i])
    assert [h.ids + [END] * h.ended for h in result] == [outputs[i] for i in order]


@pytest.fixture(
    params=["transformer", "recurrent", "no attention", "bridge states", "bridge summary"]
)
def model_pair(request: pytest.FixtureRequest) -> EncoderDecoder:
    """One of each family, with five tokens."""
    return build(MODELS[request.param], vocabulary=5)


@torch.no_grad()
def forced(model: EncoderDecoder, source: Tensor, outputs: Sequence[Sequence[int]]) -> list[float]:
    """Σ log p of each output of one source; the last id may be the end."""
    whole = pad_sequence([torch.tensor(ids) for ids in outputs], batch_first=True)
    read = torch.nn.functional.pad(whole[:, :-1], (1, 0), value=2)
    result = token_log_probabilities(model(source.expand(len(outputs), -1), read), whole)
    return [float(row[: len(ids)].sum()) for row, ids in zip(result, outputs, strict=True)]


@each("search")
def test_laws_of_searches(config: Search.Config) -> None:
    keeps_laws(config)


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


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), width=st.integers(1, 8), alpha=st.sampled_from([0.0, 0.6, 1.0]))
def test_the_n_best_are_sorted_distinct_and_scored_right(seed, width, alpha) -> None:
    table = random_table(seed)
    (result,) = search(Beam.Config(beam_size=width, length_penalty=alpha, **limit(5)), [table])
    assert 1 <= len(result) <= width
    assert [h.score for h in result] == sorted((h.score for h in result), reverse=True)
    outputs = [(*h.ids, END) if h.ended else tuple(h.ids) for h in result]
    assert len(set(outputs)) == len(outputs)
    for output, hypothesis in zip(outputs, result, strict=True):
        assert END not in hypothesis.ids
        assert hypothesis.log_probability == near(log_p(table, output), terms=MODEL)
        penalty = ((5 + len(output)) / 6) ** alpha
        assert hypothesis.score * penalty == near(log_p(table, output), terms=MODEL)


def plain_beam(table: Table, width: int, longest: int) -> list[tuple[float, Prefix, bool]]:
    """Beam search as the books tell it: lists, no batch, every extension looked at."""
    live: list[tuple[float, Prefix]] = [(0.0, ())]
    result: list[tuple[float, Prefix, bool]] = []
    for length in range(1, longest + 1):
        each = ((p, prefix, y, q) for p, prefix in live for y, q in enumerate(table(prefix)))
        extended = [(p + math.log(q), (*prefix, token)) for p, prefix, token, q in each]
        extended.sort(reverse=True)
        result += [(p, y[:-1], True) for p, y in extended[:width] if y[-1] == END]
        live = [(p, y) for p, y in extended if y[-1] != END][:width]
        if length == longest:
            result += [(p, y, False) for p, y in live]
        if len(result) >= width:
            break
    return sorted(result, reverse=True)[:width]


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), width=st.integers(1, 7), longest=st.integers(1, 5))
def test_the_batched_beam_is_the_plain_one(seed: int, width: int, longest: int) -> None:
    table = random_table(seed, vocabulary=8, ending=2.0)
    config = Beam.Config(beam_size=width, length_penalty=0.0, **limit(longest))
    (result,) = search(config, [table])
    expected = plain_beam(table, width, longest)
    alike(result, [Hypothesis(list(y), p, p, ended) for p, y, ended in expected])


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6))
def test_a_beam_of_one_is_greedy(seed: int) -> None:
    tables = [random_table(seed), random_table(seed + 1)]
    greedy = search(Greedy.Config(**limit(8)), tables)
    beam = search(Beam.Config(beam_size=1, **limit(8)), tables)
    for item, other in zip(greedy, beam, strict=True):
        assert [(h.ids, h.ended) for h in item] == [(h.ids, h.ended) for h in other]
        assert item[0].log_probability == near(other[0].log_probability)


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6))
def test_a_wider_space_never_scores_worse(seed: int) -> None:
    """The best of all outputs is no worse than what any beam finds."""
    table = random_table(seed)
    best = max(everything(table, 3))[0]
    for width in (1, 2, 5):
        (result,) = search(Beam.Config(beam_size=width, length_penalty=0.0, **limit(3)), [table])
        assert result[0].log_probability <= best + 1e-4


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
SOURCE, KEYS = ids(2, 5), TWO
LENGTHS = (5, 3)


@torch.no_grad()
def found_by(
    config: Search.Config,
    model: EncoderDecoder,
    source: Tensor,
    keys: Tensor | None,
    rows: Sequence[int] | None = None,
    longest: tuple[int, float] = (2, 0.6),
) -> list[list[Hypothesis]]:
    lengths = [source.shape[1]] * len(source) if keys is None else keys.sum(dim=1).tolist()
    short: Search = config.model_copy(update=limit(*longest)).build()
    steps = DecoderSteps(model, model.encode(source, keys))
    return short(DecodingBatch(rows or range(len(source)), steps, lengths), 2, END)


def searched_rightly(model: EncoderDecoder, searches: dict[str, Search.Config]) -> None:
    """Beam of one is greedy, scores are forced scores, and neighbours and padding do not matter."""
    model = copy.deepcopy(model).double()  # in which outputs hardly ever score the same
    outputs = {name: found_by(config, model, SOURCE, KEYS) for name, config in searches.items()}
    for item, other in zip(outputs["greedy"], outputs["beam of 1"], strict=True):
        assert [(h.ids, h.ended) for h in item] == [(h.ids, h.ended) for h in other]
    for row, length in enumerate(LENGTHS):
        source = SOURCE[row : row + 1, :length]
        for name, result in outputs.items():
            alike(found_by(SEARCHES[name], model, source, None, [row])[0], result[row])
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


def test_real_searches_end_before_their_limit(model_pair: EncoderDecoder) -> None:
    """The laws above would prove little if every output were cut."""
    source = ids(8, 5, vocabulary=5)
    result = found_by(Beam.Config(), model_pair, source, None, longest=(3, 1.0))
    hypotheses = [h for of_one in result for h in of_one]
    assert any(h.ended for h in hypotheses)
    assert all(math.isfinite(h.score) for h in hypotheses)
