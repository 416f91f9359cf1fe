"""Changing what attention does, and running the model again: what would it say without this head?

with edit(model, {"decoder.layers.1.cross_attention": silence(3)}):
    run.translate(["A man sleeps ."])

Changes go through the point through which `capture` looks; a capture meanwhile sees what was mixed
in the end. They hold for forced passes and for searches alike, step by step and with beams.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.config import ConfigError
from foveate.look.records import HookPoint, OwnHookPoint, chosen, tapped

LOST = 1e-6  # weight that may be cut off with keys that are not there


class Change(ABC):
    """What becomes of some heads (of all, where none is named)."""

    def __init__(self, heads: Sequence[int]) -> None:
        self.heads = list(heads)

    def hang(self, name: str, point: HookPoint) -> AbstractContextManager[None]:
        """Make the change at one place of a model. Raises ``ConfigError`` for a head too many."""
        if point.num_heads is not None:
            self.refuse(name, point.num_heads)
        return self.hung(name, point)

    def refuse(self, name: str, count: int) -> None:
        """Raise ``ConfigError`` where a head is not one of ``count``."""
        for head in self.heads:
            if not 0 <= head < count:
                raise ConfigError(f"{name} has no head {head}: there are {count}, from 0")

    @abstractmethod
    def hung(self, name: str, point: HookPoint) -> AbstractContextManager[None]:
        """The change at one place."""


class WeightsChange(Change):
    """Other weights for some heads."""

    @contextmanager
    def hung(self, name: str, point: HookPoint) -> Iterator[None]:
        with point.timed() as at, tapped({name: self._tap(name, at)}, {name: point}, first=True):
            yield

    def _tap(self, name: str, at: Callable[[Tensor], int]) -> Callable[[Tensor], Tensor]:
        def tap(weights: Tensor) -> Tensor:
            self.refuse(name, weights.shape[1])
            heads = self.heads or list(range(weights.shape[1]))
            changed = weights.clone()
            changed[:, heads] = self.instead(name, weights[:, heads], at).to(weights)
            return changed

        return tap

    @abstractmethod
    def instead(self, name: str, weights: Tensor, at: Callable[[Tensor], int]) -> Tensor:
        """Weights (B, h, T, S) in place of those of the chosen heads.

        ``at`` says of the weights at which place of the sequence their first query stands.
        """


class Silence(WeightsChange):
    """Weights of 0: the head adds nothing (Michel et al., 2019)."""

    def instead(self, name: str, weights: Tensor, at: Callable[[Tensor], int]) -> Tensor:
        return torch.zeros_like(weights)


class Uniform(WeightsChange):
    """The same weight on all keys that had any."""

    def instead(self, name: str, weights: Tensor, at: Callable[[Tensor], int]) -> Tensor:
        seen = (weights > 0).to(weights)
        return seen / seen.sum(dim=-1, keepdim=True).clamp(min=1)


class Diagonal(WeightsChange):
    """Query t attends to key t + offset only, or to the last key that it may attend to."""

    def __init__(self, heads: Sequence[int], offset: int) -> None:
        super().__init__(heads)
        self.offset = offset

    def instead(self, name: str, weights: Tensor, at: Callable[[Tensor], int]) -> Tensor:
        queries, keys = weights.shape[2:]
        first = at(weights)
        last = keys - 1 - (weights > 0).flip(-1).int().argmax(dim=-1)  # (B, h, T)
        targets = torch.arange(first, first + queries, device=weights.device) + self.offset
        return F.one_hot(torch.minimum(targets.clamp(min=0), last), keys)


class Force(WeightsChange):
    """Given weights; queries past them keep their own."""

    def __init__(self, heads: Sequence[int], replacement: Mapping[str, Tensor] | Tensor) -> None:
        super().__init__(heads)
        self.replacement = replacement

    def instead(self, name: str, weights: Tensor, at: Callable[[Tensor], int]) -> Tensor:
        first, keys, forced = at(weights), weights.shape[3], weights.clone()
        rows = self.rows(name, weights.shape[1])[:, first : first + weights.shape[2]]
        if float(rows[..., keys:].sum()) > LOST:
            raise ConfigError(f"{name}: weights are given to key {keys}, but there are {keys} keys")
        fitted = F.pad(rows[..., :keys], (0, max(0, keys - rows.shape[-1])))
        forced[:, :, : rows.shape[1]] = fitted.to(weights)
        return forced

    def rows(self, name: str, count: int) -> Tensor:
        """The weights of the chosen heads, (h or 1, T, S)."""
        weights = _of(self.replacement, name)
        weights = weights[0] if weights.dim() == 4 and len(weights) == 1 else weights
        if weights.dim() == 2:
            return weights[None]
        if weights.dim() == 3:
            self.refuse(f"what {name} is given", len(weights))
            weights = weights[self.heads] if self.heads else weights
        if weights.dim() != 3 or len(weights) != count:
            raise ConfigError(
                f"{name}: weights of shape {tuple(_of(self.replacement, name).shape)} for "
                f"{count} heads; give (T, S), or (H, T, S) with all heads of the layer"
            )
        return weights


class PatchOutput(Change):
    """What some heads gave in another run, A_h V_h, in place of what they give in this one."""

    def __init__(self, heads: Sequence[int], replacement: Mapping[str, Tensor] | Tensor) -> None:
        super().__init__(heads)
        self.replacement = replacement

    @contextmanager
    def hung(self, name: str, point: HookPoint) -> Iterator[None]:
        outputs = _of(self.replacement, name)
        if outputs.dim() == 4 and len(outputs) == 1:
            outputs = outputs[0]  # (T, H, V)
        with point.timed() as at, _mixtures(name, point) as (module, count):

            def patch(output: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
                mixed = args[0].unflatten(-1, (count, -1)).clone()  # (B, T, H, V)
                first = at(mixed.transpose(1, 2))
                queries = max(0, min(mixed.shape[1], len(outputs) - first))
                heads = self.heads or list(range(count))
                rows = outputs[first : first + queries][:, heads].to(mixed)
                mixed[:, :queries, heads] = rows
                return (mixed.flatten(2),)

            with module.register_forward_pre_hook(patch):
                yield


@contextmanager
def edit(model: nn.Module, changes: Mapping[str, Change]) -> Iterator[None]:
    """Let the attentions that fit each name (see `foveate.look.records.chosen`) do something else.

    Of several changes of one place the first is made first. Raises ``ConfigError`` naming the
    places or heads that exist.
    """
    with ExitStack() as stack:
        for where, change in reversed(list(changes.items())):
            for name, point in chosen(model, where).items():
                stack.enter_context(change.hang(name, point))
        yield


@contextmanager
def capture_outputs(model: nn.Module, where: str) -> Iterator[dict[str, Tensor]]:
    """Collect what each head of some attentions of ours gives, (B, T, H, V), for `patch_output`."""
    outputs: dict[str, Tensor] = {}

    def listen(name: str, count: int) -> Callable[[nn.Module, tuple[Tensor]], None]:
        def see(output: nn.Module, args: tuple[Tensor]) -> None:
            seen = args[0].detach().unflatten(-1, (count, -1))
            outputs[name] = torch.cat((outputs[name], seen), dim=1) if name in outputs else seen

        return see

    with ExitStack() as stack:
        for name, point in chosen(model, where).items():
            module, count = stack.enter_context(_mixtures(name, point))
            stack.enter_context(module.register_forward_pre_hook(listen(name, count)))
        yield outputs


@contextmanager
def _mixtures(name: str, point: HookPoint) -> Iterator[tuple[nn.Module, int]]:
    """The module that reads what all heads gave, side by side, and how many heads there are."""
    if not isinstance(point, OwnHookPoint):
        raise ConfigError(f"{name} is no attention of foveate: outputs of its heads are not known")
    yield point.module.output, point.module.num_heads


def _of(replacement: Mapping[str, Tensor] | Tensor, name: str) -> Tensor:
    """What is given for one place. Raises ``ConfigError`` where it is not among the captured."""
    if not isinstance(replacement, Mapping):
        return replacement
    if name not in replacement:
        raise ConfigError(f"{name} is not among the maps given: {', '.join(replacement) or 'none'}")
    return replacement[name]


# ------------------------------------------------------------------------------ in words


def silence(*heads: int) -> Change:
    """Heads that add nothing; all of the layer where none is named."""
    return Silence(heads)


def uniform(*heads: int) -> Change:
    """Heads that look at everything alike."""
    return Uniform(heads)


def diagonal(*heads: int, offset: int = 0) -> Change:
    """Heads that look at the place where they stand, or so many places further."""
    return Diagonal(heads, offset)


def force(weights: Any, *heads: int) -> Change:
    """Heads with given weights, (T, S) or (H, T, S), in place of their own."""
    return Force(heads, torch.as_tensor(weights))


def patch(maps: Mapping[str, Tensor], *heads: int) -> Change:
    """Heads with the weights that they had in another run, as `capture` has seen them there."""
    return Force(heads, dict(maps))


def patch_output(outputs: Mapping[str, Tensor], *heads: int) -> Change:
    """Heads that give what they gave in another run, as `capture_outputs` has seen it there."""
    return PatchOutput(heads, dict(outputs))


def silenced(places: Sequence[str]) -> dict[str, Change]:
    """Changes for places in words: ``decoder.layers.1.cross_attention:3,5``, heads after a colon.

    Raises ``ConfigError`` where heads are no numbers.
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
        name: Silence([] if [] in lists else [head for each in lists for head in each])
        for name, lists in heads.items()
    }
