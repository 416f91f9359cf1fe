"""Figures of heads, on maps whose figures are known."""

from __future__ import annotations

import numpy as np
import pytest

from foveate.inspect import measure
from tolerances import ROW, close

COPY = np.eye(5, dtype=np.float32)
MIRROR = COPY[:, ::-1].copy()
EVEN = np.full((5, 5), 0.2, np.float32)
HEADS = np.stack([COPY, MIRROR, EVEN])


def test_entropy() -> None:
    close(measure.entropy(HEADS), [0, 0, np.log2(5)], terms=ROW)


def test_confidence() -> None:
    close(measure.confidence(HEADS), [1, 1, 0.2])


def test_diagonality() -> None:
    straight, mirrored, even = measure.diagonality(HEADS)
    assert straight == 1
    assert mirrored == pytest.approx(1 - np.mean([1, 0.5, 0, 0.5, 1]))
    assert mirrored < even < straight


def test_alignment() -> None:
    assert measure.alignment(HEADS)[:2].tolist() == [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0]]
