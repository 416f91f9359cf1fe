"""Packed files that earlier versions wrote answer as they did then, on every instruction set."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stored_models
from foveate.engine.compiled import FORCED, instruction_sets
from foveate.engine.packed import load
from small_runs import python
from test_packed import no_torch

FOLDERS = sorted((Path(__file__).parent / "packed").iterdir())  # the newest one last
LARGEST, ALL = 300_000, 1_500_000  # bytes of a file, and of a folder


def same(own: Any, stored: Any) -> bool:
    """The same texts and ids, and numbers that are nearly equal."""
    if isinstance(own, dict) and isinstance(stored, dict):
        return own.keys() == stored.keys() and all(same(own[key], stored[key]) for key in own)
    if isinstance(own, list) and isinstance(stored, list):
        return len(own) == len(stored) and all(map(same, own, stored))
    if isinstance(own, float) and isinstance(stored, float):
        return abs(own - stored) <= 1e-4
    return bool(own == stored)


@pytest.mark.parametrize("text", ["", " ", "\n", "\t "])
@pytest.mark.parametrize("path", sorted(FOLDERS[-1].glob("*.safetensors")), ids=lambda p: p.stem)
def test_an_empty_line_is_explained_by_its_end(path: Path, text: str) -> None:
    record = load(path).explain(text)
    assert all(np.isfinite(weights).all() for weights in record.maps.values())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("instructions", instruction_sets())
def test_stored_files_answer_as_they_did(folder: Path, instructions: str, tmp_path: Path) -> None:
    """In a process that cannot import PyTorch."""
    environment = no_torch(tmp_path) | {FORCED: instructions}
    done = python("-m", "stored_models", folder, env=environment)
    assert not done.returncode, done.stderr
    own, stored = json.loads(done.stdout), json.loads((folder / stored_models.ANSWERS).read_bytes())
    assert own.keys() == stored.keys()
    assert not [name for name in own if not same(own[name], stored[name])]


def test_the_newest_folder_has_a_small_file_of_each_family() -> None:
    folder = FOLDERS[-1]
    sizes = {file.stem: file.stat().st_size for file in folder.glob("*.safetensors")}
    assert sizes.keys() == stored_models.configs().keys()
    assert max(sizes.values()) <= LARGEST and sum(sizes.values()) <= ALL
    with pytest.raises(FileExistsError):
        stored_models.write(folder)
