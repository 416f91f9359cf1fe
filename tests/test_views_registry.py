"""The registry of views: every one is found, says what it does, and refuses what does not fit."""

import json
import re
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import foveate.views as views
from copier import copier
from foveate.cli import app
from foveate.cli.looking import verb
from foveate.config import ConfigError
from foveate.draw.drawings import Drawing
from foveate.errors import UserError
from foveate.run import Run
from foveate.tasks.objectives import CrossEntropy, OwnOutput, tokens_of
from foveate.train.journal import read
from foveate.views import VIEWS, ViewEntry, find
from foveate.views.exposure import NAMES, place_errors
from foveate.views.options import Question
from foveate.views.run_page import report
from small_runs import invoked, made
from tolerances import MODEL, near


# ---- The registry of views: every one is found, says what it does, and refuses what does not fit
@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return copier(tmp_path_factory.mktemp("translator"))


@pytest.mark.parametrize("entry", VIEWS.values(), ids=lambda entry: entry.name)
def test_an_entry_is_whole(entry: ViewEntry) -> None:
    assert set(entry.reads) <= set(Question.model_fields)
    assert entry.spec.by_place in ("", *entry.reads)
    assert entry.summary.endswith(".") and len(entry.summary) <= 64
    assert {*entry.reads, "runs", "out", "checkpoint"} == {p.name for p in verb(entry).params}


def test_every_field_of_the_question_is_read_by_a_view_and_described() -> None:
    assert {name for entry in VIEWS.values() for name in entry.reads} == {*Question.model_fields}
    assert all(field.description for field in Question.model_fields.values())


def test_help_lists_every_view() -> None:
    text = CliRunner().invoke(app, ["look", "--help"]).output
    assert [name for name in VIEWS if not re.search(rf"^  {name} ", text, re.M)] == []


def test_the_nearest_name_is_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'attention'"):
        find("atention")


def test_what_does_not_fit_is_refused_with_its_reason(translator: Run) -> None:
    with pytest.raises(ConfigError, match="no recurrent cells"):
        find("gates").draw([translator], Question())
    with pytest.raises(ConfigError, match="needs 1 run, not 2"):
        find("attention").draw([translator, translator], Question())
    with pytest.raises(UserError, match="no block 'middle' here"):
        find("attention").draw([translator], Question(text="a b", block="middle"))
    asked = [Question(text="a b", scale=scale) for scale in (None, "row")]
    scales = [find("attention").draw([translator], question).scale for question in asked]
    assert scales == ["absolute", "row"]  # an even row is not drawn as a sharp one
    with pytest.raises(ConfigError, match="scale"):
        Question.parse({"scale": "rows"})


def test_an_error_in_a_view_of_ones_own_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def own(run: Any) -> Drawing:
        return run.no_such_thing

    monkeypatch.setitem(views._SPECS, "own", views.ViewSpec(own, (), 1, False, "", False, ()))
    with pytest.raises(ConfigError, match=r"test_views_registry.py:\d+: AttributeError: .*no_such"):
        ViewEntry("own", "", "maps").draw([types.SimpleNamespace()], Question())  # type: ignore[list-item]


def test_needs_say_why_not() -> None:
    from torch import nn

    config = types.SimpleNamespace(task=types.SimpleNamespace(kind="other"))
    fields = {"model": nn.Linear(2, 2), "task": object(), "config": config}
    empty: Any = types.SimpleNamespace(**fields, path=Path("none"))
    for need in {need for entry in VIEWS.values() for need in entry.spec.needs}:
        reason = need(empty)
        assert reason is not None and not reason.endswith("."), need


def test_without_a_text_the_last_validation_has_one(translator: Run) -> None:
    view = find("attention").draw([translator], Question(target="A B"))
    assert view.arrays()["columns"].tolist() == ["a", "b", "c", "</s>"]
    assert view.arrays()["rows"].tolist() == ["A", "B", "</s>"]


def test_the_verb_asks_what_its_options_say(translator: Run, tmp_path: Path) -> None:
    out = tmp_path / "m.json"
    words = ["look", "attention", str(translator.path), "--text", "a b", "--layer", "0"]
    call = invoked(*words, "--head", "1", "--out", out, "--out", f"{out}.txt")
    assert '"map": "decoder.layers.0.cross_attention"' in out.read_text("utf-8")
    assert '"head": 1' in out.read_text("utf-8")
    call = invoked("look", "positions", translator.path, "--length", "8")
    assert "Positions: sinusoidal" in call.output


def test_a_report_has_every_view_that_fits(translator: Run, tmp_path: Path) -> None:
    result = report(translator, Question())
    drawn = {entry.name for entry, _ in result.views}
    assert {"attention", "heads", "positions", "schedule"} <= drawn
    assert drawn | set(result.left_out) == set(VIEWS)
    assert all(isinstance(view, Drawing) and view.drawings() for _, view in result.views)
    out = tmp_path / "r.html"
    call = invoked("look", "report", translator.path, "--out", out)
    assert "not in it: gates: " in call.output
    page = out.read_text("utf-8")
    [group] = re.findall(r'<script class="group" type="application/json">(.*)</script>', page)
    titles = [drawing["title"] for drawing in json.loads(group)["drawings"]]
    assert {title.partition(" · ")[0] for title in titles} == drawn
    with pytest.raises(ConfigError, match=r"end its name in \.html"):
        words = ["look", "report", str(translator.path), "--out", "r.png"]
        CliRunner().invoke(app, words, catch_exceptions=False)


def test_the_docs_name_every_view() -> None:
    text = (Path(__file__).parent.parent / "docs" / "guide" / "looking.md").read_text("utf-8")
    assert [name for name in VIEWS if f"| `{name}` |" not in text] == []


# ---- Exposure bias: errors after the truth and after a model's own output; training on the latter
FORCING = """
[objective]
teacher_forcing = {{ kind = "{kind}" }}
"""
LINEAR = 'scheduled", schedule = { kind = "linear", slope = 0.02, floor = 0.2 }, choose = "greedy'
FAMILIES = ("language", "captioner", "rnn_forecaster")


@pytest.mark.parametrize("kind", ["own", LINEAR], ids=["own", "scheduled"])
@pytest.mark.parametrize("name", FAMILIES)
def test_what_reads_its_own_output_learns(name: str, kind: str, tmp_path: Path) -> None:
    more = FORCING.format(kind=kind)
    if name == "rnn_forecaster":
        more = more.replace("[objective]", '[objective]\nkind = "squared_error"')
    run = made(tmp_path, [name], steps=60, more=more)[name]
    losses = [line["loss"] for line in read(run.path) if line.get("event") == "train"]
    assert losses[-1] < 0.8 * losses[0]
    assert run.config.objective.teacher_forcing.kind in kind


@pytest.mark.parametrize("name", FAMILIES)
def test_the_first_place_is_the_same_and_a_view_draws_both(name: str, runs: dict[str, Run]) -> None:
    errors = place_errors(runs[name], "valid")
    for figure, forced in errors.forced.items():
        assert errors.free[figure][0] == near(forced[0], MODEL)
        assert len(forced) == len(errors.free[figure]) == len(errors.counts)
    drawn = find("exposure").draw([runs[name]], Question(split="valid"))
    panels = {panel.up: [curve.name for curve in panel.curves] for panel in drawn.panels}
    own = "its own forecast" if "mse" in errors.free else "its own words"
    assert panels == {NAMES[figure]: ["given the reference", own] for figure in errors.forced}


def test_forced_errors_are_the_loss_of_a_translator(tmp_path: Path) -> None:
    run: Any = copier(tmp_path)
    errors = place_errors(run, "valid")
    task, plain = run.task, CrossEntropy.Config(label_smoothing=0.0).build()
    with torch.inference_mode():
        loss = task.loss(run.model, task.batch("valid", range(len(task.lengths("valid")))), plain)
    mean = (errors.counts * errors.forced["nll"]).sum() / errors.counts.sum()
    assert mean == near(float(loss.total) / loss.count, MODEL)
    assert errors.counts.sum() == loss.count


def test_free_errors_of_a_caption_are_those_of_its_greedy_output(runs: dict[str, Run]) -> None:
    """Free accuracy counts the places where the greedy caption is the reference."""
    run: Any = runs["captioner"]
    task, errors = run.task, place_errors(run, "valid")
    hits = np.zeros(len(errors.counts))
    for row, ids in task.pairs("valid"):
        batch = task.batch("valid", [task.pairs("valid").index((row, ids))])
        places = task.decoder_batch(run.model, batch)
        own = tokens_of(run.model, places.memory)
        free = OwnOutput.Config().build().read(own, places.gold, 1)
        says = run.model(batch.pixels, free).argmax(-1)[0]
        hits[: len(ids) + 1] += (says == batch.target[0]).numpy()
    assert errors.free["accuracy"] * errors.counts == near(hits, MODEL)


def test_models_that_read_nothing_of_their_own_are_refused(runs: dict[str, Run]) -> None:
    for name in ("classifier", "forecaster"):
        with pytest.raises(ConfigError, match="does not read its own output"):
            find("exposure").draw([runs[name]], Question())
