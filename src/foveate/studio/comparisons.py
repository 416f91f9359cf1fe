"""Comparisons that ``foveate compare`` has written beside the runs of the studio."""

import json
from collections.abc import Sequence
from pathlib import Path

from foveate.config import ConfigError
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.kinds import groups_of
from foveate.serve.common import not_found, unused_name
from foveate.studio.schemas import StudioResponse

BEGIN = b'{\n "what": "comparison"'  # of the JSON beside each page


class ComparisonInfo(StudioResponse):
    """A page that ``foveate compare`` has written: its models, and the titles of its chapters."""

    id: str
    models: list[str]
    chapters: list[str]


class ComparisonList(StudioResponse):
    """All comparisons in and beside the folders of the studio."""

    comparisons: list[ComparisonInfo]


def pages(paths: Sequence[Path]) -> dict[str, Path]:
    """Return the pages by name: those in the paths, in their subfolders, and beside them."""
    folders: dict[Path, None] = {}
    for path in paths or [Path()]:
        own = path.expanduser().resolve()
        inner = sorted(each for each in own.iterdir() if each.is_dir())
        folders |= dict.fromkeys([own.parent, own, *inner])
    named: dict[str, Path] = {}
    for file in (file for folder in folders for file in sorted(folder.glob("*.json"))):
        with file.open("rb") as lines:
            begins = lines.read(len(BEGIN)) == BEGIN
        if begins and (page := file.with_suffix(".html")).is_file():
            named[unused_name(file.stem, named)] = page
    return named


def comparison_list(paths: Sequence[Path]) -> ComparisonList:
    """Return all comparisons, described by the JSON beside their pages."""
    infos = []
    for name, page in pages(paths).items():
        tree = json.loads(page.with_suffix(".json").read_text("utf-8"))
        chapters = list(tree["chapters"])
        infos.append(ComparisonInfo(id=name, models=tree["models"], chapters=chapters))
    return ComparisonList(comparisons=infos)


def chapter(paths: Sequence[Path], name: str, number: int) -> list[Drawing]:
    """Return the drawings of a chapter of a comparison, counted from 1.

    Raises `RequestError` (404) if there is none, ``ConfigError`` for a page whose drawings were
    written by another version of foveate.
    """
    named = pages(paths)
    if name not in named:
        raise not_found("comparison", name, named)
    try:
        groups = groups_of(named[name].read_text("utf-8"))
    except ValueError:
        raise ConfigError(
            f"{named[name].name} was written by a different version: run foveate compare again"
        ) from None
    if not 0 < number <= len(groups):
        raise not_found(f"chapter of {name}", number, map(str, range(1, len(groups) + 1)))
    return list(groups[number - 1].drawings)
