"""All views that fit a run, on one page that needs no network."""

from pathlib import Path

from foveate.errors import UserError
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.page import chapters
from foveate.look.views import VIEWS, ViewEntry
from foveate.look.views.examples import shared_passes
from foveate.look.views.options import Question
from foveate.run import Run


def report(run: Run, question: Question) -> tuple[str, dict[str, str]]:
    """Return the page of every view that fits, and why others are left out, by name.

    The drawings are one below the other in the order of the table, each under the name of its view.
    """
    drawings, left_out = list[Drawing](), dict[str, str]()
    with shared_passes():
        for entry in VIEWS.values():
            if reason := entry.unfit(run):
                left_out[entry.name] = reason
                continue
            try:
                drawings += _named(entry, entry.draw([run], question))
            except (UserError, OSError) as error:
                left_out[entry.name] = str(error)
    name, step = f"{run.path.resolve().parent.name}/{run.path.name}", Path(run.checkpoint).name
    title = f"{name}: {run.config.task.kind}, {run.config.model.kind}, {step}".replace("_", " ")
    notes = [f"no {name}: {why}" for name, why in left_out.items()]
    return chapters({"": drawings}, title, notes), left_out


def _named(entry: ViewEntry, view: Drawing) -> list[Drawing]:
    """Return the drawings of a view under its name, the first with the view's summary."""
    named = []
    for number, drawing in enumerate(view.drawings()):
        title = " · ".join(part for part in (entry.name, drawing.title) if part)
        caption = " ".join(part for part in (entry.summary * (not number), drawing.caption) if part)
        named.append(drawing.model_copy(update={"title": title, "caption": caption}))
    return named
