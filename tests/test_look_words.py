"""Pieces to words keep their mass, under the right words; nothing in a label is hidden."""

import itertools
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from foveate.data.tokenizer import BPE, Byte, Character, Symbol
from foveate.data.words import Grouping, group_pieces, to_words
from foveate.look.draw.parts import visible
from foveate.look.records import TokenizedText, Units, attention_record
from tolerances import ROW, close, near


# ------------------------------ Pieces to words keep their mass; nothing in a label is hidden
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


def test_weights_outside_of_words_and_of_words_without_pieces() -> None:
    halves, two = np.full((2, 2), 0.5), [[0, 1], [2, 3]]
    close(to_words(np.array([[0.5, 0.25, 0.25]]), [[0]], [[0, 1]]), [[0.75]])
    close(to_words(halves, [[0, 1], []], [[0, 1], []]), [[1, 0], [0, 0]])
    assert to_words(np.tril(np.full((4, 4), 0.25)), two, two)[0, 1] == 0, "exactly, as masked"


@pytest.mark.parametrize(
    ("pieces", "words", "groups", "numbers"),
    [  # special tokens of the tokenizers library; a word without a piece; pieces between words
        ([(0, 0), (0, 1), (0, 0)], [(0, 1)], [[0], [1], [2]], [None, 0, None]),
        ([(0, 4), (5, 7), None], [(0, 3), (3, 4), (5, 7)], [[0], [], [1], [2]], [0, 1, 2, None]),
        ([(0, 4), None], [(0, 3), (3, 4)], [[0], [], [1]], [0, 1, None]),
        ([(0, 1), (1, 2), (2, 3), (3, 4)], [(0, 1), (2, 3)], [[0], [1, 2, 3]], [0, 1]),
    ],
)
def test_a_piece_belongs_to_a_word(pieces, words, groups, numbers) -> None:
    assert group_pieces(pieces, words) == Grouping(groups, numbers)


def test_pieces_belong_to_the_word_they_overlap() -> None:
    # "The dogs." in pieces The | ␣dog | s | . | </s>
    result = group_pieces([(0, 3), (3, 7), (7, 8), (8, 9), None], [(0, 3), (4, 8), (8, 9)])
    assert result == Grouping([[0], [1, 2], [3], [4]], [0, 1, 2, None])
    labels = result.labels(["The", "dogs", "."], ["The", " dog", "s", ".", "</s>"])
    assert labels == ["The", "dogs", ".", "</s>"]


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


# ---- Maps over pieces become maps over words, with the right words on each axis
SOURCE = "The dog doesn't bark."
TARGET = "Le chien n'aboie pas."
# pieces as a subword tokenizer cuts them, spaces with the piece that follows
READ = [(0, 3), (3, 5), (5, 7), (7, 15), (15, 20), (20, 21)]  # The | d|og | doesn't | bark | .
WRITTEN = [(0, 2), (2, 8), (8, 11), (11, 13), (13, 16), (16, 20), (20, 21)]
SOURCE_WORDS = ["The", "dog", "doesn't", "bark", ".", "</s>"]
TARGET_WORDS = ["Le", "chien", "n'", "aboie", "pas", "."]


def weights(rows: int, columns: int, heads: int = 2) -> NDArray[np.float32]:
    random = np.random.default_rng(rows * 100 + columns).random((heads, rows, columns))
    return (random / random.sum(axis=-1, keepdims=True)).astype(np.float32)


def text(line: str, spans: list[tuple[int, int]]) -> TokenizedText:
    return TokenizedText(line, spans, [line[a:b] for a, b in spans])


MAPS = {
    "encoder.layers.0.self_attention": weights(7, 7),
    "decoder.layers.0.self_attention": weights(8, 8),
    "decoder.layers.0.cross_attention": weights(8, 7),
}


def test_each_axis_has_its_words() -> None:
    record = attention_record(MAPS, "auto", text(SOURCE, READ), text(TARGET, WRITTEN))
    assert list(record.maps) == list(MAPS)
    assert record.axes("encoder.layers.0.self_attention") == (SOURCE_WORDS, SOURCE_WORDS)
    produced, read = record.axes("decoder.layers.0.self_attention")
    assert produced == [*TARGET_WORDS, "</s>"]
    assert read == ["<s>", *TARGET_WORDS]
    assert record.axes("decoder.layers.0.cross_attention") == (produced, SOURCE_WORDS)
    assert SOURCE in record.title
    assert TARGET in record.title


def test_columns_are_summed_and_rows_averaged() -> None:
    pieces = MAPS["decoder.layers.0.cross_attention"]
    record = attention_record(MAPS, "auto", text(SOURCE, READ), text(TARGET, WRITTEN))
    result = record.maps["decoder.layers.0.cross_attention"]
    close(result[:, 0, 1], pieces[:, 0, 1] + pieces[:, 0, 2])
    split = pieces[:, 3:5].mean(axis=1)  # "ab|oie" is written in two pieces
    close(result[:, 3, 0], split[:, 0])
    close(result[:, 3, 1], split[:, 1] + split[:, 2])
    close(result[:, -1, -1], pieces[:, -1, -1])


def test_the_row_of_a_word_is_where_it_was_produced() -> None:
    """The decoder reads the start first: row t produces word t, column t is the word before."""
    name = "decoder.layers.0.self_attention"
    one_to_one = {name: np.eye(4, dtype=np.float32)[None]}
    source, target = text("a", [(0, 1)]), text("x y z", [(0, 1), (1, 3), (3, 5)])
    record = attention_record(one_to_one, "auto", source, target)
    rows, columns = record.axes(name)
    assert rows == ["x", "y", "z", "</s>"]
    assert columns == ["<s>", "x", "y", "z"]
    assert np.array_equal(record.maps[name], one_to_one[name])


def test_empty_texts_leave_starts_and_ends() -> None:
    maps = dict.fromkeys(MAPS, weights(1, 1))
    record = attention_record(maps, "auto", text("", []), text("", []))
    assert record.axes("decoder.layers.0.cross_attention") == (["</s>"], ["</s>"])
    assert record.axes("decoder.layers.0.self_attention") == (["</s>"], ["<s>"])


BEASTS = ["犬が", "犬は", "猫が", "猫は"]
CHARACTERS, SYMBOLS = [*"chat"], ["CH", "AE1", "T"]


@pytest.mark.parametrize(
    ("config", "line", "auto", "words"),
    [
        (Character.Config(), "chat", CHARACTERS, ["chat"]),
        (Character.Config(), "a b", ["a", "␣", "b"], ["a", "b"]),
        (Symbol.Config(), "CH AE1 T", SYMBOLS, SYMBOLS),
        (Byte.Config(), "hé", ["h", "é", "<a9>"], ["hé"]),
        (BPE.Config(vocab_size=260), "to <N>.", ["to", "<N>", "."], None),
        (BPE.Config(vocab_size=272), "狗ok a", ["狗", "<8b>", "<97>", "ok", "a"], ["狗ok", "a"]),
    ],
)
def test_units_follow_the_tokenizer_and_the_script(config, line, auto, words) -> None:
    """By default tokens of characters, symbols, bytes and unsegmented scripts, else words."""
    tokenizer = config.build()
    tokenizer.train([line, "ok"] * 3 if tokenizer.units == "tokens" else [*BEASTS, "ok"] * 3)
    written = TokenizedText.written(tokenizer, tokenizer.encode(line).ids)
    for read in (TokenizedText.read(tokenizer, line), written):
        assert read.axis("auto")[1] == auto
        assert read.axis("words")[1] == (words or auto)
        groups, labels = read.axis("tokens")
        assert groups == [[n] for n in range(len(tokenizer.encode(line).ids))]
        assert len(labels) == len(groups) and all(labels)
        for units in ("auto", "words"):
            pieces = itertools.chain.from_iterable(read.axis(units)[0])
            assert sorted(pieces) == list(range(len(labels))), "every token is in one group"


def test_special_tokens_within_an_output_have_their_names() -> None:
    tokenizer = Character.Config().build()
    tokenizer.train(["ab"])
    labels = TokenizedText.written(tokenizer, [2, *tokenizer.encode("ab").ids, 3]).axis
    assert labels("tokens")[1] == ["<s>", "a", "b", "</s>"]
    assert labels("words")[1] == ["<s>", "ab", "</s>"]


@pytest.mark.parametrize("units", ["words", "tokens"])
def test_tokens_that_are_merged_are_counted(units: Units) -> None:
    tokenizer = Character.Config().build()
    tokenizer.train(["a cat", "un chat"])
    source, target = (TokenizedText.read(tokenizer, text) for text in ("a cat", "un chat"))
    maps = {"decoder.cross_attention": np.full((1, 8, 6), 1 / 6, dtype=np.float32)}
    merged = {"words": ["tokens are merged into words: 8 into 3, 6 into 3"], "tokens": []}
    assert attention_record(maps, units, source, target).notes == merged[units]
