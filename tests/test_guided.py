"""Guided alignment: the batch carries the links, one head learns them, the rest stays as it was."""

from pathlib import Path
from typing import Any

import pytest
import torch

from foveate.align.aer import Gold, judge
from foveate.align.guided import GuidedBatch, GuidedTranslation, piece_links
from foveate.align.ibm import Aligner, Model1
from foveate.config import ConfigError
from foveate.data.catalogue import DataError
from foveate.data.synthetic import write
from foveate.data.text import TextData
from foveate.data.tokenizer import BPE, Tokenizer, WordTokenizer
from foveate.data.words import split_words
from foveate.engine.links import Head
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.run.passes import word_maps
from foveate.tasks.base import Loss
from foveate.tasks.objectives import CrossEntropy
from foveate.tasks.translation import Translation
from grammar.pairs import pairs
from inside_toys import recurrent
from task_tools import fit
from tolerances import near

SIZE: dict[str, Any] = {"hidden_size": 32, "num_heads": 2, "num_layers": 1, "ffn_size": 32}
SIDES = [kind.Config(**SIZE, dropout=0.0) for kind in (TransformerEncoder, TransformerDecoder)]
TRANSFORMER = EncoderDecoder.Config(encoder=SIDES[0], decoder=SIDES[1])
RECURRENT = recurrent().config
PLAIN = CrossEntropy.Config(label_smoothing=0.0).build()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synthetic")
    write(folder, {"train": 400, "valid": 50})
    return folder


def task_of(corpus: Path, run: Path, tokenizer: Tokenizer.Config, **fields: Any) -> Any:
    config = GuidedTranslation.Config(
        source=str(corpus / "{split}.en"),
        target=str(corpus / "{split}.fr"),
        tokenizer=tokenizer,
        **{"links": str(corpus / "{split}.align")} | fields,
    )
    task = config.build(TextData())
    task.prepare(run, seed=0)
    return task


def test_links_of_words_become_links_of_pieces() -> None:
    # word 0 is pieces 0 and 1, word 1 is piece 2; target word 0 is piece 0, word 1 pieces 1 and 2
    result = piece_links({(0, 0), (1, 0), (1, 1)}, [[0, 1], [2]], [[0], [1, 2]])
    third = pytest.approx(1 / 3)
    assert result == {(0, 0): third, (0, 1): third, (0, 2): third, (1, 2): 1, (2, 2): 1}
    result = piece_links({(0, 0)}, [[0, 1], [2]], [[0], [1, 2]], end=3)
    assert result == {(0, 0): 0.5, (0, 1): 0.5, (1, 3): 1, (2, 3): 1}
    with pytest.raises(DataError, match="pair 7: 2-0, but there are 2 and 2 words"):
        piece_links({(2, 0)}, [[0], [1]], [[0], [1]], "the links of pair 7")


def test_a_batch_carries_the_links_of_its_pairs(corpus: Path, tmp_path: Path) -> None:
    task = task_of(corpus, tmp_path, WordTokenizer.Config(min_frequency=1))
    batch = task.batch("train", [3, 5])
    gold = [set(pair.alignment) for pair in pairs("train", 6)]
    for row, index in enumerate((3, 5)):
        result = {(int(s), int(t)) for b, t, s in batch.places if b == row}
        assert result == gold[index]  # a word is a piece here
    assert not isinstance(task.batch("valid", [0]), GuidedBatch)
    later = task_of(corpus, tmp_path, WordTokenizer.Config(min_frequency=1), rows="read")
    assert (later.batch("train", [3, 5]).places[:, 1] == batch.places[:, 1] + 1).all()


@pytest.mark.parametrize("config", [TRANSFORMER, RECURRENT], ids=["transformer", "rnn"])
def test_the_loss_is_a_sum_with_the_guide_beside_it(corpus, tmp_path, config) -> None:
    task = task_of(corpus, tmp_path, BPE.Config(vocab_size=300), layer=-1, weight=0.5)
    model = task.build(config).eval()
    whole, parts = task.batch("train", range(6)), [task.batch("train", [i]) for i in range(6)]
    with torch.no_grad():
        loss = task.loss(model, whole, PLAIN)
    plain = Translation.loss(task, model, whole, PLAIN)
    guide = loss.logged["guide"]
    assert guide > 0
    assert float(loss.total) == near(float(plain.total.detach() + 0.5 * guide))
    summed = sum(float(task.loss(model, part, PLAIN).logged["guide"]) for part in parts)
    assert summed == near(float(guide))
    assert all(module.tap is None for module in model.modules() if hasattr(module, "tap"))


def test_the_guided_head_learns_its_links(corpus: Path, tmp_path: Path) -> None:
    """60 steps: the guided head's error rate falls clearly, another's does not follow."""
    fields: dict[str, Any] = {"layer": 0, "head": 1, "weight": 1.0, "rows": "read"}
    task = task_of(corpus, tmp_path, WordTokenizer.Config(min_frequency=1), **fields)
    model = task.build(TRANSFORMER)
    held = pairs("valid", 50)
    gold = [Gold(set(pair.alignment), set(pair.alignment)) for pair in held]

    assert task.head == (0, 1, "read")  # where `foveate align` looks by itself

    def error(head: int) -> float:
        texts = [(pair.source, pair.target) for pair in held]
        choice = Head(0, head, "read")
        maps = word_maps(task, model.eval(), texts, rows="read")
        return judge([choice.links(m) for m in maps], gold).aer

    before = error(1)

    def loss(step: int) -> Loss:
        batch = task.batch("train", [(step * 32 + k) % 400 for k in range(32)])
        return task.loss(model, batch, PLAIN)

    fit(model, loss, 60)
    assert before > 0.5
    assert error(1) < 0.35
    assert error(0) > error(1) + 0.2


def test_a_word_without_links_is_trained_towards_the_end_of_its_source(corpus, tmp_path) -> None:
    """What the head then says of such a word is that it has no counterpart."""
    lines = (corpus / "train.align").read_text("utf-8").splitlines()
    links = tmp_path / "train.align"  # the last word of each target has no link
    links.write_text("".join(f"{line.rpartition(' ')[0]}\n" for line in lines), encoding="utf-8")
    fields: dict[str, Any] = {"links": str(tmp_path / "{split}.align"), "rows": "read"}
    tokenizer = WordTokenizer.Config(min_frequency=1)
    places = []
    for unlinked in ("free", "end"):
        task = task_of(corpus, tmp_path, tokenizer, unlinked=unlinked, **fields)
        places.append({tuple(place) for place in task.batch("train", [3, 5]).places.tolist()})
    assert places[0] < places[1]
    ends = {(b, len(split_words(p.source))) for b, p in enumerate(pairs("train", 6)[3::2])}
    assert {(b, s) for b, _, s in places[1] - places[0]} == ends


def test_links_may_come_from_an_aligner_and_stay_in_the_run(corpus: Path, tmp_path: Path) -> None:
    aligner: Aligner.Config = Model1.Config(iterations=3)
    words = WordTokenizer.Config(min_frequency=1)
    task = task_of(corpus, tmp_path, words, links=None, aligner=aligner)
    assert len((tmp_path / "guide.align").read_text("utf-8").splitlines()) == 400
    again = task.config.build(TextData())
    moved = tmp_path.rename(tmp_path.with_name("moved"))  # as a new run takes its place
    again.restore(moved)
    assert torch.equal(task.batch("train", [1]).places, again.batch("train", [1]).places)


def test_links_of_several_corpora_are_told_apart(corpus: Path, tmp_path: Path) -> None:
    """Line 3 of one corpus is not line 3 of the other, and what is too long takes no other's."""
    other = tmp_path / "other"
    write(other, {"train": 40}, "long")
    parts = [
        {"source": str(f / "{split}.en"), "target": str(f / "{split}.fr")} for f in (corpus, other)
    ]
    tree: dict[str, Any] = {"corpora": parts, "tokenizer": {"kind": "word", "min_frequency": 1}}
    files = [str(f / "{split}.align") for f in (corpus, other)]
    with pytest.raises(ConfigError, match="a file of links for each of the corpora"):
        GuidedTranslation.Config.parse({**tree, "links": files[0]})
    config = GuidedTranslation.Config.parse({**tree, "links": files})
    task: Any = config.build(TextData(max_length=9))
    task.prepare(tmp_path, seed=0)
    again = task.config.build(task.data)
    again.restore(tmp_path)
    gold = pairs("train", 400) + pairs("train", 40, "long")
    saved = [p for p in gold if all(len(split_words(side)) <= 9 for side in (p.source, p.target))]
    assert len(saved) == len(task.lengths("train")) < 440
    for item in (task, again):
        result: list[set[tuple[int, int]]] = [set() for _ in saved]
        for row, t, s in item.batch("train", range(len(saved))).places.tolist():
            result[row].add((s, t))
        assert result == [set(pair.alignment) for pair in saved]


def test_what_does_not_fit_is_said(corpus: Path, tmp_path: Path) -> None:
    word = WordTokenizer.Config(min_frequency=1)
    with pytest.raises(ValueError, match=r"task\.layer = 3: 1 layers"):
        task_of(corpus, tmp_path, word, layer=3).build(TRANSFORMER)
    with pytest.raises(ValueError, match=r"task\.head = 9: the layer has 2 heads"):
        task_of(corpus, tmp_path, word, head=9).build(TRANSFORMER)
    short = tmp_path / "short.align"
    short.write_text("0-0\n")
    with pytest.raises(DataError, match="has 1 lines; give one for each"):
        task_of(corpus, tmp_path, word, links=str(short))
