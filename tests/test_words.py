"""Cutting text into words: examples, and laws over any string."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.data.words import (
    UNSPACED,
    document_terms,
    marks_apart,
    pieces_of,
    split_words,
    words,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("l'homme n'a pas 3,5 ans.", "l' homme n' a pas 3,5 ans ."),
        ("Qu’est-ce qu’elle a ?", "Qu’ est-ce qu’ elle a ?"),
        ("J'arrive aujourd'hui, jusqu'ici!", "J' arrive aujourd'hui , jusqu' ici !"),
        ("at three o'clock Anne's dog", "at three o'clock Anne's dog"),
        ("He doesn't (yet) know.", "He doesn't ( yet ) know ."),
        ("le 1er mai 2019 à 10:30...", "le 1er mai 2019 à 10:30 . . ."),
        ("États-Unis - grand-mère-", "États-Unis - grand-mère -"),
        ("« L'été »", "« L' été »"),
        ("e\u0301te\u0301 naïf", "e\u0301te\u0301 naïf"),
        ("हिन्दी 日本語 한국어", "हिन्दी 日本語 한국어"),
        ("", ""),
        (" \t\n\u00a0", ""),
    ],
)
def test_examples(text: str, expected: str) -> None:
    assert words(text) == expected.split(" ") * bool(expected)


ANY = st.text() | st.text(alphabet="aeélqujhn'’-,.:3 \u0301\u200d?L\u00a0👩")


@given(ANY)
def test_spans_are_ordered_disjoint_and_hold_all_but_white_space(text: str) -> None:
    spans = split_words(text)
    assert all(start < end for start, end in spans)
    assert all(item[1] <= two[0] for item, two in pairwise(spans))
    assert not any(character.isspace() for start, end in spans for character in text[start:end])
    assert "".join(words(text)) == "".join(text.split())


@given(ANY, ANY)
def test_white_space_separates(left: str, right: str) -> None:
    if not left.endswith(("'", "’")):  # an elided clitic needs the word that follows it
        assert words(f"{left} {right}") == words(left) + words(right)


@pytest.mark.parametrize("text", ["汉字", "かな", "ｶﾅ", "ไทย", "ລາວ", "ខ្មែរ", "မြန်မာ", "a 字"])
def test_scripts_without_blanks_are_known(text: str) -> None:
    assert UNSPACED.search(text)
    assert not UNSPACED.search("naïve Ελλάδα Москва हिन्दी العربية 한국어 3,5 🦓 。")


BANANAS = ["yes , we have no bananas", "say yes for bananas", "no bananas , we say"]
TABLE = """\
,       1 0 1
bananas 1 1 1
for     0 1 0
have    1 0 0
no      1 0 1
say     0 1 1
we      1 0 1
yes     1 1 0"""


def test_documents_are_counts_of_their_terms() -> None:
    assert document_terms([text.split() for text in BANANAS]).text() == TABLE
    for text in (["b", "a", "b"], ["b", "b", "a"]):  # the order leaves no trace
        counts = document_terms([text, []])
        assert (counts.terms, counts.table.tolist()) == (["a", "b"], [[1, 0], [2, 0]])
    for documents in ([], [[], []]):
        counts = document_terms(documents)
        assert (counts.table.shape, counts.text()) == ((0, len(documents)), "")


def test_a_text_without_words_has_no_marks() -> None:
    assert marks_apart(["", "  ", "a , b.", "c ."]) == (2, 3)


def test_a_piece_belongs_to_the_word_with_which_it_shares_most() -> None:
    assert pieces_of([(0, 3), (3, 8)], [(0, 2), (2, 3), (3, 8)]) == [[0], [], [1]]
    assert pieces_of([(0, 1)], []) == []
