"""Weights laid over a picture: what has none is the picture, what has all still shows it."""

from __future__ import annotations

import numpy as np
import pytest

from foveate.draw.colors import EVEN, OVERLAYS, enlarged, tinted
from foveate.draw.pictures import over_picture
from foveate.inspect.records import AttentionRecord
from tolerances import ROW, close


def test_without_weight_the_picture_is_seen_as_it_is() -> None:
    grey = np.linspace(0, 1, 12).reshape(3, 4)
    np.testing.assert_array_equal(tinted(grey, np.zeros((3, 4))), np.stack([grey] * 3, axis=-1))


def test_under_all_the_weight_there_is_a_picture_and_no_grey() -> None:
    black, white = tinted(np.array([0.0, 1.0]), np.ones(2))
    assert (white > black).all()
    for colour in (black, white):
        assert colour[0] - colour[2] > 0.5  # orange: red and blue are told apart by every eye


def test_a_broad_look_is_pale_and_a_narrow_one_is_not() -> None:
    opacity = OVERLAYS["row"].levels
    even = np.full((4, 5), 1 / 20)
    close(opacity(even), 1 / EVEN)
    narrow = even * 0.5
    narrow[1, 2] += 0.5
    result = opacity(narrow)
    assert result[1, 2] == 1
    close(result / result[1, 2], narrow / narrow[1, 2])  # follows the weight
    np.testing.assert_array_equal(opacity(np.zeros((2, 2))), 0)
    np.testing.assert_array_equal(
        opacity(np.array([[0.2, 0.1]])), [[0.2, 0.1]]
    )  # never more than 1
    np.testing.assert_array_equal(OVERLAYS["absolute"].levels(even), even)


def test_a_pixel_has_the_value_of_its_cell() -> None:
    grid = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    pixels = enlarged(grid, 4, 9)
    np.testing.assert_array_equal(pixels[::2, ::3], grid)
    assert pixels.shape == (4, 9)
    assert enlarged(grid, 5, 7).shape == (5, 7)  # a grid that does not divide the picture


@pytest.mark.parametrize("scale", OVERLAYS)
def test_what_is_drawn_is_the_tint_of_the_weights(scale: str) -> None:
    weights = np.array([[[0.7, 0.1, 0.2, 0.0]], [[0.7, 0.1, 0.2, 0.0]]], np.float32)
    record = AttentionRecord(
        {"cross_attention": weights}, {"": ["dog"]}, {"": ["0,0", "0,1", "1,0", "1,1"]}, title="x"
    )
    pixels = np.full((1, 4, 4), 128, np.uint8)
    figure = over_picture(record, pixels, scale=scale).figure()
    plain, panel, legend = figure.axes
    drawn = np.asarray(panel.images[0].get_array())
    opacity = OVERLAYS[scale].levels(np.array([[0.7, 0.1], [0.2, 0.0]]))
    close(drawn, tinted(np.full((4, 4), 128 / 255), enlarged(opacity, 4, 4)), terms=ROW)
    assert np.asarray(plain.images[0].get_array()).shape == (4, 4, 3)
    assert [text.get_text() for text in panel.texts] == ["most 70%", ""]
    assert legend.get_ylabel() == OVERLAYS[scale].caption
