"""Laws of recurrence, over every cell."""

import pytest
import torch

from foveate.measure.laws.layers import check_chunks
from foveate.nn.recurrent import Cell, LSTMCell, Recurrence, RecurrentStack
from laws.conftest import each, keeps_laws, real
from tolerances import close, differ

DIRECTIONS = pytest.mark.parametrize("directions", [1, 2], ids=["forwards", "both ways"])


def stack(config: Cell.Config, directions: int = 1) -> RecurrentStack:
    torch.manual_seed(0)
    return RecurrentStack(config, 5, 8, num_layers=2, directions=directions).eval()


@each("cell")
def test_laws_of_cells(config: Cell.Config) -> None:
    keeps_laws(config)


@each("cell")
def test_whole_equals_chunk_by_chunk(config: Cell.Config) -> None:
    recurrence, x = Recurrence(config.build(5, 8)), torch.randn(3, 7, 5)
    for chunks in ([1] * 7, [3, 4], [6, 1]):
        check_chunks(recurrence, x, chunks)


@each("cell")
def test_backwards_is_forwards_over_the_reverse(config: Cell.Config) -> None:
    recurrence, x = Recurrence(config.build(5, 8)), torch.randn(3, 7, 5)
    outputs, final = recurrence(x, backwards=True)
    mirrored, last = recurrence(x.flip(1))
    close(outputs, mirrored.flip(1))
    close(final, last)


@DIRECTIONS
@each("cell")
def test_padding_changes_nothing(config: Cell.Config, directions: int) -> None:
    layers, x = stack(config, directions), torch.randn(2, 7, 5)
    lengths = (7, 4)
    outputs, final = layers(x, real(*lengths))
    for row, length in enumerate(lengths):
        alone, last = layers(x[row : row + 1, :length])
        close(outputs[row : row + 1, :length], alone)
        for hidden, own in zip(final, last, strict=True):
            close([part[row : row + 1] for part in hidden], list(own))


@DIRECTIONS
@each("cell")
def test_what_stands_in_padding_changes_no_bit(config: Cell.Config, directions: int) -> None:
    layers, x, keys = stack(config, directions), torch.randn(2, 7, 5), real(7, 4)
    other = x.clone()
    other[~keys] = 1e3
    (outputs, final), (others, last) = layers(x, keys), layers(other, keys)
    assert torch.equal(outputs[keys], others[keys])
    for hidden, own in zip(final, last, strict=True):
        assert all(map(torch.equal, hidden, own))


@DIRECTIONS
@each("cell")
def test_no_mask_is_a_mask_of_ones(config: Cell.Config, directions: int) -> None:
    layers, x = stack(config, directions), torch.randn(2, 7, 5)
    assert torch.equal(layers(x)[0], layers(x, torch.ones(2, 7, dtype=torch.bool))[0])


@each("cell")
def test_the_future_leaves_the_past_bit_equal(config: Cell.Config) -> None:
    layers, x = stack(config), torch.randn(2, 7, 5)
    other = x.clone()
    other[:, 4:] += 1
    before, after = layers(x)[0], layers(other)[0]
    assert torch.equal(before[:, :4], after[:, :4])
    assert differ(before[:, 4:], after[:, 4:])


@DIRECTIONS
@each("cell")
def test_rows_of_a_batch_do_not_see_each_other(config: Cell.Config, directions: int) -> None:
    layers, x = stack(config, directions), torch.randn(3, 7, 5)
    keys, rows = real(7, 2, 5), [2, 0, 1]
    close(layers(x[rows], keys[rows])[0], layers(x, keys)[0][rows])


@DIRECTIONS
@each("cell")
def test_every_parameter_receives_a_gradient(config: Cell.Config, directions: int) -> None:
    layers = stack(config, directions)
    layers(torch.randn(2, 7, 5))[0].square().sum().backward()
    for name, parameter in layers.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.any()), name


@each("cell")
def test_the_last_state_is_the_output_at_the_last_real_step(config: Cell.Config) -> None:
    layers, lengths = stack(config), (7, 4)
    outputs, final = layers(torch.randn(2, 7, 5), real(*lengths))
    for row, length in enumerate(lengths):
        assert torch.equal(final[-1][0][row], outputs[row, length - 1])


@each("cell")
def test_recurrence_runs_in_half_precision(config: Cell.Config) -> None:
    layers, x, keys = stack(config, 2), torch.randn(2, 7, 5), real(7, 4)
    with torch.autocast("cpu", torch.bfloat16):
        half, _ = layers(x, keys)
    torch.testing.assert_close(half.float(), layers(x, keys)[0], atol=0.05, rtol=0.05)


@each("cell")
def test_dropout_stands_between_layers(config: Cell.Config) -> None:
    x = torch.randn(2, 7, 5)
    item, two = (RecurrentStack(config, 5, 8, layers, dropout=0.5) for layers in (1, 2))
    assert torch.equal(item(x)[0], item(x)[0])
    assert differ(two(x)[0], two(x)[0])
    assert torch.equal(two.eval()(x)[0], two(x)[0])


def test_an_open_forget_gate_keeps_the_cell_for_a_hundred_steps() -> None:
    cell = LSTMCell.Config().build(5, 8)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.zero_()
        cell.bias_ih[:8] = -30.0  # the input gate is shut
        cell.bias_ih[8:16] = 30.0  # the forget gate open
    saved = torch.randn(3, 8)
    _, (_, after) = Recurrence(cell)(torch.randn(3, 100, 5), hidden=(torch.zeros(3, 8), saved))
    close(after, saved)
    with torch.no_grad():
        cell.bias_ih[8:16] = 0.0  # half open: the cell halves at every step
    _, (_, after) = Recurrence(cell)(torch.randn(3, 100, 5), hidden=(torch.zeros(3, 8), saved))
    close(after, saved * 0.5**100)
