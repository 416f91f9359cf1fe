"""Every registered kind and every table of a config, with their fields: text, JSON, JSON Schema.

The meaning of a field is the comment after it or the docstring below it, read from the source.
"""

import ast
import difflib
import functools
import importlib
import inspect
import pkgutil
import re
import textwrap
import types
import typing
from dataclasses import dataclass, replace

from foveate.config import Config, ConfigError, Tree, config_type, kinds

PACKAGES = ("nn", "data", "models", "decode", "align", "tasks", "train")


@dataclass(frozen=True)
class Field:
    """One field: its type in words, its default (``None`` without one), limits and meaning."""

    type: str
    default: str | None
    limits: str
    meaning: str


@dataclass(frozen=True)
class Kind:
    """One registered kind, or one table of a config (family "table"): its meaning and fields."""

    family: str
    name: str
    meaning: str
    fields: dict[str, Field]
    differs: str = ""  # from the paper, in one sentence; empty if not known to differ


def load_kinds() -> None:
    """Import every module of foveate that may register kinds."""
    for package in PACKAGES:
        root = importlib.import_module(f"foveate.{package}")
        for module in pkgutil.walk_packages(root.__path__, root.__name__ + "."):
            importlib.import_module(module.name)


def all_kinds() -> list[Kind]:
    """Return every kind of every family."""
    load_kinds()
    return [
        Kind(name, kind, _meaning(config), _fields(config), _differs(config))
        for name, members in kinds().items()
        for kind, config in sorted(members.items())
    ]


def described(name: str | None, root: type[Config]) -> list[Kind]:
    """Return what a name refers to: a family, a kind, a table of the config ``root``, or a field.

    Tables are those of a config that are not a choice among kinds, such as ``train.save``; the top
    of the file is ``config``. Tables and fields have dotted names, whose beginning may be left out:
    ``train.max_minutes``, ``max_minutes``. For a field, all its owners are returned, with that
    field alone; without a name, everything. Raises `ConfigError` with the nearest names if nothing
    has this name.
    """
    members, places = [*all_kinds(), *metric_kinds()], _walk(root).items()
    paths = {config.family: path for path, config in places if config.family}
    tables = [
        Kind("table", path or "config", _meaning(config), _fields(config))
        for path, config in places
        if config.family is None
    ]
    if name is None:
        return tables + members
    family = next((f for f, path in paths.items() if path == name), name)
    for chosen in (
        [kind for kind in members if kind.family == family],
        [table for table in tables if f".{table.name}".endswith(f".{name}")],
        [kind for kind in members if kind.name == name],
    ):
        if chosen:
            return chosen
    table_name, _, field = name.rpartition(".")
    owners = [
        kind
        for kind in tables + members
        if field in kind.fields
        and any(
            f".{place}.".endswith(f".{table_name}.") or not table_name
            for place in (kind.name, f"{kind.family}.{kind.name}", paths.get(kind.family, ""))
        )
    ]
    if owners:
        return [replace(owner, fields={field: owner.fields[field]}) for owner in owners]
    known = {k.family for k in members} | {k.name for k in tables + members}
    fields = {key for kind in tables + members for key in kind.fields}
    near = difflib.get_close_matches(field, sorted(known | fields), n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else "all: foveate kinds"
    raise ConfigError(f"no family {name!r}, table, kind or field; {hint}")


def metric_kinds() -> list[Kind]:
    """Return the family "metrics": the valid values of ``train.save.best``, for each task."""
    from foveate.tasks.base import Task

    chosen = "; of the outputs' metrics, those in task.metrics"
    return [
        Kind(
            *("metrics", name),
            ", ".join(config.owner.figures) + chosen * ("metrics" in config.model_fields),
            fields={},
        )
        for name, config in sorted(kinds("task")["task"].items())
        if config.owner is not None and issubclass(config.owner, Task)
    ]


def _walk(root: type[Config]) -> dict[str, type[Config]]:
    """Return tables and families by their first dotted path from the root, each class once."""
    places: dict[str, type[Config]] = {}
    known: set[type[Config]] = set()

    def add(config: type[Config], path: str) -> None:
        if config in known:
            return
        known.add(config)
        family = config.family
        if family is None or config.kind is None:
            places.setdefault(path, config)
        choices = kinds(family)[family].values() if family and config.kind is None else [config]
        for choice in choices:
            known.add(choice)
            for name, info in choice.model_fields.items():
                inner = config_type(info.annotation)
                if inner is not None:
                    add(inner, f"{path}.{name}" if path else name)

    add(root, "")
    return places


def kinds_table(members: list[Kind]) -> str:
    """Return the kinds as text: a heading per family, a line per kind, a line per field."""
    lines: list[str] = []
    family = ""
    for kind in members:
        if kind.family != family:
            family = kind.family
            lines += ["", family]
        lines.append(f"  {kind.name:<16} {kind.meaning}".rstrip())
        if kind.differs:
            lines.append(f"      differs from the paper: {kind.differs}")
        for name, field in kind.fields.items():
            default = "(required)" if field.default is None else f"= {field.default}"
            line = f"      {name:<20} {field.type:<24} {default}"
            lines.append(f"{line}  {field.limits}".rstrip())
            if field.meaning:
                lines.append(f"          {field.meaning}")
    return "\n".join(lines).strip()


def config_schema(root: type[Config]) -> Tree:
    """Return the JSON Schema (draft 7, which TOML editors read) of files that describe ``root``.

    A choice among kinds is the name of one, or a table with ``kind``; a table without it changes
    values of the kind that is the default or is set by the file's ``base``. A value that another
    file may set is not required here; ``foveate check`` knows what is missing.
    """
    load_kinds()
    definitions: Tree = {}
    schema = _table_schema(root, definitions)
    schema["properties"]["base"] = {"type": "string", "description": "A config to begin with"}
    needed = [name for name, info in root.model_fields.items() if info.is_required()]
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A config of foveate",
        **schema,
        "anyOf": [{"required": ["base"]}, {"required": needed}],
        "definitions": definitions,
    }


def _reference(config: type[Config], definitions: Tree) -> Tree:
    """Return a reference to the schema of a config, adding it to the definitions at first use.

    A choice among kinds is the name of one, or a table of one, which may leave out its kind.
    """
    name = f"{config.__module__}.{config.__qualname__}"
    if name not in definitions:
        definitions[name] = {}  # a kind may hold others of its family
        family = kinds(config.family)[config.family] if config.family else {}
        choices = {kind: each for kind, each in sorted(family.items()) if issubclass(each, config)}
        tables = [_table_schema(each, definitions) for each in choices.values()]
        definitions[name] = (
            {"description": _meaning(config), "anyOf": [{"enum": [*choices]}, *tables]}
            if choices
            else _table_schema(config, definitions)
        )
    return {"$ref": f"#/definitions/{name}"}


def _table_schema(config: type[Config], definitions: Tree) -> Tree:
    """Return the schema of a config's fields; pydantic describes those that hold no config."""
    plain, properties = config.model_json_schema()["properties"], {}
    if config.kind is not None:
        properties["kind"] = {"const": config.kind}
    for name, field in _fields(config).items():
        annotation = config.model_fields[name].annotation
        if config_type(annotation) is None:
            schema = _draft_7(plain[name])
        else:
            schema = _nested_schema(annotation, definitions)
        properties[name] = {**schema, "description": field.meaning}
    return {
        "type": "object",
        "description": _meaning(config),
        "properties": properties,
        "additionalProperties": False,
    }


def _nested_schema(annotation: object, definitions: Tree) -> Tree:
    """Return the schema of ``C``, ``C | None``, ``tuple[C, ...]`` or ``dict[str, C]``."""
    parts = typing.get_args(annotation)
    match typing.get_origin(annotation):
        case typing.Union | types.UnionType:
            return {"anyOf": [_nested_schema(part, definitions) for part in parts]}
        case origin if origin is tuple:
            return {"type": "array", "items": _nested_schema(parts[0], definitions)}
        case origin if origin is dict:
            return {"type": "object", "additionalProperties": _nested_schema(parts[1], definitions)}
    config = config_type(annotation)
    if config is None:
        return {"const": "none"}  # TOML has no null
    return {"allOf": [_reference(config, definitions)]}  # draft 7 ignores siblings of $ref


def _draft_7(schema: Tree) -> Tree:
    """Convert pydantic's schema of a field to draft 7, without titles; null is "none"."""
    if schema == {"type": "null"}:
        return {"const": "none"}
    parts: Tree = {}
    for key, value in schema.items():
        if isinstance(value, dict):
            value = _draft_7(value)
        elif isinstance(value, list):
            value = [_draft_7(part) if isinstance(part, dict) else part for part in value]
        if key != "title" and (key, value) != ("default", None):
            parts["items" if key == "prefixItems" else key] = value
    return parts


def _meaning(config: type[Config]) -> str:
    """Return the first sentence of the docstring of the class a config builds, or of the config."""
    docstrings = [c.__doc__ for c in (config.owner, config) if c is not None]
    text = next((inspect.cleandoc(doc) for doc in docstrings if doc), "")
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[a-z)\]])\. (?=[A-Z`])", paragraph)[0].rstrip(".")


def _differs(config: type[Config]) -> str:
    """Return the text of the kind itself, not a parent's: of the class it builds, or a preset."""
    owner = config.owner
    builds = owner is not None and getattr(owner, "Config", None) is config
    return vars(owner if builds else config).get("differs", "")


def _fields(config: type[Config]) -> dict[str, Field]:
    fields = {}
    meanings: dict[str, str] = {}
    for owner in reversed(config.__mro__):
        meanings |= _comments(owner)
    for name, info in config.model_fields.items():
        default = None
        if not info.is_required():
            default = _value(info.get_default(call_default_factory=True))
        limits = [
            text.format(limit)
            for part in info.metadata
            for name, text in _LIMITS.items()
            if (limit := getattr(part, name, None)) is not None
        ]
        fields[name] = Field(
            _type(info.annotation), default, ", ".join(limits), meanings.get(name, "")
        )
    return fields


@functools.cache
def _comments(config: type) -> dict[str, str]:
    """Return the comment after each field of a class, or the docstring below, without parents."""
    if not issubclass(config, Config):
        return {}
    try:
        source = textwrap.dedent(inspect.getsource(config))
    except (OSError, TypeError):  # a class without a file
        return {}
    lines, body = source.splitlines(), typing.cast(ast.ClassDef, ast.parse(source).body[0]).body
    meanings = {}
    for statement, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        end = lines[(statement.end_lineno or 1) - 1].encode()[statement.end_col_offset or 0 :]
        comment = end.decode().strip()
        value = after.value if isinstance(after, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            meanings[statement.target.id] = " ".join(value.value.split()).rstrip(".")
        elif comment.startswith("# ") and not comment.startswith(("# noqa", "# fmt", "# type")):
            meanings[statement.target.id] = comment.removeprefix("# ")
    word = re.compile(r"(?!\w+:)(a\b|[a-z]{2})")  # else a symbol, or the name of a value
    return {name: t[0].upper() + t[1:] if word.match(t) else t for name, t in meanings.items()}


def _type(annotation: object) -> str:
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


def _value(value: object) -> str:
    if value is None:
        return "absent"
    if isinstance(value, Config):
        inner = ", ".join(f"{key} = {_value(v)}" for key, v in value.differences().items())
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
