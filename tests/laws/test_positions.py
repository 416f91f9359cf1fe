"""Laws of position encodings, over every kind."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from foveate.models.transformer import TransformerEncoder
from foveate.nn.mask import Mask
from foveate.nn.position import Learned, NoPosition, Position, Rotary, Sinusoidal
from foveate.nn.state import State
from foveate.spec import Tokens
from laws.conftest import SIZE, TRANSFORMER, changed, defaults, each, ids

HEADS = 4
AT = torch.arange(9)
TELLING = {n: c for n, c in defaults("position").items() if not isinstance(c, NoPosition.Config)}


def built(config: Position.Config, size: int = SIZE, heads: int = HEADS) -> Position:
    torch.manual_seed(0)
    position: Position = config.build(size, heads)
    return position


def encoder(config: Position.Config) -> TransformerEncoder:
    torch.manual_seed(0)
    made: TransformerEncoder = changed(TRANSFORMER[0], position=config).build(Tokens(30))
    return made.eval()


@each("position")
def test_the_three_doors_keep_shapes(config: Position.Config) -> None:
    position = built(config)
    x, heads = torch.randn(2, 9, SIZE), torch.randn(2, HEADS, 9, SIZE // HEADS)
    assert position.embed(x, AT).shape == x.shape
    assert position.rotate(heads, AT).shape == heads.shape
    bias = position.bias(AT[4:], AT)
    assert bias is None or bias.shape == (HEADS, 5, 9)


@each("position")
def test_a_place_is_the_same_wherever_reading_begins(config: Position.Config) -> None:
    position = built(config)
    x, heads = torch.randn(2, 9, SIZE), torch.randn(2, HEADS, 9, SIZE // HEADS)
    for start in range(9):
        late = AT[start:]
        assert torch.equal(position.embed(x, AT)[:, start:], position.embed(x[:, start:], late))
        turned = position.rotate(heads, AT)[:, :, start:]
        assert torch.equal(turned, position.rotate(heads[:, :, start:], late))
        bias = position.bias(AT, AT)
        if bias is not None:
            late_bias = position.bias(late, AT)
            assert late_bias is not None
            assert torch.equal(bias[:, start:], late_bias)


def test_without_position_an_encoder_sees_a_bag_of_words() -> None:
    source, order = ids(2, 7), torch.randperm(7)
    model = encoder(NoPosition.Config())
    pooled, other = (model(s).values.mean(dim=1) for s in (source, source[:, order]))
    torch.testing.assert_close(pooled, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("config", TELLING.values(), ids=TELLING)
def test_with_a_position_it_sees_an_order(config: Position.Config) -> None:
    source = torch.arange(4, 11)[None]
    model = encoder(config)
    pooled, other = (model(s).values.mean(dim=1) for s in (source, source.flip(1)))
    assert float((pooled - other).detach().abs().max()) > 1e-3


@each("position")
def test_every_parameter_receives_a_gradient(config: Position.Config) -> None:
    model = encoder(config)
    model(ids(2, 24)).values.square().sum().backward()
    for name, parameter in model.position.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.any()), name


def scores(position: Position, query: Tensor, key: Tensor, shift: int) -> Tensor:
    at = AT + shift
    return position.rotate(query, at) @ position.rotate(key, at).mT


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    position = built(Rotary.Config(), 32, 2)
    query, key = torch.randn(2, 1, 2, 9, 16).unbind(0)
    near, far = (scores(position, query, key, shift) for shift in (0, 100))
    torch.testing.assert_close(near, far, atol=1e-4, rtol=1e-4)
    same = torch.ones(1, 1, 9, 16)
    by_distance = scores(position, same, same, 0)[0, 0]
    for distance in range(-8, 9):
        diagonal = by_distance.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-4, rtol=0)
    assert float(by_distance[0].std()) > 0.1, "distances are told apart"


def test_rotary_turns_and_does_not_stretch() -> None:
    x = torch.randn(2, HEADS, 9, 4)
    turned = built(Rotary.Config()).rotate(x, AT)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(turned[:, :, 0], x[:, :, 0])


def test_rotary_refuses_odd_heads() -> None:
    with pytest.raises(ValueError, match=r"12 / 4 must be even"):
        Rotary.Config().build(12, 4)


@pytest.mark.parametrize("size", [1, 7, 16])
def test_sinusoidal_fits_every_size(size: int) -> None:
    position = Sinusoidal.Config().build(size, 1)
    encoding = position.encode(AT, size)
    assert encoding.shape == (9, size)
    assert len(torch.unique(encoding, dim=0)) == 9


def test_learned_refuses_a_place_past_its_limit() -> None:
    position = Learned.Config(max_length=8).build(SIZE, HEADS)
    x = torch.zeros(1, 8, SIZE)
    assert position.embed(x, AT[:8]).shape == x.shape
    with pytest.raises(ValueError, match=r"place 8 .*max_length = 8"):
        position.embed(torch.zeros(1, 9, SIZE), AT)


def test_a_model_refuses_it_step_by_step_as_well() -> None:
    config = changed(TRANSFORMER[1], position=Learned.Config(max_length=3))
    decoder = config.build(Tokens(30), SIZE).eval()
    memory, state = encoder(NoPosition.Config())(ids(1, 4)), State()
    for step in range(3):
        decoder(ids(1, 3)[:, step : step + 1], memory, state)
    with pytest.raises(ValueError, match="max_length = 3"):
        decoder(ids(1, 1), memory, state)


@each("position")
def test_positions_count_from_the_state(config: Position.Config) -> None:
    """Attention in two chunks sees the same places as attention at once."""
    attention = TRANSFORMER[0].attention.model_copy(update={"num_heads": HEADS}).build(SIZE).eval()
    position, x, state = built(config), torch.randn(2, 9, SIZE), State()
    whole = attention(x, mask=Mask(causal=True), position=position)
    first = attention(x[:, :4], None, Mask(causal=True), state, position)
    state.position += 4
    last = attention(x[:, 4:], None, Mask(causal=True), state, position)
    torch.testing.assert_close(torch.cat((first, last), dim=1), whole, atol=1e-5, rtol=1e-5)
