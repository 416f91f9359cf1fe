"""Views: the registry, what they refuse, what the run itself says of texts, and its inside."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import foveate.look.views.text as texts
from copier import copier
from foveate.cli import app
from foveate.cli.looking import verb
from foveate.config import ConfigError
from foveate.data.tokenizer import EOS
from foveate.errors import UserError
from foveate.look.draw.analyses import lens
from foveate.look.draw.colors import Hue
from foveate.look.draw.maps import AttentionDrawing
from foveate.look.perturbations import importance
from foveate.look.relevance import rollout
from foveate.look.views import VIEWS, ViewEntry, find
from foveate.look.views.options import Question
from foveate.look.views.series import NAMES, place_errors
from foveate.look.views.training import panel, smoothed
from foveate.run import Run, passes
from foveate.tasks.metrics import bleu, chrf, interval
from foveate.tasks.objectives import CrossEntropy
from foveate.tasks.teacher_forcing import OwnOutput, tokens_of
from foveate.train.journal import Line, read
from small_runs import invoked, made
from tolerances import MODEL, close, differ, near

# ---- The registry of views: every one is found, says what it does, and refuses what does not fit
PAIR = {"text": "a b c", "target": "A B C"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return copier(tmp_path_factory.mktemp("copier"))


def draw(name: str, *runs: Run, **requests: Any) -> Any:
    return find(name).draw(runs, Question(**requests))


@pytest.mark.parametrize("entry", VIEWS.values(), ids=lambda entry: entry.name)
def test_an_entry_is_whole(entry: ViewEntry) -> None:
    assert set(entry.reads) <= set(Question.model_fields)
    assert entry.spec.by_place in ("", *entry.reads)
    assert entry.summary.endswith(".") and len(entry.summary) <= 64
    assert {*entry.reads, "runs", "out", "checkpoint"} == {p.name for p in verb(entry).params}


def test_every_field_of_the_question_is_read_by_a_view_and_described() -> None:
    assert {name for entry in VIEWS.values() for name in entry.reads} == {*Question.model_fields}
    assert all(field.description for field in Question.model_fields.values())


def test_help_and_the_docs_list_every_view() -> None:
    text = CliRunner().invoke(app, ["look", "--help"]).output
    assert [name for name in VIEWS if not re.search(rf"^  {name} ", text, re.M)] == []
    page = (Path(__file__).parent.parent / "docs" / "guide" / "looking.md").read_text("utf-8")
    named = re.findall(r"^\| `(\w+)` \| [^|]*\?", page, re.MULTILINE)  # with its question
    assert set(named) == VIEWS.keys()


@pytest.mark.parametrize(
    ("name", "of", "asked", "reason"),
    [
        ("atention", ["rnn"], {}, "did you mean 'attention'"),
        ("attention", ["rnn", "rnn"], {}, "needs 1 run, not 2"),
        ("attention", ["rnn"], {"text": "a b", "block": "middle"}, "no block 'middle' here"),
        ("attention", ["rnn"], {"scale": "rows"}, "scale"),
        ("attention", ["transformer"], {"text": "a b", "silence": ("layers.7",)},
         r"no attention is called 'layers.7'; there are: encoder"),
        ("gates", ["transformer"], {}, "no recurrent cells"),
        ("states", ["transformer"], {"text": "a b"}, "its model has no recurrent cells"),
        ("surface", ["transformer"], {"text": "a b", "steps": 4}, "give an odd number"),
        ("exposure", ["classifier"], {}, "does not read its own output"),
        ("exposure", ["forecaster"], {}, "does not read its own output"),
        ("beam", ["classifier"], {"text": "a"}, "does not write text"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_its_reason(runs, name, of, asked, reason) -> None:
    with pytest.raises(UserError, match=reason):
        find(name).draw([runs[each] for each in of], Question.parse(asked))


def test_needs_say_why_not() -> None:
    task = SimpleNamespace(kind="other")
    parts = {"model": nn.Linear(2, 2), "task": task, "config": SimpleNamespace(task=task)}
    empty: Any = SimpleNamespace(**parts, path=Path("none"))
    for need in {need for entry in VIEWS.values() for need in entry.spec.needs}:
        reason = need(empty)
        assert reason is not None and not reason.endswith("."), need


def test_without_a_text_the_last_validation_has_one(run: Run) -> None:
    view = draw("attention", run, target="A B")
    assert (view.columns, view.rows) == (["a", "b", "c", "</s>"], ["A", "B", "</s>"])
    assert view.scale == "absolute"  # an even row is not drawn as a sharp one


def test_the_verb_asks_what_its_options_say(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "m.json"
    words = ["look", "attention", run.path, "--text", "a b", "--layer", "0"]
    invoked(*words, "--head", "1", "--out", out, "--out", f"{out}.txt")
    text = out.read_text("utf-8")
    assert '"map": "decoder.layers.0.cross_attention"' in text and '"head": 1' in text
    call = invoked("look", "positions", run.path, "--length", "8")
    assert "Positions: sinusoidal" in call.output


# ---- Exposure bias: errors after the truth and after a model's own output; training on the latter
OBJECTIVE = """
[objective]
{more}teacher_forcing = {{ kind = "{kind}" }}
"""
LINEAR = 'scheduled", schedule = { kind = "linear", slope = 0.02, floor = 0.2 }, choose = "greedy'
FAMILIES = ("language", "captioner", "rnn_forecaster")


@pytest.mark.parametrize("kind", ["own", LINEAR], ids=["own", "scheduled"])
@pytest.mark.parametrize("name", FAMILIES)
def test_what_reads_its_own_output_learns(name: str, kind: str, tmp_path: Path) -> None:
    more = 'kind = "squared_error"\n' if name == "rnn_forecaster" else ""
    run = made(tmp_path, [name], steps=60, more=OBJECTIVE.format(more=more, kind=kind))[name]
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


def test_forced_errors_are_the_loss_of_a_translator(run: Run) -> None:
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
        says = run.model(batch.source, free).argmax(-1)[0]
        hits[: len(ids) + 1] += (says == batch.targets[0]).numpy()
    assert errors.free["accuracy"] * errors.counts == near(hits, MODEL)


# ---- The views of texts show what the run itself says: scores, weights, outputs, figures
def test_every_view_of_attention_shows_tokens_or_words(tmp_path: Path) -> None:
    made = copier(tmp_path, tokenizer="character")
    tokens, words = ["a", "␣", "b", "</s>"], ["a", "b", "</s>"]
    options = ["--text=a b", "--target=A B", "--block=cross_attention"]
    for view in ("attention", "links", "heads", "rollout", "relevance"):
        for flags, columns in ((["--tokens"], tokens), (["--words"], words), ([], tokens)):
            out = tmp_path / "drawn.json"
            invoked("look", view, made.path, *options, *flags, "--out", out)
            arrays = json.loads(out.read_text("utf-8"))
            assert arrays.get("columns", arrays.get("labels")) == columns, view
    [answer] = made.translate(["a b"])
    for units, columns in ((None, tokens), ("words", words)):
        record = answer.record(units=units) if units else answer.record()
        assert record.axes("decoder.layers.0.cross_attention")[1] == columns


def test_probabilities_are_those_of_scoring(run: Run) -> None:
    [scored] = run.score([("a b c", "A B C")])
    for top, count in ((3, 4), (10_000, None)):
        view = draw("probabilities", run, **PAIR, top=top)
        arrays = view.arrays()
        assert arrays["words"].tolist() == ["A", "B", "C", "</s>"]
        close(np.log(arrays["values"]), scored.token_log_probabilities, terms=MODEL)
        p = arrays["p"]
        assert count in (None, p.shape[1]) and (np.diff(p[:, :3], axis=1) <= 0).all()
        close(p.sum(axis=1), 1)  # with that of any other token
    nats = -(p * np.log(p)).sum(axis=1)  # as log p
    assert [word.note for word in view.words] == [f"entropy {h:.1f} nats" for h in nats]
    answer = draw("probabilities", run, text="a b").arrays()["values"]  # without a target
    ids = run.translate(["a b"])[0].outputs[0].ids
    [expected] = run.task.force(run.model, [(run.task.source_tokenizer.encode("a b").ids, ids)])
    close(np.log(answer), expected, terms=MODEL)


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


def test_words_are_compared_with_a_reference_in_its_order() -> None:
    before = ["the", "cat", "sat", "on", "a", "mat"]
    after = ["the", "dog", "sat", "on", "mat", "today"]
    assert list(texts.differences(before, after)) == ["cat → dog", "−a", "+today"]
    assert list(texts.differences(before, before)) == []
    assert texts.bracketed(["A", "x", "y", "C"], ["A", "B", "C"]) == "A [x y] C"
    for output, right in ((["A", "x", "C"], [1, 0, 1]), ([], [])):
        assert texts.in_order(output, ["A", "B", "C"]) == right
    assert sum(texts.in_order(["C", "A"], ["A", "B", "C"])) == 1


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
    view = texts.by_length({"system": (sources, outputs, references)})
    with pytest.raises(ValueError, match="bleu, chrf"):  # a metric that has no interval
        interval("ter", ["a"], ["a"])
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
    assert [len(group) for group in texts.grouped(["a"] * 2 + ["a " * 60])] == [2, 0, 0, 0, 0, 1]
    with pytest.raises(ConfigError, match="20 sources, 19 outputs, 20 references"):
        texts.by_length({"system": (sources, outputs[1:], references)})


# ---- training
def test_a_growing_source_is_compared_with_its_reference(run: Run) -> None:
    drawn = draw("growing", run, text="a b c")
    assert [row[:2] for row in drawn.rows[:2]] == [["source", "a b c"], ["reference", "A B C"]]
    for (name, shown, right), text in zip(drawn.rows[2:], ("a", "a b", "a b c"), strict=True):
        output = str(run.translate([text])[0]).split()
        assert name == f"… {text[-1]}" and shown == texts.bracketed(output, ["A", "B", "C"])
        assert right == f"{sum(texts.in_order(output, ['A', 'B', 'C'])):.0f} of 3"
    assert draw("growing", run).rows[0] == ["source", "a b c", ""]  # the longest of the split
    nodes = {node.name: node for node in draw("growing", run, run).nodes}
    titles = [nodes[f"text {row}"].texts for row in range(4)]
    one = ["Transformer", run.path.name, f"{drawn.rows[-1][2]} right"]
    assert titles == [["source"], ["reference"], one, one]
    output = str(run.translate(["a b c"])[0]).split()
    hues = [nodes[f"text 2 word {k}"].hue for k in range(len(output))]
    assert hues == [Hue.LAYER if right else 1 for right in texts.in_order(output, ["A", "B", "C"])]
    with pytest.raises(ConfigError, match=r"no source 'c c': give --text and .* --target"):
        draw("growing", run, text="c c")
    assert len(draw("growing", run, text="a " * 40, target="A").rows) == 2 + 24


def test_curves_are_those_of_the_log(run: Run) -> None:
    view = draw("curves", run, run)
    by_name = {panel.up: panel for panel in view.panels}
    trained = [line for line in read(run.path) if line["event"] == "train"]
    objective = by_name["objective (with label smoothing, if any)"]
    assert objective.x.tolist() == [1, 2, 3, 4]
    close(objective.arrays()["run"], [line["loss"] for line in trained])
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


# ---- The inside of a run: what is drawn is what `foveate.look` says of the right example
ASKED = {"text": "b a", "target": "B A"}


def forced(run: Run) -> Any:
    return passes.forced(run.task, run.model, "b a", "B A")


def test_flow_is_drawn_over_the_words(run: Run) -> None:
    view = draw("rollout", run, **ASKED)
    assert np.array_equal(view.array, rollout(forced(run)).select("cross_attention"))
    assert (view.rows, view.columns) == (["B", "A", "</s>"], ["b", "a", "</s>"])
    assert draw("rollout", run, **ASKED, block="decoder.self_attention").columns == [
        "<s>",
        "B",
        "A",
    ]


def test_ablation_and_lens_are_of_the_example(run: Run) -> None:
    lost, record = importance([forced(run)], "cross_attention"), forced(run).record()
    arrays = draw("ablation", run, **ASKED, block="cross_attention").arrays()
    worth = np.stack([*lost.values()])
    largest = np.stack([record.drawn(name).max(axis=-1).mean(axis=-1) for name in lost])
    for (title, values), of in zip(arrays.items(), (largest, worth), strict=True):
        layer, head = np.unravel_index(of.argmax(), of.shape)
        assert np.array_equal(values, record.drawn([*lost][layer])[head])
        assert f"{abs(worth[layer, head]):.2f}" in title
    result = draw("lens", run, **ASKED).arrays()
    assert np.array_equal(result["p"], lens(forced(run)).values.array)
    assert result["produced"].tolist() == ["B", "A", "</s>"]


def test_silent_heads_are_silent_in_every_view_and_then_speak_again(run: Run) -> None:
    plain = draw("attention", run, **ASKED).arrays()["weights"]
    silent: dict[str, Any] = ASKED | {"silence": ("layers.1.cross_attention",)}
    shown = draw("attention", run, **silent)
    assert not shown.arrays()["weights"].any() and "silenced" in shown.caption
    assert not draw("links", run, **silent).figure().axes[0].lines
    kinds = draw("heads", run, **silent).kinds
    assert set(kinds["decoder.layers.1.cross_attention"]) == {"silenced"}
    p, changed = (draw("lens", run, **asked).arrays()["p"] for asked in (ASKED, silent))
    assert differ(changed, p)
    assert np.array_equal(draw("attention", run, **ASKED).arrays()["weights"], plain)


def test_the_surface_has_the_model_in_the_middle(run: Run) -> None:
    [sheet, *_] = draw("surface", run, run, **ASKED, steps=3).sheets
    assert f"middle {-forced(run).scores().mean():.3g}" in sheet.scale_label
    assert np.isfinite(sheet.values.array).all()


def test_gates_and_states_of_a_translator_are_over_what_each_cell_reads(runs) -> None:
    seen: list[Any] = []
    for layer in (-1, 0):  # of the decoder, of the encoder
        asked: Any = {"text": "the dog runs", "target": "le chien court", "layer": layer}
        drawn, along = (draw(name, runs["rnn"], **asked) for name in ("gates", "states"))
        assert all((gate > 0).all() and (gate < 1).all() for gate in drawn.arrays().values())
        assert list(drawn.sheets[0].columns) == list(along.labels)
        seen.append(list(along.labels))
    assert seen[0][0] == "<s>" and len(seen[0]) == 4
    assert seen[1][:3] == ["the", "dog", "runs"]


# ---- Runs that write, watched: tokens in a row are the text, whatever the tokenizer
def test_bytes_of_a_character_are_one_part(runs: dict[str, Run]) -> None:
    language = texts.Watched(runs["language"]).task
    ids = language.prefix_ids("é\n🙂a")
    parts = language.token_texts(ids)
    assert len(parts) == len(ids) == 8
    assert "".join(parts) == "é\n🙂a" == language.text_of(ids)
    assert sorted(parts, reverse=True)[:4] == ["🙂", "é", "a", "\n"]
    assert language.token_text(ids[:2], EOS) == "⏎"
    assert language.token_text([], ids[-1]) == "a"


def test_what_is_watched_is_what_is_written(runs: dict[str, Run]) -> None:
    watched = texts.Watched(runs["transformer"])
    search = watched.task.search_config(watched.run.config.decode, "beam", beam_size=3).build()
    result = watched.write("the dog runs", search)
    [expected] = runs["transformer"].translate(["the dog runs"], beam_size=3, num_hypotheses=3)
    assert [item.text for item in result] == expected.hypotheses
    assert [item.score for item in result] == pytest.approx(expected.scores)
    names = [watched.name(item) for item in result[0].path if item.token != EOS]
    assert "".join(names) == result[0].text
    messages = watched.instead(result[0].path[0])
    assert len(messages[0].tokens) == len(messages[1]) == 8


@pytest.mark.parametrize("name", ["transformer", "language"])
def test_the_beam_of_a_run_begins_and_ends_with_its_best(runs, name: str) -> None:
    arrays = draw("beam", runs[name], text="the dog", beam_size=3).arrays()
    assert (arrays["state"][arrays["id"] == arrays["best"][-1]] == "done").all()
    assert arrays["step"][arrays["id"] == arrays["best"][0]] == 0
