"""All views that fit a run, on one page that needs no network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foveate.atomic import replace_file
from foveate.config import ConfigError
from foveate.look.drawing import Drawing
from foveate.look.page import drawn
from foveate.look.view import View
from foveate.run import Run
from foveate.views.question import Question
from foveate.views.registry import VIEWS, Entry


@dataclass(frozen=True)
class Report:
    """The views of a run in the order of the registry, and why others are not among them."""

    title: str
    views: list[tuple[Entry, View]]
    left_out: dict[str, str]

    def html(self) -> str:
        """The page: a drawing below the other, each under the name of its view."""
        return drawn(
            [each for entry, view in self.views for each in _named(entry, view)], self.title
        )

    def save(self, path: Path) -> None:
        """Write the page, whole or not at all."""
        replace_file(path, self.html().encode())


def report(run: Run, question: Question) -> Report:
    """Draw all that fits. What cannot be drawn, for its data are not here, is said instead."""
    views, left_out = [], {}
    for entry in VIEWS.values():
        if reason := entry.unfit(run):
            left_out[entry.name] = reason
            continue
        try:
            view = entry.draw([run], question)
            views.append((entry, view))
        except (ConfigError, OSError, ValueError) as error:
            left_out[entry.name] = str(error)
    return Report(run.path.name, views, left_out)


def _named(entry: Entry, view: View) -> list[Drawing]:
    """The drawings of a view under its name, the first with what the view shows."""
    found = []
    for number, drawing in enumerate(view.drawings()):
        title = " · ".join(part for part in (entry.name, drawing.title) if part)
        told = " ".join(part for part in (entry.summary * (not number), drawing.caption) if part)
        found.append(drawing.model_copy(update={"title": title, "caption": told}))
    return found
