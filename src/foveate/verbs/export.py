"""Writing runs for other programs, reading theirs, and translating through them.

Lives here: what happens between the command line and `foveate.export`. Does not live here: the
targets.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foveate.config import ConfigError
from foveate.files import cache_folder

if TYPE_CHECKING:
    from foveate.run import Run


def export(
    path: Path,
    out: Path,
    to: str,
    checkpoint: str,
    tried: tuple[int, Path | None],
    choices: dict[str, Any],
) -> list[str]:
    """Export a run, and say where it is and what it was held against.

    ``tried`` says how many sentences of which file (None: the validation data) are compared.
    """
    from foveate.export.base import export as export_run
    from foveate.export.base import sample_of
    from foveate.run import load

    run = load(path, checkpoint)
    place, checked = export_run(run, out, to, sample_of(run, *tried), **choices)
    return [f"{place}: {to} of {path}/{run.checkpoint}", str(checked)]


def import_(source: Path, out: Path) -> list[str]:
    """Make a run, or a tokenizer, of what others wrote."""
    from foveate.export.huggingface import import_from

    return [import_from(source, out)]


# ------------------------------------------------------------------------------ engines


def with_engine(run: Run, engine: str, precision: str, sample: Path | None = None) -> Run:
    """The run with searches carried out by an engine, its weights of a precision.

    ``sample`` is what an export is tried on where the run's data are not here. Raises
    ``ConfigError`` where there is no such engine, `ExchangeError` where it cannot have the run.
    """
    if engine not in ENGINES:
        raise ConfigError(f"no engine {engine!r}; there are: {', '.join(ENGINES)}")
    return ENGINES[engine](run, precision, sample)


def _torch(run: Run, precision: str, sample: Path | None) -> Run:
    from foveate.verbs.decoding import at_precision

    return at_precision(run, precision)


def _ctranslate2(run: Run, precision: str, sample: Path | None) -> Run:
    """Through an export that is made at the first use and kept in the cache."""
    from foveate.export.base import export as export_run
    from foveate.export.base import pointer_to, sample_of
    from foveate.export.ctranslate2 import through_ctranslate2

    quantization = "float32" if precision == "fp32" else precision
    name = f"{pointer_to(run)['sha256'][:32]}-{quantization}"
    folder = cache_folder() / "exports" / name
    if not folder.exists():
        export_run(run, folder, "ctranslate2", sample_of(run, 100, sample), quantization)
    return through_ctranslate2(run, folder)


def _ray(run: Run, precision: str, sample: Path | None) -> Run:
    """Many runs: the documents of a folder are dealt out to them (`foveate.verbs.corpus`)."""
    raise ConfigError("--engine ray translates folders: --in FOLDER --out FOLDER")


ENGINES: dict[str, Callable[[Run, str, Path | None], Run]] = {
    "torch": _torch,
    "ctranslate2": _ctranslate2,
    "ray": _ray,
}
