"""Wheels and the sdist hold what the browser runs; a wheel for a platform holds the engine too.

FOVEATE_WHEEL names the platform of a wheel as its tag does; without it a wheel is for every
platform, and compiles the engine where it is first used. Such a wheel is also built without Node,
and a warning names what it lacks then. ``make wheels`` builds one for each platform.
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

BUILT = {  # what is built from web/, and what runs it
    "src/foveate/studio/static/index.html": "page of `foveate studio`",
    "src/foveate/look/draw/publish.js": "script of `foveate publish`",
    "src/foveate/look/draw/publish.css": "style of `foveate publish`",
    "src/foveate/look/draw/publish.train.js": "script of `foveate publish --train`",
    "src/foveate/look/draw/publish.train.css": "style of `foveate publish --train`",
    "src/foveate/look/draw/widget.js": "live views in notebooks",
}
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
        """Build what is missing. Raises ``RuntimeError`` if a platform's wheel would lack it."""
        if version == "editable":
            return
        platform = os.environ.get("FOVEATE_WHEEL")
        if platform and platform not in PLATFORMS:
            known = ", ".join(PLATFORMS)
            raise RuntimeError(f"FOVEATE_WHEEL={platform}: no such platform; name one of {known}")
        self._build_web(optional=not platform)
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

    def _build_web(self, optional: bool) -> None:
        """Build what the browser runs; where that fails and is ``optional``, warn of what lacks."""
        root, reason = Path(self.root), ""
        if all((root / name).is_file() for name in BUILT):
            return
        npm = shutil.which("npm")
        try:
            for command in (["ci", "--no-audit", "--no-fund"], ["run", "build"]):
                subprocess.run([npm or "npm", *command], cwd=root / "web", check=True)
        except OSError:
            reason = "npm is not installed"
        except subprocess.CalledProcessError as error:
            reason = f"`npm {command[0]}` failed with exit code {error.returncode}"
        lacking = [what for name, what in BUILT.items() if not (root / name).is_file()]
        if not lacking:
            return
        message = (
            f"{reason or 'npm has not built them'}, so this build has no {', no '.join(lacking)}. "
            "Install Node 20.19 or newer and build again to include them"
        )
        if not optional:
            raise RuntimeError(message)
        self.app.display_warning(f"warning: {message}; everything else works without Node.")
