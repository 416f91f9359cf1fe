"""Selective state spaces: both roads of the scan agree, and what is remembered does not grow."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from foveate.models.language_model import LanguageModel
from foveate.models.mamba import MambaDecoder
from foveate.native.kernels import library, without_kernels
from foveate.nn.context import State
from foveate.nn.ssm import SelectiveStateSpace, scan_chunked, scan_sequential, selective_scan
from foveate.spec import Tokens
from tolerances import MODEL, close


def coefficients(length: int, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(length)
    decay = -scale * torch.rand(2, length, 3, 4, dtype=torch.float64)
    return decay, torch.randn_like(decay), torch.randn(2, 3, 4, dtype=torch.float64)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 16, 17, 50])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4], ids=["keeps", "fades", "forgets"])
def test_the_chunked_road_equals_the_sequential_one(length: int, scale: float) -> None:
    inputs = [part.requires_grad_() for part in coefficients(length, scale)]
    grads = []
    for scan in (scan_sequential, scan_chunked):
        states, last = scan(*inputs)
        close(last, states[:, -1])
        grads.append((states, *torch.autograd.grad(states.square().sum(), inputs)))
    for item, other in zip(*grads, strict=True):
        assert bool(item.isfinite().all())
        close(item, other)


@pytest.mark.skipif(library() is None, reason="no C compiler: there is one road")
@pytest.mark.parametrize("sizes", [(1, 1, 3, 16), (3, 13, 5, 4), (2, 50, 9, 7)], ids=str)
def test_the_native_road_equals_the_plain_one(sizes: tuple[int, int, int, int]) -> None:
    batch, steps, channels, size = sizes
    torch.manual_seed(steps)
    wide = torch.randn(batch, steps, 2 * size)  # B and C are views of one array, as in the layer
    inputs = [
        torch.rand(batch, steps, channels),
        torch.randn(batch, steps, channels),
        -10 * torch.rand(channels, size),
        *wide.split(size, dim=-1),
        torch.randn(batch, channels, size),
    ]
    by_y, by_last = torch.randn(batch, steps, channels), torch.randn(batch, channels, size)

    def run() -> list[Tensor]:
        leaves = [part.clone().requires_grad_() for part in inputs]
        y, last = selective_scan(*leaves)
        loss = (y * by_y).sum() + (last * by_last).sum()
        return [y, last, *torch.autograd.grad(loss, leaves)]

    native = run()
    threads = torch.get_num_threads()
    for count in (1, 2, 3):  # in the same bits, however many threads share the batch
        torch.set_num_threads(count)
        assert all(map(torch.equal, native, run()))
    torch.set_num_threads(threads)
    with without_kernels():
        plain = run()
    for item, other in zip(native, plain, strict=True):
        close(item, other, terms=MODEL)


def test_the_scan_by_hand() -> None:
    half = torch.tensor([0.5, 0.5, 0.5]).log().view(1, 3, 1, 1)
    change = torch.tensor([1.0, 0.0, 2.0]).view(1, 3, 1, 1)
    states, last = scan_chunked(half, change, torch.full((1, 1, 1), 4.0))
    close(states.flatten(), torch.tensor([3.0, 1.5, 2.75]))
    assert last.item() == pytest.approx(2.75)


def test_padding_neither_enters_the_state_nor_fades_it() -> None:
    torch.manual_seed(0)
    layer = SelectiveStateSpace.Config().build(8)
    x, keys, padded, alone = (
        torch.randn(1, 6, 8),
        torch.ones(1, 6, dtype=torch.bool),
        State(),
        State(),
    )
    keys[:, 4:] = False
    layer(x, keys, padded)
    layer(x[:, :4], None, alone)
    h = [state.current(layer, tuple)[1] for state in (padded, alone)]
    torch.testing.assert_close(*h)


def remembered(state: State, model: LanguageModel) -> int:
    """Numbers held for all layers; fails where something is held that grows."""
    assert not state._grown
    assert not state._cached
    layers = [m for m in model.modules() if isinstance(m, SelectiveStateSpace)]
    return sum(part.numel() for layer in layers for part in state.current(layer, tuple))


@torch.inference_mode()
def test_memory_at_generation_does_not_grow_with_length() -> None:
    decoder = MambaDecoder.Config(hidden_size=16, num_layers=2)
    model = LanguageModel.Config(decoder=decoder).build(Tokens(20)).eval()
    state, sizes = State(), []
    for step in range(1, 101):
        model.decode(torch.full((3, 1), 4 + step % 10), state)
        sizes.append(remembered(state, model))
    assert set(sizes) == {2 * 3 * 32 * (3 + 16)}  # layers · rows · channels · (window − 1 + states)
    assert state.position == 100


def test_steps_begin_between_a_thousandth_and_a_tenth() -> None:
    torch.manual_seed(0)
    layer = SelectiveStateSpace.Config().build(64)
    steps = torch.nn.functional.softplus(layer.step.bias).detach()
    assert 0.99e-3 < float(steps.min()) < 2e-3
    assert 0.05 < float(steps.max()) < 0.101
