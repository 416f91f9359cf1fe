"""The log: a line an event, no line twice after resuming, torn lines gone, TensorBoard asked."""

import contextlib
import importlib.util
import io
import json
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import nn

from foveate.tasks.base import Measures, ValidationSample
from foveate.train.journal import Display, Health, Journal, module_of, read
from foveate.train.stored import TrainError
from tolerances import MODEL, near


def written(run: Path, steps: range, last: int = 0) -> Journal:
    journal = Journal(run, last)
    for step in steps:
        journal.write("train", step, loss=1 / step)
    journal.close()
    return journal


def test_lines_stand_in_the_file_at_once_whatever_a_sample_holds(tmp_path: Path) -> None:
    journal, samples = Journal(tmp_path, 0), [{"source": "é a\ud800\u2028\r\nb"}]
    journal.write("valid", 3, bleu=31.5, samples=samples, loss=float("nan"))
    line = json.loads((tmp_path / "log.jsonl").read_text(encoding="utf-8"))
    assert read(tmp_path) == [line]
    expected = {"event": "valid", "step": 3, "bleu": 31.5, "loss": None, "samples": samples}
    assert {name: line[name] for name in expected} == expected
    journal.close()


def test_resuming_cuts_the_lines_that_come_again(tmp_path: Path) -> None:
    written(tmp_path, range(1, 8))
    assert written(tmp_path, range(5, 8), last=4).cut == 3
    assert [line["step"] for line in read(tmp_path)] == list(range(1, 8))


BAD = ['{"step": 3}', '{"event": "train", "step": "3"}', "[" * 100_000, "[]"]
BAD.append('{"event": "train", "step": 3, "loss": "x"}')
BAD.append('{"event": "valid", "step": 3, "samples": [1]}')


@pytest.mark.parametrize("torn", ['{"event": "tr', '{"event": "train", "step": 3}', *BAD])
def test_a_torn_last_line_spoils_nothing(tmp_path: Path, torn: str) -> None:
    written(tmp_path, range(1, 3))
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write(torn)
    journal = written(tmp_path, range(4, 5), last=9)
    saved = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    steps = [1, 2, 4] if torn in BAD or "}" not in torn else [1, 2, 3, 4]
    assert [line["step"] for line in saved] == steps
    assert journal.cut == ("}" not in torn or torn in BAD)


def test_tensorboard_is_written_or_its_extra_named(tmp_path: Path) -> None:
    if importlib.util.find_spec("tensorboard") is None:
        with pytest.raises(TrainError, match=r"foveate\[track\]"):
            Journal(tmp_path, 0, tensorboard=True)
        return
    with contextlib.closing(Journal(tmp_path, 0, tensorboard=True)) as journal:
        journal.write("train", 1, loss=0.5)
    assert list((tmp_path / "tensorboard").iterdir())


# What people see: a bar in a terminal, few lines elsewhere, and a sensible time left.
@pytest.mark.parametrize(
    ("steps", "budget", "expected"),
    [(10, None, "0:20 left"), (None, 7.0, "0:07 left"), (10, 7.0, "0:07 left"),
     (3, 7.0, "0:06 left"), (None, None, "1 target tokens/s"), (-1, -2.0, "0:00 left")],
)  # fmt: skip
def test_the_end_is_whichever_comes_first(steps, budget, expected) -> None:
    shown = Display(steps, budget, silent=True)
    shown.update(0, {"loss": 1.0}, 1.0, 0.0, spent=2.0)
    assert shown.line(0, 0.0).split(" · ")[-1] == expected


def display(terminal: bool, quiet: float = 0.0) -> tuple[Display, io.StringIO]:
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=120, soft_wrap=True)
    return Display(100, 600.0, every=20, quiet=quiet, console=console), text


def test_the_time_left_is_that_of_recent_steps_and_of_validations() -> None:
    shown, _ = display(terminal=False)
    for step, spent in ((1, 50.0), *((step, 2.0) for step in range(2, 121))):
        shown.update(step, {"loss": 3.0}, 5000.0, 80.0, spent)  # the slow first one is forgotten
    assert shown.line(20, 80.0) == "step 20/100 · loss 3.000 · 5,000 target tokens/s · 2:40 left"
    shown.validated(20, Measures({}), None, spent=10.0)  # four are to come
    assert "3:20 left" in shown.line(20, 80.0)
    shown.budget = 100.0
    assert "0:20 left" in shown.line(20, 80.0)


@pytest.mark.parametrize(
    ("nll", "line"), [(2.0, "loss 2.000 · objective 3.000 · "), (3.0, "loss 3.000 · ")]
)
def test_the_loss_is_the_one_of_validations(nll: float, line: str) -> None:
    shown, _ = display(terminal=False)
    shown.update(1, {"loss": 3.0, "nll": nll}, 1.0, 1.0, 1.0)
    assert shown.line(1, 1.0).startswith(f"step 1/100 · {line}1 target")


def test_without_a_terminal_lines_are_few() -> None:
    shown, text = display(terminal=False, quiet=3600)
    with shown:
        for step in range(11, 50):
            shown.update(step, {"loss": 1.0}, 1.0, 61.0, 1.0)
    assert text.getvalue() == ""
    shown.quiet = 0
    shown.update(50, {"loss": 1.0}, 1.0, 61.0, 1.0)
    assert text.getvalue().startswith("step 50/100 · loss 1.000")


def test_a_terminal_shows_a_progress_bar() -> None:
    shown, text = display(terminal=True)
    with shown:
        shown.update(50, {"loss": 1.5}, 1.0, 61.0, 1.0)
    assert "━" in text.getvalue() and "loss 1.500" in text.getvalue()


def test_samples_are_shown_as_they_are() -> None:
    shown, text = display(terminal=False)
    sample = ValidationSample("a [bold]dog[/bold]", "un chien", "un chat")
    shown.validated(20, Measures({"loss": 1.25, "bleu": 31.456}, [sample]), best=20)
    title, *lines = text.getvalue().splitlines()
    assert title == "step 20 · valid: loss 1.25 · bleu 31.46 · best so far"
    texts = ["a [bold]dog[/bold]", "un chien", "un chat"]
    assert [line.split(maxsplit=1)[1] for line in lines] == texts


def test_of_many_validations_few_are_shown_and_the_others_are_counted() -> None:
    shown, text = display(terminal=False, quiet=3600)
    for step in range(1, 41):
        samples = [ValidationSample("a dog", "un chien", f"un chat {step}")]
        shown.validated(step, Measures({"loss": 9 - step / 10}, samples), best=min(step, 38))
    assert "un chat 1" in text.getvalue() and "un chat 2" not in text.getvalue()
    shown.show_validation()
    shown.show_validation()  # once
    lines = text.getvalue().splitlines()
    assert len(lines) == 8
    assert lines[4] == "step 40 · valid: loss 5 · best at step 38 · 38 before it in log.jsonl"
    assert lines[7].split(maxsplit=1) == ["output", "un chat 40"]


# The health of modules: norms and ratios are those of the step, and nothing changes by looking.
def test_modules_are_layers_or_parts() -> None:
    assert module_of("decoder.layers.3.cross_attention.query.weight") == "decoder.layers.3"
    assert module_of("encoder.stem.embedding.weight") == "encoder.stem"
    assert (module_of("output.weight"), module_of("scale")) == ("output", "scale")


def test_a_step_of_plain_gradient_descent(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    journal = Journal(tmp_path, 0)
    health = Health(model, 2, journal)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    expected = []
    for step in (1, 2, 3, 4):
        model(torch.ones(4, 3)).sum().backward()
        parts = zip(*((p.detach(), p.grad) for p in model[0].parameters()), strict=True)
        weight, gradient = (float(torch.cat([p.flatten() for p in each]).norm()) for each in parts)
        expected.append((gradient, 0.1 * gradient / weight))
        with health.watching(step):
            optimizer.step()
        health.write(step)
        optimizer.zero_grad()
    journal.close()
    lines = read(tmp_path)
    assert [(line["event"], line["step"]) for line in lines] == [("health", 2), ("health", 4)]
    for line, (gradient, ratio) in zip(lines, expected[1::2], strict=True):
        assert line["gradient"]["0"] == near(gradient)
        assert line["ratio"]["0"] == near(ratio, terms=MODEL)
        assert set(line["ratio"]) == {"0", "1"}
