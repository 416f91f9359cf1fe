"""Pictures and pages show numpy's numbers, under the right words, and nothing that acts."""

import base64
import hashlib
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from foveate.look.draw import colors, maps
from foveate.look.draw.maps import attention, heads
from foveate.look.records import AttentionRecord
from tolerances import ROW, close

SOURCE, TARGET = ["the", "red", "car", "</s>"], ["la", "voiture", "rouge", "</s>"]


@pytest.fixture
def record() -> AttentionRecord:
    rng = np.random.default_rng(0)
    weights = (rng.dirichlet(np.ones(4) * 0.4, (2, 4)).astype(np.float32) for _ in range(2))
    maps = {f"decoder.layers.{n}.cross_attention": each for n, each in enumerate(weights)}
    return AttentionRecord(maps, {"": TARGET}, {"": SOURCE}, title="the red car")


@pytest.mark.parametrize("scale", ["row", "absolute"])
def test_painted_pixels_are_the_colors_of_the_weights(record: AttentionRecord, scale: str) -> None:
    view, file = attention(record, head=0, scale=scale), io.BytesIO()
    figure = view.figure()
    figure.set_dpi(100)
    figure.savefig(file, format="png", dpi=100)
    pixels = imread(io.BytesIO(file.getvalue()))
    expected = colors.table()[colors.indices(colors.scale(scale).levels(view.array))]
    for t, s in np.ndindex(view.array.shape):
        x, y = figure.axes[0].transData.transform((s + 0.5, t + 0.5))
        seen = pixels[int(pixels.shape[0] - y), int(x), :3] * 255
        np.testing.assert_allclose(seen, expected[t, s], atol=3)


def test_words_stand_at_their_rows_and_columns(record: AttentionRecord) -> None:
    maps = list(record.maps.values())
    np.testing.assert_array_equal(attention(record, layer=0, head=1).array, maps[0][1])
    view = attention(record)
    close(view.array, maps[1].mean(0), terms=ROW)
    assert "layer 1 (2 layers, from 0) · mean of 2 heads" in view.caption
    ax = view.figure().axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == TARGET
    assert [label.get_text() for label in ax.get_xticklabels()] == SOURCE
    assert list(ax.get_yticks()) == [0.5, 1.5, 2.5, 3.5]
    top, bottom = ax.transData.transform([(0, 0.5), (0, 3.5)])[:, 1]
    assert top > bottom  # the first word that was produced stands on top
    assert ax.xaxis.get_ticks_position() == "top" and ax.get_ylabel() == "writes"
    weights = np.full((1, 300, 200), 1 / 200, np.float32)
    long = attention(AttentionRecord({"cross_attention": weights}, {}, {}))
    ax = long.figure().axes[0]
    assert max(ax.figure.get_size_inches()) < 20 and len(ax.get_yticks()) <= 64
    assert long.rows[299] == "299"


def test_masked_cells_are_not_painted() -> None:
    causal = np.tril(np.full((1, 3, 3), 0.3, np.float32))
    record = AttentionRecord({"decoder.self_attention": causal}, {}, {})
    mesh = attention(record, "decoder.self_attention").figure().axes[0].collections[0]
    painted = np.ma.getmaskarray(mesh.get_array())
    np.testing.assert_array_equal(painted, causal[0] == 0)


def test_hostile_words_are_drawn_as_they_are(tmp_path: Path) -> None:
    view = attention(record_page(words=HOSTILE))
    for ending in ("png", "svg", "json", "html", "txt", "npz"):
        view.save(tmp_path / f"a.{ending}")
    svg = (tmp_path / "a.svg").read_text("utf-8")
    assert "<script" not in svg and "$x^{" in svg
    assert json.loads((tmp_path / "a.json").read_text("utf-8"))["rows"] == HOSTILE


def test_drawing_disturbs_nothing(record: AttentionRecord, tmp_path: Path) -> None:
    before, known = dict(matplotlib.rcParams), set(sys.modules)
    ax = Figure().add_subplot()
    attention(record).fill(ax)
    for ending in ("png", "svg", "pdf"):
        attention(record).save(tmp_path / f"a.{ending}")
    assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in set(sys.modules) - known


def test_saved_forms_hold_the_numbers_and_words(record: AttentionRecord, tmp_path: Path) -> None:
    view = attention(record, head=0)
    json_file, npz, svg = (view.save(tmp_path / f"map.{e}") for e in ("json", "npz", "svg"))
    listed = json.loads(json_file.read_text("utf-8"))
    np.testing.assert_array_equal(np.float32(listed["weights"]), view.array)
    assert (listed["rows"], listed["columns"]) == (TARGET, SOURCE)
    with np.load(npz) as stored:
        np.testing.assert_array_equal(stored["weights"], view.array)
        assert stored["rows"].tolist() == TARGET
    text = svg.read_text("utf-8")
    for word in ("voiture", "red", "&lt;/s&gt;"):
        assert re.search(rf">\s*{word}\s*</text>", text)
    assert text.count("<path") < 100  # the cells are one picture, not a path each
    assert {*tmp_path.iterdir()} == {json_file, npz, svg}


def test_other_endings_name_the_valid_ones(record: AttentionRecord, tmp_path: Path) -> None:
    view, endings = attention(record), r"\.png, \.svg, \.pdf, \.webp, \.html, \.json, \.npz, \.txt"
    with pytest.raises(ValueError, match=endings):
        view.save(tmp_path / "a.gif")
    with pytest.raises(ValueError, match="without ending"):
        view.save(tmp_path / "a")
    with pytest.raises(FileNotFoundError, match="make it first"):
        view.save(tmp_path / "missing" / "a.txt")
    with pytest.raises(ValueError, match="row, absolute"):
        attention(record, scale="log")


def test_a_notebook_gets_a_frame_a_picture_and_a_text(record: AttentionRecord) -> None:
    bundle = attention(record)._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "image/png", "text/html"}
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    assert bundle["text/html"].startswith("<iframe srcdoc=")
    assert "<script" not in bundle["text/html"]  # all of the page is within the attribute
    assert "voiture" in bundle["text/plain"]
    assert "\x1b" not in bundle["text/plain"]


def test_heads_are_drawn_layer_by_layer(record: AttentionRecord) -> None:
    view = heads(record)
    many = AttentionRecord({"cross_attention": np.full((64, 2, 2), 0.5, np.float32)}, {}, {})
    assert max(map(len, heads(many).text(80).splitlines()[65:])) <= 80
    axes = view.figure().axes
    seen = np.array(axes[3].collections[0].get_array())
    expected = colors.scale("absolute").levels(record.maps["decoder.layers.1.cross_attention"][1])
    close(seen, expected)
    assert [ax.get_ylabel() for ax in axes] == ["layer 0", "", "layer 1", ""]
    kinds = [kind for heads in view.kinds.values() for kind in heads]
    assert [line.split("  ")[-1] for line in view.text().split("\n")[1:5]] == kinds
    assert [ax.get_xlabel() for ax in axes] == [k.replace("no pattern", "") for k in kinds]
    words = [[label.get_text() for label in ax.get_xticklabels()] for ax in axes]
    assert words == [SOURCE, SOURCE, [], []]  # above the first layer
    assert [label.get_text() for label in axes[2].get_yticklabels()] == TARGET
    assert view.drawings()[0].blocks[0].kinds == list(view.kinds.values())


# ---- What goes into the page: the right numbers, nothing that acts, and no more than it can hold
HOSTILE = ["</script><img src=x onerror=alert(1)>", "<!--", "\u2028", "a\nb", "\ud800", "😀"]
HOSTILE += ["مرحبا", "$x^{", "</text><script>", "日本", "\u202e", ""]


def record_page(size: int = 3, heads: int = 2, words: list[str] | None = None) -> AttentionRecord:
    labels = words or [f"w{i}" for i in range(size)]
    weights = np.random.default_rng(0).dirichlet(np.ones(len(labels)), (heads, len(labels)))
    return AttentionRecord(
        {"decoder.layers.0.cross_attention": weights.astype(np.float32)}, {"": labels}, {"": labels}
    )


def parts(text: str, opening: str) -> list[Any]:
    """The JSON within the scripts of a page that open so."""
    found = re.findall(rf'<script {opening} type="application/json">(.*?)</script>', text, re.S)
    return [json.loads(part) for part in found]


def test_nothing_in_the_page_asks_for_anything_else_and_words_end_no_element() -> None:
    text = maps.attention_page([record_page(words=HOSTILE)] * 7)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    [script] = re.findall(r"<script>(.*?)</script>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    own = text.replace("http://www.w3.org/2000/svg", "").replace("url(#", "")  # a part of the page
    assert not re.search(r"https?://|src=\"|@import|url\(", own)
    assert text.count("</script>") == 2 + 7 and "<img" not in text and "\u2028" not in text
    [cover], groups = parts(text, 'id="page"'), parts(text, 'class="group"')
    assert len(groups) == len(cover["groups"]) == 7
    rows = groups[0]["drawings"][0]["blocks"][0]["rows"]
    assert rows[0] == HOSTILE[0] and rows[3:5] == ["a⟨U+000A⟩b", "⟨U+D800⟩"]


def test_long_sentences_lose_heads_first_then_words() -> None:
    long = record_page(600, heads=1)
    records = record_page(64, heads=8), record_page(200, heads=30), long
    ((whole,), none), ((means,), few), ((tiles,), notes) = map(maps.shorten, records)
    shapes = [block.layers[0].shape for block in (whole, means, tiles)]
    assert shapes == [(8, 64, 64), (1, 200, 200), (1, 200, 200)]
    assert not none and "only the mean" in few[0] and "largest weight of 3 × 3" in notes[-1]
    assert tiles.rows[1] == "w3 … w5"
    (weights,) = long.maps.values()
    assert tiles.layers[0].array[0, 7, 9] == weights[0, 21:24, 27:30].max()
    weights = np.arange(25, dtype=np.float32).reshape(1, 5, 5)  # with a ragged edge
    np.testing.assert_array_equal(maps.pool(weights, 2)[0], [[6, 8, 9], [16, 18, 19], [21, 23, 24]])
    assert [len(heads) for heads in whole.kinds] == [8] and tiles.kinds == []  # one is not compared
