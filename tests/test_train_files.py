"""Folders are whole or not there, whatever strikes while they are written."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from foveate.train.checkpoint import (
    DamagedError,
    TrainError,
    clean,
    remove,
    sealed_folder,
    verify,
    write_atomically,
)


def fill(target: Path, text: str) -> None:
    with sealed_folder(target) as folder:
        (folder / "a.txt").write_text(text)
        (folder / "b.txt").write_text("b" * 100)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 1 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.name == "nt" or shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this machine mounts no tmpfs")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_sealed_folder_verifies_and_replaces_the_one_before(tmp_path: Path) -> None:
    fill(tmp_path / "x", "one")
    fill(tmp_path / "x", "two")
    verify(tmp_path / "x")
    assert (tmp_path / "x" / "a.txt").read_text() == "two"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("damage", ["truncate", "flip", "missing", "manifest", "empty manifest"])
def test_damage_is_named(tmp_path: Path, damage: str) -> None:
    fill(tmp_path / "x", "one")
    file = tmp_path / "x" / ("manifest.json" if "manifest" in damage else "b.txt")
    content = file.read_bytes()
    if damage == "flip":
        file.write_bytes(content[:50] + bytes([content[50] ^ 1]) + content[51:])
    elif damage == "missing":
        file.unlink()
    else:
        file.write_bytes(b"" if damage == "empty manifest" else content[:60])
    reasons = {"truncate": "60 bytes instead of 100", "flip": "sha256", "missing": "is missing"}
    with pytest.raises(DamagedError, match=reasons.get(damage, "cannot be read")) as error:
        verify(tmp_path / "x")
    assert str(file) in str(error.value)


def test_what_fails_on_the_way_leaves_the_old_folder_and_no_new_one(tmp_path: Path) -> None:
    fill(tmp_path / "x", "one")
    with pytest.raises(KeyboardInterrupt), sealed_folder(tmp_path / "x") as folder:
        (folder / "a.txt").write_text("two")
        raise KeyboardInterrupt
    verify(tmp_path / "x")
    assert (tmp_path / "x" / "a.txt").read_text() == "one"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_full_disk_is_named_and_what_was_there_is_kept(small_disk: Path) -> None:
    fill(small_disk / "x", "one")
    with pytest.raises(TrainError) as error, sealed_folder(small_disk / "y") as folder:
        (folder / "big").write_bytes(bytes(2**21))
    message = str(error.value)
    assert str(small_disk / "y") in message and os.strerror(errno.ENOSPC) in message
    assert "It takes at least" in message and "MiB are free in" in message
    verify(small_disk / "x")
    assert [p.name for p in small_disk.iterdir()] == ["x"]


def test_a_file_on_a_full_disk_keeps_its_old_text(small_disk: Path) -> None:
    write_atomically(small_disk / "f", "old")
    with pytest.raises(TrainError, match=os.strerror(errno.ENOSPC)):
        write_atomically(small_disk / "f", "x" * 2**21)
    assert (small_disk / "f").read_text() == "old"
    assert [p.name for p in small_disk.iterdir()] == ["f"]


def test_clean_undoes_what_a_kill_left(tmp_path: Path) -> None:
    fill(tmp_path / "whole", "kept")
    shutil.copytree(tmp_path / "whole", tmp_path / ".old-whole")  # killed before it was removed
    shutil.copytree(tmp_path / "whole", tmp_path / ".old-moved")  # killed between two renames
    (tmp_path / ".new-half").mkdir()
    (tmp_path / ".new-file").write_text("half")
    clean(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["moved", "whole"]
    verify(tmp_path / "moved")


def test_what_a_kill_left_is_in_nobodys_way(tmp_path: Path) -> None:
    fill(tmp_path / "whole", "first")
    shutil.copytree(tmp_path / "whole", tmp_path / ".old-whole")  # killed before it was removed
    fill(tmp_path / "whole", "second")
    assert [p.name for p in tmp_path.iterdir()] == ["whole"]
    verify(tmp_path / "whole")


def test_removing_leaves_nothing(tmp_path: Path) -> None:
    fill(tmp_path / "x", "one")
    remove(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
