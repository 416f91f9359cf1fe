"""What a figure was measured on, and where figures go."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent.parent / "docs" / "results"


def product_rate(dtype: torch.dtype, size: int = 2048, seconds: float = 1.0) -> float:
    """GFLOP/s of square matrix products, the best of those done in the time."""
    a = torch.randn(size, size).to(dtype)
    best, until = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < until:
        started = time.perf_counter()
        _ = a @ a
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best / 1e9


def describe() -> dict[str, Any]:
    """Machine, versions, commit and the ceilings of the moment."""
    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="utf-8").splitlines()
        cpu = next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), cpu)
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": commit.stdout.strip(),
        "load_before": round(os.getloadavg()[0], 2),
        "fp32_gflops": round(product_rate(torch.float32), 1),
        "bf16_gflops": round(product_rate(torch.bfloat16), 1),
    }


def write(name: str, result: dict[str, Any]) -> Path:
    """Put a result beside the others as JSON."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path
