"""Keeping freed memory: glibc takes both settings; elsewhere nothing is asked."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from foveate.train.fit import keep_freed_memory


def test_the_settings_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    libc: Any = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        pytest.skip("no glibc")
    said: list[int] = []

    class Watched:
        def mallopt(self, name: int, value: int) -> int:
            said.append(libc.mallopt(name, value))
            return said[-1]

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Watched())
    keep_freed_memory()
    assert said == [1, 1]


def test_another_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    keep_freed_memory()
