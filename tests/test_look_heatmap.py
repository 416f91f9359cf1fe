"""Pictures show numpy's numbers, under the right words, and disturb nothing."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from foveate.draw import colors
from foveate.draw.maps import attention, heads
from foveate.inspect.measure import KINDS
from foveate.inspect.records import AttentionRecord
from tolerances import ROW, close

SOURCE, TARGET = ["the", "red", "car", "</s>"], ["la", "voiture", "rouge", "</s>"]


@pytest.fixture
def record() -> AttentionRecord:
    rng = np.random.default_rng(0)
    maps = {
        f"decoder.layers.{layer}.cross_attention": rng.dirichlet(np.ones(4) * 0.4, (2, 4)).astype(
            np.float32
        )
        for layer in range(2)
    }
    return AttentionRecord(maps, {"": TARGET}, {"": SOURCE}, title="the red car")


def test_the_view_is_of_the_map_asked_for(record: AttentionRecord) -> None:
    maps = list(record.maps.values())
    np.testing.assert_array_equal(attention(record, layer=0, head=1).array, maps[0][1])
    close(attention(record).array, maps[1].mean(0), terms=ROW)
    assert "layer 1 (2 layers, from 0) · mean of 2 heads" in attention(record).caption


@pytest.mark.parametrize("scale", ["row", "absolute"])
def test_painted_pixels_are_the_colors_of_the_weights(record: AttentionRecord, scale: str) -> None:
    view = attention(record, head=0, scale=scale)
    figure = view.figure()
    figure.set_dpi(100)
    ax = figure.axes[0]
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=100)
    pixels = imread(io.BytesIO(file.getvalue()))
    expected = colors.table()[colors.indices(colors.scale(scale).levels(view.array))]
    for t, s in np.ndindex(view.array.shape):
        x, y = ax.transData.transform((s + 0.5, t + 0.5))
        seen = pixels[int(pixels.shape[0] - y), int(x), :3] * 255
        np.testing.assert_allclose(seen, expected[t, s], atol=3)


def test_words_stand_at_their_rows_and_columns(record: AttentionRecord) -> None:
    ax = attention(record).plot()
    assert [label.get_text() for label in ax.get_yticklabels()] == TARGET
    assert [label.get_text() for label in ax.get_xticklabels()] == SOURCE
    assert list(ax.get_yticks()) == [0.5, 1.5, 2.5, 3.5]
    top, bottom = ax.transData.transform([(0, 0.5), (0, 3.5)])[:, 1]
    assert top > bottom  # the first word that was produced stands on top
    assert ax.xaxis.get_ticks_position() == "top"
    assert ax.get_ylabel() == "producing"


def test_masked_cells_are_not_painted() -> None:
    causal = np.tril(np.full((1, 3, 3), 0.3, np.float32))
    record = AttentionRecord({"decoder.self_attention": causal}, {}, {})
    mesh = attention(record, "decoder.self_attention").plot().collections[0]
    painted = np.ma.getmaskarray(mesh.get_array())
    np.testing.assert_array_equal(painted, causal[0] == 0)


def test_drawing_disturbs_nothing(record: AttentionRecord, tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    known = set(sys.modules)
    figure = Figure()
    ax = figure.add_subplot()
    assert attention(record).plot(ax) is ax
    for ending in ("png", "svg", "pdf"):
        attention(record).save(tmp_path / f"a.{ending}")
    assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in set(sys.modules) - known


def test_saved_forms_hold_the_numbers_and_words(record: AttentionRecord, tmp_path: Path) -> None:
    view = attention(record, head=0)
    for ending in ("png", "svg", "pdf", "html", "json", "npz", "txt"):
        path = view.save(tmp_path / f"map.{ending}")
        assert path.stat().st_size > 100
    listed = json.loads((tmp_path / "map.json").read_text("utf-8"))
    np.testing.assert_array_equal(np.float32(listed["weights"]), view.array)
    assert (listed["rows"], listed["columns"]) == (TARGET, SOURCE)
    with np.load(tmp_path / "map.npz") as stored:
        np.testing.assert_array_equal(stored["weights"], view.array)
        assert stored["rows"].tolist() == TARGET
    svg = (tmp_path / "map.svg").read_text("utf-8")
    assert all(
        re.search(rf">\s*{word}\s*</text>", svg) for word in ("voiture", "red", "&lt;/s&gt;")
    )
    assert svg.count("<path") < 100  # the cells are one picture, not a path each
    assert {p.name for p in tmp_path.iterdir()} == {
        f"map.{e}" for e in ("png", "svg", "pdf", "html", "json", "npz", "txt")
    }


def test_other_endings_name_the_valid_ones(record: AttentionRecord, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"\.png, \.svg, \.pdf, \.webp, \.html, \.json, \.npz, \.txt"
    ):
        attention(record).save(tmp_path / "a.gif")
    with pytest.raises(ValueError, match="without ending"):
        attention(record).save(tmp_path / "a")
    with pytest.raises(FileNotFoundError, match="make it first"):
        attention(record).save(tmp_path / "missing" / "a.txt")
    with pytest.raises(ValueError, match="row, absolute"):
        attention(record, scale="log")


def test_a_failed_write_leaves_the_old_file(record, tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail(descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        attention(record).save(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_notebook_gets_a_frame_a_picture_and_a_text(record: AttentionRecord) -> None:
    bundle = attention(record)._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "image/png", "text/html"}
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    assert bundle["text/html"].startswith("<iframe srcdoc=")
    assert "<script" not in bundle["text/html"]  # all of the page is within the attribute
    assert "voiture" in bundle["text/plain"]
    assert "\x1b" not in bundle["text/plain"]


def test_hostile_words_are_drawn_as_they_are(tmp_path: Path) -> None:
    words = ["$x^{", "</text><script>", "日本", "مرحبا", "a\nb", "\ud800", "\u202e", ""]
    weights = np.eye(8, dtype=np.float32)[None]
    view = attention(AttentionRecord({"cross_attention": weights}, {"": words}, {"": words}))
    for ending in ("png", "svg", "json", "html", "txt", "npz"):
        view.save(tmp_path / f"a.{ending}")
    svg = (tmp_path / "a.svg").read_text("utf-8")
    assert "<script" not in svg
    assert "$x^{" in svg
    assert json.loads((tmp_path / "a.json").read_text("utf-8"))["rows"] == words


def test_long_sentences_are_drawn_small(tmp_path: Path) -> None:
    weights = np.full((1, 300, 200), 1 / 200, np.float32)
    view = attention(AttentionRecord({"cross_attention": weights}, {}, {}))
    ax = view.plot()
    assert max(ax.figure.get_size_inches()) < 20
    assert len(ax.get_yticks()) <= 64
    assert view.rows[299] == "299"


def test_heads_are_drawn_layer_by_layer(record: AttentionRecord, tmp_path: Path) -> None:
    view = heads(record)
    many = AttentionRecord({"cross_attention": np.full((64, 2, 2), 0.5, np.float32)}, {}, {})
    assert max(map(len, heads(many).text(80).splitlines()[65:])) <= 80
    axes = view.figure().axes
    assert len(axes) == 4
    seen = np.array(axes[3].collections[0].get_array())
    expected = colors.scale("absolute").levels(record.maps["decoder.layers.1.cross_attention"][1])
    close(seen, expected)
    assert [ax.get_ylabel() for ax in axes] == ["layer 0", "", "layer 1", ""]
    kinds = [kind for heads in view.kinds.values() for kind in heads]
    lines = view.text().split("\n")
    assert [line.split("  ")[-1] for line in lines[1:5]] == kinds
    assert [line.partition(":")[0] for line in lines[5:] if ":" in line] == [
        k for k in KINDS if k in kinds
    ]
    assert [ax.get_xlabel() for ax in axes] == kinds
    [drawing] = view.drawings()
    assert drawing.blocks[0].kinds == list(view.kinds.values())  # type: ignore[attr-defined]
    for ending in ("png", "npz", "txt", "html"):
        view.save(tmp_path / f"heads.{ending}")
