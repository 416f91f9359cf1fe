from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.data.batches import pad
from foveate.data.tokenizer import PAD

ids = st.lists(st.integers(4, 9), max_size=7)


def test_shorter_sequences_are_filled_on_the_right() -> None:
    padded = pad([[5, 6, 7], [8], []])
    assert padded.dtype == np.int64
    assert padded.tolist() == [[5, 6, 7], [8, PAD, PAD], [PAD, PAD, PAD]]


@given(st.lists(ids, max_size=6), st.integers(1, 5))
def test_what_went_in_comes_out(sequences: list[list[int]], multiple: int) -> None:
    padded = pad(sequences, value=0, multiple=multiple)
    longest = max(map(len, sequences), default=0)
    assert len(padded) == len(sequences)
    assert padded.shape[1] % multiple == 0 and 0 <= padded.shape[1] - longest < multiple
    assert [row[row > 0].tolist() for row in padded] == sequences
    assert (pad([np.array(s, dtype=np.int32) for s in sequences], 0, multiple) == padded).all()


def test_nothing_is_an_empty_rectangle() -> None:
    assert pad([]).shape == (0, 0)
    assert pad([[], []], multiple=8).shape == (2, 0)


def test_a_multiple_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple: must be at least 1, not 0"):
        pad([[4]], multiple=0)
