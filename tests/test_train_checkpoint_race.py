"""Weights that a training replaces while they are read are chosen anew."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from foveate.train.checkpoint import MANIFEST, WEIGHTS, path_of, read_chosen


def put(run: Path, step: int) -> Path:
    folder = path_of(run, step)
    folder.mkdir(parents=True)
    for name in (WEIGHTS, MANIFEST):
        (folder / name).write_text(str(step))
    (run / "best.json").write_text(json.dumps({"folder": folder.relative_to(run).as_posix()}))
    return folder


def test_a_replaced_checkpoint_is_chosen_anew(tmp_path: Path) -> None:
    first = put(tmp_path, 1)

    def read(folder: Path) -> str:
        if folder == first:
            put(tmp_path, 2)
            shutil.rmtree(first)
        return (folder / WEIGHTS).read_text()

    assert read_chosen(tmp_path, "best", read) == (path_of(tmp_path, 2), "2")


def test_what_is_wrong_with_the_chosen_one_is_said(tmp_path: Path) -> None:
    put(tmp_path, 1)

    def read(folder: Path) -> str:
        raise ValueError(f"{folder} is of another model")

    with pytest.raises(ValueError, match="of another model"):
        read_chosen(tmp_path, "best", read)
