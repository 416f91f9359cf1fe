"""The tables of docs/reference/speed.md, made of docs/results/peers-*.json; none is typed.

python benchmarks/peers/table.py           writes them anew into docs/reference/speed.md
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "reference" / "speed.md"
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
TITLES = {
    "train-small": "Training, *small*: real target tokens per second",
    "train-base": "Training, *base*: real target tokens per second",
    "train-rnnsearch": "Training, RNNsearch 256: real target tokens per second",
    "decode-small": "Decoding, *small*, 20 tokens forced: sentences per second",
    "batches-small": "The engine, *small*, 20 tokens forced: sentences per second by batch size",
    "batches-tiny11": "The engine, tiny11 with a shortlist: sentences per second by batch size",
    "cells-256": "One layer forward and backward, 256 wide: milliseconds",
}
YARDSTICK = "joeynmt"
Result = dict[str, Any]


def tables(folder: Path) -> str:
    """All tables whose results are there, in Markdown."""
    parts = []
    for name, title in TITLES.items():
        path = folder / f"peers-{name}.json"
        if path.is_file():
            parts.append(table(title, json.loads(path.read_text(encoding="utf-8"))))
    return "\n\n".join(parts) or "*No results yet: `make bench-peers` makes them.*"


def table(title: str, result: Result) -> str:
    """One table with its machine below; peers that did not run stand below with their reasons."""
    ran = [row for row in result["rows"] if "error" not in row]
    modes = [
        f"Threads per sentence (the faster setting), {row['said']}: "
        + ", ".join(f"{count} ({case})" for case, count in row["fastest"].items())
        + "."
        for row in ran
        if "fastest" in row and result["what"] == "decode"
    ]
    lines = {"train": trained, "decode": listed, "batches": by_case, "cells": listed}[
        result["what"]
    ](ran)
    machine = result["machine"]
    ceilings = ", ".join(f"{k} {v:.0f}" for k, v in result["ceilings_gflops"].items())
    counts = sorted({len(row["all"]) for row in ran}) or [0]
    windows = " to ".join(str(n) for n in dict.fromkeys((counts[0], counts[-1])))
    below = [
        f"Medians of {windows} windows of {result['seconds']:g} s; {result['data']}, "
        f"{machine['threads']} threads of {machine['cpu']}, torch {machine['torch']}, "
        f"{machine['date']}, commit {machine['commit']}; best matrix products: {ceilings} GFLOP/s."
    ]
    below += [
        f"{row['said']} did not run: {row['error'].rstrip('.')}."
        for row in result["rows"]
        if "error" in row
    ]
    below += modes
    disturbed = [row["said"] for row in ran if row.get("disturbed")]
    below += [f"Measured under other load: {', '.join(disturbed)}."] if disturbed else []
    return "\n".join([f"### {title}", "", *lines, "", *below])


def trained(rows: list[Result]) -> list[str]:
    """The fastest last, against the yardstick."""
    item = next((row["median"] for row in rows if row["peer"] == YARDSTICK), None)
    lines = ["| program | tokens/s | × JoeyNMT | padding | peak MiB |", "|---|---:|---:|---:|---:|"]
    for row in sorted(rows, key=lambda row: row["median"]):
        times = f"{row['median'] / item:.1f}" if item else ""
        lines.append(
            f"| {row['said']} | {row['median']:,.0f} | {times} | {row['padding_share']:.0%} | "
            f"{row['peak_rss_mib']:,.0f} |"
        )
    return lines


def cases_of(rows: list[Result]) -> list[str]:
    """What any row has measured, in order."""
    return list(dict.fromkeys(case for row in rows for case in row["median"]))


def listed(rows: list[Result]) -> list[str]:
    """A column for each case that any row has."""
    cases = cases_of(rows)
    lines = ["| program | " + " | ".join(cases) + " |", "|---" + "|---:" * len(cases) + "|"]
    for row in rows:
        cells = (f"{row['median'][c]:,.4g}" if c in row["median"] else "" for c in cases)
        lines.append(f"| {row['said']} | " + " | ".join(cells) + " |")
    return lines


def by_case(rows: list[Result]) -> list[str]:
    """A line for each case that any row has, a column for each row."""
    lines = [
        "| | " + " | ".join(row["said"] for row in rows) + " |",
        "|---" + "|---:" * len(rows) + "|",
    ]
    for case in cases_of(rows):
        cells = (f"{row['median'][case]:,.0f}" if case in row["median"] else "" for row in rows)
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    return lines


def page(text: str, folder: Path) -> str:
    """A page with the tables between its marks made anew. Raises ``ValueError`` without marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} … {END}")
    return f"{before}{BEGIN}\n\n{tables(folder)}\n\n{END}{after}"


if __name__ == "__main__":
    made = page(PAGE.read_text(encoding="utf-8"), ROOT / "docs" / "results")
    PAGE.write_text(made, encoding="utf-8", newline="\n")
    print(PAGE)
