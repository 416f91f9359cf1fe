"""The embedded corpus: its French and English by law, its alignments, its splits, its files."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from embedded_corpus import SHIPPED, files, pairs
from foveate.data import synthetic
from foveate.data.synthetic import EMBEDDED, SPLITS, SyntheticPair, write
from foveate.data.words import words as cut
from grammar.clauses import split_of, verb_name
from grammar.lexicon import lexicon

words = cache(cut)
LEXICON = lexicon()
NOUNS = {noun.english[0]: noun for noun in LEXICON.nouns(" ".join(LEXICON.named))}
ADJECTIVES = {adjective.english: adjective for adjective in LEXICON.adjectives}
VERBS = {verb_name(verb): verb for verbs in LEXICON.verbs.values() for verb in verbs}
NOUN_FORMS = {form: (noun, n) for noun in NOUNS.values() for n, form in enumerate(noun.english)}
ASPIRATED = {
    *("héros", "hibou", "hibous", "hiboux", "hérisson", "hérissons", "haricot", "haricots"),
    *("harpe", "harpes", "hache", "haches", "hameau", "hameaux", "haine", "honte", "hongrie"),
    *("haut", "haute", "hauts", "hautes", "hongrois", "hongroise", "hongroises"),
    *("hollandais", "hollandaise", "hollandaises", "huit", "onze"),
}
ELIDED = {"l'", "d'", "n'", "j'", "qu'", "m'", "s'"}
FULL = {"le", "la", "de", "ne", "je", "que", "me", "se", "ce", "ma", "sa"}


@pytest.fixture(scope="module")
def train() -> list[SyntheticPair]:
    return synthetic.pairs("train", 12_000)


@pytest.fixture(scope="module")
def held_out() -> dict[str, list[SyntheticPair]]:
    return {split: synthetic.pairs(split, 400) for split in ("valid", "test")}


def vowel(text: str) -> bool:
    """Whether French elides before the word, by a list of its own."""
    return text.lower() not in ASPIRATED and bool(re.match("[aeiouhyâàéèêîôûœ]", text.lower()))


def test_words_lengths_and_marks(train: list[SyntheticPair]) -> None:
    for pair in train:
        source, target = words(pair.source), words(pair.target)
        assert 3 <= len(source) <= 25, pair
        assert 3 <= len(target) <= 25, pair
        assert source[-1] == target[-1]
        assert source[-1] in ".?"
        assert not pair.source[0].islower()
        assert not pair.target[0].islower()
        assert not re.search(r"  |' | [.,]|-\b-|:", pair.source + pair.target), pair


def test_alignments_are_in_range_and_leave_nothing_out(train: list[SyntheticPair]) -> None:
    for pair in train:
        source, target = words(pair.source), words(pair.target)
        assert list(pair.alignment) == sorted(set(pair.alignment))
        assert {j for _, j in pair.alignment} == set(range(len(target))), pair
        missing = set(range(len(source))) - {i for i, _ in pair.alignment}
        assert {source[i] for i in missing} <= {"and"}, pair  # two hundred and one: deux cent un


def test_french_elides_and_contracts(train: list[SyntheticPair]) -> None:
    for pair in train:
        target = [text.lower() for text in words(pair.target)]
        for item, two in pairwise(target):
            assert (item, two) not in {("de", "le"), ("de", "les"), ("à", "le"), ("à", "les")}
            if item in FULL:
                assert not vowel(two), pair
            if item in ELIDED:
                assert vowel(two), pair
            assert item != "si" or two not in ("il", "ils"), pair


def test_english_articles(train: list[SyntheticPair]) -> None:
    consonants = "european|university|uni|use"
    for pair in train:
        for article, after in re.findall(r"\b(an?) (\S+)", pair.source.lower()):
            sounds = after[0] in "aeiou" and not re.match(consonants, after)
            assert (article == "an") == (sounds or after == "honest"), pair


def test_adjectives_agree_with_their_nouns(train: list[SyntheticPair]) -> None:
    checked = 0
    for pair in train:
        source, target = words(pair.source.replace("'s", "")), words(pair.target)
        partners = {i: {target[j] for k, j in pair.alignment if k == i} for i in range(len(source))}
        for i, text in enumerate(source[:-1]):
            if text not in ADJECTIVES.keys() - VERBS.keys() or source[i + 1] not in NOUN_FORMS:
                continue
            noun, number = NOUN_FORMS[source[i + 1]]
            adjective = ADJECTIVES[text]
            right = {adjective.french[noun.gender][number]}
            if not noun.gender and not number and vowel(noun.french[0]):
                right = {adjective.liaison}
            assert partners[i] == right, pair
            assert noun.french[number] in partners[i + 1], pair
            checked += 1
    assert checked > 2000


def test_articles_agree_with_the_noun_after_them(train: list[SyntheticPair]) -> None:
    forms: dict[str, set[tuple[int, int]]] = {}
    for noun in NOUNS.values():
        for number, form in enumerate(noun.french):
            forms.setdefault(form, set()).add((noun.gender, number))
    for verb in VERBS.values():  # les lit: the beds, or reads them
        for form in (*verb.present, *verb.future):
            forms.pop(form, None)
    features = {
        **{"un": (0, 0), "une": (1, 0), "le": (0, 0), "la": (1, 0), "du": (0, 0), "au": (0, 0)},
        **{"ce": (0, 0), "cet": (0, 0), "cette": (1, 0), "ma": (1, 0), "sa": (1, 0)},
    }
    many = {"les", "des", "aux", "ces", "mes", "ses", "nos", "vos", "leurs", "plusieurs"}
    for pair in train:
        target = [text.lower() for text in words(pair.target)]
        for before, (item, two) in zip(["", *target], pairwise(target), strict=False):
            if item in features and two in forms and before != "et":
                assert features[item] in forms[two], pair
            if item in many and two in forms:
                assert any(number for _, number in forms[two]), pair


def test_participles_with_etre_agree(train: list[SyntheticPair]) -> None:
    moves = {v.participle[0][0] for vs in LEXICON.verbs.values() for v in vs if v.etre}
    feminines = {"elle": "e", "elles": "es"}
    checked = 0
    for pair in train:
        target = [text.lower() for text in words(pair.target)]
        for i, text in enumerate(target):
            after = [t for t in target[i + 1 : i + 4] if t not in ("s'", "se")]
            if text in feminines and after[0] in ("est", "sont") and len(after) > 1:
                stem = after[1].rstrip("s").removesuffix("e")
                if stem in moves:
                    assert after[1] == stem + feminines[text], pair
                    checked += 1
    assert checked > 50


def test_negated_indefinite_objects_take_de(train: list[SyntheticPair]) -> None:
    for pair in train:
        assert not re.search(r"\b(pas|jamais|plus) (un|une) ", pair.target), pair
        assert len(re.findall(r"\b(ne|n)\b", pair.target)) == len(
            re.findall(r"\bnot\b|\bnever\b|\bno longer\b|\bcannot\b", pair.source)
        ), pair


def test_each_english_sentence_has_one_translation(train: list[SyntheticPair]) -> None:
    translations = {pair.source: pair for pair in train}
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


def test_splits_are_distinct(
    train: list[SyntheticPair], held_out: dict[str, list[SyntheticPair]]
) -> None:
    everything = [*train, *held_out["valid"], *held_out["test"]]
    assert len({pair.source for pair in everything}) == len(everything)


def combinations(pair: SyntheticPair) -> set[tuple[str, str]]:
    """Every adjective with the noun after it, and the splits of all that may be combined."""
    source = words(pair.source)
    return {
        (item, NOUN_FORMS[two.removesuffix("'s")][0].english[0])
        for item, two in pairwise(source)
        if item in ADJECTIVES and two.removesuffix("'s") in NOUN_FORMS
    }


def possible(pair: SyntheticPair) -> set[str]:
    """The splits of any adjective or verb of the sentence with any of its nouns."""
    source = {text.removesuffix("'s") for text in words(pair.source)}
    nouns = {NOUN_FORMS[text][0].english[0] for text in source & NOUN_FORMS.keys()}
    messages = [n for n, v in VERBS.items() if source & {v.base, v.third, v.past}]
    return {
        split_of(item, noun)
        for item in [*messages, *(source & ADJECTIVES.keys())]
        for noun in nouns
    }


def test_training_never_shows_what_is_held_out(
    train: list[SyntheticPair], held_out: dict[str, list[SyntheticPair]]
) -> None:
    for pair in train:
        assert {split_of(*c) for c in combinations(pair)} <= {"train"}, pair
    for split, made in held_out.items():
        for pair in made:
            assert {split_of(*c) for c in combinations(pair)} <= {"train", split}, pair
            assert split in possible(pair), pair


def test_every_word_is_in_training(train: list[SyntheticPair]) -> None:
    seen = {text.removesuffix("'s") for pair in train for text in words(pair.source)}
    lower = {text.lower() for text in seen}
    assert not {n for n, noun in NOUNS.items() if not set(noun.english) & lower}
    assert not ADJECTIVES.keys() - seen - {text.capitalize() for text in lower} - lower
    assert not {n for n, v in VERBS.items() if not {v.base, v.third, v.past} & lower - {"bes"}}
    assert not {name for names in LEXICON.names for name in names} - seen
    assert not {english.split()[-1] for english, _ in LEXICON.places} - seen
    assert not {name for name, _ in (*LEXICON.months,)} - seen
    assert len(NOUNS) + len(ADJECTIVES) + len(VERBS) > 400


def test_write(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    write(folder, {"train": 30, "test": 5})
    write(folder, {"train": 20, "test": 5})
    assert sorted(path.name for path in folder.iterdir()) == [
        *("test.align", "test.en", "test.fr", "train.align", "train.en", "train.fr")
    ]
    made = pairs("train", 20)
    lines = {
        side: (folder / f"train.{side}").read_text(encoding="utf-8").split("\n")
        for side in ("en", "fr", "align")
    }
    assert lines["en"] == [*(pair.source for pair in made), ""]
    assert lines["fr"] == [*(pair.target for pair in made), ""]
    links = [tuple(tuple(map(int, p.split("-"))) for p in x.split()) for x in lines["align"]]
    assert links == [*(pair.alignment for pair in made), ()]


SUMS = {  # sha256 of the shipped files; `make corpus` writes them anew and prints these
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
    assert sum(path.stat().st_size for path in EMBEDDED.rglob("*.bz2")) < 1_500_000
    sums = {
        path.relative_to(EMBEDDED).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in EMBEDDED.rglob("*.bz2")
    }
    assert sums == SUMS


@pytest.mark.scale
def test_the_tool_reproduces_the_corpora() -> None:
    """The held-out files to the byte, and the beginning of the larger ones."""
    for split in ("valid", "test"):
        for name, content in files("short", split, pairs(split, SHIPPED["short"][split])).items():
            assert content == (EMBEDDED / name).read_bytes(), name
    for corpus, count in (("short", 2000), ("long", 3)):
        for split in SPLITS if corpus == "long" else ("train",):
            made = pairs(split, count, corpus=corpus)
            assert synthetic.pairs(split, count, corpus) == made


def test_long_sentences_have_every_length_as_often_and_share_the_rules() -> None:
    for split, count in SHIPPED["long"].items():
        shipped = synthetic.pairs(split, count, "long")
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
        ("dev", 1, "short", "short, long, with train, valid, test; there is no short dev"),
        ("test", 1, "huge", "there is no huge test"),
        ("test", 1001, "short", "has 1,000 short pairs in test, not 1,001"),
    ],
)
def test_what_is_not_shipped_says_what_is(
    split: str, count: int, corpus: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        synthetic.pairs(split, count, corpus)


def test_a_lexicon_that_names_an_unknown_noun_says_so() -> None:
    with pytest.raises(ValueError, match="no group or noun named unicorn"):
        LEXICON.nouns("kin unicorn")
