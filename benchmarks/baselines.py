"""What `foveate new` trains as it stands, beside baselines of seconds, on test data.

    python benchmarks/baselines.py WORK BANKING [--json docs/results/baselines.json]

WORK keeps configs and runs; BANKING holds train.csv and test.csv of BANKING77 (PolyAI-LDN,
task-specific-datasets, CC BY 4.0). SST-2 and ETTh1 lie in FOVEATE_DATA. What validates is taken
from the training data or is a file of its own, never the test data.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import harness

MINUTES = 5  # that a training takes at most


def measured(name: str, data: Path | str, work: Path) -> dict[str, Any]:
    """Config, training and evaluation of one file by three commands, as a newcomer types them."""
    config, run = work / f"{name}.toml", work / name
    if not config.exists():
        new = harness.foveate("new", "auto", data, "--out", config, "--minutes", MINUTES)
        subprocess.run(new, check=True)
    harness.trained(run, config)
    tree = harness.evaluated(run, "--threads", 1)
    [ended] = harness.logged(run, "end")
    result = {part: tree[part] for part in ("examples", "figures", "baseline")}
    print(name, result, flush=True)
    written = config.read_text("utf-8").replace(f"{Path(data).parent}/", "")
    return result | {"training": ended, "config": written}


def main(work: Path, banking: Path, json: Path | None = None) -> None:
    """Three data sets, each with the figures of the model and of the baseline."""
    work.mkdir(parents=True, exist_ok=True)
    files: dict[str, Path | str] = {
        "banking77": banking / "train.csv",
        "sst2": "sst2/train.tsv.gz",
        "etth1": "time-series/ETTh1.csv.gz",
    }
    harness.write("baselines", {n: measured(n, file, work) for n, file in files.items()}, json)


if __name__ == "__main__":
    harness.run(main)
