"""Test the laws on the kinds in a file, from small sizes to large, within a time limit."""

import contextlib
import importlib
import importlib.util
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, ModuleType

import torch

from foveate.config import Config, ConfigError, importing, kinds
from foveate.errors import place, placed
from foveate.files import write_text
from foveate.kinds import load_kinds
from foveate.measure.laws import layers, models, searches
from foveate.measure.laws.trial import LAWS, SIZES, Counterexample, Law, Sizes, Trial

FAMILIES = (*layers.LAYERS, *layers.WHOLE, *searches.FAMILIES)


class TimeLimit(BaseException):
    """Time is up. Not an `Exception`, so that no ``except Exception`` of a user catches it."""


@dataclass
class Verdict:
    """A law for a kind: the largest size tested, or the size and form of its counterexample."""

    law: Law
    sizes: Sizes | None = None
    counterexample: Counterexample | None = None

    def text(self, repeats: bool = False, whole: bool = True) -> str:
        """Return a line if the law holds, else the counterexample (repeated: its reason alone).

        A law holds "so far" if not the ``whole`` test was made, but only some sizes.
        """
        if self.counterexample is None:
            return f"  {'holds ' if whole else 'so far'} {self.law.sentence}"
        lines = [f"  FAILS  {self.law.sentence}"]
        if repeats:
            return f"{lines[0]}: {self.counterexample.why}, as above"
        what = "smallest counterexample" if self.counterexample.shown else "first error"
        lines.append(f"{what} ({self.sizes}):")
        return "\n         ".join([*lines, *self.counterexample.text().splitlines()])


@dataclass
class KindReport:
    """The verdicts on one kind.

    ``stopped`` is where the time limit stopped the test, None if it did not; ``untried`` is why no
    law is tested on the kind, or empty.
    """

    title: str
    verdicts: list[Verdict] = field(default_factory=list)
    stopped: str | None = None
    untried: str = ""

    @property
    def good(self) -> bool:
        """True if every law was tested, at least one applied, and none failed."""
        whole = all(v.sizes is not None and v.counterexample is None for v in self.verdicts)
        return whole and self.stopped is None and not self.untried

    def text(self) -> str:
        """Return the report as printed."""
        if self.untried:
            return f"{self.title}\n  not tried: {self.untried}"
        tried = [verdict for verdict in self.verdicts if verdict.sizes is not None]
        reasons = [v.counterexample.why if v.counterexample else "" for v in tried]
        lines = [self.title]
        errors = [v for v in tried if v.counterexample and not v.counterexample.shown]
        whole = not errors and self.stopped is None
        lines += [v.text(reasons[n] in reasons[:n], whole) for n, v in enumerate(tried)]
        broken = sum(v.counterexample is not None for v in tried)
        if self.stopped is not None:
            lines.append(f"{self.stopped}; counterexamples so far: {broken or 'none'}")
        left = len(self.verdicts) - len(tried)
        end = " so far: an error ended the test" * bool(errors) + f"; {left} not tried" * bool(left)
        return "\n".join([*lines, f"{len(tried) - broken} of {len(self.verdicts)} laws hold{end}"])


def check(target: str, seconds: float = 20.0) -> list[KindReport]:
    """Test the laws on each kind that a Python file or an importable module defines.

    A kind of a family without laws is reported as not tried. Raises ``ConfigError`` if the file
    cannot be imported, or defines no kind.
    """
    load_kinds()
    registered = kinds()
    module = _imported(target)
    defined = set(map(id, vars(module).values()))
    own = [
        config
        for family in dict.fromkeys((*FAMILIES, *kinds()))  # those with laws first
        for config in kinds().get(family, {}).values()
        if config.__module__ == module.__name__ and id(config.owner) in defined
    ]
    if not own:
        raise ConfigError(
            f"{target} defines no kind: it needs a class derived from Score, Normalizer, Position, "
            "Cell, BaseAttention, FeedForward, Encoder, Decoder, Model or Search with a nested "
            'Config(Score.Config, kind="my_score")'
        )
    limit = time.monotonic() + seconds
    return [_tried(config, registered, limit, seconds, target) for config in own]


def write_exercises(folder: Path) -> list[Path]:
    """Copy the exercises into a folder, never over existing files; return the files written."""
    package = Path(__file__).parents[2]
    places = (package / "exercises", package.parents[1] / "docs" / "exercises")
    sources = sorted(path for place in places for path in place.glob("*.*"))
    new = [path for path in sources if not (folder / path.name).exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in new:  # the commands in the text name the copied files
        text = path.read_text(encoding="utf-8").replace("docs/exercises", folder.as_posix())
        write_text(folder / path.name, text)
    return [folder / path.name for path in new]


def _tried(
    config: type[Config],
    registered: dict[str, dict[str, type[Config]]],
    limit: float,
    seconds: float,
    file: str,
) -> KindReport:
    """Test one kind: at each size, from small to large, each law that has not failed yet."""
    assert config.family is not None
    before = registered[config.family]
    name = getattr(config.owner, "reimplements", None)
    if name is not None and name not in before:
        known = ", ".join(sorted(before))
        raise ConfigError(f"{file}: no {config.family} {name!r} to reimplement; there are: {known}")
    title = f"{file}: {config.family} '{config.kind}'"
    if config.family not in FAMILIES:
        why = f"the laws do not cover kinds of {config.family}; test it yourself"
        return KindReport(title, untried=why)
    parts = models.PARTS if config.family == "model" else {}
    needed = [key for key, value in config.model_fields.items() if value.is_required()]
    required = [key for key in needed if key not in parts]
    if required:
        raise ConfigError(
            f"{file}: the {config.family} {config.kind} needs a default for {', '.join(required)}"
        )
    reference = None if name is None else before[name]()
    equal = "" if name is None else f", to equal '{name}'"
    report = KindReport(f"{title}{equal}")
    made = config(**{key: parts[key] for key in needed})
    if config.family in layers.WHOLE and (why := models.untried(made)):
        return KindReport(title, untried=why)
    report.verdicts = [Verdict(law) for law in LAWS if law.concerns(made, reference)]
    try:
        with _within(limit - time.monotonic()):
            # building whole models takes too long for every seed
            for sizes in SIZES[1::3] if config.family in layers.WHOLE else SIZES:
                if not _try_all(report, made, sizes, reference, file):
                    break
    except TimeLimit as error:
        report.stopped = f"stopped after {seconds:g} s in {place(error, file)}"
    return report


def _try_all(
    report: KindReport, config: Config, sizes: Sizes, reference: Config | None, file: str
) -> bool:
    """Test each law at one size; return False if the kind raises, which ends the test."""
    for verdict in report.verdicts:
        if verdict.counterexample is not None:
            continue
        try:
            with torch.no_grad():
                verdict.law.holds(Trial(config, sizes, reference))
        except Counterexample as error:
            verdict.counterexample = error
        except Exception as error:
            gap = isinstance(error, NotImplementedError) or "ellipsis" in str(error)
            why = f"{place(error, file)}: fill the gap" if gap else placed(error, file)
            verdict.counterexample = Counterexample(why)
        verdict.sizes = sizes
        if verdict.counterexample is not None and not verdict.counterexample.shown:
            return False
    return True


@contextlib.contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raise `TimeLimit` after that time, even in an endless loop if the system can interrupt it."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeLimit

    if seconds <= 0:
        raise TimeLimit
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield  # Windows has no timer that interrupts
    else:
        before = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def _imported(target: str) -> ModuleType:
    """Return the module of a Python file or a dotted name. Raises `ConfigError` in one sentence."""
    path = Path(target)
    if path.suffix == ".py" and not path.is_file():
        raise ConfigError(f"{target}: no such file")
    with importing(target, "; write the path of a file with .py, or the name of a module"):
        if path.suffix != ".py":
            sys.path.insert(0, "")
            return importlib.import_module(target)
        name = f"checked_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        sys.path.insert(0, str(path.resolve().parent))
        spec.loader.exec_module(module)
    return module
