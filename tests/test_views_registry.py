"""The registry of views, and the views of texts: what they refuse, and what the run itself says."""

import json
import re
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import foveate.look.views as views
from copier import copier
from foveate.cli import app
from foveate.cli.looking import verb
from foveate.config import ConfigError
from foveate.errors import UserError
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.maps import AttentionDrawing
from foveate.look.views import VIEWS, ViewEntry, find
from foveate.look.views.options import Question
from foveate.look.views.series import NAMES, place_errors
from foveate.look.views.text import bracketed, by_length, differences, grouped, in_order
from foveate.look.views.training import panel, smoothed
from foveate.run import Run
from foveate.tasks.metrics import bleu, chrf, interval
from foveate.tasks.objectives import CrossEntropy
from foveate.tasks.teacher_forcing import OwnOutput, tokens_of
from foveate.train.journal import Line, read
from small_runs import invoked, made
from tolerances import MODEL, close, near


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

    monkeypatch.setitem(views._SPECS, "own", views.ViewSpec(own, (), False, "", False, ()))
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


def test_the_docs_name_every_view() -> None:
    text = (Path(__file__).parent.parent / "docs" / "guide" / "looking.md").read_text("utf-8")
    named = re.findall(
        r"^\| `(\w+)` \| [^|]*\?", text, re.MULTILINE
    )  # with the question it answers
    assert set(named) == VIEWS.keys()


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
    own = "reads its own x̂" if "mse" in errors.free else "reads its own words"
    assert panels == {NAMES[figure]: ["reads the truth", own] for figure in errors.forced}


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
        free = OwnOutput.Config().build().read(own, places.inputs, 1)
        says = run.model(batch.pixels, free).argmax(-1)[0]
        hits[: len(ids) + 1] += (says == batch.targets[0]).numpy()
    assert errors.free["accuracy"] * errors.counts == near(hits, MODEL)


def test_models_that_read_nothing_of_their_own_are_refused(runs: dict[str, Run]) -> None:
    for name in ("classifier", "forecaster"):
        with pytest.raises(ConfigError, match="does not read its own output"):
            find("exposure").draw([runs[name]], Question())


# ---- The views of texts show what the run itself says: scores, weights, outputs, figures
PAIR = {"text": "a b c", "target": "A B C"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return copier(tmp_path_factory.mktemp("copier"))


def draw(name: str, *runs: Run, **requests: Any) -> Any:
    return find(name).draw(runs, Question(**requests))


# ---- one text
def test_every_view_of_attention_shows_tokens_or_words(tmp_path: Path) -> None:
    made = copier(tmp_path, tokenizer="character")
    tokens, words = ["a", "␣", "b", "</s>"], ["a", "b", "</s>"]
    requested = {"text": "a b", "target": "A B", "block": "cross_attention"}
    expected = {"--tokens": tokens, "--words": words, "": tokens}
    for view in ("attention", "links", "heads", "rollout", "relevance"):
        for flag, columns in expected.items():
            out = tmp_path / "drawn.json"
            options = [f"--{key}={value}" for key, value in requested.items()]
            flags = [flag] if flag else []
            line = ["look", view, str(made.path), *options, *flags, "--out", str(out)]
            invoked(*line)
            arrays = json.loads(out.read_text("utf-8"))
            assert arrays.get("columns", arrays.get("labels")) == columns, view
    [answer] = made.translate(["a b"])
    assert answer.record(units="words").axes("decoder.layers.0.cross_attention")[1] == words
    assert answer.record().axes("decoder.layers.0.cross_attention")[1] == tokens


def test_probabilities_are_those_of_scoring(run: Run) -> None:
    [scored] = run.score([("a b c", "A B C")])
    view = draw("probabilities", run, **PAIR, top=3)
    assert view.arrays()["words"].tolist() == ["A", "B", "C", "</s>"]
    close(np.log(view.arrays()["values"]), scored.token_log_probabilities, terms=MODEL)
    p = view.arrays()["p"]
    assert p.shape == (4, 3) and (np.diff(p, axis=1) <= 0).all()
    whole = draw("probabilities", run, **PAIR, top=10_000)
    everything = whole.arrays()["p"]
    close(everything.sum(axis=1), 1)
    nats = -(everything * np.log(everything)).sum(axis=1)  # as log p
    assert [word.note for word in whole.words] == [f"entropy {h:.1f} nats" for h in nats]


def test_probabilities_without_a_target_are_of_the_answer(run: Run) -> None:
    ids = run.translate(["a b"])[0].outputs[0].ids
    [expected] = run.task.force(run.model, [(run.task.source_tokenizer.encode("a b").ids, ids)])
    values = draw("probabilities", run, text="a b").arrays()["values"]
    close(np.log(values), expected, terms=MODEL)


def test_links_are_the_same_weights_as_lines(run: Run) -> None:
    view = draw("links", run, **PAIR)
    [drawing] = view.drawings()
    assert isinstance(drawing, AttentionDrawing) and drawing.form == "links"
    lines = view.figure().axes[0].lines
    strong = view.array[view.array >= 0.05]
    close(sorted(line.get_alpha() for line in lines), np.sort(strong))
    left = {text.get_text() for text in view.figure().axes[0].texts if text.get_position()[0] < 0}
    assert left == set(view.rows)  # as in a browser: what attends stands left


def test_the_n_best_are_those_of_the_search(run: Run) -> None:
    answer = run.translate(["a b c"], beam_size=4, num_hypotheses=3)[0]
    rows = draw("nbest", run, text="a b c", num=3, beam_size=4).rows
    assert [row[4] for row in rows] == answer.hypotheses
    assert [row[1] for row in rows] == answer.scores
    assert rows[0][5] == ""


def test_differences_say_what_must_be_done() -> None:
    before = ["the", "cat", "sat", "on", "a", "mat"]
    assert list(differences(before, ["the", "dog", "sat", "on", "mat", "today"])) == [
        "cat → dog", "−a", "+today",
    ]  # fmt: skip
    assert list(differences(before, before)) == []


def test_masks_hide_the_future(run: Run) -> None:
    encoder, own, across = draw("masks", run, **PAIR).sheets
    assert np.isfinite(encoder.values.array).all() and np.isfinite(across.values.array).all()
    for sheet in (own, across):  # the rows have the labels of the attention map
        assert sheet.rows == draw("attention", run, **PAIR, units="tokens").rows
    np.testing.assert_array_equal(np.isfinite(own.values.array), np.tri(len(own.rows), dtype=bool))
    side = draw("masks", run, **PAIR, block="decoder").sheets
    assert [sheet.title for sheet in side] == [own.title, across.title]


# ---- many texts
def test_scores_by_length_are_those_of_each_group(tmp_path: Path) -> None:
    sources = [" ".join(["w"] * n) for n in (*range(1, 11), *range(21, 31))]
    references = [" ".join(f"r{k}" for k in range(len(s.split()) + 4)) for s in sources]
    outputs = [r if i % 2 else r.replace("r1", "x") for i, r in enumerate(references)]
    view = by_length({"system": (sources, outputs, references)})
    first, second = view.panels
    assert list(first.labels) == ["1–10 (n=10)", "21–30 (n=10)"]
    short, long = slice(0, 10), slice(10, 20)
    for shown, metric in ((first, bleu), (second, chrf)):
        want = [metric(outputs[part], references[part])[0] for part in (short, long)]
        close(shown.arrays()["system"], want)
        low, high = (shown.arrays()[f"system, {end}"] for end in ("low", "high"))
        assert (low <= want).all() and (want <= high).all() and (low < high).all()
    assert not first.joined  # nothing is known between two groups
    assert [line.get_linestyle() for line in view.figure().axes[0].lines] == ["None"]
    assert [len(group) for group in grouped(["a"] * 2 + ["a " * 60])] == [2, 0, 0, 0, 0, 1]
    with pytest.raises(ConfigError, match="20 sources, 19 outputs, 20 references"):
        by_length({"system": (sources, outputs[1:], references)})


def test_an_interval_is_of_a_metric_that_has_one() -> None:
    middle, low, high = interval("bleu", ["a b c d e"] * 9, ["a b c d e"] * 9)
    assert middle == low == high == pytest.approx(100)
    with pytest.raises(ValueError, match="bleu, chrf"):
        interval("ter", ["a"], ["a"])


# ---- training
def test_a_growing_source_is_compared_with_its_reference(run: Run) -> None:
    drawn = draw("growing", run, text="a b c")
    assert [row[:2] for row in drawn.rows[:2]] == [["source", "a b c"], ["reference", "A B C"]]
    for (name, shown, right), text in zip(drawn.rows[2:], ("a", "a b", "a b c"), strict=True):
        output = str(run.translate([text])[0]).split()
        assert name == f"… {text[-1]}" and shown == bracketed(output, ["A", "B", "C"])
        assert right == f"{sum(in_order(output, ['A', 'B', 'C'])):.0f} of 3"
    assert draw("growing", run).rows[0] == ["source", "a b c", ""]  # the longest of the split
    table = draw("growing", run, run)
    assert [row[1:] for row in table.rows[2:]] == 2 * [drawn.rows[-1][1:]]
    assert [row[0] for row in table.rows[2:]] == 2 * [f"Transformer {run.path.name}"]
    with pytest.raises(ConfigError, match=r"no source 'c c': give --text and .* --target"):
        draw("growing", run, text="c c")
    assert len(draw("growing", run, text="a " * 40, target="A").rows) == 2 + 24


def test_words_that_are_not_in_a_reference_have_brackets() -> None:
    assert bracketed(["A", "x", "y", "C"], ["A", "B", "C"]) == "A [x y] C"


def test_words_match_a_reference_in_its_order() -> None:
    assert in_order(["A", "x", "C"], ["A", "B", "C"]) == [1, 0, 1]
    assert sum(in_order(["C", "A"], ["A", "B", "C"])) == 1
    assert in_order([], ["A"]) == []


def test_curves_are_those_of_the_log(run: Run) -> None:
    view = draw("curves", run, run)
    by_name = {panel.up: panel for panel in view.panels}
    trained = [line for line in read(run.path) if line["event"] == "train"]
    assert by_name["objective (with label smoothing, if any)"].x.tolist() == [1, 2, 3, 4]
    objective = by_name["objective (with label smoothing, if any)"].arrays()["run"]
    close(objective, [line["loss"] for line in trained])
    assert by_name["bleu, validation"].x.tolist() == [2, 4]
    assert by_name["gradient norm"].log == "y"
    minutes = draw("curves", run, across="time").panels[0]
    close(minutes.x, [line["seconds"] / 60 for line in trained])


def test_runs_of_other_steps_share_an_axis() -> None:
    logs: dict[str, list[Line]] = {
        "a": [{"event": "train", "step": n, "lr": float(n)} for n in (1, 3, 5)],
        "b": [{"event": "train", "step": n, "lr": None if n == 4 else 0.5} for n in (2, 4)],
    }
    shown = panel(logs, "train", "lr")
    assert shown.x.tolist() == [1, 2, 3, 4, 5]
    close(shown.arrays()["a"], [1, 2, 3, 4, 5])
    np.testing.assert_array_equal(shown.arrays()["b"], [np.nan, 0.5, np.nan, np.nan, np.nan])
    long = {"a": [{"event": "train", "step": n, "lr": n / 2} for n in range(5000)]}
    assert len(panel(long, "train", "lr").x) == 1000
    close(panel(long, "train", "lr").arrays()["a"][-1], 4999 / 2)


def test_the_moving_mean_of_what_stays_is_itself() -> None:
    close(smoothed(np.array([2.0, np.nan, 2.0, 2.0])), 2)
    fade = np.exp(-50 / 2)
    close(smoothed(np.array([1.0, 0.0])), [1 / (1 + fade), fade / (1 + fade)])


def test_a_smoothed_line_does_not_lag() -> None:
    falling = np.linspace(5, 1, 400)
    assert np.abs(smoothed(falling) - falling)[100:-100].max() < 1e-4
    logs: dict[str, list[Line]] = {
        name: [{"event": "train", "step": n, "loss": 1.0} for n in range(60)] for name in "ab"
    }
    curves = panel(logs, "train", "loss").curves
    shown = [(c.name, c.hue, c.faint) for c in curves[2:]]
    assert shown == [("b", 1, True), ("b, smoothed", 1, False)]
    assert panel(logs, "train", "loss").looks() == [(0, 0), (0, 0), (1, 0), (1, 1)]


def test_health_is_what_was_logged(run: Run) -> None:
    logged = [line for line in read(run.path) if line["event"] == "health"]
    assert [line["step"] for line in logged] == [2, 4]
    gradient, ratio = draw("health", run).sheets
    assert "decoder.layers.1" in gradient.rows and "encoder.stem" in gradient.rows
    for sheet, name, zero in ((gradient, "gradient", 0), (ratio, "ratio", 3)):
        want = [[np.log10(line[name][module]) + zero for line in logged] for module in sheet.rows]
        close(sheet.values.array, want)
