"""A record finds its maps and labels, and figures of heads are those of known maps."""

import numpy as np
import pytest

from foveate.errors import UserError
from foveate.look import records
from foveate.look.records import AttentionRecord, block_of
from tolerances import ROW, close

# ------------------------------ A record finds its maps and labels, and says what is wrong
MAPS = {
    "encoder.layers.0.self_attention": np.full((2, 3, 3), 1 / 3, np.float32),
    "decoder.layers.0.self_attention": np.tril(np.ones((2, 2, 2), np.float32)),
    "decoder.layers.0.cross_attention": np.full((2, 2, 3), 1 / 3, np.float32),
    "decoder.layers.1.cross_attention": np.arange(12, dtype=np.float32).reshape(2, 2, 3),
}
SOURCE, TARGET = ["a", "b", "</s>"], ["x", "</s>"]
RECORD = AttentionRecord(
    MAPS,
    {"encoder.self_attention": SOURCE, "": TARGET},
    {"encoder.self_attention": SOURCE, "cross_attention": SOURCE, "": ["<s>", "x"]},
)


def test_a_record_finds_its_maps_and_their_labels() -> None:
    assert block_of("model.decoder.layers.12.cross_attention") == "model.decoder.cross_attention"
    names = ["encoder.self_attention", "decoder.self_attention", "decoder.cross_attention"]
    assert list(RECORD.blocks()) == names
    assert RECORD.names("cross_attention") == list(MAPS)[2:]
    assert RECORD.names("decoder.self_attention") == [list(MAPS)[1]]
    assert RECORD.axes("encoder.layers.0.self_attention") == (SOURCE, SOURCE)
    assert RECORD.axes("decoder.layers.1.cross_attention") == (TARGET, SOURCE)
    assert RECORD.axes("decoder.layers.0.self_attention") == (TARGET, ["<s>", "x"])
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
COPY = np.eye(5, dtype=np.float32)
MIRROR = COPY[:, ::-1].copy()
EVEN = np.full((5, 5), 0.2, np.float32)
HEADS = np.stack([COPY, MIRROR, EVEN])


def test_figures_of_heads() -> None:
    close(records.entropy(HEADS), [0, 0, np.log2(5)], terms=ROW)
    close(records.confidence(HEADS), [1, 1, 0.2])
    straight, mirrored, even = records.diagonality(HEADS)
    assert straight == 1
    assert mirrored == pytest.approx(1 - np.mean([1, 0.5, 0, 0.5, 1]))
    assert mirrored < even < straight
