"""Ablation, lens, permutation, states, loss surface, gradients, gates: tested by truth."""

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from foveate.config import ConfigError
from foveate.errors import UserError
from foveate.look.draw import analyses
from foveate.look.draw.charts import line_chart
from foveate.look.draw.scene import SceneDrawing
from foveate.look.perturbations import direction, importance, shuffled, surface, without_positions
from foveate.look.relevance import by_distance, influence
from foveate.look.stages import backwards, gates_of, over_steps, stages_by_name
from foveate.models.classic import WindowDecoder
from foveate.models.encoder_decoder import Decoder
from foveate.models.recurrent import RecurrentDecoder, RecurrentEncoder
from foveate.models.transformer import TransformerDecoder
from foveate.nn.context import DecoderState
from foveate.nn.positions import NoPosition, Position, Rotary
from foveate.nn.recurrent import Cell, LSTMCell
from foveate.nn.spec import Tokens
from inside_toys import language, language_model, recurrent, transformer, translating
from tolerances import MODEL, ROW, close, near, rounding

SOURCE, TARGET = torch.tensor([4, 9, 6, 11]), torch.tensor([7, 8])
TEXT = torch.tensor([4, 5, 6, 7, 4, 5])


def test_a_heads_worth_is_what_is_lost_when_its_output_is_zero() -> None:
    model = transformer()
    pairs = [(SOURCE, TARGET), (SOURCE.flip(0), TARGET[:1])]
    passes = [translating(model, *pair) for pair in pairs]
    lost = importance(passes, "decoder")
    assert {name: len(figures) for name, figures in lost.items()} == {
        f"decoder.layers.{layer}.{block}_attention": 2
        for layer in range(2)
        for block in ("self", "cross")
    }
    before = np.concatenate([forced.scores() for forced in passes])
    attention: Any = model.decoder.layers[1].self_attention  # type: ignore[index,union-attr]
    with torch.no_grad():
        attention.output.weight[:, :8] = 0  # head 0
    expected = (before - np.concatenate([forced.scores() for forced in passes])).mean()
    assert lost["decoder.layers.1.self_attention"][0] == near(expected, terms=ROW)


@pytest.mark.parametrize("order", ["pre", "post"])
def test_each_row_of_the_lens_is_a_model_that_ends_there(order: str) -> None:
    model = language_model(norm_order=order)
    forced = language(model, TEXT)
    view = analyses.lens(forced, "small")
    read = torch.nn.functional.pad(TEXT, (1, 0), value=2)[None]
    decoder: Any = model.decoder
    whole = decoder.layers
    with torch.no_grad():
        for count in range(4):
            decoder.layers = nn.ModuleList(whole[:count])
            p = model(read)[0].softmax(-1).double()
            best = p.max(-1)
            close(view.values.array[count], best.values.numpy(), terms=ROW)
            names = {2: "<s>", 3: "</s>"}
            assert view.tokens[count] == [names.get(i, f"w{i}") for i in best.indices.tolist()]
            expected = p[torch.arange(7), torch.tensor([*TEXT.tolist(), 3])]
            close(view.target_p[count], expected.numpy(), terms=ROW)
    decoder.layers = whole
    close(view.target_p[-1], np.exp(forced.scores()), terms=ROW)
    [drawing] = view.drawings()
    assert drawing.cells == [list(row) for row in view.tokens]  # type: ignore[attr-defined]
    assert all(f" {p:.2f}" in view.text() for p in view.values.array.flat)
    assert view.rows == ["input", "after layer 0", "after layer 1", "after layer 2"]


def test_the_lens_of_a_pair_and_of_none() -> None:
    assert analyses.lens(translating(transformer(), SOURCE, TARGET)).values.shape == (3, 3)
    with pytest.raises(ConfigError, match="stack of layers, as Transformers have"):
        analyses.lens(translating(recurrent(), SOURCE, TARGET))


def test_changes_are_those_of_a_shuffled_source() -> None:
    """Against an encoder that reads the ids themselves in the other order."""
    model = transformer(position=Rotary.Config())
    outputs, _ = shuffled(translating(model, SOURCE, TARGET), seed=3)
    ids = torch.tensor([[*SOURCE.tolist(), 3]])
    order = torch.randperm(5, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        plain, after = model.encode(ids).values[0], model.encode(ids[:, order]).values[0]
    expected = (after - plain[order]).norm(dim=-1) / plain[order].norm(dim=-1)
    close(outputs, expected[order.argsort()].numpy())
    assert outputs.min() > 1e-3
    bag = translating(transformer(position=NoPosition.Config()), SOURCE, TARGET)
    outputs, lost = shuffled(bag)  # without positions an encoder reads a bag of words
    assert max(*outputs, abs(lost)) < rounding()


@pytest.mark.parametrize("kind", ["sinusoidal", "learned", "rope", "alibi"])
def test_positions_come_off_and_back(kind: str) -> None:
    model = transformer(position=Position.Config.parse({"kind": kind}))
    forced = translating(model, SOURCE, TARGET)
    before = forced.scores()
    with without_positions(model) as count:
        assert count == 2
    view = analyses.permutation(forced)
    assert np.array_equal(forced.scores(), before)
    drawn = changes(view)
    assert min(drawn["with positions"]) > 0 == max(drawn["without them"])
    for name, values in drawn.items():
        with without_positions(model) if name.startswith("without") else nullcontext():
            np.testing.assert_allclose(values, shuffled(forced)[0], atol=0.005 + rounding())
    words = {node.name: node.label for node in view.nodes if " word " in node.name}
    read, moved = ([w for n, w in words.items() if n.startswith(row)] for row in ("read", "shuf"))
    assert read == ["w4", "w9", "w6", "w11", "</s>"] and sorted(moved) == sorted(read)


def changes(view: SceneDrawing) -> dict[str, list[float]]:
    """The numbers in the boxes of a drawing of shuffled inputs, by row."""
    rows: dict[str, list[float]] = {}
    for node in view.nodes:
        row, of, _ = node.name.partition(" of ")
        if of:
            rows.setdefault(row, []).append(float(node.texts[0]))
    return rows


def test_recurrence_and_a_causal_mask_know_the_order() -> None:
    rnn = changes(analyses.permutation(translating(recurrent(), SOURCE, TARGET)))
    assert [*rnn] == ["with positions"] and max(rnn["with positions"]) > 0
    masked = analyses.permutation(language(language_model(position=NoPosition.Config()), TEXT))
    assert max(changes(masked)["with positions"]) > 0


def test_states_are_those_of_the_cells_in_reading_order() -> None:
    config = RecurrentEncoder.Config(
        embedding_size=8, hidden_size=6, num_layers=2, bidirectional=True, cell=LSTMCell.Config()
    )
    encoder = config.build(Tokens(20)).eval()
    with torch.no_grad(), stages_by_name(encoder, Cell) as result:
        values = encoder(SOURCE[None]).values
    names = [f"stack.layers.{layer}.{method}.cell" for layer in range(2) for method in range(2)]
    assert sorted(result) == names
    forth, back = (over_steps(result[f"stack.layers.1.{n}.cell"]["state"]) for n in range(2))
    back = back.flip(1)
    close(torch.cat((forth, back), -1), values, terms=ROW)
    assert [backwards(name) for name in names] == [False, True, False, True]
    view = analyses.states(forth[0].numpy(), ["a", "b", "c", "d"], "encoder")
    path, shares = analyses.principal(forth[0].numpy())
    distances = np.linalg.norm(forth[0, :-1] - forth[0, 1:], axis=-1)
    close(np.linalg.norm(np.diff(path, axis=0), axis=-1), distances)
    np.testing.assert_array_equal(np.stack([view.x, view.curves[0].y], axis=1), path[:, :2])
    assert view.labels == ["a", "b", "c", "d"] and f"{shares[0]:.0%}" in view.across
    with pytest.raises(UserError, match="1 states: a path needs two"):
        analyses.states(forth[0, :1].numpy(), ["a"])


def test_principal_components_of_a_line_are_the_line() -> None:
    path, shares = analyses.principal(1 + np.outer(np.arange(5.0), [3, 4, 0]))
    np.testing.assert_allclose(np.abs(np.diff(path[:, 0])), 5, atol=1e-9)
    np.testing.assert_allclose(shares, [1, 0, 0], atol=1e-9)


class Bowl(nn.Module):
    """L(W) = ½ ‖W‖²: its surface is known."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.ones(3))

    def loss(self) -> float:
        return float(self.weight.square().sum() / 2)


def test_the_surface_of_a_bowl_is_a_paraboloid() -> None:
    model = Bowl()
    weight = model.weight.detach().clone()
    result = surface(model, model.loss, steps=5, reach=0.5, seed=4)
    assert torch.equal(model.weight, weight)
    random = torch.Generator().manual_seed(4)
    (item, still), (other, _) = direction(model, random), direction(model, random)
    close(item.norm(dim=1), model.weight.norm(dim=1))  # as long as the filters
    assert not still.any()
    for row, beta in enumerate(np.linspace(-0.5, 0.5, 5)):
        for column, alpha in enumerate(np.linspace(-0.5, 0.5, 5)):
            expected = float((weight + alpha * item + beta * other).square().sum() / 2)
            assert result[row, column] == near(expected, terms=MODEL)
    view = analyses.surfaces({"bowl": result, "flat": np.full((5, 5), result[2, 2])}, reach=0.5)
    values = view.sheets[0].values.array
    np.testing.assert_allclose(values, np.log10(result / result.min()), atol=1e-9)
    first, second = view.sheets
    assert (first.least, first.most) == (second.least, second.most)
    assert "50 runs" in view.caption
    with pytest.raises(ZeroDivisionError):
        surface(model, lambda: 1 / 0, steps=3)
    assert torch.equal(model.weight, weight)  # after an error too


def test_labels_of_near_points_stand_apart() -> None:
    """Two points fall together; each label is at a corner of its own."""
    chart = line_chart([0, 9, 4, 4.05], {"size": [0, 0, 5, 5.05]}, labels=["a", "b", "livre", "un"])
    figure = chart.model_copy(update={"named": True}).figure()
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert not boxes[2].overlaps(boxes[3])


# ---- Gradients over time, and gates
IDS = torch.tensor([[4, 7, 5, 9, 6, 8]])
SMALL = {"hidden_size": 8, "dropout": 0.0}
NARROW = {"embedding_size": 8, "dropout": 0.0}


def decoder_of(cell: str, **inputs: Any) -> Decoder:
    config = {"cell": cell, "readout": "state", **SMALL, **NARROW, **inputs}
    return RecurrentDecoder.Config.parse(config).build(Tokens(10), None).eval()


def norms(decoder: Decoder) -> np.ndarray:
    return influence(lambda: decoder(IDS, None), decoder.stem)


def test_a_linear_map_is_heard_by_its_own_norm() -> None:
    stem, last = nn.Embedding(10, 4), nn.Linear(4, 3, bias=False)
    result = influence(lambda: last(stem(IDS)), stem, draws=2000)
    expected = float(last.weight.detach().square().sum() / 3) ** 0.5  # E ‖vᵀW‖² = ‖W‖² / D
    np.testing.assert_allclose(result.diagonal(), expected, rtol=0.1)
    assert (result[~np.eye(6, dtype=bool)] == 0).all()


def test_the_past_alone_is_heard_and_a_window_hears_no_further() -> None:
    window = WindowDecoder.Config.parse({"order": 3, **SMALL, **NARROW}).build(Tokens(10), None)
    whole = TransformerDecoder.Config.parse({"num_heads": 2, "num_layers": 1, **SMALL})
    decoders = (decoder_of("rnn"), window.eval(), whole.build(Tokens(10), None).eval())
    for decoder, reach in zip(decoders, (6, 2, 6), strict=True):
        distance = np.subtract.outer(np.arange(6), np.arange(6))
        heard = (distance >= 0) & (distance < reach)
        np.testing.assert_array_equal(norms(decoder) > 0, heard)


def test_elman_s_gradient_falls_by_a_factor_a_step_and_leaves_the_model_alone() -> None:
    decoder = decoder_of("rnn")
    before = decoder(IDS, None)
    g = by_distance(norms(decoder))
    assert (np.diff(g) < 0).all()
    assert torch.equal(decoder(IDS, None), before)
    assert not decoder.stem._forward_hooks
    close(analyses.gradients({"elman": norms(decoder)}).arrays()["elman"], g / g[0])


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_capturing_gates_changes_nothing(cell: str) -> None:
    decoder = decoder_of(cell, num_layers=2)
    plain = decoder(IDS, None)
    with stages_by_name(decoder, Cell) as result, torch.no_grad():
        seen = decoder(IDS, None)
    close(seen, plain)
    assert list(result) == ["cells.0", "cells.1"]
    assert all(gate.shape == (1, 6, 8) for gate in gates_of(result["cells.0"]).values())
    assert torch.equal(decoder(IDS, None), plain)  # the kernel is back


def test_the_picture_of_gates_shows_the_liveliest_units_over_the_words() -> None:
    still, lively = torch.full((1, 3, 5), 0.5), torch.full((1, 3, 5), 0.5)
    lively[0, :, 3] = torch.tensor([0.0, 1.0, 0.0])
    view = analyses.gates({"reset": still, "update": lively}, ["a", "b", "c"], units=1)
    assert [sheet.title for sheet in view.sheets] == ["reset gate", "update gate"]
    np.testing.assert_array_equal(view.sheets[1].values.array, [[0, 1, 0]])
    assert view.sheets[1].rows == ["3"]
    with pytest.raises(ValueError, match="no gates"):
        analyses.gates({}, [])


def test_numbers_remembered_are_those_that_were_given() -> None:
    state, module = DecoderState(), nn.Identity()
    for _ in range(3):
        state.grow(module, torch.zeros(1, 2, 1, 5), torch.zeros(1, 2, 1, 5))
    state.replace(module, (torch.zeros(1, 7),))
    state.cached(module, lambda: (torch.zeros(4),))
    assert state.numbers == 3 * 20 + 7 + 4
