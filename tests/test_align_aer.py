"""Links from maps and in files, symmetrized, and judged by examples worked by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.align.aer import (
    METHODS,
    Gold,
    LinkCounts,
    Links,
    aer,
    agree,
    judge,
    links,
    rank_heads,
    read_gold,
    read_pharaoh,
    symmetrize,
    write_pharaoh,
)

GOLD = Gold({(0, 0), (1, 2)}, {(0, 0), (1, 2), (2, 1), (2, 2)})
FOUND = {(0, 0), (2, 1), (3, 3)}


def test_an_example_worked_by_hand() -> None:
    # A ∩ S = {0-0}; A ∩ P = {0-0, 2-1}; |A| = 3; |S| = 2
    counts = agree(FOUND, GOLD)
    assert counts == LinkCounts(links=3, sure=2, correct_sure=1, correct_possible=2)
    assert counts.precision == pytest.approx(2 / 3)
    assert counts.recall == 1 / 2
    assert counts.aer == pytest.approx(1 - 3 / 5)


def test_a_corpus_is_a_sum_of_counts_not_a_mean_of_rates() -> None:
    perfect = Gold({(0, 0)}, {(0, 0)})
    assert aer([FOUND, {(0, 0)}], [GOLD, perfect]) == pytest.approx(1 - (3 + 2) / (5 + 2))
    assert aer([GOLD.sure], [GOLD]) == 0
    assert aer([{(9, 9)}], [GOLD]) == 1
    assert aer([set()], [Gold(set(), set())]) == 0
    with pytest.raises(ValueError, match="2 alignments for 1 gold"):
        judge([set(), set()], [GOLD])


def test_sure_links_count_as_possible_without_being_listed_twice() -> None:
    assert agree({(0, 0)}, Gold({(0, 0)}, set())).precision == 1


def test_gold_is_read(tmp_path: Path) -> None:
    path = tmp_path / "gold.txt"
    path.write_text("1-1 2p3\n\n4-1\n")
    first, empty, last = read_gold(path)
    assert first == Gold({(0, 0)}, {(0, 0), (1, 2)})
    assert empty == Gold(set(), set())
    assert last.sure == {(3, 0)}
    path.write_text("1-1\n1p1 0-2\n")
    said = list[str]()
    assert read_gold(path, said.append) == [
        Gold({(1, 1)}, {(1, 1)}),
        Gold({(0, 2)}, {(0, 2), (1, 1)}),
    ]
    assert said == [f"gold links count words from 0 ({path}:2: 0-2)"]
    path.write_text("1-1\n1=2\n")
    with pytest.raises(ValueError, match=r"gold\.txt:2: '1=2' is no link"):
        read_gold(path)


def test_the_hansards_are_read_whole(data_folder: Path) -> None:
    folder = data_folder / "alignment-gold"
    gold = read_gold(folder / "gold.txt")
    assert len(gold) == 447
    assert sum(len(g.sure) for g in gold) == 4038
    assert sum(len(g.possible - g.sure) for g in gold) == 13400
    sides = [(folder / name).read_text("utf-8").splitlines() for name in ("en.txt", "fr.txt")]
    for g, english, french in zip(gold, *sides, strict=True):
        assert all(i < len(english.split()) and j < len(french.split()) for i, j in g.possible)


def test_heads_are_ranked_over_the_corpus() -> None:
    copy, mirror = np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32)[::-1]
    corpus = ({"a": np.stack([mirror, copy]), "b": np.stack([mirror])} for _ in range(2))
    straight = {(i, i) for i in range(3)}
    ranked = rank_heads(corpus, [Gold(straight, straight)] * 2)
    assert [(name, head) for name, head, _ in ranked] == [("a", 1), ("a", 0), ("b", 0)]
    assert ranked[0][2] == LinkCounts(6, 6, 6, 6)
    assert ranked[1][2].aer == pytest.approx(2 / 3)


MAP = np.array([[0.8, 0.1, 0.1], [0.2, 0.1, 0.7], [0.1, 0.1, 0.8], [0.34, 0.33, 0.33]])


def test_each_target_word_is_linked_to_what_it_looks_at_most() -> None:
    assert links(MAP) == {(0, 0), (2, 1), (2, 2), (0, 3)}


def test_skipped_and_unsure_rows_have_no_link() -> None:
    assert links(MAP, skip_columns=[2]) == {(0, 0), (0, 3)}
    assert links(MAP, skip_rows=[0]) == {(2, 1), (2, 2), (0, 3)}
    assert links(MAP, least=0.5) == {(0, 0), (2, 1), (2, 2)}
    assert links(np.zeros((2, 3))) == set()
    assert links(np.zeros((0, 3))) == links(np.zeros((3, 0))) == set()


@given(st.sets(st.tuples(st.integers(0, 99), st.integers(0, 99))))
def test_pharaoh_comes_back(results) -> None:
    assert read_pharaoh(write_pharaoh(results)) == results


def test_pharaoh_puts_the_source_first() -> None:
    assert write_pharaoh({(2, 1), (0, 0)}) == "0-0 2-1"


@pytest.mark.parametrize("line", ["0-0 1", "1--2", "a-1", "1-", "-1"])
def test_a_wrong_entry_is_named_with_its_place(line: str) -> None:
    with pytest.raises(ValueError, match=r"out\.align:3: .* is no link"):
        read_pharaoh(line, "out.align:3")


FORWARD = {(0, 0), (1, 1), (2, 2), (5, 4)}
BACKWARD = {(0, 0), (1, 1), (2, 1), (4, 5)}
# both agree on 0-0 and 1-1. 2-1 and 2-2 stand beside 1-1 and what is added; 2-1 comes first and
# takes word 2, and 2-2 is added since target 2 is free. 5-4 and 4-5 touch nothing that is linked.
GROWN = {(0, 0), (1, 1), (2, 1), (2, 2)}
WANTED: dict[str, Links] = {
    "intersection": {(0, 0), (1, 1)},
    "union": FORWARD | BACKWARD,
    "grow-diag": GROWN,
    "grow-diag-final": GROWN | {(5, 4), (4, 5)},
    "grow-diag-final-and": GROWN | {(5, 4), (4, 5)},
}


@pytest.mark.parametrize("method", METHODS)
def test_an_example_by_hand(method: str) -> None:
    assert symmetrize(FORWARD, BACKWARD, method) == WANTED[method]  # type: ignore[arg-type]


def test_final_takes_links_with_one_free_word_and_final_and_only_with_two() -> None:
    forward, backward = {(0, 0), (0, 3)}, {(0, 0)}  # 0-3: source 0 is linked, target 3 is not
    assert symmetrize(forward, backward, "grow-diag") == {(0, 0)}
    assert symmetrize(forward, backward, "grow-diag-final") == {(0, 0), (0, 3)}
    assert symmetrize(forward, backward, "grow-diag-final-and") == {(0, 0)}


def test_growing_stays_between_intersection_and_union() -> None:
    for name in METHODS:
        result = METHODS[name](FORWARD, BACKWARD)
        assert FORWARD & BACKWARD <= result <= FORWARD | BACKWARD
        assert METHODS[name](FORWARD, FORWARD) == FORWARD
