"""docs/lectures: a page for each lecture of `src/foveate/studio/lectures`, and a list of them.

python tools/lectures.py    write the pages anew (make lectures)
"""

from __future__ import annotations

import re
from pathlib import Path

from foveate.studio.lectures import Lecture, LectureStep, lectures

PAGES = Path(__file__).parent.parent / "docs" / "lectures"
PLAY = """\
Open the runs in the studio and press `p`, or go to `#/lecture/{name}/1`. Step with → and ←; `n`
shows the notes:

    foveate studio runs

If a run is missing, a small bundled one is shown instead: the one of the same name or the one
given in `runs.toml`. Key `i` shows which, and how to train the missing run.
"""
INDEX = """\
# Lectures

Five lectures on attention and the Transformer, step by step. Each step has a command that draws it
in the terminal or, with `--out`, into a file; the studio shows the same drawings:

    foveate studio             # then press p: one drawing fills the screen; step with → and ←

Right after installation the lectures use the small bundled runs (trained models); to play them with
your own, use `foveate studio runs`. Each page shows how to train them.

| lecture | based on | steps |
| --- | --- | --- |
{rows}

The lectures are TOML files in `src/foveate/studio/lectures`, which the studio plays;
`make lectures` generates these pages from them. If a slide of the original lecture differs from
the literature, the step says so.

The lecture based on Romac's is also told in French, `#/lecture/romac.fr/1`: the studio's guide says
[how to add a language](../guide/studio.md#in-other-languages).

Each page starts from an empty folder, after `pip install '.[studio]'` in a checkout of foveate: it
lists the command for each run that its steps need, and how long it takes. `benchmarks/lectures.py`
runs every command; `tools/slides.py` takes pictures of all slides, and
docs/results/lecture-slides.json records a check of each. Each run stops after a fixed number of
steps; times are estimates. From the wheel in an empty environment, run as typed and shown as
slides ([lectures.json](../results/lectures.json); runs of 300 steps, two cores of a Xeon), the
runs of temirkhanov took 3.8 minutes and its steps 2.0, those of chakraborty 3.6 and 0.5; the
slowest slide appeared after 0.27 s (romac, two cores of an AMD EPYC).

## The presenter's window

`w` opens a second window for the presenter's screen, with the notes of the step, the current slide
with its stage and the proportions of the projector, what comes next (a stage or a slide), a clock,
and ← and → (buttons and keys) to change slides. A timer runs against the minutes that you plan (at
first 1.5 a step) and shows by how many steps you are ahead or behind, in red above one. While the
mouse is over the current slide, a red dot points at the same place on the projector. The projector
shows only the slide, and notes only after `n`. Both windows belong to one browser; nothing is sent
to the server. If either window is closed, hidden or reloaded, the other says so and the lecture
continues.

## On paper and on your own slides

`s` shows all slides of the lecture as pages (`#/sheets/romac/7`), and draws the current one first.
*Print all, or save as PDF* gives one slide a page of 1280 × 800 px, in light colours, with title,
equation, drawing and sentence, and no buttons. Below each slide, *PDF* prints this slide alone, and
*SVG* and *PNG* save it for your own slides: text remains text in SVG, and PNG has three pixels for
one. The browser's own Print, on a slide, prints this slide as a page of the size of its window, at
the stage that it shows. Live training is printed as the last frame of its film.

## Your own lecture

    mkdir lectures
    foveate studio --lectures lectures      # p, then "Edit a copy" or "My lecture"

`c` copies the current step. On the page *My lecture* you can add steps from any lecture, change
titles, equations, sentences, commands and notes, move and remove steps, and use your own sentence
in every step that takes one. The browser stores your edits and the previous version. *Save as
TOML* downloads a file, which *Open …* can load; with `--lectures` a button saves it in that
folder, and the list shows the lectures in it:

    title = "Attention in twenty minutes"

    [[steps]]
    title = "A lookup"
    command = "foveate demo lookup"

    [[steps]]
    title = "Attention"
    equation = "α_i = softmax_i score(s_{{t−1}}, h_i)"
    command = "foveate look attention runs/en-fr --text 'She closes the old window.'"
    notes = "Ask first which word belongs to which."

A step has `title` and `command` (`foveate look …` or `foveate demo …`), and optionally `equation`,
`caption` (what to see in the drawing), `notes` and `slip`. Errors in a file are shown above the
list, with step and key; a step that cannot be drawn says why on its slide, and a slide lists words
of your sentence that the model has never seen.

## One file for students

*One HTML file*, in the list and on the page *My lecture*, draws all steps of a lecture into a
single file that needs no network and no server. The drawings respond to the mouse and can be
dragged and saved as in the studio, ← and → change steps, and the address contains the step. The
button shows the size (1.1 MB for the lecture based on Clément Romac's) and which steps have no
drawing; a step drawn with another run says so.
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
        f"# {lecture.title}\n\n{lecture.about} Based on {lecture.after}.\n\n"
        f"{PLAY.format(name=lecture.name)}\n"
        f"The steps use these runs. {made(lecture, read)}\n\n"
        f"{noted(lecture, read)}{steps}\n"
    )


def noted(lecture: Lecture, read: set[str]) -> str:
    """The runs that only notes name, if there are any."""
    names = {name for name in lectures().runs for step in lecture.steps if name in noted_by(step)}
    return f"The notes use more runs. {made(lecture, names - read)}\n\n" if names - read else ""


def noted_by(step: LectureStep) -> list[str]:
    """The names of the runs in the notes of a step."""
    return re.findall(r"\bruns/([\w-]+)", step.notes)


def made(lecture: Lecture, names: set[str]) -> str:
    """The commands that make runs, their minutes, and the steps that read each."""
    runs = {name: run for name, run in lectures().runs.items() if name in names}
    lines, rows = [f"    {run.command}" for run in runs.values()], []
    for name, run in runs.items():
        steps = [k for k, each in enumerate(lecture.steps, 1) if name in each.runs + noted_by(each)]
        numbers = ", ".join(map(str, steps)) or "data for the others"
        rows.append(f"| `runs/{name}` | {run.about} | {run.minutes} | {numbers} |")
    minutes = sum(run.minutes for run in runs.values())
    head = (
        f"Train them before the lecture, in this order: {minutes} minutes on two\nprocessor cores."
    )
    table = ["| run | description | minutes | steps |", "| --- | --- | --- | --- |", *rows]
    return "\n".join([head, "", *lines, "", *table])


def section(number: int, step: LectureStep) -> str:
    """A step: its equation, its command, a picture, the notes, and what the slide has wrong."""
    parts = [f"## {number}. {step.title}", f"> `{step.equation}`", f"    {step.command}"]
    if step.caption:
        parts.append(step.caption)
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
