"""What all benchmarks share: options from a signature, the machine, where results are written."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import typer

from foveate.measure import machine

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
DATA = Path(os.environ.get("FOVEATE_DATA") or ROOT.parent / "shared" / "data")


def browser() -> str | None:
    """The path of a Chromium-like browser (tools/browser.py)."""
    sys.path.append(str(ROOT / "tools"))
    from browser import find_browser

    return find_browser()


def run(main: Callable[..., None], part: str | None = None) -> None:
    """Call ``main`` with the options of its signature; the help is the docstring of its module.

    A ``part`` of a program is the first word of its command line.
    """
    paragraphs = (sys.modules[main.__module__].__doc__ or "").split("\n\n")
    text = "\n\n".join(f"\b\n{paragraph}" for paragraph in paragraphs)  # \b: lines stay as they are
    program = typer.Typer(
        add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
    )
    program.command(help=text)(main)
    program(sys.argv[2:] if part else None, prog_name=part)


def among(names: Collection[str], text: str) -> Any:
    """An option that may be repeated, each value one of the names; ``text`` is its help."""

    def check(values: list[str] | None) -> list[str] | None:
        for value in values or []:
            if value not in names:
                raise typer.BadParameter(f"{value} is none of {', '.join(names)}")
        return values

    return typer.Option(callback=check, help=f"{text}: {', '.join(names)}")


@cache
def describe() -> dict[str, Any]:
    """Machine, versions, commit, and GFLOP/s of matrix products now."""
    ceilings = {f"{name}_gflops": rate for name, rate in machine.ceilings().items()}
    return machine.describe() | ceilings


def command() -> str:
    """The command line of this process, without folders of this machine."""
    words = [Path(word).name if os.path.isabs(word) else word for word in sys.argv[1:]]
    return " ".join([f"python benchmarks/{Path(sys.argv[0]).name}", *words])


def foveate(*arguments: object) -> list[str]:
    """The command line of ``foveate`` by this Python."""
    return [sys.executable, "-m", "foveate", *map(str, arguments)]


def trained(run: Path, config: Path, overrides: Sequence[str] = ()) -> Path:
    """The run of a config, trained by one thread where it is not there."""
    if not (run / "done").exists():
        command = foveate("train", config, "--run", run, *overrides)
        single_thread = os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, env=single_thread, stdout=sys.stderr)
        (run / "done").touch()
    return run


def evaluated(
    run: Path, *options: object, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What ``foveate evaluate --json`` says of a run."""
    command = foveate("evaluate", run, "--json", *options)
    done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE)
    return dict(json.loads(done.stdout))


def fill(page: Path, name: str, text: str) -> None:
    """Put a text between the marks ``name: begin`` and ``name: end`` of a page."""
    begin, end = (f"<!-- {name}: {mark} -->" for mark in ("begin", "end"))
    old = page.read_text("utf-8")
    before, after = old.split(begin)[0], old.split(end)[1]
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", "utf-8", newline="\n")


def write(name: str, result: dict[str, Any], out: Path | None = None) -> Path:
    """Write a result as JSON to ``docs/results/NAME.json`` or ``out``, with command and machine."""
    path = out or RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"command": command(), "machine": describe(), **result}
    path.write_text(
        json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n"
    )
    return path


def previous(name: str, out: Path | None = None) -> dict[str, Any]:
    """The result that was written before, or an empty one."""
    path = out or RESULTS / f"{name}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def logged(run_folder: Path, event: str) -> list[dict[str, Any]]:
    """The whole lines of a run's log that record an event; a line torn by a kill is left out."""
    path = run_folder / "log.jsonl"
    records = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    return [record for record in records if record.get("event") == event]


def tatoeba() -> Iterator[tuple[str, str]]:
    """The 165,130 pairs of Tatoeba's English and French."""
    with gzip.open(DATA / "tatoeba-en-fr" / "pairs.tsv.gz", "rt", encoding="utf-8") as file:
        for line in file:
            english, french, *_ = line.rstrip("\n").split("\t")
            yield english, french


def sha256(path: Path) -> str:
    """The digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
