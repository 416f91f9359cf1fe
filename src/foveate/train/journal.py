"""What happened in training, one JSON object a line in ``log.jsonl``, and TensorBoard on request.

Lives here: writing the lines, and cutting those that a resumed run will write again. Does not
live here: what is measured (`foveate.train.trainer`).
"""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import Any, TextIO

from foveate.train.files import TrainError, write_atomically

LOG = "log.jsonl"  # its name in a run
Line = dict[str, Any]


class Journal:
    """``log.jsonl`` of a run, opened at a step: lines of later steps are cut off.

    Each line has ``event`` ("start", "train", "valid", …), ``step``, and figures. Numbers that
    are not finite are written as null, for JSON has no name for them.
    """

    def __init__(self, run: Path, step: int, tensorboard: bool = False) -> None:
        self.path = run / LOG
        self.cut = _cut(self.path, step)
        self._file: TextIO = self.path.open("a", encoding="utf-8", errors="backslashreplace")
        self._board = _board(run / "tensorboard", step) if tensorboard else None

    def write(self, event: str, step: int, **values: Any) -> None:
        """Append a line and hand it to the system at once."""
        line = json.dumps({"event": event, "step": step} | _finite(values), ensure_ascii=False)
        try:
            self._file.write(line + "\n")
            self._file.flush()
        except OSError as error:
            raise TrainError(
                f"cannot write {self.path}: {error.strerror}; make room, and the same command "
                "goes on from the last checkpoint"
            ) from error
        for name, value in values.items():
            if self._board is not None and isinstance(value, int | float):
                self._board.add_scalar(f"{event}/{name}", value, step)

    def close(self) -> None:
        """Close the files; the journal cannot be used afterwards."""
        with contextlib.suppress(OSError):  # of a full disk, which `write` has told of
            self._file.close()
        if self._board is not None:
            self._board.close()


class NoJournal(Journal):
    """What a rank that does not lead writes: nothing."""

    def __init__(self) -> None: ...

    def write(self, event: str, step: int, **values: Any) -> None: ...

    def close(self) -> None: ...


def read(run: Path) -> list[Line]:
    """The lines of a run; one that a kill has torn is left out."""
    path = run / LOG
    return sound(path.read_bytes()) if path.exists() else []


def last_samples(run: Path) -> list[dict[str, str]]:
    """The examples of the last validation that kept any: source, reference and output of each."""
    kept: list[list[dict[str, str]]] = [
        line["samples"] for line in read(run) if line.get("samples")
    ]
    return kept[-1] if kept else []


def sound(content: bytes) -> list[Line]:
    """The lines of a log that are JSON objects."""
    lines = []
    for text in content.splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue  # torn by a kill or a full disk; its step is written again
        if isinstance(line, dict):
            lines.append(line)
    return lines


def _cut(path: Path, step: int) -> int:
    """Drop the lines after a step, and torn ones; says how many are gone."""
    if not path.exists():
        return 0
    content = path.read_bytes()
    kept = [line for line in sound(content) if line.get("step", 0) <= step]
    dropped = len(content.splitlines()) - len(kept)
    if dropped or not content.endswith(b"\n"):
        write_atomically(path, "".join(json.dumps(line) + "\n" for line in kept))
    return dropped


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value


def _board(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise TrainError(
            "train.tensorboard = true needs TensorBoard: pip install 'foveate[track]', or leave "
            "it out; log.jsonl holds the same figures"
        ) from error
    return SummaryWriter(str(folder), purge_step=step + 1)
