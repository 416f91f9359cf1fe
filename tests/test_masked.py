"""Masked language modelling on small texts of our own: what is hidden, learnt, guessed, seen."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foveate.data.catalogue import DataError
from foveate.data.text import TextData
from foveate.data.tokenizer import BOS, BPE, EOS, UNK, WordTokenizer
from foveate.decode.engine import SearchRequest
from foveate.decode.search import Greedy
from foveate.models.classic import BagEncoder
from foveate.models.language_model import MaskedLanguageModel
from foveate.models.recurrent import RecurrentEncoder
from foveate.models.transformer import TransformerEncoder
from foveate.run import RunEngine
from foveate.run.evaluation import as_examples, evaluate, read_examples
from foveate.run.passes import forced
from foveate.tasks.masked import MaskedLanguage
from foveate.tasks.objectives import CrossEntropy
from task_tools import check_losses, fit, model_of
from tolerances import MODEL, close, near

TEXTS = [
    "the grey cat sleeps on the warm stove", "two boats cross the river at dawn",
    "my sister does not like cold soup", "where did you put the green umbrella",
    "the baker opens his shop early", "nobody answered the old telephone",
    "we painted the door of the barn red", "she reads a long letter from her aunt",
]  # fmt: skip
SIZES: dict[str, Any] = {"hidden_size": 32, "num_heads": 2, "num_layers": 1, "ffn_size": 32}
ENCODER = TransformerEncoder.Config(**SIZES, dropout=0.0)
SMALL = MaskedLanguageModel.Config(encoder=ENCODER)
SEARCH = Greedy.Config().build()


def make(folder: Path, texts: list[str] = TEXTS, **fields: Any) -> MaskedLanguage:
    (folder / "train.txt").write_text("".join(f"{t}\n" for t in texts), encoding="utf-8")
    words = WordTokenizer.Config(min_frequency=1)
    inputs = {"source": str(folder / "{split}.txt"), "tokenizer": words}
    task: MaskedLanguage = MaskedLanguage.Config(**inputs | fields).build(TextData())
    task.prepare(folder, seed=0)
    return task


@pytest.fixture
def task(tmp_path: Path) -> MaskedLanguage:
    return make(tmp_path)


def test_shares_of_the_tokens_are_chosen_hidden_and_replaced(task: MaskedLanguage) -> None:
    ids = np.random.default_rng(0).integers(4, task.tokenizer.vocab_size, 400)
    counts = np.zeros(3)
    for seed in range(50):
        now, chosen = task.hidden(ids.tolist(), (seed, 0))
        changed = np.array(now)
        assert sorted({*chosen.tolist()}) == chosen.tolist() and len(chosen) == 60  # 15 % of 400
        assert np.array_equal(np.delete(changed, chosen), np.delete(ids, chosen))
        hidden, same = changed[chosen] == UNK, changed[chosen] == ids[chosen]
        counts += hidden.sum(), (~hidden & ~same).sum(), same.sum()
        assert changed.max() < task.tokenizer.vocab_size
        assert {*changed.tolist()}.isdisjoint((1, BOS, EOS))
    np.testing.assert_allclose(counts / (50 * 60), [0.8, 0.1, 0.1], atol=0.02)


def test_at_least_one_token_is_chosen_and_hidden_by_the_mask(task: MaskedLanguage) -> None:
    for length, count in {0: 0, 1: 1, 3: 1, 10: 2, 20: 3}.items():
        assert len(task.hidden(list(range(4, 4 + length)), (0, 0))[1]) == count
    assert task.mask_id == UNK
    task.tokenizer.pieces = [*task.tokenizer.pieces, "[MASK]"]
    assert task.mask_id == task.tokenizer.vocab_size - 1


def test_what_is_hidden_is_a_function_of_noise_and_text(task: MaskedLanguage) -> None:
    item, same = (task.batch("train", [0, 5, 2], noise=7) for _ in range(2))
    alone, other = task.batch("train", [5], noise=7), task.batch("train", [0, 5, 2], noise=8)
    assert torch.equal(item.source, same.source)
    assert torch.equal(item.places, same.places)
    width = alone.source.shape[1]
    assert torch.equal(item.source[1, :width], alone.source[0])
    assert not (torch.equal(item.source, other.source) and torch.equal(item.places, other.places))


def test_a_batch_remembers_what_stood_there(task: MaskedLanguage) -> None:
    batch = task.batch("train", range(8), noise=3)
    whole = task.tokenizer.encode_ids(TEXTS)
    width = batch.source.shape[1]
    rows, columns = batch.places // width, batch.places % width
    expected = [whole[r][c - 1] for r, c in zip(rows.tolist(), columns.tolist(), strict=True)]
    assert batch.targets.tolist() == expected
    assert batch.source[:, 0].tolist() == [BOS] * 8
    ends = batch.source_mask.sum(dim=1) - 1
    assert batch.source[range(8), ends].tolist() == [EOS] * 8


def test_eight_texts_are_learnt_by_heart(task: MaskedLanguage) -> None:
    model, objective = model_of(task, SMALL), CrossEntropy.Config(label_smoothing=0.0).build()
    batches = [task.batch("train", range(8), noise) for noise in range(3)]
    fit(model, lambda step: task.loss(model, batches[step % 3], objective), 100)
    measures = task.measure(model, "train", SEARCH, samples=1)
    assert measures.figures["accuracy"] > 90
    assert measures.figures["perplexity"] == pytest.approx(np.exp(measures.figures["loss"]))
    (sample,) = measures.samples
    assert sample.reference == TEXTS[0]
    texts, request = as_examples(task, TEXTS), SearchRequest(SEARCH, batch_tokens=30)
    evaluation = evaluate(task, RunEngine(task, model), texts, request)
    assert evaluation.figures == near(measures.figures, terms=MODEL)
    assert sum(a == b for a, b in zip(evaluation.outputs, TEXTS, strict=True)) >= 6


@pytest.mark.parametrize(
    "fields",
    [
        {"encoder": BagEncoder.Config(embedding_size=12)},
        {"encoder": RecurrentEncoder.Config(embedding_size=12, hidden_size=10)},
        {"tie": "none"},
    ],
)
def test_losses_add_up_for_every_encoder(task: MaskedLanguage, fields: dict[str, Any]) -> None:
    model = model_of(task, MaskedLanguageModel.Config(**{"encoder": ENCODER} | fields))
    assert (model.output.weight is model.encoder.embedding.weight) == ("tie" not in fields)
    assert check_losses(task, model, 8, noise=1).count == 8


def test_figures_are_those_of_the_whole_output(task: MaskedLanguage) -> None:
    model, ids = model_of(task, SMALL), task.tokenizer.encode_ids(TEXTS)
    result = task.guess(model, ids, batch_tokens=20)
    total, right = 0.0, 0
    for i, item in enumerate(ids):
        changed, chosen = task.hidden(item, (0, i))
        with torch.no_grad():
            log_p = model(torch.tensor([[BOS, *changed, EOS]])).log_softmax(dim=-1)[0, 1:]
        assert log_p[chosen].argmax(dim=-1).tolist() == result.guessed[i]
        total -= sum(float(log_p[c, item[c]]) for c in chosen)
        right += sum(int(log_p[c].argmax()) == item[c] for c in chosen)
    assert result.total == near(total, terms=MODEL)
    assert (result.right, sum(map(len, result.places))) == (right, 8)


def test_a_table_gives_its_first_column(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("".join(f"{text}\t1\n" for text in TEXTS))
    task = make(tmp_path, source=str(tmp_path / "{split}.tsv"))
    assert list(task.corpus("train").sources) == TEXTS
    assert read_examples(task, tmp_path / "train.txt").sources == TEXTS
    (tmp_path / "none.txt").write_text("")
    with pytest.raises(DataError, match="empty"):
        read_examples(task, tmp_path / "none.txt")
    task = MaskedLanguage.Config(source="unused").build(TextData(columns=("text", "id")))
    (tmp_path / "mine.csv").write_text("id,text\n" + "".join(f"7,{text}\n" for text in TEXTS))
    assert read_examples(task, tmp_path / "mine.csv").sources == TEXTS, "the column of the run"


def test_empty_lines_are_dropped_and_counted(tmp_path: Path) -> None:
    task = make(tmp_path, [*TEXTS, "", "  "])
    assert len(task.lengths("train")) == 8
    output = "\n".join(task.describe_data())
    assert "empty text: 2" in output
    assert "words between blanks" in output
    engine, texts = RunEngine(task, model_of(task, SMALL)), as_examples(task, ["", TEXTS[0]])
    assert evaluate(task, engine, texts, SearchRequest(SEARCH)).outputs[0] == ""


def test_an_explanation_speaks_in_words(tmp_path: Path) -> None:
    task = make(tmp_path, tokenizer=BPE.Config(vocab_size=280))
    record = forced(task, model_of(task, SMALL), "the grey cat").record()
    words = ["<s>", "the", "grey", "cat", "</s>"]
    assert record.axes("encoder.layers.0.self_attention") == (words, words)
    close(record.select("self_attention").sum(axis=-1), 1)
