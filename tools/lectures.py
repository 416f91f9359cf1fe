"""docs/lectures: a page for each lecture of `src/foveate/lectures`, and a list of them.

python tools/lectures.py    write the pages anew (make lectures)
"""

from __future__ import annotations

from pathlib import Path

from foveate.server.lectures import Lecture, LectureStep, lectures

PAGES = Path(__file__).parent.parent / "docs" / "lectures"
PLAY = """\
Open the runs in the studio and press `p`, or go to `#/lecture/{name}/1`; → and ← step, `n` shows
the notes:

    foveate studio runs
"""
INDEX = """\
# Lectures

You can follow five lectures on attention and the Transformer step by step; each step has a command
that runs and, where there is something to see, a drawing in the studio:

    foveate studio runs        # then the key p: one drawing fills the screen, → and ← step

| lecture | after | steps |
| --- | --- | --- |
{rows}

The lectures are TOML files in `src/foveate/lectures`; the studio plays them, `make lectures` writes
these pages from them. Where a slide differs from the literature, the step says so.
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
    runs = lectures().runs
    used = {name for step in lecture.steps for name in step.runs} | {"en-fr"}  # has all data
    names = [name for name in runs if name in used]
    table = "\n".join(f"| `runs/{n}` | {runs[n].about} | {runs[n].minutes} |" for n in names)
    made = "\n".join(f"    {runs[name].command}" for name in names)
    steps = "\n\n".join(section(number, step) for number, step in enumerate(lecture.steps, 1))
    return (
        f"# {lecture.title}\n\n{lecture.about} After {lecture.after}.\n\n"
        f"{PLAY.format(name=lecture.name)}\n"
        f"The steps look into these runs; the commands that make them, in this order:\n\n{made}\n\n"
        f"| run | what it is | minutes |\n| --- | --- | --- |\n{table}\n\n{steps}\n"
    )


def section(number: int, step: LectureStep) -> str:
    """A step: its equation, its command, a picture, the notes, and what the slide has wrong."""
    parts = [f"## {number}. {step.title}", f"> `{step.equation}`", f"    {step.command}"]
    if step.view:
        parts.append(f"The studio draws `{step.view}`.")
    if step.picture:
        parts.append(f"![{step.title}](../{step.picture})")
    parts.append(step.notes.strip())
    if step.slip:
        parts.append(f"*Corrected: {step.slip}*")
    return "\n\n".join(parts)


if __name__ == "__main__":
    PAGES.mkdir(parents=True, exist_ok=True)
    for file, text in pages().items():
        (PAGES / file).write_text(text, encoding="utf-8")
