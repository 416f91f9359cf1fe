"""Formats of lines that the ending of a file does not tell, from the file to the task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foveate.data.catalogue import DataError
from foveate.data.text import CMUdict, Inflection, TextData, read_pairs, read_split
from foveate.data.tokenizer import Character, Symbol
from foveate.tasks.translation import Translation

DICTIONARY = TextData(format=CMUdict.Config())
LINES = [
    "'em AH0 M",
    "read R EH1 D",
    "read(2) R IY1 D  # verb",
    "aalen AE1 L AH0 N # place, german",
]


@pytest.fixture
def dictionary(tmp_path: Path) -> Path:
    path = tmp_path / "words.dict"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


def test_a_pronouncing_dictionary(dictionary: Path) -> None:
    corpus = read_pairs(dictionary, None, DICTIONARY)
    assert corpus.sources == ["'em", "read", "read", "aalen"]
    assert corpus.targets == ["AH0 M", "R EH1 D", "R IY1 D", "AE1 L AH0 N"]


def test_stress_can_be_left_out(dictionary: Path) -> None:
    plain = TextData(format=CMUdict.Config(stress=False))
    assert read_pairs(dictionary, None, plain).targets == ["AH M", "R EH D", "R IY D", "AE L AH N"]


def test_all_pronunciations_of_a_word_are_trained_and_any_is_right(tmp_path: Path) -> None:
    path = tmp_path / "many.dict"
    words = [f"w{i}" for i in range(200)]
    path.write_text("".join(f"{w} A {w}\n{w}(2) B {w}\n" for w in words), encoding="utf-8")
    config = DICTIONARY.model_copy(update={"holdout": 0.1})
    splits = {s: read_split(path, None, s, config) for s in ("train", "valid", "test")}
    train = splits["train"]
    assert train.alternatives is None and len(train) == 2 * len(set(train.sources))
    for split in ("valid", "test"):
        held = splits[split]
        assert len(held) == len(set(held.sources)) > 0
        assert held.references == [(f"A {w}", f"B {w}") for w in held.sources]
        assert not set(held.sources) & set(train.sources)
    assert sum(len(set(corpus.sources)) for corpus in splits.values()) == 200


@pytest.mark.parametrize("line", ["word", "", "word   # nothing"])
def test_a_line_without_phones_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "bad.dict").write_text(f"a AH0\n{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"bad.dict:2: needs a word"):
        read_pairs(tmp_path / "bad.dict", None, DICTIONARY)


def test_inflection_and_its_symbols(tmp_path: Path) -> None:
    (tmp_path / "forms.tsv").write_text("an<kommen\tkommt an\tV;IND;3;SG\n", encoding="utf-8")
    corpus = read_pairs(tmp_path / "forms.tsv", None, TextData(format=Inflection.Config()))
    assert (corpus.sources, corpus.targets) == (["an<kommen<V><IND><3><SG>"], ["kommt an"])
    tokenizer = Character.Config(symbols="<[^<>]+>").build()
    tokenizer.train(corpus.sources + corpus.targets)
    ids = tokenizer.encode_ids(corpus.sources)[0]
    pieces = [*"an<kommen", "<V>", "<IND>", "<3>", "<SG>"]
    assert [tokenizer.pieces[i] for i in ids] == pieces
    assert tokenizer.decode(ids) == corpus.sources[0]


@pytest.mark.parametrize("line", ["Hahn<N><GEN><SG>", "Hahn\tN;GEN;SG", "Hahn\tHahnes\tN;GEN;SG"])
def test_a_raw_line_of_the_data_is_the_source_that_it_stands_for(tmp_path: Path, line: str) -> None:
    (tmp_path / "forms.tsv").write_text("Hahn\tHahnes\tN;GEN;SG\n", encoding="utf-8")
    config = Translation.Config(
        source=str(tmp_path / "forms.tsv"), tokenizer=Character.Config(symbols="<[^<>]+>")
    )
    task = config.build(TextData(format=Inflection.Config()))
    task.prepare(tmp_path, seed=1)
    assert task.addressed([line, "", " "]) == ["Hahn<N><GEN><SG>", "", " "]
    for wrong in ("Hahn", "Hahn N;GEN;SG", "Hahn\tHahnes", "\tN;SG", "a\tb\tc\tN;SG", "Hahn\t"):
        with pytest.raises(ValueError, match="write Hahn<N><GEN><SG>, or a line of the data"):
            task.addressed([wrong])


def test_a_format_wants_one_file(dictionary: Path) -> None:
    with pytest.raises(DataError, match="holds both sides"):
        read_pairs(dictionary, dictionary, DICTIONARY)


def test_symbols_stand_between_blanks() -> None:
    tokenizer = Symbol.Config().build()
    tokenizer.train(["HH AH0 L OW1"])
    ids = tokenizer.encode_ids([" HH  L AH0 "])[0]
    assert tokenizer.decode(ids) == "HH L AH0"
    assert [tokenizer.decode(ids)[a:b].strip() for a, b in tokenizer.spans(ids)] == [
        "HH", "L", "AH0"
    ]  # fmt: skip


def test_two_kinds_of_tokenizer_for_two_sides(dictionary: Path, tmp_path: Path) -> None:
    config = Translation.Config(
        source=str(dictionary),
        tokenizer=Character.Config(),
        target_tokenizer=Symbol.Config(),
        joint=False,
        metrics=("wer", "per"),
    )
    task = config.build(DICTIONARY)
    task.prepare(tmp_path, seed=1)
    kinds = task.source_tokenizer.config.kind, task.target_tokenizer.config.kind
    assert kinds == ("character", "symbol")
    assert task.batch("train", [0]).target.tolist() == [
        [*task.target_tokenizer.encode_ids(["AH0 M"])[0], 3]
    ]
    read = task.read(dictionary)  # the user's own dictionary is read as the run's
    assert read.references[1] == ("R EH1 D", "R IY1 D")
    with pytest.raises(ValueError, match="joint = false"):
        Translation.Config(source="x", target_tokenizer=Symbol.Config())


# ------------------------------------------------------------------------------ CSV


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ('en,fr\n"a, b",c\nd,e\n', {}),
        ("en;fr\na, b;c\nd;e\n", {}),
        ("en\tfr\r\na, b\tc\r\nd\te\r\n", {}),
        ('en,fr\n"a, b",c\n\nd,e', {}),
        ("fr;id;en\nc;1;a, b\ne;2;d\n", {"columns": ("en", "fr")}),
        ("fr;id;en\nc;1;a, b\ne;2;d\n", {"columns": (3, 1)}),
        ("a, b|c\nd|e\n", {"header": False, "delimiter": "|"}),
        ('en,fr\n"a,\nb",c\nd,e\n', {}),
    ],
)
def test_a_csv_gives_pairs(tmp_path: Path, text: str, fields: dict[str, Any]) -> None:
    (tmp_path / "pairs.csv").write_text(text, encoding="utf-8", newline="")
    corpus = read_pairs(tmp_path / "pairs.csv", None, TextData(**fields))
    assert (list(corpus.sources), list(corpus.targets)) == (["a, b", "d"], ["c", "e"])
    assert corpus.lines[1] == text.rstrip().replace("\r", "").count("\n") + 1


@pytest.mark.parametrize(
    ("text", "fields", "message"),
    [
        ("en,fr\na,b,c\n", {}, "pairs.csv:2: cells: 3; in the first row: 2; mend it"),
        ("A dog runs.,Un chien court.\n", {}, "pairs.csv:1: .*'A dog runs.' looks like data"),
        (
            "en,fr\na,b\n",
            {"columns": ("en", "de")},
            "pairs.csv:1: no column 'de'; there are: en, fr",
        ),
        ("en\na\n", {}, "pairs.csv:1: columns: 1; needed: 2; name them in data.columns"),
        ('en,fr\n"a,b\nc,d\n', {}, "pairs.csv:2: a quote is opened and not closed"),
        ('en,fr\n"a"x"",b\n', {}, "pairs.csv:2: no row of a CSV"),
        ("a,b\n", {"columns": ("a", "b"), "header": False}, "data.header = false; number them"),
    ],
)
def test_a_bad_csv_is_named(
    tmp_path: Path, text: str, fields: dict[str, Any], message: str
) -> None:
    (tmp_path / "pairs.csv").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_pairs(tmp_path / "pairs.csv", None, TextData(**fields))
