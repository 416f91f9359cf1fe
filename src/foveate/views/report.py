"""All views that fit a run, on one page that needs no network."""

from __future__ import annotations

import base64
import html
from dataclasses import dataclass
from pathlib import Path

from foveate.atomic import replace_file
from foveate.config import ConfigError
from foveate.look.view import View, picture_bytes
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
        """The page."""
        sections = "".join(_section(entry, view) for entry, view in self.views)
        title = html.escape(self.title)
        return (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
            '<meta name="viewport" content="width=device-width">'
            "<style>:root{color-scheme:light dark}body{font:16px system-ui;margin:2rem auto;"
            "max-width:60rem;padding:0 1rem}img{max-width:100%;background:#fff;"
            f"border-radius:6px}}h2{{margin-top:3rem}}</style><h1>{title}</h1>{sections}</html>"
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
            view.drawings()
            views.append((entry, view))
        except (ConfigError, OSError, ValueError) as error:
            left_out[entry.name] = str(error)
    return Report(run.path.name, views, left_out)


def _section(entry: Entry, view: View) -> str:
    drawn = base64.b64encode(picture_bytes(view, "png")).decode()
    text = html.escape(view.text(width=100, color=False))
    return (
        f"<section><h2>{html.escape(entry.name)}</h2><p>{html.escape(entry.summary)}</p>"
        f'<img alt="{text}" src="data:image/png;base64,{drawn}"></section>'
    )
