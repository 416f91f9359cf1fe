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


SUMS = {  # sha256 of the shipped files; `make corpus` writes them anew and prints these
    "everyday/test.en.bz2": "9142d2adce6e8c6689f480a085c4d2512902f0289c5b3e39a552dda10f911e8b",
    "everyday/test.fr.bz2": "07fbfe5f81ae24072274de6e8c32b4271fb90d68fba415b4bb5ee665ee813f86",
    "everyday/train.en.bz2": "e4b967b5992ac6de84ff86eb5513b7f4355288e62849cf31e46d6e684cea2626",
    "everyday/train.fr.bz2": "6327f6cfb54661f35aa6f2661d8430ef3fac566997f7fb587477a6a486b41b40",
    "everyday/valid.en.bz2": "528379af41a2ceaa203023b29a9c27d3688b0f47fe52769c5b436dfae56e5627",
    "everyday/valid.fr.bz2": "13e577996015120be1bd12cd1d9514f8916fd48f59da4aca44752c7d3a32b23d",
    "long/test.align.bz2": "2dc0e715d0277a83e4001dfab69afcb8680753b1345d923e8e817ae16a27dbb0",
    "long/test.en.bz2": "1d6e546318a2aac3d422d22b4ac2d0171e02607a1f640f3c10f82d19f337be85",
    "long/test.fr.bz2": "36a9694b61ecdf3ce5239f9ce0530c01c12d77aec31f82d67d2e596291d89153",
    "long/train.align.bz2": "ef36edc583e5cd13d5a3025f5cfe80ea025e84a1b9435ff3be1ac4afa30499cf",
    "long/train.en.bz2": "f6ad1b238376e993f678f5725cf87dcef472ed866f9ab21649bb000e990be86e",
    "long/train.fr.bz2": "58da2f926cbea4e261bb2198b80bb50a5d63a35e7ec245103d52281c4b9f5342",
    "long/valid.align.bz2": "554349f9f7d6b555da5bfbb2cb8b1d690344bd4afeb1c0c873a04cd6e1ad3b1e",
    "long/valid.en.bz2": "b98d9712541da25a1b6bbcc070d60ebd27bcc73aa59934b4fbabbf0fcacd3ef5",
    "long/valid.fr.bz2": "1b9341543a13cd149da2ed71a0c241aee46c1ddf24320b036500b39f7ee9af2a",
    "short/test.align.bz2": "100a47f0aebb4ad9e90d36b7bbef5c7fe6e9db3b2a5e07735bad9dd2133a5619",
    "short/test.en.bz2": "ccc52acff5c62a4c39df6d4d5c6c5943ab46bffa69a9923ffd047b35c23c2bbd",
    "short/test.fr.bz2": "522e1d99ddd64b42800dc494c71d79f522ed52b9f2b0a7213d4c2eddd690a5d4",
    "short/train.align.bz2": "9abdfed933374a708a4b9a9f5d603d845d90e5141abba19bddffb6f73e431bab",
    "short/train.en.bz2": "2bc5fea134378735d23afa6579bfb4097294097e2d7933be813fa466b006b1e5",
    "short/train.fr.bz2": "c044cb92900864a33603a98252fc82754cd7c23d2a5cf64fa50cd66d7c08c7a1",
    "short/valid.align.bz2": "4bb2d933a64d518827810a2916e98501f99b92b52118941745cb7ffe16b90455",
    "short/valid.en.bz2": "60fd4d5a209334e60c51a4d27dc385a211cc3a77cfefa41cc13b3e3cdea5e327",
    "short/valid.fr.bz2": "7358d22874b844d2c309413688aa10e523ccbb9889a5a85f423902ad83584604",
}


def test_shipped_files_are_those_of_the_tool() -> None:
    for corpora, most in (("everyday/*.bz2", 1_000_000), ("[ls]*/*.bz2", 1_500_000)):
        assert 0 < sum(path.stat().st_size for path in EMBEDDED.glob(corpora)) < most
    sums = {
        path.relative_to(EMBEDDED).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in EMBEDDED.rglob("*.bz2")
    }
    assert sums == SUMS


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
        (
            "dev",
            1,
            "short",
            "everyday, short, long, with train, valid, test; short dev does not exist",
        ),
        ("test", 1, "huge", "huge test does not exist"),
        ("test", 1001, "short", "has 1,000 short pairs in test, not 1,001"),
    ],
)
def test_what_is_not_shipped_says_what_is(split, count, corpus, message) -> None:
    with pytest.raises(ValueError, match=message):
        embedded.pairs(split, count, corpus)


def test_a_lexicon_that_names_an_unknown_noun_says_so() -> None:
    with pytest.raises(ValueError, match="no group or noun named unicorn"):
        LEXICON.nouns("kin unicorn")
