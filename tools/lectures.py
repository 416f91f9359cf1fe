"""docs/lectures: a page for each lecture of `src/foveate/lectures`, and a list of them.

python tools/lectures.py    write the pages anew (make lectures)
"""

from __future__ import annotations

import re
from pathlib import Path

from foveate.server.lectures import Lecture, LectureStep, lectures

PAGES = Path(__file__).parent.parent / "docs" / "lectures"
PLAY = """\
Open the runs in the studio and press `p`, or go to `#/lecture/{name}/1`; → and ← step, `n` shows
the notes:

    foveate studio runs

A run that is missing is replaced by a small one that foveate ships, of the same name or the one
that `runs.toml` names; the slide says which, and how to make the run.
"""
INDEX = """\
# Lectures

You can follow five lectures on attention and the Transformer step by step; each step has a command
that draws it, in the terminal or, with `--out`, in a file, and the studio draws the same:

    foveate studio             # then the key p: one drawing fills the screen, → and ← step

Right after installation the lectures play with the small runs that foveate ships; `foveate studio
runs` plays them with runs of your own, which each page says how to make.

| lecture | after | steps |
| --- | --- | --- |
{rows}

The lectures are TOML files in `src/foveate/lectures`; the studio plays them, `make lectures` writes
these pages from them. Where a slide differs from the literature, the step says so.

A page begins in an empty folder, after `pip install '.[studio]'` in a checkout of foveate: it says
which command makes each run that its steps read, and how long that takes. `benchmarks/lectures.py`
types all commands; `tools/slides.py` takes pictures of all slides, and
docs/results/lecture-slides.json says how each was found. Trainings end after a
number of steps; the minutes are estimates. From the wheel in an empty environment, typed and
projected ([lectures.json](../results/lectures.json); trainings of 300 steps, two cores of a Xeon),
the runs of temirkhanov took 3.8 minutes and its steps 2.0, those of chakraborty 3.6 and 0.5; the
slowest slide was there after 0.21 s.

## The presenter's window

`w` opens a second window for the presenter's screen: the notes of the step, the next slide, the
clock, and ← and → (buttons and keys) that move the slides. The projector shows the slide alone.
Both windows belong to one browser; nothing is sent to the server. Where one of them is closed, in
the background or loaded again, the other says so in one sentence and the lecture goes on.

## Your own lecture

    mkdir lectures
    foveate studio --lectures lectures      # p, then "Edit a copy" or "My lecture"

`c` copies the step that is shown; the page *My lecture* adds steps of any lecture, changes titles,
equations, sentences, commands and notes, moves and removes steps, and puts one sentence of yours
into every step that reads one. The browser keeps what you edit, and the
lecture before it. *Save as TOML* downloads a file that *Open …* reads again; with `--lectures` a
button saves it in that folder, whose lectures stand in the list:

    title = "Attention in twenty minutes"

    [[steps]]
    title = "A lookup"
    command = "foveate demo lookup"

    [[steps]]
    title = "Attention"
    equation = "α_i = softmax_i score(s_{{t−1}}, h_i)"
    command = "foveate look attention runs/en-fr --text 'She closes the old window.'"
    notes = "Ask first which word belongs to which."

A step has `title` and `command` (`foveate look …` or `foveate demo …`), and may have `equation`,
`notes` and `slip`. What is wrong in a file is named by step and key above the list; a step that
cannot be drawn says why on its slide, and a slide names the words of a sentence that training
never showed.

## One file for students

*One HTML file*, in the list and on the page *My lecture*, draws all steps of a lecture into one
file that needs no network and no server: the drawings can be pointed at, dragged and saved as in
the studio, ← and → step, and the address has the step. The button says the size (the steps
after Clément Romac: 1.1 MB) and which steps have no drawing; a step that is drawn
with another run says so.
"""


def pages() -> dict[str, str]:
    """The texts of all pages by their names."""
    every = lectures().lectures
    rows = "\n".join(
        f"| [{each.title}]({each.name}.md) | {each.after} | {len(each.steps)} |" for each in every
    )
    return {"README.md": INDEX.format(rows=rows)} | {f"{x.name}.md": page(x) for x in every}


def page(lecture: Lecture) -> str:
    """A lecture: the runs that it needs, then its steps."""
    read = {name for step in lecture.steps for name in step.runs} | {"en-fr"}  # has all data
    steps = "\n\n".join(section(number, step) for number, step in enumerate(lecture.steps, 1))
    return (
        f"# {lecture.title}\n\n{lecture.about} After {lecture.after}.\n\n"
        f"{PLAY.format(name=lecture.name)}\n"
        f"The steps read these runs. {made(lecture, read)}\n\n"
        f"{noted(lecture, read)}{steps}\n"
    )


def noted(lecture: Lecture, read: set[str]) -> str:
    """The runs that only notes name, if there are any."""
    names = {name for name in lectures().runs for step in lecture.steps if name in noted_by(step)}
    return f"The notes name others. {made(lecture, names - read)}\n\n" if names - read else ""


def noted_by(step: LectureStep) -> list[str]:
    """The names of the runs in the notes of a step."""
    return re.findall(r"\bruns/([\w-]+)", step.notes)


def made(lecture: Lecture, names: set[str]) -> str:
    """The commands that make runs, their minutes, and the steps that read each."""
    runs = {name: run for name, run in lectures().runs.items() if name in names}
    lines, rows = [f"    {run.command}" for run in runs.values()], []
    for name, run in runs.items():
        steps = [k for k, each in enumerate(lecture.steps, 1) if name in each.runs + noted_by(each)]
        numbers = ", ".join(map(str, steps)) or "data of the others"
        rows.append(f"| `runs/{name}` | {run.about} | {run.minutes} | {numbers} |")
    minutes = sum(run.minutes for run in runs.values())
    head = (
        f"Make them before the lecture, in this order: {minutes} minutes on two\nprocessor cores."
    )
    table = ["| run | what it is | minutes | steps |", "| --- | --- | --- | --- |", *rows]
    return "\n".join([head, "", *lines, "", *table])


def section(number: int, step: LectureStep) -> str:
    """A step: its equation, its command, a picture, the notes, and what the slide has wrong."""
    parts = [f"## {number}. {step.title}", f"> `{step.equation}`", f"    {step.command}"]
    if step.picture:
        parts.append(f"![{step.title}](../{step.picture})")
    parts.append(step.notes.strip())
    if step.slip:
        parts.append(f"*Corrected: {step.slip}*")
    return "\n\n".join(parts)


if __name__ == "__main__":
    PAGES.mkdir(parents=True, exist_ok=True)
    for file, text in pages().items():
        (PAGES / file).write_text(text, encoding="utf-8", newline="\n")
