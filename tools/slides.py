"""Every slide of the lectures as the studio shows it, and what was found when they were looked at.

    python tools/slides.py PICTURES [--only romac] [--step 3] [--run RUN] [--dark]

Plays the slides with the runs that foveate ships (or further ones) in an empty folder, at three
sizes, and writes LECTURE-STEP-WIDTH.png into PICTURES. docs/results/lecture-slides.json gets a line
for each: whether all of it is seen without scrolling, the smallest type in pixels, which texts are
cut or touch their frame, and, kept while the command of the slide is the same, what somebody who
did not build it says: ``score`` (of 10), whether it is ``true``, ``shows`` what its title and
sentence say and has ``fit`` (nothing cut or empty), the ``verdict``, and the date when it was
``looked`` at.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from foveate.studio.lectures import Lecture, lectures
from screenshots import chromium, served

TABLE = Path(__file__).parent.parent / "docs" / "results" / "lecture-slides.json"
SIZES = {1024: 768, 1280: 800, 1920: 1080}
BY_PERSON = {"score": None, "true": None, "shows": None, "fit": None, "verdict": "", "looked": ""}
LONGEST = 300_000  # milliseconds of a drawing
MEASURES = """() => {
  const stage = document.querySelector('.stage'), all = document.querySelectorAll('.screen *');
  const texts = [...all].filter((e) => e.checkVisibility({ visibilityProperty: true })
    && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()));
  const scale = (e) => e.getScreenCTM?.().a ?? e.currentCSSZoom; // a drawing has units of its own
  const size = (e) => parseFloat(getComputedStyle(e).fontSize) * scale(e);
  const { scrollHeight, clientHeight, scrollWidth, clientWidth } = stage;
  return {
    whole: scrollHeight <= clientHeight + 1 && scrollWidth <= clientWidth + 1,
    type: Math.round(Math.min(...texts.map(size).filter(Boolean))),
    crowded: [...stage.querySelectorAll(':is(.fv-box, .fv-lanes g) > text')].filter((text) => {
      const frame = text.parentElement.querySelector(':scope > rect')?.getBoundingClientRect();
      if (!frame || !text.textContent.trim() || !text.checkVisibility({ visibilityProperty: true }))
        return false;
      const box = text.getBoundingClientRect(), free = 0.2 * box.height; // above and below a digit
      const gaps = [box.left - frame.left, frame.right - box.right,
        box.top + free - frame.top, frame.bottom + free - box.bottom];
      return Math.min(...gaps) < 2 || text.textContent.endsWith('…');
    }).map((text) => text.textContent),
  };
}"""

Row = dict[str, Any]


def rows(lecture: Lecture, before: list[Row]) -> list[Row]:
    """A line for each step; what a person wrote of a command before is kept."""
    known = {(row["lecture"], row["command"]): row for row in before}
    result = []
    for number, step in enumerate(lecture.steps, 1):
        old = known.get((lecture.name, step.command), {})
        written = {name: old.get(name, absent) for name, absent in BY_PERSON.items()}
        head = {"lecture": lecture.name, "step": number, "title": step.title}
        result.append(head | {"command": step.command} | written | {"seen": old.get("seen", {})})
    return result


def play(page: Any, address: str, row: Row, out: Path, end: str) -> None:
    """Take the picture of a slide as it opens, or has learnt, and measure it."""
    width = page.viewport_size["width"]
    page.goto(f"{address}#/lecture/{row['lecture']}/{row['step']}")
    page.wait_for_function(
        "title => document.querySelector('h1')?.innerText === title", arg=row["title"]
    )
    page.wait_for_selector(
        '[data-testid="lecture"]:is([data-status="done"], [data-status="failed"])',
        timeout=LONGEST,
    )
    if row.get("command") == "foveate demo learn":  # it is looked at when it has learnt
        learnt = "() => document.querySelector('[data-step]')?.dataset.step > 600"
        page.wait_for_function(learnt, timeout=LONGEST)
    page.wait_for_timeout(200)
    seen = page.evaluate(MEASURES)
    missing = page.get_by_test_id("makes").count() or page.get_by_role("alert").count()
    row["seen"][str(width)] = {"drawn": not missing, **seen}
    page.screenshot(path=out / f"{row['lecture']}-{row['step']:02}-{width}{end}.png")


def main(
    pictures: Path,
    only: Annotated[list[str] | None, Option(help="lectures; repeat")] = None,
    step: Annotated[list[int] | None, Option(help="numbers of steps; repeat")] = None,
    run: Annotated[list[Path] | None, Option(help="further runs; repeat")] = None,
    dark: Annotated[bool, Option("--dark", help="in dark colours; the table stays")] = False,
) -> None:
    """Take the pictures and renew the table."""
    pictures, runs = pictures.resolve(), [path.resolve() for path in run or []]
    pictures.mkdir(parents=True, exist_ok=True)
    before = json.loads(TABLE.read_text("utf-8"))["slides"] if TABLE.is_file() else []
    table = [row for each in lectures().lectures for row in rows(each, before)]
    os.chdir(tempfile.mkdtemp())
    os.environ.pop("FOVEATE_DATA", None)
    scheme, end = ("dark", "-dark") if dark else ("light", "")
    with served(runs) as address, chromium() as browser:
        pages = [
            browser.new_context(viewport={"width": w, "height": h}, color_scheme=scheme).new_page()
            for w, h in SIZES.items()
        ]
        for row in table:
            if (only and row["lecture"] not in only) or (step and row["step"] not in step):
                continue
            for page in pages:
                play(page, address, row, pictures, end)
            print(row["lecture"], row["step"], row["command"], row["seen"], flush=True)
    if not dark:
        about = "python tools/slides.py PICTURES; score to looked are a person's"
        text = json.dumps({"command": about, "slides": table}, indent=1, ensure_ascii=False)
        TABLE.write_text(text + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    typer.run(main)
