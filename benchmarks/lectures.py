"""Give the lectures as a new user does: type their commands in one folder, project their slides.

    python benchmarks/lectures.py FOLDER VENV/bin [--only romac] [--steps 300] [--project]

FOLDER is empty, VENV has the wheel with ``[studio]`` alone; a run that an earlier call left in
FOLDER is not made again, and ``--only`` renews its lectures alone in the JSON. A command of several
lectures runs once and counts in each; ``CUT`` says which trainings are shortened, ``--steps``
shortens all but that of ``foveate quickstart`` and must be more than the 200 steps in which their
learning rate rises.
``--project`` opens ``foveate studio`` in FOLDER, goes through each lecture by the key → (playwright
and Chromium are of this Python), and notes how long each slide takes to come. Exit code 1 where a
command fails, or a slide is late or says that something is wrong.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import harness

PAGES, PACKAGE = harness.ROOT / "docs" / "lectures", harness.ROOT / "src" / "foveate"
LECTURES = {path.stem: path for path in sorted(PAGES.glob("*.md")) if path.stem != "README"}
LINE = re.compile(r"^## (\d+)\.|^    (foveate .+)$|`(foveate [^`]+)`", re.MULTILINE)
SERVES = "foveate studio"  # does not end
RECIPE = tomllib.loads((PACKAGE / "grammar.toml").read_text("utf-8"))["train"]
RISES = int(RECIPE["schedule"]["warmup_steps"])  # steps in which the rate of the trainings rises
CUT = {  # what takes longer than three minutes, and the words that are typed after it
    "foveate compare lineage": "--tokens 50000",
    "--run runs/vit": "train.max_steps=40",
    "--run runs/captions": "train.max_steps=20",
}
MAKES = re.compile(r"(?:--run|\bmv \S+) (\S+)")  # the run that a command leaves
LIMIT = 2400  # seconds; `foveate quickstart` alone may train for 1,200
PORT = 8399
SPEAKS = 3.0  # seconds between two slides, in which the next one is fetched
LATE = 0.3  # seconds until the next slide is whole
NEXT = """async () => {
  const before = location.hash, start = performance.now(), spent = () => performance.now() - start;
  document.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', cancelable: true }));
  if (location.hash === before) return null;
  const isWhole = () => document.querySelector('[data-testid=lecture]').dataset.status !== 'working'
    && document.querySelector('.stage .fv, .stage [role=alert]');
  do await new Promise(requestAnimationFrame); while (!isWhole() && spent() < 60000);
  return spent() / 1000;
}"""
WRONG = """() => [...document.querySelectorAll('[role=alert], .wrong, .fv-wrong')]
  .filter((each) => each.checkVisibility() && each.innerText).map((each) => each.innerText)"""


def commands(page: Path) -> dict[str, int]:
    """Each command that a page prints, with the number of its step; 0 are those that make runs."""
    step, lines = 0, dict[str, int]()
    for number, *line in LINE.findall(page.read_text(encoding="utf-8")):
        step = int(number or step)
        lines.setdefault(" ".join("".join(line).split()), step)  # notes break lines in them
    return {line: step for line, step in lines.items() if line and not line.startswith(SERVES)}


def environment(programs: Path) -> dict[str, str]:
    """That of a terminal in which the programs of the wheel are found, and no sources."""
    names = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return names | {"PATH": f"{programs.resolve()}:{os.environ['PATH']}"}


def typed(line: str, folder: Path, programs: Path, steps: int | None) -> dict[str, Any]:
    """Run a command in a folder, and say how it went."""
    cuts = CUT | ({} if steps is None else {"foveate train": f"train.max_steps={steps}"})
    more = next((words for part, words in cuts.items() if part in line), "")
    makes = MAKES.search(line)
    if makes and (folder / makes[1]).is_dir():
        return {"command": line, "seconds": 0.0, "exit": 0, "first": f"{makes[1]} was there"}
    before, start = set(folder.glob("*")), time.monotonic()
    done = subprocess.run(  # timeout ends the programs that the line has started too, with 124
        ["timeout", str(LIMIT), "bash", "-c", f"{line} {more}"],
        cwd=folder, env=environment(programs), text=True, errors="replace",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        encoding="utf-8",
    )  # fmt: skip
    code, output = done.returncode, done.stdout.strip() + "\n"
    seconds = round(time.monotonic() - start, 1)
    first = output[: output.index("\n")].strip()[:90]
    print(f"{seconds:7.1f} s  {code}  {line}\n{' ' * 14}{first}", flush=True)
    if code:
        print(output[-2000:], file=sys.stderr)
    result = {"command": line, "seconds": seconds, "exit": code, "first": first}
    wrote = sorted(path.name for path in set(folder.glob("*")) - before)
    return result | ({"cut": more} if more else {}) | ({"wrote": wrote} if wrote else {})


@contextmanager
def studio(folder: Path, programs: Path) -> Iterator[str]:
    """The address of the studio of the wheel, opened in a folder with its runs."""
    runs = ["runs"] if (folder / "runs").is_dir() else []
    line = [programs.resolve() / "foveate", "studio", *runs, "--no-browser", "--port", str(PORT)]
    process = subprocess.Popen(
        line,
        cwd=folder,
        env=environment(programs),
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    assert process.stdout is not None
    said = process.stdout.readline()  # studio: ADDRESS  (…)
    try:
        yield said.split()[1]
    finally:
        process.terminate()
        process.wait(30)


def projected(name: str, page: Any, address: str) -> dict[str, Any]:
    """Go through a lecture by →: seconds of each slide, stages of walks, what is wrong."""
    console: list[str] = []
    page.on("console", lambda message: console.append(message.text))
    page.goto(f"{address}#/lecture/{name}/1")
    page.locator(".stage .fv").first.wait_for(timeout=60_000)
    slides: list[dict[str, Any]] = [{"step": 1, "seconds": None, "stages": 0}]
    count = len(re.findall(r"^## \d+\.", LECTURES[name].read_text(encoding="utf-8"), re.MULTILINE))
    while True:
        slides[-1]["wrong"] = slides[-1].get("wrong", []) or page.evaluate(WRONG)
        if len(slides) == count:
            break
        page.wait_for_timeout(1000 * SPEAKS if not slides[-1]["stages"] else 50)
        seconds = page.evaluate(NEXT)
        if seconds is None:
            slides[-1]["stages"] += 1
        else:
            slides.append({"step": len(slides) + 1, "seconds": round(seconds, 3), "stages": 0})
    late = [slide["step"] for slide in slides if (slide["seconds"] or 0) > LATE]
    wrong = {slide["step"]: slide["wrong"] for slide in slides if slide["wrong"]}
    slowest = max(slide["seconds"] or 0 for slide in slides)
    result = {"slowest": slowest, "late": late, "wrong": wrong, "console": console}
    print(name, "projected:", result, flush=True)
    return result | {"slides": [{k: v for k, v in s.items() if k != "wrong"} for s in slides]}


def project(names: list[str], folder: Path, programs: Path) -> dict[str, Any]:
    """Each lecture in a window of 1280 × 800 pixels."""
    from playwright.sync_api import sync_playwright

    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with studio(folder, programs) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=harness.browser(), args=flags)
        window = {"width": 1280, "height": 800}
        result = {
            name: projected(name, browser.new_page(viewport=window), address) for name in names
        }
        browser.close()
    return result


def enough(steps: int | None) -> int | None:
    """``--steps``, refused where the learning rate would end before it has risen."""
    if steps is not None and steps <= RISES:
        why = f"the learning rate of these trainings rises for {RISES} steps"
        raise harness.typer.BadParameter(f"{why}: give more than {RISES}, not {steps}")
    return steps


def main(
    folder: Path,
    programs: Path,
    json: Path | None = None,
    only: Annotated[list[str] | None, harness.among(LECTURES, "a lecture")] = None,
    steps: Annotated[int | None, harness.typer.Option(callback=enough)] = None,
    project_slides: Annotated[bool, harness.typer.Option("--project")] = False,
) -> None:
    """Every lecture; JSON with the minutes of its runs, of its steps, and of its slides."""
    folder.mkdir(parents=True, exist_ok=True)
    done, names = dict[str, dict[str, Any]](), only or list(LECTURES)
    lectures = harness.previous("lectures", json).get("lectures", {})
    for name in names:
        rows, seconds = [], {"runs": 0.0, "steps": 0.0}
        for line, step in commands(LECTURES[name]).items():
            done[line] = done.get(line) or typed(line, folder, programs, steps)
            rows.append({"step": step, **done[line]})
            seconds["steps" if step else "runs"] += done[line]["seconds"]
        minutes = {f"minutes of {part}": round(value / 60, 1) for part, value in seconds.items()}
        lectures[name] = minutes | {"commands": rows}
        print(name, minutes, flush=True)
    slides = project(names, folder, programs) if project_slides else {}
    for name, result in slides.items():
        lectures[name]["projected"] = result
    harness.write("lectures", {"lectures": lectures}, json)
    failed = any(each["exit"] for each in done.values())
    sys.exit(failed or any(each["late"] or each["wrong"] for each in slides.values()))


if __name__ == "__main__":
    harness.run(main)
