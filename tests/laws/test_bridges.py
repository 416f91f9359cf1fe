"""Laws of bridges: what a recurrent decoder gets of the source, and when."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from foveate.look.stages import capture_cells
from foveate.models.encoder_decoder import EncoderDecoder, Memory, Model
from foveate.models.presets import PRESETS
from foveate.models.recurrent import Bridge, RecurrentDecoder, StatesBridge
from foveate.nn.context import DecoderState
from foveate.nn.recurrent import GRUCell, LSTMCell
from foveate.nn.spec import Tokens
from laws.conftest import RECURRENT, TRANSFORMER, build, changed, defaults, each, ids, real
from laws.test_learning import VOCABULARY, learn, loss_of, words
from tolerances import close

SOURCE, TARGET, KEYS = ids(3, 6), ids(3, 5, seed=2), real(6, 4, 5)
LSTM: dict[str, Any] = {"cell": LSTMCell.Config(), "num_layers": 2}
READER = changed(RECURRENT[0], **LSTM)


def joined(bridge: Bridge.Config | None, reader: Any = READER, **fields: Any) -> Any:
    """A config of two layers of LSTM on each side, without attention."""
    decoder = changed(RECURRENT[1], **LSTM | {"attention": None, "bridge": bridge} | fields)
    return EncoderDecoder.Config(encoder=reader, decoder=decoder)


def which_states_matter(model: EncoderDecoder) -> list[list[bool]]:
    """Of each layer's h and c: whether the decoder's answer changes with it."""
    memory = model.encode(SOURCE, KEYS)
    before = model.decode(TARGET, memory)
    assert memory.final is not None

    def matters(layer: int, part: int) -> bool:
        final = [list(hidden) for hidden in memory.final or ()]
        final[layer][part] = final[layer][part] + 1
        changed_memory = Memory(memory.values, KEYS, [tuple(hidden) for hidden in final])
        return not torch.equal(model.decode(TARGET, changed_memory), before)

    return [[matters(layer, part) for part in (0, 1)] for layer in range(len(memory.final))]


@torch.no_grad()
def test_all_states_are_handed_over_or_the_top_layers_h_alone() -> None:
    assert which_states_matter(build(joined(StatesBridge.Config()))) == [[True, True]] * 2
    for other in (None, defaults("bridge")["summary"]):
        assert which_states_matter(build(joined(other))) == [[False, False], [True, False]]


@each("bridge")
@torch.no_grad()
def test_nothing_else_of_the_source_is_known(config: Bridge.Config) -> None:
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
    assert isinstance(decoder, RecurrentDecoder) and memory.final is not None
    first = torch.tanh(decoder.bridge(memory.final[-1][0])).split(16, dim=-1)
    state = DecoderState()
    state.replace(decoder, first)
    assert torch.equal(model.decode(TARGET, memory, state), model.decode(TARGET, memory))


STATES = StatesBridge.Config()


@pytest.mark.parametrize(
    "make",
    [
        lambda: joined(STATES, changed(READER, num_layers=1)),
        lambda: joined(STATES, changed(READER, cell=GRUCell.Config())),
        lambda: joined(STATES, TRANSFORMER[0]),
    ],
    ids=["layers", "cell", "transformer"],
)
def test_states_that_an_encoder_does_not_have_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"num_layers = 2 .* 2 states .* encoder\.num_layers"):
        build(make())


def test_a_language_model_has_no_bridge() -> None:
    decoder = changed(RECURRENT[1], attention=None, bridge=STATES)
    with pytest.raises(ValueError, match="language model has no source"):
        decoder.build(Tokens(30), None)


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
    with capture_cells(model) as cells:
        close(model(SOURCE, TARGET, KEYS), plain)
    assert cells["decoder.cells.1"].gates["forget"].shape == (3, 5, 16)


def test_an_lstm_learns_faster_from_h_and_c_than_from_h() -> None:
    losses = []
    sizes = {"num_layers": 1, "hidden_size": 32, "embedding_size": 32}
    reader = changed(READER, bidirectional=False, **sizes)
    for bridge in (None, STATES):
        torch.manual_seed(1)
        model = joined(bridge, reader, **sizes).build(Tokens(VOCABULARY), Tokens(VOCABULARY))
        learn(model, backwards=True, steps=100, rate=1e-2, longest=3)
        source = words(256, 3)
        with torch.no_grad():
            loss = loss_of(model, source, source.flip(1))
        losses.append(float(loss.total / loss.count))
    assert losses[1] < 0.9 * losses[0]
