"""Pictures and pages show numpy's numbers, under the right words, and nothing that acts."""

import base64
import hashlib
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

from foveate.look.draw import colors, maps
from foveate.look.draw.maps import attention, heads
from foveate.look.draw.parts import STEPS
from foveate.look.records import AttentionRecord
from tolerances import ROW, close

# ---- Pictures show numpy's numbers, under the right words, and disturb nothing
SOURCE, TARGET = ["the", "red", "car", "</s>"], ["la", "voiture", "rouge", "</s>"]


@pytest.fixture
def record() -> AttentionRecord:
    rng = np.random.default_rng(0)
    weights = (rng.dirichlet(np.ones(4) * 0.4, (2, 4)).astype(np.float32) for _ in range(2))
    maps = {f"decoder.layers.{n}.cross_attention": each for n, each in enumerate(weights)}
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
    assert ax.get_ylabel() == "writes"


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
    assert [ax.get_xlabel() for ax in axes] == [k.replace("no pattern", "") for k in kinds]
    words = [[label.get_text() for label in ax.get_xticklabels()] for ax in axes]
    assert words == [SOURCE, SOURCE, [], []]  # above the first layer
    assert [label.get_text() for label in axes[2].get_yticklabels()] == TARGET
    [drawing] = view.drawings()
    assert drawing.blocks[0].kinds == list(view.kinds.values())  # type: ignore[attr-defined]
    for ending in ("png", "npz", "txt", "html"):
        view.save(tmp_path / f"heads.{ending}")


# ---- What goes into the page: the right numbers, nothing that acts, and no more than it can hold
HOSTILE = ["</script><img src=x onerror=alert(1)>", "<!--", "\u2028", "a\nb", "\ud800", "😀"]
HOSTILE.append("مرحبا")


def record_page(size: int = 3, heads: int = 2, words: list[str] | None = None) -> AttentionRecord:
    labels = words or [f"w{i}" for i in range(size)]
    weights = np.random.default_rng(0).dirichlet(np.ones(len(labels)), (heads, len(labels)))
    return AttentionRecord(
        {"decoder.layers.0.cross_attention": weights.astype(np.float32)}, {"": labels}, {"": labels}
    )


def cover(text: str):
    result = re.search(r'<script id="page" type="application/json">(.*?)</script>', text, re.S)
    return json.loads(result[1])


def groups(text: str):
    result = re.findall(r'<script class="group" type="application/json">(.*?)</script>', text, re.S)
    return [json.loads(group) for group in result]


def unpack(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<u2") / STEPS


def test_the_page_holds_words_and_weights() -> None:
    given_record = record_page()
    (sentence,) = groups(maps.attention_page([given_record])[0])
    (drawing,) = sentence["drawings"]
    (block,) = drawing["blocks"]
    assert block["rows"] == block["columns"] == ["w0", "w1", "w2"]
    assert block["rowMeans"] == "producing"
    weights = unpack(block["layers"][0]["data"]).reshape(block["layers"][0]["shape"])
    close(weights, *given_record.maps.values())


def test_nothing_in_the_page_asks_for_anything_else() -> None:
    text, _ = maps.attention_page([record_page(words=HOSTILE)])
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    script = re.findall(r"<script>(.*?)</script>", text, re.S)
    assert len(script) == 1
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    own = text.replace("http://www.w3.org/2000/svg", "").replace("url(#", "")  # a part of the page
    assert not re.search(r"https?://|src=\"|@import|url\(", own)


def test_hostile_words_end_no_element() -> None:
    text, _ = maps.attention_page([record_page(words=HOSTILE)])
    assert text.count("</script>") == 3
    assert "<img" not in text
    assert "\u2028" not in text
    (sentence,) = groups(text)
    (block,) = sentence["drawings"][0]["blocks"]
    assert block["rows"][0] == HOSTILE[0]
    assert block["rows"][3:5] == ["a⟨U+000A⟩b", "⟨U+D800⟩"]


def test_many_sentences_are_bounded_and_counted(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(maps, "MOST_SENTENCES", 5)
    path, records = tmp_path / "a.html", [record_page()] * 7
    assert maps.save_html(records, path) == ["2 of 7 sentences omitted from the page"]
    text = path.read_text("utf-8")
    assert text == maps.attention_page(records)[0]
    assert len(groups(text)) == len(cover(text)["groups"]) == 5
    assert cover(text)["leftOut"] == 2


def test_bytes_are_bounded_too(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(maps, "MOST_BYTES", 1000)
    text, _ = maps.attention_page([record_page(10)] * 9)
    shown = len(groups(text))
    assert 1 <= shown < 9
    assert shown + cover(text)["leftOut"] == 9


def test_long_sentences_lose_heads_first_then_words() -> None:
    (whole,), notes = maps.shorten(record_page(64, heads=8))
    assert not notes
    assert whole.layers[0].shape == (8, 64, 64)
    (means,), notes = maps.shorten(record_page(200, heads=30))
    assert means.layers[0].shape == (1, 200, 200)
    assert "only the mean" in notes[0]
    long = record_page(600, heads=1)
    (tiles,), notes = maps.shorten(long)
    assert tiles.layers[0].shape == (1, 200, 200)
    assert "largest weight of 3 × 3" in notes[-1]
    assert tiles.rows[1] == "w3 … w5"
    (weights,) = long.maps.values()
    assert tiles.layers[0].array[0, 7, 9] == weights[0, 21:24, 27:30].max()


def test_kinds_are_computed_of_several_heads_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    (several,), _ = maps.shorten(record_page(8, heads=2))
    assert [len(heads) for heads in several.kinds] == [2]
    monkeypatch.setattr(maps, "kinds_of", lambda _: pytest.fail("one head is not compared"))
    (single,), _ = maps.shorten(record_page(8, heads=1))
    assert single.kinds == []


def test_pooling_keeps_the_largest_at_a_ragged_edge() -> None:
    weights = np.arange(25, dtype=np.float32).reshape(1, 5, 5)
    np.testing.assert_array_equal(maps.pool(weights, 2)[0], [[6, 8, 9], [16, 18, 19], [21, 23, 24]])


def test_wrong_uses_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must be a \.html file"):
        maps.save_html([record_page()], tmp_path / "a.png")
    with pytest.raises(ValueError, match="at least one record"):
        maps.attention_page([])
    with pytest.raises(ValueError, match="has no attention to show"):
        maps.attention_page([record_page(), AttentionRecord({}, {}, {})])
