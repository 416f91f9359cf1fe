"""Do the tests notice mistakes? Makes 40 of them, one at a time, in a copy of the package.

    python benchmarks/mutants.py [--only nn --only decode] [--jobs 2] [--json OUT.json]

`mutants.toml` lists them: a line of the package, what takes its place, and the tests that should
fail. Those tests must pass without the mistake first. A mistake that no test notices *survives*;
then the program ends with 1. An ``old`` line that does not stand exactly once is an error, so that
the list keeps up with the package.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Annotated

from typer import Option

import harness
from harness import ROOT

COPIED = ("src", "tests", "tools", "benchmarks", "configs", "docs")
FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile")


@dataclass(frozen=True)
class Mutant:
    """One mistake: ``new`` in place of ``old``; ``only`` chooses among the tests, as pytest -k."""

    what: str
    folder: str
    old: str
    new: str
    tests: tuple[str, ...]
    only: str = ""

    @property
    def selection(self) -> tuple[str, ...]:
        """The arguments of pytest that choose the tests."""
        return (*self.tests, *(("-k", self.only) if self.only else ()))

    def file(self, root: Path) -> Path:
        """The file that holds ``old``. Raises ``ValueError`` unless it stands exactly once."""
        files = sorted((root / "src" / "foveate" / self.folder).rglob("*.py"))
        places = [path for path in files for _ in range(path.read_text("utf-8").count(self.old))]
        if len(places) != 1:
            raise ValueError(f"{self.what}: {self.old!r} stands {len(places)} times, not once")
        return places[0]


def read(only: Sequence[str]) -> list[Mutant]:
    """The mutants of some folders, or all; each of them has its place."""
    entries = tomllib.loads((ROOT / "benchmarks" / "mutants.toml").read_text("utf-8"))["mutant"]
    mutants = [Mutant(**entry | {"tests": tuple(entry["tests"])}) for entry in entries]
    for mutant in mutants:
        mutant.file(ROOT)
    return [mutant for mutant in mutants if not only or mutant.folder in only]


def copy(folder: Path) -> Path:
    """The files of the repository that tests read, in a folder of their own."""
    ignored = shutil.ignore_patterns("__pycache__", "node_modules")
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)
    return folder


def passes(root: Path, selection: Sequence[str]) -> bool:
    """Whether the tests pass in a copy; what is neither pass nor failure is an error."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *selection]
    data = os.environ.get("FOVEATE_DATA") or str(ROOT.parent / "shared" / "data")
    paths = {"PYTHONPATH": str(root / "src"), "PYTHONDONTWRITEBYTECODE": "1", "FOVEATE_DATA": data}
    done = subprocess.run(
        command, cwd=root, env=os.environ | paths, capture_output=True, text=True, check=False
    )
    if done.returncode > 1 and "error" not in done.stdout.lower():
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
    return done.returncode == 0


@contextmanager
def made(mutant: Mutant, root: Path) -> Iterator[None]:
    """The copy with the mistake, afterwards without it."""
    path = mutant.file(root)
    text = path.read_text("utf-8")
    path.write_text(text.replace(mutant.old, mutant.new), "utf-8")
    try:
        yield
    finally:
        path.write_text(text, "utf-8")


def main(
    only: Annotated[list[str] | None, Option(help="folders of src/foveate; repeated")] = None,
    jobs: Annotated[int, Option(help="copies that are tested side by side")] = 1,
    out: Annotated[Path | None, Option("--json", help="where the results are written")] = None,
) -> None:
    """Print a line for each mutant, write the JSON; exit code 1 where one survives."""
    mutants = read(only or [])
    with tempfile.TemporaryDirectory() as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(jobs):
            copies.put(copy(Path(folder) / str(number)))

        def unchanged(selection: tuple[str, ...]) -> bool:
            root = copies.get()
            try:
                return passes(root, selection)
            finally:
                copies.put(root)

        def killed(mutant: Mutant) -> tuple[bool, float]:
            root, start = copies.get(), time.monotonic()
            try:
                with made(mutant, root):
                    return not passes(root, mutant.selection), time.monotonic() - start
            finally:
                copies.put(root)

        rows = []
        with ThreadPoolExecutor(jobs) as pool:
            selections = sorted({mutant.selection for mutant in mutants})
            for selection, good in zip(selections, pool.map(unchanged, selections), strict=True):
                if not good:
                    sys.exit(f"these tests fail without a mistake: {' '.join(selection)}")
            for mutant, (dead, seconds) in zip(mutants, pool.map(killed, mutants), strict=True):
                print(f"{'killed' if dead else 'SURVIVES':9}{seconds:6.1f} s  {mutant.what}")
                rows.append({"what": mutant.what, "tests": mutant.selection, "killed": dead})
    count = sum(bool(row["killed"]) for row in rows)
    print(f"{count} of {len(rows)} killed")
    if out:
        record = {"python": platform.python_version(), "killed": count, "mutants": rows}
        out.write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    sys.exit(count < len(rows))


if __name__ == "__main__":
    harness.run(main)
