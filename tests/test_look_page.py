"""What goes into the page: the right numbers, nothing that acts, and no more than it can hold."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

from foveate.draw import maps
from foveate.draw.parts import STEPS
from foveate.inspect.records import AttentionRecord
from tolerances import close

HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "<!--",
    "\u2028",
    "a\nb",
    "\ud800",
    "😀",
    "مرحبا",
]


def record(size: int = 3, heads: int = 2, words: list[str] | None = None) -> AttentionRecord:
    labels = words or [f"w{i}" for i in range(size)]
    weights = np.random.default_rng(0).dirichlet(np.ones(len(labels)), (heads, len(labels)))
    return AttentionRecord(
        {"decoder.layers.0.cross_attention": weights.astype(np.float32)},
        {"": labels},
        {"": labels},
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
    given_record = record()
    (sentence,) = groups(maps.attention_page([given_record]).text)
    (drawing,) = sentence["drawings"]
    (block,) = drawing["blocks"]
    assert block["rows"] == block["columns"] == ["w0", "w1", "w2"]
    assert block["rowMeans"] == "producing"
    weights = unpack(block["layers"][0]["data"]).reshape(block["layers"][0]["shape"])
    close(weights, *given_record.maps.values())


def test_nothing_in_the_page_asks_for_anything_else() -> None:
    text = maps.attention_page([record(words=HOSTILE)]).text
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
    text = maps.attention_page([record(words=HOSTILE)]).text
    assert text.count("</script>") == 3
    assert "<img" not in text
    assert "\u2028" not in text
    (sentence,) = groups(text)
    (block,) = sentence["drawings"][0]["blocks"]
    assert block["rows"][0] == HOSTILE[0]
    assert block["rows"][3:5] == ["a⟨U+000A⟩b", "⟨U+D800⟩"]


def test_many_sentences_are_bounded_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    report = maps.save_html([record()] * 7, path, max_sentences=5)
    assert (report.num_sentences, report.num_left_out) == (5, 2)
    assert report.notes == ["2 of 7 sentences left out of the page"]
    text = path.read_text("utf-8")
    assert text == report.text
    assert len(groups(text)) == len(cover(text)["groups"]) == 5
    assert cover(text)["leftOut"] == 2


def test_bytes_are_bounded_too(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(maps, "MOST_BYTES", 1000)
    report = maps.save_html([record(10)] * 9, tmp_path / "a.html")
    assert 1 <= report.num_sentences < 9
    assert report.num_sentences + report.num_left_out == 9


def test_long_sentences_lose_heads_first_then_words() -> None:
    (whole,), notes = maps.shorten(record(64, heads=8))
    assert not notes
    assert whole.layers[0].shape == (8, 64, 64)
    (means,), notes = maps.shorten(record(200, heads=30))
    assert means.layers[0].shape == (1, 200, 200)
    assert "only the mean" in notes[0]
    long = record(600, heads=1)
    (tiles,), notes = maps.shorten(long)
    assert tiles.layers[0].shape == (1, 200, 200)
    assert "largest weight of 3 × 3" in notes[-1]
    assert tiles.rows[1] == "w3 … w5"
    (weights,) = long.maps.values()
    assert tiles.layers[0].array[0, 7, 9] == weights[0, 21:24, 27:30].max()


def test_pooling_keeps_the_largest_at_a_ragged_edge() -> None:
    weights = np.arange(25, dtype=np.float32).reshape(1, 5, 5)
    np.testing.assert_array_equal(maps.pool(weights, 2)[0], [[6, 8, 9], [16, 18, 19], [21, 23, 24]])


def test_wrong_uses_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"end the name so"):
        maps.save_html([record()], tmp_path / "a.png")
    with pytest.raises(ValueError, match="at least one record"):
        maps.attention_page([])
    with pytest.raises(ValueError, match="has no attention to show"):
        maps.attention_page([record(), AttentionRecord({}, {}, {})])
