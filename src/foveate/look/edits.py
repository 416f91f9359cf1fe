"""Change what attention does and run the model again: what does it say without this head?

    with edit(model, {"decoder.layers.1.cross_attention": silence(3)}):
        run.translate(["A man sleeps ."])

Changes use the hook points of `capture`; a capture inside the context records the changed weights.
They apply to forced passes and to searches alike, step by step and with beams.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import ref

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.config import ConfigError
from foveate.look.foreign import ForeignAttention
from foveate.look.hooks import HookPoint, chosen, tapped
from foveate.nn.context import DecoderState

LOST = 1e-6  # weight that may be cut off with keys that do not exist

PositionOf = Callable[[Tensor], int]  # position of the first query of a tensor (B, h, T, …)
Replacement = Mapping[str, Tensor] | Tensor  # by the attention's name, or one for all


@dataclass(frozen=True)
class Change:
    """Replaces the weights (B, h, T, S) of some heads.

    ``replace`` gets the attention's name, the values that the model computed and a function that
    returns the position of their first query, and returns new values. No ``heads`` means all.
    """

    heads: Sequence[int]
    replace: Callable[[str, Tensor, PositionOf], Tensor]

    @contextmanager
    def applied(self, name: str, point: HookPoint) -> Iterator[None]:
        """Change one attention of a model. Raises ``ConfigError`` for a head that is missing."""
        if point.num_heads is not None:
            _check_heads(name, self.heads, point.num_heads)
        with timed(point) as at:
            tap = partial(self.changed, name, at)
            with tapped({name: tap}, {name: point}, first=True):
                yield

    def changed(self, name: str, at: PositionOf, values: Tensor) -> Tensor:
        """Return the weights (B, H, T, S) of all heads, some of them replaced."""
        _check_heads(name, self.heads, values.shape[1])
        heads = list(self.heads) or list(range(values.shape[1]))
        changed = values.clone()
        changed[:, heads] = self.replace(name, values[:, heads], at).to(values)
        return changed


class Clock:
    """The position of the first query of a call: that of the state, plus the steps since then.

    A recurrent decoder attends once a step before its state advances, a Transformer once a pass.
    """

    def __init__(self) -> None:
        self.start, self.read, self.steps = 0, 0, 0
        self.of: Callable[[], DecoderState | None] = lambda: None

    def before_call(
        self, module: nn.Module, args: tuple[object, ...], named: dict[str, object]
    ) -> None:
        """Note the position at which a call of the module begins."""
        state = named.get("state", args[3] if len(args) > 3 else None)
        if not isinstance(state, DecoderState):
            self.start, self.of = 0, lambda: None
            return
        same = self.of() is state and state.position == self.read
        self.start = self.start + self.steps if same else state.position
        self.of, self.read = ref(state), state.position

    def at(self, weights: Tensor) -> int:
        """Return the position of the first query of the weights (B, H, T, S) of this call."""
        self.steps = weights.shape[2]
        return self.start


@contextmanager
def timed(point: HookPoint) -> Iterator[PositionOf]:
    """Count the steps of an attention; yields a function that returns the position of a call."""
    if isinstance(point, ForeignAttention):
        yield point.at
        return
    clock = Clock()
    with point.register_forward_pre_hook(clock.before_call, with_kwargs=True):
        yield clock.at


def _check_heads(name: str, heads: Sequence[int], count: int) -> None:
    """Raise ``ConfigError`` if a head is not one of ``count``."""
    for head in heads:
        if not 0 <= head < count:
            raise ConfigError(f"{name} has no head {head}: there are {count}, from 0")


@contextmanager
def edit(model: nn.Module, changes: Mapping[str, Change]) -> Iterator[None]:
    """Change the attentions whose names match each key (see `foveate.look.hooks.chosen`).

    Several changes of one attention are made in order. Raises ``ConfigError`` listing the
    attentions or heads that exist.
    """
    with ExitStack() as stack:
        for where, change in reversed(list(changes.items())):
            for name, point in chosen(model, where).items():
                stack.enter_context(change.applied(name, point))
        yield


def silence(*heads: int) -> Change:
    """Return a change that zeroes heads, by default all of them (Michel et al., 2019)."""
    return Change(heads, lambda name, weights, at: torch.zeros_like(weights))


def force(weights: Any, *heads: int) -> Change:
    """Return a change to the given weights, (T, S) or (H, T, S); later queries keep their own."""
    return _forced(torch.as_tensor(weights), heads)


def patch(maps: Mapping[str, Tensor], *heads: int) -> Change:
    """Return a change to the weights of another run, as recorded by `capture`."""
    return _forced(dict(maps), heads)


def _forced(replacement: Replacement, heads: Sequence[int]) -> Change:
    """Return a change to the given weights; queries past them keep their own."""

    def replace(name: str, weights: Tensor, at: PositionOf) -> Tensor:
        first, keys, forced = at(weights), weights.shape[3], weights.clone()
        rows = _rows(replacement, name, heads, weights.shape[1])
        rows = rows[:, first : first + weights.shape[2]]
        if float(rows[..., keys:].sum()) > LOST:
            raise ConfigError(f"{name}: weights are given to key {keys}, but there are {keys} keys")
        fitted = F.pad(rows[..., :keys], (0, max(0, keys - rows.shape[-1])))
        forced[:, :, : rows.shape[1]] = fitted.to(weights)
        return forced

    return Change(heads, replace)


def _rows(replacement: Replacement, name: str, heads: Sequence[int], count: int) -> Tensor:
    """Return the given weights of ``count`` heads, (h or 1, T, S), without a batch of 1.

    Raises ``ConfigError`` if the attention was not captured, or for another shape.
    """
    if isinstance(replacement, Mapping):
        if name not in replacement:
            known = ", ".join(replacement) or "none"
            raise ConfigError(f"{name} is not among the maps given: {known}")
        replacement = replacement[name]
    single = replacement.dim() == 4 and len(replacement) == 1
    weights = whole = replacement[0] if single else replacement
    if weights.dim() == 2:
        return weights[None]
    if weights.dim() == 3:
        _check_heads(f"what {name} is given", heads, len(weights))
        weights = weights[list(heads)] if heads else weights
    if weights.dim() != 3 or len(weights) != count:
        raise ConfigError(
            f"{name}: weights of shape {tuple(whole.shape)} for "
            f"{count} heads; give (T, S), or (H, T, S) with all heads of the layer"
        )
    return weights


def silenced(places: Sequence[str]) -> dict[str, Change]:
    """Return the changes for heads given in words: ``decoder.layers.1.cross_attention:3,5``.

    Raises ``ConfigError`` if heads are not numbers.
    """
    heads: dict[str, list[list[int]]] = {}
    for place in places:
        name, colon, numbers = place.partition(":")
        try:
            lists = [int(number) for number in numbers.split(",")] if colon else []
        except ValueError:
            raise ConfigError(f"{place!r}: write PLACE:HEAD,HEAD, heads from 0") from None
        heads.setdefault(name, []).append(lists)
    return {
        name: silence(*([] if [] in lists else [head for each in lists for head in each]))
        for name, lists in heads.items()
    }
