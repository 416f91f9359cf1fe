"""Records of attention: pieces become words and keep their mass; labels; figures of heads."""

import itertools
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from foveate.data.tokenizer import BOS, BPE, EOS, Byte, Character, Symbol
from foveate.data.words import Grouping, group_pieces, to_words
from foveate.errors import UserError
from foveate.look import records
from foveate.look.draw.parts import visible
from foveate.look.records import END, AttentionRecord, TokenizedText, attention_record, block_of
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
    [  # The | ␣dog | s; special tokens; words without a piece; pieces between words
        ([(0, 3), (3, 7), (7, 8), None], [(0, 3), (4, 8)], [[0], [1, 2], [3]], [0, 1, None]),
        ([(0, 0), (0, 1), (0, 0)], [(0, 1)], [[0], [1], [2]], [None, 0, None]),
        ([(0, 4), (5, 7), None], [(0, 3), (3, 4), (5, 7)], [[0], [], [1], [2]], [0, 1, 2, None]),
        ([(0, 4), None], [(0, 3), (3, 4)], [[0], [], [1]], [0, 1, None]),
        ([(0, 1), (1, 2), (2, 3), (3, 4)], [(0, 1), (2, 3)], [[0], [1, 2, 3]], [0, 1]),
    ],
)
def test_a_piece_belongs_to_a_word(pieces, words, groups, numbers) -> None:
    assert group_pieces(pieces, words) == Grouping(groups, numbers)
    grouping = Grouping([[0], [1, 2], [3]], [0, 1, None])
    assert grouping.labels(["The", "dogs"], ["The", " dog", "s", END]) == ["The", "dogs", END]


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
SOURCE_WORDS = ["The", "dog", "doesn't", "bark", ".", END]
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


def test_each_axis_has_its_words_whose_columns_are_summed_and_rows_averaged() -> None:
    """The decoder reads the start first: row t produces word t, column t is the word before."""
    pieces = MAPS["decoder.layers.0.cross_attention"]
    record = attention_record(MAPS, "auto", text(SOURCE, READ), text(TARGET, WRITTEN))
    assert list(record.maps) == list(MAPS) and SOURCE in record.title and TARGET in record.title
    assert record.notes == ["tokens are merged into words: 7 into 6, 8 into 7"]
    assert record.axes("encoder.layers.0.self_attention") == (SOURCE_WORDS, SOURCE_WORDS)
    produced, read = record.axes("decoder.layers.0.self_attention")
    assert (produced, read) == ([*TARGET_WORDS, END], ["<s>", *TARGET_WORDS])
    assert record.axes("decoder.layers.0.cross_attention") == (produced, SOURCE_WORDS)
    result = record.maps["decoder.layers.0.cross_attention"]
    close(result[:, 0, 1], pieces[:, 0, 1] + pieces[:, 0, 2])
    split = pieces[:, 3:5].mean(axis=1)  # "ab|oie" is written in two pieces
    close(result[:, 3, 0], split[:, 0])
    close(result[:, 3, 1], split[:, 1] + split[:, 2])
    close(result[:, -1, -1], pieces[:, -1, -1])
    whole = attention_record(MAPS, "tokens", text(SOURCE, READ), text(TARGET, WRITTEN))
    assert whole.notes == [] and np.array_equal(whole.maps[[*MAPS][1]], MAPS[[*MAPS][1]])
    maps = dict.fromkeys(MAPS, weights(1, 1))
    empty = attention_record(maps, "auto", text("", []), text("", []))  # starts and ends are left
    assert empty.axes("decoder.layers.0.cross_attention") == ([END], [END])
    assert empty.axes("decoder.layers.0.self_attention") == ([END], ["<s>"])


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
    special = TokenizedText.written(tokenizer, [BOS, *tokenizer.encode(line).ids, EOS]).axis
    for units in ("tokens", "words"):  # by their names
        assert special(units)[1] == ["<s>", *written.axis(units)[1], END]


# ------------------------------ A record finds its maps and labels, and says what is wrong
WHOLE = {
    "encoder.layers.0.self_attention": np.full((2, 3, 3), 1 / 3, np.float32),
    "decoder.layers.0.self_attention": np.tril(np.ones((2, 2, 2), np.float32)),
    "decoder.layers.0.cross_attention": np.full((2, 2, 3), 1 / 3, np.float32),
    "decoder.layers.1.cross_attention": np.arange(12, dtype=np.float32).reshape(2, 2, 3),
}
KEYS, ROWS = ["a", "b", "</s>"], ["x", "</s>"]
RECORD = AttentionRecord(
    WHOLE,
    {"encoder.self_attention": KEYS, "": ROWS},
    {"encoder.self_attention": KEYS, "cross_attention": KEYS, "": ["<s>", "x"]},
)


def test_a_record_finds_its_maps_and_their_labels() -> None:
    assert block_of("model.decoder.layers.12.cross_attention") == "model.decoder.cross_attention"
    names = ["encoder.self_attention", "decoder.self_attention", "decoder.cross_attention"]
    assert list(RECORD.blocks()) == names
    assert RECORD.names("cross_attention") == list(WHOLE)[2:]
    assert RECORD.names("decoder.self_attention") == [list(WHOLE)[1]]
    assert RECORD.axes("encoder.layers.0.self_attention") == (KEYS, KEYS)
    assert RECORD.axes("decoder.layers.1.cross_attention") == (ROWS, KEYS)
    assert RECORD.axes("decoder.layers.0.self_attention") == (ROWS, ["<s>", "x"])
    np.testing.assert_array_equal(RECORD.select(head=1), [[6, 7, 8], [9, 10, 11]])
    np.testing.assert_array_equal(RECORD.select(), [[3, 4, 5], [6, 7, 8]])
    with pytest.raises(UserError, match=r"could be any of.*encoder.self_attention"):
        RECORD.select(block="self_attention")
    with pytest.raises(UserError, match="there are 2"):
        RECORD.select(head=-1)


def test_a_model_without_attention_has_no_names_and_says_so() -> None:
    empty = AttentionRecord({}, {}, {})
    assert empty.names("cross_attention") == []
    with pytest.raises(UserError, match="this model has no attention"):
        empty.select()


def test_padding_is_cut_and_never_weight() -> None:
    padded = np.zeros((1, 3, 4), np.float32)
    padded[:, :, :2] = 0.5
    record = AttentionRecord({"m": padded}, {"": ["x", "y"]}, {"": ["a", "b"]})
    assert record.drawn("m").shape == (1, 2, 2)
    padded[0, 0, 3] = 0.1
    with pytest.raises(ValueError, match=r"without a label carry a weight of 0\.1"):
        record.drawn("m")
    with pytest.raises(ValueError, match="give one label"):
        AttentionRecord({"m": padded[:, :1, :1]}, {"": ["x"]}, {"": ["a", "b"]}).drawn("m")
    with pytest.raises(ValueError, match="some weights are not finite"):
        AttentionRecord({"m": np.full((1, 1, 1), np.nan, np.float32)}, {}, {}).drawn("m")


# ------------------------------ Figures of heads, on maps whose figures are known
def test_figures_of_heads() -> None:
    copy, even = np.eye(5, dtype=np.float32), np.full((5, 5), 0.2, np.float32)
    heads = np.stack([copy, copy[:, ::-1], even])
    close(records.entropy(heads), [0, 0, np.log2(5)], terms=ROW)
    close(records.confidence(heads), [1, 1, 0.2])
    straight, mirrored, broad = records.diagonality(heads)
    assert mirrored == pytest.approx(1 - np.mean([1, 0.5, 0, 0.5, 1]))
    assert mirrored < broad < straight == 1
    causal = np.array([[1, 0, 0], [0.5, 0.5, 0], [0.2, 0.2, 0.6]], np.float32)
    assert records.on_diagonal(causal) == pytest.approx((1 + 0.5 + 0.6) / 3)
    assert records.on_diagonal(causal, -1) == pytest.approx((0.5 + 0.2) / 2)
    assert records.on_sink(causal) == pytest.approx(1.7 / 3)
    entropy = -(0.4 * np.log2(0.2) + 0.6 * np.log2(0.6))
    assert records.breadth(causal) == near((1 + entropy / np.log2(3)) / 2, terms=ROW)
    assert records.spread(causal) == pytest.approx(2 / 3)
    assert records.on_diagonal(np.stack([causal, causal])).shape == (2,)


def soft(rows: NDArray[np.floating], share: float = 0.7) -> NDArray[np.float32]:
    return np.asarray(share * rows + (1 - share) / rows.shape[-1], np.float32)


EYE, SINK, LONGER = np.eye(6), np.zeros((6, 6)), np.zeros((3, 6))
SINK[:, 0] = LONGER[[0, 1, 2], [0, 2, 5]] = 1  # LONGER: the same places, further apart


@pytest.mark.parametrize(
    ("kind", "weights", "offsets"),
    [
        ("same token", soft(EYE), records.ENCODER),
        ("previous token", soft(np.eye(6, k=-1) + np.diag([1, 0, 0, 0, 0, 0])), records.ENCODER),
        ("next token", soft(np.eye(6, k=1) + np.diag([0, 0, 0, 0, 0, 1])), records.ENCODER),
        ("sink", soft(SINK), records.ENCODER),
        ("broad", soft(EYE, 0), records.ENCODER),
        ("no pattern", soft(EYE[[3, 0, 5, 1, 4, 2]], 0.35), records.ENCODER),
        ("no pattern", soft(EYE[::-1]), records.ENCODER),
        ("aligning", soft(EYE[::-1]), records.CROSS),
        ("diagonal", soft(EYE), records.CROSS),
        ("diagonal", soft(LONGER), records.CROSS),
        ("sink", soft(SINK), records.CROSS),
        ("no pattern", soft(np.ones((1, 4)), 0), records.CROSS),
    ],
)
def test_heads_that_were_made_so_are_called_so(kind, weights, offsets) -> None:
    assert records.kind_of(weights, offsets) == kind


def test_kinds_are_named_by_the_labels_of_the_map() -> None:
    """A decoder's row is the word that it produces: the word read last stands before that one."""
    made = np.stack([soft(EYE), 0 * soft(EYE), soft(EYE[::-1])])
    names = ("encoder.layers.0.self_attention", "decoder.self_attention", "decoder.cross_attention")
    assert records.kinds_of(dict.fromkeys(names, made)) == {
        names[0]: ["same token", "silenced", "no pattern"],
        names[1]: ["previous token", "silenced", "no pattern"],
        names[2]: ["diagonal", "silenced", "aligning"],
    }
