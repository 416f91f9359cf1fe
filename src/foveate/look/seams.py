"""Where weights over keys pass in a model, ours or another's: each place has a name and a ``tap``.

A tap sees weights (B, H, T, S) and may give others back, which are mixed in their place. Does not
live here: what is done with them (`capture`, `edit`, `relevance`), adapters (`foreign`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from fnmatch import fnmatchcase
from typing import Protocol, runtime_checkable
from weakref import ref

from torch import Tensor, nn

from foveate.config import ConfigError
from foveate.look.foreign import Foreign, foreign, plain_roads
from foveate.look.record import block_of
from foveate.nn.attention import BaseAttention, Tap
from foveate.nn.state import State

Where = str | Iterable[str] | Callable[[str], bool]
LISTED = 12  # names that an error lists


@runtime_checkable
class Seam(Protocol):
    """A place where weights pass; ``tap`` None leaves the model as it is."""

    tap: Tap | None

    @property
    def num_heads(self) -> int | None:
        """H, where it is known before the model runs."""

    def timed(self) -> AbstractContextManager[Callable[[Tensor], int]]:
        """Count steps; what is given says the place of the first query of weights that passed."""


class Own:
    """The tap of an attention of ours."""

    def __init__(self, module: BaseAttention) -> None:
        self.module = module

    @property
    def tap(self) -> Tap | None:
        return self.module.tap

    @tap.setter
    def tap(self, tap: Tap | None) -> None:
        self.module.tap = tap

    @property
    def num_heads(self) -> int | None:
        return self.module.num_heads

    @contextmanager
    def timed(self) -> Iterator[Callable[[Tensor], int]]:
        clock = Clock()
        handle = self.module.register_forward_pre_hook(clock.hear, with_kwargs=True)
        try:
            yield clock.at
        finally:
            handle.remove()


class Clock:
    """The place of the first query of a call: what the state has read, and calls since then.

    A recurrent decoder asks once a step before its state moves on, a Transformer once a pass.
    """

    def __init__(self) -> None:
        self.start, self.read, self.steps = 0, 0, 0
        self.of: Callable[[], State | None] = lambda: None

    def hear(self, module: nn.Module, args: tuple[object, ...], named: dict[str, object]) -> None:
        """Called before the module: what does it begin at?"""
        state = named.get("state", args[3] if len(args) > 3 else None)
        if not isinstance(state, State):
            self.start, self.of = 0, lambda: None
            return
        same = self.of() is state and state.position == self.read
        self.start = self.start + self.steps if same else state.position
        self.of, self.read = ref(state), state.position

    def at(self, weights: Tensor) -> int:
        """Of weights (B, H, T, S) that just passed."""
        self.steps = weights.shape[2]
        return self.start


def seams(model: nn.Module) -> dict[str, Seam]:
    """Every place of a model where weights pass, by name, in the order of the model.

    Ours have the dotted names of their modules. Those of plain torch and of Hugging Face have the
    names that they would have with us (``decoder.layers.0.cross_attention``) where that is clear,
    else the names of their modules.
    """
    found: dict[str, Seam] = {
        name: Own(module)
        for name, module in model.named_modules()
        if isinstance(module, BaseAttention)
    }
    return found or dict(foreign(model))


def chosen(model: nn.Module, where: Where) -> dict[str, Seam]:
    """The seams whose names fit. Raises ``ConfigError`` naming those that exist where none does.

    A text fits a name that holds it, part by part (``cross_attention``, ``layers.1``, ``encoder``),
    a block (``decoder.cross_attention``), or as a pattern (``decoder.layers.*.cross*``).
    """
    found = seams(model)
    if callable(where):
        return {name: seam for name, seam in found.items() if where(name)}
    patterns = [where] if isinstance(where, str) else list(where)
    for pattern in patterns:
        if not any(fits(name, pattern) for name in found):
            raise ConfigError(f"no attention is called {pattern!r}; {existing(found)}")
    return {n: seam for n, seam in found.items() if any(fits(n, p) for p in patterns)}


def existing(found: Mapping[str, Seam]) -> str:
    """Which attentions there are, for an error."""
    if not found:
        return "this model has no attention"
    names = [*list(found)[:LISTED], *(["…"] if len(found) > LISTED else [])]
    return f"there are: {', '.join(names)}"


def fits(name: str, pattern: str) -> bool:
    """Whether a seam is meant; see `chosen`."""
    dotted = (f".{name}.", f".{block_of(name)}.")
    return fnmatchcase(name, pattern) or any(f".{pattern}." in each for each in dotted)


@contextmanager
def tapped(
    taps: Mapping[str, Tap], found: Mapping[str, Seam], first: bool = False
) -> Iterator[None]:
    """Hang taps on seams, behind those that are there (or ``first``), and take them off again."""
    before = {name: found[name].tap for name in taps}
    hosts = {s.model for name in taps if isinstance(s := found[name], Foreign)}
    with ExitStack() as stack:
        for host in hosts:
            stack.enter_context(plain_roads(host))
        try:
            for name, tap in taps.items():
                there = before[name]
                found[name].tap = _chained(tap, there) if first else _chained(there, tap)
            yield
        finally:
            for name in taps:
                found[name].tap = before[name]


def _chained(first: Tap | None, second: Tap | None) -> Tap | None:
    """One tap after the other: the second sees what the first gives back."""
    if first is None or second is None:
        return first or second
    one, other = first, second

    def both(weights: Tensor) -> Tensor | None:
        replaced = one(weights)
        again = other(weights if replaced is None else replaced)
        return replaced if again is None else again

    return both
