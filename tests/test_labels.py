"""Maps over pieces become maps over words, with the right words on each axis."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from foveate.tasks.labels import attention_record
from tolerances import close

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


MAPS = {
    "encoder.layers.0.self_attention": weights(7, 7),
    "decoder.layers.0.self_attention": weights(8, 8),
    "decoder.layers.0.cross_attention": weights(8, 7),
}


def test_each_axis_has_its_words() -> None:
    record = attention_record(MAPS, (SOURCE, READ), (TARGET, WRITTEN))
    assert list(record.maps) == list(MAPS)
    assert record.axes("encoder.layers.0.self_attention") == (SOURCE_WORDS, SOURCE_WORDS)
    produced, read = record.axes("decoder.layers.0.self_attention")
    assert produced == [*TARGET_WORDS, "</s>"]
    assert read == ["<s>", *TARGET_WORDS]
    assert record.axes("decoder.layers.0.cross_attention") == (produced, SOURCE_WORDS)
    assert SOURCE in record.title
    assert TARGET in record.title


@pytest.mark.parametrize("name", MAPS)
def test_rows_go_on_summing_to_one(name: str) -> None:
    record = attention_record(MAPS, (SOURCE, READ), (TARGET, WRITTEN))
    rows, columns = record.axes(name)
    assert record.maps[name].shape == (2, len(rows), len(columns))
    close(record.maps[name].sum(axis=-1), 1)
    assert record.drawn(name).shape == record.maps[name].shape


def test_columns_are_summed_and_rows_averaged() -> None:
    pieces = MAPS["decoder.layers.0.cross_attention"]
    record = attention_record(MAPS, (SOURCE, READ), (TARGET, WRITTEN))
    found = record.maps["decoder.layers.0.cross_attention"]
    close(found[:, 0, 1], pieces[:, 0, 1] + pieces[:, 0, 2])
    split = pieces[:, 3:5].mean(axis=1)  # "ab|oie" is written in two pieces
    close(found[:, 3, 0], split[:, 0])
    close(found[:, 3, 1], split[:, 1] + split[:, 2])
    close(found[:, -1, -1], pieces[:, -1, -1])


def test_the_row_of_a_word_is_where_it_was_produced() -> None:
    """The decoder reads the start first: row t produces word t, column t is the word before."""
    name = "decoder.layers.0.self_attention"
    one_to_one = {name: np.eye(4, dtype=np.float32)[None]}
    record = attention_record(one_to_one, ("a", [(0, 1)]), ("x y z", [(0, 1), (1, 3), (3, 5)]))
    rows, columns = record.axes(name)
    assert rows == ["x", "y", "z", "</s>"]
    assert columns == ["<s>", "x", "y", "z"]
    assert np.array_equal(record.maps[name], one_to_one[name])


def test_a_recurrent_decoder_has_its_cross_attention_alone() -> None:
    maps = {"decoder.cross_attention": weights(8, 7, heads=1)}
    record = attention_record(maps, (SOURCE, READ), (TARGET, WRITTEN))
    assert record.axes("decoder.cross_attention") == ([*TARGET_WORDS, "</s>"], SOURCE_WORDS)
    assert record.select().shape == (7, 6)


def test_empty_texts_leave_starts_and_ends() -> None:
    maps = {
        "encoder.layers.0.self_attention": weights(1, 1),
        "decoder.layers.0.self_attention": weights(1, 1),
        "decoder.layers.0.cross_attention": weights(1, 1),
    }
    record = attention_record(maps, ("", []), ("", []))
    assert record.axes("decoder.layers.0.cross_attention") == (["</s>"], ["</s>"])
    assert record.axes("decoder.layers.0.self_attention") == (["</s>"], ["<s>"])


def test_no_maps_no_axes() -> None:
    record = attention_record({}, (SOURCE, READ), (TARGET, WRITTEN))
    assert record.maps == {}
