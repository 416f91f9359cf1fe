"""Masks, states, normalizers and state-space models by their definitions."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.nn.attention import Attention
from foveate.nn.context import DecoderState, Mask
from foveate.nn.linear import RMSNorm
from foveate.nn.native.kernels import SHORT, library, without_kernels
from foveate.nn.normalizers import Entmax15, Hardmax, Sparsemax
from foveate.nn.scores import Normalizer, Softmax
from foveate.nn.ssm import (
    ScanInputs,
    SelectiveStateSpace,
    convolve,
    scan_chunked,
    scan_sequential,
    selective_scan,
)
from laws.conftest import each
from tolerances import MODEL, ROW, close, rounding


# ------------------------------ Which query sees which key, against the definition pair by pair
def definition(mask: Mask, query_at: range, key_at: range, rows: int) -> Tensor:
    """(B, T, S), pair by pair."""
    seen = torch.ones(rows, len(query_at), len(key_at), dtype=torch.bool)
    for row in range(rows):
        for t, q in enumerate(query_at):
            for s, k in enumerate(key_at):
                real = mask.key_mask is None or bool(mask.key_mask[row, s])
                past = not mask.causal or k <= q
                near = mask.window is None or abs(q - k) < mask.window
                seen[row, t, s] = real and past and near
    return seen


@st.composite
def cases(draw: st.DrawFn) -> tuple[Mask, range, range, int]:
    """Queries at the end of what there is, as attention has them."""
    rows, length = draw(st.integers(1, 3)), draw(st.integers(1, 7))
    queries = draw(st.integers(1, length))
    keys = None
    if draw(st.booleans()):
        flags = st.lists(st.booleans(), min_size=length, max_size=length)
        keys = torch.tensor(draw(st.lists(flags, min_size=rows, max_size=rows)))
    window = draw(st.none() | st.integers(1, 8))
    mask = Mask(keys, causal=draw(st.booleans()), window=window)
    return mask, range(length - queries, length), range(length), rows


@given(cases())
def test_every_form_of_a_mask_is_the_definition(case: tuple[Mask, range, range, int]) -> None:
    mask, query_at, key_at, rows = case
    expected, dense = definition(*case), mask.dense(query_at, key_at)
    if dense is None:
        assert bool(expected.all())
    else:
        assert torch.equal(dense.expand(rows, 1, len(query_at), -1).squeeze(1), expected)
    some = expected.any(dim=-1)  # what is added for a query that sees nothing is left open
    additive = mask.additive(query_at, key_at, torch.float32)
    if additive is None:
        assert bool(expected.all())
    else:
        hidden = additive.expand(rows, 1, len(query_at), -1).squeeze(1)
        assert torch.equal((hidden == 0)[some], expected[some])
        assert torch.equal((hidden == -torch.inf)[some], ~expected[some])
    blind = mask.blind(query_at, key_at)
    if blind is None:
        assert bool(some.all())
    else:
        assert torch.equal(blind.expand(rows, 1, len(query_at), 1).flatten(1), ~some)


def test_each_form_is_built_once_for_all_layers_of_a_dtype_and_device() -> None:
    mask, at = Mask(torch.tensor([[True, True, False]]), causal=True), range(3)
    assert mask.dense(at, at) is mask.dense(range(0, 3), at)
    assert mask.additive(at, at, torch.float32) is mask.additive(at, at, torch.float32)
    half = mask.additive(at, at, torch.bfloat16)
    assert half is not None and half.dtype == torch.bfloat16
    other = Mask(torch.tensor([[False, True, True]]), causal=True)
    assert mask.dense(at, at) is not other.dense(at, at)
    window = Mask(causal=True, window=2)
    for device in (torch.device("cpu"), torch.device("meta")):
        forms = window.dense(at, at, device), window.additive(at, at, torch.float32, device)
        assert all(form is not None and form.device == device for form in forms)
    for start in range(3):  # queries at other places
        dense = window.dense(range(start, start + 3), range(start + 3))
        there = definition(window, range(start, start + 3), range(start + 3), 1)
        assert torch.equal(dense[0, 0], there[0])
    none = range(0)  # a chunk of no steps is no special case
    assert mask.additive(none, at, torch.float32) is not None and mask.blind(none, at) is None


def test_places_may_be_runs_of_neighbours() -> None:
    mask = Mask(torch.tensor([[True] * 6 + [False] * 2]), causal=True, window=4)
    runs = (range(0, 2), range(4, 8))
    result, whole = mask.dense(range(3, 6), runs), mask.dense(range(3, 6), range(8))
    assert torch.equal(result, whole[..., [0, 1, 4, 5, 6, 7]])


def test_a_long_triangle_is_never_formed() -> None:
    """Hiding the future of a long text costs no T × T, and gives what a dense mask gives."""
    attention, x = Attention.Config(num_heads=2).build(16), torch.randn(1, 200, 16)
    assert x.shape[1] ** 2 > SHORT
    triangle = Mask(causal=True)
    mixed = attention(x, mask=triangle)
    assert not triangle._forms
    dense = Mask(torch.ones(1, 200, dtype=torch.bool), causal=True)
    close(mixed, attention(x, mask=dense))
    assert dense._forms
    for other in (Mask(causal=True, window=3), Mask(), dense):
        assert not other.is_causal_only(range(200), range(200))
    assert not triangle.is_causal_only(range(1, 2), range(2))


# ------------------------------ What a decoder remembers, against plain lists
HEADS, SIZE = 2, 3


MOVES = st.integers(1, 20) | st.lists(st.integers(0, 10), min_size=1, max_size=4)


@given(first=st.integers(1, 20), moves=st.lists(MOVES, max_size=8))
def test_growing_and_reordering_is_joining_and_picking(first, moves) -> None:
    """A number appends so many steps, a list picks rows."""
    state, module = DecoderState(), nn.Identity()
    state.grow(nn.Identity(), torch.zeros(3, HEADS, 2, SIZE))  # another module has its own
    expected = given = tuple(torch.randn(3, HEADS, first, SIZE) for _ in "kv")
    before = [part.clone() for part in given]
    state.grow(module, *given)
    for move in (*moves, 1):
        if isinstance(move, list):
            rows = torch.tensor(move) % len(expected[0])
            state.reorder(rows)
            expected = tuple(part[rows] for part in expected)
            continue
        new = tuple(torch.randn(len(expected[0]), HEADS, move, SIZE) for _ in "kv")
        result = state.grow(module, *new)
        expected = tuple(torch.cat(both, dim=2) for both in zip(expected, new, strict=True))
        assert all(map(torch.equal, result, expected))
    assert all(map(torch.equal, given, before)), "what was given is never written to"


def test_growing_step_by_step_copies_seldom() -> None:
    state, module, places = DecoderState(), nn.Identity(), set()
    for _ in range(200):
        (keys,) = state.grow(module, torch.zeros(1, 1, 1, 1))
        places.add(keys.untyped_storage().data_ptr())
    assert len(places) <= 6, "memory doubles, it does not grow by one"


# ------------------------------ Normalisers against independent computations of the same definition
Row = NDArray[np.float64]
rows = st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=9).map(np.array)


def bisect(scores: Row, power: float, scale: float) -> Row:
    """[scale · e − τ]₊^power, τ found by halving an interval in which the sum passes 1."""
    z = scale * scores.astype(np.float64)
    low, high = z.max() - 1, z.max()
    for _ in range(100):
        middle = (low + high) / 2
        total = (np.maximum(z - middle, 0) ** power).sum()
        low, high = (middle, high) if total >= 1 else (low, middle)
    return np.maximum(z - low, 0) ** power


@given(rows, st.integers(0, 2**32 - 1))
def test_sparsemax_and_entmax_are_what_bisection_finds(scores: Row, seed: int) -> None:
    """No point of the simplex is nearer than sparsemax: the definition, against random weights."""
    given = torch.tensor(scores, dtype=torch.float32)
    result = Sparsemax.Config().build()(given).numpy()
    close(result, bisect(scores, 1, 1.0))
    others = np.random.default_rng(seed).dirichlet(np.full(len(scores), 0.5), size=200)
    nearest = np.square(others - scores).sum(axis=1).min()
    assert np.square(result - scores).sum() <= nearest + 1e-4
    close(Entmax15.Config().build()(given), bisect(scores, 2, 0.5))


def test_cold_softmax_is_hardmax_whose_gradient_is_that_of_softmax() -> None:
    scores, change = torch.randn(12, 7, requires_grad=True), torch.randn(12, 7)
    hard = Hardmax.Config().build()(scores)
    assert torch.equal(hard.sum(dim=-1), torch.ones(12))
    assert torch.equal(hard.argmax(dim=-1), scores.argmax(dim=-1))
    near_hard = (Softmax.Config(temperature=t).build() for t in (1.0, 0.1, 0.01, 1e-4))
    distances = [(each(scores) - hard).abs().max().item() for each in near_hard]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < rounding(ROW)
    (result,) = torch.autograd.grad(hard, scores, change)
    (expected,) = torch.autograd.grad(scores.softmax(dim=-1), scores, change)
    close(result, expected)


@pytest.mark.parametrize("config", [Sparsemax.Config(), Entmax15.Config()], ids=lambda c: c.kind)
def test_the_gradient_is_the_slope_of_the_weights(config: Normalizer.Config) -> None:
    normalizer, steps = config.build(), 1e-3 * torch.eye(18).view(3, 6, 3, 6)
    for seed in range(5):
        torch.manual_seed(seed)
        scores, change = torch.randn(3, 6, requires_grad=True), torch.randn(3, 6)
        (result,) = torch.autograd.grad(normalizer(scores), scores, change)
        ends = [(normalizer(scores.detach() + by) * change).sum((2, 3)) for by in (steps, -steps)]
        assert float(((ends[0] - ends[1]) / 2e-3 - result).abs().max()) < 0.03


@each("normalizer")
def test_what_is_masked_or_added_to_all_scores_changes_nothing(config: Normalizer.Config) -> None:
    normalizer, scores, hidden = config.build(), torch.randn(20, 8), torch.rand(20, 8) < 0.5
    hidden[:, 3] = False
    weights = normalizer(scores.masked_fill(hidden, -torch.inf))
    assert bool((weights[hidden] == 0).all())
    for row in range(20):
        close(weights[row][~hidden[row]], normalizer(scores[row][~hidden[row]]))
    close(normalizer(scores + 100), normalizer(scores), terms=MODEL)


# ---- Selective state spaces: both roads of the scan agree, and what is remembered does not grow
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


NATIVE = pytest.mark.skipif(library() is None, reason="no C compiler: there is one road")
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
each_size = pytest.mark.parametrize("sizes", [(1, 1, 3, 16), (3, 13, 16, 4), (21, 20, 37, 7)])
OPTIONS = [{}, {"start": True}, {"keys": True, "backwards": True}]  # of both operations


def options_of(options: dict[str, bool], batch: int, steps: int) -> dict[str, Tensor | bool]:
    keys = torch.arange(steps) < 1 + torch.arange(batch)[:, None] % steps
    return {"backwards": "backwards" in options} | ({"keys": keys} if "keys" in options else {})


def roads_agree(run: Callable[[torch.dtype], list[Tensor]], dtype: torch.dtype) -> None:
    """The kernels give the same bits for each number of threads, and PyTorch's numbers."""
    native, threads = run(dtype), torch.get_num_threads()
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        assert all(map(torch.equal, native, run(dtype)))
    torch.set_num_threads(threads)
    with without_kernels():
        plain = run(torch.float32)  # of the same inputs: results alone are rounded
    for item, other in zip(native, plain, strict=True):
        close(item, other, terms=1 if item.dtype == torch.bfloat16 else MODEL)


@NATIVE
@pytest.mark.parametrize("shape", [(3, 7, 13), (1, 1), (600, 64), (0, 16)], ids=str)
def test_the_native_rms_norm_equals_the_plain_one(shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    norm = RMSNorm(RMSNorm.Config(eps=0.1), shape[-1])
    nn.init.normal_(norm.norm.weight)
    x, dy = torch.randn(shape), torch.randn(shape).mT.contiguous().mT

    def run(dtype: torch.dtype) -> list[Tensor]:
        inputs = [x.clone().requires_grad_(), norm.norm.weight]
        y = norm(inputs[0])
        return [y, *torch.autograd.grad(y, inputs, dy)]

    roads_agree(run, torch.float32)


@NATIVE
@each_dtype
@each_size
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_native_scan_equals_the_plain_one(sizes, options, dtype) -> None:
    batch, steps, channels, size = sizes
    torch.manual_seed(steps)
    step, u, gate = (3 * torch.randn(3, batch, steps, channels)).to(dtype)
    into, out = torch.randn(2, batch, steps, size).to(dtype)
    rows = [step, u, into, out, gate]
    weights = [-10 * torch.rand(channels, size), torch.randn(channels), torch.randn(channels)]
    starts = [torch.randn(batch, channels, size)] if "start" in options else []
    named = options_of(options, batch, steps)
    by_y = torch.randn(batch, steps, channels).to(dtype)
    by_last = torch.randn(batch, channels, size)

    def run(of: torch.dtype) -> list[Tensor]:
        leaves = [row.to(of, copy=True) for row in rows]
        leaves = [part.requires_grad_() for part in (*leaves, *weights, *starts)]
        inputs, start = ScanInputs(*leaves[:5]), leaves[8] if starts else None
        y, last = selective_scan(inputs, *leaves[5:8], start=start, **named)
        ends = [] if last is None else [last]
        loss = (y * by_y).sum() + sum((end * by_last).sum() for end in ends)
        return [y, *ends, *torch.autograd.grad(loss, leaves)]

    roads_agree(run, dtype)


@NATIVE
@each_dtype
@each_size
@pytest.mark.parametrize("options", OPTIONS[::2], ids=str)
def test_the_native_convolution_equals_the_plain_one(sizes, options, dtype) -> None:
    batch, steps, channels, window = sizes
    torch.manual_seed(steps)
    x, by = torch.randn(2, batch, steps, channels).to(dtype)
    kernel, bias = torch.randn(window, channels) / window, torch.randn(channels)
    named = options_of(options, batch, steps)

    def run(of: torch.dtype) -> list[Tensor]:
        leaves = [part.requires_grad_() for part in (x.to(of, copy=True), kernel, bias)]
        u = convolve(*leaves, **named)
        return [u, *torch.autograd.grad((u * by).sum(), leaves)]

    roads_agree(run, dtype)


def test_the_scan_by_hand() -> None:
    half = torch.tensor([0.5, 0.5, 0.5]).log().view(1, 3, 1, 1)
    change = torch.tensor([1.0, 0.0, 2.0]).view(1, 3, 1, 1)
    states, last = scan_chunked(half, change, torch.full((1, 1, 1), 4.0))
    close(states.flatten(), torch.tensor([3.0, 1.5, 2.75]))
    assert last.item() == pytest.approx(2.75)


def test_padding_neither_enters_the_state_nor_fades_it() -> None:
    layer = SelectiveStateSpace.Config().build(8)
    x, keys = torch.randn(1, 6, 8), torch.ones(1, 6, dtype=torch.bool)
    padded, alone = DecoderState(), DecoderState()
    keys[:, 4:] = False
    layer(x, keys, padded)
    layer(x[:, :4], None, alone)
    h = [state.current(layer, tuple)[1] for state in (padded, alone)]
    torch.testing.assert_close(*h)


def test_steps_begin_between_a_thousandth_and_a_tenth() -> None:
    layer = SelectiveStateSpace.Config().build(64)
    steps = torch.nn.functional.softplus(layer.step.bias).detach()
    assert 0.99e-3 < float(steps.min()) < 2e-3
    assert 0.05 < float(steps.max()) < 0.101
