"""Type the commands of docs/lectures in one folder, in order; the time of each, and what it writes.

    python benchmarks/lectures.py FOLDER VENV/bin [--json docs/results/lectures.json]

FOLDER is empty, VENV has the wheel alone. A command of several lectures runs once and counts in
each; `CUT` says which trainings are shortened. Exit code 1 where a command fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import harness

PAGES = harness.ROOT / "docs" / "lectures"
LECTURES = {path.stem: path for path in sorted(PAGES.glob("*.md")) if path.stem != "README"}
LINE = re.compile(r"^## (\d+)\.|^    (foveate .+)$|`(foveate [^`]+)`", re.MULTILINE)
SERVES = "foveate studio"  # does not end
CUT = {  # what takes longer than three minutes, and the words that are typed after it
    "foveate compare lineage": "--tokens 50000",
    "--run runs/vit": "train.max_steps=40",
    "--run runs/captions": "train.max_steps=20",
}
LIMIT = 1200  # seconds


def commands(page: Path) -> dict[str, int]:
    """Each command that a page prints, with the number of its step; 0 are those that make runs."""
    step, lines = 0, dict[str, int]()
    for number, *line in LINE.findall(page.read_text(encoding="utf-8")):
        step = int(number or step)
        lines.setdefault("".join(line), step)
    return {line: step for line, step in lines.items() if line and not line.startswith(SERVES)}


def typed(line: str, folder: Path, programs: Path) -> dict[str, Any]:
    """Run a command in a folder, and say how it went."""
    more = next((words for part, words in CUT.items() if part in line), "")
    before, start = set(folder.glob("*")), time.monotonic()
    environment = os.environ | {"PATH": f"{programs.resolve()}:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        ["bash", "-c", f"{line} {more}"], cwd=folder, env=environment, timeout=LIMIT,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip
    seconds, output = round(time.monotonic() - start, 1), done.stdout.strip() + "\n"
    first = output[: output.index("\n")].strip()[:90]
    print(f"{seconds:7.1f} s  {done.returncode}  {line}\n{' ' * 14}{first}", flush=True)
    if done.returncode:
        print(output[-2000:], file=sys.stderr)
    result = {"command": line, "seconds": seconds, "exit": done.returncode, "first": first}
    wrote = sorted(path.name for path in set(folder.glob("*")) - before)
    return result | ({"cut": more} if more else {}) | ({"wrote": wrote} if wrote else {})


def main(
    folder: Path,
    programs: Path,
    json: Path | None = None,
    only: Annotated[list[str] | None, harness.among(LECTURES, "a lecture")] = None,
) -> None:
    """Every lecture; JSON with the minutes of its runs and of its steps."""
    folder.mkdir(parents=True, exist_ok=True)
    done, lectures = dict[str, dict[str, Any]](), dict[str, Any]()
    for page in (LECTURES[name] for name in only or LECTURES):
        steps, seconds = [], {"runs": 0.0, "steps": 0.0}
        for line, step in commands(page).items():
            done[line] = done.get(line) or typed(line, folder, programs)
            steps.append({"step": step, **done[line]})
            seconds["steps" if step else "runs"] += done[line]["seconds"]
        minutes = {f"minutes of {part}": round(value / 60, 1) for part, value in seconds.items()}
        lectures[page.stem] = minutes | {"commands": steps}
        print(page.stem, minutes, flush=True)
    harness.write("lectures", {"cut": CUT, "lectures": lectures}, json)
    sys.exit(any(each["exit"] for each in done.values()))


if __name__ == "__main__":
    harness.run(main)
