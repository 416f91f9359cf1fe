"""Laws of position encodings, over every kind."""

import math

import pytest
import torch
from torch import Tensor

from foveate.errors import UserError
from foveate.models.transformer import TransformerEncoder
from foveate.nn.attention import Attention
from foveate.nn.context import DecoderState, Mask
from foveate.nn.more_positions import ALiBi, Concatenated, LinearRotary, Llama3Rotary
from foveate.nn.positions import Learned, NoPosition, Position, Rotary, Sinusoidal
from foveate.nn.scores import Dot
from foveate.nn.spec import Tokens
from laws.conftest import SIZE, TRANSFORMER, changed, defaults, each, ids, keeps_laws, weights_of
from tolerances import MODEL, close, rounding

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
def test_laws_of_positions(config: Position.Config) -> None:
    keeps_laws(config)


@pytest.mark.parametrize("size", [SIZE, SIZE - 1])
def test_sinusoids_are_those_of_the_paper(size: int) -> None:
    """PE(t, 2i) = sin(t / 10000^(2i/D)), PE(t, 2i + 1) = cos of it (Vaswani et al., 2017)."""
    encoding = Sinusoidal(Sinusoidal.Config(), size, 1).encode(AT, size)
    even = size + size % 2
    for t, row in enumerate(encoding.tolist()):
        for column, value in enumerate(row):
            angle = t / 10_000 ** (column // 2 * 2 / even)
            wave = math.cos(angle) if column % 2 else math.sin(angle)
            assert value == pytest.approx(wave, abs=1e-5)


SENTENCE = torch.tensor([[4, 5, 6, 7, 4, 8]])  # the sun rises in the east
MIXED = torch.tensor([[4, 8, 7, 4, 5, 6]])  # the east in the sun rises


@torch.no_grad()
def pooled(config: Position.Config, source: Tensor) -> Tensor:
    """The mean of what an encoder leaves, which is all that a classifier may look at."""
    return encoder(config)(source).values.mean(dim=1)


def test_without_position_an_encoder_sees_a_bag_of_words() -> None:
    result = pooled(NoPosition.Config(), SENTENCE)
    close(pooled(NoPosition.Config(), MIXED), result)
    source, order = ids(2, 7), torch.randperm(7)
    item, other = (pooled(NoPosition.Config(), s) for s in (source, source[:, order]))
    close(item, other)


@pytest.mark.parametrize("config", TELLING.values(), ids=TELLING)
def test_with_a_position_it_sees_an_order(config: Position.Config) -> None:
    difference = pooled(config, SENTENCE) - pooled(config, MIXED)
    assert float(difference.abs().max()) > 1e-3


# distances alone do not say which of two words comes first: in an encoder, where nothing is masked,
# a sentence read backwards is the same to these
MIRROR_BLIND = {"none", "alibi"}


@each("position")
def test_which_encodings_tell_a_sentence_from_its_mirror_image(config: Position.Config) -> None:
    source = torch.arange(4, 11)[None]
    difference = float((pooled(config, source) - pooled(config, source.flip(1))).abs().max())
    assert (difference < rounding()) == (config.kind in MIRROR_BLIND)


ENDING = {"learned"}  # by a table of places


@torch.no_grad()
@each("position")
def test_positions_run_past_the_trained_length(config: Position.Config) -> None:
    """24 is the longest that is trained; what comes later leaves the numbers sound."""
    decoder = changed(TRANSFORMER[1], position=config).build(Tokens(30), None).eval()
    read = ids(2, 100)
    if config.kind in ENDING:
        with pytest.raises(ValueError, match="24"):
            decoder(read, None)
        return
    out, short = decoder(read, None), decoder(read[:, :24], None)
    assert bool(out.isfinite().all())
    close(out[:, :24], short)


def test_a_stretched_rotation_turns_as_a_shorter_one() -> None:
    """At 8 t by an eighth of the angle; a pair of Llama 3 that is slow as well, a fast one not."""
    x, plain = torch.randn(1, 1, len(AT), 8), built(Rotary.Config(), 8, 1)
    linear = built(LinearRotary.Config(factor=8.0), 8, 1)
    close(linear.rotate(x, 8 * AT), plain.rotate(x, AT))
    slow = built(Llama3Rotary.Config(base=10.0, factor=8.0, length=1), 8, 1)
    close(slow.rotate(x, 8 * AT), plain_of(10.0).rotate(x, AT))
    fast = built(Llama3Rotary.Config(base=10.0, length=10**6), 8, 1)
    close(fast.rotate(x, AT), plain_of(10.0).rotate(x, AT))


def plain_of(base: float) -> Position:
    return built(Rotary.Config(base=base), 8, 1)


def test_slow_pairs_turn_less_than_fast_ones() -> None:
    with pytest.raises(UserError, match=r"position\.low = 4 must be less than high = 4"):
        Llama3Rotary.Config(low=4.0).build(SIZE, HEADS)


def test_alibi_adds_a_slope_of_distance() -> None:
    bias = built(ALiBi.Config(), heads=8).bias(AT, AT)
    assert bias is not None
    slopes = [1 / 2**h for h in range(1, 9)]  # Press et al., 2022: 1/2, 1/4, … 1/256
    for head, slope in enumerate(slopes):
        for query, key in ((0, 0), (5, 3), (8, 0), (2, 7)):
            assert float(bias[head, query, key]) == -slope * abs(query - key)


def test_alibi_of_heads_that_are_no_power_of_two() -> None:
    """Those of 8 heads, and of 16 every second one, as in the authors' code."""
    slopes = built(ALiBi.Config(), 12, 12).slopes
    expected = [2.0**-h for h in range(1, 9)] + [2.0**-h for h in (0.5, 1.5, 2.5, 3.5)]
    close(slopes, torch.tensor(expected))


def test_alibi_prefers_what_is_near() -> None:
    """With equal content the weights fall with distance, by the same factor at any place."""
    attention = Attention.Config(num_heads=4, score=Dot.Config()).build(SIZE).eval()
    position = built(ALiBi.Config())
    same = torch.randn(1, 1, SIZE).expand(1, 300, SIZE)
    with torch.no_grad():
        weights = weights_of(attention, same, None, Mask(causal=True), None, position)
    ratio = weights[0, :, 299, 1:] / weights[0, :, 299, :-1]
    expected = position.slopes.exp()[:, None].expand(-1, 299)
    seen = weights[0, :, 299, :-1] > 1e-30
    torch.testing.assert_close(ratio[seen], expected[seen], rtol=1e-3, atol=0)


SIZES = [(24, 8, 4), (24, 8, None), (32, 4, 5), (32, 4, None), (24, 4, 6), (30, 2, None), (7, 1, 2)]


@torch.no_grad()
@pytest.mark.parametrize(("hidden_size", "num_heads", "head_size"), SIZES)
@pytest.mark.parametrize("which", [0, 1], ids=["encoder", "decoder"])
def test_rope_needs_an_even_head_size(
    which: int, hidden_size: int, num_heads: int, head_size: int | None
) -> None:
    """It is that of the attention, and only D/H where the attention has none."""
    attention = Attention.Config(head_size=head_size)
    sizes = {"hidden_size": hidden_size, "num_heads": num_heads, "attention": attention}
    config = changed(TRANSFORMER[which], position=Rotary.Config(), **sizes)
    given = () if which == 0 else (None,)
    size = head_size or hidden_size // num_heads
    if size % 2:
        with pytest.raises(UserError, match=rf"head size {size} must be even"):
            config.build(Tokens(30), *given)
    else:
        out = config.build(Tokens(30), *given).eval()(ids(2, 7), *given)
        assert (out.values if which == 0 else out).shape == (2, 7, hidden_size)


def test_concatenated_is_a_map_of_both() -> None:
    position, x = built(Concatenated.Config(size=6)), torch.randn(2, 9, SIZE)
    encoding = Sinusoidal.Config().build(6, 1).encode(AT, 6).expand(2, -1, -1)
    expected = position.join(torch.cat((x, encoding), dim=-1))
    close(position.embed(x, AT), expected)


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
    close(near, far, terms=MODEL)
    same = torch.ones(1, 1, 9, 16)
    by_distance = scores(position, same, same, 0)[0, 0]
    for distance in range(-8, 9):
        diagonal = by_distance.diagonal(distance)
        close(diagonal, diagonal[:1].expand_as(diagonal), terms=MODEL)
    assert float(by_distance[0].std()) > 0.1, "distances are told apart"


def test_rotary_refuses_odd_heads() -> None:
    with pytest.raises(ValueError, match=r"head size 3 must be even"):
        Rotary.Config().build(12, 4).rotate(torch.zeros(1, 4, 2, 3), torch.arange(2))


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
    with pytest.raises(ValueError, match=r"position 8 .*max_length = 8"):
        position.embed(torch.zeros(1, 9, SIZE), AT)


def test_a_model_refuses_it_step_by_step_as_well() -> None:
    config = changed(TRANSFORMER[1], position=Learned.Config(max_length=3))
    decoder = config.build(Tokens(30), SIZE).eval()
    memory, state = encoder(NoPosition.Config())(ids(1, 4)), DecoderState()
    for step in range(3):
        decoder(ids(1, 3)[:, step : step + 1], memory, state)
    with pytest.raises(ValueError, match="max_length = 3"):
        decoder(ids(1, 1), memory, state)


@each("position")
def test_positions_count_from_the_state(config: Position.Config) -> None:
    """Attention in two chunks sees the same places as attention at once."""
    attention = TRANSFORMER[0].attention.model_copy(update={"num_heads": HEADS}).build(SIZE).eval()
    position, x, state = built(config), torch.randn(2, 9, SIZE), DecoderState()
    whole = attention(x, mask=Mask(causal=True), position=position)
    first = attention(x[:, :4], None, Mask(causal=True), state, position)
    state.position += 4
    last = attention(x[:, 4:], None, Mask(causal=True), state, position)
    close(torch.cat((first, last), dim=1), whole)
