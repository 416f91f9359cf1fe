"""Gradients over time and gates: numbers that can be computed otherwise, and models left alone."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from foveate.look.draw.analyses import gates, gradients
from foveate.look.relevance import by_distance, influence
from foveate.look.stages import gates_of, stages_by_name
from foveate.models.classic import WindowDecoder
from foveate.models.encoder_decoder import Decoder
from foveate.models.recurrent import RecurrentDecoder
from foveate.models.transformer import TransformerDecoder
from foveate.nn.context import DecoderState
from foveate.nn.recurrent import Cell
from foveate.nn.spec import Tokens
from tolerances import close

IDS = torch.tensor([[4, 7, 5, 9, 6, 8]])
SMALL = {"hidden_size": 8, "dropout": 0.0}
NARROW = {"embedding_size": 8, "dropout": 0.0}


def recurrent(cell: str, **inputs: Any) -> Decoder:
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
    decoders = (recurrent("rnn"), window.eval(), whole.build(Tokens(10), None).eval())
    for decoder, reach in zip(decoders, (6, 2, 6), strict=True):
        distance = np.subtract.outer(np.arange(6), np.arange(6))
        heard = (distance >= 0) & (distance < reach)
        np.testing.assert_array_equal(norms(decoder) > 0, heard)


def test_elman_s_gradient_falls_by_a_factor_a_step_and_leaves_the_model_alone() -> None:
    decoder = recurrent("rnn")
    before = decoder(IDS, None)
    g = by_distance(norms(decoder))
    assert (np.diff(g) < 0).all()
    assert torch.equal(decoder(IDS, None), before)
    assert not decoder.stem._forward_hooks
    close(gradients({"elman": norms(decoder)}).arrays()["elman"], g / g[0])


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_capturing_gates_changes_nothing(cell: str) -> None:
    decoder = recurrent(cell, num_layers=2)
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
    view = gates({"reset": still, "update": lively}, ["a", "b", "c"], units=1)
    assert [sheet.title for sheet in view.sheets] == ["reset gate", "update gate"]
    np.testing.assert_array_equal(view.sheets[1].values.array, [[0, 1, 0]])
    assert view.sheets[1].rows == ["3"]
    with pytest.raises(ValueError, match="no gates"):
        gates({}, [])


def test_numbers_remembered_are_those_that_were_given() -> None:
    state, module = DecoderState(), nn.Identity()
    for _ in range(3):
        state.grow(module, torch.zeros(1, 2, 1, 5), torch.zeros(1, 2, 1, 5))
    state.replace(module, (torch.zeros(1, 7),))
    state.cached(module, lambda: (torch.zeros(4),))
    assert state.numbers == 3 * 20 + 7 + 4
