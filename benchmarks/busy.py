"""What a busy machine leaves: training, decoding and serving beside other programs.

    python benchmarks/busy.py RUN SENTENCES --source SRC --name after [--only train] [--beside 1]

Beside nothing, one and two busy loops, and a second training of the same version: steps a second of
the first 60 on the embedded grammar, or of those in 24 seconds (without the first five, in which
kernels are chosen), ``bench decode small`` in int8, one request at a time to ``foveate serve RUN``.
``SRC`` is the folder that holds ``foveate``, ``--name`` that version's name in the result. Each
neighbour runs in a session of its own, which Linux with ``sched_autogroup_enabled`` gives one share
of the processor; so ``nice`` between these programs would change nothing. What programs that are
not of the benchmark took meanwhile, in cores, stands in the result as ``foreign``.

The fair share of n cores beside k busy programs is the larger of 1/(k + 1) and (n − k)/n of the
rate alone, the rate of "before" where it has been measured. Figures are added to
docs/results/busy.json, or ``--out``.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from typer import Option

import harness
import speed
from foveate.data import synthetic

BUSY = [sys.executable, "-c", "while True: pass"]
NEIGHBOURS = {"0": 0, "1": 1, "2": 2, "training": 1}  # and how many programs these are
SHORT = ("train.max_minutes=0.4", "train.schedule.warmup_steps=20", "train.precision=bf16",
         "train.log_every=5", "train.validation.every=1000", "train.save.every=1000")  # fmt: skip
SELF, CHILDREN = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
MEASURES = ("train", "decode", "serve")


def main(
    run: Path,
    sentences: Path,
    source: Annotated[Path, Option(help="the version's src")],
    name: Annotated[str, Option(help="of the version: before, after")],
    seconds: Annotated[float, Option(help="of decoding and serving")] = 8,
    only: Annotated[list[str] | None, harness.among(MEASURES, "these alone")] = None,
    beside: Annotated[list[str] | None, harness.among(NEIGHBOURS, "these alone")] = None,
    out: Path = harness.RESULTS / "busy.json",
) -> None:
    window = ("small", "--seconds", str(seconds), "--precision", "int8")
    result = harness.previous("busy", out)
    rates = result.get("rates", {})
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        measures: dict[str, Callable[[], float]] = {
            "train": lambda: train(source, folder, "measured", 60),
            "decode": lambda: max(speed.bench(source, "decode", *window).values()),
            "serve": lambda: speed.load(source, run, sentences, seconds, clients=1)[""],
        }
        prepare(folder)
        for measure in only or MEASURES:
            for neighbours in beside or NEIGHBOURS:
                with foreign() as taken, busy(neighbours, source, folder):
                    rate = round(measures[measure](), 3)
                cell = {"rate": rate, "foreign": taken[0]}
                print(name, measure, "beside", neighbours, cell, file=sys.stderr, flush=True)
                rates.setdefault(measure, {}).setdefault(name, {})[neighbours] = cell
                out.write_text(json.dumps({"rates": rates}), encoding="utf-8", newline="\n")
    autogroup = Path("/proc/sys/kernel/sched_autogroup_enabled")
    facts = {
        "autogroup": autogroup.exists() and autogroup.read_text(encoding="utf-8").strip() == "1",
        "neighbours": "each in a session of its own",
    }
    harness.write("busy", {**facts, "rates": rates, "shares": shares(rates)}, out)


@contextlib.contextmanager
def foreign() -> Iterator[list[float]]:
    """Cores that programs which this one did not start have taken meanwhile."""

    def taken() -> float:
        text = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
        user, nice, system, _, _, *interrupts = map(int, text.split()[1:9])
        own = sum(sum(resource.getrusage(who)[:2]) for who in (SELF, CHILDREN))
        return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK") - own

    before, started, result = taken(), time.monotonic(), [0.0]
    yield result
    result[0] = round((taken() - before) / (time.monotonic() - started), 3)


Rates = dict[str, dict[str, dict[str, dict[str, float]]]]  # by measure, version and neighbours


def shares(rates: Rates) -> dict[str, dict[str, dict[str, float]]]:
    """The rate of each cell over the fair share of the rate alone, by measure and version."""
    cores, result = len(os.sched_getaffinity(0)), {}
    for measure, versions in rates.items():
        before = versions.get("before", next(iter(versions.values())))
        if "0" in before:
            alone = before["0"]["rate"]
            result[measure] = {
                version: {
                    n: round(cell["rate"] / (alone * fair(NEIGHBOURS[n], cores)), 3)
                    for n, cell in cells.items()
                }
                for version, cells in versions.items()
            }
    return result


def fair(others: int, cores: int) -> float:
    """The fair share of the machine beside other programs of one thread, or of as many as cores."""
    return max(1 / (others + 1), (cores - others) / cores)


def prepare(folder: Path) -> None:
    """The embedded grammar and its config."""
    synthetic.write(folder / "data", {"train": 20_000, "valid": 50, "test": 50})
    template = files("foveate").joinpath("grammar.toml").read_text(encoding="utf-8")
    config = template.replace("{folder}", folder.as_posix())
    (folder / "grammar.toml").write_text(config, encoding="utf-8", newline="\n")


def training(
    source: Path, folder: Path, name: str, steps: int, *more: str
) -> subprocess.Popen[bytes]:
    """A training of the grammar by a version, in a session of its own."""
    command = harness.foveate("train", folder / "grammar.toml", "--run", folder / name)
    return subprocess.Popen(
        [*command, *SHORT, f"train.max_steps={steps}", *more], stdout=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(source)}, start_new_session=True,
    )  # fmt: skip


def train(source: Path, folder: Path, name: str, steps: int) -> float:
    """Steps a second of a training, after its first five; of all where it made no more."""
    path = folder / f"{name}-{time.monotonic_ns()}"
    if training(source, folder, path.name, steps).wait():
        raise RuntimeError("a training failed")
    lines = harness.logged(path, "train")
    first, last = lines[0] if lines[1:] else {"step": 0, "seconds": 0.0}, lines[-1]
    return float((last["step"] - first["step"]) / (last["seconds"] - first["seconds"]))


@contextlib.contextmanager
def busy(neighbours: str, source: Path, folder: Path) -> Iterator[None]:
    """These programs run meanwhile; a second training has made its first five steps."""
    programs: Sequence[subprocess.Popen[bytes]]
    if neighbours == "training":
        path = folder / f"second-{time.monotonic_ns()}"
        programs = [training(source, folder, path.name, 100_000, "train.max_minutes=60")]
        while not harness.logged(path, "train"):
            time.sleep(0.2)
    else:
        loops = range(NEIGHBOURS[neighbours])
        programs = [subprocess.Popen(BUSY, start_new_session=True) for _ in loops]
    try:
        yield
    finally:
        for program in programs:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()


if __name__ == "__main__":
    harness.run(main)
