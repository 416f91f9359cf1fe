"""Plain trees of values: TOML in with its parent, overrides laid over it, TOML out.

Lives here: tables, keys, the lines where they stand, and `ConfigError` that names them. Does not
live here: what the keys mean (`foveate.config`).
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar, cast

Tree = dict[str, Any]
Found = TypeVar("Found")
Where = tuple[str, ...]  # the path of keys from the root of the file
LARGEST = 2**20  # bytes of a config


class ConfigError(ValueError):
    """A key or value that cannot be used: says where it stands and what would be valid."""

    def __init__(self, message: str, where: Where = ()) -> None:
        super().__init__(message)
        self.message, self.where = message, where

    def __str__(self) -> str:
        path = ".".join(self.where)
        return f"{path}: {self.message}" if path else self.message


# ------------------------------------------------------------------------------ reading


def load_tree(path: Path, above: tuple[Path, ...] = ()) -> Tree:
    """Read a TOML file and, below it, the one parent that its ``base`` names.

    ``above`` are the files that have asked for this one.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise ConfigError(f"{path} has more than {LARGEST:,} bytes: it is no config")
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read config {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start + 1}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: its tables are nested too deeply") from None
    base = tree.pop("base", None)
    if not base:
        return tree
    if not isinstance(base, str):
        raise ConfigError(f"{path}: base names one file, not {base!r}", ("base",))
    if path.resolve() in above:
        raise ConfigError(f"{path}: base leads back to the file itself", ("base",))
    return merge(load_tree(path.parent / base, (*above, path.resolve())), tree)


def from_json(path: Path, understand: Callable[[Any], Found]) -> Found:
    """What is made of a JSON file of ours. Raises `ConfigError` naming one that is damaged."""
    try:
        return understand(json.loads(path.read_bytes()))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{path} is damaged ({error!r})") from None


def merge(below: Tree, above: Tree) -> Tree:
    """Lay one tree over another; a table that names another ``kind`` replaces the whole table."""
    merged = dict(below)
    for key, value in above.items():
        old: Any = merged.get(key)
        if isinstance(old, str) and isinstance(value, dict) and "kind" not in value:
            old = {"kind": old}
        both = isinstance(old, dict) and isinstance(value, dict)
        if both and value.get("kind", old.get("kind")) == old.get("kind"):
            merged[key] = merge(old, value)
        else:
            merged[key] = value
    return merged


def override(tree: Tree, assignment: str) -> Tree:
    """Lay ``a.b=c`` over a tree (`assigned`)."""
    return merge(tree, assigned(assignment))


def assigned(assignment: str) -> Tree:
    """The tree of ``a.b=c``: the value is TOML, or else a bare word.

    In a table bare words need no quotes either: ``train.optimizer={kind=sgd}``. Raises
    ``ConfigError`` for a table that cannot be read.
    """
    key, equals, text = assignment.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"{assignment!r} is no override; write key.of.field=value")
    table = re.fullmatch(r"\s*\{.*=.*\}\s*", text, re.DOTALL) is not None
    try:
        value = tomllib.loads(f"value = {_quoted(text) if table else text}")["value"]
    except tomllib.TOMLDecodeError as error:
        if table:
            example = "write key={a=1, b=word}"
            raise ConfigError(f"{assignment!r} holds no TOML table ({error}); {example}") from None
        value = text
    for part in reversed(key.strip().split(".")):
        value = {part: value}
    return cast(Tree, value)


def _quoted(table: str) -> str:
    """An inline table with quotes around the bare words that are values."""
    token = r"""("(?:[^"\\]|\\.)*"|'[^']*')|((?<=[=\[,\s])[A-Za-z_/~][\w./-]*)(?=\s*[,}\]])"""
    constants = ("true", "false", "inf", "nan")
    return re.sub(
        token,
        lambda found: found[0] if found[1] or found[0] in constants else f'"{found[0]}"',
        table,
    )


def line_of(text: str, where: Where) -> int | None:
    """The line that holds a key, or the longest part of its path that stands in the file."""
    table: Where = ()
    best: tuple[int, int | None] = (0, None)
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line):
            table = tuple(part.strip(" \"'") for part in header[1].split("."))
            path = table
        elif key := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            path = (*table, *(part.strip("\"'") for part in key[1].split(".")))
        else:
            continue
        if path == where[: len(path)] and len(path) > best[0]:
            best = (len(path), number)
    return best[1]


# ------------------------------------------------------------------------------ writing


def toml(tree: Tree) -> str:
    """A tree as a TOML document."""
    return "\n".join(_toml_lines(tree, ())).strip() + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    if isinstance(value, dict):
        return (
            "{ " + ", ".join(f"{_toml_key(k)} = {_toml_value(v)}" for k, v in value.items()) + " }"
        )
    if isinstance(value, str):  # JSON's escapes are TOML's, but for DEL and lone surrogates
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[\w-]+", key, re.ASCII) else _toml_value(key)


def _toml_lines(tree: Tree, table: Where) -> Iterable[str]:
    tables = {k: v for k, v in tree.items() if isinstance(v, dict) and v}
    yield from (f"{_toml_key(k)} = {_toml_value(v)}" for k, v in tree.items() if k not in tables)
    for key, value in tables.items():
        path = (*table, key)
        yield f"\n[{'.'.join(map(_toml_key, path))}]"
        yield from _toml_lines(value, path)
