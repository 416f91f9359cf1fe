"""Rules of outputs: kept by every search, and nothing else is changed."""

import pytest
import torch

from conftest import MODELS, build, defaults, ids
from foveate.decode.constraints import DecodingBatch, MinLength, NoRepeat, OutputRule
from foveate.decode.engine import Hypothesis
from foveate.decode.search import Search
from foveate.models.encoder_decoder import DecoderSteps

END = 3
SEARCHES = defaults("search")
NAMES = ["transformer", "recurrent"]


def result(search: Search.Config, name: str, *rules: OutputRule.Config) -> list[list[Hypothesis]]:
    model = build(MODELS[name])
    with torch.no_grad():
        model.output.weight[END] += 0.2  # ends are likely enough to come soon
        steps = DecoderSteps(model, model.encode(ids(3, 6)))
        made: Search = search.like(search, rules=rules).build()
        return made(DecodingBatch(range(3), steps, [6, 6, 6]), 2, END)


def grams(hypothesis: Hypothesis, n: int) -> list[tuple[int, ...]]:
    written = hypothesis.ids
    return [tuple(written[i : i + n]) for i in range(len(written) - n + 1)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_no_gram_stands_twice(search: Search.Config, name: str) -> None:
    loose = search.model_copy(update={"max_extra": 30})
    plain = [h for source in result(loose, name) for h in source]
    if search.kind == "greedy":
        assert any(len(set(grams(h, 2))) < len(grams(h, 2)) for h in plain), "a rule has work to do"
    for n in (1, 2, 3):
        for source in result(loose, name, NoRepeat.Config(size=n)):
            assert source
            assert all(len(set(grams(h, n))) == len(grams(h, n)) for h in source)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_outputs_are_long_enough(search: Search.Config, name: str) -> None:
    for source in result(search, name, MinLength.Config(length=9)):
        assert source and all(len(h.ids) >= 9 for h in source)


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_rules_that_forbid_nothing_change_nothing(search: Search.Config) -> None:
    assert result(search, "transformer", NoRepeat.Config(size=99)) == result(search, "transformer")


def test_repeats_by_hand() -> None:
    written = torch.tensor([[4, 5, 4, 5], [4, 4, 4, 6]])
    assert pairs(NoRepeat.Config(size=2), written) == [(0, 4)]
    assert pairs(NoRepeat.Config(size=1), written) == [(0, 4), (0, 5), (1, 4), (1, 6)]
    assert pairs(NoRepeat.Config(size=3), written[:, :2]) == []
    assert pairs(MinLength.Config(length=5), written) == [(0, END), (1, END)]
    assert pairs(MinLength.Config(length=4), written) == []


def pairs(rule: OutputRule.Config, written: torch.Tensor) -> list[tuple[int, int]]:
    rows, tokens = rule.build().forbidden(written, END)
    return sorted(set(zip(rows.tolist(), tokens.tolist(), strict=True)))


def test_where_nothing_is_allowed_the_output_ends() -> None:
    model = build(MODELS["recurrent"], vocabulary=5)
    with torch.no_grad():
        rules = NoRepeat.Config(size=1), MinLength.Config(length=20)
        steps = DecoderSteps(model, model.encode(ids(1, 3, vocabulary=5)))
        greedy = SEARCHES["greedy"]
        batch = DecodingBatch([0], steps, [50])
        ((best, *_),) = greedy.like(greedy, rules=rules).build()(batch, 2, END)
    assert best.ended and sorted(best.ids) == [0, 1, 2, 4]
