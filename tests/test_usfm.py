"""USFM: no marker is lost, lines keep their order, an untranslated book stays as it was."""

import re
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from document_tools import answered, opened

BOOK = r"""\id RUT the book
\h Ruth
\mt1 Ruth
\c 1
\p
\v 1 My daughter \add will\add* become \w intelligent|lemma="sophos"\w*.\f + \fr 1:1 \ft Or: wise\f*
\v 2 Who will be\nd co\nd*me sick,
\q1 and she
\q2 is kind?
\p
\c 2
\s She is kind
\r (Gen 1:1)
\v 1-2 \qt-s |sid="a"\*She is kind.\qt-e\*\x - \xo 2:1 \xt Gen 1:1\x*
\tr \th1 Day \tc2 \wj Tom \+nd Lord\+nd*\wj* // \pn Ruth\pn*
"""
MARKERS = re.compile(r"\\\+?[a-z]+\d?(?:-[se])?\*?|\|[^\\|]*(?=\\)")


def translated(text: str, answer: str) -> str:
    """A book in which each sentence gets an answer."""
    return answered(opened("usfm", text), lambda sentence: answer).decode()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n", "   \n"])
def test_what_is_not_translated_is_as_it_was(end: str) -> None:
    book = BOOK.replace("\n", end)
    assert translated(book, "") == book, "an empty answer leaves the source"
    assert translated("\ufeff" + book, "") == "\ufeff" + book
    broken = book + "\\v 3 She is kind\\f + \\ft no end\n\\v4 glued \\ \\* \\nd\n"
    assert translated(broken, "") == broken


def test_verses_headings_and_cells_are_translated_and_named() -> None:
    document = opened("usfm", BOOK)
    named = zip(document.units, document.passages, strict=True)
    sentences = {name: passage.sentences for name, passage in named if passage.sentences}
    assert sentences == {
        "RUT 0:\\h": ["Ruth"],
        "RUT 0:\\mt1": ["Ruth"],
        "RUT 1:1": ["My daughter will become intelligent."],
        "RUT 1:2": ["Who will become sick, and she is kind?"],
        "RUT 2:\\s": ["She is kind"],
        "RUT 2:1-2": ["She is kind.", "Day Tom Lord Ruth"],
    }
    assert document.note == "; left in the source language: footnotes (1), references (1)"
    done = answered(document).decode()
    assert Counter(MARKERS.findall(done)) == Counter(MARKERS.findall(BOOK))
    verse = "\\v 2 WHO WILL BECOME\\nd \\nd* SICK,\n\\q1 AND SHE\n\\q2 IS KIND?\n\\p\n"
    assert verse in done and '\\w INTELLIGENT|lemma="sophos"\\w*.\\f + ' in done
    assert "\\tr \\th1 DAY \\tc2 \\wj TOM \\+nd LORD\\+nd*\\wj* // \\pn RUTH\\pn*\n" in done
    assert "\\r (Gen 1:1)\n" in done


WORDS = st.sampled_from(
    r"""God made heaven . \q1 \q2 \p \add \add* \nd \nd* \+w \+w* un\nd it\nd* Tom! \w a|b\w* \it
    no\it* \v* \zx ~ // \f \f* \f_a\f* \qs \qs* \li1 \v_2 \c_3""".split()  # noqa: SIM905
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(WORDS, min_size=1, max_size=25), st.sampled_from(["le mot", "un. Deux", "a b c d e"])
)
def test_no_marker_is_lost_whatever_the_answer(words: list[str], answer: str) -> None:
    text = "\\id GEN\n\\c 1\n\\p\n\\v 1 " + " ".join(words).replace("_", " ") + "\n"
    done = translated(text, answer)
    assert Counter(MARKERS.findall(done)) == Counter(MARKERS.findall(text))
    lines = re.compile(r"\\(?:q\d|p|li1|v \d|c \d)(?!\S)")
    assert lines.findall(done) == lines.findall(text), "in this order"
    assert translated(text, "") == text


@pytest.mark.parametrize(
    "part", [r"\nd x ", r"\nd* ", r"\f x ", "|", "\\p\n", " ", r"\w a|b", r"\*"]
)
def test_hostile_books_take_time_in_proportion_to_their_length(part: str) -> None:
    start = time.perf_counter()
    opened("usfm", "\\id GEN\n\\c 1\n\\v 1 " + part * 20_000)
    assert time.perf_counter() - start < 20
