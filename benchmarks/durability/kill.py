"""A run killed at random moments gives the weights of a run that was never stopped, byte for byte.

    python benchmarks/durability kill [CONFIG.toml] [a.b=c …] [--kills 20] [--seed 1]

Trains CONFIG twice with ``foveate train``: once to its end, and once with SIGKILL at random moments
(start-up, steps, validation, saving) until so many kills are done, then to its end. Compares
the tensors of the last checkpoint, ``best.json``, and the losses in the log. Without CONFIG it is
some hundred steps of Multi30k; ``FOVEATE_DATA`` names the folder of the data.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

import harness
from harness import logged, sha256

CONFIG = harness.ROOT / "configs" / "translation" / "multi30k-en-fr.toml"
SHORT = [
    "train.max_steps=240", "train.schedule.warmup_steps=50", "train.save.every=20",
    "train.validation.every=60",
    "train.save.best=loss", "train.average=3", "train.log_every=10",
]  # fmt: skip
Kills = list[dict[str, Any]]
TIMES = ("seconds", "tokens_per_second", "memory_mib")


def start(config: Path, overrides: list[str], run: Path) -> subprocess.Popen[bytes]:
    command = harness.foveate("train", config, *overrides, "--run", run)
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end; stop with what it said if it failed."""
    _, output = process.communicate()
    if process.returncode:
        sys.exit(f"training failed with {process.returncode}:\n{output.decode()[-2000:]}")


def result(run: Path) -> dict[str, Any]:
    """What has to be equal: tensors by sha256, the best checkpoint, the log without its times."""
    last = max((run / "checkpoints").glob("step-*"))
    averaged = run / "averaged" / "model.safetensors"
    figures = [
        {k: v for k, v in line.items() if k not in TIMES}
        for event in ("train", "valid", "average")
        for line in logged(run, event)
    ]
    return {
        "checkpoint": last.name,
        "model": sha256(last / "model.safetensors"),
        "optimizer": sha256(last / "optimizer.safetensors"),
        "averaged": sha256(averaged) if averaged.exists() else None,
        "best": sha256(run / "best.json"),
        "log": hashlib.sha256(json.dumps(figures, sort_keys=True).encode()).hexdigest(),
    }


def begin(config: Path, overrides: list[str], run: Path) -> subprocess.Popen[bytes]:
    """Start, and wait until training itself begins or the process has ended."""
    sessions = len(logged(run, "start"))
    process = start(config, overrides, run)
    while len(logged(run, "start")) == sessions and process.poll() is None:
        time.sleep(0.02)
    return process


def trained(config: Path, overrides: list[str], run: Path) -> tuple[float, float]:
    """Train without a stop; gives the seconds of starting up, and those after it."""
    begun = time.monotonic()
    process = begin(config, overrides, run)
    first = time.monotonic() - begun
    finish(process)
    return first, time.monotonic() - begun - first


def killed(config: Path, overrides: list[str], run: Path, waits: list[tuple[bool, float]]) -> Kills:
    """Kill after each wait, of the start or of training, then train to the end.

    A session that has ended by then is not killed, and does not count.
    """
    kills: Kills = []
    for early, wait in waits:
        process = (start if early else begin)(config, overrides, run)
        try:
            process.wait(timeout=wait)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills.append(
                {
                    "while": "starting" if early else "training",
                    "after_seconds": round(wait, 3),
                    "checkpoint": max(steps(run), default=None),
                    "logged": max((line["step"] for line in logged(run, "train")), default=None),
                    "half_written": bool(list(run.glob("**/.new-*"))),
                }
            )
            print(f"kill {len(kills)}: {kills[-1]}", file=sys.stderr)
        else:
            finish(process)
    finish(start(config, overrides, run))
    return kills


def steps(run: Path) -> list[int]:
    return [int(path.name.removeprefix("step-")) for path in run.glob("checkpoints/step-*")]


def main(
    config: Annotated[Path, Argument()] = CONFIG,
    changes: Annotated[list[str] | None, Argument(metavar="a.b=c…")] = None,
    number: Annotated[int, Option("--kills")] = 20,
    seed: int = 1,
    out: Path | None = None,
) -> None:
    from foveate.train.config import resolve

    short = SHORT if config == CONFIG else []
    # decided once: two runs that each measure the machine might decide differently
    overrides = [f'train.precision="{resolve("auto").name}"', *short, *(changes or [])]
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder, "whole")
        first, rest = trained(config, overrides, whole)
        kills: Kills = []
        runs: list[dict[str, Any]] = []
        while len(kills) < number:  # most often one run; another if it ended too early
            missing = number - len(kills)
            early = [chance.random() < 0.2 for _ in range(missing)]
            waits = [(e, chance.uniform(0, first if e else 2 * rest / missing)) for e in early]
            run = Path(folder, f"killed-{len(runs)}")
            kills += killed(config, overrides, run, waits)
            runs.append(result(run))
        expected = result(whole)
    report = {
        "config": os.path.relpath(config, harness.ROOT),
        "overrides": overrides,
        "seconds_of_start": round(first, 1),
        "seconds_after": round(rest, 1),
        "kills": kills,
        "uninterrupted": expected,
        "killed": runs,
        "equal": all(run == expected for run in runs),
    }
    path = harness.write("kill", report, out)
    verdict = "equal, byte for byte" if report["equal"] else "NOT EQUAL"
    print(f"{len(kills)} kills: {verdict} ({path})")
    sys.exit(not report["equal"])
