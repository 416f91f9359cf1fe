"""The verb of pictures: captions.

Does not live here: labels (`foveate.verbs.labels`), the command line (`foveate.cli.vision`), what a
run can do (`foveate.run`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from foveate.run import Run
from foveate.views.examples import Picture, picture_of


def pictures_of(names: Sequence[str]) -> list[Picture]:
    """Files, or numbers of pictures of the run's test data. Raises `ConfigError` for neither."""
    return [picture_of(name) for name in names]


def caption(
    run: Run, names: Sequence[str], beam_size: int | None, scores: bool = False
) -> Iterator[str]:
    """A line for each picture: its name TAB its caption, after its score where that is wanted."""
    for answer in run.caption(pictures_of(names), beam_size):
        line = f"{answer.name}\t{answer.caption}"
        yield f"{answer.score:.4f}\t{line}" if scores else line
