"""Chance changes of pictures: from the generator alone, and of the size that they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foveate.config import kinds
from foveate.data.image import Canvas, Crop, Shift

PICTURE = np.arange(1, 3 * 8 * 8 + 1, dtype=np.uint8).reshape(3, 8, 8)
ALL = [config() for config in kinds("augmentation")["augmentation"].values()]
SMALL: list[Any] = [
    config.model_copy(update={"size": 12 if config.kind == "canvas" else 5})
    if hasattr(config, "size")
    else config
    for config in ALL
]


@pytest.mark.parametrize("config", SMALL, ids=lambda c: c.kind)
def test_laws_of_every_change(config: Any) -> None:
    change = config.build()
    for make in (change.vary, change.settle):
        one, same = (make(PICTURE, np.random.default_rng(3)) for _ in range(2))
        assert (one == same).all()
        assert one.shape == (3, *change.size((8, 8)))
        assert one.dtype == np.uint8
    seen = {change.vary(PICTURE, np.random.default_rng(n)).tobytes() for n in range(30)}
    assert len(seen) > 4 or config.kind == "none"


def test_a_shift_moves_and_fills_with_background() -> None:
    shift = Shift.Config(pixels=1).build()
    assert (shift.settle(PICTURE, np.random.default_rng(0)) == PICTURE).all()
    for n in range(20):
        moved = shift.vary(PICTURE, np.random.default_rng(n))
        wide = np.pad(PICTURE, ((0, 0), (2, 2), (2, 2)))
        places = [
            (wide[:, 2 + y : 10 + y, 2 + x : 10 + x] == moved).all()
            for y in (-1, 0, 1)
            for x in (-1, 0, 1)
        ]
        assert any(places)


def test_a_canvas_holds_the_picture_whole_and_nothing_else() -> None:
    canvas = Canvas.Config(size=12).build()
    placed = canvas.settle(PICTURE, np.random.default_rng(1))
    assert int(placed.sum(dtype=int)) == int(PICTURE.sum(dtype=int))
    rows, columns = placed[0].any(axis=1).nonzero()[0], placed[0].any(axis=0).nonzero()[0]
    cut = placed[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    assert (cut == PICTURE).all()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="8×8 does not fit on a canvas of 6×6"):
        Canvas.Config(size=6).build().size((8, 8))
    with pytest.raises(ValueError, match=r"no part of 9×9.*raise task\.pictures\.size"):
        Crop.Config(size=9).build().size((8, 8))


def test_crops_are_mirrored_half_of_the_time() -> None:
    crop = Crop.Config(size=8).build()
    mirrored = [
        bool((crop.vary(PICTURE, np.random.default_rng(n)) == PICTURE[:, :, ::-1]).all())
        for n in range(40)
    ]
    assert 8 < sum(mirrored) < 32
