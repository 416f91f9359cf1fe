"""Several corpora in one task: tags are pieces of their own, and say what to translate to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foveate.config import ConfigError, parse_tree
from foveate.data.text import TextData
from foveate.data.tokenizer import Tokenizer
from foveate.run import RunConfig
from foveate.tasks.translation import Translation
from foveate.training import train
from test_tokenizer import KINDS, LINES, trained

PAIRS = {"fr": [("a dog", "un chien"), ("the cat", "le chat")], "de": [("a dog", "ein Hund")]}
TAGS = ["<2fr>", "<2de>"]


@pytest.fixture
def tree(tmp_path: Path) -> dict[str, Any]:
    corpora = []
    for language, pairs in PAIRS.items():
        for split in ("train", "valid", "test"):
            rows = "".join(f"{s}\t{t}\n" for s, t in pairs)
            (tmp_path / f"{split}.{language}.tsv").write_text(rows, encoding="utf-8")
        source = str(tmp_path / f"{{split}}.{language}.tsv")
        corpora.append({"source": source, "tag": f"<2{language}>"})
    return {"kind": "translation", "corpora": corpora, "tokenizer": "character"}


def task(tree: dict[str, Any], folder: Path) -> Translation:
    built: Translation = Translation.Config.parse(tree).build(TextData())
    built.prepare(folder, seed=1)
    return built


@pytest.mark.parametrize("kind", KINDS)
def test_a_tag_is_one_piece_at_the_start_and_text_elsewhere(kind: str, tmp_path: Path) -> None:
    trained(kind).save(tmp_path / "plain")
    tokenizer = Tokenizer.load(tmp_path / "plain")
    plain, inside = (tokenizer.encode(text) for text in (LINES[0], f"x {TAGS[0]}"))
    tokenizer.add_tags(TAGS)
    tokenizer.save(tmp_path / "tagged")
    for item in (tokenizer, Tokenizer.load(tmp_path / "tagged")):
        assert item.pieces[-2:] == TAGS
        result = item.encode(f"<2de> {LINES[0]}")
        assert result.ids == [item.vocab_size - 1, *plain.ids]
        assert item.encode_ids([f"<2de> {LINES[0]}"])[0] == result.ids
        assert result.offsets[0] == (0, 5)
        assert result.offsets[1:] == [(a + 6, b + 6) for a, b in plain.offsets]
        assert item.encode(f"x {TAGS[0]}") == inside
        assert item.decode(result.ids).startswith("<2de>")


def test_corpora_are_joined_behind_their_tags(tree: dict[str, Any], tmp_path: Path) -> None:
    built = task(tree, tmp_path)
    corpus = built.corpus("train")
    assert list(corpus.sources) == ["<2fr> a dog", "<2fr> the cat", "<2de> a dog"]
    assert list(corpus.targets) == ["un chien", "le chat", "ein Hund"]
    assert not {"<", ">", "2"} & set(built.source_tokenizer.pieces)
    batch = built.batch("train", [0, 2])
    assert batch.source[:, 0].tolist() == [built.source_tokenizer.tags[tag] for tag in TAGS]
    tree["corpora"][1]["weight"] = 4.0
    tree["corpora"][0]["weight"] = 2.0
    weighted = task(tree, tmp_path)
    plan = weighted.plan(weighted.lengths("train"), 100, 1)
    assert sorted(np.concatenate(plan.epoch(0)).tolist()) in ([0, 2, 2], [1, 2, 2])


def test_a_run_translates_to_the_language_that_is_asked_for(tree: dict[str, Any], tmp_path) -> None:
    part = {"kind": "recurrent", "embedding_size": 32, "hidden_size": 32, "dropout": 0.0}
    config = {
        "task": tree,
        "model": {"kind": "encoder_decoder", "encoder": part, "decoder": part},
        "objective": {"label_smoothing": 0.0},
        "train": {
            "max_steps": 120,
            "precision": "fp32",
            "optimizer": {"kind": "adam", "lr": 0.02},
            "schedule": "constant",
        },
    }
    run = train(parse_tree(RunConfig, config), folder=tmp_path / "run")
    output = {to: [str(t) for t in run.translate(["a dog", ""], to=to)] for to in PAIRS}
    assert output == {"fr": ["un chien", ""], "de": ["ein Hund", ""]}
    assert str(run.translate(["<2de> a dog"])[0]) == "ein Hund"
    with pytest.raises(ValueError, match=r"name one .*fr, de"):
        run.translate(["a dog"])
    with pytest.raises(ValueError, match=r"no language 'es'.*fr, de"):
        run.translate(["a dog"], to="es")
    assert run.evaluate().figures["exact_match <2de>"] == 100


def test_corpora_of_many_lines_have_a_report(tree: dict[str, Any], tmp_path: Path) -> None:
    for language in PAIRS:
        rows = [f"{i} dogs\t{i} chiens\n" for i in range(90)]
        (tmp_path / f"train.{language}.tsv").write_text("".join(rows), encoding="utf-8")
    output = task(tree, tmp_path).describe_data()
    assert output[0].startswith("train: 180 pairs")


def test_tokenizers_are_learnt_from_a_sample_of_stated_size(tree: dict[str, Any], tmp_path) -> None:
    built: Translation = Translation.Config.parse(tree).build(TextData(tokenizer_sample=1))
    built.prepare(tmp_path, seed=1)
    assert built.describe_data()[-1].endswith("learnt from 1 of 3 pairs")
    assert len(built.source_tokenizer.pieces) < len(task(tree, tmp_path).source_tokenizer.pieces)


def test_either_a_source_or_corpora() -> None:
    for tree in ({"kind": "translation"}, {"kind": "translation", "source": "a", "corpora": ["b"]}):
        with pytest.raises((ConfigError, ValueError)):
            Translation.Config.parse(tree)
