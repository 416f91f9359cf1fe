"""How ``foveate serve`` loads runs, and how many batches it computes at a time."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from foveate.config import ConfigError
from foveate.run import device
from foveate.server.launch import RunLoader
from foveate.verbs.decoding import PRECISIONS
from foveate.verbs.export import ENGINES
from foveate.verbs.staff import load_with_processes


def run_loader(
    precision: str = "fp32",
    engine: str = "torch",
    sample: Path | None = None,
    processes: int = 0,
) -> RunLoader:
    """How runs are loaded. Raises ``ConfigError`` naming the precisions and engines there are."""
    for what, name, known in (
        ("precision", precision, PRECISIONS), ("engine", engine, ENGINES)
    ):  # fmt: skip
        if name not in known:
            raise ConfigError(f"no {what} {name!r}; there are: {', '.join(known)}")
    load = partial(
        load_with_processes,
        processes=processes,
        precision=precision,
        engine=engine,
        sample=None if sample is None else str(sample),
    )
    return RunLoader(load, 1 + processes, engine != "torch")


def batch_threads(threads: int | None, processes: int = 0) -> int:
    """How many batches are computed at a time, one thread each; on a GPU it is one.

    Threads that share a batch wait for each other at every step.
    """
    if device() != "cpu":
        return 1
    count = threads or processes or torch.get_num_threads()
    torch.set_num_threads(1)
    return count
