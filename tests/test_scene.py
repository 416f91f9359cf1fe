"""The scene has the numbers of the model, and its stops lead through what is there."""

import json
import re
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch

import foveate.look.draw.scenery as scenery
from foveate.config import PACKAGED, ConfigError
from foveate.look.draw.blocks import blocks_of, equation_of
from foveate.look.draw.colors import Hue
from foveate.look.draw.scene import HIGH, WIDE, SceneDrawing, ScenePanel
from foveate.look.draw.scenery import scene
from foveate.look.forward import frames, places_of
from foveate.look.hooks import ForcedPass
from foveate.look.views import find
from foveate.look.views.demos import DEMOS
from foveate.look.views.options import Question
from foveate.run import Run, load
from foveate.studio.lectures import lectures, parsed, present
from inside_toys import translating
from routes import squeezed
from small_runs import CONFIGS, MORE
from test_draw_blocks import TOYS, TRANSFORMER, translator

COMMANDS = sorted({step.command for each in lectures().lectures for step in each.steps})
WITH_WORDS = ["transformer", "recurrent", "mamba", "language", "recurrent language"]
Numbers = dict[str, np.ndarray]


def weights(forced: ForcedPass, node: str) -> Numbers:
    parameters = forced.model.get_submodule(node).named_parameters()
    return {name: each.detach().double().numpy() for name, each in parameters}


def test_an_attention_and_a_cell_inside_have_the_stages_of_their_modules() -> None:
    """The stages themselves are those of tests/laws/test_equations.py."""
    forced, node = TOYS["transformer"](), "encoder.layers.2.self_attention"
    made = inside(scene(forced), node)[1]
    np.testing.assert_allclose(made["weights"], forced.maps()[node], atol=1e-6)
    np.testing.assert_allclose(made["weights"] @ made["value"], made["context"], atol=1e-5)
    panel, made = inside(scene(TOYS["recurrent"](), block="cells"), "decoder.cells.0")
    np.testing.assert_allclose(made["before"][0, 1:], made["state"][0, :-1], atol=1e-6)
    cell = made["forget gate"] * made["cell before"] + made["added"]
    np.testing.assert_allclose(made["cell"], cell, atol=1e-5)
    assert panel.reads["cell"] == ["kept", "added"]


def inside(made: SceneDrawing, node: str) -> tuple[ScenePanel, Numbers]:
    panel = next(p for p in made.panels if p.node == node)
    return panel, {name: values.array.astype(np.float64) for name, values in panel.values.items()}


def test_a_feed_forward_layer_inside_is_what_numpy_computes_from_the_weights() -> None:
    forced, node = TOYS["transformer"](), "encoder.layers.0.feed_forward"
    made, w = scene(forced, block="encoder.feed_forward", layer=0), weights(forced, node)
    panel, numbers = inside(made, node)
    z = numbers["x"][0] @ w["inner.weight"].T + w["inner.bias"]
    y = np.maximum(z, 0) @ w["outer.weight"].T + w["outer.bias"]
    expected = {"inner layer": z, "activation": np.maximum(z, 0), "outer layer": y}
    for name, each in expected.items():
        np.testing.assert_allclose(numbers[name][0], each, atol=1e-5, err_msg=name)
    assert panel.reads["outer layer"] == ["activation"] and panel.rows[-1] == "</s>"
    captions = {stop.name: stop.caption for stop in made.stops if "numbers" in stop.name}
    stages = ("", " x", *(f" {name}" for name in expected))  # first all of them
    assert list(captions) == [f"encoder feed-forward numbers{name}" for name in stages]
    activation = captions["encoder feed-forward numbers activation"]
    assert activation.endswith("a = max(0, z). Negative numbers become 0.")


def test_embeddings_and_their_positions_are_summed_inside_their_box() -> None:
    forced = TOYS["transformer"]()
    panel, numbers = inside(scene(forced, block="encoder.stem"), "encoder embedding + position")
    table = weights(forced, "encoder.stem.embedding")["weight"]
    rows = table[numbers["tokens"][0, :, 0].astype(int)] * np.sqrt(table.shape[1])
    np.testing.assert_allclose(numbers["embedding"][0], rows, atol=1e-5)
    np.testing.assert_allclose(numbers["input"][0], rows + numbers["position"][0], atol=1e-5)
    assert panel.reads["input"] == ["embedding", "position"] and not panel.reads["position"]


def test_units_that_are_drawn_have_exact_sums_or_both_signs() -> None:
    x, y = np.array([[[0.024, 0.1, 0.3]]]), np.array([[[0.154, 0.2, 0.004]]])  # .02 + .15 is .18
    exact = scenery._units({"x": x, "y": y, "sum": x + y}, {"sum": ["x", "y"]})
    assert exact == {stage: [1, 2, 0] for stage in ("x", "y", "sum")}
    z = np.array([[[5.0, -1.0, 2.0], [5.0, 2.0, -3.0]]])
    cut = scenery._units({"z": z, "ReLU": z.clip(0)}, {"ReLU": ["z"]})
    assert cut == {stage: [2, 1, 0] for stage in ("z", "ReLU")}


def test_the_output_names_the_most_probable_tokens_at_each_position() -> None:
    forced = TOYS["transformer"]()
    made = scene(forced, block="output")
    panel, numbers = inside(made, next(p.node for p in made.panels if "softmax" in p.values))
    film = {f.name: f.values[0] for f in frames(forced, blocks_of(forced.model), equation_of)}
    best = np.sort(film["softmax"], axis=-1)[:, ::-1][:, : numbers["softmax"].shape[-1]]
    np.testing.assert_allclose(numbers["softmax"][0], best, atol=1e-6)
    names = [forced.token(int(p.argmax())) for p in film["softmax"]]
    assert [tokens[0] for tokens in panel.tokens["softmax"]] == names


@pytest.mark.parametrize("name", WITH_WORDS)
def test_a_training_step_goes_back_through_the_boxes(name: str) -> None:
    forced = TOYS[name]()
    made = scene(forced, train=True)
    film = frames(forced, blocks_of(forced.model), equation_of, train=True)
    loss, *_, weights = (f for f in film if f.name == "loss" or f.name.startswith("gradient"))
    first, second, *back = [stop.name for stop in made.stops]
    assert (first, second) == ("whole", "loss")
    assert back[0] == "gradient output" and back[-1].endswith("embedding")
    panel, numbers = inside(made, made.panels[0].node)
    np.testing.assert_allclose(numbers["loss"][0, :, 0], loss.values[0, 0])
    assert [tokens[0] for tokens in panel.tokens["loss"]] == list(forced.produced)
    for each in made.panels:
        for stage, values in each.values.items():
            norms = (f.values[0, 0] for f in film if f.name == stage)
            assert any(np.array_equal(n, values.array[0, :, 0]) for n in norms), (each.node, stage)
    written = {n.name: n.label.rpartition(" ")[2] for n in made.nodes if ": " in n.label}
    assert ("‖∂L/∂W‖" in made.stops[0].caption) == bool(written)
    for block, norm in zip(weights.names, weights.values[0, 0], strict=True):
        assert written.get(block, f"{norm:#.2g}") == f"{norm:#.2g}"


def test_what_is_read_goes_on_in_the_order_of_computation() -> None:
    made = scene(TOYS["recurrent"]())
    stops = {stop.name: stop.lit for stop in made.stops}
    parts = "encoder below", "decoder below"  # their names are always lit
    forwards, backwards = (f"encoder.stack.layers.0.{k}.cell" for k in (0, 1))
    assert stops["reading 1"] == [f"{forwards} 0", f"{backwards} 3", "encoder reads 0", *parts]
    lit = ["bridge", forwards, backwards, "decoder.cells.0 0", "encoder reads", "decoder reads 0"]
    assert stops["bridge"] == [*lit, *parts]


def test_the_steps_are_the_probabilities_and_the_attention_of_each_word() -> None:
    forced = TOYS["transformer"]()
    made = scene(forced)
    steps = [stop for stop in made.stops if stop.name.startswith("step")]
    chances = np.exp(forced.scores())
    assert len(steps) == len(chances)
    known = [n.label.split(" = ")[1] for n in made.nodes if n.name.endswith(" p")]
    assert known == [f"{p:.2f}" for p in chances]
    maps = forced.maps()["decoder.layers.2.cross_attention"].mean(axis=0)
    boxes = [n for n in made.nodes if n.tag.startswith("step")]
    read = {n.name: n.level for n in boxes if n.form == "box"}
    written = {n.name.removesuffix(" weight"): n.label for n in boxes if n.name.endswith("weight")}
    for (t, s), weight in np.ndenumerate(maps):
        name = f"decoder.layers.2.cross_attention step {t} {s}"
        level = weight / maps[t].max()  # the word with most attention is full
        assert weight < 0.02 or read.pop(name) == pytest.approx(level, abs=1e-5)
        assert weight < 0.02 or written.pop(name).removeprefix("α ") == f"{weight:.2f}"
    assert not read and not written
    for t, stop in enumerate(steps):
        lit = [name for name in stop.lit if name.startswith("decoder reads ")]
        assert lit == [f"decoder reads {k}" for k in range(t + 1)]


def test_numbers_at_residual_sums_add_up_as_printed(runs: dict[str, Run]) -> None:
    made = find("scene").draw([runs["transformer"]], Question())
    texts = {node.name: node.texts or [node.label] for node in made.nodes}
    road = "decoder stream decoder.layers.1."
    x, *_ = texts[f"{road}self_attention x"]
    for block in ("self_attention", "cross_attention", "feed_forward"):
        [total], [added] = texts[f"{road}{block} sum"], texts[f"decoder.layers.1.{block} f"]
        numbers = (each.rpartition(" ")[2].replace("−", "-") for each in (x, added, total))
        before, f, after = map(float, numbers)
        assert before + f == pytest.approx(after, abs=1e-6)
        x = total


def holds(made: SceneDrawing) -> None:
    """All names are drawn once and in the picture; stops show and light what there is."""
    drawn = [*made.nodes, *made.edges]
    names, tags = [each.name for each in drawn], {each.tag for each in drawn}
    assert len(set(names)) == len(names) and made.stops[0].name == "whole"
    for node in made.nodes:
        x, y, w, h = node.box
        assert x >= 0 and x + w <= WIDE and y >= 0 and y + h <= HIGH, node.name
    for stop in made.stops:
        assert stop.box[3] / stop.box[2] == pytest.approx(HIGH / WIDE)
        if stop.panel is None:
            assert set(stop.shows) <= tags | {"layer", "stream", "whole", "fed back"}, stop.name
            assert all(any(n == lit or n.startswith(f"{lit} ") for n in names) for lit in stop.lit)
        else:
            node = made.panels[stop.panel].node
            assert node in names or f"{node} 0" in names  # or one at each step


def behind_boxes(made: SceneDrawing) -> list[tuple[str, str]]:
    return [pair for stop in made.stops if stop.panel is None for pair in squeezed(made, stop)]


def one_role_a_colour(made: SceneDrawing) -> None:
    roles: dict[int | None, set[str]] = {hue: set() for hue in Hue}
    for part in (*made.nodes, *made.edges):
        roles.setdefault(part.hue, set()).add(part.name)
    assert all("back" in n or n.endswith(" loss") for n in roles[Hue.GRADIENT]), "or the query's"
    assert all("attention" in n for n in roles[Hue.WEIGHT])
    assert all("memory" in n for n in roles[Hue.KEY])
    assert all("feed_forward" in n for n in roles[Hue.LAYER])
    inputs = ("embedding", "stem", "vector", "fed", "position")
    assert all(any(i in n for i in inputs) for n in roles[Hue.INPUT])


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", WITH_WORDS)
def test_stops_lines_boxes_and_colours_of_a_toy(name: str, train: bool) -> None:
    """No line is behind a box and no box touches another, such as a norm behind a sum."""
    made = scene(TOYS[name](), train=train)
    holds(made)
    assert behind_boxes(made) == []
    one_role_a_colour(made)
    boxes = [n for n in made.shown(made.stops[0]) if getattr(n, "form", "") in ("box", "plus")]
    touching = [
        (a.name, b.name)
        for a, b in combinations(boxes, 2)
        if all(abs(2 * a.box[k] + a.box[k + 2] - 2 * b.box[k] - b.box[k + 2])
               < a.box[k + 2] + b.box[k + 2] for k in (0, 1))
    ]  # fmt: skip
    assert touching == []


@pytest.mark.parametrize("name", [*CONFIGS, *MORE])
def test_every_model_has_a_scene(runs: dict[str, Run], name: str) -> None:
    made = find("scene").draw([runs[name]], Question())
    holds(made)


def test_block_head_query_and_stop_choose_where_the_camera_goes() -> None:
    forced = TOYS["transformer"]()
    stop = "decoder cross-attention numbers"
    made = scene(forced, block="cross_attention", head=1, query=2, stop=stop)
    ends = [each.name.removeprefix(stop) for each in made.stops]
    assert ends == ["", *(f" {stage}" for stage in "qkeαvco")]
    panel = next(p for p in made.panels if p.node == "decoder.layers.2.cross_attention")
    assert (panel.head, panel.row, panel.rows[2]) == (1, 2, "w9")
    for wrong, said in (
        ({"stop": "attic"}, "--stop attic: expected the beginning of one of whole, encoder layer"),
        ({"block": "memory"}, "--block memory: expected one of encoder.stem, encoder.position"),
        ({"block": "output", "query": 9}, "--query 9: there are 3"),
        ({"head": 9}, "--head 9: there are 2"),
        ({"query": 9}, "--query 9: there are 4"),
        ({"layer": 9}, "--layer 9: the encoder has 3"),
    ):
        with pytest.raises(ConfigError, match=said):
            scene(forced, **wrong)


def test_a_forecast_has_no_training_step_of_tokens(runs: dict[str, Run]) -> None:
    with pytest.raises(ConfigError, match="--train"):
        find("scene").draw([runs["forecaster"]], Question(train=True))


LETTER = 0.56 * 28 * 0.68  # width of a letter, as small as it is drawn
LONG = "Extraordinarily a of businesspeople is . enthusiastically overcomplicating it to us"


def said(monkeypatch, change: Callable[[list[str]], list[str]]) -> None:
    """Have the model read and write other words."""
    monkeypatch.setattr(
        scenery, "places_of", lambda *args: {k: change(v) for k, v in places_of(*args).items()}
    )


@pytest.mark.parametrize("name", ["transformer", "recurrent", "language"])
def test_words_of_any_length_are_whole_and_apart(name: str, monkeypatch) -> None:
    said(monkeypatch, lambda words: LONG.split()[: len(words)])
    made = scene(TOYS[name]())
    words = [n for n in made.nodes if n.form == "word" and n.tag == "words"]
    assert words
    for node in words:
        assert node.box[2] > min(LETTER * len(node.label), 90), node
    for one, other in combinations(words, 2):
        (x, y, w, h), (u, v, across, down) = one.box, other.box
        assert x + w <= u + 1e-6 or u + across <= x + 1e-6 or y + h <= v or v + down <= y


@pytest.mark.parametrize("name", WITH_WORDS)
@pytest.mark.parametrize("sign", ["", "▁"])
def test_pieces_of_words_are_called_tokens(name: str, sign: str, monkeypatch) -> None:
    said(monkeypatch, lambda words: [sign + word for word in words])
    captions = " ".join(stop.caption for stop in scene(TOYS[name]()).stops)
    text = re.sub("“[^”]*”", "", captions)
    assert "word" not in text if sign else "a token" not in text and "tokens" not in text


@pytest.mark.parametrize("order", ["pre", "post"])
def test_what_the_encoder_hands_on_begins_where_its_stream_ends(order: str) -> None:
    fields = TRANSFORMER | {"norm_order": order}
    made = scene(translator(fields, fields))
    [(x, y)] = [edge.points[0] for edge in made.edges if edge.name.endswith(" memory")]
    ends = [edge.points[-1] for edge in made.edges if edge.name.startswith("encoder stream")]
    boxes = [n.box for n in made.nodes if n.form == "box"]
    assert (x, y) in ends or any(a + w == x and b <= y <= b + h for a, b, w, h in boxes)


def test_long_texts_are_cut_and_said() -> None:
    ids = torch.arange(14) % 10 + 5
    made = scene(translating(TOYS["transformer"]().model, ids, ids))
    assert made.notes[0] == "encoder: the first 12 of 15 positions are drawn"


def test_a_scene_is_written_in_all_formats(run: Run, tmp_path: Path) -> None:
    made = find("scene").draw([run], Question(text="the dog runs", target="le chien"))
    assert "1. whole: The source is read" in made.text()
    for ending in ("svg", "png", "pdf", "html", "npz"):
        assert made.save(tmp_path / f"scene.{ending}").stat().st_size > 1000
    arrays = json.loads(made.save(tmp_path / "scene.json").read_text())
    weights = next(v for n, v in arrays.items() if n.endswith("cross_attention: weights"))
    np.testing.assert_allclose(np.sum(weights, axis=-1), 1, atol=1e-5)


def test_the_sum_is_of_what_the_order_of_norms_says() -> None:
    said = {stop.name: stop.caption for stop in scene(TOYS["transformer"]()).stops}
    assert said["encoder layer"].startswith("Each + adds f(norm(x)) to x,")
    assert said["decoder layer"].startswith("Each + adds f(x) to x,")


@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_of_a_slide_is_behind_a_box_and_none_ends_on_half_a_drawing(command: str) -> None:
    name, runs, options = parsed(command)
    if runs:
        shipped = present(runs, lambda run: (PACKAGED / run).is_dir())
        drawn = find(name).draw([load(f"packaged/{run}") for run in shipped], options)
    else:
        drawn = DEMOS[name].draw(options.model_dump(exclude_unset=True))
    scenes = [each for each in drawn.drawings() if isinstance(each, SceneDrawing)]
    assert [pair for each in scenes for pair in behind_boxes(each)] == []
    for stop in [] if runs else [each.stops[-1] for each in scenes if len(each.stops) > 1]:
        lit, names = tuple(f"{x} " for x in stop.lit), (f"{x.name} " for x in drawn.shown(stop))
        assert not lit or all(name.startswith(lit) for name in names)
        tags = {each.tag for each in (*drawn.nodes, *drawn.edges)} - {"", *stop.shows}
        assert tags <= {tag for other in drawn.stops for tag in other.shows}
