"""Laws of recurrence: every cell, and what a decoder gets of the source by every bridge."""

from typing import Any

import pytest
import torch

from foveate.look.stages import gates_of, stages_by_name
from foveate.models.encoder_decoder import EncoderDecoder, Memory, Model
from foveate.models.presets import PRESETS
from foveate.models.recurrent import Bridge, StatesBridge
from foveate.nn.context import DecoderState
from foveate.nn.recurrent import Cell, GRUCell, LSTMCell, Recurrence, RecurrentStack
from laws.conftest import RECURRENT, TRANSFORMER, build, changed, defaults, each, ids, real
from tolerances import close, differ

SOURCE, TARGET, KEYS = ids(3, 6), ids(3, 5, seed=2), real(6, 4, 5)
LSTM: dict[str, Any] = {"cell": LSTMCell.Config(), "num_layers": 2}
READER, STATES = changed(RECURRENT[0], **LSTM), StatesBridge.Config()


def joined(bridge: Bridge.Config | None, reader: Any = READER, **fields: Any) -> Any:
    """A config of two layers of LSTM on each side, without attention."""
    decoder = changed(RECURRENT[1], **LSTM | {"attention": None, "bridge": bridge} | fields)
    return EncoderDecoder.Config(encoder=reader, decoder=decoder)


@pytest.mark.parametrize("config", [None, *defaults("bridge").values()], ids=str)
@torch.no_grad()
def test_nothing_else_of_the_source_is_known(config: Bridge.Config | None) -> None:
    model = build(joined(config))
    memory = model.encode(SOURCE, KEYS)
    other = Memory(torch.full_like(memory.values, torch.nan), KEYS, memory.final)
    assert torch.equal(model.decode(TARGET, memory), model.decode(TARGET, other))


def test_without_a_bridge_nothing_has_changed() -> None:
    config = joined(None)
    assert "bridge" not in config.decoder.tree()
    model = build(config)
    names = {n for n in model.state_dict() if n.startswith("decoder.bridge")}
    assert names == {"decoder.bridge.weight", "decoder.bridge.bias"}
    decoder, memory = model.decoder, model.encode(SOURCE, KEYS)
    first = torch.tanh(decoder.bridge(memory.final[-1][0])).split(16, dim=-1)
    state = DecoderState()
    state.replace(decoder, first)
    assert torch.equal(model.decode(TARGET, memory, state), model.decode(TARGET, memory))


def test_states_that_an_encoder_does_not_have_are_refused() -> None:
    others = changed(READER, num_layers=1), changed(READER, cell=GRUCell.Config()), TRANSFORMER[0]
    for reader in others:
        with pytest.raises(ValueError, match=r"num_layers = 2 .* 2 states .* encoder\.num_layers"):
            build(joined(STATES, reader))


def test_presets_hand_over_as_their_papers_and_earlier_runs_as_before() -> None:
    for preset, bridge in ((PRESETS["sutskever-2014"], "states"), (PRESETS["cho-2014"], "summary")):
        tree = preset().tree()
        assert tree["decoder"].pop("bridge") == {"kind": bridge}
        assert Model.Config.parse(tree) == preset(decoder=changed(preset().decoder, bridge=None))


@each("bridge")
@torch.no_grad()
def test_views_of_cells_take_every_bridge(config: Bridge.Config) -> None:
    model = build(joined(config))
    plain = model(SOURCE, TARGET, KEYS)
    with stages_by_name(model, Cell) as cells:
        close(model(SOURCE, TARGET, KEYS), plain)
    assert gates_of(cells["decoder.cells.1"])["forget"].shape == (3, 5, 16)


@each("cell")
def test_backwards_is_forwards_over_the_reverse(config: Cell.Config) -> None:
    recurrence, x = Recurrence(config.build(5, 8)), torch.randn(3, 7, 5)
    outputs, final = recurrence(x, backwards=True)
    mirrored, last = recurrence(x.flip(1))
    close(outputs, mirrored.flip(1))
    close(final, last)


@pytest.mark.parametrize("directions", [1, 2], ids=["forwards", "both ways"])
@each("cell")
def test_padding_changes_nothing(config: Cell.Config, directions: int) -> None:
    layers = RecurrentStack(config, 5, 8, num_layers=2, directions=directions).eval()
    x, lengths = torch.randn(2, 7, 5), (7, 4)
    keys = real(*lengths)
    (outputs, final), (others, changed) = (
        layers(read, keys) for read in (x, x.masked_fill(~keys[..., None], 1e3))
    )
    assert torch.equal(outputs[keys], others[keys])
    for row, length in enumerate(lengths):
        alone, last = layers(x[row : row + 1, :length])
        close(outputs[row : row + 1, :length], alone)
        for hidden, other, own in zip(final, changed, last, strict=True):
            assert all(map(torch.equal, hidden, other))
            close([part[row : row + 1] for part in hidden], list(own))
        if directions == 1:
            assert torch.equal(final[-1][0][row], outputs[row, length - 1])


@each("cell")
def test_dropout_stands_between_layers(config: Cell.Config) -> None:
    x = torch.randn(2, 7, 5)
    item, two = (RecurrentStack(config, 5, 8, layers, dropout=0.5) for layers in (1, 2))
    assert torch.equal(item(x)[0], item(x)[0])
    assert differ(two(x)[0], two(x)[0])
    assert torch.equal(two.eval()(x)[0], two(x)[0])
