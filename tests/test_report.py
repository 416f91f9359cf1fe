import io
import json
import random
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console

from foveate.data.report import DataReport, SplitReport, report, report_files
from foveate.data.text import Corpus, TextData, read_pairs
from small_runs import invoked


def corpus_of(*rows: tuple[str, str]) -> Corpus:
    return Corpus([s for s, _ in rows], [t for _, t in rows], range(1, len(rows) + 1))


def findings(split: SplitReport) -> dict[str, int]:
    return {finding.name: finding.count for finding in split.findings}


def of_train(*rows: tuple[str, str], **how: Any) -> SplitReport:
    return report({"train": corpus_of(*rows)}, TextData(), **how).splits["train"]


def counted(*rows: tuple[str, str]) -> dict[str, int]:
    return findings(of_train(*rows))


def printed(made: DataReport) -> str:
    out = io.StringIO()
    Console(file=out, width=140).print(made.table())
    return out.getvalue()


def sentences(number: int, seed: int = 0) -> list[tuple[str, str]]:
    """Pairs of made-up words, the target a little longer than the source, all different."""
    draw = random.Random(seed)
    rows = []
    for n in range(number):
        words = ["".join(draw.choices("abcdefgh", k=draw.randint(2, 9))) for _ in range(2 + n % 11)]
        end = draw.choice([".", ".", ".", "?", "!"])
        rows.append((f"{' '.join(words)} {n}{end}", f"{'e '.join(words)}e {n}{end}"))
    draw.shuffle(rows)
    return rows


def test_good_text_has_nothing_odd_and_repeats_are_told_apart() -> None:
    odd = "À l’aube\u00a0: « ça va »\u202f?", "It’s fine – naïve, 20 °C, Ünal"
    assert counted(*sentences(1500), odd) == {}
    rows = [("a", "1"), ("a", "1"), ("a", "1"), ("b", "2"), ("b", "3"), ("c", "4")]
    assert counted(*rows) == {"duplicate of an earlier pair": 2, "source with several targets": 2}


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("empty side", ("a", "")),
        ("empty side", (" \u00a0", "b")),
        ("identical sides", ("Tom", "Tom ")),
        ("U+FFFD: not UTF-8 (convert by iconv), or lost before", ("a", "caf\ufffd")),
        ("wrong charset, such as Ã© for é", ("itâ€™s", "b")),
        ("control or invisible character", ("a\x1b[0m", "b")),
        ("control or invisible character", ("a", "so\xadft")),
        ("not in Unicode form NFC", ("cafe\u0301", "b")),
    ],
)
def test_each_oddity_is_found(name: str, row: tuple[str, str]) -> None:
    assert counted(("fine", "bien"), row) == {name: 1}


@pytest.mark.parametrize("charset", ["latin-1", "cp1252"])
@pytest.mark.parametrize("text", ["déjà vu", "Привет, мир", "“quoted", "5 €", "it’s", "Zoë"])
def test_text_read_in_the_wrong_charset_is_found(text: str, charset: str) -> None:
    odd = counted(("fine", text.encode("utf-8").decode(charset)))
    assert odd["wrong charset, such as Ã© for é"] == 1
    assert counted(("fine", text)) == {}


def test_a_pair_of_unusual_lengths_is_an_example_with_its_line() -> None:
    rows = sentences(300)
    rows[41] = ("short and wrong", "x" * 200)
    split = of_train(*rows)
    assert findings(split) == {"unusual ratio of lengths": 1}
    assert split.findings[0].examples == [(42, "short and wrong", "x" * 120)]
    rows[41] = ("word, 12? " * 50_000, "short")
    assert counted(*rows) == {"unusual ratio of lengths": 1}


def test_message_keys_in_place_of_texts_are_counted() -> None:
    rows = [("label_title", "Judul"), ("Save as", "Simpan"), ("a_b-c", "x"), ("help", "bantuan")]
    title = "key in place of a text, such as help_text"
    assert counted(*rows) == {title: 1}
    assert title not in findings(of_train(("text_one", "very_good"), kind="labelled"))


def test_an_example_in_a_folder_names_its_file(tmp_path: Path) -> None:
    """A table beside the catalogues is read too."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.po").write_text('msgid "Save"\nmsgstr "Simpan"\n')
    (tmp_path / "verses.tsv").write_text("In the beginning\tPada mulanya\nhelp_one\tbantuan\n")
    split = report_files([tmp_path], TextData()).splits["train"]
    assert split.pairs == 3
    assert split.findings[0].examples == [("verses.tsv:2", "help_one", "bantuan")]


SHIFTED = "block of 500 pairs whose sides seem shifted"


@pytest.mark.parametrize("shift", [-2, 1, 5])
def test_a_shift_from_some_line_on_is_found_where_it_begins(shift: int) -> None:
    sources, targets = zip(*sentences(3000), strict=True)
    moved = targets[:1000] + targets[1000 + shift :] + targets[: 1000 + shift]
    split = of_train(*zip(sources, moved, strict=False))
    [shifted] = [each for each in split.findings if each.name == SHIFTED]
    assert (shifted.count, shifted.examples[0][0]) == (4, 1001)
    _, others = zip(*sentences(2000, seed=5), strict=True)
    odd = counted(*zip(sources, others, strict=False))
    assert odd[SHIFTED] == 4, "sides that have nothing to do with each other"


def test_overlap_of_test_with_train_by_source_and_by_pair() -> None:
    train = corpus_of(("a", "1"), ("b", "2"), ("c", "3"))
    test = corpus_of(("a", "1"), ("b", "9"), ("d", "3"))
    splits = report({"train": train, "test": test}, TextData()).splits
    assert findings(splits["test"]) == {"source also in train": 2, "pair also in train": 1}
    assert findings(splits["train"]) == {}


def letters(corpus: Corpus) -> NDArray[np.int64]:
    return np.array([list(map(len, side)) for side in (corpus.sources, corpus.targets)]).T


def test_what_training_drops_is_counted_by_tokens_where_they_can_be() -> None:
    rows = [("one two", "un"), ("one two", "un"), ("same", "same"), ("", "vide"), ("w " * 30, "w")]
    config = TextData(max_length=20, drop_duplicates=True, drop_identical=True)
    twice = [*rows, rows[-1]]  # a pair that is dropped as a duplicate is not dropped as too long
    split = report({"train": corpus_of(*twice)}, config).splits["train"]
    common = {"identical sides": 1, "duplicate pair": 2, "empty side": 1}
    assert split.dropped == common | {"longer than max_length = 20": 1}
    corpus = corpus_of(*rows)
    tokens = report({"train": corpus}, TextData(max_length=6), {"train": letters(corpus)})
    assert tokens.splits["train"].dropped == {"empty side": 1, "longer than max_length = 6": 3}
    assert [side.total for side in tokens.splits["train"].lengths["tokens"]] == [78, 13]
    assert [side.total for side in tokens.splits["train"].lengths["words"]] == [35, 5]


def test_lengths_of_both_sides_and_of_an_empty_corpus() -> None:
    source, target = of_train(*[("w " * (1 + n % 20), "w") for n in range(100)]).lengths["words"]
    assert (source.total, source.min, source.median, source.max) == (1050, 1, 10.5, 20)
    assert (target.mean, target.max) == (1.0, 1)
    item = report({"train": corpus_of(), "test": corpus_of()}, TextData())
    assert item.splits["train"].pairs == 0
    assert item.lines()[0].startswith("train: 0 pairs") and printed(item)


def test_a_report_of_files_lists_bad_lines_and_says_all_of_it(tmp_path: Path) -> None:
    train, test = tmp_path / "train.tsv", tmp_path / "test.tsv"
    train.write_bytes(b"one\tun\nno tab\none\tun\nesc \x1b[31mred\t[bold]rouge\n\xff\tx\n")
    test.write_bytes(b"one\tun\n")
    result = report_files([train], TextData(), {"test": [test]})
    split = result.splits["train"]
    assert split.pairs == 3
    assert [line.split(":")[1] for line in split.skipped] == ["2", "5"]
    short = "\n".join(result.lines())
    assert "train: 3 pairs, words 4 → 3, longest 2 → 1" in short
    assert f"2 lines skipped, the first: {train}:2: 1 columns" in short
    assert "duplicate of an earlier pair: 1 (line 3)" in short
    assert "test: odd: source also in train: 1 (line 1)" in short
    shown = printed(result)
    assert "\x1b" not in shown  # what is in the data cannot steer the terminal
    assert "esc ·[31mred" in shown and "[bold]rouge" in shown
    again = json.loads(json.dumps(asdict(result)))
    assert again["splits"]["train"]["pairs"] == 3
    assert again["splits"]["test"]["findings"][0]["examples"] == [[1, "one", "un"]]
    with pytest.raises(ValueError, match="two files; not 3"):
        report_files([put(tmp_path / "a.txt", "one")] * 3, TextData())


def test_real_text_is_reported(data_folder: Path) -> None:
    folder = data_folder / "multi30k"
    test = [folder / "test_2016_flickr.en.gz", folder / "test_2016_flickr.fr.gz"]
    files = [folder / "train.en.gz", folder / "train.fr.gz"]
    splits = report_files(files, TextData(), {"test": test}).splits
    assert (splits["train"].pairs, splits["test"].pairs) == (29_000, 1000)
    assert findings(splits["test"]) == {}
    odd = {"duplicate of an earlier pair": 5, "source with several targets": 8}
    assert findings(splits["train"]) == odd | {"unusual ratio of lengths": 1}
    by_length = read_pairs(data_folder / "tatoeba-en-fr/pairs.tsv.gz", None, TextData())
    split = report({"train": by_length.take(range(40_000))}, TextData()).splits["train"]
    odd = findings(split)
    expected = {"identical sides", "source with several targets", "unusual ratio of lengths"}
    assert odd.keys() == expected, "one list sorted by length does not seem shifted"
    assert odd["source with several targets"] > 20_000


# ------------------------------------------------------------------------------ other kinds of data
def put(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def labelled(number: int = 600) -> list[str]:
    labels = ("good", "bad", "good")
    return [f"{text}\t{labels[i % 3]}" for i, (text, _) in enumerate(sentences(number))]


def test_labelled_text_has_counts_and_is_not_shifted(tmp_path: Path) -> None:
    lines = labelled()
    train = put(tmp_path / "train.tsv", *lines, lines[0], f"{lines[1].split(chr(9))[0]}\tnew")
    valid = put(tmp_path / "valid.tsv", "never seen\tugly", lines[3])
    result = report_files([train], TextData(), {"valid": [valid]})
    split = result.splits["train"]
    assert (split.kind, split.labels) == ("labelled", {"good": 401, "bad": 200, "new": 1})
    expected = {"duplicate of an earlier text and label": 1, "text with several labels": 2}
    assert findings(split) == expected
    odd = {"text also in train": 1, "label that train does not have": 1}
    assert findings(result.splits["valid"]) == odd
    assert "train: labels 3, the most frequent 66.6%; good: 401, bad: 200, new: 1" in result.lines()
    shown = printed(result)
    assert "602 labelled texts" in shown and "66.6%" in shown
    labels = ["good", "bad", " good", "Bad", "fine"] * 9
    split = of_train(*[(f"a house {n}", each) for n, each in enumerate(labels)], kind="labelled")
    assert findings(split)["labels that differ in blanks or case alone"] == 36


@pytest.mark.parametrize("ending", ["tsv", "csv"])
def test_swapped_columns_of_labelled_text_are_named(tmp_path: Path, ending: str) -> None:
    lines = ["\t".join(reversed(line.split("\t"))) for line in labelled()]
    header = ["label\ttext"] if ending == "csv" else []
    swapped = put(tmp_path / f"train.{ending}", *header, *lines)
    odd = findings(report_files([swapped], TextData()).splits["train"])
    (name,) = (name for name in odd if name.startswith("columns"))
    assert name.startswith("columns seem swapped: 2 texts, 600 labels; exchange data.columns")
    right = report_files([swapped], TextData(columns=(2, 1))).splits["train"]
    assert right.labels == {"good": 400, "bad": 200} and findings(right) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [("two words", 2), ("日本語です。", 6), ("私は Tom です", 5), ("ok", 1), ("", 0), ("ça va", 2)],
)
def test_characters_are_words_in_scripts_without_blanks(text: str, words: int) -> None:
    assert of_train((text, "x")).lengths["words"][0].total == words


EN = ["The man is in the house and it was with you.", "Is that the dog of his?"] * 9
FR = ["Le chien est dans la maison et il est avec vous.", "Les hommes qui sont pour une."] * 9


@pytest.mark.parametrize(
    ("names", "sides", "finding"),
    [
        (("a.en", "a.fr"), (EN, FR), None),
        (("a", "b"), (FR, EN), None),
        (("a.en", "a.de"), (EN, FR), "target reads as fr, not as de"),
        (("a.en", "a.fr"), (EN, EN), "target reads as en, not as fr"),
        (("en.txt", "fr.txt"), (FR, EN), "sides seem swapped: named en and fr, they read as fr "),
    ],
)
def test_swapped_languages_are_named(tmp_path, names, sides, finding) -> None:
    numbered = [[f"{line} {i}" for i, line in enumerate(side)] for side in sides]
    files = [put(tmp_path / name, *side) for name, side in zip(names, numbered, strict=True)]
    result = set(findings(report_files(files, TextData()).splits["train"]))
    odd = [name for name in result if name != "identical sides"]
    assert len(odd) == bool(finding) and all(name.startswith(finding) for name in odd)


def test_languages_mixed_in_one_side_are_named_with_the_way_to_part_them(tmp_path: Path) -> None:
    german = ["Der Hund ist im Haus und er ist mit euch.", "Die Leute sind für eine Frau da."] * 9
    rows = [f"{a} {i}\t{b} {i}" for i, (a, b) in enumerate(zip(EN * 2, FR + german, strict=True))]
    full = report_files([put(tmp_path / "a.tsv", *rows)], TextData())
    split = full.splits["train"]
    assert split.languages == ["en", None]
    [title] = [finding.name for finding in split.findings if "reads as" in finding.name]
    assert re.search(r"target reads as \w\w \(50%\) and \w\w \(50%\)", title)
    assert 'task.corpora of their own, with tag = "<2' in title
    text = "\n".join(full.lines())
    assert "en → unclear language" in text and title in text


def test_pairs_and_splits_the_other_way_round(tmp_path: Path) -> None:
    rows = [(f"{e} {i}", f"{f} {i}") for i, (e, f) in enumerate(zip(EN, FR, strict=True))]
    turned = [(target, source) for source, target in rows]
    train = put(tmp_path / "a.tsv", *map("\t".join, [*rows, (FR[0], EN[0])]))
    valid = put(tmp_path / "b.tsv", *map("\t".join, turned))
    splits = report_files([train], TextData(), {"valid": [valid]}).splits
    assert splits["train"].languages == ["en", "fr"]
    assert findings(splits["train"]) == {"pair the other way round, fr → en": 1}
    assert findings(splits["valid"]) == {"sides seem swapped: in train en → fr": 18}


def test_a_csv_and_plain_text_are_reported(tmp_path: Path) -> None:
    pairs = put(tmp_path / "a.csv", "en;fr", *(f"{s};{t}" for s, t in sentences(30)))
    assert report_files([pairs], TextData()).splits["train"].pairs == 30
    text = put(tmp_path / "a.txt", "one line", "", "one line", "caf\ufffd")
    split = report_files([text], TextData()).splits["train"]
    assert (split.kind, split.pairs, split.lengths["words"][0].total) == ("text", 4, 5)
    damaged = "U+FFFD: not UTF-8 (convert by iconv), or lost before"
    assert findings(split) == {"empty line": 1, "duplicate of an earlier line": 1, damaged: 1}


def test_a_series_is_reported(tmp_path: Path) -> None:
    days = (day for day in range(1, 29) if day != 9)
    rows = [f"2020-01-{day:02};{day},5;{'' if day == 3 else day};7" for day in days]
    path = put(tmp_path / "a.csv", "date;a;b;c", *rows)
    result = report_files([path], TextData())
    item = result.series["train"]
    assert (item.rows, item.channels, item.step) == (27, ["a", "b", "c"], "1 day")
    assert (item.missing, item.constant) == ({"b": 1}, ["c"])
    assert (item.delimiter, item.decimal) == (";", ",")
    assert [gap.split(": ")[1] for gap in item.gaps] == [
        "rows are missing between 2020-01-08 and 2020-01-10; the usual step is 1 day"
    ]
    shown = printed(result)
    assert "rows are missing between" in shown and "b: 1" in shown
    assert report_files([path], TextData(columns=(2, 3)), kind="pairs").splits["train"].pairs == 27


def test_the_command_reads_what_a_config_says(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", "n;when;a", *(f"x;2020-01-0{n};{n},5" for n in range(1, 9)))
    config = tmp_path / "run.toml"
    config.write_text(
        "[task]\nkind = 'forecasting'\n[task.series]\npath = 'a.csv'\ndate = 'when'\n"
        "values = ['a']\n[model]\nkind = 'linear_forecaster'\n"
    )
    tree = json.loads(invoked("data", "report", path, "--config", config, "--json").output)
    assert tree["series"]["train"]["channels"] == ["a"]
    tree = json.loads(invoked("data", "report", path, "--kind", "text", "--json").output)
    assert tree["splits"]["train"]["kind"] == "text"
