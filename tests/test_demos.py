"""Demos: every one is whole, draws in every form, and shows the numbers that it is known for."""

import json
import math
import re
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from scipy.special import softmax
from typer.testing import CliRunner

import small_trainings
from foveate.cli import app
from foveate.config import ConfigError
from foveate.look.draw.kinds import groups_of
from foveate.look.draw.scene import HIGH, WIDE, SceneDrawing
from foveate.look.draw.sheets import SheetDrawing
from foveate.look.views.demos import DEMOS, DemoEntry, find, trained
from foveate.look.views.demos.formulas import SCORES
from foveate.look.views.demos.layer import Part
from foveate.look.views.demos.text import LINEAGE

ROOT = Path(__file__).parent.parent
SMALL = {"vanishing": {"length": 8}, "memory": {"length": 16}, "paths": {"length": 16}}
close = np.testing.assert_allclose
PICTURES = "beam", "lookup", "quadratic", "paths", "rnn"  # one of each class of drawings


def draw(name: str, **values: Any) -> Any:
    """What a demo draws with some options."""
    return find(name).draw(values)


def sheets(name: str, **values: object) -> list[SheetDrawing]:
    return draw(name, **values).sheets


@pytest.mark.parametrize("entry", DEMOS.values(), ids=lambda entry: entry.name)
def test_a_demo_is_whole_and_draws_in_every_form(entry: DemoEntry, tmp_path: Path) -> None:
    assert entry.summary.endswith(".") and len(entry.summary) <= 64
    assert all(field.description for field in entry.options.model_fields.values())
    drawn = entry.draw(SMALL.get(entry.name))
    assert drawn.title and drawn.caption.endswith(".")
    assert "\\n" not in drawn.drawings()[-1].model_dump_json(include={"caption", "title"})
    text = drawn.text(80, color=False)
    assert max(map(len, text.splitlines())) <= 80
    assert "".join(drawn.caption.split()) in "".join(text.split())
    for form in ("json", "npz", *(("svg", "html") if entry.name in PICTURES else ())):
        assert drawn.save(tmp_path / f"demo.{form}").stat().st_size > 100


def test_greedy_finds_048_where_two_beams_find_054(tmp_path: Path) -> None:
    drawn = draw("beam")
    assert drawn.title == "Greedy: A B C end, p = 0.048; beam of 2: A C B end, p = 0.054"
    ended = drawn.arrays()["score"][drawn.arrays()["state"] == "done"]
    assert ended == pytest.approx([0.054, 0.048])
    assert "[end: ×.6 =] .054■  end: ×.6 = .048■" in drawn.text()
    marked = [node.text for step in drawn.steps for node in step if node.id in drawn.greedy]
    assert marked == ["A", "B: ×.4 =", "C: ×.4 =", "end: ×.6 ="]
    assert "beam of 3: A end, p = 0.1" in draw("beam", beam_size=3).title
    longer = draw("beam", beam_size=3, length_penalty=1.0)
    assert "beam of 3: A C B end" in longer.title


def test_numbers_of_the_lectures() -> None:
    words = draw("chain")
    said = [node.texts for node in words.nodes if node.name.endswith(" 0")]
    assert [float(p) for _, p in said] == [0.01, 0.02, 0.35, 0.29, 0.005, 0.06, 0.01]
    assert words.title == "p of the sentence: 6.1e-11"
    peaks = {name: rates.max() for name, rates in draw("noam").arrays().items()}
    named = "512, warmup 4000: highest\xa00.00070", "512, warmup 8000: highest\xa00.00049"
    assert [*peaks][1:3] == [f"d = {name}" for name in named]
    close([*peaks.values()][1:], [0.00070, 0.00049, 0.00099], atol=5e-6)
    drawn = draw("permutation")
    names = [f"network 0 {name}" for name in ("X", "f(X)", "P f(X)", "P X", "= f(P X)")]
    rows = [[written(drawn, f"{name} {k}") for k in range(4)] for name in names]
    assert rows == [[1, 2, 3, 4], [6, 7, 8, 9], [9, 8, 7, 6], [4, 3, 2, 1], [9, 8, 7, 6]]
    signs = [node.label[0] for node in drawn.nodes if "f(P X) head" in node.name]
    assert signs == ["=", "≠", "≠", "="]
    [counts] = sheets("bag")
    assert counts.columns == [",", "bananas", "for", "have", "no", "say", "we", "yes"]
    expected = ["101", "111", "010", "100", "101", "011", "101", "110"]
    assert ["".join(column) for column in zip(*counts.cells[:3], strict=True)] == expected
    assert counts.cells[2] == counts.cells[3] and counts.rows[2] != counts.rows[3]
    assert [frame[0] for frame in counts.outlines] == [2, 3]  # another order, the same counts


def test_a_lookup_mixes_and_picks() -> None:
    drawn = draw("lookup", blend=0.0, temperature=[1.0, 0.01])
    assert [stop.name for stop in drawn.stops] == ["softmax", "softmax, τ = 0.01", "hardmax"]
    alphas = np.array([[written(drawn, f"α {n} {k}") for k in range(4)] for n in range(3)])
    close(alphas.sum(axis=1), 1, atol=0.011)
    close(alphas[1:], [[0, 1, 0, 0]] * 2)
    means = [written(drawn, f"c {n} 0") for n in range(3)]
    close(means, alphas @ [10, 20, 30, 40], atol=0.3)
    weights = [edge.weight for edge in drawn.edges if edge.name.endswith("to c 2 0")]
    assert weights == [1]  # a value without weight has no line
    drawn = draw("lookup", pages=True)
    texts = {node.name: node.texts for node in drawn.nodes}
    assert [stop.name for stop in drawn.stops] == ["hardmax"]
    assert texts["c 0 0"] == texts["v 0 1"] == ["18 °C", "rain"]


def written(drawn: SceneDrawing, name: str) -> float:
    *_, text = next(node.texts for node in drawn.nodes if node.name == name)
    return float(text.replace("−", "-").replace("∞", "inf") or 0)


def board(**values: object) -> list[list[np.ndarray]]:
    """The matrices of each line on the board of `block`, as their boxes say."""
    drawn, lines = draw("block", **values), dict[int, dict[int, dict[int, list[float]]]]()
    for node in drawn.nodes:
        if place := re.fullmatch(r"line (\d) (\d) (\d) (\d)", node.name):
            line, piece, row, _ = map(int, place.groups())
            rows = lines.setdefault(line, {}).setdefault(piece, {})
            rows.setdefault(row, []).append(written(drawn, node.name))
    return [[np.array([*rows.values()]) for rows in line.values()] for line in lines.values()]


def test_a_layer_in_small_numbers_is_the_one_that_the_matrices_give() -> None:
    (x, _, by_row), (_, _, by_column) = board(part="norm")
    close(by_row, (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True), atol=0.006)
    close(by_column, (x - x.mean(0)) / x.std(0), atol=0.006)
    normal = np.vectorize(lambda v: 0.5 * (1 + math.erf(v / 2**0.5)))
    for kind, f in (("relu", lambda z: z.clip(min=0)), ("gelu", lambda z: z * normal(z))):
        (x, inner, b_1, z), (a, outer, b_2, y) = board(activation=kind)
        close(z, x @ inner + b_1, atol=0.006)
        close(a, f(z), atol=0.01)
        close(y, a @ outer + b_2, atol=0.06)
    (changed, dropped), (x, _, total) = board(part="dropout")
    assert {*np.round(dropped[changed != 0] / changed[changed != 0], 3).tolist()} == {0, 2}
    close(total - dropped, x, atol=1e-6)


def test_a_second_layer_has_its_own_weights() -> None:
    first, second = board(part="layers")
    for x, weight, bias, z in (first, second):
        close(z, x @ weight + bias, atol=0.03)
    assert (first[1] != second[1]).any()
    np.testing.assert_array_equal(first[0], second[0])


@pytest.mark.parametrize("part", ["attention", "mean"])
def test_steps_of_attention_can_be_computed_again_from_what_is_written(part: str) -> None:
    (states, state, score, _), (weights, _, mean, *joined) = board(part=part)
    close(score, states @ state)
    close(weights.T, softmax(score), atol=0.006)
    close(mean, softmax(score).T @ states, atol=0.006)
    assert len(joined) == (part == "attention")
    for both in joined:
        close(both[:, 2:], state.T)


def test_a_mask_and_the_weights_that_are_left() -> None:
    (score, _, masked), (power, total, weights) = board(part="mask")
    later = np.triu(np.ones((3, 3), bool), 1)
    np.testing.assert_array_equal(masked, np.where(later, -np.inf, score))
    close(weights, softmax(masked, axis=1), atol=0.01)
    close(power, np.exp(masked), rtol=0.02, atol=0.006)
    close(power.sum(1, keepdims=True), total, atol=0.02)
    (q, k, e), (a, v, c) = board(part="line")
    close(e, q @ k / 2**0.5, atol=0.006)
    close(a, softmax(e, axis=1), atol=0.01)
    close(c, a @ v, atol=0.03)


def test_a_causal_mask_is_not_equivariant() -> None:
    lines = board(part="causal")
    for x, alpha, read, y in lines:
        assert not np.triu(alpha, 1).any()
        close(alpha.sum(axis=1), 1, atol=0.011)
        close(y, x + alpha @ read, atol=0.03)
    (*_, first), (*_, second) = lines
    assert np.abs(first - second[::-1]).max() > 0.1


@pytest.mark.parametrize("part", get_args(Part))
def test_a_part_of_a_layer_opens_on_all_of_it_within_the_picture(part: str) -> None:
    drawn = draw("block", part=part)
    for node in drawn.nodes:
        x, y, wide, high = node.box
        assert x >= 0 and y >= 0 and x + wide <= WIDE + 0.01 and y + high <= HIGH + 0.01, node.name
    assert [stop.lit for stop in drawn.stops] == [[]]


def arcs(name: str, panel: str) -> dict[tuple[int, int], tuple[float, int | None]]:
    """Weight and colour of the arcs of one panel, by output and input."""
    found = [e for e in draw(name).edges if e.name.startswith(f"{panel} out ")]
    places = [[int(k) for k in re.findall(r"\d+", each.name.removeprefix(panel))] for each in found]
    return {(t, s): (e.weight, e.hue) for (t, s), e in zip(places, found, strict=True)}


def test_scores_have_one_colour_scale_a_row_and_a_plain_cosine() -> None:
    drawn = sheets("scores")
    ends = [(each.least, each.most) for each in drawn]
    assert len({*ends[:3]}) == len({*ends[3:]}) == 1
    assert np.nanmax(np.abs(drawn[0].values.array)) <= 1 + 1e-6  # of the cosine
    listed = draw("scores", of="table")
    listed.rows[-1] = [cell.strip("[]") for cell in listed.rows[-1]]
    titles = [f"{name}: {formula}" for name, formula, *_ in listed.rows]
    assert [each.title for each in drawn] == titles
    assert [row[0] for row in listed.rows] == [*SCORES]
    scores, outputs = draw("quadratic").panels
    (output, own), (_, score) = ([curve.y for curve in each.curves] for each in (outputs, scores))
    bends = [np.abs(np.diff(y, 2)).max() for y in (output, own, score)]
    assert bends[0] < 1e-12 < 1e-3 < min(bends[1:])  # outputs are a line, scores a parabola
    assert np.abs(np.diff(score, 3)).max() < 1e-12


def test_layers_outputs_and_heads_of_an_unrolled_network() -> None:
    def row(name: str, **values: object) -> list[float]:
        drawn = draw("rnn", **values)
        return [written(drawn, f"{name} {step}") for step in range(1, 6)]

    states = row("h_t")
    made: dict[str, object] = {"c": 0.5, "output": "sigmoid", "head": 3.0}
    outputs = [1 / (1 + math.exp(-(2 * h + 0.5))) for h in states]
    assert row("o_t", **made) == pytest.approx(outputs, abs=8e-3)
    assert row("y_t", **made) == pytest.approx([3 * o for o in outputs], abs=0.02)
    stacked: dict[str, object] = {"w": [1.5, 1.0], "u": [0.8, 0.5]}
    assert row("h_t^{(1)}", **stacked) == states
    above = row("h_t^{(2)}", **stacked)
    assert above[1] == pytest.approx(math.tanh(states[1] + 0.5 * above[0]), abs=8e-3)
    with pytest.raises(ValueError, match="2 --w but 1 --u"):
        draw("rnn", w=[1, 2])


def test_links_by_em_are_hard_and_tables_show_both_ways_through_a_beam() -> None:
    drawn = draw("em", hard=True)
    texts = {node.name: node.texts for node in drawn.nodes}
    links = {f"{texts[f][0]} {texts[e][0]}": edge.hue for edge in drawn.edges
             for f, e in [edge.name.split(" to ")]}  # fmt: skip
    chosen = {link for link, hue in links.items() if hue is not None}
    assert chosen == {"das the", "Haus house", "Buch book"}
    first, *_, last = sheets("em", iterations=30)
    assert (first.title, last.title) == ("iteration 0", "iteration 30")
    close(np.nansum(last.values.array, axis=1), 1, atol=1e-6)
    best = dict(zip(last.rows, np.nanargmax(last.values.array, axis=1), strict=True))
    linked = {f"{last.columns[best[e]]} {e}" for e in ("the", "house", "book", "a")}
    assert linked == {*chosen, "ein a"}
    paths = draw("beam", tables=True)
    for kind, p in (("greedy", 0.048), ("beam of 2", 0.054)):
        rows = [[n for n in paths.nodes if n.name.startswith(f"{kind} {t} ")] for t in range(4)]
        taken = [float(n.label.split()[1]) for row in rows for n in row if n.form == "box"]
        assert math.prod(taken) == pytest.approx(p) and len(taken) == 4
        every = [[float(n.label.split()[1]) for n in row] for row in rows]
        close(np.sum(every, axis=1), 1)


def test_what_is_predicted_is_what_comes_next() -> None:
    drawn, larger = (draw("targets", size=size) for size in (4, 6))
    pair, table = (draw("targets", of=of) for of in ("pair", "table"))
    rows = [[texts_of(drawn, f"{name} {n} ") for n in range(3)] for name in ("block", "predicted")]
    for read, predicted in zip(*rows, strict=True):
        assert read[1:] == predicted[:-1] and read[0].startswith(("u_{1} ", "u_{5} ", "u_{9} "))
    assert [row[-1] for row in rows[1][:-1]] == [row[0] for row in rows[0][1:]]  # of the next block
    lines = {tuple(map(int, edge.name.split()[-2:])) for edge in drawn.edges}
    assert lines == {(n, s) for n in range(3) for s in range(4)}  # of one word in each block
    assert texts_of(pair, "decoder reads ")[1:] == texts_of(pair, "predicted ")[:-1]
    assert not any("encoder out" in edge.name for edge in pair.edges)
    assert texts_of(table, "value ")[1:] == texts_of(table, "next value ")[:-1]
    blocks = [n.label for n in larger.nodes if n.label.startswith("block")]
    assert blocks == ["block 1", "block 2", "block 1 is not read"]


def texts_of(drawn: SceneDrawing, start: str) -> list[str]:
    """The texts of the boxes whose names begin so, and end in a number."""
    names = {node.name: node.texts for node in drawn.nodes if node.form in ("box", "word")}
    return [texts[0] for name, texts in names.items() if name.removeprefix(start).isdigit()]


def edges_of(drawn: SceneDrawing) -> dict[str, list[tuple[float, float]]]:
    return {edge.name: edge.points for edge in drawn.edges}


def test_a_product_of_rotated_vectors_depends_on_their_distance() -> None:
    drawn = draw("rotary")
    products = [node.detail[-1] for node in drawn.nodes if node.detail]
    assert products[0] == products[1] != products[2] == products[3]
    pairs = [[np.diff(edges_of(drawn)[f"{n} {t}"], axis=0)[0] for n in "qk"] for t in range(1, 5)]
    between = [np.arccos(q @ k / np.hypot(*q) / np.hypot(*k)) for q, k in pairs]
    close(between[::2], between[1::2], rtol=1e-3)
    turned = [q.round(3).tolist() for q, _ in pairs]
    assert turned[0] == turned[2] != turned[1] == turned[3]  # it depends on t alone


def test_waves_over_the_positions_and_alibi_that_falls_with_the_distance() -> None:
    vectors, alike = (each.values.array for each in sheets("sinusoids"))
    close(vectors[:, ::2] ** 2 + vectors[:, 1::2] ** 2, 1, atol=1e-5)
    close(np.diagonal(alike), 1, atol=1e-5)
    second = sheets("sinusoids", hidden_size=4)[0].values.array[1].reshape(2, 2).T
    close(second, [np.sin([1, 0.01]), np.cos([1, 0.01])])
    [x, wave] = draw("sinusoids", waves=[4], length=30).arrays().values()
    drawn = ~np.isnan(wave)
    alone = drawn & ~np.append(drawn[1:], False) & ~np.insert(drawn[:-1], 0, False)  # points
    np.testing.assert_array_equal(x[alone], [0, 1, 30])
    close(wave[drawn], np.sin(x / 10_000 ** (8 / 64))[drawn], atol=1e-9)
    with pytest.raises(ValueError, match="sine 32 does not exist"):
        draw("sinusoids", waves=[32])
    drawn = draw("alibi", text="a b c d e", num_heads=2)
    for head, slope in enumerate((2, 4)):  # of eight heads, as in the paper
        added = [written(drawn, f"head {head} {k}") for k in range(5)]
        close(added, -np.arange(5)[::-1] / slope, atol=0.006)


def test_angles_slopes_smoothing_and_averages() -> None:
    soft, hard = [*draw("normalizers", choice=True).arrays().values()][1:]
    assert (np.diff(soft) > 0).all() and {*hard.tolist()} <= {0, 0.5, 1}
    drawn = draw("angle", degrees=[0, 60, 180], length=2)
    for number, (theta, score) in enumerate(((0, "2.00"), (60, "1.00"), (180, "−2.00")), start=1):
        q, k = (np.diff(edges_of(drawn)[f"{name} {number}"], axis=0)[0] for name in "qk")
        assert np.hypot(*k) == pytest.approx(2 * np.hypot(*q))
        cosine = q @ k / np.hypot(*q) / np.hypot(*k)
        assert cosine == pytest.approx(math.cos(math.radians(theta)))
        assert any(node.detail[-1:] == [f"q · k = {score}"] for node in drawn.nodes)
    shapes = draw("activations").arrays()
    x, names = shapes["f(x): x"], ("sigmoid", "tanh", "ReLU", "GELU")
    slopes = {name: np.gradient(shapes[f"f(x): {name}"], x) for name in names}
    for name in names:
        far = np.abs(x) > 0.1 if name == "ReLU" else slice(None)  # from its corner
        close(slopes[name][far], shapes[f"slope: {name}"][far], atol=0.01)
    assert shapes["slope: sigmoid"].max() == pytest.approx(0.25)
    hot, smooth = [*draw("smoothing").arrays().values()][1:]
    close(hot, [0, 0, 1, 0, 0], atol=1e-6)
    close(smooth, 0.9 * hot + 0.1 / 5, atol=1e-6)
    *each, mean = draw("averaging").arrays()["loss"]
    assert len(each) == 8 and 0 < mean < min(each)


def pixels_of(drawn: SceneDrawing, name: str, high: int, wide: int) -> np.ndarray:
    levels = {node.name: node.level for node in drawn.nodes if node.form == "pixel"}
    rows = [[levels[f"{name} {row} {column}"] for column in range(wide)] for row in range(high)]
    return np.array(rows)


def test_pictures_are_read_as_patches_and_glimpses() -> None:
    drawn = draw("pixels", part="glimpses")
    picture = pixels_of(drawn, "picture", 16, 16)
    near, far = (pixels_of(drawn, f"glimpse {k}", 4, 4) for k in (0, 2))
    close(near, picture[6:10, 6:10], atol=1e-6)
    close(far, picture.reshape(4, 4, 4, 4).mean((1, 3)), atol=1e-6)
    cut = draw("pixels")
    for k in range(16):
        corner = picture[k // 4 * 4 :, k % 4 * 4 :][:4, :4]
        close(pixels_of(cut, f"patch {k}", 4, 4), corner)
    close(pixels_of(cut, "row", 1, 16), picture[4:8, 4:8].reshape(1, 16))
    frame, patch = (next(n.box for n in cut.nodes if n.name == s) for s in ("patch", "patch 5 0 0"))
    assert frame[:2] == patch[:2] and len(texts_of(cut, "x ")) == 8


def test_without_attention_long_sentences_are_lost() -> None:
    drawn = draw("bottleneck")
    assert drawn.curves[0].name.startswith("one vector")
    without, *others = (np.asarray(curve.y) for curve in drawn.curves)
    assert without[0] > 3 * without[-1] and min(map(min, others)) > 93
    assert drawn.curves[0].name == "one vector: 44\xa0→\xa013"
    measured = json.loads((ROOT / "docs/results/lineage.json").read_text("utf-8"))
    shipped = json.loads(LINEAGE.read_text("utf-8"))
    here, there = (tree["chapters"]["Length of the source"]["BLEU"] for tree in (shipped, measured))
    close(without, here["no-attention"])
    equal = [name for name in there if not name.startswith("no-attention")]
    assert {name: here[name] for name in equal} == {name: there[name] for name in equal}
    assert "(no-attention: 4,000,000)" in shipped["terms"]["budget"]  # measured with its own run


near = partial(pytest.approx, abs=0.005)


def test_one_softmax_mixes_subject_and_object_and_two_heads_do_not() -> None:
    one = arcs("heads", "c = 0.50 man + 0.50 apple")
    two = arcs("heads", "c = [1.00 man; 1.00 apple]")
    assert {place: weight for place, (weight, _) in one.items()} == near({(0, 1): 0.5, (0, 4): 0.5})
    assert {place: weight for place, (weight, _) in two.items()} == near({(0, 1): 1, (1, 4): 1})
    assert [hue for _, hue in two.values()] == [0, 1]
    split = draw("heads", part="split")
    boxes = sorted((n for n in split.nodes if n.texts), key=lambda n: (n.box[1], n.box[0]))
    flat, halves, by_head = (
        [int(n.texts[0]) for n in boxes if n.name.startswith(f"{shape}, ")]
        for shape in ("3 × 4", "3 × 2 × 2", "2 × 3 × 2")
    )
    assert flat == halves == [*range(1, 13)]  # from above, from left to right
    assert by_head == np.arange(1, 13).reshape(3, 2, 2).swapaxes(0, 1).flatten().tolist()


def test_texts_of_the_same_words_are_one_set_to_attention() -> None:
    texts = "the sun rises", "rises the sun", "sun the rises"
    drawn = draw("bag", texts=texts)
    moved = [[written(drawn, f"{row} moved {k}") for row in (1, 2)] for k in range(3)]
    assert moved[0] == moved[1] == [0, 0] and min(moved[2]) > 0.1
    words = [{n.texts[0]: n.hue for n in drawn.nodes if n.name.startswith(f"{k} ")} for k in "01"]
    assert all(words[0][word] == words[1][word] for word in ("sun", "the"))


def test_families_charts_and_recurrence_are_chosen() -> None:
    drawn = draw("reach", text="a b c d e f", families=["seq2seq", "attention"])
    other = draw("reach", text="a b c d e f", families=["window"])
    far, near = ([*map(float, texts_of(drawn, f"{name} "))] for name in ("seq2seq", "attention"))
    windowed = [*map(float, texts_of(other, "window "))]
    assert far[0] < 0.1 < far[5] == 1.0 and near[0] > 0.5
    assert windowed[:2] == [0, 0] and min(windowed[2:]) > 0
    direct = [edge.name for edge in other.edges if edge.name.startswith("window")]
    assert direct == [f"window direct {s} 5" for s in range(2, 6)]
    left = texts_of(draw("reach", families=["elman"], query=3), "elman ")
    assert left[3:5] == ["1.00", "0"] and all(0 < float(text) < 1 for text in left[:3])
    text = {"text": "She closes the old window", "query": 2, "trained": True}
    drawn = draw("reach", families=["elman", "bi-attention"], **text)
    ahead = [texts_of(drawn, f"{name} ")[3] for name in ("elman", "bi-attention")]  # “old”
    assert ahead[0] == "0" and float(ahead[1]) > 0.4
    assert drawn.title.endswith(", trained; the largest is 1")
    assert drawn.caption.startswith("Influence of “old”: 0 in the RNN, 0.")
    with pytest.raises(ConfigError, match="no packaged bert: choose elman or bi-attention"):
        draw("reach", families=["bert"], **text)
    with pytest.raises(ConfigError, match="there are 2 words"):
        draw("reach", text="a b", query=2)
    drawn = draw("paths", length=16, of="steps")
    ready = [texts_of(drawn, f"{kind} 1 ") for kind in ("recurrent", "attention")]
    assert ready == [[*map(str, range(2, 10))], ["2"] * 8]
    assert "RNN ends at 9" in drawn.stops[0].caption
    away = draw("paths", length=16)
    assert texts_of(away, "recurrent ")[-1] == "6" and texts_of(away, "attention ")[-1] == "1"
    _, *costs = draw("paths", of="operations").arrays().values()
    recurrent, attention, projections = costs
    assert recurrent[32] == pytest.approx(attention[32], rel=0.01)  # at n = D
    np.testing.assert_array_equal(projections, 2 * recurrent)
    apart = draw("rnn", inputs=[1.0, 0.0, 1.0], u=[0.0])
    assert not any(" on" in edge.name for edge in apart.edges)
    hues = [node.hue for node in apart.nodes if node.name.startswith("h_t") and node.texts]
    assert hues == [0, 1, 0] and "Equal inputs, equal states" in apart.stops[0].caption


def test_masks_hide_the_future_and_fixed_weights_are_the_same_for_both_inputs() -> None:
    fixed, again, own, other = (
        arcs("weights", f"{kind}, {k} X") for kind in ("W", "W(X)") for k in ("first", "second")
    )
    assert fixed == again and own != other
    drawn = draw("masks", source="a b", target="A B C")
    names = [edge.name.rsplit(" ", 2) for edge in drawn.edges if edge.weight is not None]
    lines = {kind: {(int(t), int(s)) for each, s, t in names if each == kind} for kind, *_ in names}
    every = {(t, s) for t in range(5) for s in range(5)}
    assert lines["encoder 2"] == every
    assert lines["decoder 2"] == {(t, s) for t, s in every if s <= t < 2}  # x and y are
    assert lines["decoder 0"] == {(t, s) for t, s in every if s < 2 <= t}  # one sequence
    assert lines["decoder 3"] == {(t, s) for t, s in every if 2 <= s <= t}
    assert lines["encoder-decoder 2"] == {(t, s) for t, s in every if max(t, s) < 2}
    assert lines["encoder-decoder 3"] == {(t, s) for t, s in every if 2 <= s <= t}
    assert "encoder-decoder cross" in edges_of(drawn)  # from all h to all s
    assert texts_of(drawn, "encoder-decoder h ") == ["h_1", "h_2", "s_1", "s_2", "s_3"]
    free, causal = (arcs("leak", name) for name in ("without a mask", "with a causal mask"))
    assert {at for at, (_, hue) in free.items() if hue == 1} == {(t, t + 1) for t in range(3)}
    assert len(free) == 16 and all(s <= t for t, s in causal)


def test_what_training_computes_at_once_generation_computes_in_rows() -> None:
    drawn = draw("parallel", length=3)
    passes = {node.name: node.texts[1] for node in drawn.nodes if " o " in node.name}
    assert [*passes.values()] == ["pass 1"] * 3 + ["pass 1", "pass 2", "pass 3"]
    names = [edge.name for edge in drawn.edges if edge.name.startswith("generation")]
    read = [name[-3:] for name in names if " fed " not in name]
    assert read == ["0 0", "0 1", "1 1", "0 2", "1 2", "2 2"]
    difference = drawn.caption.split("difference")[1]
    assert float(difference.strip(" \n).")) < 1e-5


def test_curves_show_what_their_captions_say() -> None:
    norms = draw("residual").arrays()
    assert norms["plain, f(x)"][0] < 1e-6 < 1 < norms["residual, x + f(x)"][0]
    norms = draw("vanishing", length=16, forget=[3.0]).arrays()
    assert norms["RNN (tanh)"][-1] < 0.01 < 0.3 < norms["LSTM, forget bias\xa03"][-1]
    n, keys, _, lstm = draw("memory", length=16).arrays().values()
    np.testing.assert_array_equal(keys, 2 * 128 * n)
    assert {*lstm.tolist()} == {2 * 128}


def test_the_parameters_of_published_models_and_their_growth() -> None:
    drawn = draw("parameters", models=["vaswani-base", "gpt-2"])
    names = "Transformer 2017, 63 M", "GPT-2 2019, 124 M"  # of the paper
    assert drawn.title == f"Parameters: {'; '.join(names)}"
    parts = {node.name: node.box[2] for node in drawn.nodes if ": " in node.name}
    widest = sum(wide for name, wide in parts.items() if name.startswith(names[1]))
    assert widest == pytest.approx(WIDE - 8, rel=0.001)
    base, gpt = (
        {each.removeprefix(f"{name}: "): 124.4 * wide / widest for each, wide in parts.items()
         if each.startswith(name)} for name in names
    )  # fmt: skip
    rnnsearch = draw("parameters", models=["bahdanau-2015"])  # 1,000 units, 30,000 words
    assert "RNNsearch 2015, 83.6 M" in rnnsearch.title
    layer, feed_forward = 4 * (512 * 512 + 512), 2 * 512 * 2048 + 512 + 2048
    expected = {"embeddings": 37_000 * 512, "self-attention": 12 * layer,
                "cross-attention": 6 * layer, "feed-forward": 12 * feed_forward}  # fmt: skip
    for name, number in expected.items():
        assert base[name] == pytest.approx(number / 1e6, rel=0.002)
    assert "cross-attention" not in gpt and gpt["feed-forward"] > gpt["self-attention"] > 28
    with pytest.raises(ConfigError, match="vit-base does not write tokens"):
        draw("parameters", models=["vit-base"])
    for of, last in (("models", "DeepSeek-V3: 671 B"), ("hardware", "B200: 2250")):
        drawn = draw("growth", of=of)
        named = [text.get_text() for text in drawn.figure().axes[0].texts]
        assert drawn.named and named == [*(mark.label for mark in drawn.marks), *drawn.labels]
        assert named[-1] == last and f"2024 {last}" in drawn.text()


def test_the_command_lists_draws_and_refuses(tmp_path: Path) -> None:
    run = CliRunner().invoke
    listed = run(app, ["demo"]).output
    assert all(f"  {name} " in listed for name in DEMOS)
    picture = tmp_path / "noam.png"
    done = run(app, ["demo", "noam", "--pairs", "64:100", "--steps", "400", "--out", str(picture)])
    assert done.exit_code == 0, done.exception
    assert picture.stat().st_size > 1000
    assert "x₂: c" in run(app, ["demo", "bag", "--texts", "b a", "--texts", "c"]).output
    assert "hug" in run(app, ["demo", "bpe", "--texts", "hug hug pug"]).output
    for words, message in (
        (["beem"], "unknown demo 'beem'; did you mean 'beam'?"),
        (["noam", "--pairs", "512"], "'512' is not a pair D:warmup"),
        (["rnn", "--inputs", "1", "--w", "nan"], "w: Input should be a finite number"),
        (["sinusoids", "--length", "1"], "length: Input should be greater than or equal to 2"),
    ):
        assert message in str(run(app, ["demo", *words]).exception)
    with pytest.raises(ConfigError, match="no key 'lenght' here; did you mean 'length'"):
        draw("sinusoids", lenght=3)


def test_division_by_the_root_keeps_the_gradient_of_softmax() -> None:
    found = draw("scaling", size=500).arrays()
    plain, scaled, hard, soft = (y for name, y in found.items() if "q" in name.split(": ")[1])
    assert plain[-1] < plain[0] / 5 and scaled[-1] > 0.9 * scaled[0]
    logits = np.log(hard / hard[0])  # those of K = 512, the power of 2 that is nearest
    close(np.log(soft / soft[0]), logits / 512**0.5, atol=1e-5)


def test_local_attention_leaves_a_window_and_a_bell() -> None:
    arrays = draw("local", position=10, window=3).arrays()
    window, bell = (arrays[name] for name in [*arrays][1:])
    assert np.flatnonzero(window).tolist() == [*range(7, 14)] and window.sum() == pytest.approx(1)
    close(bell[12], window[12] * math.exp(-(2**2) / (2 * 1.5**2)), rtol=1e-5)
    with pytest.raises(ValueError, match=r"no position within 0\.1 of 10\.5"):
        draw("local", position=10.5, window=0.1)
    [drawn] = draw("local", position=8.123, window=2.0).browser_drawings()
    values = [(s.option, s.index, s.value) for s in drawn.sliders]
    assert values == [("position", None, 8.123), ("window", None, 2)]
    assert all(slider.value in slider.stops for slider in drawn.sliders)
    page = draw("local").html()
    assert groups_of(page)[0].drawings[0].model_dump()["formula"] == "local"


def test_losses_around_networks_are_those_of_the_lecture() -> None:
    drawn, count = draw("landscape"), 49
    for name in ("plain", "residual"):
        losses = np.log10(np.array(trained.stored("landscape", trained.Planes)[name], float))
        assert losses.shape == (count, count) and losses.argmin() == count * count // 2  # θ
        lines = [edge for edge in drawn.edges if edge.name.split()[0] == name][:-2]
        first = next(np.array(edge.points) for edge in lines)  # from the front, nothing hides it
        assert lines[0].name == f"{name} 48 {lines[0].name.split()[2]}" and len(first) > 70
        ends = [trained.projected(x, 1, losses[-1, k].clip(max=3)) for x, k in ((-1, 0), (1, -1))]
        moved = first - [610 * (name == "residual"), 0]
        close(moved[[0, -1]], ends, atol=6)
        hidden = [edge for edge in lines if edge.name.startswith(f"{name} 30 ")]
        assert all(np.diff(np.array(edge.points)[:, 0]).min() > 0 for edge in hidden)
    made = small_trainings.train_landscapes(layers=2, steps=2, points=3)
    model = small_trainings.Deep(1, carried=1.0, norm="pre").eval()
    points = torch.randn(4, 2)
    x = model.first(points)
    x = x + torch.relu(model.layers[0](model.norms[0](x)))
    torch.testing.assert_close(model(points), model.last(model.norms[-1](x)))
    shapes = {name: np.array(plane).shape for name, plane in made.items()}
    assert shapes == {"residual": (3, 3), "plain": (3, 3)}


def test_trainings_are_steady_with_norms_alone() -> None:
    drawn = draw("steadiness")
    lost, post, pre = drawn.curves
    step = int(lost.name.rpartition(" ")[2])
    assert "diverged at step" in lost.name and np.isnan(lost.y[step - 1])
    assert np.isfinite(lost.y[: step - 1]).all()
    assert max(post.y[-1], pre.y[-1]) < 0.03 < 0.7 < min(post.y[0], pre.y[0]) < lost.y[0]
    assert small_trainings.train_norms(layers=2, steps=2).keys() == small_trainings.TRAINED.keys()


def test_coreference_attends_to_animal_or_street() -> None:
    drawn = draw("coreference")
    both = [small_trainings.FORMS[0].format("animal", "street", word) for word in ("tired", "wide")]
    for text, noun in zip(both, ("animal", "street"), strict=True):
        place = text.split().index(noun)
        frames = [node.name for node in drawn.nodes if node.name.startswith(f"{text} frame")]
        assert frames == [f"{text} frame {place}"]
        arcs = [edge for edge in drawn.edges if edge.name.startswith(text)]
        weights = {int(edge.name.split()[-1]): 2 * edge.weight for edge in arcs}
        assert weights[place] > 0.9
    texts = small_trainings.sentences()
    assert len(texts) == 720 and sum(is_held for _, _, is_held in texts) == 120
    assert {text.split()[trained.IT] for text, _, _ in texts} == {"it"}
    maps = small_trainings.train_coreference(steps=1)["maps"]
    assert [*maps] == both


@pytest.mark.parametrize("recurrent", [False, True])
def test_own_outputs_are_mixed_with_the_truth(recurrent: bool) -> None:
    drawn = draw("sampling", network="recurrent" if recurrent else "transformer")
    names = ("predicts ŷ_t", "reads y′_{t−1}", "true y_{t−1}")
    if not recurrent:
        names = ("1. writes ŷ_t", "2. reads y′_{t−1}", "1. reads y_{t−1}")
    said, mixed, true = (texts_of(drawn, f"{name} ") for name in names)
    own = {int(edge.name.split()[1]) for edge in drawn.edges if edge.name.startswith("own")}
    assert own and mixed == [said[k - 1] if k in own else true[k] for k in range(len(true))] != true


def test_at_inference_errors_are_read_again_and_in_training_they_are_not() -> None:
    source, target = "My daughter will become intelligent.", "Ma fille deviendra intelligente."
    options = {"network": "one-vector", "keep": 0.0, "text": source, "target": target}
    drawn = draw("sampling", **options)
    names = "writes ŷ_t", "inference: ŷ_{t−1}", "predicts ŷ_t", "training: y_{t−1}"
    said, read, predicted, given = (texts_of(drawn, f"{name} ") for name in names)
    true = texts_of(drawn, "loss: true y_t ")
    assert read[1:] == said[:-1] != given[1:] == true[:-1] and read[0] == given[0]
    once, growing = (sum(map(str.__ne__, row, true)) for row in (predicted, said))
    assert once < growing and f"{once} in training and {growing} at inference" in drawn.caption


def test_a_language_model_classifies_and_places_are_mixed() -> None:
    signs = draw("signs")
    levels = {node.name: node.level for node in signs.nodes}
    asks = [levels[f"{row} ?"] > levels[f"{row} ."] for row in range(4)]
    labels = [node.label for node in signs.nodes if node.name.endswith("label")]
    assert asks == [True, False, True, False]
    assert labels == [f"→ a {'question' if each else 'statement'}" for each in asks]
    drawn = draw("mixing")
    affine, weights = ([written(drawn, f"{name} {k}") for k in range(3)] for name in "eα")
    close(softmax(affine), weights, atol=0.01)
    texts = {node.name: node.texts for node in drawn.nodes}
    states = [[float(x.replace("−", "-")) for x in texts[f"h {k}"]] for k in range(3)]
    context = [float(texts[f"c {i}"][0][2:].replace("−", "-")) for i in range(2)]
    close(np.array(weights) @ states, context, atol=0.01)
    assert [texts[f"x′ {i}"] for i in range(2)] == [texts[f"x {i}"] for i in range(2)]
