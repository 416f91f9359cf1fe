"""Whether one version is as fast as another: training, decoding and serving in alternation.

    python benchmarks/speed.py RUN SENTENCES --before SRC --after SRC [--rounds 9] [--only train]

``SRC`` is the folder that holds ``foveate``. Each round measures every version once, in an order
that changes from round to round (A B, B A, …): ``bench train small``, ``bench decode small
--precision int8``, and 64 clients that send the lines of SENTENCES (English) to ``foveate serve
RUN``, one a request. A figure is the ratio after / before of each round; its median stands with an
interval of at least 95 % by order statistics, which assumes no distribution (six rounds or more).
Writes docs/results/speed.json, or ``--out``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx

from machine import RESULTS, describe

CLIENTS = 64
Rates = dict[str, float]  # what a measurement has found, by name, each a second


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("sentences", type=Path)
    parser.add_argument("--before", type=Path, required=True, help="the other version's src")
    parser.add_argument("--after", type=Path, required=True, help="this version's src")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement")
    parser.add_argument("--only", action="append", choices=("train", "decode", "serve"))
    parser.add_argument("--out", type=Path, default=RESULTS / "speed.json")
    options = parser.parse_args()
    seconds = str(options.seconds)
    measures: dict[str, Callable[[Path], Rates]] = {
        "train": lambda source: bench(source, "train", "small", "--seconds", seconds, "--quick"),
        "decode": lambda source: bench(
            source, "decode", "small", "--seconds", seconds, "--precision", "int8"
        ),
        "serve": lambda source: load(source, options.run, options.sentences, options.seconds),
    }
    versions = {"before": options.before.resolve(), "after": options.after.resolve()}
    machine = describe()
    rounds: dict[str, dict[str, list[Rates]]] = {
        name: {version: [] for version in versions} for name in options.only or measures
    }
    for number in range(options.rounds):
        for name, by_version in rounds.items():
            for version in sorted(versions, reverse=number % 2 == 0):
                by_version[version].append(measures[name](versions[version]))
            print(f"round {number + 1}, {name}:", by_version, file=sys.stderr, flush=True)
        result = {
            "machine": machine,
            "seconds": options.seconds,
            "measurements": {
                f"{name}, {figure}" if figure else name: compared(
                    *([rates[figure] for rates in by_version[v]] for v in ("before", "after"))
                )
                for name, by_version in rounds.items()
                for figure in by_version["before"][0]
            },
        }
        options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(options.out.read_text(encoding="utf-8"))


def compared(before: list[float], after: list[float]) -> dict[str, object]:
    """The median of the ratios of each round, and an interval that holds the true median.

    Between the k-th smallest and the k-th largest of n ratios the true median lies with
    probability 1 − 2 Σ_{i<k} C(n, i) / 2ⁿ; k is the largest for which this is at least 95 %.
    With fewer than six rounds no k is, and the interval is the smallest and the largest ratio.
    """
    ratios = sorted(b / a for a, b in zip(before, after, strict=True))
    count, k, outside = len(ratios), 1, 2 / 2 ** len(ratios)
    while (more := outside + 2 * math.comb(count, k) / 2**count) <= 0.05:
        k, outside = k + 1, more
    return {
        "median_ratio": round(statistics.median(ratios), 4),
        "interval": [round(ratios[k - 1], 4), round(ratios[-k], 4)],
        "confidence": round(1 - outside, 4),
        "before": before,
        "after": after,
    }


def environment(source: Path) -> dict[str, str]:
    """The environment in which Python imports the version of a folder."""
    return os.environ | {"PYTHONPATH": str(source)}


def bench(source: Path, *arguments: str) -> Rates:
    """What ``foveate bench`` of a version measures: one rate, or one of each way of decoding."""
    command = [sys.executable, "-m", "foveate", "bench", *arguments, "--json"]
    done = subprocess.run(command, env=environment(source), stdout=subprocess.PIPE, check=True)
    report = json.loads(done.stdout)
    if "target_tokens_per_second" in report:
        return {"": float(report["target_tokens_per_second"])}
    return {name: float(rate) for name, rate in report["sentences_per_second"].items()}


@contextmanager
def served(source: Path, run: Path) -> Iterator[str]:
    """``foveate serve`` of a version, while it runs: its address."""
    command = [sys.executable, "-m", "foveate", "serve", str(run), "--port", "0", "--as", "en:fr"]
    command += ["--no-studio", "--preload", "--log-level", "error"]
    with subprocess.Popen(
        command, env=environment(source), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[1].rstrip("/")
        finally:
            process.terminate()
            process.wait(60)


def load(source: Path, run: Path, sentences: Path, seconds: float) -> Rates:
    """Requests a second that the server of a version answers; each client waits for its answer."""
    lines = sentences.read_text(encoding="utf-8").splitlines()
    with served(source, run) as address, ThreadPoolExecutor(CLIENTS) as threads:

        def client(number: int, until: float) -> int:
            answered = 0
            with httpx.Client(base_url=address, timeout=60) as connection:
                while time.monotonic() < until:
                    text = lines[(number + answered * CLIENTS) % len(lines)]
                    body = {"q": text, "source": "en", "target": "fr"}
                    connection.post("/translate", json=body).raise_for_status()
                    answered += 1
            return answered

        for duration in (min(3.0, seconds), seconds):  # the first is the warm-up
            started = time.monotonic()
            until = started + duration
            answered = sum(threads.map(client, range(CLIENTS), [until] * CLIENTS))
            rate = answered / (time.monotonic() - started)
    return {"": rate}


if __name__ == "__main__":
    main()
