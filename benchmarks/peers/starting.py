"""How an adapter is started: the same threads for everyone, no network, no GPU."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from environments import BUILD, HERE, OWN, ROOT


def command(peer: str, python: Path, what: str, **options: Any) -> list[str]:
    """``adapters/peer_NAME.py WHAT --data … --NAME VALUE …`` in the peer's own environment."""
    chosen = {"data": BUILD / "data"} | options
    words = [word for name, value in chosen.items() for word in (f"--{name}", str(value))]
    return [str(python), str(HERE / "adapters" / f"peer_{peer}.py"), what, *words]


def environment(peer: str, threads: int) -> dict[str, str]:
    """The variables that it finds."""
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}
    counts = {f"{name}_NUM_THREADS": str(threads) for name in ("OMP", "MKL")}
    source = {"PYTHONPATH": str(ROOT / "src") if peer == OWN else ""}
    return os.environ | quiet | counts | source | {"CUDA_VISIBLE_DEVICES": ""}
