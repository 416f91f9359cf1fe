"""Text: rows of files, pairs of a split, formats, and columns in mapped files."""

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.config import ConfigError, parse_tree
from foveate.data import text as text_files
from foveate.data.catalogue import DataError
from foveate.data.corpus import portions
from foveate.data.text import Corpus, TextData, read_pairs
from foveate.data.tokenizer import Character, Symbol
from foveate.run.evaluation import read_examples
from foveate.tasks.translation import Translation
from task_tools import read_split

SKIP = TextData(on_bad_line="skip")
ODD_BREAKS = "\u2028 \u2029 \x0b \x0c \x1c \x1d \x1e \x85 \x00"  # str.splitlines would break here

# any text that a line can hold: the ends of lines themselves are what a line cannot hold
line = st.text(st.characters(exclude_characters="\n\r\t", exclude_categories=["Cs"]), max_size=12)
pairs = st.lists(st.tuples(line, line), min_size=1, max_size=8).filter(
    lambda rows: not any(text.startswith("\ufeff") for text in rows[0])
)


def write(path: Path, lines: list[str], end: str = "\n", last: bool = True) -> Path:
    data = (end.join(lines) + (end if last else "")).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def sides(corpus: Corpus) -> list[tuple[str, str]]:
    return list(zip(corpus.sources, corpus.targets, strict=True))


@given(rows=pairs, end=st.sampled_from(["\n", "\r\n"]), ending=st.sampled_from(["", ".gz"]))
def test_every_format_gives_the_same_pairs(rows, end, ending, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("formats")
    source = write(folder / f"a.en{ending}", [s for s, _ in rows], end)
    target = write(folder / f"a.fr{ending}", [t for _, t in rows], end)
    tsv = write(folder / f"a.tsv{ending}", [f"{s}\t{t}" for s, t in rows], end)
    records = [json.dumps({"source": s, "target": t}) for s, t in rows]
    jsonl = write(folder / f"a.jsonl{ending}", records, end)
    others = (read_pairs(path, None, TextData()) for path in (tsv, jsonl))
    for corpus in (read_pairs(source, target, TextData()), *others):
        assert sides(corpus) == rows
        assert list(corpus.lines) == list(range(1, len(rows) + 1))
        assert corpus.skipped == []


@pytest.mark.parametrize(
    ("data", "sources"),
    [
        (f"one {ODD_BREAKS} more\tun\ntwo\rtoo\tdeux\n", [f"one {ODD_BREAKS} more", "two\rtoo"]),
        ("one\tun\n\tdeux\nthree\ttrois", ["one", "", "three"]),  # the last has no end
        ("\ufeffone\tun\n\ufefftwo\tdeux\n", ["one", "\ufefftwo"]),  # a mark, and no mark
    ],
)
def test_only_line_feeds_end_a_line(data: str, sources: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(data.encode())
    assert read_pairs(tmp_path / "a.tsv", None, TextData()).sources == sources


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    text = write(tmp_path / "a.en", ["one"])
    tsv = write(tmp_path / "a.tsv", ["one\tun"])
    held_out = TextData(holdout=0.1)
    for read, message in (
        (lambda: read_pairs(text, None, TextData()), "target"),
        (lambda: read_pairs(tsv, text, TextData()), "both sides"),
        (lambda: read_pairs(tmp_path / "no.en", text, TextData()), r"no file .*no\.en"),
        (lambda: read_pairs(tsv, tsv, DICTIONARY), "holds both sides"),
        (lambda: read_split(tsv, None, "test", TextData()), r"\{split\}.*holdout"),
        (lambda: read_split(tsv, None, "dev", held_out), "train, valid and test"),
    ):
        with pytest.raises(DataError, match=message):
            read()
    assert len(read_split(tsv, None, "train", TextData())) == 1


TABS = ["one\tun", "three\ttrois"]
RECORDS = ['{"source": "one", "target": "un"}', '{"source": "three", "target": "trois"}']


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("a.tsv", b"two deux", "1 columns between tabs; 2 are needed"),
        ("a.tsv", b"two\td\teux", "3 columns between tabs; earlier lines have 2"),
        ("a.tsv", b"tw\xe9\tdeux", "0xe9 at position 3"),
        ("a.tsv.gz", b"tw\xe9\tdeux", "0xe9 at position 3"),
        ("a.jsonl", b"{", "not JSON"),
        ("a.jsonl", b'["two", "deux"]', "not a JSON object"),
        ("a.jsonl", b'{"source": "two"}', "no key 'target'.*: source"),
        ("a.jsonl", b'{"source": "two", "target": null}', "target is null"),
        ("a.jsonl", b'{"source": "two", "target": ["deux"]}', "target is a list"),
        ("a.jsonl", b'{"source": "a", "target": "b", "target": "c"}', "the key 'target' twice"),
        ("a.jsonl", b'{"source": "two", "target": "\\ud800"}', "surrogate"),
        ("a.jsonl", b"[" * 100_000, "not JSON"),
        ("a.jsonl", b"", "not JSON"),
    ],
)
def test_a_bad_line_stops_reading_or_is_skipped(name, line, reason, tmp_path: Path) -> None:
    """Its place and the remedy are named; skipped, it is listed."""
    path = tmp_path / name
    good = [text.encode() for text in (RECORDS if name == "a.jsonl" else TABS)]
    content = b"\n".join((good[0], line, good[1]))
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    with pytest.raises(DataError, match=rf"{name}:2: .*{reason}.*on_bad_line"):
        read_pairs(path, None, TextData())
    corpus = read_pairs(path, None, SKIP)
    assert [(b.file, b.line) for b in corpus.skipped] == [(str(path), 2)]
    assert sides(corpus) == [("one", "un"), ("three", "trois")]
    assert list(corpus.lines) == [1, 3]


def test_a_bad_line_takes_its_partner_with_it(tmp_path: Path) -> None:
    source, target = tmp_path / "a.en", tmp_path / "a.fr"
    source.write_bytes(b"one\ntwo \xff\nthree\nfour\n")
    target.write_bytes(b"un\ndeux\ntrois\nquatre \xc3\n")
    corpus = read_pairs(source, target, SKIP)
    assert sides(corpus) == [("one", "un"), ("three", "trois")]
    assert [(Path(b.file).name, b.line) for b in corpus.skipped] == [("a.en", 2), ("a.fr", 4)]
    with pytest.raises(DataError, match=r"a\.en:2: not UTF-8 .*0xff"):
        read_pairs(source, target, TextData())


@pytest.mark.parametrize(("longer", "shorter"), [("en", "fr"), ("fr", "en")])
def test_unequal_line_counts_name_both_files_and_counts(longer, shorter, tmp_path: Path) -> None:
    paths = {longer: write(tmp_path / f"a.{longer}", ["x"] * 5)}
    paths |= {shorter: write(tmp_path / f"a.{shorter}", ["x"] * 2)}
    output = rf"a\.{longer}:3: .*a\.{longer} has 5 lines, .*a\.{shorter} has 2.*on_bad_line"
    with pytest.raises(DataError, match=output):
        read_pairs(paths["en"], paths["fr"], TextData())
    corpus = read_pairs(paths["en"], paths["fr"], SKIP)
    assert (len(corpus), [b.line for b in corpus.skipped]) == (2, [3, 4, 5])


def test_another_charset_and_a_damaged_gzip_file_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes("one\tun\n".encode("utf-16"))
    with pytest.raises(DataError, match="iconv -f UTF-16"):
        read_pairs(path, None, TextData())
    whole = gzip.compress(b"".join(b"%d\tun\n" % n for n in range(50_000)))
    packed = tmp_path / "b.tsv.gz"
    for data, line in ((whole[:-2000], r"\d{3}"), (b"one\tun\n", "0")):
        packed.write_bytes(data)
        with pytest.raises(DataError, match=rf"b\.tsv\.gz: cannot be read after line {line}"):
            read_pairs(packed, None, SKIP)


def test_a_split_finds_its_file_by_pattern_and_names(tmp_path: Path) -> None:
    for name in ("train.en", "val.en.gz"):
        write(tmp_path / name, ["one"])
    pattern = str(tmp_path / "{split}.en")
    assert text_files.at(pattern, "train") == tmp_path / "train.en"
    assert text_files.at(pattern, "valid", {"valid": "val"}) == tmp_path / "val.en.gz"
    with pytest.raises(DataError, match=r"train\.en, val\.en\.gz.*splits"):
        text_files.at(pattern, "valid")


def divide(path: Path, config: TextData) -> dict[str, Corpus]:
    return {split: read_split(path, None, split, config) for split in ("train", "valid", "test")}


def test_valid_is_held_out_of_train_where_test_has_a_file(tmp_path: Path) -> None:
    write(tmp_path / "train.tsv", [f"{n}\tun" for n in range(99)])
    write(tmp_path / "test.tsv", ["one\tun"])
    parts = divide(tmp_path / "{split}.tsv", TextData(holdout=0.3))
    train, valid, test = (parts[split].sources for split in ("train", "valid", "test"))
    assert sorted([*train, *valid], key=int) == [str(n) for n in range(99)]
    assert 15 < len(valid) < 45 and list(test) == ["one"]


def test_holdout_divides_by_source_sentence(tmp_path: Path) -> None:
    forms = ("Sentence {}", "sentence  {} ", "SENTENCE\u00a0{}")
    rows = [forms[n % 3].format(n % 500) + f"\tphrase {n}" for n in range(2000)]
    path = write(tmp_path / "a.tsv", rows)
    parts = divide(path, TextData(holdout=0.1))
    assert sorted(n for part in parts.values() for n in part.lines) == list(range(1, 2001))
    for split in ("valid", "test"):
        assert 100 < len(parts[split]) < 300
        theirs = {text.split()[1] for text in parts[split].sources}
        assert theirs.isdisjoint(text.split()[1] for text in parts["train"].sources)
    assert divide(path, TextData(holdout=0.1)) == parts
    other = divide(path, TextData(holdout=0.1, holdout_seed=1))
    assert list(other["test"].lines) != list(parts["test"].lines)


def test_the_training_split_is_cleaned_and_what_is_left_out_is_counted(tmp_path: Path) -> None:
    pairs = [(1, "a", "b"), (2, "c", " c"), (3, "a", "b"), (4, "a", "d"), (5, "c", "c")]
    dropped = Counter[str]()
    assert list(text_files.cleaned([*pairs, *pairs], TextData(), dropped)) == [*pairs, *pairs]
    both = TextData(drop_duplicates=True, drop_identical=True)
    assert list(text_files.cleaned(pairs, both, dropped)) == [(1, "a", "b"), (4, "a", "d")]
    assert dropped == {"identical sides": 2, "duplicate pair": 1}
    for split, number in (("train", 1), ("test", 2)):
        write(tmp_path / f"{split}.tsv", ["a\tb", "a\tb"])
        assert len(read_split(tmp_path / "{split}.tsv", None, split, both)) == number


def test_a_pair_is_kept_or_counted_once_by_its_lengths() -> None:
    lengths = np.array([[3, 4], [0, 900], [11, 5], [10, 5], [8, 1], [256, 256], [257, 256]])
    saved, dropped = text_files.keep(lengths, TextData(max_length=256, max_length_ratio=2.0))
    assert saved.tolist() == [0, 3, 4, 5]
    assert list(dropped.values()) == [1, 1, 1]
    assert ["empty" in r or "max_length " in r or "ratio" in r for r in dropped] == [True] * 3
    everything, nothing = text_files.keep(lengths[[0, 2, 3, 4, 5]], TextData())
    assert (everything.tolist(), nothing) == ([0, 1, 2, 3, 4], {})
    assert text_files.keep(np.zeros((0, 2), dtype=np.int32), TextData())[0].tolist() == []


DICTIONARY = TextData(format=text_files.CMUdict.Config())
LINES = ["'em AH0 M", "read R EH1 D", "read(2) R IY1 D  # verb", "aalen AE1 L AH0 N # place"]


@pytest.fixture
def dictionary(tmp_path: Path) -> Path:
    return write(tmp_path / "words.dict", LINES)


def test_a_pronouncing_dictionary_may_leave_out_the_stress(dictionary: Path) -> None:
    corpus = read_pairs(dictionary, None, DICTIONARY)
    assert corpus.sources == ["'em", "read", "read", "aalen"]
    assert corpus.targets == ["AH0 M", "R EH1 D", "R IY1 D", "AE1 L AH0 N"]
    plain = TextData(format=text_files.CMUdict.Config(stress=False))
    assert read_pairs(dictionary, None, plain).targets == ["AH M", "R EH D", "R IY D", "AE L AH N"]
    for line in ("word", "", "word   # nothing"):
        with pytest.raises(DataError, match=r"words.dict:2: needs a word"):
            read_pairs(write(dictionary, ["a AH0", line]), None, DICTIONARY)


def test_all_pronunciations_of_a_word_are_trained_and_any_is_right(tmp_path: Path) -> None:
    words = [f"w{i}" for i in range(200)]
    path = write(tmp_path / "many.dict", [f"{w} A {w}\n{w}(2) B {w}" for w in words])
    splits = divide(path, DICTIONARY.model_copy(update={"holdout": 0.1}))
    train = splits["train"]
    assert train.alternatives is None and len(train) == 2 * len(set(train.sources))
    for split in ("valid", "test"):
        held = splits[split]
        assert len(held) == len(set(held.sources)) > 0
        assert held.references == [(f"A {w}", f"B {w}") for w in held.sources]
        assert not set(held.sources) & set(train.sources)
    assert sum(len(set(corpus.sources)) for corpus in splits.values()) == 200


def test_inflection_and_its_symbols(tmp_path: Path) -> None:
    path = write(tmp_path / "forms.tsv", ["an<kommen\tkommt an\tV;IND;3;SG"])
    corpus = read_pairs(path, None, TextData(format=text_files.Inflection.Config()))
    assert (corpus.sources, corpus.targets) == (["an<kommen<V><IND><3><SG>"], ["kommt an"])
    tokenizer = Character.Config(symbols="<[^<>]+>").build()
    tokenizer.train(corpus.sources + corpus.targets)
    ids = tokenizer.encode_ids(corpus.sources)[0]
    pieces = [*"an<kommen", "<V>", "<IND>", "<3>", "<SG>"]
    assert [tokenizer.pieces[i] for i in ids] == pieces
    assert tokenizer.decode(ids) == corpus.sources[0]


@pytest.mark.parametrize("line", ["Hahn<N><GEN><SG>", "Hahn\tN;GEN;SG", "Hahn\tHahnes\tN;GEN;SG"])
def test_a_raw_line_of_the_data_is_the_source_that_it_stands_for(tmp_path: Path, line: str) -> None:
    path, forms = tmp_path / "forms.tsv", Character.Config(symbols="<[^<>]+>")
    write(path, ["Hahn\tHahnes\tN;GEN;SG"])
    config = Translation.Config(source=str(path), tokenizer=forms)
    task = config.build(TextData(format=text_files.Inflection.Config()))
    task.prepare(tmp_path, seed=1)
    assert task.sides.addressed([line, "", " "]) == ["Hahn<N><GEN><SG>", "", " "]
    for wrong in ("Hahn", "Hahn N;GEN;SG", "Hahn\tHahnes", "\tN;SG", "a\tb\tc\tN;SG", "Hahn\t"):
        with pytest.raises(ValueError, match="write Hahn<N><GEN><SG>, or a line of the data"):
            task.sides.addressed([wrong])


def test_two_kinds_of_tokenizer_for_two_sides(dictionary: Path, tmp_path: Path) -> None:
    kinds = {"tokenizer": Character.Config(), "target_tokenizer": Symbol.Config()}
    config = Translation.Config(source=str(dictionary), **kinds, joint=False, metrics=("wer",))
    task = config.build(DICTIONARY)
    task.prepare(tmp_path, seed=1)
    tokenizers = task.source_tokenizer, task.target_tokenizer
    assert [each.config.kind for each in tokenizers] == ["character", "symbol"]
    [ids] = task.target_tokenizer.encode_ids(["AH0 M"])
    assert task.batch("train", [0]).targets.tolist() == [[*ids, 3]]
    read = read_examples(task, dictionary)  # the user's own dictionary is read as the run's
    assert read.references[1] == ("R EH1 D", "R IY1 D")
    with pytest.raises(ValueError, match="joint = false"):
        Translation.Config(source="x", target_tokenizer=Symbol.Config())


@pytest.mark.parametrize(
    ("ending", "text", "fields"),
    [
        ("tsv", "7\tc\ta, b\n8\te\td\n", {"columns": (3, 2)}),
        ("jsonl", '{"s": "a, b", "t": "c", "id": 3}\n{"s": "d", "t": "e"}', {"keys": ("s", "t")}),
        ("csv", 'en,fr\n"a, b",c\nd,e\n', {}),
        ("csv", "en;fr\na, b;c\nd;e\n", {}),
        ("csv", "en\tfr\r\na, b\tc\r\nd\te\r\n", {}),
        ("csv", 'en,fr\n"a, b",c\n\nd,e', {}),
        ("csv", "fr;id;en\nc;1;a, b\ne;2;d\n", {"columns": ("en", "fr")}),
        ("csv", "fr;id;en\nc;1;a, b\ne;2;d\n", {"columns": (3, 1)}),
        ("csv", "a, b|c\nd|e\n", {"header": False, "delimiter": "|"}),
        ("csv", 'en,fr\n"a,\nb",c\nd,e\n', {}),
    ],
)
def test_columns_and_keys_give_pairs(tmp_path: Path, ending: str, text: str, fields) -> None:
    path = tmp_path / f"pairs.{ending}"
    path.write_text(text, encoding="utf-8", newline="")
    corpus = read_pairs(path, None, TextData(**fields))
    assert sides(corpus) == [("a, b", "c"), ("d", "e")]
    assert corpus.lines[1] == text.rstrip().replace("\r", "").count("\n") + 1


@pytest.mark.parametrize(
    ("text", "fields", "message"),
    [
        ("en,fr\na,b,c\n", {}, "pairs.csv:2: 3 cells; the first row has 2; fix it"),
        ("A dog runs.,Un chien court.\n", {}, "pairs.csv:1: .*'A dog runs.' looks like data"),
        ("en,fr\na,b\n", {"columns": ("en", "de")}, "csv:1: no column 'de'; the columns are: en"),
        ("en\na\n", {}, "pairs.csv:1: 1 columns, but column 2 is needed; set data.columns"),
        ('en,fr\n"a,b\nc,d\n', {}, "pairs.csv:2: a quoted cell is never closed"),
        ('en,fr\n"a"x"",b\n', {}, "pairs.csv:2: not a row of a CSV"),
        ("a,b\n", {"columns": ("a", "b"), "header": False}, "data.header = false; number them"),
    ],
)
def test_a_bad_csv_is_named(tmp_path, text: str, fields: dict[str, Any], message: str) -> None:
    (tmp_path / "pairs.csv").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_pairs(tmp_path / "pairs.csv", None, TextData(**fields))


def test_a_quote_opens_a_cell_of_a_csv_at_its_start_only(tmp_path: Path) -> None:
    """Elsewhere it is an inch mark, and the lines up to the next one are rows of their own."""
    rows = [(f"a house {i}", f"une maison {i}") for i in range(60)]
    rows[5], rows[25], rows[30] = ('a 5" disk', "un"), ('a 3" disk', "un"), ('he said,"no', 'x"')
    path = tmp_path / "inches.csv"
    path.write_text("en;fr\n" + "".join(f"{s};{t}\n" for s, t in rows), encoding="utf-8")
    corpus = read_pairs(path, None, TextData())
    assert sides(corpus) == rows
    assert list(corpus.lines) == list(range(2, 62))
    corpus = read_pairs(write(path, ["en,fr", '"a"x,"b', "c,d"]), None, SKIP)  # a fault in quotes
    assert sides(corpus) == [("c", "d")] and [line.line for line in corpus.skipped] == [2]


def test_columns_count_from_1_and_are_stored() -> None:
    columns = TextData(columns=(3, 2))
    assert TextData.parse(columns.tree()) == columns
    with pytest.raises(ConfigError, match="columns"):
        parse_tree(TextData, {"columns": [0, 1]})


@pytest.mark.parametrize("bad", [b'"a\nb ""c""\nd",x,y', b'"a\nb \xff\nd",x'])
def test_every_line_of_a_bad_row_of_a_csv_is_skipped(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(b'en,fr\n"good\nrow",x\n' + bad + b"\na,b\n")
    corpus = read_pairs(path, None, SKIP)
    assert list(zip(corpus.lines, corpus.sources, strict=True)) == [(2, "good row"), (7, "a")]
    assert [line.line for line in corpus.skipped] == [4, 5, 6]
    assert all("the row spans lines 4 to 6" in line.reason for line in corpus.skipped)
    with pytest.raises(DataError, match=r"bad\.csv:4: .*the row spans lines 4 to 6; fix it"):
        read_pairs(path, None, TextData())


TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), max_size=12)


def written(folder: Path, texts: Sequence[str], size: int) -> text_files.MappedTexts:
    with text_files.ColumnWriter(folder, "side") as writer:
        for some in portions(texts, size):
            writer.add_texts(some)
    return text_files.MappedTexts.open(folder, "side")


@given(TEXTS, st.integers(1, 5), st.data())
def test_texts_come_back_whatever_they_hold(texts, size, data) -> None:
    texts = [*texts, "", "😀 l'été\n\x00", "x" * 5000]
    with TemporaryDirectory() as folder:
        column = written(Path(folder), texts, size)
        assert list(column) == texts == column[:]
        assert column[1:-1] == texts[1:-1] and column[-1] == texts[-1]
        assert column.lengths().tolist() == [len(text.encode()) for text in texts]
        rows = data.draw(st.lists(st.integers(0, len(texts) - 1)))
        chosen = column.take(rows)
        assert list(chosen) == text_files.taken(texts, rows)
        assert chosen.lengths().tolist() == [len(texts[i].encode()) for i in rows]
        for beyond in (lambda: column[len(texts)], lambda: column.take([])[0]):
            with pytest.raises(IndexError):
                beyond()
        again = chosen.take(range(len(rows))[::-1])
        assert list(again) == list(chosen)[::-1]


@given(st.lists(st.lists(st.integers(0, 70_000), max_size=6), max_size=8))
def test_ids_are_kept_in_the_smallest_integers(ids: list[list[int]]) -> None:
    largest = max((i for row in ids for i in row), default=0)
    with TemporaryDirectory() as folder:
        with text_files.ColumnWriter(Path(folder), "ids", np.min_scalar_type(largest)) as writer:
            for row in ids:
                writer.add(np.array(row, dtype=np.int64), np.array([len(row)]))
        column = text_files.TokenIds.open(Path(folder), "ids")
        assert list(column) == ids
        assert all(type(i) is int for row in column for i in row)
        assert column.flat.itemsize == (1 if largest < 256 else 2 if largest < 65_536 else 4)
