"""The engine that answers a request: that of a packed file, or that of the run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from subprocess import SubprocessError
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from foveate.cli.options import say
from foveate.errors import ConfigError, UserError, message_of

if TYPE_CHECKING:
    from foveate.engine.packed import PackedModel
    from foveate.run import Run

EngineName = Annotated[
    Literal["auto", "packed", "torch", "ray"],
    typer.Option("--engine", help="ray: folders only"),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="say which engine runs, and why")]


class RunSpec(NamedTuple):
    """The options of loading a run, in plain values that go to other processes."""

    run: str
    checkpoint: str = "best"
    ensemble: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()  # assignments such as decode.kind=diverse_beam
    precision: str = "fp32"
    engine: str = "auto"

    def load(self) -> Run:
        """Load the run with PyTorch, and with the search of its overrides.

        Raises ``ConfigError`` for an unknown run, and for overrides outside of ``decode``.
        """
        from foveate.config import all_assigned
        from foveate.run import RunEngine, load

        if self.engine == "ray":
            raise ConfigError("--engine ray only translates folders: give --in FOLDER --out FOLDER")
        run = load(self.run, self.checkpoint, self.ensemble)
        tree = all_assigned(self.overrides)
        for key in tree.keys() - {"decode"}:
            raise ConfigError(f"{key} is fixed by training: only decode.… can be changed")
        if (search := tree.get("decode", {})) != {}:
            run = run.decoding(**({"kind": search} if isinstance(search, str) else search))
        if self.engine == "torch" and self.precision == "fp32":
            engine = RunEngine(run.task, run.model, run.search)
            engine.substituted = False  # its searches run in PyTorch too, where C would answer
            return run.by(engine)
        return _in_int8(run) if self.precision == "int8" else run

    def packed(
        self, torch_only: Mapping[str, object], threads: int | None = None, verbose: bool = False
    ) -> PackedModel | None:
        """Load the packed file that answers, ``run`` itself or that of the run.

        It is None if the run answers, also because its file cannot be read here.

        ``torch_only`` are options of the request, by name, that need PyTorch where they are true.
        Raises ``ConfigError`` where a packed file is named and cannot answer.
        """
        file, reason = self.chosen(torch_only)
        if file is None:
            if verbose and reason:
                used = "PyTorch" if any(torch_only.values()) else "the run, not its packed file"
                say([f"engine: {used}, since {reason}"])
            return None
        from foveate.engine.packed import load

        try:
            model = load(file, threads, int8=self.precision == "int8")
        except (UserError, OSError, SubprocessError) as error:
            if self.engine != "auto" or str(file) == self.run:
                raise
            say([f"engine: the run, not its packed file, since {message_of(error)}"])
            return None
        if verbose:
            say([f"engine: packed, {model.describe()}"])
        return model

    def chosen(self, torch_only: Mapping[str, object]) -> tuple[Path | None, str]:
        """Return the file of `packed`, which is not loaded; None, and why, for the run."""
        from foveate.config import shipped

        own = {
            f"checkpoint {self.checkpoint}": self.checkpoint != "best",
            "--ensemble": self.ensemble,
            " ".join(self.overrides): self.overrides,
        }
        names = [name for name, value in (own | dict(torch_only)).items() if value]
        needed = "PyTorch" if any(torch_only.values()) else "the run's weights"
        reason = f"{', '.join(names)} needs {needed}" if names else ""
        file = shipped(Path(self.run))
        if file.is_file():
            if self.engine not in ("auto", "packed"):
                raise ConfigError(f"{file} is a packed file; the engine {self.engine} reads runs")
            if reason:
                raise ConfigError(f"{file} is a packed file: {reason}; give the run behind it")
            return file, ""
        if self.engine not in ("auto", "packed"):
            return None, ""
        from foveate.engine.packed import packed_file

        current, why = packed_file(file)
        if current is not None and not reason:
            return current, ""
        reason = reason or why
        if self.engine == "packed":
            raise ConfigError(f"{file}: {reason}; or leave out --engine")
        return None, reason


def _in_int8(run: Run) -> Run:
    """Return the run in int8, by the engine in C. Raises ``ConfigError`` if it cannot."""
    import torch

    from foveate.engine.packed import PackedModel
    from foveate.run.pack import content

    try:
        model = PackedModel(run.path, *content(run, "int8"), torch.get_num_threads())
    except UserError as error:
        raise ConfigError(f"int8: {message_of(error)}; or leave out --precision int8") from None
    model.engine.remedy = "leave out --precision int8"
    return run.by(model.engine)
