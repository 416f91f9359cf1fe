from __future__ import annotations

import io
import json
import random
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console

from foveate.data.report import SplitReport, report, report_files
from foveate.data.text import Corpus, TextData, read_pairs


def corpus_of(*rows: tuple[str, str]) -> Corpus:
    return Corpus([s for s, _ in rows], [t for _, t in rows], range(1, len(rows) + 1))


def findings(split: SplitReport) -> dict[str, int]:
    return {finding.name: finding.count for finding in split.findings}


def counted(*rows: tuple[str, str]) -> dict[str, int]:
    return findings(report({"train": corpus_of(*rows)}, TextData()).splits["train"])


def sentences(number: int, seed: int = 0) -> list[tuple[str, str]]:
    """Pairs of made-up words, the target a little longer than the source, all different."""
    draw = random.Random(seed)
    rows = []
    for n in range(number):
        words = ["".join(draw.choices("abcdefgh", k=draw.randint(2, 9))) for _ in range(2 + n % 11)]
        end = draw.choice([".", ".", ".", "?", "!"])
        rows.append(
            (" ".join(words) + f" {n}{end}", " ".join(w + "e" for w in words) + f" {n}{end}")
        )
    draw.shuffle(rows)
    return rows


# ------------------------------------------------------------------------------ what is odd


def test_good_text_has_nothing_odd() -> None:
    rows = [
        *sentences(1500),
        ("À l’aube\u00a0: « ça va »\u202f?", "It’s fine – naïve, 20 °C, Ünal"),
    ]
    assert counted(*rows) == {}


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("empty side", ("a", "")),
        ("empty side", (" \u00a0", "b")),
        ("identical sides", ("Tom", "Tom ")),
        ("replacement character U+FFFD", ("a", "caf\ufffd")),
        ("wrong charset, such as Ã© for é", ("a", "cafÃ©")),
        ("wrong charset, such as Ã© for é", ("itâ€™s", "b")),
        ("wrong charset, such as Ã© for é", ("a", "ÐŸÑ€Ð¸Ð²ÐµÑ‚")),
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


def test_duplicates_and_sources_with_several_targets_are_told_apart() -> None:
    rows = [("a", "1"), ("a", "1"), ("a", "1"), ("b", "2"), ("b", "3"), ("c", "4")]
    assert counted(*rows) == {"duplicate of an earlier pair": 2, "source with several targets": 2}


def test_a_pair_of_unusual_lengths_is_an_example_with_its_line() -> None:
    rows = sentences(300)
    rows[41] = ("short and wrong", "x" * 200)
    split = report({"train": corpus_of(*rows)}, TextData()).splits["train"]
    assert findings(split) == {"unusual ratio of lengths": 1}
    assert split.findings[0].examples == [(42, "short and wrong", "x" * 120)]


@pytest.mark.parametrize("shift", [-2, 1, 5])
def test_a_shift_from_some_line_on_is_found_where_it_begins(shift: int) -> None:
    rows = sentences(3000)
    targets = [t for _, t in rows]
    moved = targets[:1000] + targets[1000 + shift :] + targets[: 1000 + shift]
    rows = [(s, t) for (s, _), t in zip(rows, moved, strict=False)]
    split = report({"train": corpus_of(*rows)}, TextData()).splits["train"]
    found = {finding.name: finding for finding in split.findings}
    shifted = found["block of 500 pairs whose sides seem shifted"]
    assert shifted.count == 4
    assert shifted.examples[0][0] == 1001


def test_sides_that_have_nothing_to_do_with_each_other_are_found() -> None:
    rows = sentences(2000)
    targets = [t for _, t in sentences(2000, seed=5)]
    odd = counted(*((s, t) for (s, _), t in zip(rows, targets, strict=True)))
    assert odd["block of 500 pairs whose sides seem shifted"] == 4


def test_overlap_of_test_with_train_by_source_and_by_pair() -> None:
    train = corpus_of(("a", "1"), ("b", "2"), ("c", "3"))
    test = corpus_of(("a", "1"), ("b", "9"), ("d", "3"))
    splits = report({"train": train, "test": test}, TextData()).splits
    assert findings(splits["test"]) == {"source also in train": 2, "pair also in train": 1}
    assert findings(splits["train"]) == {}


# ------------------------------------------------------------------------------ what is dropped


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


def test_lengths_and_their_histogram() -> None:
    rows = [("w " * (1 + n % 20), "w") for n in range(100)]
    source, target = (
        report({"train": corpus_of(*rows)}, TextData()).splits["train"].lengths["words"]
    )
    assert (source.total, source.min, source.median, source.max) == (1050, 1, 10.5, 20)
    assert sum(source.histogram) == 100
    assert source.histogram[0] == source.step * 5 - 5  # none has 0 words, 5 have each other number
    assert (target.mean, target.step, target.histogram) == (1.0, 1, [0, 100])


def test_an_empty_corpus_has_a_report() -> None:
    one = report({"train": corpus_of(), "test": corpus_of()}, TextData())
    assert one.splits["train"].pairs == 0
    assert one.lines()[0].startswith("train: 0 pairs")
    Console(file=io.StringIO()).print(one.table())


# ------------------------------------------------------------------------------ saying it


def test_a_report_of_files_lists_bad_lines_and_says_all_of_it(tmp_path: Path) -> None:
    train, test = tmp_path / "train.tsv", tmp_path / "test.tsv"
    train.write_bytes(b"one\tun\nno tab\none\tun\nesc \x1b[31mred\t[bold]rouge\n\xff\tx\n")
    test.write_bytes(b"one\tun\n")
    found = report_files([train], TextData(), {"test": [test]})
    split = found.splits["train"]
    assert split.pairs == 3
    assert [line.split(":")[1] for line in split.skipped] == ["2", "5"]
    short = "\n".join(found.lines())
    assert "train: 3 pairs, words 4 → 3, longest 2 → 1" in short
    assert f"2 lines skipped, the first: {train}:2: columns" in short
    assert "duplicate of an earlier pair: 1 (line 3)" in short
    assert "test: odd: source also in train: 1 (line 1)" in short
    out = io.StringIO()
    Console(file=out, width=140).print(found.table())
    assert "\x1b" not in out.getvalue()  # what is in the data cannot steer the terminal
    assert "esc ·[31mred" in out.getvalue()
    assert "[bold]rouge" in out.getvalue()
    again = json.loads(json.dumps(found.to_dict()))
    assert again["splits"]["train"]["pairs"] == 3
    assert again["splits"]["test"]["findings"][0]["examples"] == [[1, "one", "un"]]


def test_two_files_are_aligned_and_three_are_refused(tmp_path: Path) -> None:
    for name in ("a.en", "a.fr"):
        (tmp_path / name).write_text("x\ny\n", encoding="utf-8")
    files = [tmp_path / "a.en", tmp_path / "a.fr"]
    assert report_files(files, TextData()).splits["train"].pairs == 2
    with pytest.raises(ValueError, match="two files; not 3"):
        report_files([*files, tmp_path / "a.de"], TextData())


def test_real_text_is_reported(data_folder: Path) -> None:
    folder = data_folder / "multi30k"
    test = [folder / "test_2016_flickr.en.gz", folder / "test_2016_flickr.fr.gz"]
    splits = report_files(
        [folder / "train.en.gz", folder / "train.fr.gz"], TextData(), {"test": test}
    ).splits
    assert (splits["train"].pairs, splits["test"].pairs) == (29_000, 1000)
    assert findings(splits["test"]) == {}
    assert findings(splits["train"]) == {
        "duplicate of an earlier pair": 5,
        "source with several targets": 8,
        "unusual ratio of lengths": 1,
    }


def test_one_list_sorted_by_length_does_not_seem_shifted(data_folder: Path) -> None:
    corpus = read_pairs(data_folder / "tatoeba-en-fr/pairs.tsv.gz", None, TextData())
    first = corpus.take(range(0, 40_000))
    odd = findings(report({"train": first}, TextData()).splits["train"])
    assert set(odd) == {
        "identical sides",
        "source with several targets",
        "unusual ratio of lengths",
    }
    assert odd["source with several targets"] > 20_000
