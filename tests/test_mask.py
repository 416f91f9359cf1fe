"""Which query sees which key, against the definition pair by pair."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from foveate.nn.attention import Attention
from foveate.nn.fused_attention import SHORT
from foveate.nn.masks import Mask
from tolerances import close


def definition(mask: Mask, query_at: range, key_at: range, rows: int) -> Tensor:
    """(B, T, S), pair by pair."""
    seen = torch.ones(rows, len(query_at), len(key_at), dtype=torch.bool)
    for row in range(rows):
        for t, q in enumerate(query_at):
            for s, k in enumerate(key_at):
                real = mask.keys is None or bool(mask.keys[row, s])
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
def test_the_dense_form_is_the_definition(case: tuple[Mask, range, range, int]) -> None:
    mask, query_at, key_at, rows = case
    expected, dense = definition(*case), mask.dense(query_at, key_at)
    if dense is None:
        assert bool(expected.all())
    else:
        assert torch.equal(dense.expand(rows, 1, -1, -1).squeeze(1) & expected, expected)
        assert torch.equal(dense.expand(rows, 1, len(query_at), -1).squeeze(1), expected)


@given(cases())
def test_additive_hides_what_is_not_seen(case: tuple[Mask, range, range, int]) -> None:
    mask, query_at, key_at, rows = case
    expected, additive = definition(*case), mask.additive(query_at, key_at, torch.float32)
    if additive is None:
        assert bool(expected.all())
        return
    hidden = additive.expand(rows, 1, len(query_at), -1).squeeze(1)
    some = expected.any(dim=-1)  # what is added for a query that sees nothing is left open
    assert torch.equal((hidden == 0)[some], expected[some])
    assert torch.equal((hidden == -torch.inf)[some], ~expected[some])


@given(cases())
def test_blind_are_those_that_see_nothing(case: tuple[Mask, range, range, int]) -> None:
    mask, query_at, key_at, rows = case
    expected, blind = ~definition(*case).any(dim=-1), mask.blind(query_at, key_at)
    if blind is None:
        assert not bool(expected.any())
    else:
        assert torch.equal(blind.expand(rows, 1, len(query_at), 1).flatten(1), expected)


def test_each_form_is_built_once_for_all_layers() -> None:
    mask = Mask(torch.tensor([[True, True, False]]), causal=True)
    at = range(3)
    assert mask.dense(at, at) is mask.dense(range(0, 3), at)
    assert mask.additive(at, at, torch.float32) is mask.additive(at, at, torch.float32)
    half = mask.additive(at, at, torch.bfloat16)
    assert half is not None
    assert half.dtype == torch.bfloat16


def test_one_mask_serves_queries_at_other_places() -> None:
    mask, keys = Mask(causal=True, window=2), range(6)
    for start in range(3):
        query_at = range(start, start + 3)
        dense = mask.dense(query_at, keys[: start + 3])
        assert dense is not None
        assert torch.equal(dense[0, 0], definition(mask, query_at, keys[: start + 3], 1)[0])


def test_masks_do_not_share_their_forms() -> None:
    at = range(2)
    first, second = Mask(torch.tensor([[True, False]])), Mask(torch.tensor([[False, True]]))
    assert first.dense(at, at) is not second.dense(at, at)
    assert first == first


def test_no_queries_see_nothing() -> None:
    """A chunk of no steps is no special case."""
    mask, none, at = Mask(torch.tensor([[True, False]]), causal=True), range(0), range(2)
    assert mask.additive(none, at, torch.float32) is not None
    assert mask.blind(none, at) is None


def test_places_may_be_runs_of_neighbours() -> None:
    mask = Mask(torch.tensor([[True] * 6 + [False] * 2]), causal=True, window=4)
    runs = (range(0, 2), range(4, 8))
    result, whole = mask.dense(range(3, 6), runs), mask.dense(range(3, 6), range(8))
    assert result is not None
    assert whole is not None
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
