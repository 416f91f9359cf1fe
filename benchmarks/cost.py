"""What the training of a run cost: read from its log by the scripts that judge runs."""

from __future__ import annotations

from typing import Any

from foveate.run import Run
from foveate.train.journal import read


def training(run: Run) -> dict[str, Any]:
    """What the training of a run cost, from its log."""
    log = read(run.path)
    steps = [line for line in log if line["event"] == "train"]
    start = next(line for line in log if line["event"] == "start")
    rates = sorted(line["tokens_per_second"] for line in steps)
    return {
        "minutes": round(steps[-1]["seconds"] / 60, 1),
        "steps": steps[-1]["step"],
        "epochs": steps[-1]["epoch"],
        "parameters": start["parameters"],
        "precision": start["precision"],
        "threads": start["threads"],
        "device": start["device"],
        "targets": steps[-1]["target_tokens"],
        "targets_per_second": rates[len(rates) // 2],
    }
