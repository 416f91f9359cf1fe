"""What the browser runs goes into wheel and sdist, and into a wheel for a platform the engine.

FOVEATE_WHEEL names the platform of a wheel as its tag does; without it a wheel is for every
platform, and compiles the engine where it is first used. ``make wheels`` builds one for each.
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILT = (
    "src/foveate/draw/widget.js", "src/foveate/draw/publish.js", "src/foveate/draw/publish.css",
    "src/foveate/server/static/index.html",
)  # fmt: skip
BUILDING = "src/foveate/engine/building.py"
ZIG = "ziglang==0.17.1"  # one version, so that a wheel has the same bytes wherever it is built
X86 = ("sse4", "avx2", "avxvnni", "avx512vnni")
ARM = ("neon", "dotprod")
PLATFORMS = {  # what zig calls it, and the instruction sets that are compiled
    "manylinux_2_17_x86_64": ("x86_64-linux-gnu.2.17", (*X86, "amx")),
    "manylinux_2_17_aarch64": ("aarch64-linux-gnu.2.17", ARM),
    "musllinux_1_2_x86_64": ("x86_64-linux-musl", (*X86, "amx")),
    "musllinux_1_2_aarch64": ("aarch64-linux-musl", ARM),
    "macosx_11_0_x86_64": ("x86_64-macos.11.0", X86),
    "macosx_11_0_arm64": ("aarch64-macos.11.0", ARM),
    "win_amd64": ("x86_64-windows-gnu", X86),
}


def libraries(platform: str, folder: Path) -> list[Path]:
    """The engine for every instruction set of a platform, and the probe, made in a folder.

    Raises ``CalledProcessError`` where zig fails.
    """
    command = runpy.run_path(str(Path(__file__).parent / BUILDING))["command"]
    target, sets = PLATFORMS[platform]
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", target, "-s"]
    suffix, files = ".dll" if platform.startswith("win") else ".so", []
    for name in ("probe", *(f"engine-{each}" for each in sets)):
        files.append(folder / f"{name}{suffix}")
        # macOS writes the path of a library into it: the folder is another in every build
        own = [f"-Wl,-install_name,{files[-1].name}"] if "macos" in target else []
        subprocess.run(command([*compiler, *own], name, files[-1]), check=True)
    return files


def web_libraries(folder: Path) -> list[Path]:
    """The engine for browsers, with SIMD and without. Raises ``CalledProcessError``."""
    building = runpy.run_path(str(Path(__file__).parent / BUILDING))
    files = [folder / f"{name}.wasm" for name in building["WEB"]]
    for file in files:
        zig = [sys.executable, "-m", "ziglang", "cc"]
        subprocess.run(building["web_command"](zig, file.stem, file), check=True)
    return files


class BuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs npm and zig before packing; an editable install has no need of them."""

    def dependencies(self) -> list[str]:
        """What a build of a wheel for a platform needs."""
        return [ZIG] if os.environ.get("FOVEATE_WHEEL") else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build what is missing. Raises ``RuntimeError`` where nothing can build it."""
        if version == "editable":
            return
        platform = os.environ.get("FOVEATE_WHEEL")
        if platform and platform not in PLATFORMS:
            known = ", ".join(PLATFORMS)
            raise RuntimeError(f"FOVEATE_WHEEL={platform}: no such platform; name one of {known}")
        self._build_web()
        if not platform or self.target_name != "wheel":
            return
        self._made = Path(tempfile.mkdtemp())
        for file in libraries(platform, self._made) + web_libraries(self._made):
            build_data["force_include"][str(file)] = f"foveate/engine/libraries/{file.name}"
        build_data["pure_python"], build_data["tag"] = False, f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what has been packed."""
        if made := getattr(self, "_made", None):
            shutil.rmtree(made)

    def _build_web(self) -> None:
        root = Path(self.root)
        missing = [name for name in BUILT if not (root / name).is_file()]
        if not missing:
            return
        npm = shutil.which("npm")
        if npm is None:
            raise RuntimeError(
                f"{', '.join(missing)} not built, and no npm to build with: install Node 20.19 or "
                "newer, or install foveate from a wheel, or editable (pip install -e .)"
            )
        for command in (["ci", "--no-audit", "--no-fund"], ["run", "build"]):
            subprocess.run([npm, *command], cwd=root / "web", check=True)
