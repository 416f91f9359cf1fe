"""Pieces to words keep their mass; nothing in a label is hidden."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.inspect.words import Grouping, group_pieces, to_words, visible
from tolerances import ROW, close, near


@st.composite
def grouped(draw: st.DrawFn) -> tuple[np.ndarray, list[list[int]], list[list[int]]]:
    def groups(size: int) -> list[list[int]]:
        cuts = sorted(draw(st.sets(st.integers(1, size), max_size=size)) | {0, size})
        return [list(range(a, b)) for a, b in pairwise(cuts)]

    height, width = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    seed = draw(st.integers(0, 10_000))
    weights = np.random.default_rng(seed).dirichlet(np.ones(width), (2, height))
    return weights, groups(height), groups(width)


@given(grouped())
def test_words_keep_the_mass_of_pieces(case) -> None:
    weights, rows, columns = case
    words = to_words(weights, rows, columns)
    assert words.shape == (2, len(rows), len(columns))
    close(words.sum(-1), 1)
    for h, i, j in np.ndindex(words.shape):
        block = weights[h][np.ix_(rows[i], columns[j])]
        assert words[h, i, j] == near(block.sum() / len(rows[i]), terms=ROW)


def test_a_column_outside_every_word_takes_its_mass_with_it() -> None:
    weights = np.array([[0.5, 0.25, 0.25]])
    close(to_words(weights, [[0]], [[0, 1]]), [[0.75]])


def test_a_word_without_pieces_is_zero() -> None:
    words = to_words(np.full((2, 2), 0.5), [[0, 1], []], [[0, 1], []])
    close(words, [[1, 0], [0, 0]])


def test_masked_cells_stay_exactly_zero() -> None:
    causal = np.tril(np.full((4, 4), 0.25))
    words = to_words(causal, [[0, 1], [2, 3]], [[0, 1], [2, 3]])
    assert words[0, 1] == 0


def test_pieces_belong_to_the_word_they_overlap() -> None:
    # "The dogs." in pieces The | ␣dog | s | . | </s>
    result = group_pieces([(0, 3), (3, 7), (7, 8), (8, 9), None], [(0, 3), (4, 8), (8, 9)])
    assert result == Grouping([[0], [1, 2], [3], [4]], [0, 1, 2, None])
    labels = result.labels(["The", "dogs", "."], ["The", " dog", "s", ".", "</s>"])
    assert labels == ["The", "dogs", ".", "</s>"]


def test_special_tokens_of_the_tokenizers_library_stand_at_zero() -> None:
    result = group_pieces([(0, 0), (0, 1), (0, 0)], [(0, 1)])
    assert result == Grouping([[0], [1], [2]], [None, 0, None])


def test_a_word_that_shares_its_only_piece_keeps_its_place() -> None:
    result = group_pieces([(0, 4), (5, 7), None], [(0, 3), (3, 4), (5, 7)])
    assert result == Grouping([[0], [], [1], [2]], [0, 1, 2, None])
    last = group_pieces([(0, 4), None], [(0, 3), (3, 4)])
    assert last == Grouping([[0], [], [1]], [0, 1, None])


def test_pieces_between_words_go_to_the_next() -> None:
    result = group_pieces([(0, 1), (1, 2), (2, 3), (3, 4)], [(0, 1), (2, 3)])
    assert result.pieces == [[0], [1, 2, 3]]  # a space behind the last word goes to the last


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=12), st.data())
def test_every_piece_is_in_one_group_and_every_word_has_one(parts, data) -> None:
    spans, at = [], 0
    for length, gap in parts:
        spans.append((at + gap, at + gap + length))
        at += gap + length
    cuts = sorted(data.draw(st.sets(st.integers(0, at), max_size=at)) | {0, at})
    offsets = [*pairwise(cuts), None]
    result = group_pieces(offsets, spans)
    assert sorted(p for group in result.pieces for p in group) == list(range(len(offsets)))
    assert [w for w in result.words if w is not None] == list(range(len(spans)))
    assert result.words[-1] is None


def test_pieces_and_words_are_matched_in_linear_time() -> None:
    spans, began = [(3 * n, 3 * n + 2) for n in range(20_000)], time.process_time()
    assert group_pieces(spans, spans).pieces == [[n] for n in range(len(spans))]
    assert time.process_time() - began < 2  # each piece with each word: minutes


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("chien", "chien"),
        ("", "(empty)"),
        ("  ", "␣␣"),
        ("a\nb", "a⟨U+000A⟩b"),
        ("zero\u200bwidth", "zero⟨U+200B⟩width"),
        ("\u202eevil", "⟨U+202E⟩evil"),
        ("\ud800", "⟨U+D800⟩"),
        ("مرحبا", "مرحبا"),
        ("می\u200cخواهم", "می\u200cخواهم"),  # a joiner that Persian needs
        ("👩\u200d👧", "👩\u200d👧"),
        ("a\u200db", "a⟨U+200D⟩b"),
    ],
)
def test_nothing_is_hidden(label: str, shown: str) -> None:
    assert visible(label) == shown


@given(st.text())
def test_what_is_shown_can_be_written_and_has_no_controls(label: str) -> None:
    shown = visible(label)
    shown.encode()
    assert shown
    assert not any(ord(c) < 32 or c in "\u202e\u200b\ufeff" for c in shown)
