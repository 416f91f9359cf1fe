"""Tokenizers: there and back, their files, and those trained on several corpora."""

import json
import os
import subprocess
import sys
from ctypes import CDLL, Structure, c_size_t
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from foveate.config import ConfigError, kinds, parse_tree
from foveate.data.text import TextData
from foveate.data.tokenizer import BOS, BPE, EOS, PAD, SPECIALS, UNK, Symbol, Tokenizer
from foveate.documents.memory import aligner
from foveate.errors import UserError
from foveate.run import Run, RunConfig
from foveate.run.passes import word_maps
from foveate.run.training import train
from foveate.serve.batching import PairOperation
from foveate.tasks.translation import Translation

LINES = [
    "A man's dog runs in the snow.",
    "Two dogs don't run in the green grass, do they?",
    "Un homme n'a pas vu l'homme qui court : « quel été ! »",
    "L’enfant court aujourd'hui dans l'herbe verte qu'il aime.",
    "dog dogs snow grass man men",
] * 3
SIZES = {"bpe": {"vocab_size": 400}, "unigram": {"vocab_size": 320}, "word": {"min_frequency": 1}}
PUBLISHED = {"sentencepiece", "sentencepiece_bpe", "published"}  # test_exchange_*.py have laws
KINDS = sorted(kinds("tokenizer")["tokenizer"].keys() - PUBLISHED)
LOSSLESS = ("bpe", "byte", "unigram")
HOSTILE = [
    "",
    " ",
    "  ",
    "\t\n\r\0\x07\x7f\x85\u2028",
    " dog ",
    "dog  dog\t dog\n\n",
    "<s> </s> <unk> <pad><s></s>",
    "Ġdog ĊÃ© ▁dog <0x41>",
    "é e\u0301 👩‍👩‍👧‍👦 🇫🇷 �",
    "שלום עולם \u202eabc\u202c مرحبا",
    "l'homme l’homme L'HOMME 'quoted' rock'n'roll ''",
    "x" * 300,
    "3,14 ½ Ⅷ 漢字かな \U0010ffff",
]


@cache
def trained(kind: str, **fields: object) -> Tokenizer:
    config = Tokenizer.Config.parse({"kind": kind, **SIZES.get(kind, {}), **fields})
    tokenizer = config.build()
    tokenizer.train(LINES)
    return tokenizer


@st.composite
def texts(draw: st.DrawFn) -> str:
    known = st.sampled_from(["dog", " dog", "<s>", "</s>", "<unk>", "l'", "  ", "\n", "é", "😀"])
    return "".join(draw(st.lists(st.one_of(known, st.text()), max_size=6)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", [*HOSTILE, *LINES[:5]])
def test_a_batch_is_its_texts_and_ids_have_spans_in_order(kind: str, text: str) -> None:
    tokenizer = trained(kind)
    encoded = tokenizer.encode(text)
    assert tokenizer.encode_batch(["dog", text, ""])[1] == encoded
    assert tokenizer.encode_ids(["dog", text, ""])[1] == encoded.ids
    assert len(encoded.ids) == len(encoded.offsets)
    assert encoded.offsets == sorted(encoded.offsets)
    assert all(0 <= start <= end <= len(text) for start, end in encoded.offsets)
    covered = {i for a, b in encoded.offsets for i in range(a, b)}
    assert covered >= {i for i, character in enumerate(text) if not character.isspace()}
    if kind in LOSSLESS:
        assert tokenizer.decode(encoded.ids) == text
        assert tokenizer.spans(encoded.ids) == encoded.offsets


@pytest.mark.parametrize("kind", KINDS)
@given(text=texts())
@settings(max_examples=60, deadline=None)
def test_no_text_reaches_a_special_id(kind: str, text: str) -> None:
    tokenizer = trained(kind)
    ids = tokenizer.encode(text).ids
    lowest = UNK if kind in ("word", "symbol", "character") else len(SPECIALS)
    assert all(lowest <= i < tokenizer.vocab_size and i not in (PAD, BOS, EOS) for i in ids)


def test_special_pieces_in_the_training_text_are_text() -> None:
    for kind in KINDS:
        tokenizer = Tokenizer.Config.parse({"kind": kind, **SIZES.get(kind, {})}).build()
        tokenizer.train(["<s> dog </s> <unk> <pad>"] * 50)
        assert tuple(tokenizer.pieces[:4]) == SPECIALS
        assert not {PAD, BOS, EOS} & set(tokenizer.encode("<s> dog </s> <pad>").ids)


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_are_unique_and_special_ones_are_silent(kind: str) -> None:
    tokenizer = trained(kind)
    assert len(set(tokenizer.pieces)) == tokenizer.vocab_size
    ids = tokenizer.encode("dogs").ids
    framed = [BOS, *ids, EOS, PAD]
    assert tokenizer.decode(framed) == tokenizer.decode(ids)
    assert tokenizer.decode([EOS], skip_special=False) == "</s>"
    spans = tokenizer.spans(framed)
    assert spans[1:-2] == tokenizer.spans(ids)
    assert all(start == end for start, end in (spans[0], *spans[-2:]))
    assert tokenizer.decode([]) == "" and tokenizer.spans([]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_is_the_same(kind: str, tmp_path: Path) -> None:
    tokenizer = trained(kind)
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert os.listdir(tmp_path) == ["tokenizer.json"]
    assert loaded.config == tokenizer.config
    assert loaded.pieces == tokenizer.pieces
    assert loaded.encode_batch(HOSTILE) == tokenizer.encode_batch(HOSTILE)


@pytest.mark.parametrize("kind", KINDS)
def test_training_twice_gives_the_same_file(kind: str, tmp_path: Path) -> None:
    code = (
        "import sys, json; from foveate.data.tokenizer import Tokenizer\n"
        "kind, fields, lines, path = map(json.loads, sys.argv[1:])\n"
        "t = Tokenizer.Config.parse({'kind': kind, **fields}).build(); t.train(lines); t.save(path)"
    )
    given_values = (kind, SIZES.get(kind, {}), LINES, str(tmp_path / "again.json"))
    subprocess.run([sys.executable, "-c", code, *map(json.dumps, given_values)], check=True)
    trained(kind).save(tmp_path / "once.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "once.json").read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_character_is_an_error_and_training_on_nothing_still_encodes(kind: str) -> None:
    with pytest.raises(ValueError, match="text 2, character 4: a lone surrogate"):
        trained(kind).encode_ids(["dog", "dog\ud83d"])
    tokenizer = Tokenizer.Config.parse({"kind": kind}).build()
    tokenizer.train([])
    ids = tokenizer.encode("dog").ids
    assert tokenizer.decode(ids) == ("dog" if kind in LOSSLESS else "<unk>" * len(ids))


@pytest.mark.parametrize("kind", LOSSLESS)
@given(text=texts())
@example(text="\ufffd\u0301\x00")
@settings(max_examples=150, deadline=None)
def test_any_text_comes_back(kind: str, text: str) -> None:
    tokenizer = trained(kind)
    encoded = tokenizer.encode(text)
    assert tokenizer.decode(encoded.ids) == text
    assert tokenizer.spans(encoded.ids) == encoded.offsets
    assert {i for a, b in encoded.offsets for i in range(a, b)} == set(range(len(text)))


@pytest.mark.parametrize("kind", ["byte", "bpe"])
@given(ids=st.lists(st.integers(0, 259), max_size=12))
@settings(max_examples=100, deadline=None)
def test_whatever_a_model_says_decodes_and_spans_stay_inside(kind: str, ids: list[int]) -> None:
    spans = trained(kind).spans(ids)
    starts = [start for start, _ in spans]  # a special id inside a character is empty there
    assert starts == sorted(starts)
    assert all(0 <= start <= end <= len(trained(kind).decode(ids)) for start, end in spans)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_words_have_the_same_pieces_anywhere_and_pieces_stay_in_words(kind: str) -> None:
    tokenizer = trained(kind)
    alone, inside = tokenizer.encode_ids(["dog", "man dog"])
    assert inside[-len(alone) :] == alone
    text = "dog l'homme dog's dogs."
    words = [text[a:b] for a, b in trained(kind, vocab_size=400).encode(text).offsets]
    assert words == ["dog", " l'", "homme", " dog", "'s", " dogs", "."]


def test_a_part_of_a_character_stands_for_the_whole_character() -> None:
    assert trained("bpe").encode("a😀b").offsets == [(0, 1), *[(1, 2)] * 4, (2, 3)]
    assert trained("byte").encode("é!").offsets == [(0, 1), (0, 1), (1, 2)]


def test_lowercase_offsets_are_those_of_the_original() -> None:
    text = "DOG İİ Dog"
    for kind in ("bpe", "unigram"):
        tokenizer = trained(kind, lowercase=True)
        encoded = tokenizer.encode(text)
        assert tokenizer.decode(encoded.ids) == text.lower()
        assert encoded.offsets[-1] == (6, 10)


@pytest.mark.parametrize(
    ("kind", "fields", "text", "decoded"),
    [
        ("character", {}, "  Un été. ", "  Un été. "),
        ("character", {}, "d漢g", "d<unk>g"),
        ("word", {}, "Un homme n'a pas vu l'homme.", "Un homme n'a pas vu l'homme."),
        ("word", {}, "Two dogs don't run, do they?", "Two dogs don't run, do they?"),
        ("word", {}, "zebra  zebra runs", "<unk> <unk> runs"),
        ("word", {"lowercase": True}, "DOG dog", "dog dog"),
    ],
)
def test_words_and_characters_are_joined_as_print_has_them(kind, fields, text, decoded) -> None:
    tokenizer = trained(kind, **fields)
    assert tokenizer.decode(tokenizer.encode(text).ids) == decoded


def test_frequent_words_are_kept_and_ties_fall_by_code_point() -> None:
    built = Tokenizer.Config.parse({"kind": "word", "vocab_size": 6, "min_frequency": 1}).build()
    built.train(["d c b b a"])
    assert built.pieces == [*SPECIALS, "b", "a"]


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(RuntimeError, match="bpe tokenizer has no pieces; train it first"):
        Tokenizer.Config.parse("bpe").build().encode("dog")
    with pytest.raises(ConfigError, match="vocab_size"):  # smaller than the bytes
        Tokenizer.Config.parse({"kind": "bpe", "vocab_size": 259})
    for tree in ({"kind": "translation"}, {"kind": "translation", "source": "a", "corpora": ["b"]}):
        with pytest.raises((ConfigError, ValueError)):
            Translation.Config.parse(tree)


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(CDLL(None), "mallinfo2"),
    reason="glibc from 2.33 on tells what is allocated",
)
def test_reading_a_tokenizer_again_and_again_takes_no_memory(tmp_path: Path) -> None:
    fields = [("rest", c_size_t * 7), ("allocated", c_size_t), ("other", c_size_t * 2)]
    heap = CDLL(None).mallinfo2
    heap.restype = type("mallinfo2", (Structure,), {"_fields_": fields})
    trained("bpe").save(tmp_path / "tokenizer.json")
    many = [f"word{number}" for number in range(2000)]
    sizes = []
    for _ in range(30):
        Tokenizer.load(tmp_path / "tokenizer.json").encode_ids(many)
        sizes.append(heap().allocated)
    assert sizes[-1] - sizes[9] < 2**20  # half of one each where words are remembered anew


def test_blanks_alone_divide_words_and_unknown_is_a_word_of_the_text() -> None:
    tokenizer = Symbol.Config().build()
    tokenizer.train([" mr. <unk> 's n.v. ", "a <unk> a"])
    assert tokenizer.pieces == [*SPECIALS, "a", "'s", "mr.", "n.v."]
    encoded = tokenizer.encode(" mr. <unk> 's xyz")
    assert [tokenizer.pieces[i] for i in encoded.ids] == ["mr.", "<unk>", "'s", "<unk>"]
    assert encoded.offsets == [(1, 4), (5, 10), (11, 13), (14, 17)]
    assert tokenizer.decode(encoded.ids) == "mr. <unk> 's <unk>"


@given(text=texts())
@settings(max_examples=60, deadline=None)
def test_without_dropout_the_split_is_the_plain_one(text: str) -> None:
    plain = trained("bpe", dropout=0.0)
    for item in (text, *LINES, *HOSTILE):
        assert plain.encode_noisy([item], [(1,)]) == plain.encode_ids([item])


@given(text=texts(), seed=st.integers(0, 2**62))
@settings(max_examples=60, deadline=None)
def test_any_split_decodes_to_the_text(text: str, seed: int) -> None:
    tokenizer = trained("bpe", dropout=0.5)
    ids = tokenizer.encode_noisy([text], [(seed, 1)])
    assert tokenizer.decode(ids[0]) == text
    assert ids == tokenizer.encode_noisy([text], [(seed, 1)])


def test_other_seeds_give_other_longer_splits_however_much_is_remembered(monkeypatch) -> None:
    tokenizer: Any = BPE.Config(vocab_size=420, dropout=0.3).build()
    tokenizer.train(LINES)
    seeds = [(i,) for i in range(20)]
    splits = tokenizer.encode_noisy(LINES[:1] * 20, seeds)
    assert len({tuple(ids) for ids in splits}) > 15
    assert sum(map(len, splits)) / 20 > len(tokenizer.encode_ids(LINES[:1])[0])
    monkeypatch.setattr("foveate.data.tokenizer.REMEMBERED", 2)
    tokenizer._restore(tokenizer._vocabulary())
    assert tokenizer.encode_noisy(LINES[:1] * 20, seeds) == splits
    assert len(tokenizer._chunks) <= 2


def test_training_sees_it_and_nothing_else_does(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("".join(f"{a}\t{a}\n" for a in LINES), encoding="utf-8")
    (tmp_path / "valid.tsv").write_text(f"{LINES[0]}\t{LINES[1]}\n", encoding="utf-8")
    bpe = BPE.Config(vocab_size=420, dropout=0.3)
    config = Translation.Config(source=str(tmp_path / "{split}.tsv"), tokenizer=bpe)
    task = config.build(TextData())
    task.prepare(tmp_path, seed=1)
    item, same, other = (task.batch("train", [0, 1, 2], noise=n).inputs.tolist() for n in (5, 5, 6))
    assert item == same != other
    plain = task.batch("valid", [0], noise=5).inputs[0, 1:].tolist()
    assert plain == task.target_tokenizer.encode_ids([LINES[1]])[0]
    again = config.build(TextData())
    again.restore(tmp_path)  # the merges come back from the file
    assert again.batch("train", [0, 1, 2], noise=5).inputs.tolist() == item


# ---- Several corpora in one task: tags are pieces of their own, and say what to translate to
PAIRS = {"fr": [("a dog", "un chien"), ("the cat", "le chat")], "de": [("a dog", "ein Hund")]}
TAGS = ["<2fr>", "<2de>"]


@pytest.fixture
def tree(tmp_path: Path) -> dict[str, Any]:
    for language, pairs in PAIRS.items():
        rows = "".join(f"{s}\t{t}\n" for s, t in pairs)
        for split in ("train", "valid", "test"):
            (tmp_path / f"{split}.{language}.tsv").write_text(rows, encoding="utf-8")
    source = str(tmp_path / "{split}")
    corpora = [{"source": f"{source}.{each}.tsv", "tag": f"<2{each}>"} for each in PAIRS]
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
    for corpus, weight in zip(tree["corpora"], (2.0, 4.0), strict=True):
        corpus["weight"] = weight
    weighted = task(tree, tmp_path)
    plan = weighted.plan(weighted.lengths("train"), 100, 1)
    assert sorted(np.concatenate(plan.epoch(0)).tolist()) in ([0, 2, 2], [1, 2, 2])


def test_a_corpus_of_one_file_beside_divided_ones_is_for_training_alone(
    tree: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "back.tsv").write_text("a bird\tun oiseau\n", encoding="utf-8")
    tree["corpora"] = [tree["corpora"][0] | {"tag": None}, {"source": str(tmp_path / "back.tsv")}]
    built = task(tree, tmp_path)
    assert list(built.corpus("train").sources) == ["a dog", "the cat", "a bird"]
    for split in ("valid", "test"):
        assert list(built.corpus(split).sources) == ["a dog", "the cat"]
    tree["corpora"] = tree["corpora"][1:]
    with pytest.raises(UserError, match="would be both train and valid"):
        task(tree, tmp_path).corpus("valid")


def test_a_run_translates_to_the_language_that_is_asked_for(tree: dict[str, Any], tmp_path) -> None:
    part = {"kind": "recurrent", "embedding_size": 32, "hidden_size": 32, "dropout": 0.0}
    adam = {"optimizer": {"kind": "adam", "lr": 0.02}, "schedule": "constant"}
    config = {
        "task": tree,
        "model": {"kind": "encoder_decoder", "encoder": part, "decoder": part},
        "objective": {"label_smoothing": 0.0},
        "train": adam | {"max_steps": 120, "precision": "fp32"},
    }
    run = train(parse_tree(RunConfig, config), folder=tmp_path / "run")
    output = {to: [str(t) for t in run.translate(["a dog", ""], to=to)] for to in PAIRS}
    assert output == {"fr": ["un chien", ""], "de": ["ein Hund", ""]}
    assert str(run.translate(["<2de> a dog"])[0]) == "ein Hund"
    with pytest.raises(ValueError, match=r"choose one .*fr, de"):
        run.translate(["a dog"])
    with pytest.raises(ValueError, match=r"cannot translate to 'es'.*fr, de"):
        run.translate(["a dog"], to="es")
    assert run.evaluate().figures["exact_match <2de>"] == 100
    french = run.evaluate(["<2fr> a dog"], ["un chien"]).figures
    assert french["exact_match <2fr>"] == 100 and not any("<2de>" in name for name in french)


def test_links_count_the_words_behind_the_tag(tree: dict[str, Any], tmp_path: Path) -> None:
    """The user's line stays, and the tag is no word of it, whoever names the language."""
    part = {"kind": "recurrent", "embedding_size": 8, "hidden_size": 8}
    decoder = part | {"attention": {"kind": "full"}}
    model = {"kind": "encoder_decoder", "encoder": part, "decoder": decoder}
    config = parse_tree(RunConfig, {"task": tree, "model": model})
    built = task(tree, tmp_path)
    run = Run(tmp_path, config, built, built.build(config.model).eval(), "step")
    (named,) = run.translate(["the cat"], to="fr", prefix="le chat", beam_size=1)
    assert (named.source, named.json()["source"]) == ("the cat", "the cat")
    assert named.alignment() and named.record() is not None
    (written,) = run.translate(["<2fr> the cat"], prefix="le chat", beam_size=1)
    assert (written.source, written.alignment()) == ("<2fr> the cat", named.alignment())
    (maps,) = word_maps(built, run.model, [("<2fr> the cat", "le chat")])
    ((weights,),) = maps.values()
    assert weights.shape == (2, 3)  # the, cat and the end
    assert (weights.sum(axis=1) < 0.99).all()  # the rest is of the tag
    assert {s for s, _ in named.alignment()} <= {0, 1}
    links = aligner(run, to="fr")([("the cat", named.hypotheses[0])])
    assert links == [sorted(run.links([("<2fr> the cat", named.hypotheses[0])])[0])]
    pairs = [("the cat", named.hypotheses[0])]
    plan = PairOperation("fr").plan(run, pairs, 1000)
    assert plan.answer(pairs, lambda: False) == links


def test_tokenizers_of_corpora_are_learnt_from_a_sample(tree: dict[str, Any], tmp_path) -> None:
    for language in PAIRS:
        rows = [f"{i} dogs\t{i} chiens\n" for i in range(90)]
        (tmp_path / f"train.{language}.tsv").write_text("".join(rows), encoding="utf-8")
    built: Translation = Translation.Config.parse(tree).build(TextData(tokenizer_sample=1))
    built.prepare(tmp_path, seed=1)
    report = built.describe_data()
    assert report[0].startswith("train: 180 pairs")
    assert report[-1].endswith("learnt from 1 of 180 pairs")
    assert len(built.source_tokenizer.pieces) < len(task(tree, tmp_path).source_tokenizer.pieces)
