"""Differences between machines: processors, loaded libraries, system files, the C compiler."""

import contextlib
import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from foveate.errors import UserError
from foveate.files import cache_folder

SECONDS = 300  # time limit of a compiler


class LibraryError(UserError):
    """A C library is missing, cannot be compiled, or is not the requested one."""


def processors() -> int:
    """Return the number of processors that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)  # absent on macOS and Windows
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def loaded_libraries() -> ctypes.CDLL | None:
    """Return the functions of all loaded libraries; None on Windows, which has no such search."""
    return None if sys.platform == "win32" else ctypes.CDLL(None)


def system_text(path: str) -> str:
    """Return the text of a small file of Linux; "" if it does not exist."""
    with contextlib.suppress(OSError):
        return Path(path).read_text(encoding="utf-8", errors="replace")
    return ""


def system_field(path: str, *names: str) -> str:
    """Return the value of the first line ``NAME: VALUE`` with one of the names, else ""."""
    lines = (line.partition(":") for line in system_text(path).split("\n"))
    return next((value.strip() for name, _, value in lines if name.strip() in names), "")


def free_memory() -> int | None:
    """Return the free bytes of memory within the limit of the control group, if known."""
    available = system_field("/proc/meminfo", "MemAvailable")
    free = int(available.split()[0]) * 1024 if available else None
    limit, used = (system_text(f"/sys/fs/cgroup/memory.{each}") for each in ("max", "current"))
    if free is not None and limit.strip().isdigit() and used.strip().isdigit():
        free = min(free, max(0, int(limit) - int(used)))
    return free


def processor_flags() -> str:
    """Return the instruction sets of the processor as Linux lists them; "" elsewhere."""
    return system_field("/proc/cpuinfo", "flags", "Features")


def processor_name() -> str:
    """Return the model of the processor, or its architecture."""
    return system_field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()


def c_compiler() -> list[str]:
    """Return the command of a C compiler: CC, or the first installed one; [] without any."""
    if named := os.environ.get("CC"):
        return shlex.split(named, posix=os.name != "nt")
    return [path for path in map(shutil.which, ("cc", "gcc", "clang")) if path][:1]


def compiled(
    name: str, sources: Iterable[Path], commands: Callable[[Path], Sequence[Sequence[str]]]
) -> Path:
    """Return a cached file that commands build from sources, building it at the first use.

    Raises `LibraryError` if a command fails, and ``OSError`` if it or the cache is missing.
    """
    words = [word for command in commands(Path(name)) for word in command]
    own = processor_flags() if {"-march=native", "-mcpu=native"} & {*words} else ""
    inputs = [path.read_bytes() for path in sources]
    inputs += map(str.encode, (*words, platform.machine(), own))
    key = hashlib.sha256(b"\0".join(inputs)).hexdigest()[:16]
    path = cache_folder() / "native" / f"{Path(name).stem}-{key}{Path(name).suffix}"
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        file = Path(folder) / path.name
        try:
            for command in commands(file):
                subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
        except subprocess.SubprocessError as error:
            lines = (getattr(error, "stderr", None) or b"").decode(errors="replace").split("\n")
            why = next((line.strip() for line in lines if "error" in line), str(error))
            raise LibraryError(f"{words[0]} does not compile {Path(name).stem}: {why}") from error
        os.replace(file, path)
    if sys.stderr.isatty():
        print(f"compiled {path} in {time.perf_counter() - started:.0f} s", file=sys.stderr)
    return path
