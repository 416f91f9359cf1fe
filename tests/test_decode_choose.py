"""A search in place of another: what is kept, what is new, what is refused."""

from __future__ import annotations

import pytest

from foveate.config import ConfigError
from foveate.decode.beam import Beam, DiverseBeam, Greedy, another, with_beam
from foveate.decode.constraints import NoRepeat
from foveate.decode.sample import Sample
from foveate.decode.search import Search

RULES = (NoRepeat.Config(size=2),)


def test_a_beam_size_makes_a_beam_that_keeps_limits_and_rules() -> None:
    assert with_beam(Greedy.Config(max_extra=7, rules=RULES), 3, None) == Beam.Config(
        beam_size=3, max_extra=7, rules=RULES
    )
    own = Beam.Config(beam_size=4, length_penalty=0.1)
    assert with_beam(own, None, None) is own
    assert with_beam(own, None, 1.0) == Beam.Config(beam_size=4, length_penalty=1.0)
    assert with_beam(DiverseBeam.Config(), 10, None) == DiverseBeam.Config(beam_size=10)
    with pytest.raises(ConfigError, match="do not make 5 groups"):
        with_beam(DiverseBeam.Config(), 6, None)
    with pytest.raises(ConfigError, match="search sample has no length_penalty; give a beam_size"):
        with_beam(Sample.Config(), None, 0.5)


def test_another_kind_keeps_what_both_know() -> None:
    own = Beam.Config(beam_size=10, length_penalty=0.2, max_ratio=1.5, rules=RULES)
    result = another(own, "diverse_beam", {"diversity": 1.0})
    assert result == DiverseBeam.Config(
        beam_size=10, length_penalty=0.2, max_ratio=1.5, rules=RULES, diversity=1.0
    )
    assert another(own, "sample", {}) == Sample.Config(max_ratio=1.5, rules=RULES)
    assert another(own, None, {"max_extra": 3}) == own.model_copy(update={"max_extra": 3})


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'groups'"):
        another(Beam.Config(), "diverse_beam", {"grops": 2})
    with pytest.raises(ConfigError, match=r"decode.kind: no search 'diverse'"):
        another(Beam.Config(), "diverse", {})


def test_a_search_with_the_earlier_parameters_of_find_is_refused() -> None:
    class Earlier(Search):
        def find(self, steps: object, limits: object, start: int, end: int, rows: object) -> object:  # type: ignore[override]
            raise NotImplementedError

    with pytest.raises(ConfigError, match=r"Earlier.find takes the steps only: .* steps.limits"):
        Earlier(Search.Config())


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
