"""Joining two directions, worked by hand."""

from __future__ import annotations

import pytest

from foveate.align.aer import METHODS, Links, read_pharaoh, symmetrize, write_pharaoh

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
        found = METHODS[name](FORWARD, BACKWARD)
        assert FORWARD & BACKWARD <= found <= FORWARD | BACKWARD
        assert METHODS[name](FORWARD, FORWARD) == FORWARD


def test_pharaoh_round_trip() -> None:
    for links in (set(), GROWN, WANTED["union"], {(10, 2), (9, 11)}):
        assert read_pharaoh(write_pharaoh(links)) == links
