"""BPE-dropout: plain without dropout, a function of the seed, and always the same text."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.data.text import TextData
from foveate.data.tokenizer import BPE, Tokenizer
from foveate.tasks.translation import Translation
from test_tokenizer import HOSTILE, LINES, texts


@cache
def trained(dropout: float) -> Tokenizer:
    tokenizer: Tokenizer = BPE.Config(vocab_size=420, dropout=dropout).build()
    tokenizer.train(LINES)
    return tokenizer


@given(text=texts())
@settings(max_examples=60, deadline=None)
def test_without_dropout_the_split_is_the_plain_one(text: str) -> None:
    for one in (text, *LINES, *HOSTILE):
        assert trained(0.0).encode_noisy([one], [(1,)]) == trained(0.0).encode_ids([one])


@given(text=texts(), seed=st.integers(0, 2**62))
@settings(max_examples=60, deadline=None)
def test_any_split_decodes_to_the_text(text: str, seed: int) -> None:
    tokenizer = trained(0.5)
    ids = tokenizer.encode_noisy([text], [(seed, 1)])
    assert tokenizer.decode(ids[0]) == text
    assert ids == tokenizer.encode_noisy([text], [(seed, 1)])


def test_how_much_is_remembered_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer: Tokenizer = BPE.Config(vocab_size=420, dropout=0.3).build()
    tokenizer.train(LINES)
    seeds = [(i,) for i in range(len(LINES))]
    plenty = tokenizer.encode_noisy(LINES, seeds)
    monkeypatch.setattr("foveate.data.tokenizer.REMEMBERED", 2)
    tokenizer._restore(tokenizer._vocabulary())
    assert tokenizer.encode_noisy(LINES, seeds) == plenty
    assert len(tokenizer._chunks) <= 2  # type: ignore[attr-defined]


def test_other_seeds_give_other_splits_that_are_longer() -> None:
    tokenizer = trained(0.3)
    splits = [tokenizer.encode_noisy([LINES[0]], [(seed,)])[0] for seed in range(20)]
    plain = tokenizer.encode_ids([LINES[0]])[0]
    assert len({tuple(ids) for ids in splits}) > 15
    assert sum(map(len, splits)) / 20 > len(plain)


def test_training_sees_it_and_nothing_else_does(tmp_path: Path) -> None:
    (tmp_path / "all.tsv").write_text("".join(f"{a}\t{a}\n" for a in LINES), encoding="utf-8")
    (tmp_path / "valid.tsv").write_text(f"{LINES[0]}\t{LINES[1]}\n", encoding="utf-8")
    (tmp_path / "train.tsv").write_text((tmp_path / "all.tsv").read_text("utf-8"), "utf-8")
    config = Translation.Config(
        source=str(tmp_path / "{split}.tsv"), tokenizer=BPE.Config(vocab_size=420, dropout=0.3)
    )
    task = config.build(TextData())
    task.prepare(tmp_path, seed=1)
    one, same, other = (task.batch("train", [0, 1, 2], noise=n).read.tolist() for n in (5, 5, 6))
    assert one == same != other
    plain = task.batch("valid", [0], noise=5).read[0, 1:].tolist()
    assert plain == task.target_tokenizer.encode_ids([LINES[1]])[0]
    again = config.build(TextData())
    again.restore(tmp_path)  # the merges come back from the file
    assert again.batch("train", [0, 1, 2], noise=5).read.tolist() == one
