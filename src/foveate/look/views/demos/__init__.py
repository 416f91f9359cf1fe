"""Demos by name: drawings of equations and of untrained models, which need no run and no data.

A demo is a function decorated with `demo` that returns a drawing. Its parameters, annotated with a
type and a ``Field``, become the options of ``foveate demo``. Nothing heavy is imported before a
demo is looked up in detail.
"""

from __future__ import annotations

import inspect
import textwrap
import tomllib
import typing
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from foveate.errors import ConfigError
from foveate.look.views import Entry, nearest

if TYPE_CHECKING:
    from foveate.config import Config
    from foveate.look.draw.drawings import Drawing

P = ParamSpec("P")
D = TypeVar("D", bound="Drawing")
LARGEST = 10_000_000  # for a number of a demo, which is drawn in single precision
TABLES = tomllib.loads(Path(__file__).with_name("demos.toml").read_text(encoding="utf-8"))
LETTERS = 68  # in a line of a caption: as wide as a figure, and narrower than a terminal
_FUNCTIONS: dict[str, Callable[..., Drawing]] = {}


def demo(function: Callable[P, D]) -> Callable[P, D]:
    """Register a function as the demo with its name; its drawing's caption is wrapped.

    Raises `ConfigError` if another has the name.
    """
    DemoEntry.add(function, DEMOS)

    @wraps(function)
    def draw(*args: P.args, **kwargs: P.kwargs) -> D:
        drawing = function(*args, **kwargs)
        return drawing.model_copy(update={"caption": textwrap.fill(drawing.caption, LETTERS)})

    _FUNCTIONS[function.__name__] = draw
    return draw


class DemoEntry(Entry["Callable[..., Drawing]"]):
    """A demo in the table: its name, what it shows in one line, and its function's module."""

    package = __name__
    registered = _FUNCTIONS

    @property
    def options(self) -> type[Config]:
        """A config with a field for each parameter of the function."""
        from pydantic import create_model

        from foveate.config import Config

        types = typing.get_type_hints(self.spec, include_extras=True)
        parameters = inspect.signature(self.spec).parameters.values()
        fields: dict[str, typing.Any] = {p.name: (types[p.name], p.default) for p in parameters}
        return create_model(self.name, __base__=Config, **fields)

    def draw(self, values: Mapping[str, object] | None = None) -> Drawing:
        """Draw with some options; the others have their defaults.

        Raises `ConfigError` for an unknown option or a value out of range.
        """
        config = self.options.parse(values or {})
        for name, value in config:
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, int | float) and not abs(number) <= LARGEST:
                    raise ConfigError(f"{number:g} is too large: at most {LARGEST:,}", (name,))
        return self.spec(**dict(config))


DEMOS = DemoEntry.table(*((name, *row) for name, row in TABLES["demos"].items()))


def find(name: str) -> DemoEntry:
    """Return the demo with a name. Raises `ConfigError` with the nearest name, or all."""
    return nearest("demo", name, DEMOS)
