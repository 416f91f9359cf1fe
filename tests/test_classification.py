"""Text classification on small files of our own: labels, batches, figures, answers, looking."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foveate.cli.answers import classify, evaluation_text
from foveate.config import ConfigError
from foveate.data.catalogue import DataError
from foveate.data.text import CUT, SKIPPED, TextData
from foveate.data.tokenizer import BOS, BPE, EOS, UNK, Character, WordTokenizer
from foveate.decode.engine import SearchRequest
from foveate.decode.search import Greedy
from foveate.engine.answers import probabilities_of
from foveate.models.classic import BagEncoder
from foveate.models.classifier import Attentive, Classifier, Max
from foveate.models.recurrent import RecurrentEncoder
from foveate.models.transformer import TransformerEncoder
from foveate.run import Run, RunEngine
from foveate.run.answering import answer
from foveate.run.evaluation import Table, as_examples, evaluate, evaluation_of_labels, read_examples
from foveate.run.passes import forced
from foveate.run.training import train
from foveate.tasks.classification import (
    TextClassification,
    figures_of_labels,
    measures_of_labels,
    sorted_labels,
)
from foveate.tasks.engine import together
from foveate.tasks.objectives import CrossEntropy
from foveate.train import checkpoint
from small_runs import invoked, python
from task_tools import check_losses, fit, model_of
from tolerances import MODEL, ROW, close, near

GOOD = ["a warm and clever film", "we loved it", "what a joy", "clever , warm , loved by all"]
BAD = ["a dull and lifeless film", "we hated it", "what a bore", "dull , long , hated by all"]
TRAIN = [(text, "good") for text in GOOD] + [(text, "bad") for text in BAD]
VALID = [("a clever joy", "good"), ("a long bore", "bad"), ("we loved the unseen", "good")]
SMALL: dict[str, Any] = {"hidden_size": 16, "num_heads": 2, "num_layers": 1, "ffn_size": 16}
MODELS = {
    "cbow": Classifier.Config(encoder=BagEncoder.Config(embedding_size=12)),
    "recurrent": Classifier.Config(
        encoder=RecurrentEncoder.Config(embedding_size=12, hidden_size=12, bidirectional=True),
        pooling=Max.Config(),
    ),
    "transformer": Classifier.Config(
        encoder=TransformerEncoder.Config(**SMALL), pooling=Attentive.Config()
    ),
}
SEARCH = Greedy.Config().build()
each_model = pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)


def write(folder: Path, train: list[tuple[str, str]] | None = None) -> Path:
    for split, pairs in (("train", train or TRAIN), ("valid", VALID)):
        lines = "".join(f"{text}\t{label}\n" for text, label in pairs)
        (folder / f"{split}.tsv").write_text(lines, encoding="utf-8")
    return folder


def make(folder: Path, data: TextData | None = None, **fields: Any) -> TextClassification:
    words = WordTokenizer.Config(min_frequency=1)
    inputs = {"source": str(folder / "{split}.tsv"), "tokenizer": words}
    config = TextClassification.Config(**inputs | fields)
    task: TextClassification = config.build(data or TextData())
    return task


@pytest.fixture
def task(tmp_path: Path) -> TextClassification:
    made = make(write(tmp_path))
    made.prepare(tmp_path, seed=0)
    return made


def test_restored_is_prepared(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    before = make(write(tmp_path), tokenizer=BPE.Config(vocab_size=280))
    before.prepare(run, seed=0)
    (tmp_path / "train.tsv").unlink()  # a run is used without its training data
    after = make(tmp_path, tokenizer=BPE.Config(vocab_size=280))
    after.restore(run)
    assert after.label_names == before.label_names == ("bad", "good")
    assert after.tokenizer.pieces == before.tokenizer.pieces
    assert sorted_labels(["b", "10", "9", "a", "b", "B"]) == ("9", "10", "B", "a", "b")
    (run / "labels.json").write_text(json.dumps(["a"]))
    with pytest.raises(ValueError, match=r"labels\.json"):
        make(tmp_path).restore(run)


def test_labels_may_stand_in_a_file_of_their_own(tmp_path: Path) -> None:
    for name, column in (("text", 0), ("label", 1)):
        lines = "".join(pair[column] + "\n" for pair in TRAIN)
        with gzip.open(tmp_path / f"train.{name}.gz", "wt", encoding="utf-8") as file:
            file.write(lines)
    source, labels = (str(tmp_path / f"{{split}}.{name}") for name in ("text", "label"))
    task = make(tmp_path, source=source, labels=labels)
    task.prepare(tmp_path, seed=0)
    assert list(task.corpus("train").targets) == [label for _, label in TRAIN]
    folder = write(tmp_path)
    with (folder / "valid.tsv").open("a") as file:
        file.write("so so\tmiddling\n")
    with pytest.raises(DataError, match=r"valid\.tsv:4: the label 'middling'"):
        make(folder).prepare(folder, seed=0)  # it is met before training


def test_what_is_dropped_is_said(tmp_path: Path) -> None:
    pairs = [*TRAIN, ("", "bad"), ("x " * 30, "good"), TRAIN[0]]
    task = make(write(tmp_path, pairs), TextData(max_length=10, drop_duplicates=True))
    task.prepare(tmp_path, seed=0)
    output = "\n".join(task.describe_data())
    for said in ("labels bad: 4, good: 4", "empty text: 1", "duplicate pair: 1"):
        assert said in output
    assert "longer than max_length = 10: 1" in output and len(task.lengths("train")) == 8


def test_a_batch_is_its_texts_between_start_and_end(task: TextClassification) -> None:
    batch = task.batch("train", [1, 5, 0])
    ids = task.tokenizer.encode_ids(["we loved it", "we hated it"])
    assert batch.source[:2, :5].tolist() == [[BOS, *item, EOS] for item in ids]
    assert batch.targets.tolist() == [1, 0, 1]
    assert batch.source_mask is not None
    assert batch.source_mask.sum(dim=1).tolist() == task.lengths("train")[[1, 5, 0], 0].tolist()


def test_dropped_words_are_a_function_of_the_noise(tmp_path: Path) -> None:
    task = make(write(tmp_path), word_dropout=0.5)
    task.prepare(tmp_path, seed=0)

    def batch(*rows: int, noise: int, split: str = "train") -> torch.Tensor:
        return task.batch(split, rows, noise).source

    item = batch(0, 7, noise=3)
    assert torch.equal(item, batch(0, 7, noise=3))
    assert torch.equal(item[1:], batch(7, noise=3))  # whoever else stands in the batch
    assert not torch.equal(item, batch(0, 7, noise=4))
    assert bool((item == UNK).any())
    clean = batch(0, noise=0, split="valid")
    assert torch.equal(clean, batch(0, noise=9, split="valid"))


@each_model
def test_eight_texts_are_learnt_by_heart(task, config) -> None:
    model, objective = model_of(task, config), CrossEntropy.Config().build()
    assert check_losses(task, model, 8).count == 8
    fit(model, lambda _: task.loss(model, task.batch("train", range(8)), objective), 50)
    figures = task.measure(model, "train", SEARCH).figures
    assert figures["accuracy"] == figures["f1_macro"] == 100 and figures["loss"] < 0.3
    request = SearchRequest(SEARCH, batch_tokens=20)
    result = evaluate(task, RunEngine(task, model), task.corpus("train"), request)
    assert result.outputs == [label for _, label in TRAIN]


def test_an_ensemble_has_the_mean_of_p(task: TextClassification) -> None:
    models = [model_of(task, config) for config in list(MODELS.values())[:2]]
    pieces = task.pieces()
    assert sorted(pieces["output"]) == ["bad", "good"]
    both = together([pieces, pieces], models, ["a", "b"])
    alone, other, joint = (answers(task, model, GOOD) for model in (*models, both))
    for one, two, mean in zip(alone, other, joint, strict=True):
        for label, p in mean.probabilities.items():
            assert p == near((one.probabilities[label] + two.probabilities[label]) / 2)


def answers(task: TextClassification, model: Any, lines: list[str], batch_tokens: int = 8192):
    request = SearchRequest(SEARCH, batch_tokens=batch_tokens)
    return answer(task, RunEngine(task, model), lines, request)


@each_model
@pytest.mark.parametrize("budget", [1, 20, 4096])
def test_answers_come_in_order(task, config, budget) -> None:
    model, lines = model_of(task, config), ["a joy", "", GOOD[3], "  ", "unseen words", "bore"]
    result = answers(task, model, lines, budget)
    assert [item.source for item in result] == lines
    assert [item.label == "" for item in result] == [not line.strip() for line in lines]
    for line, item in zip(lines, result, strict=True):
        if line.strip():
            (alone,) = answers(task, model, [line])
            assert item.probabilities == near(alone.probabilities)
            assert item.label == max(item.probabilities, key=item.probabilities.__getitem__)
            assert sum(item.probabilities.values()) == pytest.approx(1)


def test_long_texts_are_cut_and_named(task: TextClassification, tmp_path: Path) -> None:
    short = make(tmp_path, TextData(max_length=3))
    short.restore(tmp_path)
    model = model_of(short, MODELS["transformer"])
    result = answers(short, model, ["a joy", "clever , warm , loved by all"])
    assert [item.cut for item in result] == [0, 4]
    texts = as_examples(short, ["a", GOOD[3]], ["good", "good"])
    evaluation = evaluate(short, RunEngine(short, model), texts, SearchRequest(SEARCH))
    assert evaluation.noted == {CUT: [2]}
    with pytest.raises(ValueError, match="2 texts but 1 labels"):
        as_examples(short, ["a", "b"], ["good"])
    with pytest.raises(DataError, match="example:1: the label 'x'"):
        as_examples(short, ["a"], ["x"])


def test_files_of_the_user_are_read(task: TextClassification, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("a joy\n")
    (tmp_path / "mine.label").write_text("good \n")
    assert read_examples(task, tmp_path / "mine.txt", tmp_path / "mine.label").targets == ["good"]
    mine = tmp_path / "mine.tsv"
    for text, message in (("a joy\tgood\nbore\tawful\n", r":2: the label 'awful'"), ("", "empty")):
        mine.write_text(text)
        with pytest.raises(DataError, match=rf"mine\.tsv.*{message}"):
            read_examples(task, mine)
    skipping = make(tmp_path, TextData(on_bad_line="skip", max_length=3))
    skipping.restore(tmp_path)
    engine = RunEngine(skipping, model_of(skipping, MODELS["cbow"]))
    mine.write_text(f"a joy\tgood\nbore\n{GOOD[3]}\tgood\na\tbad\tx\n")
    evaluation = evaluate(skipping, engine, read_examples(skipping, mine), SearchRequest(SEARCH))
    assert len(evaluation.outputs) == 2
    assert evaluation.noted == {CUT: [3], SKIPPED: [2, 4]}


@pytest.mark.parametrize("tokenizer", [Character.Config(), BPE.Config(vocab_size=280)])
def test_an_explanation_speaks_in_words(tmp_path: Path, tokenizer: Any) -> None:
    task = make(write(tmp_path), tokenizer=tokenizer)
    task.prepare(tmp_path, seed=0)
    record = forced(task, model_of(task, MODELS["transformer"]), "a warm film !", units="words")
    record = record.record()
    words = ["<s>", "a", "warm", "film", "!", "</s>"]
    own = "encoder.layers.0.self_attention"
    assert list(record.maps) == [own, "pooling.attention"]
    assert record.axes(own) == (words, words) and record.row_means(own) == "at"
    rows, columns = record.axes("pooling.attention")
    assert columns == words and rows in (["good"], ["bad"])
    for weights in record.maps.values():
        close(weights.sum(axis=-1), 1)


@pytest.fixture(scope="module")
def run(runs: dict[str, Run]) -> Run:
    return runs["classifier"]


BASELINE = """
import sys
from foveate.run.baselines import logistic_regression
texts = [f"the film {n % 7} is {word}" for n in range(40) for word in ("warm", "dull", "long")]
log_p = logistic_regression(texts, [0, 1, 1] * 40, 2, ["a warm film", "long and dull", "7"])
sys.stdout.buffer.write(log_p.tobytes())
"""


def test_the_baseline_does_not_depend_on_hashes_of_strings() -> None:
    first, second = (
        python("-c", BASELINE, env={"PYTHONHASHSEED": seed}, encoding=None).stdout for seed in "12"
    )
    assert len(first) == 3 * 2 * 4 and first == second


def test_fine_tuning_begins_with_the_other_run(runs: dict[str, Run], tmp_path, capsys) -> None:
    masked = runs["masked"]
    config = runs["classifier"].path.parent.parent / "classifier.toml"
    start = f'start={{run="{masked.path}", parts=["encoder"]}}'
    choices = [start, "task.tokenizer={kind=bpe}", "train.optimizer.lr=1e-12"]  # nothing moves
    run = train(config, [*choices, "train.max_steps=1"], tmp_path / "still")
    assert f"started from {masked.path}: encoder" in capsys.readouterr().err
    inputs = masked.model.encoder.state_dict()
    for name, tensor in run.model.encoder.state_dict().items():
        torch.testing.assert_close(tensor, inputs[name], rtol=0, atol=1e-9)
    assert run.task.tokenizer.pieces == masked.task.tokenizer.pieces
    assert run.task.tokenizer.config.kind == "word"  # that of the run, not of the config
    again = train(config, [*choices, "train.max_steps=2"], tmp_path / "still")
    assert "started from" not in capsys.readouterr().err  # the start is not taken twice
    assert checkpoint.steps(again.path)[-1] == 2


def test_a_run_classifies(run: Run) -> None:
    result = run.classify(["the dog runs", ""])
    assert [item.label for item in result] == ["animal", ""]
    evaluation = run.evaluate(split="valid", baseline=True)
    assert evaluation.figures["accuracy"] > 50
    assert evaluation.baseline is not None and evaluation.baseline.figures["accuracy"] > 50
    assert "\nbaseline: loss " in evaluation_text(evaluation, as_json=False)
    assert '"baseline": {' in evaluation_text(evaluation, as_json=True)
    with pytest.raises(IndexError, match="no label"):
        result[1].record()
    with pytest.raises(TypeError, match="list of lines"):
        run.classify("a joy")
    with pytest.raises(ConfigError, match="cannot translate"):
        run.translate(["a"])


def test_the_verb_writes_a_line_for_a_line(run: Run) -> None:
    def classified(*options: object) -> list[str]:
        ran = invoked("classify", run.path, *options, text=b"the dog runs\n\nman \xff\n")
        assert "1 line empty, no label: 2" in ran.stderr
        assert "1 line not UTF-8, the bytes read as U+FFFD: 3" in ran.stderr
        return ran.stdout.split("\n")

    first, empty, *rest = classified()
    label, p = first.split("\t")
    assert (label, empty, len(rest)) == ("animal", "", 2) and 0.5 < float(p) <= 1
    label, mean = classified("--ensemble", run.path)[0].split("\t")
    assert label == "animal" and float(mean) == near(float(p), terms=MODEL)
    assert classified("--scores")[0].split("\t")[::2] == ["animal", "human"]
    tree, empty = map(json.loads, classified("--json")[:2])
    assert (tree["text"], tree["label"], empty["label"]) == ("the dog runs", "animal", None)
    assert set(tree["probabilities"]) == {"animal", "human"}
    with pytest.raises(ConfigError, match="choose one"):
        classify(run.path, scores=True, as_json=True)


NAMES = ("a", "b", "c")
P = np.array([[8, 1, 1], [2, 7, 1], [6, 3, 1], [1, 8, 1]], dtype=np.float32) / 10
LOG_P, WANTED = np.log(P), [0, 1, 1, 0]  # found: a b a b; "c" is never wanted nor found


def test_figures_by_hand() -> None:
    figures = figures_of_labels(LOG_P, WANTED)
    # a: tp 1, fp 1, fn 1, F1 1/2; b the same; c: nothing of it, 0
    assert figures["accuracy"] == 50 and figures["f1_macro"] == pytest.approx(100 / 3)
    assert figures["loss"] == near(-np.log([0.8, 0.7, 0.3, 0.1]).mean(), terms=ROW)


def test_evaluations_have_a_confusion_matrix_with_true_labels_in_rows_and_samples() -> None:
    evaluation = evaluation_of_labels(LOG_P, [0, 1, 1, 1], NAMES, {"cut": [3]})
    assert evaluation.outputs == ["a", "b", "a", "b"] and evaluation.noted == {"cut": [3]}
    assert "tp" in evaluation.signatures["f1_macro"] and list(evaluation.tables) == ["confusion"]
    table = evaluation.tables["confusion"]
    assert table.cells == [[1, 0, 0], [1, 2, 0], [0, 0, 0]]
    assert table.lines()[1:] == ["   a b c", "a  1 0 0", "b  1 2 0", "c  0 0 0"]
    many = [str(n) for n in range(77)]
    table = Table("t", many, many, np.eye(77, k=1).tolist())
    assert table.lines()[1:3] == ["   1.0  0 → 1", "   1.0  1 → 2"]
    two, none = (measures_of_labels(LOG_P, WANTED, NAMES, [*"wxyz"], n).samples for n in (2, 0))
    samples = [(s.source, s.reference, s.output) for s in two]
    assert samples == [("w", "a", "a"), ("y", "b", "a")] and none == []
    assert list(probabilities_of(LOG_P[1], NAMES)) == ["b", "a", "c"]  # the best first
