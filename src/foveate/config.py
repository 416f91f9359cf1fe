"""Configs: frozen, strict descriptions of objects, registered by kind, read from TOML files.

Each config is nested in the class that it builds. A config file is read as a tree of plain values;
the file in its ``base`` is merged below it, and overrides such as ``train.seed=2`` above it. Errors
show the key, the line of the file and the nearest valid key.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import json
import os
import re
import reprlib
import sys
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, cast

import pydantic
from pydantic.fields import FieldInfo

from foveate.errors import OWN, Where, placed
from foveate.errors import ConfigError as ConfigError
from foveate.files import read_bytes, split_lines

C = TypeVar("C", bound="Config")
T = TypeVar("T")
Tree = dict[str, Any]  # a table of TOML or JSON
LARGEST = 2**20  # most bytes of a config
DEEPEST = 32  # most levels of nested tables and lists; a config needs about ten
WHOLE = 2**63  # whole numbers have 64 bits, like PyTorch's


class Config(pydantic.BaseModel):
    """A frozen description that builds its class: ``config.build(...)`` is ``Owner(config, ...)``.

    A direct subclass defines a *family* (``family="score"``); a subclass of that defines a *kind*
    (``kind="cosine"``) and is registered under it. If a config has a field of a family's type, a
    tree may contain just the kind's name (``score = "cosine"``) or a table with ``kind``.
    """

    model_config = pydantic.ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=()
    )
    family: ClassVar[str | None] = None
    kind: ClassVar[str | None] = None
    owner: ClassVar[type | None] = None

    def __init_subclass__(
        cls, *, family: str | None = None, kind: str | None = None, **kwargs: object
    ) -> None:
        super().__init_subclass__()  # the class keywords are for the method below

    @classmethod
    def __pydantic_init_subclass__(
        cls, *, family: str | None = None, kind: str | None = None, **kwargs: object
    ) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if family is not None:
            cls.family, cls.kind = family, None
            _FAMILIES[family] = {}
        if kind is not None:
            if cls.family is None:
                raise TypeError(f"{cls.__qualname__}: kind={kind!r} needs a family to belong to")
            cls.kind, members = kind, _FAMILIES[cls.family]
            ours, own = members.get(kind, cls), cls
            if not _is_foveate(ours):
                ours, own = cls, ours  # registered before the module of foveate was imported
            if _is_foveate(ours) and not _is_foveate(own):
                file = getattr(sys.modules.get(own.__module__), "__file__", None)
                raise ConfigError(
                    f"{file or own.__module__}: {own.__qualname__}: foveate has the {cls.family} "
                    f"{kind!r} already: give yours another kind"
                )
            members[kind] = cls

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Build the object that this describes."""
        if self.owner is None:
            raise TypeError(f"{type(self).__qualname__} does not describe a class")
        if lacks := getattr(self.owner, "__abstractmethods__", None):
            name = f"{self.owner.__module__}.{self.owner.__qualname__}"
            raise ConfigError(f"{name} must define {', '.join(sorted(lacks))}")
        return self.owner(self, *args, **kwargs)

    @classmethod
    def parse(cls, tree: Mapping[str, object] | str, where: Where = ()) -> Self:
        """Read a tree of plain values; raise `ConfigError` with the full path of a wrong key."""
        tree = {"kind": tree} if isinstance(tree, str) else tree
        if not isinstance(tree, Mapping):
            raise ConfigError(f"needs a table, not {reprlib.repr(tree)}", where)
        tree = dict(tree)
        if not where:
            _refuse_odd(tree)
        if cls.family is not None:
            chosen = _choose(cls, tree.pop("kind", cls.kind), where)
            if chosen is not cls:
                return cast(Self, chosen.parse(tree, where))
        values, fields = {}, cls.model_fields
        for key, value in tree.items():
            if key not in fields:
                raise ConfigError(unknown("key", key, fields), (*where, key))
            values[key] = _parse_field(fields[key], value, (*where, key))
        try:
            return cls(**values)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            if isinstance(own := first.get("ctx", {}).get("error"), ConfigError):
                raise own from None  # by a validator
            place = (*where, *(str(part) for part in first["loc"] if isinstance(part, str)))
            of_a_field = first["loc"] and first["type"] != "missing"
            value = f" (given: {reprlib.repr(first['input'])})" if of_a_field else ""
            raise ConfigError(f"{own or first['msg']}{value}", place) from None

    @classmethod
    def accepts(cls, key: str, value: object) -> bool:
        """Return whether this kind has a field of that name and accepts the value for it."""
        try:
            cls.parse({key: value})
        except ConfigError as error:
            return error.where[:1] != (key,)  # other missing keys do not matter
        return True

    def tree(self) -> Tree:
        """Return plain values from which `parse` makes an equal config.

        TOML has no null: a value that is absent by default is left out; any other becomes "none".
        """
        tree: Tree = {} if self.kind is None else {"kind": self.kind}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value is not None:
                tree[name] = _plain(value)
            elif field.default is not None:
                tree[name] = "none"
        return tree

    def plain(self) -> Config:
        """Return the same without preset names: every kind is that of the class that is built."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        own = {n: v.plain() if isinstance(v, Config) else v for n, v in fields.items()}
        return getattr(self.owner, "Config", type(self))(**own)

    def toml(self) -> str:
        """Return the config as a TOML document."""
        import tomlkit

        return tomlkit.dumps(self.tree())

    def differences(self, where: Where = ()) -> dict[str, object]:
        """Return the dotted keys, below ``where``, with other values than their kinds' defaults."""
        changed = dict[str, object]()
        for name, field in type(self).model_fields.items():
            value, path = getattr(self, name), (*where, name)
            default = None if field.is_required() else field.get_default(call_default_factory=True)
            if value == default:
                continue
            if isinstance(value, Config):
                if type(value) is not type(default) and value.kind is not None:
                    changed[".".join((*path, "kind"))] = value.kind
                changed |= value.differences(path)
            else:
                changed[".".join(path)] = _plain(value)
        return changed


BaseConfig = Config  # for classes whose own nested ``Config`` derives from it


class Configurable:
    """A class with a nested ``Config``; defining it is enough to make ``config.build`` work.

    A class of a ``kind`` with no other settings than its parents' may leave it out. ``differs``
    states in one sentence how the code differs from the paper cited in its docstring.
    """

    differs: ClassVar[str] = ""

    def __init_subclass__(cls, kind: str | None = None, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if kind is not None:
            parent: type[Config] = getattr(cls, "Config")  # noqa: B009  which each family has
            names = {"__module__": cls.__module__, "__qualname__": f"{cls.__qualname__}.Config"}
            own = types.new_class(
                "Config", (parent,), {"kind": kind}, lambda body: body.update(names)
            )
            setattr(cls, "Config", own)  # noqa: B010
        nested = cls.__dict__.get("Config")
        if nested is not None:
            nested.owner = cls


class FromConfig(Configurable):
    """A class whose objects keep their config; further arguments are for classes that need them."""

    def __init__(self, config: BaseConfig, *_: object) -> None:
        super().__init__()
        self.config = config


_FAMILIES: dict[str, dict[str, type[Config]]] = {}
_OWN: set[str] = set()  # the modules imported by `import_own`


def _is_foveate(config: type[Config]) -> bool:
    return config.__module__.startswith("foveate.")


def kinds(family: str | None = None) -> dict[str, dict[str, type[Config]]]:
    """Return every registered kind by family and name."""
    return {f: dict(k) for f, k in sorted(_FAMILIES.items()) if family in (None, f)}


def _choose(family: type[Config], kind: object, where: Where) -> type[Config]:
    known = _FAMILIES[cast(str, family.family)]
    if kind is None:
        raise ConfigError(f"needs a kind: one of {', '.join(sorted(known))}", (*where, "kind"))
    if not isinstance(kind, str) or kind not in known:
        message = unknown(cast(str, family.family).replace("_", " "), str(kind), known)
        raise ConfigError(message, (*where, "kind"))
    return known[kind]


def _refuse_odd(tree: object) -> None:
    """Raise `ConfigError` for a value that is too deep in a tree, or a number above 64 bits."""
    left: list[tuple[Where, object]] = [((), tree)]
    while left:
        where, value = left.pop()
        if isinstance(value, int) and not -WHOLE <= value < 2 * WHOLE:
            raise ConfigError("a whole number is between -2^63 and 2^64", where)
        inner: Iterable[tuple[object, object]] = ()
        if isinstance(value, Mapping):
            inner = value.items()
        elif isinstance(value, list | tuple):
            inner = enumerate(value)
        if len(where) > DEEPEST:
            raise ConfigError(f"tables and lists are nested more than {DEEPEST} deep", where[:2])
        left += [((*where, str(key)), part) for key, part in inner]


def unknown(what: str, name: str, valid: Iterable[str]) -> str:
    """Return an error message for an invalid name, with the nearest valid one."""
    near = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.5)
    names = sorted(valid)
    more = f", … ({len(names) - 22} more: foveate kinds)" if len(names) > 22 else ""
    hint = f"did you mean {near[0]!r}?" if near else f"valid: {', '.join(names[:22])}{more}"
    return f"no {what} {reprlib.repr(name)} here; {hint}"


def config_type(annotation: object) -> type[Config] | None:
    """Return the config class in ``C``, ``C | None`` or ``tuple[C, ...]``."""
    if isinstance(annotation, type):
        return annotation if issubclass(annotation, Config) else None
    parts = map(config_type, typing.get_args(annotation))
    return next((config for config in parts if config is not None), None)


def _parse_field(field: FieldInfo, value: object, where: Where) -> object:
    annotation, config = field.annotation, config_type(field.annotation)
    if value == "none" and type(None) in typing.get_args(annotation):
        return None
    if config is None or isinstance(value, Config) or value is None:
        return tuple(value) if isinstance(value, list) else value
    if isinstance(value, list | tuple):
        return tuple(
            v if isinstance(v, Config) else config.parse(v, (*where, str(i)))
            for i, v in enumerate(value)
        )
    if not isinstance(value, dict | str) or (isinstance(value, str) and config.family is None):
        raise ConfigError(f"needs a table, not {reprlib.repr(value)}", where)
    if typing.get_origin(annotation) is dict and isinstance(value, dict):
        return {k: config.parse(v, (*where, k)) for k, v in value.items()}
    if isinstance(field.default, Config) and isinstance(value, dict) and "kind" not in value:
        value = merge(field.default.tree(), value)  # a table without a kind changes the default
    return config.parse(value, where)


def marian_files(folder: Path) -> list[Path]:
    """Return the models in a folder that Marian wrote: its own files, or those of Firefox."""
    return sorted((*folder.glob("*.npz"), *folder.glob("*.intgemm*.bin")))


def published(path: Path) -> bool:
    """Return whether a path is a folder with a model of another library, as it was published."""
    if not path.is_dir() or (path / "config.toml").is_file():
        return False
    return (path / "config.json").is_file() or bool(marian_files(path))


def check_run(path: Path) -> None:
    """Raise ``ConfigError`` if a path is not the folder of a run."""
    if not (path / "config.toml").is_file():
        if published(path):
            raise ConfigError(
                f"{path} is a model of another library, not a run: make a run of it with "
                f"foveate import {path} RUN"
            )
        if re.fullmatch(r"[A-Za-z][\w.-]*/[\w.-]+", str(path)) and not path.exists():
            raise ConfigError(
                f"{path}: no such folder, and foveate downloads nothing; fetch the model and give "
                f"its folder: hf download {path} --local-dir {path.name}"
            )
        small = f", or take packaged/{path.name}" if (PACKAGED / path.name).is_dir() else ""
        what = "it has no config.toml" if path.exists() else "the folder does not exist"
        why = f"{what}; train one: foveate train"
        raise ConfigError(f"{path} is not a run: {why}{small}")


def read(config: type[C], path: str | Path, overrides: Sequence[str] = ()) -> C:
    """Load a config in the only order: class defaults, ``base``, the file, then overrides.

    Modules listed in ``imports`` are also searched in the folders of the file and of the process.
    """
    path = shipped(Path(path))
    _search(path.parent)
    _search(Path())
    return parse_tree(config, with_overrides(config, load_tree(path), overrides), path, overrides)


def read_resolved(config: type[C], path: Path, trust: bool = False) -> C:
    """Load the config of a run, which may be a stranger's: it has no ``base``, and imports nothing.

    With ``trust``, or ``FOVEATE_TRUST=1``, the modules that it lists are imported; those already
    imported need neither. Raises `ConfigError` listing the others.
    """
    tree = load_tree(path, resolved=True)
    names = tree.get("imports", ())
    unknown = [str(n) for n in names if n not in sys.modules] if isinstance(names, list) else []
    if unknown:
        if not (trust or os.environ.get("FOVEATE_TRUST") == "1"):
            raise ConfigError(
                f"{path} imports {', '.join(unknown)}, and so runs code on this machine; if you "
                "know what the code does, say --trust (in Python: load(path, trust=True))"
            )
        _search(Path())
    return parse_tree(config, tree, path)


def _search(folder: Path) -> None:
    """Let modules be imported from a folder, unless a folder before it has one of that name."""
    if (name := str(folder.resolve())) not in sys.path:
        sys.path.append(name)


PACKAGED = Path(__file__).parent / "packaged"  # small runs, by the names that lectures use


def shipped(path: Path) -> Path:
    """Return the path, or if nothing is there, foveate's own config, run or file of that name.

    Thus ``configs/forecasting/airline-rnn.toml`` and the run ``packaged/en-fr`` work anywhere.
    """
    if path.exists() or path.parts[:1] not in (("configs",), ("packaged",)):
        return path
    package = Path(__file__).parent  # in a wheel; a checkout has them two folders up
    places = (package / path, package.parents[1] / path)
    return next((place for place in places if place.exists()), path)


def with_overrides(config: type[Config], tree: Tree, overrides: Iterable[str]) -> Tree:
    """Lay overrides ``a.b=c`` over the tree of a config, in order.

    A table that changes its kind keeps the values for which the new kind has a field; those dropped
    are listed on standard error.
    """
    for assignment in overrides:
        _import_kinds(tree)
        dropped: list[str] = []
        tree = merge(*_of_same_kinds(config, tree, assigned(assignment), (), dropped))
        if dropped:
            print(f"{assignment} drops {', '.join(dropped)}", file=sys.stderr)
    return tree


def _of_same_kinds(
    config: type[Config], below: Tree, above: Tree, where: Where, dropped: list[str]
) -> tuple[Tree, Tree]:
    """Return both trees, the tables below converted to the kinds above, so that `merge` joins them.

    ``dropped`` gets the values for which these kinds have no field.
    """
    below, above = dict(below), dict(above)
    for key, value in above.items():
        field = config.model_fields.get(key)
        expected = None if field is None else config_type(field.annotation)
        if field is None or expected is None or typing.get_origin(field.annotation) is dict:
            continue
        known = _FAMILIES[expected.family] if expected.family is not None else {}
        old, new = _as_table(below.get(key), known), _as_table(value, known)
        if old is None or new is None:
            continue
        default = field.default.kind if isinstance(field.default, Config) else expected.kind
        kind = old.get("kind", default)
        chosen = known.get(str(new.get("kind", kind)), None if known else expected)
        if chosen is None:
            continue  # an unknown kind, which `parse` reports
        if "kind" in new:
            fields = {k: v for k, v in old.items() if k != "kind"}
            path, same = ".".join((*where, key)), new["kind"] == kind
            for name in [k for k, v in fields.items() if not (same or chosen.accepts(k, v))]:
                dropped.append(f"{path}.{name} = {fields.pop(name)!r} (not of {chosen.kind})")
            old = {"kind": new["kind"], **fields}
        below[key], above[key] = _of_same_kinds(chosen, old, new, (*where, key), dropped)
    return below, above


def _as_table(value: object, known: Mapping[str, object]) -> Tree | None:
    """Return a table, or the name of a kind as one; None for any other value."""
    if isinstance(value, str) and known and value != "none":
        return {"kind": value}
    return value if isinstance(value, dict) else None


def parse_tree(
    config: type[C], tree: Tree, path: Path | None = None, over: Sequence[str] = ()
) -> C:
    """Parse a tree after importing its ``imports``; errors show the file and line, or override."""
    _import_kinds(tree)
    if _OWN and "imports" in config.model_fields:  # a run also needs the kinds of `import_own`
        own = _OWN & {each.__module__ for family in _FAMILIES.values() for each in family.values()}
        tree = tree | {"imports": list(dict.fromkeys((*tree.get("imports", ()), *sorted(own))))}
    try:
        return config.parse(tree)
    except ConfigError as error:
        if path is None or error.where == ():
            raise
        for override in reversed(over):
            if ".".join(error.where).startswith(override.partition("=")[0].strip()):
                raise ConfigError(f"the override {override}: {error.message}") from None
        line = line_of(path.read_text(encoding="utf-8"), error.where)
        raise ConfigError(f"{path}:{line}: {error}" if line else f"{path}: {error}") from None


def import_own() -> None:
    """Import the modules of a user listed in ``FOVEATE_IMPORT``, by their names or files.

    Raises `ConfigError` for a file that does not exist, or whose name another module has.
    """
    for name in filter(None, os.environ.get("FOVEATE_IMPORT", "").split(",")):
        file = Path(name).resolve() if name.endswith(".py") else None
        if file is not None and not file.is_file():
            raise ConfigError(f"--import {name}: no such file")
        module = name if file is None else file.stem
        _search(Path() if file is None else file.parent)
        _import_kinds({"imports": [module]})
        other = getattr(sys.modules[module], "__file__", None) or "a part of Python"
        if file is not None and Path(other).resolve() != file:
            raise ConfigError(f"--import {name}: {module!r} is already {other}: rename your file")
        _OWN.add(module)


def _import_kinds(tree: Tree) -> None:
    """Import the modules listed in ``imports``: they register kinds."""
    modules = tree.get("imports", ())
    if not isinstance(modules, list | tuple) or not all(isinstance(m, str) for m in modules):
        raise ConfigError(f"must be a list of module names, not {modules!r}", ("imports",))
    for module in modules:
        with importing(module, "; put it here or on PYTHONPATH, or name its file with --import"):
            file = importlib.import_module(module).__file__ or ""
        if not module.startswith("foveate."):
            OWN.append(file)


@contextlib.contextmanager
def importing(name: str, absent: str) -> Iterator[None]:
    """Make any error in a module of a user a `ConfigError`; ``absent`` says what to do if it is."""
    try:
        yield
    except ModuleNotFoundError as error:
        hint = absent if name.startswith(error.name or name) else ""
        raise ConfigError(f"cannot import {name!r} ({error}){hint}") from None
    except ConfigError as error:
        raise ConfigError(f"cannot import {name!r}: {error}") from None
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        raise ConfigError(f"cannot import {name!r} ({placed(error)})") from None


def _plain(value: object) -> object:
    if isinstance(value, Config):
        return value.tree()
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return str(value) if isinstance(value, Path) else value


def load_tree(path: Path, above: tuple[Path, ...] = (), resolved: bool = False) -> Tree:
    """Read a TOML file and, below it, the one parent named in its ``base``.

    ``above`` are the files whose ``base`` leads to this one. A ``resolved`` config has no base.
    """
    try:
        tree = tomllib.loads(read_bytes(path, LARGEST).decode("utf-8-sig"))  # Notepad writes a BOM
        _refuse_odd(tree)
    except OSError as error:
        raise ConfigError(f"cannot read config {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start + 1}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    except ValueError as error:  # also for a number of thousands of digits
        raise ConfigError(f"{path}: not TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: its tables are nested too deeply") from None
    base = tree.pop("base", None)
    if not base:
        return tree
    if resolved:
        raise ConfigError(f"{path}: the config of a run must not have a base", ("base",))
    if not isinstance(base, str):
        raise ConfigError(f"{path}: base must name one file, not {base!r}", ("base",))
    if path.resolve() in above:
        raise ConfigError(f"{path}: base refers back to the file itself", ("base",))
    return merge(load_tree(path.parent / base, (*above, path.resolve())), tree)


def from_json(path: Path, parse: Callable[[Any], T]) -> T:
    """Apply ``parse`` to the content of a JSON file; raise `ConfigError` for a damaged file."""
    try:
        return parse(json.loads(read_bytes(path)))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{path} is damaged ({error!r})") from None


def merge(below: Tree, above: Tree) -> Tree:
    """Lay one tree over another; a table with another ``kind`` replaces the whole table."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if isinstance(old, str) and isinstance(value, dict) and "kind" not in value:
            old = {"kind": old}
        merged[key] = value
        if isinstance(old, dict) and isinstance(value, dict):
            same = value.get("kind", old.get("kind")) == old.get("kind")
            merged[key] = merge(old, value) if same else value
    return merged


def all_assigned(assignments: Iterable[str]) -> Tree:
    """Return the tree of assignments such as ``a.b=c``, each laid over those before it."""
    return functools.reduce(merge, map(assigned, assignments), {})


def assigned(assignment: str) -> Tree:
    """Return the tree of ``a.b=c``: the value is TOML, or else a bare word.

    Bare words need no quotes in a table either: ``train.optimizer={kind=sgd}``. Raises
    ``ConfigError`` for a table that cannot be read.
    """
    key, equals, text = assignment.partition("=")
    if not equals or not key.strip():
        hint = "; give a file by < FILE, --in or --data" if Path(assignment).is_file() else ""
        raise ConfigError(f"{assignment!r} is not an override; write key.of.field=value{hint}")
    table = re.fullmatch(r"\s*\{.*=.*\}\s*", text, re.DOTALL) is not None
    try:
        value = tomllib.loads(f"value = {_quoted(text) if table else text}")["value"]
    except RecursionError:
        raise ConfigError(f"{assignment[:40]}…: its value is nested too deeply") from None
    except ValueError as error:
        if table:
            example = "write key={a=1, b=word}"
            raise ConfigError(f"{assignment!r} is not a TOML table ({error}); {example}") from None
        value = text
    for part in reversed(key.strip().split(".")):
        value = {part: value}
    try:
        _refuse_odd(value)
    except ConfigError as error:
        raise ConfigError(f"the override {assignment[:80]}: {error.message}") from None
    return cast(Tree, value)


def _quoted(table: str) -> str:
    """Put quotes around the bare words that are values of an inline table."""
    token = r"""("(?:[^"\\]|\\.)*"|'[^']*')|((?<=[=\[,\s])[A-Za-z_/~][\w./-]*)(?=\s*[,}\]])"""
    constants = ("true", "false", "inf", "nan")
    return re.sub(
        token,
        lambda match: match[0] if match[1] or match[0] in constants else f'"{match[0]}"',
        table,
    )


def toml_line(key: str, value: object) -> str:
    """Return a key and its value in one line of TOML."""
    import tomlkit

    table = tomlkit.inline_table()
    table[key] = value
    return table.as_string()[1:-1]


def line_of(text: str, where: Where) -> int | None:
    """Return the line of a key, or of the longest part of its path that occurs in the file."""
    table: Where = ()
    best: tuple[int, int | None] = (0, None)
    for number, line in enumerate(split_lines(text), start=1):
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
