"""What a figure was measured on, and how fast this machine multiplies matrices at best."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from foveate.train.diagnose import peak_memory

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
SIZE = 2048  # rows and columns of the products; 512 and 4,096 are slower on the CPUs tried
MIB = 2**20


def product_rate(
    dtype: torch.dtype, seconds: float = 1.0, size: int = SIZE, device: str = "cpu"
) -> float:
    """GFLOP/s of square matrix products, 2·size³ each: the best of those done in the time."""
    a = torch.randn(size, size, device=device).to(dtype)
    best, until = float("inf"), time.perf_counter() + seconds
    _wait(a @ a)  # the first call chooses its kernel
    while best == float("inf") or time.perf_counter() < until:
        started = time.perf_counter()
        _wait(a @ a)
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best / 1e9


def ceilings(seconds: float = 1.0, device: str = "cpu") -> dict[str, float]:
    """GFLOP/s of the best matrix product by precision; what a model can reach at most."""
    return {
        name: round(product_rate(dtype, seconds, device=device), 1)
        for name, dtype in DTYPES.items()
    }


def describe() -> dict[str, Any]:
    """Machine, versions and commit (``None`` outside a git checkout)."""
    found: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": _commit(),
    }
    if hasattr(os, "getloadavg"):
        found["load_before"] = round(os.getloadavg()[0], 2)
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found


def resident() -> float | None:
    """MiB that the process holds in memory now; ``None`` where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def peak(device: str = "cpu") -> float | None:
    """The most MiB that the process (or on a GPU its tensors) held so far; ``None``: unknown."""
    return peak_memory(torch.device(device))


def _wait(result: torch.Tensor) -> None:
    if result.is_cuda:
        torch.cuda.synchronize(result.device)


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def _commit() -> str | None:
    """The commit of the checkout that this file is part of."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
        )  # fmt: skip
    except OSError:
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def start_method() -> str:
    """How processes of their own are begun: from a server where there is one, else anew."""
    return "spawn" if sys.platform == "win32" else "forkserver"
