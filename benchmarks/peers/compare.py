"""foveate and its peers side by side on this machine, A B A B, into docs/results/peers-*.json.

    make bench-peers                                  everything, with medians of three rounds
    python benchmarks/peers/compare.py --list         what there is, and how long it takes
    python benchmarks/peers/compare.py --only torch --seconds 5 --rounds 1      a quick look

Each measurement is a process of its own in the peer's environment, between two checks of how fast
this machine multiplies matrices; where a check falls below what the machine has shown, something
else was running, and the measurement is done again. Every measurement is noted at once in
build/peers/, so a comparison that was stopped goes on with the same command. A peer that cannot be
installed or run leaves its reason in the results. With ``--only`` nothing below docs/ is written.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import data
import torch
from environments import BUILD, ROOT, NotThere, python_of
from rows import GROUPS, Group, Row
from starting import command, environment

from foveate.measure.machine import ceilings, describe, product_rate

RESULTS = ROOT / "docs" / "results"
QUIET = 0.85  # of the best product check: below it the machine was not quiet
PAUSE = 20.0  # seconds of waiting for a quieter moment
PATIENCE = 1800.0  # seconds after which a process is given up
FIGURES = {"train": "target_tokens_per_second", "decode": "sentences_per_second"}
FIGURES |= {"batches": "sentences_per_second", "cells": "milliseconds"}
Record = dict[str, Any]


@dataclass
class Comparison:
    """What is asked for, what was measured before, and how quick the machine has been."""

    seconds: float
    rounds: int
    threads: int
    retries: int
    only: list[str]
    groups: list[Group]
    best: float = 0.0

    @property
    def notes(self) -> Path:
        """Where measurements are noted: a file for each commit and length of the window.

        The results that it writes into docs/ make the tree dirty, and no other code.
        """
        commit = str(describe()["commit"]).removesuffix("-dirty").replace("/", "-")
        return BUILD / f"measured-{commit}-{self.seconds:g}s-{self.threads}t.jsonl"

    def rows(self, group: Group) -> list[Row]:
        """The rows of a group that are asked for."""
        names = {row: f"{row.peer} {row.mode}" for row in group.rows}
        return [r for r in group.rows if not self.only or any(o in names[r] for o in self.only)]

    def known(self) -> dict[tuple[str, ...], Record]:
        """What was measured before, by group, peer, mode and round."""
        if not self.notes.is_file():
            return {}
        lines = self.notes.read_text(encoding="utf-8").splitlines()
        return {tuple(record["key"]): record for record in map(json.loads, lines)}

    def due(self) -> Iterator[tuple[Group, Row, int]]:
        """A B A B: every row of a group, then every row again."""
        for group in self.groups:
            for number in range(self.rounds):
                for row in self.rows(group):
                    yield group, row, number


def key(group: Group, row: Row, number: int) -> tuple[str, ...]:
    return group.name, row.said, str(number)


def main() -> None:
    inputs = arguments()
    chosen = [g for g in GROUPS if not inputs.group or g.name in inputs.group]
    work = Comparison(
        inputs.seconds, inputs.rounds, inputs.threads, inputs.retries, inputs.only or [], chosen
    )
    torch.set_num_threads(work.threads)
    if inputs.fresh:
        work.notes.unlink(missing_ok=True)
    left = announce(work)
    if inputs.list:
        return
    BUILD.mkdir(parents=True, exist_ok=True)
    about = data.write(BUILD / "data")
    known = work.known()
    for group, row, number in work.due():
        place = key(group, row, number)
        if place in known:
            continue
        record = {"key": list(place), **measured(work, group, row)}
        known[place] = record
        with work.notes.open("a", encoding="utf-8", newline="\n") as notes:
            notes.write(json.dumps(record, ensure_ascii=False) + "\n")
        left -= 1
        shown = record.get("error") or record["figure"]
        print(f"{' · '.join(place)}: {shown} ({left} left)", file=sys.stderr, flush=True)
        save(work, group, known, about)
    for group in work.groups:
        save(work, group, known, about)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30, help="of each window")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", nargs="+", help="peers, or parts of 'peer mode'")
    parser.add_argument("--group", nargs="+", choices=[g.name for g in GROUPS])
    parser.add_argument("--retries", type=int, default=2, help="where the machine was busy")
    parser.add_argument("--fresh", action="store_true", help="forget what was measured before")
    parser.add_argument("--list", action="store_true", help="say what would be done, and end")
    return parser.parse_args()


def announce(work: Comparison) -> int:
    """Say what will be done and for how long; the number of measurements."""
    known, left, spent = work.known(), 0, 0.0
    for group in work.groups:
        rows = work.rows(group)
        missing = sum(key(group, row, n) not in known for row in rows for n in range(work.rounds))
        share = group.seconds(work.seconds) / len(group.rows) * missing
        left, spent = left + missing, spent + share
        print(f"{group.name}: {len(rows)} rows, {missing} to measure, about {share / 60:.0f} min")
    print(f"{left} measurements, about {spent / 60:.0f} minutes, noted in {work.notes.name}")
    return left


# ------------------------------------------------------------------------------ one measurement


def measured(work: Comparison, group: Group, row: Row) -> Record:
    """What a row's process reported, with the product checks; or ``error``."""
    try:
        python = python_of(row.peer)
    except NotThere as reason:
        return {"error": str(reason)}
    for attempt in range(work.retries + 1):
        before = check(work)
        report = run(work, group, row, python)
        after = check(work)
        report["products_gflops"] = [before, after]
        report["disturbed"] = min(before, after) < QUIET * work.best
        if not report["disturbed"] or "error" in report or attempt == work.retries:
            break
        print(f"{row.said}: the machine was busy; again", file=sys.stderr, flush=True)
        time.sleep(PAUSE)
    return report


def check(work: Comparison) -> float:
    """GFLOP/s of a product in fp32 now; remembers the best."""
    rate = round(product_rate(torch.float32, 0.4), 1)
    work.best = max(work.best, rate)
    return rate


def run(work: Comparison, group: Group, row: Row, python: Path) -> Record:
    """The report of a peer's adapter."""
    line = command(
        row.peer, python, group.what,
        shape=group.shape, mode=row.mode, seconds=work.seconds,
        threads=row.threads or work.threads,
    )  # fmt: skip
    try:
        done = subprocess.run(
            line, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=BUILD,
            env=environment(row.peer, row.threads or work.threads),
            encoding="utf-8",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": f"gave no answer in {PATIENCE / 60:.0f} minutes"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        output = (done.stderr.strip() or "no output").splitlines()
        return {"error": output[-1][:400]}
    report: Record = json.loads(lines[-1])
    report["figure"] = report[FIGURES[group.what]]
    return report


# ------------------------------------------------------------------------------ results


def save(work: Comparison, group: Group, known: dict[tuple[str, ...], Record], about: Any) -> None:
    """Write the group's results as they stand: medians over the rounds."""
    rows = []
    for row in work.rows(group):
        results = [
            known[place] for n in range(work.rounds) if (place := key(group, row, n)) in known
        ]
        if results:
            rows.append({"peer": row.peer, "mode": row.mode, "said": row.said} | together(results))
    if not rows:
        return
    result = {
        "what": group.what,
        "shape": group.shape,
        **about,
        "command": "make bench-peers",
        "seconds": work.seconds,
        "rounds": work.rounds,
        "rows": rows,
        "ceilings_gflops": ceilings(0.4),
        "machine": describe(),
    }
    folder = BUILD / "tried" if work.only else RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
    (folder / f"peers-{group.name}.json").write_text(text, encoding="utf-8", newline="\n")


def together(result: list[Record]) -> Record:
    """One row of several rounds: medians of the figures, all of them beside; or the reason."""
    good = [record for record in result if "error" not in record]
    if not good:
        return {"error": result[-1]["error"]}
    figures = [record["figure"] for record in good]
    last = {name: value for name, value in good[-1].items() if name not in ("key", "figure")}
    peaks = [record["peak_rss_mib"] for record in good if "peak_rss_mib" in record]
    middle = {"peak_rss_mib": statistics.median(peaks)} if peaks else {}
    return (
        last
        | middle
        | {
            "median": median(figures),
            "all": figures,
            "disturbed": sum(bool(record.get("disturbed")) for record in good),
            "products_gflops": [record["products_gflops"] for record in good],
        }
    )


def median(figures: list[Any]) -> Any:
    """The median of numbers, or of each number of trees of them."""
    if isinstance(figures[0], dict):
        return {name: median([tree[name] for tree in figures]) for name in figures[0]}
    return round(statistics.median(figures), 2)


if __name__ == "__main__":
    main()
