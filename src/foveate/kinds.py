"""Every registered kind, with its fields, as a table for people or as JSON for tools.

Lives here: importing the modules that register kinds, and describing what they registered.
Does not live here: the registry itself, which is in `foveate.config`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import types
import typing
from dataclasses import asdict, dataclass
from typing import Any

from foveate.config import Config, ConfigError, kinds

PACKAGES = ("nn", "data", "models", "decode", "look", "align", "tasks", "train")


@dataclass(frozen=True)
class Field:
    """One field of a kind: its type in words, its default (``None``: there is none), its limits."""

    type: str
    default: str | None
    limits: str


@dataclass(frozen=True)
class Kind:
    """One registered kind: what it means and which fields it has."""

    family: str
    name: str
    meaning: str
    fields: dict[str, Field]


def load_kinds() -> None:
    """Import every module of ours that may register kinds."""
    for package in PACKAGES:
        try:
            root = importlib.import_module(f"foveate.{package}")
        except ModuleNotFoundError as error:
            if error.name != f"foveate.{package}":
                raise
            continue
        for module in pkgutil.walk_packages(root.__path__, root.__name__ + "."):
            importlib.import_module(module.name)


def all_kinds(family: str | None = None) -> list[Kind]:
    """Every kind of one family or of all; raise `ConfigError` where there is no such family."""
    load_kinds()
    known = kinds()
    if family is not None and family not in known:
        raise ConfigError(f"no family {family!r}; there are: {', '.join(known)}")
    return [
        Kind(name, kind, _meaning(config), _fields(config))
        for name, members in kinds(family).items()
        for kind, config in sorted(members.items())
    ]


def kinds_table(found: list[Kind]) -> str:
    """The kinds as text: a heading for a family, a line for a kind, a line for a field."""
    lines: list[str] = []
    for kind in found:
        if not lines or kind.family != found[found.index(kind) - 1].family:
            lines += ["", kind.family]
        lines.append(f"  {kind.name:<16} {kind.meaning}".rstrip())
        for name, field in kind.fields.items():
            default = "(required)" if field.default is None else f"= {field.default}"
            line = f"      {name:<20} {field.type:<24} {default}"
            lines.append(f"{line}  {field.limits}".rstrip())
    return "\n".join(lines).strip()


def kinds_tree(found: list[Kind]) -> dict[str, Any]:
    """The kinds as plain values: family → kind → meaning and fields."""
    tree: dict[str, Any] = {}
    for kind in found:
        fields = {name: asdict(field) for name, field in kind.fields.items()}
        tree.setdefault(kind.family, {})[kind.name] = {"meaning": kind.meaning, "fields": fields}
    return tree


def _meaning(config: type[Config]) -> str:
    """The first sentence of the docstring of what the config builds, or of the config."""
    docstrings = [c.__doc__ for c in (config.owner, config) if c is not None]
    text = next((inspect.cleandoc(doc) for doc in docstrings if doc), "")
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[a-z)\]])\. (?=[A-Z`])", paragraph)[0].rstrip(".")


def _fields(config: type[Config]) -> dict[str, Field]:
    fields = {}
    for name, info in config.model_fields.items():
        default = None
        if not info.is_required():
            default = _value(info.get_default(call_default_factory=True))
        limits = [limit for part in info.metadata if (limit := _limit(part))]
        fields[name] = Field(_type(info.annotation), default, ", ".join(limits))
    return fields


def _type(annotation: Any) -> str:
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is type(None):
        return "absent"
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(_type, parts))
    if origin is typing.Literal:
        return " | ".join(f'"{part}"' for part in parts)
    if origin is typing.Annotated:
        return _type(parts[0])
    if parts:
        inner = ", ".join("…" if part is Ellipsis else _type(part) for part in parts)
        return f"{getattr(origin, '__name__', origin)}[{inner}]"
    if isinstance(annotation, type) and issubclass(annotation, Config):
        return f"<{annotation.family or (annotation.owner or annotation).__name__}>"
    return getattr(annotation, "__name__", str(annotation))


def _value(value: Any) -> str:
    if value is None:
        return "absent"
    if isinstance(value, Config):
        changed = value.differences()
        inner = ", ".join(f"{key} = {_value(v)}" for key, v in changed.items())
        return f"{value.kind or ''}{{{inner}}}" if inner else (value.kind or "{}")
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_value, value))}]"
    return str(value)


_LIMITS = {
    "gt": "> {}",
    "ge": "≥ {}",
    "lt": "< {}",
    "le": "≤ {}",
    "multiple_of": "multiple of {}",
    "min_length": "at least {} long",
    "max_length": "at most {} long",
}


def _limit(part: Any) -> str:
    """What one constraint of a field says, such as ``> 0``."""
    given = {name: getattr(part, name, None) for name in _LIMITS}
    said = [_LIMITS[name].format(value) for name, value in given.items() if value is not None]
    return ", ".join(said)
