"""What a family of Hugging Face models is to us: a config, a table of keys, a table of names.

Lives here: `Family` with its `Key`s (config.json ↔ our config) and `Rule`s (their tensors ↔ ours),
and how tables are read in both directions. Does not live here: the families themselves
(`huggingface_decoders`, `_encoders`, `_pairs`, `_pictures`), what their models are built with
(`huggingface_ends`) and the files (`huggingface`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from foveate.config import Config
from foveate.export.huggingface_ends import Ends, Settings
from foveate.tree import Tree

Tensors = Mapping[str, Tensor]
FREE = ("dropout", "output_bias")  # acts in training alone; is zero where there is none


class ExchangeError(ValueError):
    """Files and a model do not fit: names the file, the key or tensor, and the remedy."""


# ------------------------------------------------------------------------------ tensors


class Form:
    """How a tensor of theirs is stored; this one as ours is."""

    def read(self, theirs: Tensor, settings: Settings) -> Tensor:
        """Our tensor."""
        return theirs

    def write(self, ours: Tensor, there: Tensor | None, settings: Settings) -> Tensor:
        """Their tensor; ``there`` is what other tensors of ours have already put there."""
        return ours


class Transposed(Form):
    """A matrix (inputs, outputs), not (outputs, inputs): GPT-2's "Conv1D"."""

    def read(self, theirs: Tensor, settings: Settings) -> Tensor:
        return theirs.T if theirs.ndim == 2 else theirs

    def write(self, ours: Tensor, there: Tensor | None, settings: Settings) -> Tensor:
        return ours.T if ours.ndim == 2 else ours


@dataclass(frozen=True)
class Third(Form):
    """One of queries, keys and values, which stand side by side in a transposed matrix."""

    number: int

    def read(self, theirs: Tensor, settings: Settings) -> Tensor:
        return theirs.T.chunk(3)[self.number] if theirs.ndim == 2 else theirs.chunk(3)[self.number]

    def write(self, ours: Tensor, there: Tensor | None, settings: Settings) -> Tensor:
        own = ours.T if ours.ndim == 2 else ours
        return own if there is None else torch.cat((there, own), dim=-1)


class AfterTwo(Form):
    """A table of places that begins with two rows that no real token reads (BART, RoBERTa)."""

    def read(self, theirs: Tensor, settings: Settings) -> Tensor:
        return theirs[2:]

    def write(self, ours: Tensor, there: Tensor | None, settings: Settings) -> Tensor:
        return torch.cat((ours.new_zeros(2, ours.shape[1]), ours))


class Row(Form):
    """A vector stored as a matrix of one row."""

    def read(self, theirs: Tensor, settings: Settings) -> Tensor:
        return theirs.squeeze(0)

    def write(self, ours: Tensor, there: Tensor | None, settings: Settings) -> Tensor:
        return ours.unsqueeze(0)


@dataclass(frozen=True)
class Rule:
    """A tensor, or all of a module, under its two names; ``*`` is the number of a layer."""

    ours: str
    theirs: str
    form: Form = field(default_factory=Form)

    def match(self, name: str) -> str | None:
        """Their name of a tensor of ours, or None where the rule is of another."""
        pattern = re.escape(self.ours).replace(r"\*", r"(\d+)") + r"(\..*)?"
        found = re.fullmatch(pattern, name)
        if found is None:
            return None
        *layer, rest = found.groups()
        return self.theirs.replace("*", "".join(layer)) + (rest or "")


def layers(ours: str, theirs: str, parts: Mapping[str, str | tuple[str, Form]]) -> tuple[Rule, ...]:
    """The rules of the parts of a layer, each name behind that of the layer."""
    rules = []
    for own, other in parts.items():
        name, *form = (other,) if isinstance(other, str) else other
        rules.append(Rule(f"{ours}.{own}", f"{theirs}.{name}", *form))
    return tuple(rules)


# ------------------------------------------------------------------------------ configs


@dataclass(frozen=True)
class Key:
    """A key of config.json and the fields of our config that say the same, as dotted names.

    ``default`` is what transformers takes where the key is absent; ``values`` translates theirs
    to ours where they differ; ``shift`` is what ours is less.
    """

    theirs: str
    default: Any
    ours: tuple[str, ...]
    values: Mapping[Any, Any] | None = None
    shift: int = 0

    def read(self, settings: Settings) -> Any:
        """Our value. Raises `ExchangeError` for one that we have no part for."""
        value = settings.get(self.theirs, self.default)
        if self.values is not None:
            if value not in self.values:
                raise ExchangeError(
                    f"{self.theirs} = {value!r} is none of those we have: "
                    f"{', '.join(map(str, self.values))}"
                )
            return self.values[value]
        return value - self.shift if self.shift else value

    def write(self, tree: Tree) -> Any:
        """Their value, from the first of our fields; its default where ours says nothing of it."""
        value = next((v for path in self.ours if (v := look_up(tree, path)) is not None), None)
        if self.values is not None:
            names = [theirs for theirs, ours in self.values.items() if ours == value]
            return names[0] if names else self.default
        return self.default if value is None else value + self.shift if self.shift else value


def no_rules(settings: Settings) -> tuple[Rule, ...]:
    """No name that depends on settings."""
    return ()


def unchanged(settings: Settings, tensors: Tensors) -> Settings:
    """Settings that need no completion."""
    return settings


@dataclass(frozen=True)
class Family:
    """One kind of model of a ``model_type``: what it is in our terms.

    ``config``     ours, with the kinds that all of them share
    ``ends``       what it is built with besides: vocabularies, or pictures and labels
    ``head``       a tensor that only this one of several of its ``model_type`` has
    ``rules_of``   rules that depend on settings
    ``only``       keys of which we have one value alone
    ``prefix``     what stands before names where a head is part of the model
    ``copies``     names under which a tied tensor may be stored once more, and its first name
    ``heads``      beginnings of names of parts that we have no place for
    ``computed``   ends of names of what is no weight
    ``optional``   names that stand for zeros where they are absent
    ``waves``      tables of sines and cosines that are written though nobody learned them
    ``complete``   says what config.json leaves open; ``finish`` what it wants besides
    """

    name: str
    architecture: str
    config: Config
    ends: Ends
    keys: tuple[Key, ...]
    rules: tuple[Rule, ...]
    rules_of: Callable[[Settings], tuple[Rule, ...]] = no_rules
    only: Mapping[str, Any] = field(default_factory=dict)
    head: str | None = None
    prefix: str = ""
    copies: Mapping[str, str] = field(default_factory=dict)
    heads: tuple[str, ...] = ()
    computed: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    waves: tuple[str, ...] = ()
    complete: Callable[[Settings, Tensors], Settings] = unchanged
    finish: Callable[[Settings], Settings] = dict

    def said(self, settings: Settings, tensors: Tensors) -> Settings:
        """Settings in which everything is said."""
        defaults = {key.theirs: key.default for key in self.keys}
        return defaults | self.complete(settings, tensors)

    def read_config(self, settings: Settings) -> Config:
        """Our config. Raises `ExchangeError` for a setting that we cannot follow."""
        for key, value in self.only.items():
            if settings.get(key, value) != value:
                raise ExchangeError(
                    f"{key} = {settings[key]!r}: of {self.name} we have only {key} = {value!r}"
                )
        tree = self.config.tree()
        for entry in self.keys:
            value = entry.read(settings)
            for path in entry.ours:
                tree = _set(tree, path, value)
        return type(self.config).parse(tree)

    def write_config(self, config: Config) -> Settings:
        """What config.json says of our config.

        Raises `ExchangeError` that names the fields of ours for which there is no key.
        """
        tree = _explicit(config.tree())
        settings = {key.theirs: key.write(tree) for key in self.keys} | dict(self.only)
        back = _explicit(self.read_config(settings).tree())
        wrong = [
            f"{path} = {look_up(tree, path)!r} (there it is {look_up(back, path)!r})"
            for path in sorted({*_paths(tree), *_paths(back)} - {"kind"})
            if look_up(tree, path) != look_up(back, path) and not path.endswith(FREE)
        ]
        if wrong:
            raise ExchangeError(f"{self.name} has no place for {', '.join(wrong)}")
        return settings

    def their_name(self, name: str, settings: Settings) -> tuple[str, Form]:
        """Their name of a tensor of ours, and how it is stored there."""
        for rule in (*self.rules_of(settings), *self.rules):
            if (theirs := rule.match(name)) is not None:
                return theirs, rule.form
        raise ExchangeError(f"{self.name} has no place for the tensor {name}")


def headed(
    encoder: Family,
    keys: tuple[Key, ...],
    rules: tuple[Rule, ...],
    also: Mapping[str, tuple[str, ...]],
    **changes: Any,
) -> Family:
    """The family of an encoder with a head: ours holds it as ``encoder``, theirs by its prefix.

    ``keys`` and ``rules`` are those of the head; ``also`` names fields of it that keys of the
    encoder decide as well.
    """
    inner = (
        replace(key, ours=(*(f"encoder.{o}" for o in key.ours), *also.get(key.theirs, ())))
        for key in encoder.keys
    )
    own = (Rule(f"encoder.{r.ours}", encoder.prefix + r.theirs, r.form) for r in encoder.rules)
    return replace(encoder, keys=(*inner, *keys), rules=(*own, *rules), **changes)


def look_up(tree: Tree, path: str) -> Any:
    """The value at a dotted name, or None."""
    value: Any = tree
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _set(tree: Tree, path: str, value: Any) -> Tree:
    """The tree with another value at a dotted name; its neighbours stay."""
    name, _, rest = path.partition(".")
    inner: Any = tree.get(name, {})
    return tree | {name: _set(inner, rest, value) if rest else value}


def _paths(tree: Tree, before: str = "") -> list[str]:
    """The dotted names of all plain values."""
    found: list[str] = []
    for key, value in tree.items():
        inner = isinstance(value, dict)
        found += _paths(value, f"{before}{key}.") if inner else [before + key]
    return found


def _explicit(tree: Tree) -> Tree:
    """A tree in which the heads of each attention and their size are said."""
    filled: dict[str, Any] = {
        k: _explicit(v) if isinstance(v, dict) else v for k, v in tree.items()
    }
    for name in ("attention", "cross_attention"):
        if name in filled and "hidden_size" in filled:
            heads = filled["num_heads"]
            said = {"key_heads": heads, "head_size": filled["hidden_size"] // heads}
            filled[name] = said | filled[name] | {"num_heads": heads}
    return filled
