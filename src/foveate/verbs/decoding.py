"""What verbs that decode share: searches said on the command line, and beginnings from a file.

Does not live here: the command line (`foveate.cli`), and the searches (`foveate.decode`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foveate.config import ConfigError
from foveate.data.readers import read_lines
from foveate.tree import override

if TYPE_CHECKING:
    from foveate.run import Run

PRECISIONS = ("fp32", "int8")


def decoding(run: Run, overrides: Sequence[str]) -> Run:
    """The run with the search of assignments such as ``decode.kind=diverse_beam``.

    Raises ``ConfigError`` for what is no part of ``decode``: a run stays as it was trained.
    """
    tree: dict[str, Any] = {}
    for assignment in overrides:
        tree = override(tree, assignment)
    for key in tree.keys() - {"decode"}:
        raise ConfigError(f"{key}: a run stays as it was trained; only decode.… can be said anew")
    said = tree.get("decode", {})
    choices = {"kind": said} if isinstance(said, str) else said
    return run.decoding(**choices) if choices else run


def at_precision(run: Run, precision: str) -> Run:
    """The run with its weights in "fp32", as they are, or in "int8" (`foveate.nn.linear`).

    Raises ``ConfigError`` for another name.
    """
    if precision not in PRECISIONS:
        raise ConfigError(f"no precision {precision!r}; there are: {', '.join(PRECISIONS)}")
    if precision == "int8":
        from foveate.nn.linear import quantized

        run.model = quantized(run.model)
    return run


class Prefixes:
    """The lines of a file with which outputs begin, taken in step with the lines of the input."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged: list[int] = []
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise ConfigError(f"cannot read the prefixes {path}: {error.strerror}") from None
        self._lines = read_lines(self._file, self.damaged)
        self._taken = 0

    def take(self, count: int) -> list[str]:
        """The next lines. Raises ``ConfigError`` where the file has too few, or one is no UTF-8."""
        found = list(islice(self._lines, count))
        self._taken += len(found)
        if len(found) < count:
            raise ConfigError(f"{self.path} ends after line {self._taken}; give one for each line")
        if self.damaged:
            raise ConfigError(f"{self.path}:{self.damaged[0]} is not UTF-8; no output begins so")
        return found

    def close(self) -> list[str]:
        """Close the file; what to say where it has lines that were not asked for."""
        left = sum(1 for _ in self._lines)
        self._file.close()
        return (
            [f"{self.path} has {left:,} lines more than the input; they were left"] if left else []
        )
