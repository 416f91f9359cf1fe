"""All views by name: the table used by the command line and the studio.

A view is a function of a run (or of runs) that returns a drawing, decorated with `view`. Its
parameters, fields of `foveate.look.views.options.Question`, become the options of ``foveate look``
and the form of the studio. Nothing heavy is imported before a view is looked up in detail. A view
of a user's file is in the table once the file is imported (``foveate --import``).
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, Self, TypeVar, cast

from foveate.errors import ConfigError, checked, signed

if TYPE_CHECKING:
    from foveate.config import Config
    from foveate.look.draw.drawings import Drawing
    from foveate.look.views.options import Question
    from foveate.run import Run

Need = Callable[["Run"], "str | None"]  # returns why a run does not fit, or None
Draw = TypeVar("Draw", bound=Callable[..., "Drawing"])
Spec = TypeVar("Spec")
E = TypeVar("E")


def file_fields(form: type[Config]) -> set[str]:
    """Return the fields of a form that refer to local files: a browser may not set them."""
    fields = form.model_fields.items()
    return {name for name, field in fields if "Path" in str(field.annotation)}


@dataclass(frozen=True)
class ViewSpec:
    """The registered properties of a view's function.

    Its ``needs``; whether it draws ``several`` runs together; the ``fields`` of a question that are
    its parameters, and which of them is positional (``by_place``). With ``silence``, the heads
    listed in a question are silenced while it draws.
    """

    function: Callable[..., Drawing]
    needs: tuple[Need, ...]
    silence: bool
    by_place: str
    several: bool
    fields: tuple[str, ...]


_SPECS: dict[str, ViewSpec] = {}


def view(*needs: Need, silence: bool = False, by_place: str = "") -> Callable[[Draw], Draw]:
    """Register a function as the view with its name, for runs that meet the ``needs``.

    Raises `ConfigError` for a parameter that views do not have, the name of another, or `@view`
    without parentheses.
    """
    for need in needs:
        name, known = getattr(need, "__qualname__", ""), getattr(need, "__globals__", {})
        if name.isidentifier() and known and known.get(name) is not need:  # the view itself
            raise ConfigError(f"{signed(need)}: write @view(), with parentheses")

    def register(function: Draw) -> Draw:
        from foveate.look.views.options import Question

        first, *fields = inspect.signature(function).parameters
        for name in fields:
            nearest("option of views", name, Question.model_fields)
        ViewEntry.add(function, VIEWS)
        _SPECS[function.__name__] = ViewSpec(
            function, needs, silence, by_place, first == "runs", tuple(fields)
        )
        return function

    return register


@dataclass(frozen=True)
class Entry(Generic[Spec]):
    """A row of a table: a name, what it shows, and the module that registers it."""

    name: str
    summary: str
    module: str
    package: ClassVar[str] = __name__
    registered: ClassVar[Mapping[str, object]]

    @classmethod
    def table(cls, *rows: tuple[str, str, str]) -> dict[str, Self]:
        """Return the entries for rows (name, module, summary), by name."""
        return {name: cls(name, summary, module) for name, module, summary in rows}

    @classmethod
    def add(cls, function: Callable[..., object], table: dict[str, Self]) -> None:
        """Add a function to a table, with the first line of its docstring; ours are in it already.

        Raises `ConfigError` if a function of foveate has the name.
        """
        name, module = function.__name__, function.__module__
        if module.startswith("foveate."):
            return
        if name in table and table[name].module != module:
            raise ConfigError(f"{module}: {name!r} exists already: give yours another name")
        summary = inspect.cleandoc(function.__doc__ or "").partition("\n")[0]
        table[name] = cls(name, summary, module)

    @property
    def spec(self) -> Spec:
        """The registered value; its module is imported."""
        if self.name not in self.registered:
            importlib.import_module(f"{self.package}.{self.module}")
        return cast(Spec, self.registered[self.name])


class ViewEntry(Entry[ViewSpec]):
    """A view in the table: its name, what it shows in one line, and its function's module."""

    registered = _SPECS

    @property
    def reads(self) -> tuple[str, ...]:
        """The fields of a `Question` that the view reads."""
        return (*self.spec.fields, *(("silence",) if self.spec.silence else ()))

    def unfit(self, run: Run) -> str | None:
        """Return why the view does not fit a run, or None if it does."""
        return next((reason for need in self.spec.needs if (reason := need(run))), None)

    def draw(self, runs: Sequence[Run], question: Question) -> Drawing:
        """Draw some runs.

        Raises `ConfigError` if the view takes more runs or fewer, does not fit one of them, or
        the question refers to something that does not exist.
        """
        if not runs or (len(runs) > 1 and not self.spec.several):
            count = "at least 1 run" if self.spec.several else "1 run"
            raise ConfigError(f"the view {self.name} needs {count}, not {len(runs)}")
        for run in runs:
            if reason := self.unfit(run):
                raise ConfigError(f"{run.folder}: the view {self.name!r} does not apply: {reason}")
        from foveate.look.draw.drawings import Drawing

        fields = {name: getattr(question, name) for name in self.spec.fields}
        with ExitStack() as stack:
            if question.silence:
                from foveate.look.edits import edit, silenced

                for run in runs:
                    stack.enter_context(edit(run.model, silenced(question.silence)))
            draw = checked(self.spec.function, Drawing)
            return draw(runs if self.spec.several else runs[0], **fields)


_ROWS = tomllib.loads(Path(__file__).with_name("views.toml").read_text(encoding="utf-8"))
VIEWS = ViewEntry.table(*((name, *row) for name, row in _ROWS.items()))


def nearest(what: str, name: str, table: Mapping[str, E]) -> E:
    """Return the entry with a name. Raises `ConfigError` with the nearest name, or all."""
    if name not in table:
        near = difflib.get_close_matches(name, table, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(table)}"
        raise ConfigError(f"unknown {what} {name!r}; {hint}")
    return table[name]


def find(name: str) -> ViewEntry:
    """Return the view with a name. Raises `ConfigError` with the nearest name, or all."""
    return nearest("view", name, VIEWS)
