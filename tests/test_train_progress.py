"""What people see: a bar in a terminal, few lines elsewhere, and a sensible time left."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from foveate.tasks.base import Measures, ValidationSample
from foveate.train.journal import Display, clock, time_left


def test_the_clock() -> None:
    assert [clock(s) for s in (0, 65, 3723.4)] == ["0:00", "1:05", "1:02:03"]


@pytest.mark.parametrize(
    ("steps", "budget", "expected"),
    [(10, None, 20.0), (None, 7.0, 7.0), (10, 7.0, 7.0), (3, 7.0, 6.0), (None, None, None),
     (-1, -2.0, 0.0)],
)  # fmt: skip
def test_the_end_is_whichever_comes_first(
    steps: int | None, budget: float | None, expected: float | None
) -> None:
    assert time_left(steps, 2.0, budget) == expected


def display(terminal: bool, quiet: float = 0.0) -> tuple[Display, io.StringIO]:
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=120, soft_wrap=True)
    return Display(100, 600.0, every=20, quiet=quiet, console=console), text


def test_the_time_left_is_that_of_recent_steps_and_of_validations() -> None:
    shown, _ = display(terminal=False)
    for step, spent in ((1, 50.0), *((step, 2.0) for step in range(2, 121))):
        shown.update(step, {"loss": 3.0}, 5000.0, 80.0, spent)  # the slow first one is forgotten
    assert shown.line(20, 80.0) == "step 20/100 · loss 3.000 · 5,000 target tokens/s · 2:40 left"
    shown.validated(20, Measures({}), best=False, spent=10.0)  # four are to come
    assert "3:20 left" in shown.line(20, 80.0)
    shown.budget = 100.0
    assert "0:20 left" in shown.line(20, 80.0)


def test_the_loss_is_the_one_of_validations() -> None:
    shown, _ = display(terminal=False)
    shown.update(1, {"loss": 3.0, "nll": 2.0}, 1.0, 1.0, 1.0)
    assert "loss 2.000 · objective 3.000 ·" in shown.line(1, 1.0)
    plain, _ = display(terminal=False)
    plain.update(1, {"loss": 3.0, "nll": 3.0}, 1.0, 1.0, 1.0)
    assert "objective" not in plain.line(1, 1.0)


def test_without_a_terminal_lines_are_few() -> None:
    shown, text = display(terminal=False, quiet=3600)
    with shown:
        for step in range(11, 50):
            shown.update(step, {"loss": 1.0}, 1.0, 61.0, 1.0)
    assert text.getvalue() == ""
    shown.quiet = 0
    shown.update(50, {"loss": 1.0}, 1.0, 61.0, 1.0)
    assert text.getvalue().startswith("step 50/100 · loss 1.000")


def test_in_a_terminal_there_is_a_bar() -> None:
    shown, text = display(terminal=True)
    with shown:
        shown.update(50, {"loss": 1.5}, 1.0, 61.0, 1.0)
    assert "━" in text.getvalue() and "loss 1.500" in text.getvalue()


def test_samples_are_shown_as_they_are() -> None:
    shown, text = display(terminal=False)
    sample = ValidationSample("a [bold]dog[/bold]", "un chien", "un chat")
    shown.validated(20, Measures({"loss": 1.25, "bleu": 31.456}, [sample]), best=True)
    lines = text.getvalue().splitlines()
    assert lines[0] == "step 20 · valid: loss 1.25 · bleu 31.46 · best so far"
    assert [line.split(maxsplit=1)[1] for line in lines[1:]] == [
        "a [bold]dog[/bold]", "un chien", "un chat",
    ]  # fmt: skip
