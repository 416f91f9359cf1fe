"""What the browser runs goes into wheel and sdist: built from web/ where it is not there yet."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILT = ("src/foveate/draw/widget.js", "src/foveate/server/static/index.html")


class BuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs npm before packing; an editable install has no need of it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build what is missing. Raises ``RuntimeError`` where there is no npm to build it with."""
        root = Path(self.root)
        missing = [name for name in BUILT if not (root / name).is_file()]
        if version == "editable" or not missing:
            return
        npm = shutil.which("npm")
        if npm is None:
            raise RuntimeError(
                f"{', '.join(missing)} not built, and no npm to build with: install Node 20.19 or "
                "newer, or install foveate from a wheel, or editable (pip install -e .)"
            )
        for command in (["ci", "--no-audit", "--no-fund"], ["run", "build"]):
            subprocess.run([npm, *command], cwd=root / "web", check=True)
