"""Common parts of all exports: targets, packages, and comparing their answers with the run's.

    export(run, Path("fr.ct2"), "ctranslate2", sample)

Every export of a run is either refused with a reason, or written, run there and compared.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import importlib.metadata
import json
import os
import pkgutil
import shutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from safetensors import SafetensorError

import foveate.exchange
from foveate.data.catalogue import DataError
from foveate.data.corpus import read_text
from foveate.data.text import TextData
from foveate.decode.beam import Beam
from foveate.decode.engine import SearchRequest, best
from foveate.decode.search import Greedy, Search
from foveate.errors import UserError, install
from foveate.files import part_of, remove, replace_file
from foveate.nn.native.kernels import as_written
from foveate.run import Run
from foveate.run.pack import made_of
from foveate.tasks.engine import Ensemble, TorchEngine
from foveate.tasks.text import by_length
from foveate.tasks.translation import Translation

Ids = list[int]
CHRF = 0.3  # the loss of chrF points that rounded weights may cause
TIE = 1e-3  # outputs whose log p differ by less are a tie, decided by rounding


class ExchangeError(UserError):
    """Files and a model do not fit: gives the file, the key or tensor, and the remedy."""


class Different(ExchangeError):
    """An export whose answers differ from the run's: gives the sentence and the tokens."""


@dataclass(frozen=True)
class CheckSample:
    """Sentences on which an export is tested, with references if available."""

    sources: list[str]
    references: list[str] | None = None


@dataclass(frozen=True)
class Checked:
    """The result of comparing an export with its run.

    ``ties`` counts sentences whose two outputs are equally probable for the run, ``cut_otherwise``
    those that another tokenizer splits differently, which are left out; ``chrf`` is ours and
    theirs, if tokens may differ.
    """

    sentences: int
    searches: list[str]
    tokens: int = 0
    ties: int = 0
    chrf: list[float] | None = None
    cut_otherwise: int = 0

    def __str__(self) -> str:
        tried = f"{self.sentences:,} sentences, {' and '.join(self.searches)}"
        if self.cut_otherwise:
            tried += f" ({self.cut_otherwise} more are cut differently there, and left out)"
        if self.chrf is not None:
            return f"{tried}: chrF {self.chrf[1]:.2f}, the run's own {self.chrf[0]:.2f}"
        if not self.tokens:
            return f"{tried}: the same"
        ties = f", {self.ties} of them a tie" if self.ties else ""
        return f"{tried}: the same {self.tokens:,} tokens{ties}"


def sample_of(run: Run, count: int, source: Path | None = None) -> CheckSample:
    """Return ``count`` lines of a file, or of the validation data at equal intervals.

    A line of the file is SOURCE or SOURCE TAB REFERENCE. Raises ``DataError`` if there are none.
    """
    if source is not None:
        lines = read_text(source, TextData()).lines
        pairs = [line.split("\t", 1) for line in lines if line.strip()][:count]
        if not pairs:
            raise DataError(f"{source} is empty: give lines to try the export on")
        both = all(len(pair) == 2 for pair in pairs)
        return CheckSample([p[0] for p in pairs], [p[1] for p in pairs] if both else None)
    try:
        sources, references = run.pairs("valid")
    except (DataError, OSError) as error:
        raise DataError(f"{error}; or give sentences to try the export on: --sample FILE") from None
    step = max(1, len(sources) // count)
    return CheckSample(list(sources[::step][:count]), list(references[::step][:count]))


def searches(run: Run) -> dict[str, Search]:
    """Return greedy search and the run's own beam (or one of 4), with the run's length limits."""
    own = run.config.decode
    beam = own if type(own) is Beam.Config else Beam.Config.like(own, beam_size=4)
    free = {"rules": (), "whole_characters": False}  # as in other programs
    plain = [config.model_copy(update=free) for config in (Greedy.Config.like(own), beam)]
    return {"greedy": plain[0].build(), f"beam of {beam.beam_size}": plain[1].build()}


Theirs = Callable[[list[Ids], Search], list[Ids]]


def compare(
    run: Run, sample: CheckSample, tried: dict[str, Search], theirs: Theirs, exact: bool
) -> Checked:
    """Compare the outputs of ``theirs``, for sources of one length, with those of the run.

    Raises `Different` if tokens differ, or, unless ``exact``, if chrF is more than 0.3 lower.
    """
    if not exact and sample.references is None:
        raise ExchangeError(
            "rounded weights are compared by chrF, which needs references: "
            "lines SOURCE TAB REFERENCE in --sample FILE"
        )
    ids = translator(run).encode(sample.sources)
    if not exact:
        tried = dict(list(tried.items())[-1:])
    tokens = ties = 0
    for name, search in tried.items():
        searched = TorchEngine(translator(run), run.model).outputs(ids, SearchRequest(search))
        ours = [best(hypotheses).ids for hypotheses in searched]
        others: list[Ids] = [[] for _ in ids]
        for rows in (rows for length, rows in by_length(ids).items() if length):
            for row, output in zip(rows, theirs([ids[n] for n in rows], search), strict=True):
                others[row] = output
        if not exact:
            decode = translator(run).target_tokenizer.decode
            scores = held_by_chrf(
                list(map(decode, ours)), list(map(decode, others)), sample.references
            )
            return Checked(len(ours), [name], sum(map(len, ours)), 0, scores)
        for number, (own, other) in enumerate(zip(ours, others, strict=True)):
            tokens += len(own)
            if own == other:
                continue
            if not _tie(run, ids[number], own, other):
                pieces = translator(run).target_tokenizer.pieces
                written, read = (" ".join(pieces[i] for i in answer) for answer in (own, other))
                raise Different(
                    f"sentence {number + 1} of the sample comes out differently ({name}): "
                    f"{sample.sources[number]!r} gives [{written}] here and [{read}] there; "
                    "nothing was written"
                )
            ties += 1
    return Checked(len(ids), list(tried), tokens, ties)


def translator(run: Run) -> Translation:
    """Return the task of a run that translates. Raises ``ConfigError`` for any other."""
    return run.need(Translation, "be exported as a translator")


def _tie(run: Run, source: Ids, ours: Ids, theirs: Ids) -> bool:
    """Return whether both are equally probable for the run: in total, or where they diverge."""
    own, other = translator(run).force(run.model, [(source, ours), (source, theirs)])
    parted = next((n for n, (a, b) in enumerate(zip(ours, theirs)) if a != b), None)  # noqa: B905
    parted = min(len(ours), len(theirs)) if parted is None else parted
    return abs(sum(own) - sum(other)) < TIE or abs(own[parted] - other[parted]) < TIE


def held_by_chrf(ours: list[str], theirs: list[str], references: list[str] | None) -> list[float]:
    """Return chrF of both. Raises `Different` if theirs is more than 0.3 lower."""
    from foveate.tasks.metrics import figures_of

    own, other = (figures_of(o, references or [], ["chrf"])[0]["chrf"] for o in (ours, theirs))
    if other < own - CHRF:
        raise Different(
            f"chrF {other:.2f} where the run has {own:.2f}: more than {CHRF} is lost; take another "
            "--quantization, or a larger sample: --check N; nothing was written"
        )
    return [own, other]


POINTER = "foveate.json"  # in every export: the run it was made from, and how it was checked
ROOM = 2**20  # free bytes on a disk that is not full


class Export(ABC):
    """One target of ``foveate export --to``.

    ``to`` is its name, ``packages`` are its requirements, ``precisions`` its formats of weights.
    """

    to: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()
    precisions: ClassVar[tuple[str, ...]] = ("float32",)
    suffix: ClassVar[str] = ""  # of a file; a folder has none

    def __init__(
        self, run: Run, quantization: str = "float32", languages: tuple[str, ...] = ()
    ) -> None:
        self.run, self.quantization, self.languages = run, quantization, languages

    def rewritten(self) -> Iterable[object]:
        """Return the parts of the run that the target reimplements."""
        return *self.run.model.modules(), *self.texts()

    def texts(self) -> Iterable[object]:
        """Return the parts of the run that read and write texts."""
        return self.run.task, *self.run.task.tokenizers_by_name().values()

    @abstractmethod
    def refuse(self) -> None:
        """Raise `ExchangeError` if the target does not support this run, with an alternative."""

    def instead(self) -> str:
        """Return the end of a refusal: whether the most general target supports this run."""
        with contextlib.suppress(ExchangeError):
            targets()["onnx"](self.run).refuse()
            return "; it can be exported to onnx (foveate export --to onnx)"
        return "; its weights are in its folder, as safetensors"

    @abstractmethod
    def write(self, place: Path, pointer: dict[str, object]) -> None:
        """Write the folder or file; ``pointer`` describes its origin."""

    @abstractmethod
    def check(self, place: Path, sample: CheckSample) -> Checked:
        """Let the target's own program answer the sample; raise `Different` if answers differ."""

    def finish(self, place: Path, pointer: dict[str, object]) -> None:
        """Write the pointer, which now describes how the export was checked."""
        replace_file(place / POINTER, json.dumps(pointer, indent=2, sort_keys=True) + "\n")


def targets() -> dict[str, type[Export]]:
    """Return all targets by name."""
    for module in pkgutil.iter_modules(foveate.exchange.__path__, "foveate.exchange."):
        importlib.import_module(module.name)
    return {target.to: target for target in sorted(Export.__subclasses__(), key=lambda t: t.to)}


def export(
    run: Run,
    out: Path,
    to: str,
    sample: CheckSample,
    quantization: str = "float32",
    languages: tuple[str, ...] = (),
) -> tuple[Path, Checked]:
    """Export a run for another program, and let that program answer the sample.

    ``languages`` are the codes of source and target, if a target needs them. Nothing is written to
    ``out`` before its outputs have proved equal. Raises `ExchangeError` for unsupported runs,
    `Different` for different outputs, ``FileExistsError`` if ``out`` exists.
    """
    known = targets()
    if to not in known:
        raise ExchangeError(f"no export to {to!r}; there are: {', '.join(known)}")
    if quantization not in known[to].precisions:
        able = ", ".join(known[to].precisions)
        raise ExchangeError(f"--quantization {quantization}: {to} has: {able}")
    target = known[to](run, quantization, languages)
    if isinstance(run.model, Ensemble):
        raise ExchangeError(
            f"{run.checkpoint} is an ensemble; export each model alone, or make a student of them: "
            "foveate student OUT --teacher RUN --ensemble RUN2 --pair en:fr --source TEXT"
        )
    refuse_own(target.rewritten(), to)
    target.refuse()
    need(*target.packages, extra="export")
    if target.suffix and out.suffix != target.suffix:
        raise ExchangeError(f"{out}: an export to {to} is a file that ends in {target.suffix}")
    pointer: dict[str, object] = {**made_of(run)} | {
        "to": to,
        "quantization": quantization,
        "versions": {name: importlib.metadata.version(name) for name in target.packages},
    }
    with appearing(out) as place:
        target.write(place, pointer)
        checked = target.check(place, sample)
        target.finish(place, pointer | {"checked": asdict(checked)})
    return out, checked


def refuse_own(parts: Iterable[object], to: str) -> None:
    """Raise `ExchangeError` for a part whose class, or one of its methods, is user-defined."""
    own = next((part for part in parts if not as_written(part)), None)
    if own is not None:
        raise ExchangeError(
            f"no export to {to} of {type(own).__name__}, which computes with code of its own; "
            "its weights are in its folder, as safetensors"
        )


def need(*packages: str, extra: str) -> None:
    """Raise `ExchangeError` for a package that is not installed."""
    for name in packages:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            raise ExchangeError(f"the package {name} is not installed; {install(extra)}") from None


@contextlib.contextmanager
def appearing(out: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``out``, renamed to it if the block ends without an error.

    Raises ``FileExistsError`` if ``out`` exists already, and ``OSError`` with ``out`` if the disk
    is full.
    """
    if os.path.lexists(out):  # a dangling link too
        raise FileExistsError(f"{out} already exists: move it away, or give another path")
    out.parent.mkdir(parents=True, exist_ok=True)
    place = part_of(out)
    remove(place)
    try:
        yield place
        os.replace(place, out)
    except (OSError, RuntimeError, SafetensorError) as error:  # libraries raise their own
        code = errno.ENOSPC if shutil.disk_usage(out.parent).free <= ROOM else None
        if isinstance(error, OSError) and str(error.filename).startswith(str(place)):
            code = code or error.errno
        if code is None:
            raise
        raise OSError(code, f"{os.strerror(code)}; nothing was written", str(out)) from error
    finally:
        remove(place)


def once(pieces: list[str]) -> list[str]:
    """Return the pieces unchanged. Raises `ExchangeError` if one occurs twice."""
    twice = next((piece for piece, count in Counter(pieces).items() if count > 1), None)
    if twice is not None:
        raise ExchangeError(
            f"the vocabulary holds {twice!r} twice: once special, once as text; train "
            "with a tokenizer whose pieces differ (bpe, unigram, byte)"
        )
    return pieces
