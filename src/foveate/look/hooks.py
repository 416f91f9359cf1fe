"""Capture what a model computes in a forward pass: attention weights, hidden states."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.config import ConfigError, Configurable
from foveate.data.tokenizer import BOS, EOS, UNK
from foveate.errors import DIVERGED, NoOutputError
from foveate.look.foreign import (
    LISTED,
    ForeignAttention,
    explicit_attention,
    foreign,
    refuse_unknown,
    report_unclear,
)
from foveate.look.records import AttentionRecord, Maps, Units, block_of
from foveate.nn.attention import BaseAttention, Tap

# The attention weights of a model of foveate or another library, by name, each with a ``tap``.
#
# A tap is called with weights (B, H, T, S) and may return others, which mix the values instead.

Where = str | Iterable[str] | Callable[[str], bool]
HookPoint = BaseAttention | ForeignAttention


def hook_points(model: nn.Module, modules: str | Iterable[str] = ()) -> dict[str, HookPoint]:
    """Return all attention modules of a model by name, in the order of the model.

    Those of foveate have the dotted names of their modules. Those of plain PyTorch and of Hugging
    Face have the names that they would have in foveate (``decoder.layers.0.cross_attention``) if
    that is clear, else the names of their modules. ``modules`` selects the attentions of a model of
    another library by the names of its modules, or by patterns of these.
    """
    if modules:
        return dict(foreign(model, [modules] if isinstance(modules, str) else modules))
    attentions: dict[str, HookPoint] = {
        name: part for name, part in model.named_modules() if isinstance(part, BaseAttention)
    }
    return attentions or dict(foreign(model))


def everywhere(name: str) -> bool:
    """Choose every attention of a model."""
    return True


def chosen(
    model: nn.Module, where: Where, modules: str | Iterable[str] = ()
) -> dict[str, HookPoint]:
    """Return the hook points whose names match. Raises ``ConfigError`` listing those that exist.

    A text matches a name that has it in its parts (``cross_attention``, ``layers.1``, ``encoder``),
    a block (``decoder.cross_attention``), or as a pattern (``decoder.layers.*.cross*``).
    """
    available = hook_points(model, modules)
    if callable(where):
        return {name: point for name, point in available.items() if where(name)}
    patterns = [where] if isinstance(where, str) else list(where)
    for pattern in patterns:
        if not any(fits(name, pattern) for name in available):
            names = [*list(available)[:LISTED], *["…"] * (len(available) > LISTED)]
            known = f"there are: {', '.join(names)}" if names else "this model has no attention"
            raise ConfigError(f"no attention is called {pattern!r}; {known}")
    return {n: point for n, point in available.items() if any(fits(n, p) for p in patterns)}


def fits(name: str, pattern: str) -> bool:
    """Return whether a name matches a pattern; see `chosen`."""
    dotted = (f".{name}.", f".{block_of(name)}.")
    return fnmatchcase(name, pattern) or any(f".{pattern}." in each for each in dotted)


@contextmanager
def tapped(taps: Mapping[str, Tap],
           places: Mapping[str, HookPoint],
           first: bool = False,
           reads: bool = False) -> Iterator[None]:  # fmt: skip
    """Set taps for the context, after those that are already set (or before them: ``first``).

    ``reads`` promises that these taps return nothing, so that outputs do not change.
    """
    before = {name: places[name].tap for name in taps}
    hosts = {s.model for name in taps if isinstance(s := places[name], ForeignAttention)}
    with ExitStack() as stack:
        for host in hosts:
            stack.enter_context(explicit_attention(host, reads))
        try:
            for name, tap in taps.items():
                there = before[name]
                places[name].tap = _chained(tap, there) if first else _chained(there, tap)
            yield
        finally:
            for name in taps:
                places[name].tap = before[name]


def _chained(first: Tap | None, second: Tap | None) -> Tap | None:
    """Return one tap that calls both in turn: the second gets what the first returns."""
    if first is None or second is None:
        return first or second

    def both(weights: Tensor) -> Tensor | None:
        replaced = first(weights)
        again = second(weights if replaced is None else replaced)
        return replaced if again is None else again

    return both


LIMIT = 2 * 2**30  # bytes of maps
BYTES = 4  # per weight, stored in single precision


@contextmanager
def capture(model: nn.Module,
            where: Where = everywhere,
            limit: int = LIMIT,
            modules: str | Iterable[str] = ()) -> Iterator[dict[str, Tensor]]:  # fmt: skip
    """Collect the weights (B, H, T, S) of attentions by name, as they finally mix the values.

    ``where`` selects blocks, layers or maps (``"cross_attention"``, ``"decoder.layers.1"``, a
    pattern, or several of them), or is a function that chooses names; see `chosen`. The steps of a
    decoder are joined along the queries T; keys that did not exist yet get 0. Other calls of one
    module (of layers that share it, or two in a block) are recorded apart: ``name``, ``name#2``, ….
    The outputs of the model do not change. Models of plain PyTorch (``nn.MultiheadAttention``) and
    of Hugging Face compute their weights a second time meanwhile; ``modules`` selects attentions
    that are not recognised by their class, by names or patterns of names.

        with capture(model, "cross_attention") as maps:
            model(source, target)
        maps["decoder.layers.2.cross_attention"]

    Raises ``ConfigError`` if nothing has such a name, if no module of a model of another library is
    recognised or no weights are, or as soon as the maps of all layers together would foreseeably
    take more than ``limit`` bytes. Warns of attentions whose weights are not recognised, and if
    none is called.
    """
    attentions = chosen(model, where, modules)
    if not attentions and not any(isinstance(part, Configurable) for part in model.modules()):
        refuse_unknown(model)
    maps: dict[str, Tensor] = {}
    calls: dict[str, list[str]] = {name: [] for name in attentions}  # the maps of each
    last: dict[str, Tensor] = {}

    def see(name: str, weights: Tensor) -> None:
        remaining = sum(not known for known in calls.values()) - (not calls[name])
        held = sum(map(Tensor.numel, maps.values())) + weights.numel()
        _refuse_above(limit, held + remaining * weights.numel(), weights, len(attentions))
        seen, known = weights.detach().float(), calls[name]
        if known and _continues(attentions[name], last[name], maps[known[-1]], seen):
            maps[known[-1]] = _joined(name, maps[known[-1]], seen)
        else:
            known.append(f"{name}#{len(known) + 1}" if known else name)
            maps[known[-1]] = seen
        last[name] = seen

    with tapped({name: partial(see, name) for name in attentions}, attentions, reads=True):
        yield maps
    others = [each for each in attentions.values() if isinstance(each, ForeignAttention)]
    if unclear := [each for each in others if each.unclear]:
        report_unclear(unclear, bool(maps))
    if attentions and not maps:
        names = ", ".join(list(attentions)[:LISTED])
        warnings.warn(
            f"no weights were captured: nothing called {names}; run the model inside the block, or "
            "name the modules that it calls (modules=…)",
            stacklevel=3,
        )


def _continues(point: HookPoint, last: Tensor, joined: Tensor, now: Tensor) -> bool:
    """Return whether a call is the next step of the calls before it, not a separate call.

    Then its keys are those of before, or these and its own. A module of another library must take
    one query at a time, since two calls in one layer would look alike.
    """
    steps, keys = now.shape[2:]
    grown, same = keys == joined.shape[3] + steps, keys == joined.shape[3]
    if isinstance(point, BaseAttention):
        return grown or (same and steps == 1)
    cross = keys > 1 or point.name.endswith("cross_attention")
    return steps == 1 and (grown or (same and cross and last.shape[2] == 1))


def _refuse_above(limit: int, numbers: int, weights: Tensor, layers: int) -> None:
    """Raise ``ConfigError`` if ``numbers`` weights, L·B·H·T·S of layers like this, are too many."""
    if numbers * BYTES <= limit:
        return
    rows, heads, queries, keys = weights.shape
    raise ConfigError(
        f"{layers} maps of {rows} × {heads} heads × {queries} queries × {keys} keys would take "
        f"{numbers * BYTES / 2**30:.3g} GiB, more than the limit of {limit / 2**30:.3g}: ask for "
        'fewer, as in capture(model, "decoder.layers.0"), for a shorter input, or raise limit'
    )


def _joined(name: str, before: Tensor, now: Tensor) -> Tensor:
    """Join two successive calls: (B, H, T₁, S₁) and (B, H, T₂, S₂) as (B, H, T₁ + T₂, S)."""
    if before.shape[:2] != now.shape[:2]:
        raise ConfigError(
            f"{name} was called for {len(before)} rows and then for {len(now)}: calls of several "
            "batches, or of a search that drops rows, form no single map; capture a forced pass of "
            "the output (run.explain)"
        )
    keys = max(before.shape[3], now.shape[3])
    wide = [F.pad(weights, (0, keys - weights.shape[3])) for weights in (before, now)]
    return torch.cat(wide, dim=2)


class Call(NamedTuple):
    """One call of a module: arguments by position and by name, its output, the module's name."""

    module: nn.Module
    args: tuple[Any, ...]
    named: dict[str, object]
    output: Any
    name: str = ""

    @property
    def read(self) -> list[Tensor]:
        """The tensors in its arguments, at any depth."""
        return [*tensors_in((self.args, self.named))]

    @property
    def gave(self) -> list[Tensor]:
        """The tensors in its output, at any depth."""
        return [*tensors_in(self.output)]


@contextmanager
def calls_of(*modules: nn.Module) -> Iterator[list[Call]]:
    """Collect the calls of modules, in order."""
    calls: list[Call] = []

    with ExitStack() as stack:
        for module in modules:
            hook = partial(module.register_forward_hook, with_kwargs=True)
            stack.enter_context(hook(lambda *call: calls.append(Call(*call))))
        yield calls


def tensors_in(value: object) -> Iterator[Tensor]:
    """Yield the tensors of a value, at any depth of tuples, lists, dicts and dataclasses."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))
    elif isinstance(value, tuple | list):
        for part in value:
            yield from tensors_in(part)
    elif is_dataclass(value):
        yield from tensors_in([getattr(value, each.name) for each in fields(value)])


def without_words(ids: Tensor) -> Tensor:
    """Return ids with an unknown word in place of each but starts and ends."""
    return torch.where((ids == BOS) | (ids == EOS), ids, UNK)


# A forced pass: a model reads an example with its whole target (`foveate.run.passes.forced_pass`).


@dataclass(frozen=True)
class ForcedPass:
    """A model and an example with its target, which can be run repeatedly.

    ``run`` computes the example and returns (N,) scores: log p of each token of the target or of
    the label, or the values of a forecast (``score_name``), with a graph if gradients are on.
    ``label`` turns maps between tokens into a record, with ``units`` on its axes. ``read`` are the
    tokens that "encoder" and "decoder" read, ``produced`` those that the scores belong to. ``row``
    is the row of the batch that holds the example; ``answer_at`` the position of the encoder's
    output from which a label is predicted, None for all. ``first`` is the position of the first
    score among the tokens read. ``token`` returns the name of a class of the output, and ``target``
    are the ids of ``produced``, for a translation. ``number`` returns the class of a label, or of
    the first token of a word; ``blank`` the ids read, with an unknown word in place of each word.
    """

    model: nn.Module
    run: Callable[[], Tensor]
    label: Callable[[Maps, Units], AttentionRecord]
    produced: Sequence[str]
    read: Mapping[str, Sequence[str]] = field(default_factory=dict)
    row: int = 0
    first: int = 0
    answer_at: int | None = None
    token: Callable[[int], str] | None = None
    number: Callable[[str], int] | None = None
    blank: Callable[[Tensor], Tensor] = without_words
    score_name: str = "log p"
    units: Units = "auto"
    target: Sequence[int] = ()

    @torch.inference_mode()
    def scores(self) -> NDArray[np.float64]:
        """Return the scores (N,) of the example."""
        return self.run().double().cpu().numpy()

    def scored(self, outputs: Tensor) -> Tensor:
        """Return the rows (N, V) of an output layer's result that the scores are read from."""
        rows = outputs[self.row].reshape(-1, outputs.shape[-1])
        return rows[self.first : self.first + len(self.produced)].float()

    def words(self, name: str, count: int, others: Sequence[str] = ()) -> list[str]:
        """Return labels of a module's steps, as many: what its part reads, ``others``, numbers."""
        labels = self.read.get(name.split(".")[0], ()), others
        return next((list(x) for x in labels if len(x) == count), [*map(str, range(count))])

    def difference(
        self, before: NDArray[np.float64], after: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return how much each score has decreased; for a forecast the absolute difference."""
        return before - after if self.score_name == "log p" else np.abs(before - after)

    @torch.inference_mode()
    def maps(self, where: Where = everywhere) -> Maps:
        """Return the weights of every attention, (H, T, S), between pieces."""
        with capture(self.model, where) as captured:
            self.run()
        return {name: weights[self.row].cpu().numpy() for name, weights in captured.items()}

    def record(self) -> AttentionRecord:
        """Return the weights of every attention, with labels on both axes.

        Raises `NoOutputError` if weights are not finite.
        """
        maps = self.maps()
        for name, weights in maps.items():
            if not np.isfinite(weights).all():
                raise NoOutputError(f"no map of {name}: {DIVERGED}")
        return self.label(maps, self.units)

    def labelled(self, maps: Maps, note: str) -> AttentionRecord:
        """Label the axes of maps that were computed from others, and note how."""
        made = self.label(maps, self.units)
        return replace(made, notes=[*made.notes, note])
