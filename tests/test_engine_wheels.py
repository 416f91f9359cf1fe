"""A wheel for a platform holds the engine for its instruction sets, and runs it as it is."""

import importlib.util
import os
import platform
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import hatch_build
import pytest
from hatchling.builders.wheel import WheelBuilder

from foveate.engine.building import SETS, SIGNATURES, WEB
from foveate.engine.compiled import instruction_sets
from foveate.system import c_compiler

ROOT = Path(__file__).parent.parent
# where it is the only compiler, `make test` has installed it, and has no need of wheels
HAS_ZIG = importlib.util.find_spec("ziglang") is not None and bool(c_compiler())
NO_ZIG = "no zig: pip install ziglang"
OURS = f"manylinux_2_17_{platform.machine()}"
BEGINS = {  # what the library of a platform begins with, and where its processor stands
    "manylinux_2_17_x86_64": (b"\x7fELF", 18, b"\x3e\0"),
    "manylinux_2_17_aarch64": (b"\x7fELF", 18, b"\xb7\0"),
    "musllinux_1_2_x86_64": (b"\x7fELF", 18, b"\x3e\0"),
    "musllinux_1_2_aarch64": (b"\x7fELF", 18, b"\xb7\0"),
    "macosx_11_0_x86_64": (b"\xcf\xfa\xed\xfe", 4, b"\x07\0\0\x01"),
    "macosx_11_0_arm64": (b"\xcf\xfa\xed\xfe", 4, b"\x0c\0\0\x01"),
    "win_amd64": (b"MZ", 0, b"MZ"),
}
NEEDED = rb"(?<=[\0/])(?:lib[\w.+-]+\.(?:so|dylib)|\w[\w-]*\.dll)[\w.]*"
SYSTEM = {"libc.so.6", "libm.so.6", "libc.so", "libSystem.B.dylib", "KERNEL32.dll"}
RUN = """
from foveate.engine.compiled import loaded
from foveate.system import c_compiler
print(loaded().functions.instruction_set().decode(), loaded().functions._name)
"""


def test_a_platform_that_is_unknown_is_refused(monkeypatch, tmp_path) -> None:
    for target, sets in hatch_build.PLATFORMS.values():
        assert set(sets) <= set(SETS) and target
    monkeypatch.setenv("FOVEATE_WHEEL", "amiga")
    with pytest.raises(RuntimeError, match="FOVEATE_WHEEL=amiga: no such platform; name one of"):
        list(WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))


@pytest.mark.slow
@pytest.mark.skipif(not HAS_ZIG, reason=NO_ZIG)
@pytest.mark.skipif(
    not all((ROOT / name).is_file() for name in hatch_build.BUILT),
    reason="what the browser runs is not built: make web",  # no test calls npm
)
@pytest.mark.skipif(OURS not in hatch_build.PLATFORMS, reason="runs on Linux alone")
def test_a_wheel_is_reproducible_and_needs_no_compiler(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("FOVEATE_WHEEL", OURS)
    made = []
    for each in ("first", "second"):  # from nothing: zig keeps what it has compiled
        monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(tmp_path / f"zig-{each}"))
        made += WheelBuilder(str(ROOT)).build(directory=str(tmp_path / each), versions=["standard"])
    wheel, second = map(Path, made)
    assert wheel.name.endswith(f"-py3-none-{OURS}.whl")
    assert wheel.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "installed")
    [described] = (tmp_path / "installed").glob("*.dist-info/WHEEL")
    assert f"Root-Is-Purelib: false\nTag: py3-none-{OURS}\n" in described.read_text("utf-8")
    page = ["look/draw/publish.js", "look/draw/publish.css"]
    page += [f"engine/libraries/{name}.wasm" for name in WEB]
    assert all((tmp_path / "installed" / "foveate" / name).is_file() for name in page)
    kept = ("PATH", "HOME", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {"CC": "/nowhere", "XDG_CACHE_HOME": str(tmp_path)}
    environment["PYTHONPATH"] = str(tmp_path / "installed")
    for name in {*instruction_sets()} & {*hatch_build.PLATFORMS[OURS][1]}:
        command = [sys.executable, "-c", RUN]
        done = subprocess.run(command, env=environment | {"FOVEATE_ISA": name}, check=True,
                              capture_output=True, text=True, cwd=tmp_path)  # fmt: skip
        runs, path = done.stdout.split()
        assert runs == name
        assert path.startswith(str(tmp_path / "installed" / "foveate" / "engine" / "libraries"))


@pytest.mark.slow
@pytest.mark.skipif(not HAS_ZIG, reason=NO_ZIG)
@pytest.mark.parametrize("name", hatch_build.PLATFORMS)
def test_a_library_is_of_its_platform_and_needs_the_system_alone(name: str, tmp_path: Path) -> None:
    magic, place, processor = BEGINS[name]
    probe, *engines = hatch_build.libraries(name, tmp_path)
    assert b"instruction_sets\0" in probe.read_bytes()
    for file in engines:
        content = file.read_bytes()
        assert str(tmp_path).encode() not in content  # so that its bytes are the same twice
        assert content.startswith(magic) and content[place:].startswith(processor)
        assert all(function.encode() + b"\0" in content for function in SIGNATURES)
        needed = re.findall(NEEDED, content)
        others = {library.decode() for library in needed} - SYSTEM - {file.name}
        assert not {o for o in others if not o.startswith("api-ms-win-crt-")}
