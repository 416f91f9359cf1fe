"""What people see: a bar in a terminal, few lines elsewhere, and a sensible time left."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from foveate.tasks.base import Measures, Sample
from foveate.train.progress import Display, clock, time_left


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
    return Display(100, 600.0, step=10, seconds=60.0, quiet=quiet, console=console), text


def test_the_time_left_is_reckoned_from_this_session() -> None:
    shown, _ = display(terminal=False)
    shown.update(20, 3.0, 5000.0, 80.0)  # 10 steps in 20 s: 80 more in 160 s, of 520 s allowed
    assert shown.line(20, 80.0) == "step 20/100 · loss 3.000 · 5,000 target tokens/s · 2:40 left"
    shown.budget = 100.0
    assert shown.line(20, 80.0).endswith("0:20 left")


def test_without_a_terminal_lines_are_few() -> None:
    shown, text = display(terminal=False, quiet=3600)
    with shown:
        for step in range(11, 50):
            shown.update(step, 1.0, 1.0, 61.0)
    assert text.getvalue() == ""
    shown.quiet = 0
    shown.update(50, 1.0, 1.0, 61.0)
    assert text.getvalue().startswith("step 50/100 · loss 1.000")


def test_in_a_terminal_there_is_a_bar() -> None:
    shown, text = display(terminal=True)
    with shown:
        shown.update(50, 1.5, 1.0, 61.0)
    assert "━" in text.getvalue() and "loss 1.500" in text.getvalue()


def test_samples_are_shown_as_they_are() -> None:
    shown, text = display(terminal=False)
    sample = Sample("a [bold]dog[/bold]", "un chien", "un chat")
    shown.validated(20, Measures({"loss": 1.25, "bleu": 31.456}, [sample]), best=True)
    lines = text.getvalue().splitlines()
    assert lines[0] == "step 20 · valid: loss 1.25 · bleu 31.46 · best so far"
    assert [line.split(maxsplit=1)[1] for line in lines[1:]] == [
        "a [bold]dog[/bold]", "un chien", "un chat",
    ]  # fmt: skip
