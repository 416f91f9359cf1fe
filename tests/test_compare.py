"""Models side by side: equal budgets, paired tests, growth, one page; and the lecture's lineage."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU

from foveate.data.series import labels
from foveate.data.text import Corpus, TextData
from foveate.errors import ConfigError
from foveate.measure import comparison
from foveate.measure import lineage as lineages
from foveate.measure.budget import Budget, ComparisonPlan, Contender, fitting, planned
from foveate.measure.comparison import Comparison
from foveate.measure.lineage import lineage
from foveate.measure.quality import lengths_of_texts, of_forecasts, slope_verdict
from foveate.measure.training import mute, workload
from foveate.measure.training import train as measured_steps
from foveate.run.evaluation import Evaluation, examples
from foveate.run.training import train
from foveate.tasks.forecasting import Forecasting
from foveate.tasks.metrics import paired_means, paired_texts, slope
from foveate.train.config import resolve
from foveate.train.journal import read
from small_runs import CONFIGS, MORE, Call, config_file, write_data


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    write_data(tmp_path)
    for name, text in CONFIGS.items():
        config_file(tmp_path, text, 400, name=name)
    return tmp_path


def compared(call: Call, folder: Path, *arguments: object) -> dict[str, Any]:
    result = call("compare", *arguments, "--out", folder / "page.html")
    assert result.code == 0, result.err
    return json.loads((folder / "page.json").read_text("utf-8"))


def test_translators_are_trained_equally_and_drawn_on_one_page(configs: Path, call: Call) -> None:
    paths = configs / "rnn.toml", configs / "transformer.toml"
    tree = compared(call, configs, *paths, "--tokens", 1200, "train.optimizer.lr=0.02")
    assert tree["models"] == ["rnn", "transformer"]
    assert tree["terms"]["budget"].startswith("1,200 target tokens")
    training = tree["chapters"]["Quality"]["Training"]
    assert training["target tokens"][0] == training["target tokens"][1] >= 1200
    quality = tree["chapters"]["Quality"]["Quality"]
    assert quality["figure"][:4] == ["BLEU", "BLEU", "chrF", "chrF"]
    assert quality["p bootstrap"][0] == "the first" != quality["p bootstrap"][3]
    example = tree["chapters"]["One example"]
    assert any(title.startswith("transformer: ") for title in example)  # its attention
    page = (configs / "page.html").read_text("utf-8")
    assert '"form":"matrix"' in page and '"blocks":[]' not in page
    assert "default-src 'none'" in page and "Terms" in page

    def steps() -> list[int]:
        lines = read(configs / "page-runs" / "rnn")
        return [line["step"] for line in lines if line["event"] == "train"]

    before = steps()
    compared(call, configs, *paths, "--tokens", 1200, "train.optimizer.lr=0.02")  # goes on
    assert steps() == before


def test_a_trained_run_keeps_its_budget_and_scores_are_per_word(configs, call) -> None:
    limits = ["train.max_steps=12", "train.validation.every=6"]
    train(configs / "rnn.toml", limits, configs / "old")
    train(configs / "rnn.toml", [*limits, "task.tokenizer={kind=character}"], configs / "letters")
    tree = compared(call, configs, configs / "old", configs / "letters", "--steps", 12)
    assert "loss (nats a word)" in tree["chapters"]["Quality"]["Quality"]["figure"]
    terms = tree["terms"]
    assert "trained before" in terms["old"] and "per word" in terms["measured"]
    assert terms["letters differs"] == "it was trained with another task.tokenizer"


@pytest.mark.parametrize(
    ("name", "change", "figure"),
    [
        ("language", "model.decoder.hidden_size=24", "perplexity a token"),
        ("classifier", "model.encoder.num_layers=2", "accuracy, %"),
        ("forecaster", "model.encoder.num_layers=2", "mse (scaled values)"),
    ],
)
def test_other_tasks_have_figures_of_their_own(configs, call, name, change, figure) -> None:
    for run, overrides in (("a", []), ("b", [change])):
        limits = ["train.max_steps=10", "train.validation.every=10"]
        limits += ["model.tie=none"] * (name == "language")
        train(configs / f"{name}.toml", limits + overrides, configs / run)
    tree = compared(call, configs, configs / "a", configs / "b", "--steps", 10)
    assert figure in tree["chapters"]["Quality"]["Quality"]["figure"]
    assert "Losses" in tree["chapters"]


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("rnn", ["train.accumulate=2"]),
        ("prefix", []),
        ("language", ["task.context=48"]),
        ("captioner", ["train.batch_tokens=24"]),
    ],
)
def test_a_budget_of_tokens_is_of_those_that_the_loss_counts(configs, name, overrides) -> None:
    """Neither sources nor a context are: trained for so many steps, a model has seen the tokens."""
    texts = {n: (CONFIGS | MORE)[n] for n in ("rnn", "language", "captioner")}
    parts = (texts["rnn"].split("[model]")[0], texts["language"].split("[model]")[1])
    texts["prefix"] = "[model]".join(parts).replace('"translation"', '"prefix_translation"')
    text = texts[name].replace('"byte"', '"character"')
    with workload(str(config_file(configs, text, 9, name=name)), overrides) as work:
        steps = fitting(name, work, Budget(tokens=3000))
        lines = measured_steps(work, work.model(), resolve("fp32"), steps=steps)
    seen = [line["target_tokens"] for line in lines]
    assert seen[-1] >= 3000 > seen[int(len(seen) / 1.02) - 2]


def forecaster(folder: Path, name: str, **fields: Any) -> Contender:
    """A model of a series with a gap among the test rows, whose error is decided by the row."""
    rows = [n for n in range(150) if n != 130]
    lines = [f"{np.datetime64('2000-01-01') + n},{n % 7},{n % 3}\n" for n in rows]
    (folder / "days.csv").write_text("date,a,b\n" + "".join(lines), "utf-8")
    series = {"path": str(folder / "days.csv"), "gaps": "split"} | fields.get("series", {})
    tree = {"horizon": 3} | fields | {"series": series}
    task = Forecasting.Config.parse(tree).build(TextData())
    task.prepare(folder, 0)
    windows = examples(task, "test")
    firsts = (windows.starts + windows.look_back).tolist()
    dates = labels(windows.first_dates(), windows.table.dates)
    outputs = [f"{date}\tmse {row % 11}" for date, row in zip(dates, firsts, strict=True)]
    curves = {"forecast": [1.0] * task.config.horizon}
    evaluation = Evaluation({"mse": 1.0}, {}, outputs, curves=curves)
    run = SimpleNamespace(evaluate=lambda split: evaluation, need=lambda *_: task)
    return Contender(name, run, before=True)


def test_errors_of_the_same_windows_are_paired(tmp_path: Path) -> None:
    """A longer look-back has fewer windows around a gap; those that both have are compared."""
    models = [forecaster(tmp_path, name, look_back=n) for name, n in (("a", 4), ("b", 9))]
    quality = of_forecasts(models, mute, "test")
    a, b = quality.figures["mse (scaled values)"]
    assert a.value == b.value and b.bootstrap == b.randomisation == 1.0
    # 27 starts in 29 rows, less those whose 4 + 3 or 9 + 3 rows span the gap
    counts = "16 windows of test, resampled as if independent; the models forecast 21, 16"
    assert quality.notes == [counts]


@pytest.mark.parametrize("change", [{"horizon": 5}, {"series": {"shares": [0.5, 0.3, 0.2]}}])
def test_other_horizons_or_scales_are_not_tested(tmp_path: Path, change: dict[str, Any]) -> None:
    """Values are scaled by the training rows, which other shares change."""
    changes = {"a": {}, "b": change}
    models = [forecaster(tmp_path, n, look_back=4, **fields) for n, fields in changes.items()]
    quality = of_forecasts(models, mute, "test")
    assert not quality.figures and "no paired tests" in quality.notes[0]
    table, curves = (drawing.arrays() for drawing in quality.drawings)
    assert table["mse"].tolist() == [1.0, 1.0]
    assert np.isfinite(curves["b"]).sum() == change.get("horizon", 3)  # none of it is cut


def test_masked_language_is_compared_on_the_texts_of_the_first(configs: Path, call: Call) -> None:
    """Two runs of the same training guess the same words, whatever data each has of its own."""
    config = config_file(configs, MORE["masked"], 10)
    for name in ("a", "b"):
        train(config, [], configs / name)
    for split in ("train", "valid", "test"):
        (configs / f"new.{split}.tsv").write_text("the man sings a cat\tx\n", "utf-8")
    new = configs / "new.{split}.tsv"
    for data in ([], ["--data", new]):
        tree = compared(call, configs, configs / "a", configs / "b", "--steps", 10, *data)
        table = tree["chapters"]["Quality"]["Quality"]
        assert table["loss"][0] == table["loss"][1]
    assert tree["terms"]["measured"] == "no paired tests for this task; 1 texts"
    assert "on data other than --data" in tree["terms"]["a differs"]


def test_what_cannot_be_compared_is_one_sentence(configs: Path, call: Call) -> None:
    rnn, transformer = configs / "rnn.toml", configs / "transformer.toml"
    for arguments, message in (
        ((rnn,), "a comparison needs at least two models"),
        ((rnn, transformer, "--steps", 20, "--minutes", 1), "give one budget"),
        ((rnn, transformer, "--steps", 3), "give a larger budget"),
        ((rnn, transformer, "--minutes", 0.0001), "give a larger budget"),
        ((rnn, configs / "classifier.toml", "--steps", 20), "compare models of one task"),
        ((rnn, transformer, "--data", "a", "--data", "b", "--data", "c"), "has source and target"),
    ):
        result = call("compare", *arguments, "--out", configs / "page.html")
        assert result.code == 2 and message in result.err and "Traceback" not in result.err


def test_without_a_budget_each_model_has_as_many_steps(configs, call, monkeypatch) -> None:
    def refuse(plan: ComparisonPlan, budget: Budget, *_: object) -> Comparison:
        raise ConfigError(f"{len(plan.names)} models, {budget}")

    monkeypatch.setattr(comparison, "compare", refuse)
    result = call("compare", configs / "rnn.toml", configs / "transformer.toml")
    assert "2 models, 1,000 steps" in result.err


def test_the_first_config_sets_the_terms(configs: Path) -> None:
    paths = [configs / "rnn.toml", configs / "transformer.toml"]
    assert planned(paths, [], []).notes == {}
    text = paths[1].read_text("utf-8").replace("batch_tokens = 256", "batch_tokens = 99")
    paths[1].write_text(text.replace("min_frequency = 1", "min_frequency = 2"), "utf-8")
    plan = planned(paths, [], ["other.tsv"])
    changes = "task.source, task.tokenizer, train.batch_tokens: as in rnn"
    assert plan.notes == {"changed in transformer": changes}
    assert {config.task.tree()["source"] for config in plan.configs.values()} == {"other.tsv"}


def test_paired_tests_and_slopes() -> None:
    random = np.random.default_rng(0)
    first = random.random(300)
    same, near, far = paired_means([first, first + 0, first + 0.05], np.ones(300))
    assert same.bootstrap is None and near.bootstrap == near.randomisation == 1.0
    assert far.value == pytest.approx(same.value + 0.05) and far.randomisation == 1 / 1001
    assert same.low < same.value < same.high
    texts = [f"the {n} dogs run to the house" for n in range(40)]
    worse = [text.replace("house", "cat") for text in texts]
    figures = paired_texts({"a": texts, "b": texts, "c": worse}, texts, "bleu")
    assert figures["b"].bootstrap == 1.0 and figures["c"].bootstrap == pytest.approx(1 / 1001)
    b, low, high = slope(np.arange(50.0), 3 - 2 * np.arange(50.0) + random.normal(size=50))
    assert low < -2 < high and b == pytest.approx(-2, abs=0.05)
    falls, level, less = (-5.0, -6.0, -4.0), (-0.2, -0.5, 0.1), (4.8, 3.9, 5.7)
    assert slope_verdict(falls, None, "a") == "falls"
    assert slope_verdict(level, less, "a") == "neither falls nor rises, less steep than a"
    assert slope_verdict(falls, level, "a") == "falls, not distinguishable from a"
    assert slope_verdict(less, falls, "a") == "rises, steeper than a"


@pytest.mark.parametrize(("named", "cut"), [(None, "zh"), ("char", "char")])
def test_slopes_are_of_the_bleu_of_the_page(named: str | None, cut: Literal["zh", "char"]) -> None:
    """Its words are cut as the references' script decides, or as the first model's task says."""
    outputs = ["我今天很高兴看到你2024年。", "他们在公园里玩足球。", "我们回家了。"] * 8
    references = ["我今天很高兴见到你2024年。", "他们在公园里玩球。", "我们回家了。"] * 8
    sources = ["I am glad to see you today", "they play ball", "home"] * 8
    corpus = Corpus(sources, references, range(24))
    settings = SimpleNamespace(bleu_tokenizer=named)
    run = SimpleNamespace(need=lambda *_: SimpleNamespace(config=settings))
    drawings, _ = lengths_of_texts([SimpleNamespace(name="a", run=run)], corpus, {"a": outputs})
    metric = BLEU(tokenize=cut, effective_order=True)
    pairs = zip(outputs, references, strict=True)
    scores = np.array([metric.sentence_score(o, [r]).score for o, r in pairs])
    expected = slope(np.array([0.7, 0.3, 0.1] * 8), scores)[0]
    table = next(d for d in drawings if d.title == "Slope over length").arrays()
    assert table["per 10 words"][0] == pytest.approx(expected) != 0


def test_the_lineage_is_paired_of_models(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(lineages, "SENTENCES", 10_000)
    plan, budget = lineage(tmp_path)
    assert plan.names[0] == "no-attention" and "transformer" in plan.names
    assert budget.tokens and not plan.notes
    with pytest.raises(ConfigError, match="no model 'rnn'; there are: no-attention, location"):
        lineage(tmp_path, ["rnn"])
    every = ["location", "luong-dot", "luong-general", "luong-concat", "bahdanau", "mamba"]
    plan, _ = lineage(tmp_path, every, ["task.tokenizer={kind=word, min_frequency=2}"])
    assert plan.names == every
    lines = (tmp_path / "data/test.en").read_text("utf-8").splitlines()
    assert max(len(line.split()) for line in lines) > 35
    sentences = [
        {s.strip() for s in re.split(r"(?<=[.?!]) ", text.replace("\n", " "))}
        for text in ((tmp_path / f"data/{n}.en").read_text("utf-8") for n in ("train", "test"))
    ]
    assert not set.intersection(*sentences) - {""}
    assert sum("closes" in each for each in sentences[0]) > 1  # a rare word, of the lectures
    for config in plan.configs.values():
        task = config.task.build(config.data)
        task.prepare(tmp_path, config.seed)
        assert sum(p.numel() for p in task.build(config.model).parameters()) < 2_000_000
