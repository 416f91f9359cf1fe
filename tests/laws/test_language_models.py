"""Laws of language models: every decoder that can stand alone, and every preset."""

from functools import cache
from typing import Any

import pytest
import torch

from foveate.models.classic import WindowDecoder
from foveate.models.language_model import LanguageModel
from foveate.models.recurrent import RecurrentDecoder
from foveate.nn.context import DecoderState
from foveate.nn.recurrent import LSTMCell
from foveate.nn.spec import Tokens
from laws.conftest import (
    VOCABULARY,
    check_future,
    check_saved,
    defaults,
    gradients_reach,
    ids,
    shrink,
)
from tolerances import MODEL, close

TEXT = ids(3, 9)
PLAIN = shrink(RecurrentDecoder.Config(num_layers=2, embedding_size=16, readout="state"))


def _models() -> dict[str, LanguageModel.Config]:
    known = defaults("decoder").items()
    decoders: dict[str, Any] = {n: c for n, c in known if n != "location"}
    for name, cell in defaults("cell").items():
        size = {"cell": cell, "embedding_size": PLAIN.hidden_size}
        decoders[f"{name}, plain"] = PLAIN.model_copy(update=size)
    result = {name: LanguageModel.Config(decoder=config) for name, config in decoders.items()}
    presets = {n: c for n, c in defaults("model").items() if issubclass(c.owner, LanguageModel)}
    return result | {name: _level(config) for name, config in presets.items()}


def _level(config: Any) -> Any:
    """A small preset whose read-out is the state needs an embedding of the state's size."""
    decoder = config.decoder
    if getattr(decoder, "readout", "mixed") == "mixed":
        return config
    level = decoder.model_copy(update={"embedding_size": decoder.hidden_size})
    return config.model_copy(update={"decoder": level})


MODELS = _models()


def build(config: LanguageModel.Config, seed: int = 0) -> LanguageModel:
    torch.manual_seed(seed)
    model: LanguageModel = config.build(Tokens(VOCABULARY)).eval()
    return model


@cache
def _built(name: str) -> LanguageModel:
    return build(MODELS[name])


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> LanguageModel:
    made = _built(request.param)
    made.zero_grad()
    return made


@torch.no_grad()
def test_whole_equals_step_by_step_equals_chunks(model: LanguageModel) -> None:
    whole = model.decode(TEXT)
    for chunks in ([1] * 9, [4, 5], [1, 8], [6, 1, 1, 1]):
        state = DecoderState()
        parts = [model.decode(part, state=state) for part in TEXT.split(chunks, dim=1)]
        close(torch.cat(parts, dim=1), whole)
        assert state.position == 9


@torch.no_grad()
def test_the_future_leaves_the_past_bit_equal(model: LanguageModel) -> None:
    check_future(model, TEXT, 5)


@torch.no_grad()
def test_what_is_padded_on_the_right_changes_nothing(model: LanguageModel) -> None:
    padded = torch.cat((TEXT, torch.ones_like(TEXT)), dim=1)
    close(model(padded)[:, :9], model(TEXT))


@torch.no_grad()
def test_rows_do_not_see_each_other(model: LanguageModel) -> None:
    rows = torch.tensor([2, 0, 1])
    close(model(TEXT[rows]), model(TEXT)[rows])


@torch.no_grad()
def test_memory_is_constant_where_a_decoder_says_so(model: LanguageModel) -> None:
    state, sizes = DecoderState(), []
    for part in ids(1, 24).split(8, dim=1):
        model.decode(part, state=state)
        swapped = sum(t.numel() for parts in state._current.values() for t in parts)
        sizes.append((swapped, len(state._grown)))
    assert (len(set(sizes)) == 1 and not state._grown) == model.decoder.constant_memory


def test_every_parameter_receives_a_gradient(model: LanguageModel) -> None:
    model(ids(2, 24)).square().sum().backward()
    gradients_reach(model)


def test_saved_and_loaded_weights_give_the_same_output(model: LanguageModel, tmp_path) -> None:
    check_saved(model, build(model.config, seed=1), tmp_path, TEXT)


@torch.no_grad()
@pytest.mark.parametrize("order", [2, 3, 5])
def test_a_window_of_n_sees_n_minus_1_tokens(order: int) -> None:
    """Changing any older token leaves the prediction bit-identical; the oldest seen changes it."""
    config = shrink(WindowDecoder.Config()).model_copy(update={"order": order})
    model = build(LanguageModel.Config(decoder=config))
    before, last = model(TEXT)[:, -1], TEXT.shape[1] - 1
    for place in range(TEXT.shape[1]):
        other = TEXT.clone()
        other[:, place] = 4 + (other[:, place] - 3) % (VOCABULARY - 4)
        seen = place > last - (order - 1)
        assert torch.equal(model(other)[:, -1], before) == (not seen), place


def test_a_window_has_no_place_for_a_source() -> None:
    with pytest.raises(ValueError, match="reads only its own output"):
        WindowDecoder.Config().build(Tokens(9), 8)


def test_a_plain_readout_has_no_place_for_a_context() -> None:
    from foveate.models.recurrent import RecurrentAttention

    config = RecurrentDecoder.Config(attention=RecurrentAttention(), readout="state")
    with pytest.raises(ValueError, match='use "mixed"'):
        config.build(Tokens(9), 8)


@torch.no_grad()
def test_a_forget_gate_near_one_keeps_the_cell_over_100_steps() -> None:
    """With f ≈ 1 and i ≈ 0 whatever is read, c stays; with f = 1/2 it is gone."""
    cell = LSTMCell.Config().build(4, 6)
    cell.weight_ih.zero_()
    cell.weight_hh.zero_()
    cell.bias_hh.zero_()
    start = torch.randn(2, 6)
    for forget, saved in ((20.0, 1.0), (0.0, 0.0)):
        cell.bias_ih.copy_(torch.tensor([-20.0, forget, 0.0, 0.0]).repeat_interleave(6))
        _, (_, after) = cell.run(torch.randn(2, 100, 4), (torch.zeros(2, 6), start))
        close(after, saved * start, terms=MODEL)


def test_the_fused_lstm_is_the_explicit_one() -> None:
    """Outputs, last states and every gradient."""
    cell, x = LSTMCell.Config().build(5, 6), torch.randn(3, 7, 5, requires_grad=True)
    hidden = torch.randn(3, 6), torch.randn(3, 6)
    result = []
    for run in (cell.run, super(LSTMCell, cell).run):
        outputs, last = run(x, hidden)
        expected = [x, *cell.parameters()]
        grads = torch.autograd.grad(outputs.square().sum() + last[1].sum(), expected)
        result.append([outputs, *last, *grads])
    close(result[0], result[1], terms=MODEL)
