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

import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import httpx
from typer import Option

import harness
from durability.under_fire import served

CLIENTS = 64
MEASURES = ("train", "decode", "serve")
Rates = dict[str, float]  # what a measurement has found, by name, each a second


def main(
    run: Path,
    sentences: Path,
    before: Annotated[Path, Option(help="the other version's src")],
    after: Annotated[Path, Option(help="this version's src")],
    rounds: int = 9,
    seconds: Annotated[float, Option(help="of each measurement")] = 20,
    only: Annotated[list[str] | None, harness.among(MEASURES, "these alone")] = None,
    out: Path = harness.RESULTS / "speed.json",
) -> None:
    window = ("small", "--seconds", str(seconds))
    measures: dict[str, Callable[[Path], Rates]] = {
        "train": lambda source: bench(source, "train", *window, "--quick"),
        "decode": lambda source: bench(source, "decode", *window, "--precision", "int8"),
        "serve": lambda source: load(source, run, sentences, seconds),
    }
    versions = {"before": before.resolve(), "after": after.resolve()}
    harness.describe()  # before the load, which would disturb it
    rates: dict[str, dict[str, list[Rates]]] = {
        name: {version: [] for version in versions} for name in only or measures
    }
    for number in range(rounds):
        for name, by_version in rates.items():
            for version in sorted(versions, reverse=number % 2 == 0):
                by_version[version].append(measures[name](versions[version]))
            print(f"round {number + 1}, {name}:", by_version, file=sys.stderr, flush=True)
        result = {
            "seconds": seconds,
            "measurements": {
                f"{name}, {figure}" if figure else name: compared(
                    *([measured[figure] for measured in by_version[v]] for v in ("before", "after"))
                )
                for name, by_version in rates.items()
                for figure in by_version["before"][0]
            },
        }
        harness.write("speed", result, out)
    print(out.read_text(encoding="utf-8"))


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


def bench(source: Path, *arguments: str) -> Rates:
    """What ``foveate bench`` of a version measures: one rate, or one of each way of decoding."""
    command = harness.foveate("bench", *arguments, "--json")
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(source)}, stdout=subprocess.PIPE, check=True
    )
    report = json.loads(done.stdout)
    if "target_tokens_per_second" in report:
        return {"": float(report["target_tokens_per_second"])}
    return {name: float(rate) for name, rate in report["sentences_per_second"].items()}


def load(source: Path, run: Path, sentences: Path, seconds: float, clients: int = CLIENTS) -> Rates:
    """Requests a second that the server of a version answers; each client waits for its answer."""
    lines = sentences.read_text(encoding="utf-8").splitlines()
    with served(run, source=source) as server, ThreadPoolExecutor(clients) as threads:

        def client(number: int, until: float) -> int:
            answered = 0
            # no certificates, whose loading takes 64 clients more than a second
            with httpx.Client(base_url=server.url, timeout=60, verify=False) as connection:
                while time.monotonic() < until:
                    text = lines[(number + answered * clients) % len(lines)]
                    body = {"q": text, "source": "en", "target": "fr"}
                    connection.post("/translate", json=body).raise_for_status()
                    answered += 1
            return answered

        for duration in (min(3.0, seconds), seconds):  # the first is the warm-up
            started = time.monotonic()
            until = started + duration
            answered = sum(threads.map(client, range(clients), [until] * clients))
            rate = answered / (time.monotonic() - started)
    return {"": rate}


if __name__ == "__main__":
    harness.run(main)
