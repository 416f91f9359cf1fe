"""All views that fit a run, on one page that needs no network."""

from dataclasses import dataclass
from pathlib import Path

from foveate.errors import UserError
from foveate.files import replace_file
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.page import chapters
from foveate.look.views import VIEWS, ViewEntry
from foveate.look.views.examples import shared_passes
from foveate.look.views.options import Question
from foveate.run import Run


@dataclass(frozen=True)
class Report:
    """The views of a run in the order of the table, and why others are left out."""

    title: str
    views: list[tuple[ViewEntry, Drawing]]
    left_out: dict[str, str]

    def html(self) -> str:
        """Return the page: the drawings one below the other, each under the name of its view."""
        drawings = [each for entry, view in self.views for each in _named(entry, view)]
        notes = [f"no {name}: {why}" for name, why in self.left_out.items()]
        return chapters({"": drawings}, self.title or "foveate", notes)

    def save(self, path: Path) -> None:
        """Write the page atomically."""
        replace_file(path, self.html().encode())


def report(run: Run, question: Question) -> Report:
    """Draw every view that fits; the others are left out with the reason."""
    views, left_out = [], {}
    with shared_passes():
        for entry in VIEWS.values():
            if reason := entry.unfit(run):
                left_out[entry.name] = reason
                continue
            try:
                views.append((entry, entry.draw([run], question)))
            except (UserError, OSError) as error:
                left_out[entry.name] = str(error)
    name, step = f"{run.path.resolve().parent.name}/{run.path.name}", Path(run.checkpoint).name
    title = f"{name}: {run.config.task.kind}, {run.config.model.kind}, {step}"
    return Report(title.replace("_", " "), views, left_out)


def _named(entry: ViewEntry, view: Drawing) -> list[Drawing]:
    """Return the drawings of a view under its name, the first with the view's summary."""
    named = []
    for number, drawing in enumerate(view.drawings()):
        title = " · ".join(part for part in (entry.name, drawing.title) if part)
        caption = " ".join(part for part in (entry.summary * (not number), drawing.caption) if part)
        named.append(drawing.model_copy(update={"title": title, "caption": caption}))
    return named
