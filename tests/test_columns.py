"""Rows in files are the rows that were written, all of them or chosen ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.data.corpus import portions, text_writer
from foveate.data.text import ColumnWriter, MappedTexts, TokenIds, lines_of, smallest, taken

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), max_size=12)


def written(folder: Path, texts: Sequence[str], size: int) -> MappedTexts:
    with text_writer(folder, "side") as writer:
        for some in portions(texts, size):
            writer.add_texts(some)
    return MappedTexts.open(folder, "side")


@given(TEXTS, st.integers(1, 5), st.data())
def test_texts_come_back_whatever_they_hold(
    texts: list[str], size: int, data: st.DataObject
) -> None:
    texts = [*texts, "", "😀 l'été\n\x00", "x" * 5000]
    with TemporaryDirectory() as folder:
        column = written(Path(folder), texts, size)
        assert list(column) == texts == column[:] and column == texts
        assert texts == column and column != texts[1:] and column != [*texts[1:], ""]
        assert column[1:-1] == texts[1:-1] and column[-1] == texts[-1]
        assert column.lengths().tolist() == [len(text.encode()) for text in texts]
        rows = data.draw(st.lists(st.integers(0, len(texts) - 1)))
        chosen = column.take(rows)
        assert list(chosen) == taken(texts, rows)
        assert chosen.lengths().tolist() == [len(texts[i].encode()) for i in rows]
        again = chosen.take(range(len(rows))[::-1])
        assert list(again) == list(chosen)[::-1]


@given(st.lists(st.lists(st.integers(0, 70_000), max_size=6), max_size=8))
def test_ids_are_kept_in_the_smallest_integers(ids: list[list[int]]) -> None:
    largest = max((i for row in ids for i in row), default=0)
    with TemporaryDirectory() as folder:
        with ColumnWriter(Path(folder), "ids", smallest(largest)) as writer:
            for row in ids:
                writer.add(np.array(row, dtype=np.int64), np.array([len(row)]))
        column = TokenIds.open(Path(folder), "ids")
        assert list(column) == ids
        assert all(type(i) is int for row in column for i in row)
        assert column.flat.itemsize == (1 if largest < 256 else 2 if largest < 65_536 else 4)


def test_a_row_that_is_not_there_is_refused(tmp_path: Path) -> None:
    column = written(tmp_path, ["a"], 1)
    with pytest.raises(IndexError):
        column[1]
    with pytest.raises(IndexError):
        column.take([])[0]


@pytest.mark.parametrize("content", ["", "a\n", "a\n\nb\n", "a\nb", "\n"])
def test_lines_of_a_file(content: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text(content)
    assert list(lines_of(tmp_path / "f")) == content.splitlines(keepends=True)
