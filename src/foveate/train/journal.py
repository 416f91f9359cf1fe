"""Reports of a training: the log, progress, health of loss and gradients, attention."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, TextIO, TypeVar

import torch
from pydantic import Field
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from torch.utils._pytree import tree_leaves

from foveate.config import Config
from foveate.errors import install
from foveate.files import read_bytes, replace_file
from foveate.tasks.base import Loss, Measures
from foveate.train.stored import Record, TrainError

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

B = TypeVar("B")  # a batch

LOG = "log.jsonl"  # its name in a run
Line = Record


class Journal:
    """``log.jsonl`` of a run, opened at a step: lines of later steps are cut off.

    Each line has ``event`` ("start", "train", "valid", …, "end"), ``step``, and figures. Numbers
    that are not finite are written as null, for JSON has no name for them.
    """

    cut = 0  # how many lines were dropped: later, torn and damaged ones

    def __init__(self, run: Path, step: int, tensorboard: bool = False, name: str = LOG) -> None:
        self.path = run / name
        if self.path.exists():
            content = self.path.read_bytes()
            lines = [line for line in sound(content) if line["step"] <= step]
            self.cut = len(content.splitlines()) - len(lines)
            if self.cut or (content and not content.endswith(b"\n")):
                replace_file(self.path, "".join(json.dumps(line) + "\n" for line in lines))
        self._file: TextIO = self.path.open(
            "a", encoding="utf-8", errors="backslashreplace", newline="\n"
        )
        self._board = _board(run / "tensorboard", step) if tensorboard else None

    def write(self, event: str, step: int, **values: object) -> None:
        """Append a line and hand it to the system at once."""
        line = json.dumps({"event": event, "step": step} | values)
        line = json.dumps(json.loads(line, parse_constant=lambda _: None), ensure_ascii=False)
        try:
            self._file.write(line + "\n")
            self._file.flush()
        except OSError as error:
            raise TrainError(
                f"cannot write {self.path}: {error.strerror}; make room; the same command "
                "resumes from the last checkpoint"
            ) from error
        for name, value in values.items():
            if self._board is not None and isinstance(value, int | float):
                self._board.add_scalar(f"{event}/{name}", value, step)

    def close(self) -> None:
        """Close the files; the journal cannot be used afterwards."""
        with contextlib.suppress(OSError):  # of a full disk, which `write` has reported
            self._file.close()
        if self._board is not None:
            self._board.close()


def read(run: Path, name: str = LOG) -> list[Line]:
    """The lines of a file of a run; one that a kill has torn is left out."""
    path = run / name
    return sound(read_bytes(path)) if path.exists() else []


def last_samples(run: Path) -> list[dict[str, str]]:
    """The examples of the last validation that kept any: source, reference and output of each."""
    lines = [line for line in read(run) if line.get("samples")]
    return list(lines[-1]["samples"]) if lines else []


def sound(content: bytes) -> list[Line]:
    """The lines of a log, without those that are torn or damaged."""
    lines = []
    for text in content.splitlines():
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue  # torn by a kill or a full disk; its step is written again
        if isinstance(line, dict) and _is_sound(line):
            lines.append(line)
    return lines


def _is_sound(line: Line) -> bool:
    """Return whether event, step, figures and samples of a line are what `Journal` writes."""
    event, step, samples = line.get("event"), line.get("step"), line.get("samples", [])
    if not isinstance(event, str) or type(step) is not int or step < 0:
        return False
    if event not in ("train", "valid"):
        return True
    figures = [value for key, value in line.items() if key not in ("event", "samples")]
    whole = isinstance(samples, list) and all(
        isinstance(sample, dict) and all(isinstance(text, str) for text in sample.values())
        for sample in samples
    )
    return whole and all(value is None or isinstance(value, int | float) for value in figures)


def _board(folder: Path, step: int) -> SummaryWriter:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise TrainError(
            f"train.tensorboard = true needs TensorBoard ({install('track')}), or leave it out: "
            "log.jsonl holds the same figures"
        ) from error
    return SummaryWriter(str(folder), purge_step=step + 1)


RECENT = 100  # steps whose mean duration gives the time left
SMOOTHING = 0.95  # of the loss and speed shown; those in the log are exact


def clock(seconds: float) -> str:
    """Seconds as 4:05 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Display:
    """The progress of a training, on standard error.

    ``total`` steps and ``budget`` seconds end the training, where they are set. The time left is
    that of the last steps for those to come, and that of the last validation for those that are
    due ``every`` so many steps. The loss is the plain NLL where the objective logs it, as that of
    a validation is; the ``objective``, which is minimised, stands beside it. Where there is no
    terminal a line appears every ``quiet`` seconds; of the validations of so many seconds one is
    shown. A ``silent`` display, that of every rank but 0, prints none.
    """

    def __init__(
        self,
        total: int | None,
        budget: float | None,
        every: int | None = None,
        quiet: float = 15.0,
        console: Console | None = None,
        silent: bool = False,
    ) -> None:
        self.total, self.budget, self.every, self.quiet = total, budget, every, quiet
        self.console = console or Console(
            stderr=True, highlight=False, soft_wrap=True, quiet=silent
        )
        self._spent: deque[float] = deque(maxlen=RECENT)  # seconds of each of the last steps
        self._validation = 0.0  # seconds of the last one
        self._losses: dict[str, float] = {}
        self._rate: float | None = None
        self._figures = ""
        self._unshown: list[tuple[int, Measures, int | None]] = []  # after the one shown last
        self._shown = -math.inf  # when that was
        self._printed = time.monotonic()
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            columns = (BarColumn(24), TextColumn("{task.description}", markup=False))
            self._bar = Progress(*columns, console=self.console, refresh_per_second=4)
            self._task = self._bar.add_task("first step", total=1.0)
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(
        self, step: int, losses: Mapping[str, float], rate: float, seconds: float, spent: float
    ) -> None:
        """A step is done: its ``loss`` and, where the objective logs it, its plain ``nll``.

        ``rate`` is its target tokens a second; it has taken ``spent`` of all ``seconds``.
        """
        named = {"loss": losses.get("nll", losses["loss"]), "objective": losses["loss"]}
        self._losses = {k: _smooth(self._losses.get(k), v) for k, v in named.items()}
        self._rate = _smooth(self._rate, rate)
        self._spent.append(spent)
        if self._bar is not None:
            shares = [step / self.total] if self.total else []
            shares += [seconds / self.budget] if self.budget else []
            done = min(1.0, max(shares, default=0.0))
            self._bar.update(self._task, completed=done, description=self.line(step, seconds))
        elif time.monotonic() - self._printed >= self.quiet:
            self.say(self.line(step, seconds))

    def line(self, step: int, seconds: float) -> str:
        """The progress at a step, in one line."""
        ends = [] if self.budget is None else [self.budget - seconds]  # the first that comes
        if self.total is not None:
            ends.append((self.total - step) * sum(self._spent) / max(1, len(self._spent)))
            if self.every is not None:  # the last step has a validation too
                validations = -(-self.total // self.every) - step // self.every
                ends[-1] += self._validation * max(0, validations)
        losses = {name: f"{name} {value:.3f}" for name, value in self._losses.items()}
        if self._losses.get("objective") == self._losses.get("loss"):
            losses.pop("objective", None)
        parts = [f"step {step:,}" + (f"/{self.total:,}" if self.total else "")]
        parts += losses.values()
        parts += [] if self._rate is None else [f"{self._rate:,.0f} target tokens/s"]
        parts += [f"{clock(max(0.0, min(ends)))} left"] if ends else []
        return " · ".join(parts + ([self._figures] if self._figures else []))

    def say(self, text: str) -> None:
        """A line that stays."""
        self._printed = time.monotonic()
        self.console.print(text, markup=False)

    def validated(
        self, step: int, measures: Measures, best: int | None, spent: float = 0.0
    ) -> None:
        """Show a validation of ``spent`` seconds, unless one was of late; ``best`` is a step."""
        self._validation = spent
        self._figures = " · ".join(f"{k} {v:.4g}" for k, v in measures.figures.items())
        self._unshown.append((step, measures, best))
        if time.monotonic() - self._shown >= self.quiet:
            self.show_validation()

    def show_validation(self) -> None:
        """Print figures and samples of the last validation, if it is not shown yet."""
        if not self._unshown:
            return
        *before, (step, measures, best) = self._unshown
        parts = [f"step {step:,} · valid: {self._figures}"]
        if best is not None:
            parts.append("best so far" if step == best else f"best at step {best:,}")
        parts += [f"{len(before):,} before it in {LOG}"] if before else []
        self._unshown, self._shown = [], time.monotonic()
        self.say(" · ".join(parts))
        for sample in measures.samples:
            for name, text in vars(sample).items():
                self.say(f"    {name:<9} {text}")


def _smooth(old: float | None, new: float) -> float:
    return new if old is None else SMOOTHING * old + (1 - SMOOTHING) * new


class Health:
    """Checks that every part of a model learns: an event ``health`` every so many steps.

        ratio = ‖w_{n+1} − w_n‖ / ‖w_n‖ over the parameters of a module

    About 1/1000 is the rule of thumb: far below, a module hardly learns; far above, it is unstable.
    ``gradient`` is the norm of a module's gradient as the optimiser gets it: mean over targets,
    clipped.
    """

    def __init__(self, model: nn.Module, every: int, journal: Journal) -> None:
        self.every, self.journal = every, journal
        self._watched: dict[int, tuple[dict[str, Tensor], ...]] = {}  # norms by step and module
        self.modules: dict[str, list[Tensor]] = {}
        for name, parameter in model.named_parameters():
            self.modules.setdefault(module_of(name), []).append(parameter)

    @contextlib.contextmanager
    def watching(self, step: int) -> Iterator[None]:
        """Stands around the update of a step; takes a copy of the weights where it is due."""
        if step % self.every:
            yield
            return
        before = {
            name: [p.detach().clone() for p in parameters]
            for name, parameters in self.modules.items()
        }
        gradient = {
            name: norm([p.grad for p in parameters if p.grad is not None])
            for name, parameters in self.modules.items()
        }
        yield
        moved = {
            name: norm([p.detach() - old for p, old in zip(self.modules[name], olds, strict=True)])
            for name, olds in before.items()
        }
        self._watched[step] = gradient, moved, {name: norm(olds) for name, olds in before.items()}

    def write(self, step: int) -> None:
        """Write the event of a step, if it was due; this waits for the step."""
        if norms := self._watched.pop(step, None):
            gradient, moved, sizes = ({k: float(x) for k, x in each.items()} for each in norms)
            ratio = {name: moved[name] / max(sizes[name], 1e-12) for name in moved}
            self.journal.write("health", step, gradient=gradient, ratio=ratio)


def module_of(parameter: str) -> str:
    """The module that a parameter is counted to: its layer, or the part that stands alone.

    ``decoder.layers.3.cross_attention.query.weight`` is of ``decoder.layers.3``,
    ``encoder.stem.embedding.weight`` of ``encoder.stem``.
    """
    parts = parameter.split(".")[:-1]
    numbered = next((n for n, part in enumerate(parts) if part.isdecimal()), None)
    return ".".join(parts[: 2 if numbered is None else numbered + 1]) or parameter


norm = partial(get_total_norm, foreach=False)  # the Euclidean norm of all numbers together

SNAPSHOTS = "snapshots.jsonl"  # its name in a run
MOST_SNAPSHOTS = 200  # with the steps between them as they began; each doubling adds half as many


class SnapshotConfig(Config):
    """Attention to one example at steps of a training, for ``foveate look learning``.

    The example is the first of the validation data where no ``source`` is given. From 200
    snapshots on the number of steps between them doubles.
    """

    every: int = Field(default=25, gt=0)  # steps from one snapshot to the next
    source: str | None = None
    """What the model reads; the first validation example if absent."""
    target: str | None = None  # what it is forced to produce from the source


class Recorder(Protocol):
    """Records something at the steps that are ``due``; it draws no random number.

    ``cut`` is the number of lines of an earlier training that were dropped.
    """

    cut: int

    def due(self, step: int, last: bool = False) -> bool: ...
    def take(self, step: int) -> None: ...
    def close(self) -> None: ...


Recording = Callable[[SnapshotConfig, Path, int], Recorder]  # for a run, from a step on


def interval(every: int, step: int) -> int:
    """Steps between snapshots at a step: ``every``, doubled until so many would not be too many."""
    while step > every * MOST_SNAPSHOTS:
        every *= 2
    return every


def why_not_finite(
    model: nn.Module, batches: Sequence[B], forward: Callable[[B], Loss], rate: float
) -> str:
    """The first module or weight with numbers that are not finite, by a second forward pass."""
    remedy = (
        f"likely the learning rate ({rate:.2g} here) is too high or its warm-up too short; "
        'precision = "fp32" shows whether rounding is to blame'
    )
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            return f"the weights {name} are not finite: {remedy}"
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    first = next((name for name, grad in gradients.items() if not grad.isfinite().all()), "")
    for batch in batches:
        layer, loss = _first_overflow(model, batch, forward)
        if not loss.total.isfinite():
            return (
                f"the loss is {float(loss.total)}, and {layer or 'no layer'} is the first whose "
                f"output is not finite (of the gradients, that of {first}): check these "
                f"examples for anything odd; else {remedy}"
            )
    return f"the loss is finite, but the gradient of {first} is not: {remedy}"


def _first_overflow(
    model: nn.Module, batch: B, forward: Callable[[B], Loss]
) -> tuple[str | None, Loss]:
    """The first module whose output holds NaN or +∞ (-∞ is what masks are made of)."""
    names: list[str] = []

    def hook(name: str, module: nn.Module, inputs: object, output: object) -> None:
        tensors = (t for t in tree_leaves(output) if isinstance(t, Tensor))
        floats = [t for t in tensors if t.is_floating_point()]
        if any(bool((t.isnan() | t.isposinf()).any()) for t in floats):
            names.append(name)

    with ExitStack() as stack, torch.no_grad():
        for name, module in model.named_modules():
            stack.enter_context(module.register_forward_hook(partial(hook, name or "the model")))
        loss = forward(batch)
    return (names[0] if names else None), loss


def peak_memory(device: torch.device | str = "cpu") -> float | None:
    """The peak MiB of the process so far (on a GPU, of its tensors); ``None`` where unknown."""
    if torch.device(device).type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 2**20, 1)
    if sys.platform == "win32":
        return None
    else:  # not after the branch: mypy leaves out what is in one
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20, 1)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that memory has run out, on a GPU, in PyTorch or in Python."""
    known = (MemoryError, torch.OutOfMemoryError)
    return isinstance(error, known) or "can't allocate memory" in str(error)
