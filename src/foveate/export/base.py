"""What every export of a run is: refused with a reason, or written, run there and compared.

    export(run, Path("fr.ct2"), "ctranslate2", sample)

Lives here: the registry of targets, the order of the steps, and the pointer back to the run. Does
not live here: the targets, a module each; how outputs are compared (`foveate.export.compare`).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib
import importlib.metadata
import json
import os
import pkgutil
import shutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from safetensors import SafetensorError

import foveate.export
from foveate.atomic import part_of, remove, replace_file
from foveate.export.compare import Checked, Sample
from foveate.export.huggingface_rules import ExchangeError
from foveate.run import Run
from foveate.tasks.ensemble import Ensemble
from foveate.train.checkpoint import WEIGHTS

POINTER = "foveate.json"  # in every export: which run it was made of, and how it was checked
ROOM = 2**20  # bytes that are free on a disk that is not full
PRECISIONS = ("float32", "bfloat16", "float16", "int16", "int8")


class Export(ABC):
    """One target of ``foveate export --to``.

    ``to`` is its name, ``packages`` are what it needs, ``precisions`` of what weights it may be.
    """

    to: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()
    precisions: ClassVar[tuple[str, ...]] = ("float32",)
    suffix: ClassVar[str] = ""  # of a file; a folder has none

    def __init__(
        self, run: Run, quantization: str = "float32", languages: tuple[str, ...] = ()
    ) -> None:
        self.run, self.quantization, self.languages = run, quantization, languages

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "to" in cls.__dict__:
            _TARGETS[cls.to] = cls

    @abstractmethod
    def refuse(self) -> None:
        """Raise `ExchangeError` that says why this run has no place there, and what would."""

    @abstractmethod
    def write(self, place: Path, pointer: dict[str, Any]) -> None:
        """Make the folder or file; ``pointer`` says what it was made of."""

    @abstractmethod
    def check(self, place: Path, sample: Sample) -> Checked:
        """Let the target's own program answer the sample; raise `Different` where it differs."""

    def finish(self, place: Path, pointer: dict[str, Any]) -> None:
        """Put the pointer, which now says how the export was checked, where it belongs."""
        replace_file(place / POINTER, json.dumps(pointer, indent=2, sort_keys=True) + "\n")


_TARGETS: dict[str, type[Export]] = {}


def targets() -> dict[str, type[Export]]:
    """Every target by its name."""
    for module in pkgutil.iter_modules(foveate.export.__path__, "foveate.export."):
        importlib.import_module(module.name)
    return dict(sorted(_TARGETS.items()))


def export(
    run: Run,
    out: Path,
    to: str,
    sample: Sample,
    quantization: str = "float32",
    languages: tuple[str, ...] = (),
) -> tuple[Path, Checked]:
    """Write a run for another program, and let that program answer the sample.

    ``languages`` are the codes of source and target, where a target wants them. Nothing is at
    ``out`` before its outputs were found to be ours. Raises `ExchangeError` for what
    does not fit, `Different` for what came out otherwise, ``FileExistsError`` where ``out`` is.
    """
    target = target_of(to, quantization)(run, quantization, languages)
    _refuse_ensemble(run)
    target.refuse()
    need(*target.packages, extra="export")
    if target.suffix and out.suffix != target.suffix:
        raise ExchangeError(f"{out}: an export to {to} is a file that ends in {target.suffix}")
    pointer = pointer_to(run) | {
        "to": to,
        "quantization": quantization,
        "versions": {name: importlib.metadata.version(name) for name in target.packages},
    }
    with appearing(out) as place:
        target.write(place, pointer)
        checked = target.check(place, sample)
        target.finish(place, pointer | {"checked": asdict(checked)})
    return out, checked


def target_of(to: str, quantization: str) -> type[Export]:
    """The class of a target. Raises `ExchangeError` that names those that there are."""
    known = targets()
    if to not in known:
        raise ExchangeError(f"no export to {to!r}; there are: {', '.join(known)}")
    if quantization not in known[to].precisions:
        able = ", ".join(known[to].precisions)
        raise ExchangeError(f"--quantization {quantization}: {to} has: {able}")
    return known[to]


def need(*packages: str, extra: str) -> None:
    """Raise `ExchangeError` that names a package which is not installed."""
    for name in packages:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            raise ExchangeError(
                f"the package {name} is not installed: pip install 'foveate[{extra}]'"
            ) from None


def pointer_to(run: Run) -> dict[str, Any]:
    """Which run, step and weights, without a path."""
    from foveate import __version__

    weights = run.path / run.checkpoint / WEIGHTS
    with weights.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {
        "run": run.path.resolve().name,
        "checkpoint": run.checkpoint,
        "sha256": digest,
        "foveate": __version__,
    }


def _refuse_ensemble(run: Run) -> None:
    if isinstance(run.model, Ensemble):
        raise ExchangeError(
            f"{run.checkpoint} are several models; export each alone, or distill them into one: "
            "foveate distill"
        )


# ------------------------------------------------------------------------------ appearing


@contextlib.contextmanager
def appearing(out: Path) -> Iterator[Path]:
    """A place beside ``out`` that takes its name when the block ends without an error.

    Raises ``FileExistsError`` where something is there already, and ``OSError`` naming ``out``
    where the disk is full.
    """
    if out.exists():
        raise FileExistsError(f"{out} is there already: move it away, or name another place")
    out.parent.mkdir(parents=True, exist_ok=True)
    place = part_of(out)
    remove(place)
    try:
        yield place
        os.replace(place, out)
    except (OSError, RuntimeError, SafetensorError) as error:  # others write here, in their words
        code = errno.ENOSPC if shutil.disk_usage(out.parent).free <= ROOM else None
        if isinstance(error, OSError) and str(error.filename).startswith(str(place)):
            code = code or error.errno
        if code is None:
            raise
        raise OSError(code, f"{os.strerror(code)}; nothing was written", str(out)) from error
    finally:
        remove(place)


@dataclass(frozen=True)
class Pieces:
    """The two lists of pieces of a translator as other programs want them: names that differ."""

    source: list[str]
    target: list[str]

    @classmethod
    def of(cls, run: Run) -> Pieces:
        """Raises `ExchangeError` where two ids have one name, so that texts could not be told."""
        found = cls(run.task.source_tokenizer.pieces, run.task.target_tokenizer.pieces)
        for pieces in (found.source, found.target):
            once(pieces)
        return found


def once(pieces: list[str]) -> list[str]:
    """The same pieces. Raises `ExchangeError` where one stands there twice."""
    twice = next((piece for piece, count in Counter(pieces).items() if count > 1), None)
    if twice is not None:
        raise ExchangeError(
            f"the vocabulary holds {twice!r} twice: once as a special piece, once as text; train "
            "with a tokenizer whose pieces differ (bpe, unigram, byte)"
        )
    return pieces
