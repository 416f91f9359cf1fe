"""Links from maps, and in files."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.align.aer import links, read_pharaoh, write_pharaoh

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
def test_pharaoh_comes_back(found) -> None:
    assert read_pharaoh(write_pharaoh(found)) == found


def test_pharaoh_puts_the_source_first() -> None:
    assert write_pharaoh({(2, 1), (0, 0)}) == "0-0 2-1"


@pytest.mark.parametrize("line", ["0-0 1", "1--2", "a-1", "1-", "-1"])
def test_a_wrong_entry_is_named_with_its_place(line: str) -> None:
    with pytest.raises(ValueError, match=r"out\.align:3: .* is no link"):
        read_pharaoh(line, "out.align:3")
