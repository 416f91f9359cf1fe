"""Laws of position encodings, over every kind."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from foveate.errors import UserError
from foveate.models.transformer import TransformerEncoder
from foveate.nn.attention import Attention
from foveate.nn.context import DecoderState
from foveate.nn.more_positions import ALiBi, Llama3Rotary
from foveate.nn.positions import Position, Rotary, Sinusoidal
from foveate.nn.spec import Tokens
from laws.conftest import SIZE, TRANSFORMER, changed, each, ids
from tolerances import close, rounding

HEADS = 4
AT = torch.arange(9)


def encoder(config: Position.Config) -> TransformerEncoder:
    torch.manual_seed(0)
    return changed(TRANSFORMER[0], position=config).build(Tokens(30)).eval()


@pytest.mark.parametrize("size", [SIZE, 7, 1])
def test_sinusoids_are_those_of_the_paper(size: int) -> None:
    """PE(t, 2i) = sin(t / 10000^(2i/D)), PE(t, 2i + 1) = cos of it (Vaswani et al., 2017)."""
    encoding = Sinusoidal(Sinusoidal.Config(), size, 1).encode(AT, size)
    even = size + size % 2
    for t, row in enumerate(encoding.tolist()):
        for column, value in enumerate(row):
            angle = t / 10_000 ** (column // 2 * 2 / even)
            wave = math.cos(angle) if column % 2 else math.sin(angle)
            assert value == pytest.approx(wave, abs=1e-5)


@torch.no_grad()
def pooled(config: Position.Config, source: Tensor) -> Tensor:
    """The mean of what an encoder leaves, which is all that a classifier may look at."""
    return encoder(config)(source).values.mean(dim=1)


@each("position")
def test_which_encodings_tell_orders_apart(config: Position.Config) -> None:
    """Distances alone do not say which of two words comes first: in an encoder, where nothing is
    masked, a sentence read backwards is the same to ALiBi.
    """
    source = torch.tensor([[4, 5, 6, 7, 4, 8]])  # the sun rises in the east
    orders = {"mixed": source[:, [0, 5, 3, 4, 1, 2]], "mirrored": source.flip(1)}
    blind = {"none": ["mixed", "mirrored"], "alibi": ["mirrored"]}.get(config.kind or "", [])
    for name, other in orders.items():
        difference = float((pooled(config, source) - pooled(config, other)).abs().max())
        assert difference < rounding() if name in blind else difference > 1e-3, name


@torch.no_grad()
@each("position")
def test_positions_run_past_the_trained_length(config: Position.Config) -> None:
    """24 is the longest that is trained; what comes later leaves the numbers sound."""
    decoder = changed(TRANSFORMER[1], position=config).build(Tokens(30), None).eval()
    read = ids(2, 100)
    if config.kind == "learned":  # by a table of places, at once and step by step
        decoder(read[:, :24], None, state := DecoderState())
        for more in ((read, None), (read[:, :1], None, state)):
            with pytest.raises(ValueError, match="max_length = 24"):
                decoder(*more)
        return
    out, short = decoder(read, None), decoder(read[:, :24], None)
    assert bool(out.isfinite().all())
    close(out[:, :24], short)


def test_slow_pairs_turn_less_than_fast_ones() -> None:
    with pytest.raises(UserError, match=r"position\.low = 4 must be less than high = 4"):
        Llama3Rotary.Config(low=4.0).build(SIZE, HEADS)


@pytest.mark.parametrize(
    ("heads", "powers"),
    [(8, range(1, 9)), (12, [*range(1, 9), 0.5, 1.5, 2.5, 3.5])],  # of 16 every second one
)
def test_alibi_adds_the_slopes_of_its_paper(heads: int, powers: Sequence[float]) -> None:
    """1/2, 1/4, … 1/256 for 8 heads (Press et al., 2022)."""
    bias = ALiBi.Config().build(12, heads).bias(AT, AT)
    distance = (AT[:, None] - AT).abs()
    close(bias, torch.stack([-(2.0**-power) * distance for power in powers]))


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
