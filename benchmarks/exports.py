"""A run in the programs that it is exported to: the same tokens, on the Multi30k test set.

    python benchmarks/exports.py RUN [--sentences 1000] [--argos PYTHON] [--only TARGET …]

Each export is made with these sentences as its sample, so that it answers them in its own program
before it is there. Argos brings much that nothing else here needs: ``--argos`` is the Python of an
environment with foveate and argostranslate; without it what Argos asks of its parts is asked
(`foveate.export.argos`). Writes docs/results/exports.json.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import foveate
from foveate.export.base import CheckSample, export
from machine import RESULTS, describe, write

EXPORTS = {  # name, target and weights
    "ctranslate2": ("ctranslate2", "float32"),
    "ctranslate2 int8": ("ctranslate2", "int8"),
    "onnx": ("onnx", "float32"),
    "huggingface": ("huggingface", "float32"),
    "argos": ("argos", "float32"),
    "safetensors": ("safetensors", "float32"),
}


def sample(count: int, task: Any) -> CheckSample:
    """The first sentences of the test set of 2016, with references."""
    folder = Path(os.environ["FOVEATE_DATA"])
    sides = []
    for name in (task.source, task.target):
        path = folder / (str(name).replace("{split}", "test_2016_flickr") + ".gz")
        with gzip.open(path, "rt", encoding="utf-8") as file:
            sides.append([line.rstrip("\n") for line in file][:count])
    return CheckSample(*sides)


def row(run: Any, name: str, tried: CheckSample) -> dict[str, Any]:
    to, quantization = EXPORTS[name]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / ("out.argosmodel" if to == "argos" else "out")
        began = time.perf_counter()
        checked = export(run, out, to, tried, quantization)[1]
        seconds = time.perf_counter() - began
        parts = [out] if out.is_file() else [p for p in out.rglob("*") if p.is_file()]
        size = sum(path.stat().st_size for path in parts)
    print(f"{name}: {checked}", file=sys.stderr)
    programs = ("ctranslate2", "onnxruntime", "transformers", "argostranslate", "sentencepiece")
    return {
        "sentences": checked.sentences,
        "searches": checked.searches,
        "tokens_the_same": checked.tokens if checked.chrf is None else None,
        "ties": checked.ties,
        "cut_otherwise": checked.cut_otherwise,
        "chrf_here_and_there": checked.chrf,
        "seconds": round(seconds, 1),
        "megabytes": round(size / 1e6, 2),
        "versions": {p: importlib.metadata.version(p) for p in programs if find_spec(p)},
    }


def elsewhere(python: str, arguments: list[str]) -> dict[str, Any]:
    """The row of Argos, measured by another Python."""
    with tempfile.TemporaryDirectory() as home:  # where Argos keeps what it installs
        command = [python, __file__, *arguments, "--only", "argos", "--print"]
        done = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, env=os.environ | {"HOME": home}
        )
    found: dict[str, Any] = json.loads(done.stdout)["argos"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--argos", metavar="PYTHON")
    parser.add_argument("--only", nargs="*", choices=EXPORTS, default=list(EXPORTS))
    parser.add_argument("--print", action="store_true")
    given = parser.parse_args()
    run = foveate.load(given.run)
    tried = sample(given.sentences, run.config.task)
    for name in given.only:
        if name == "argos" and given.argos:
            arguments = [str(given.run), "--sentences", str(given.sentences)]
            found = elsewhere(given.argos, arguments)
        else:
            found = row(run, name, tried)
        if given.print:
            print(json.dumps({name: found}))
        else:
            put(given.run.name, name, found)


def put(run: str, name: str, found: dict[str, Any]) -> None:
    """Put a row beside those that are there; each takes minutes."""
    path = RESULTS / "exports.json"
    there = json.loads(path.read_text("utf-8")) if path.exists() else {"exports": {}}
    rows = there["exports"] | {name: found | {"commit": describe()["commit"]}}
    result = {"run": run, "data": "multi30k test_2016_flickr", "exports": rows}
    write("exports", result | {"machine": describe()})


if __name__ == "__main__":
    main()
