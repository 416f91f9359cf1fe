"""The scene has the numbers of the model, and its stops lead through what is there."""

import json
import re
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
from foveate.look.views import find
from foveate.look.views.demos import DEMOS
from foveate.look.views.options import Question
from foveate.run import Run, load
from foveate.studio.lectures import lectures, parsed, present
from routes import squeezed
from test_draw_blocks import TOYS, TRANSFORMER, translator

NAMES = [
    "transformer",
    "rnn",
    "classifier",
    "language",
    "masked",
    "captioner",
    "vit",
    "forecaster",
    "rnn_forecaster",
]
COMMANDS = sorted({step.command for each in lectures().lectures for step in each.steps})
WITH_WORDS = ["transformer", "recurrent", "mamba", "language", "recurrent language"]
BLOCK = "encoder.layers.2.self_attention"


def softmax(x: np.ndarray) -> np.ndarray:
    exp = np.exp(x - x.max(-1, keepdims=True))
    return exp / exp.sum(-1, keepdims=True)


def test_an_attention_inside_is_what_numpy_computes_from_the_weights() -> None:
    forced = TOYS["transformer"]()
    panel = next(p for p in scene(forced).panels if p.node == BLOCK)
    module = forced.model.get_submodule(BLOCK)
    made = {name: values.array.astype(np.float64) for name, values in panel.values.items()}

    def projected(name: str, x: np.ndarray) -> np.ndarray:
        linear = module.get_submodule(name)
        weight, bias = (each.detach().double().numpy() for each in linear.parameters())
        return (x @ weight.T + bias).reshape(len(x), module.num_heads, -1).swapaxes(0, 1)

    query, key, value = (projected(n, made["h"][0]) for n in ("query", "key", "value"))
    score = query @ key.swapaxes(1, 2) / np.sqrt(key.shape[2])
    expected = {"query": query, "key": key, "value": value, "score": score}
    expected |= {"weights": softmax(score), "context": softmax(score) @ value}
    for name, numbers in expected.items():
        np.testing.assert_allclose(made[name], numbers, atol=1e-5, err_msg=name)


def inside(made: SceneDrawing, node: str) -> tuple[ScenePanel, dict[str, np.ndarray]]:
    panel = next(p for p in made.panels if p.node == node)
    return panel, {name: values.array.astype(np.float64) for name, values in panel.values.items()}


def test_a_feed_forward_layer_inside_is_what_numpy_computes_from_the_weights() -> None:
    forced, node = TOYS["transformer"](), "encoder.layers.0.feed_forward"
    made = scene(forced, block="encoder.feed_forward", layer=0)
    panel, numbers = inside(made, node)
    weights = forced.model.get_submodule(node).named_parameters()
    w = {name: each.detach().double().numpy() for name, each in weights}
    z = numbers["x"][0] @ w["inner.weight"].T + w["inner.bias"]
    y = np.maximum(z, 0) @ w["outer.weight"].T + w["outer.bias"]
    expected = {"inner layer": z, "activation": np.maximum(z, 0), "outer layer": y}
    for name, each in expected.items():
        np.testing.assert_allclose(numbers[name][0], each, atol=1e-5, err_msg=name)
    assert panel.reads["outer layer"] == ["activation"] and panel.rows[-1] == "</s>"
    names = [stop.name for stop in made.stops if "numbers" in stop.name]
    stages = ("", " x", *(f" {name}" for name in expected))  # first all of them
    assert names == [f"encoder feed-forward numbers{name}" for name in stages]
    captions = {stop.name: stop.caption for stop in made.stops}
    assert captions[names[3]].endswith("a = max(0, z). White: 0.")


def test_embeddings_and_their_positions_are_summed_inside_their_box() -> None:
    forced = TOYS["transformer"]()
    panel, numbers = inside(scene(forced, block="encoder.stem"), "encoder embedding + position")
    table = forced.model.get_parameter("encoder.stem.embedding.weight").detach().double().numpy()
    rows = table[numbers["tokens"][0, :, 0].astype(int)] * np.sqrt(table.shape[1])
    np.testing.assert_allclose(numbers["embedding"][0], rows, atol=1e-5)
    np.testing.assert_allclose(numbers["input"][0], rows + numbers["position"][0], atol=1e-5)
    assert panel.reads["input"] == ["embedding", "position"] and not panel.reads["position"]


def test_the_output_names_the_most_probable_tokens_at_each_position() -> None:
    forced = TOYS["transformer"]()
    made = scene(forced, block="output")
    panel, numbers = inside(made, next(p.node for p in made.panels if "softmax" in p.values))
    film = {f.name: f.values[0] for f in frames(forced, blocks_of(forced.model), equation_of)}
    best = np.sort(film["softmax"], axis=-1)[:, ::-1][:, : numbers["softmax"].shape[-1]]
    np.testing.assert_allclose(numbers["softmax"][0], best, atol=1e-6)
    assert forced.token is not None
    names = [forced.token(int(p.argmax())) for p in film["softmax"]]
    assert [tokens[0] for tokens in panel.tokens["softmax"]] == names


@pytest.mark.parametrize("name", WITH_WORDS)
def test_a_training_step_goes_back_through_the_boxes(name: str) -> None:
    forced = TOYS[name]()
    made = scene(forced, train=True)
    film = frames(forced, blocks_of(forced.model), equation_of, train=True)
    loss, *_, weights = (f for f in film if f.name == "loss" or f.name.startswith("gradient"))
    first, second, *back, last = [stop.name for stop in made.stops]
    assert (first, second, last) == ("whole", "loss", "gradient of weights")
    assert back[0] == "gradient output" and back[-1].endswith("embedding")
    panel, numbers = inside(made, made.panels[0].node)
    np.testing.assert_allclose(numbers["loss"][0, :, 0], loss.values[0, 0])
    assert [tokens[0] for tokens in panel.tokens["loss"]] == list(forced.produced)
    for each in made.panels:
        for stage, values in each.values.items():
            norms = values.array[0, :, 0]
            alike = (np.array_equal(f.values[0, 0], norms) for f in film if f.name == stage)
            assert any(alike), (each.node, stage)
    written = {n.name: n.label for n in made.nodes if n.tag == "gradient"}
    assert ("gradient" in made.stops[0].shows) == bool(written)
    for block, norm in zip(weights.names, weights.values[0, 0], strict=True):
        assert written.get(f"{block} gradient", f"{norm:#.2g}") == f"{norm:#.2g}"


def test_a_cell_inside_is_what_numpy_computes_from_the_weights() -> None:
    forced = TOYS["recurrent"]()
    panel = next(p for p in scene(forced, block="cells").panels if p.node == "decoder.cells.0")
    made = {name: values.array[0].astype(np.float64) for name, values in panel.values.items()}
    weights = forced.model.get_submodule("decoder.cells.0").named_parameters()
    w = {name: each.detach().double().numpy() for name, each in weights}
    feed = forced.model.get_submodule("decoder.feed").get_parameter("weight").detach().numpy()
    total = (
        made["input"] @ w["weight_ih"].T + made["fed"] @ feed.T + made["before"] @ w["weight_hh"].T
    )
    parts = np.split(total + w["bias_ih"] + w["bias_hh"], 4, axis=1)
    enter, forget, leave = (1 / (1 + np.exp(-parts[k])) for k in (0, 1, 3))
    cell = forget * made["cell before"] + enter * np.tanh(parts[2])
    expected = {"input gate": enter, "forget gate": forget, "output gate": leave, "cell": cell}
    for name, numbers in (expected | {"state": leave * np.tanh(cell)}).items():
        np.testing.assert_allclose(made[name], numbers, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(made["before"][1:], made["state"][:-1], atol=1e-6)
    assert panel.reads["cell"] == ["kept", "added"]


def test_what_is_read_goes_on_in_the_order_of_computation() -> None:
    made = scene(TOYS["recurrent"]())
    stops = {stop.name: stop.lit for stop in made.stops}
    parts = "encoder below", "decoder below"  # their names are always lit
    forwards, backwards = (f"encoder.stack.layers.0.{k}.cell" for k in (0, 1))
    assert stops["reading 1"] == [f"{forwards} 0", f"{backwards} 3", "encoder reads 0", *parts]
    ends = [f"{forwards} 3", f"{backwards} 0", "decoder.cells.0 0"]
    assert stops["bridge"] == ["bridge", *ends, "encoder reads", "decoder writes", *parts]


def test_the_steps_are_the_probabilities_and_the_attention_of_each_word() -> None:
    forced = TOYS["transformer"]()
    made = scene(forced)
    steps = [stop for stop in made.stops if stop.name.startswith("step")]
    chances = np.exp(forced.scores())
    assert len(steps) == len(chances)
    assert all(f"p = {p:.2f}." in s.caption for s, p in zip(steps, chances, strict=True))
    maps = forced.maps()["decoder.layers.2.cross_attention"].mean(axis=0)
    read = {n.name: n.level for n in made.nodes if n.tag.startswith("step")}
    for (t, s), weight in np.ndenumerate(maps):
        name = f"decoder.layers.2.cross_attention step {t} {s}"
        assert weight < 0.02 or read.pop(name) == pytest.approx(weight, abs=1e-5)
    assert not read
    for t, stop in enumerate(steps):
        lit = [name for name in stop.lit if " reads " in name]
        assert lit == [f"decoder reads {k}" for k in range(t + 1)]


def test_numbers_at_residual_sums_add_up_as_printed(runs: dict[str, Run]) -> None:
    made = find("scene").draw([runs["transformer"]], Question())
    assert isinstance(made, SceneDrawing)
    texts = {node.name: node.texts or [node.label] for node in made.nodes}
    blocks = [f"decoder.layers.1.{b}" for b in ("self_attention", "cross_attention")]
    after = [f"decoder.layers.1.{b} x" for b in ("cross_attention", "feed_forward")]
    for block, then in zip(blocks, after, strict=True):
        numbers = [
            texts[f"{block} x"][1:],
            texts[f"{block} adds"][0][2:-3].split(", "),
            texts[then][1:],
        ]
        x, f, total = (np.array([float(n.replace("−", "-")) for n in some]) for some in numbers)
        assert x + f == pytest.approx(total, abs=1e-6)


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
            assert set(stop.shows) <= tags | {"layer", "stream", "whole"}, stop.name
            assert all(any(n == lit or n.startswith(f"{lit} ") for n in names) for lit in stop.lit)
        else:
            node = made.panels[stop.panel].node
            assert node in names or f"{node} 0" in names  # or one at each step


@pytest.mark.parametrize("name", WITH_WORDS)
def test_stops_of_toys_show_and_light_what_is_drawn(name: str) -> None:
    holds(scene(TOYS[name]()))
    holds(scene(TOYS[name](), train=True))


@pytest.mark.parametrize("name", NAMES)
def test_every_model_has_a_scene(runs: dict[str, Run], name: str) -> None:
    made = find("scene").draw([runs[name]], Question())
    assert isinstance(made, SceneDrawing)
    holds(made)


def test_block_head_query_and_stop_choose_where_the_camera_goes() -> None:
    forced = TOYS["transformer"]()
    made = scene(
        forced, block="cross_attention", head=1, query=2, stop="decoder cross-attention numbers"
    )
    ends = [stop.name.removeprefix("decoder cross-attention numbers") for stop in made.stops]
    assert ends == ["", *(f" {stage}" for stage in "hqkeαvco")]
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
            scene(forced, **wrong)  # type: ignore[arg-type]


def test_a_forecast_has_no_training_step_of_tokens(runs: dict[str, Run]) -> None:
    with pytest.raises(ConfigError, match="--train"):
        find("scene").draw([runs["forecaster"]], Question(train=True))


LETTER = 0.56 * 28 * 0.68  # width of a letter, as small as it is drawn
LONG = "Extraordinarily a of businesspeople is . enthusiastically overcomplicating it to us"


@pytest.mark.parametrize("name", ["transformer", "recurrent", "language"])
def test_words_of_any_length_are_whole_and_apart(name: str, monkeypatch) -> None:
    def long(forced, film) -> dict[str, list[str]]:
        return {part: LONG.split()[: len(words)] for part, words in places_of(forced, film).items()}

    monkeypatch.setattr(scenery, "places_of", long)
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
    def signed(forced, film) -> dict[str, list[str]]:
        places = places_of(forced, film).items()
        return {part: [sign + word for word in words] for part, words in places}

    monkeypatch.setattr(scenery, "places_of", signed)
    made = scene(TOYS[name]())
    said = re.sub("“[^”]*”", "", " ".join(stop.caption for stop in made.stops))
    assert "word" not in said if sign else "a token" not in said and "tokens" not in said


@pytest.mark.parametrize("order", ["pre", "post"])
def test_what_the_encoder_hands_on_begins_where_its_stream_ends(order: str) -> None:
    fields = TRANSFORMER | {"norm_order": order}
    made = scene(translator(fields, fields))
    edges = {edge.name: edge for edge in made.edges}
    [memory] = [edge for name, edge in edges.items() if name.endswith(" memory")]
    ends = [edge.points[-1] for name, edge in edges.items() if name.startswith("encoder stream")]
    boxes = [n.box for n in made.nodes if n.form == "box"]
    x, y = memory.points[0]
    assert (x, y) in ends or any(a + w == x and b <= y <= b + h for a, b, w, h in boxes)


def test_long_texts_are_cut_and_said() -> None:
    ids = torch.arange(14) % 10 + 5
    from inside_toys import translating

    model = TOYS["transformer"]().model
    made = scene(translating(model, ids, ids))
    assert made.notes[0] == "encoder: the first 12 of 15 positions are drawn"


def test_a_scene_is_written_in_all_formats(run: Run, tmp_path: Path) -> None:
    made = find("scene").draw([run], Question(text="the dog runs", target="le chien"))
    assert isinstance(made, SceneDrawing)
    assert "1. whole: The encoder reads" in made.text()
    for ending in ("svg", "png", "pdf", "html", "npz"):
        assert made.save(tmp_path / f"scene.{ending}").stat().st_size > 1000
    arrays = json.loads(made.save(tmp_path / "scene.json").read_text())
    weights = next(v for n, v in arrays.items() if n.endswith("cross_attention: weights"))
    np.testing.assert_allclose(np.sum(weights, axis=-1), 1, atol=1e-5)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", WITH_WORDS)
def test_no_line_of_a_model_is_behind_a_box(name: str, train: bool) -> None:
    made = scene(TOYS[name](), train=train)
    stops = [stop for stop in made.stops if stop.panel is None]
    assert [pair for stop in stops for pair in squeezed(made, stop)] == []


@pytest.mark.parametrize("name", WITH_WORDS)
def test_no_box_of_a_model_touches_another(name: str) -> None:
    """Such as a norm behind a sum, of layers with the norm last."""
    made = scene(TOYS[name]())
    boxes = [n for n in made.shown(made.stops[0]) if getattr(n, "form", "") in ("box", "plus")]
    touching = [
        (a.name, b.name)
        for a, b in combinations(boxes, 2)
        if all(abs(2 * a.box[k] + a.box[k + 2] - 2 * b.box[k] - b.box[k + 2])
               < a.box[k + 2] + b.box[k + 2] for k in (0, 1))
    ]  # fmt: skip
    assert touching == []


def test_the_sum_is_of_what_the_order_of_norms_says() -> None:
    said = {stop.name: stop.caption for stop in scene(TOYS["transformer"]()).stops}
    assert said["encoder layer"].startswith("Each + adds f(norm(x)) to x.")
    assert said["decoder layer"].startswith("Each + adds f(x) to x.")


@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_of_a_lecture_is_behind_a_box(command: str) -> None:
    name, runs, options = parsed(command)
    if runs:
        shipped = present(runs, lambda run: (PACKAGED / run).is_dir())
        drawn = find(name).draw([load(f"packaged/{run}") for run in shipped], options)
    else:
        drawn = DEMOS[name].draw(options.model_dump(exclude_unset=True))
    scenes = [each for each in drawn.drawings() if isinstance(each, SceneDrawing)]
    stops = [(each, stop) for each in scenes for stop in each.stops if stop.panel is None]
    assert [pair for each, stop in stops for pair in squeezed(each, stop)] == []


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", WITH_WORDS)
def test_a_colour_of_a_model_has_one_role(name: str, train: bool) -> None:
    made, roles = scene(TOYS[name](), train=train), dict[int, set[str]]()
    for part in (*made.nodes, *made.edges):
        if part.hue is not None:
            roles.setdefault(part.hue, set()).add(part.name)
    gradients = {n for n in roles.get(Hue.GRADIENT, ()) if "back" in n or n.endswith(" loss")}
    assert gradients == roles.get(Hue.GRADIENT, set()), "orange is the query's, or the gradient's"
    assert all("attention" in n for n in roles.get(Hue.WEIGHT, ()))
    assert all("memory" in n for n in roles.get(Hue.KEY, ()))
    assert all("feed_forward" in n for n in roles.get(Hue.LAYER, ()))
    inputs = ("embedding", "stem", "vector", "fed", "position")
    assert all(any(i in n for i in inputs) for n in roles.get(Hue.INPUT, ()))
