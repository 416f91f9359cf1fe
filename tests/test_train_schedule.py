"""Schedules against the closed forms of their papers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.config import ConfigError, kinds
from foveate.train.optim import (
    Constant,
    Cosine,
    InverseSqrt,
    LinearSchedule,
    Noam,
    Schedule,
    WarmupStableDecay,
)


@pytest.mark.parametrize(("d", "warmup"), [(512, 4000), (512, 8000), (256, 4000)])
def test_noam_is_the_equation_of_the_paper(d: int, warmup: int) -> None:
    schedule = Noam.Config(hidden_size=d, warmup_steps=warmup).build(1.0)
    for step in (1, 17, warmup - 1, warmup, warmup + 1, 10 * warmup):
        expected = d**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert schedule.rate(step) == pytest.approx(expected, rel=1e-12)
    assert schedule.rate(warmup) == pytest.approx(1 / math.sqrt(d * warmup))
    assert schedule.rate(warmup) > max(schedule.rate(warmup - 1), schedule.rate(warmup + 1))


def test_inverse_sqrt_rises_in_a_line_and_falls_as_a_root() -> None:
    schedule = InverseSqrt.Config(warmup_steps=100).build(2e-3)
    assert schedule.rate(1) == pytest.approx(2e-5)
    assert schedule.rate(50) == pytest.approx(1e-3)
    assert schedule.rate(100) == 2e-3
    assert schedule.rate(400) == pytest.approx(1e-3)


def test_cosine_and_linear_go_from_peak_to_the_final_ratio() -> None:
    cosine = Cosine.Config(warmup_steps=10, final_ratio=0.1).build(1.0, 110)
    linear = LinearSchedule.Config(warmup_steps=10, total_steps=110).build(1.0, 999)
    assert cosine.rate(5) == linear.rate(5) == 0.5
    assert cosine.rate(10) == linear.rate(10) == 1.0
    assert cosine.rate(60) == pytest.approx(0.1 + 0.9 / 2)
    assert cosine.rate(35) == pytest.approx(0.1 + 0.9 * (1 + math.cos(math.pi / 4)) / 2)
    assert linear.rate(35) == pytest.approx(0.75)
    assert cosine.rate(110) == pytest.approx(0.1)
    assert linear.rate(110) == linear.rate(500) == 0.0


def test_constant_is_constant_after_its_warmup() -> None:
    assert Constant.Config().build(0.3).rate(1) == 0.3
    warmed = Constant.Config(warmup_steps=4).build(0.3)
    assert [warmed.rate(step) for step in (1, 2, 4, 5)] == pytest.approx([0.075, 0.15, 0.3, 0.3])


@pytest.mark.parametrize("kind", sorted(kinds("schedule")["schedule"]))
@given(step=st.integers(1, 100_000))
def test_rates_are_never_negative_nor_above_the_peak(kind: str, step: int) -> None:
    tree = {"kind": kind} | ({"hidden_size": 1} if kind == "noam" else {})
    rate = Schedule.Config.parse(tree).build(1.0, 5000).rate(step)
    assert 0 <= rate <= 1


def test_a_schedule_that_ends_has_to_know_where() -> None:
    with pytest.raises(ConfigError, match=r"cosine.*set train\.max_steps"):
        Cosine.Config().build(1.0)
    with pytest.raises(ConfigError, match="warmup_steps = 50 leaves nothing of 50"):
        LinearSchedule.Config(warmup_steps=50).build(1.0, 50)


def test_warmup_stable_decay_is_level_until_its_last_part() -> None:
    config = WarmupStableDecay.Config(warmup_steps=10, decay_share=0.25, final_ratio=0.2)
    schedule = config.build(1.0, 110)
    assert schedule.rate(5) == 0.5
    assert [schedule.rate(step) for step in (10, 40, 85)] == [1.0, 1.0, 1.0]
    assert schedule.rate(97) == pytest.approx(0.2 + 0.8 * 13 / 25)
    assert schedule.rate(110) == pytest.approx(0.2)
