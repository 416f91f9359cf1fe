"""The verbs of pictures: captions, and what was looked at.

Does not live here: labels (`foveate.verbs.labels`), the command line (`foveate.cli.vision`), what a
run can do (`foveate.run`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from foveate.config import ConfigError
from foveate.run import Run

Picture = int | Path


def pictures_of(names: Sequence[str]) -> list[Picture]:
    """Files, or numbers of pictures of the run's test data. Raises `ConfigError` for neither."""
    found: list[Picture] = []
    for name in names:
        if Path(name).is_file():
            found.append(Path(name))
        elif name.isascii() and name.isdecimal():
            found.append(int(name))
        else:
            raise ConfigError(
                f"{name}: no such file; give a JPEG or PNG, or the number of a test picture"
            )
    return found


def caption(
    run: Run, names: Sequence[str], beam_size: int | None, scores: bool = False
) -> Iterator[str]:
    """A line for each picture: its name TAB its caption, after its score where that is wanted."""
    for answer in run.caption(pictures_of(names), beam_size):
        line = f"{answer.name}\t{answer.caption}"
        yield f"{answer.score:.4f}\t{line}" if scores else line


def look_picture(
    run: Run, name: str, target: str | None, head: int | None, out: Sequence[Path]
) -> list[str]:
    """Write the drawing in the form of each ending, and say where; without any, as text."""
    part = {} if head is None else {"head": head}
    try:
        view = run.view(pictures_of([name])[0], target, **part)
    except LookupError as error:
        raise ConfigError(str(error.args[0])) from None
    return [f"wrote {view.save(path)}" for path in out] or [view.text()]
