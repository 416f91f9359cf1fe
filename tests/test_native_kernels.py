"""The native library where it cannot be built: everything works, and what went wrong is said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from foveate.native.kernels import _loaded, library


@pytest.fixture
def anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A cache without a library."""
    monkeypatch.setattr("foveate.native.kernels.cache_folder", lambda: tmp_path)
    _loaded.cache_clear()
    yield
    _loaded.cache_clear()


@pytest.mark.usefixtures("anew")
def test_without_a_compiler_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    assert library() is None
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("anew")
def test_a_compiler_that_fails_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'kernels.c:1: error: no such thing' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    assert library() is None and library() is None
    output = capsys.readouterr().err
    assert output.count("native kernels were not built") == 1 and "no such thing" in output
