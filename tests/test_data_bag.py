"""Documents as counts of their terms."""

from __future__ import annotations

import numpy as np

from foveate.data.words import document_terms

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


def test_the_three_documents_give_the_known_table() -> None:
    counts = document_terms([text.split() for text in BANANAS])
    assert counts.table.shape == (8, 3)
    assert counts.text() == TABLE


def test_counts_count_and_order_leaves_no_trace() -> None:
    one = document_terms([["b", "a", "b"], []])
    assert one.terms == ["a", "b"]
    assert one.table.tolist() == [[1, 0], [2, 0]]
    other = document_terms([["b", "b", "a"], []])
    assert np.array_equal(one.table, other.table)


def test_no_documents_are_an_empty_table() -> None:
    assert document_terms([]).table.shape == (0, 0)
    assert document_terms([[], []]).table.shape == (0, 2)
    assert document_terms([]).text() == ""
