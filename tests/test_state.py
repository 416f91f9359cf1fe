"""What a decoder remembers, against plain lists."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from foveate.nn.state import State

HEADS, SIZE = 2, 3


@given(
    first=st.integers(1, 20),
    moves=st.lists(
        st.integers(1, 20) | st.lists(st.integers(0, 10), min_size=1, max_size=4), max_size=8
    ),
)
def test_growing_and_reordering_is_joining_and_picking(first, moves) -> None:
    """A number appends so many steps, a list picks rows."""
    state, module = State(), nn.Identity()
    expected = tuple(torch.randn(3, HEADS, first, SIZE) for _ in "kv")
    result = state.grow(module, *(part.clone() for part in expected))
    for move in moves:
        if isinstance(move, list):
            rows = torch.tensor(move) % len(expected[0])
            state.reorder(rows)
            expected = tuple(part[rows] for part in expected)
            continue
        new = tuple(torch.randn(len(expected[0]), HEADS, move, SIZE) for _ in "kv")
        result = state.grow(module, *new)
        expected = tuple(torch.cat(both, dim=2) for both in zip(expected, new, strict=True))
        assert all(map(torch.equal, result, expected))
    new = tuple(torch.randn(len(expected[0]), HEADS, 1, SIZE) for _ in "kv")
    expected = tuple(torch.cat(both, dim=2) for both in zip(expected, new, strict=True))
    assert all(map(torch.equal, state.grow(module, *new), expected))


def test_what_was_given_is_never_written_to() -> None:
    state, module = State(), nn.Identity()
    prefix = torch.randn(1, HEADS, 5, SIZE)
    before = prefix.clone()
    for _ in range(3):
        state.grow(module, prefix if not state._grown else torch.randn(1, HEADS, 1, SIZE))
    assert torch.equal(prefix, before)


def test_growing_step_by_step_copies_seldom() -> None:
    state, module, places = State(), nn.Identity(), set()
    for _ in range(200):
        (keys,) = state.grow(module, torch.zeros(1, 1, 1, 1))
        places.add(keys.untyped_storage().data_ptr())
    assert len(places) <= 6, "memory doubles, it does not grow by one"


def test_modules_are_told_apart() -> None:
    state, item, other = State(), nn.Identity(), nn.Identity()
    state.grow(item, torch.zeros(1, 1, 2, 1))
    (keys,) = state.grow(other, torch.ones(1, 1, 3, 1))
    assert torch.equal(keys, torch.ones(1, 1, 3, 1))
    assert State().position == 0


def test_once_is_made_once_and_keeps_its_sources() -> None:
    state, module, made = State(), nn.Identity(), []

    def make() -> tuple[Tensor, ...]:
        made.append(1)
        return (torch.arange(3.0)[:, None],)

    assert state.cached(module, make) is state.cached(module, make)
    state.reorder(torch.tensor([2, 2, 0, 0]))  # of hypotheses; sources stay
    assert state.cached(module, make)[0].flatten().tolist() == [0, 1, 2]
    state.select(torch.tensor([0, 2]))
    assert state.cached(module, make)[0].flatten().tolist() == [0, 2]
    assert made == [1]


def test_what_is_current_follows_its_hypotheses() -> None:
    state, module = State(), nn.Identity()

    def start() -> tuple[Tensor, ...]:
        return torch.arange(3.0)[:, None], 10 + torch.arange(3.0)[:, None]

    assert len(state.current(module, start)) == 2
    state.reorder(torch.tensor([2, 0]))
    assert [t.flatten().tolist() for t in state.current(module, start)] == [[2, 0], [12, 10]]
    state.replace(module, (torch.tensor([[7.0], [8.0]]),))
    state.select(torch.tensor([1]))  # of sources
    (hidden,) = state.current(module, start)
    assert hidden.flatten().tolist() == [7, 8]
