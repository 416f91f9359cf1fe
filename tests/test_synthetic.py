"""The embedded corpus: its splits and its files, and the laws of the grammar that writes it."""

import bz2
import hashlib
import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

import everyday
from embedded_corpus import SHIPPED, files, pairs
from foveate.data import synthetic
from foveate.data.synthetic import EMBEDDED, SPLITS, write
from grammar import pairs as embedded
from grammar.clauses import split_of
from grammar.laws import check, combinations, possible, words
from grammar.lexicon import lexicon

LEXICON = lexicon()


def test_each_english_sentence_has_one_translation() -> None:
    translations = {pair.source: pair for pair in embedded.pairs("train", 12_000)}
    for seed in (2, 3, 4):
        for pair in pairs("train", 300, seed):
            assert translations.setdefault(pair.source, pair) == pair


def test_pairs_are_deterministic_and_do_not_depend_on_count() -> None:
    for split in SPLITS:
        assert pairs(split, 20) == pairs(split, 60)[:20]
    assert pairs("train", 20, seed=1) != pairs("train", 20, seed=2)
    assert pairs("train", 0) == []
    first = pairs("train", 1)[0]
    assert (first.source, first.target) == FIRST
    with pytest.raises(ValueError, match="train, valid, test"):
        pairs("dev", 1)


FIRST = (
    "On 26 August 2054, you will travel to Canada.",
    "Le 26 août 2054, vous voyagerez au Canada.",
)  # frozen: a change of it changes every trained quickstart


def test_write(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    write(folder, {"train": 30, "test": 5})
    write(folder, {"train": 20, "test": 5})
    assert sorted(path.name for path in folder.iterdir()) == [
        *("test.align", "test.en", "test.fr", "train.align", "train.en", "train.fr")
    ]
    made = pairs("train", 20)
    texts = {side: (folder / f"train.{side}").read_text("utf-8") for side in ("en", "fr", "align")}
    lines = {side: text.split("\n") for side, text in texts.items()}
    assert lines["en"] == [*(pair.source for pair in made), ""]
    assert lines["fr"] == [*(pair.target for pair in made), ""]
    links = [tuple(tuple(map(int, p.split("-"))) for p in x.split()) for x in lines["align"]]
    assert links == [*(pair.alignment for pair in made), ()]


# of the sums of the shipped files, which `make corpus` writes anew
SUM = "78972bc2f2a228fa801aa5924982744500d06e5056d2eb59d469e55a4da066b3"


def test_shipped_files_are_those_of_the_tool() -> None:
    for corpora, most in (("everyday/*.bz2", 1_000_000), ("[ls]*/*.bz2", 1_500_000)):
        assert 0 < sum(path.stat().st_size for path in EMBEDDED.glob(corpora)) < most
    sums = hashlib.sha256()
    for path in sorted(EMBEDDED.rglob("*.bz2")):
        own = hashlib.sha256(path.read_bytes()).hexdigest()
        sums.update(f"{own}  {path.relative_to(EMBEDDED).as_posix()}\n".encode())
    assert sums.hexdigest() == SUM


def test_everyday_sentences_name_their_source_and_none_is_in_two_splits() -> None:
    seen: set[str] = set()
    for split in SPLITS:
        with bz2.open(EMBEDDED / f"everyday/{split}.en.bz2", "rt", encoding="utf-8") as file:
            first, *lines = file.read().splitlines()
        assert "CC BY 2.0 FR" in first and "tatoeba.org" in first
        assert lines == synthetic.read_lines(split, "en", len(lines), "everyday")
        folded = {re.sub(r"\W", "", line.casefold()) for line in lines}
        assert not folded & seen and max(len(line.split()) for line in lines) <= 10
        seen |= folded
    assert "whereisthestation" in seen


@pytest.mark.scale
@pytest.mark.skipif("FOVEATE_DATA" not in os.environ, reason="needs the data sets")
def test_the_tool_reproduces_the_everyday_sentences(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["everyday.py", "--folder", str(tmp_path)])
    everyday.main()
    for file in tmp_path.iterdir():
        assert file.read_bytes() == (EMBEDDED / "everyday" / file.name).read_bytes()


@pytest.mark.scale
def test_the_grammar_keeps_its_laws() -> None:
    held_out = {split: embedded.pairs(split, 400) for split in ("valid", "test")}
    check(embedded.pairs("train", 12_000), held_out)


@pytest.mark.scale
def test_the_tool_reproduces_the_corpora() -> None:
    """The held-out files to the byte, and the beginning of the larger ones."""
    for split in ("valid", "test"):
        for name, content in files("short", split, pairs(split, SHIPPED["short"][split])).items():
            assert content == (EMBEDDED / name).read_bytes(), name
    for corpus, count in (("short", 2000), ("long", 3)):
        for split in SPLITS if corpus == "long" else ("train",):
            made = pairs(split, count, corpus=corpus)
            assert embedded.pairs(split, count, corpus) == made


def test_long_sentences_have_every_length_as_often_and_share_the_rules() -> None:
    for split, count in SHIPPED["long"].items():
        shipped = embedded.pairs(split, count, "long")
        lengths = Counter(len(words(pair.source)) for pair in shipped)
        assert set(range(5, 61)) <= set(lengths) <= set(range(3, 61))
        assert max(lengths.values()) - min(lengths[n] for n in range(5, 61)) <= 2 + count // 500
        assert all(len(words(pair.target)) <= 60 for pair in shipped)
        assert len({pair.source for pair in shipped}) == count
        for pair in shipped:
            source, target = words(pair.source), words(pair.target)
            assert {j for _, j in pair.alignment} == set(range(len(target))), pair
            missing = set(range(len(source))) - {i for i, _ in pair.alignment}
            assert {source[i] for i in missing} <= {"and"}, pair
            splits = {split_of(*c) for c in combinations(pair)}
            assert splits <= {"train", split}, pair
            assert split == "train" or split in possible(pair), pair


@pytest.mark.parametrize(
    ("split", "count", "corpus", "message"),
    [
        ("dev", 1, "short", "short, long, with train, valid, test; short dev does not exist"),
        ("test", 1, "huge", "huge test does not exist"),
        ("test", 1001, "short", "has 1,000 short pairs in test, not 1,001"),
    ],
)
def test_what_is_not_shipped_says_what_is(split, count, corpus, message) -> None:
    with pytest.raises(ValueError, match=message):
        embedded.pairs(split, count, corpus)
