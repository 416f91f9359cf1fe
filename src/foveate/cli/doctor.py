"""The verbs that describe: doctor (this machine), show (a run), kinds and models (installed)."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foveate import __version__
from foveate.cli.options import Json, RunPath, installed, load, remedy, say, to_json
from foveate.errors import ConfigError, install
from foveate.system import free_memory, processor_name, processors, system_text

if TYPE_CHECKING:
    from foveate.config import Tree
    from foveate.run import Run
    from foveate.train.journal import Line

GIB = 2**30


def show(run: RunPath) -> None:
    """Show a run: its settings, data, scores and steps."""
    typer.echo(description(load(run)))


def description(run: Run) -> str:
    """Describe a run: values that differ from the defaults, its sessions, and figures."""
    from foveate.train.journal import read

    lines = [str(run.path), "", "settings that differ from the defaults"]
    differences = run.config.differences()
    width = max(map(len, differences), default=0)
    lines += [f"  {key:<{width}}  {to_json(value, None)}" for key, value in differences.items()]
    log = read(run.path)
    changed = [line for line in log if line["event"] == "config"]
    lines += ["", "changed on resuming"] if changed else []
    for line in changed:
        lines += [
            f"  step {line['step']:,}: {key} {values['old']} → {values['new']}"
            for key, values in line["changes"].items()
        ]
    starts, valid = ([x for x in log if x["event"] == name] for name in ("start", "valid"))
    best = [line for line in valid if line.get("best")]
    for title, logged in (
        ("at the start", starts[:1]),
        ("at the best validation", [] if best[-1:] == valid[-1:] else best[-1:]),
        ("at the last validation", valid[-1:]),
    ):
        lines += ["", title] if logged else []
        for key, value in (logged[0] if logged else {}).items():
            if isinstance(value, int | float | str) and key != "event":
                lines.append(f"  {key:<14} {value:,}" if key == "step" else f"  {key:<14} {value}")
    return "\n".join([*lines, *(["", "sessions", *sessions(log)] if starts else [])])


def sessions(log: Sequence[Line]) -> list[str]:
    """Return a line for each session of training: steps, time, end, the last validation."""
    from foveate.train.journal import clock

    lines, before = [], 0.0
    starts = [n for n, line in enumerate(log) if line["event"] == "start"]
    for place, after in pairwise([*starts, len(log)]):
        session = {line["event"]: line for line in log[place:after]}  # the last of each
        step = log[after if after < len(log) else -1]["step"]
        timed = (session.get(event, {}).get("seconds") for event in ("train", "valid", "end"))
        seconds = max([before, *filter(None, timed)])
        end = session.get("end", {}).get("reason", "killed, or still running")
        parts = [f"  step {session['start']['step']:,} to {step:,}", clock(seconds - before), end]
        figures = (f"{k} {v:.4g}" for k, v in session.get("valid", {}).items() if type(v) is float)
        parts += (figure for figure in figures if not figure.startswith("seconds "))
        lines.append(" · ".join(parts))
        before = seconds
    return lines


def kinds(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="score, train, train.save, max_minutes, metrics, …"),
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="a JSON Schema of configs, for editors and checks")
    ] = False,
) -> None:
    """List what a config may contain: tables, kinds, fields."""
    from foveate.kinds import config_schema, described, kinds_table
    from foveate.run import RunConfig

    if sys.stderr.isatty():
        say(["reading every kind and its fields"])
    if schema:
        if name is not None:
            raise ConfigError(f"--schema describes whole configs: leave out {name}")
        typer.echo(to_json(config_schema(RunConfig)))
        return
    typer.echo(kinds_table(described(name, RunConfig)))


def models(as_json: Json = False) -> None:
    """List the installed models: languages, size, scores, data."""
    tree = {name: installed_tree(file) for name, file in installed().items()}
    if as_json:
        typer.echo(to_json(tree))
        return
    for name, model in tree.items():
        scores = ", ".join(
            f"{data} BLEU {each['bleu']:.1f} chrF {each['chrf']:.1f}"
            for data, each in model["scores"].items()
        )
        size, languages = model["bytes"] / 1e6, " → ".join(model["languages"])
        typer.echo(f"{name:<10} {languages}, {size:.1f} MB: {model['file']}")
        typer.echo(f"{'':<10} {scores or 'no scores'}")
        typer.echo(f"{'':<10} trained on {model['data'] or 'unnamed data'}")
    if not tree:
        typer.echo(f"no models are installed; {remedy()}")
    else:
        typer.echo(f'to use one: echo "…" | foveate translate {next(iter(tree))}')


def installed_tree(file: Path) -> Tree:
    """Describe a packed file. Raises `foveate.engine.packed.PackedError`."""
    from foveate.documents.languages import directions
    from foveate.engine.packed import header_of

    header = header_of(file)
    direction = directions(header.corpora, file)[0]
    return {
        "languages": [direction.source, direction.target],
        "file": str(file),
        "bytes": file.stat().st_size,
        "scores": header.scores.get("tests", {}),
        "data": header.licence,
        "made_of": header.made_of,
    }


def doctor(as_json: Json = False) -> None:
    """Report what is slow on this machine, and why."""
    report = examine()
    typer.echo(to_json(asdict(report)) if as_json else report.text())


@dataclass
class MachineReport:
    """Facts by group and name, measured figures, and advice in sentences."""

    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    gflops: dict[str, float] = field(default_factory=dict)
    advice: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return the report as text."""
        lines = []
        for group, facts in self.facts.items():
            lines += [group, *(f"  {name:<22} {value}" for name, value in facts.items()), ""]
        lines.append("slow here, or noteworthy" if self.advice else "nothing here looks slow")
        return "\n".join([*lines, *(f"  - {sentence}" for sentence in self.advice)])


def examine(folder: Path = Path(), seconds: float = 0.3) -> MachineReport:
    """Examine this machine; each of the two matrix products is measured for ``seconds``.

    Where PyTorch is not installed, only the engine of packed files is examined.
    """
    report = MachineReport()
    report.facts["software"] = {
        "foveate": __version__,
        "Python": f"{platform.python_version()} ({sys.executable})",
        "torch": f"absent (training and most views use it; {install('train')})",
        "system": platform.platform(),
    }
    usable, load = usable_cores(), os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    _processor(report, usable)
    _memory(report, folder)
    if importlib.util.find_spec("torch") is not None:
        _products(report, seconds, usable, load)
        _devices(report)
    return report


def _processor(report: MachineReport, usable: float) -> None:
    from foveate.engine.compiled import LibraryError, loaded

    report.facts["processor"] = facts = {
        "model": processor_name(),
        "usable cores": f"{usable:g} of {os.cpu_count()}",
    }
    try:
        engine = loaded()
        facts["engine"] = f"{engine.instruction_set}: {engine.why}"
    except LibraryError as error:
        facts["engine"] = "none"
        report.advice.append(f"The engine in C does not run: {error}.")


def _products(report: MachineReport, seconds: float, usable: float, load: float) -> None:
    import torch

    from foveate.measure.machine import DTYPES, product_rate
    from foveate.nn.native.kernels import busy_now, library
    from foveate.train.config import single_thread

    threads = torch.get_num_threads()
    wide = torch.backends.cpu.get_cpu_capability()
    with single_thread() as clock:
        report.gflops = {
            name: product_rate(dtype, seconds, 512, clock=clock) for name, dtype in DTYPES.items()
        }
    matrix = torch.ones(512, 512)
    busy = busy_now(lambda: matrix @ matrix, seconds)
    report.facts["software"]["torch"] = torch.__version__
    report.facts["processor"] |= {
        "threads of torch": str(threads),
        "vectors": wide,
        **{f"{k} product, 1 thread": f"{v:.0f} GFLOP/s" for k, v in report.gflops.items()},
    }
    report.advice += _processor_advice(report.gflops, threads, usable, busy or load > usable + 0.5)
    if library() is None:
        report.advice.append("Training lacks its C kernels, and is slower: install gcc or clang.")
    if platform.machine().lower() in ("x86_64", "amd64") and "512" not in wide:
        report.advice.append(
            f"The processor offers {wide}, not AVX-512: matrix products run at half the width. "
            "Use a smaller model, or another machine."
        )


def _processor_advice(
    gflops: dict[str, float], threads: int, usable: float, busy: bool
) -> list[str]:
    advice = []
    if gflops["bf16"] < 1.2 * gflops["fp32"]:
        advice.append(
            f"bf16 is not faster than fp32 here ({gflops['bf16']:.0f} against "
            f'{gflops["fp32"]:.0f} GFLOP/s): train with train.precision = "fp32".'
        )
    if not int(usable) <= threads <= max(1, usable):
        best = max(1, int(usable))
        counts = f"threads of torch: {threads}, usable cores: {usable:g}"
        advice.append(f"{counts}; set OMP_NUM_THREADS={best}.")
    if busy:
        advice.append(
            f"Other programs are using the {usable:g} cores: training gets a share of them, and "
            "measured times are too long."
        )
    return advice


def usable_cores() -> float:
    """Return the cores that this process may use, by affinity and the quota of its group."""
    cores, quota = float(processors()), system_text("/sys/fs/cgroup/cpu.max").split()
    limited = len(quota) == 2 and quota[0].isdigit()
    return min(cores, int(quota[0]) / int(quota[1])) if limited else cores


def _memory(report: MachineReport, folder: Path) -> None:
    memory, disk = free_memory(), shutil.disk_usage(folder.resolve()).free
    report.facts["memory"] = {
        "memory free": "unknown" if memory is None else f"{memory / GIB:.1f} GiB",
        "disk free": f"{disk / GIB:.1f} GiB at {folder.resolve()}",
    }
    if memory is not None and memory < 3 * GIB:
        report.advice.append(
            f"Only {memory / GIB:.1f} GiB of memory are free, and a small Transformer needs about "
            "2 GiB: close other programs, or lower train.batch_tokens."
        )
    if disk < 2 * GIB:
        report.advice.append(
            f"Only {disk / GIB:.1f} GiB of disk are free at {folder.resolve()}: free some space, "
            "or choose another folder with --run."
        )


def _devices(report: MachineReport) -> None:
    import torch

    devices = {}
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        devices[f"cuda:{index}"] = f"{facts.name}, {facts.total_memory / GIB:.0f} GiB"
    if torch.backends.mps.is_available():
        devices["mps"] = "Apple"
    report.facts["devices"] = devices or {"GPU": "none; everything runs on the processor"}
    if not devices and shutil.which("nvidia-smi"):
        report.advice.append(
            f"An NVIDIA driver is installed, but torch {torch.__version__} finds no GPU: install "
            "a CUDA build of torch."
        )
