"""A run in the programs that it is exported to: the same tokens, on the Multi30k test set.

    python benchmarks/exports.py RUN [--sentences 1000] [--argos PYTHON] [--only TARGET --only …]

Each export is made with these sentences as its sample, so that it answers them in its own program
before it is there. Argos brings much that nothing else here needs: ``--argos`` is the Python of an
environment with foveate and argostranslate; without it what Argos asks of its parts is asked
(`foveate.export.argos`). Writes docs/results/exports.json.
"""

from __future__ import annotations

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
from typing import Annotated, Any

from typer import Argument, Option

import foveate
import harness
from foveate.export.base import CheckSample, export

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
    sides = []
    for name in (task.source, task.target):
        path = harness.DATA / (str(name).replace("{split}", "test_2016_flickr") + ".gz")
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
    return dict(json.loads(done.stdout)["argos"])


def main(
    run_folder: Annotated[Path, Argument(metavar="RUN")],
    sentences: int = 1000,
    argos: Annotated[str | None, Option(metavar="PYTHON")] = None,
    only: Annotated[list[str] | None, harness.among(EXPORTS, "of the targets")] = None,
    as_json: Annotated[bool, Option("--print", help="print the row, write nothing")] = False,
) -> None:
    run = foveate.load(run_folder)
    tried = sample(sentences, run.config.task)
    for name in only or EXPORTS:
        if name == "argos" and argos:
            result = elsewhere(argos, [str(run_folder), "--sentences", str(sentences)])
        else:
            result = row(run, name, tried)
        if as_json:
            print(json.dumps({name: result}))
        else:
            put(run_folder.name, name, result)


def put(run: str, name: str, result: dict[str, Any]) -> None:
    """Add a row to those that were written before; each takes minutes."""
    row = {name: result | {"commit": harness.describe()["commit"]}}
    rows = harness.previous("exports").get("exports", {}) | row
    harness.write("exports", {"run": run, "data": "multi30k test_2016_flickr", "exports": rows})


if __name__ == "__main__":
    harness.run(main)
