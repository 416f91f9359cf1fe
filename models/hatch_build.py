"""A wheel of the models has every file of theirs, or is not built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAMES = ("en-fr", "fr-en")
LARGEST = 12_000_000  # bytes of a file


class BuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Looks for the packed files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Raise ``RuntimeError`` naming a file that is missing or too large."""
        for name in NAMES if version != "editable" else ():
            file = Path(self.root) / f"src/foveate_models/files/{name}.safetensors"
            if not file.is_file():
                raise RuntimeError(f"{file} is not there: make models trains and packs it")
            if (size := file.stat().st_size) > LARGEST:
                raise RuntimeError(f"{file} has {size:,} bytes; at most {LARGEST:,}")
