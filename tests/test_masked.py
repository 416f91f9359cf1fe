"""Masked language modelling on small texts of our own: what is hidden, learnt, guessed, seen."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foveate.data.catalogue import DataError
from foveate.data.text import SKIPPED, TextData
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
from task_tools import check_losses, fit
from tolerances import MODEL, close, near

TEXTS = [
    "the grey cat sleeps on the warm stove", "two boats cross the river at dawn",
    "my sister does not like cold soup", "where did you put the green umbrella",
    "the baker opens his shop early", "nobody answered the old telephone",
    "we painted the door of the barn red", "she reads a long letter from her aunt",
]  # fmt: skip
ENCODER = TransformerEncoder.Config(
    hidden_size=32, num_heads=2, num_layers=1, ffn_size=32, dropout=0.0
)
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


def model_of(task: MaskedLanguage, **fields: Any) -> Any:
    torch.manual_seed(0)
    return task.build(MaskedLanguageModel.Config(**{"encoder": ENCODER} | fields))


def test_shares_of_the_tokens_are_chosen_hidden_and_replaced(task: MaskedLanguage) -> None:
    ids = np.random.default_rng(0).integers(4, task.tokenizer.vocab_size, 400).tolist()
    hidden = replaced = saved = 0
    for seed in range(50):
        changed, chosen = task.hidden(ids, (seed, 0))
        assert len(chosen) == len(set(chosen.tolist())) == 60  # 15 % of 400
        assert sorted(chosen) == chosen.tolist()
        assert all(changed[i] == ids[i] for i in set(range(400)) - set(chosen.tolist()))
        now = np.array([changed[i] for i in chosen])
        hidden += int((now == UNK).sum())
        saved += int((now == np.array([ids[i] for i in chosen])).sum())
        replaced += int(((now != UNK) & (now != np.array([ids[i] for i in chosen]))).sum())
        assert now.max() < task.tokenizer.vocab_size
        assert set(now.tolist()).isdisjoint((1, BOS, EOS))
    shares = np.array([hidden, replaced, saved]) / (50 * 60)
    np.testing.assert_allclose(shares, [0.8, 0.1, 0.1], atol=0.02)


@pytest.mark.parametrize(("length", "count"), [(0, 0), (1, 1), (3, 1), (10, 2), (20, 3)])
def test_at_least_one_token_is_chosen(task: MaskedLanguage, length: int, count: int) -> None:
    assert len(task.hidden(list(range(4, 4 + length)), (0, 0))[1]) == count


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
    assert batch.source_mask is not None
    assert all(
        batch.source[r, int(n) - 1] == EOS for r, n in enumerate(batch.source_mask.sum(dim=1))
    )


def test_a_vocabulary_with_a_mask_uses_it(tmp_path: Path) -> None:
    plain = make(tmp_path)
    assert plain.mask_id == UNK
    plain.tokenizer.pieces = [*plain.tokenizer.pieces, "[MASK]"]
    assert plain.mask_id == plain.tokenizer.vocab_size - 1


def test_eight_texts_are_learnt_by_heart(task: MaskedLanguage) -> None:
    model, objective = model_of(task), CrossEntropy.Config(label_smoothing=0.0).build()
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
    model = model_of(task, **fields).eval()
    assert (model.output.weight is model.encoder.embedding.weight) == ("tie" not in fields)
    assert check_losses(task, model, 8, noise=1).count == 8


def test_figures_are_those_of_the_whole_output(task: MaskedLanguage) -> None:
    model, ids = model_of(task).eval(), task.tokenizer.encode_ids(TEXTS)
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
    assert task.corpus("train").sources == TEXTS
    assert read_examples(task, tmp_path / "train.txt").sources == TEXTS
    (tmp_path / "none.txt").write_text("")
    with pytest.raises(DataError, match="empty"):
        read_examples(task, tmp_path / "none.txt")


def test_a_table_of_the_user_gives_the_column_of_the_run(tmp_path: Path) -> None:
    task = MaskedLanguage.Config(source="unused").build(TextData(columns=("text", "id")))
    (tmp_path / "mine.csv").write_text("id,text\n" + "".join(f"7,{text}\n" for text in TEXTS))
    assert read_examples(task, tmp_path / "mine.csv").sources == TEXTS


def test_skipped_lines_are_noted(task: MaskedLanguage, tmp_path: Path) -> None:
    task.data = TextData(on_bad_line="skip")
    (tmp_path / "mine.txt").write_bytes(f"{TEXTS[0]}\ncaf\xe9\n{TEXTS[1]}\n".encode("latin-1"))
    engine, request = RunEngine(task, model_of(task).eval()), SearchRequest(SEARCH)
    evaluation = evaluate(task, engine, read_examples(task, tmp_path / "mine.txt"), request)
    assert (len(evaluation.outputs), evaluation.noted) == (2, {SKIPPED: [2]})


def test_empty_lines_are_dropped_and_counted(tmp_path: Path) -> None:
    task = make(tmp_path, [*TEXTS, "", "  "])
    assert len(task.lengths("train")) == 8
    output = "\n".join(task.describe_data())
    assert "empty text: 2" in output
    assert "words between blanks" in output
    model = model_of(task).eval()
    texts = as_examples(task, ["", TEXTS[0]])
    evaluation = evaluate(task, RunEngine(task, model), texts, SearchRequest(SEARCH))
    assert evaluation.outputs[0] == ""


def test_an_explanation_speaks_in_words(tmp_path: Path) -> None:
    task = make(tmp_path, tokenizer=BPE.Config(vocab_size=280))
    record = forced(task, model_of(task).eval(), "the grey cat").record()
    words = ["<s>", "the", "grey", "cat", "</s>"]
    assert record.axes("encoder.layers.0.self_attention") == (words, words)
    close(record.select("self_attention").sum(axis=-1), 1)
