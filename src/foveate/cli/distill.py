"""Distillation by sequences: what a teacher's beam search says becomes what a student learns.

    L(student) = −log p(ŷ | x),   ŷ ≈ argmax_y p_teacher(y | x)        (Kim & Rush, 2016)

Lives here: writing the teacher's outputs as data. Does not live here: training the student, which
is a plain config whose ``task.source`` is ``OUT/{split}.jsonl``.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from foveate.config import ConfigError
from foveate.data.catalogue import DataError
from foveate.files import replace_file
from foveate.run import Run

CHUNK = 500  # sources that are searched together; a run that was stopped goes on at a whole chunk

Pair = tuple[str, str]


def distill(
    run: Run, out: Path, search: dict[str, Any], progress: Callable[[int, int], None] | None = None
) -> list[str]:
    """Write the teacher's data as ``out/train.jsonl``, and the true valid and test beside it.

    As many lines as training pairs, in their order. A folder that was begun by the same teacher
    with the same ``search`` goes on; the file takes its name when it is whole. Gives what to say.
    Raises ``ConfigError`` where the folder holds the beginning of other data.
    """
    out.mkdir(parents=True, exist_ok=True)
    done = out / "train.jsonl"
    if done.exists():
        raise ConfigError(f"{done} is there already; remove it, or choose another folder")
    sources, _ = run.pairs("train")
    part = out / "train.jsonl.part"
    begun = _begun(part, _mark(run, search, sources))
    cut = 0
    with part.open("a", encoding="utf-8", newline="\n") as file:
        for start in range(begun, len(sources), CHUNK):
            chunk = sources[start : start + CHUNK]
            answers = run.translate(chunk, **search)
            cut += sum(answer.cut > 0 for answer in answers)
            file.writelines(_line((answer.source, str(answer))) for answer in answers)
            file.flush()
            os.fsync(file.fileno())
            if progress is not None:
                progress(start + len(chunk), len(sources))
    os.replace(part, done)
    part.with_suffix(".mark").unlink()
    said = [f"{len(sources):,} lines in {done}"]
    said += [f"{cut:,} sources longer than data.max_length were cut"] if cut else []
    said += [f"went on from line {begun + 1:,}"] if begun else []
    return said + [_true(run, out, split) for split in ("valid", "test")]


def _true(run: Run, out: Path, split: str) -> str:
    """The run's own pairs of a split, as they are."""
    try:
        pairs = list(zip(*run.pairs(split), strict=True))
    except DataError:
        return f"no {split} data: the run has none"
    replace_file(out / f"{split}.jsonl", "".join(map(_line, pairs)))
    return f"{len(pairs):,} true pairs in {out / f'{split}.jsonl'}"


def _line(pair: Pair) -> str:
    return json.dumps({"source": pair[0], "target": pair[1]}, ensure_ascii=False) + "\n"


def _mark(run: Run, search: dict[str, Any], sources: Sequence[str]) -> str:
    """What the data is a function of: the teacher, its search, the sources."""
    plain = [str(run.path.resolve()), run.checkpoint, sorted(search.items()), list(sources)]
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()


def _begun(part: Path, mark: str) -> int:
    """How many lines are there in whole chunks; the rest is cut off."""
    owner = part.with_suffix(".mark")
    if not owner.exists():
        part.unlink(missing_ok=True)
        replace_file(owner, mark)
    if owner.read_text(encoding="utf-8") != mark:
        raise ConfigError(
            f"{part} was begun by another teacher, with another search or other data; remove "
            f"{part.parent} or choose another folder"
        )
    lines = part.read_bytes().splitlines(keepends=True) if part.exists() else []
    whole = sum(line.endswith(b"\n") for line in lines) // CHUNK * CHUNK
    if lines:
        os.truncate(part, sum(map(len, lines[:whole])))  # what stays is never written again
    return whole
