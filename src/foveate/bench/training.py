"""Target tokens a second in training, measured on the trainer itself: nothing is written anew.

`foveate.train.fit.fit` trains four times in a folder that is thrown away. A few steps to warm up;
then for the time wanted, read from the run's own log with a line for each step; then a few steps
under the profiler, and as many under a counter of products, on the road on which PyTorch sees all.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from foveate.bench.machine import ceilings, describe, peak
from foveate.bench.products import counting, shares
from foveate.bench.workload import Workload
from foveate.native.kernels import without_kernels
from foveate.run import device
from foveate.train.config import SaveConfig, ValidationConfig
from foveate.train.fit import fit
from foveate.train.journal import read
from foveate.train.precision import Precision, resolve
from foveate.training import job_of

COUNTED = 5  # steps to warm up, under the profiler, and under the counter
WARM = 3  # steps of the measured training that are left out
LEAST = 2  # steps that are measured at least
ENDLESS = 10**9  # steps of a training that ends by the clock; schedules may ask for a number
Steps = list[dict[str, Any]]  # lines of the log, one for each step


def measure(work: Workload, seconds: float, quick: bool = False) -> dict[str, Any]:
    """Speed, utilisation and memory of training for ``seconds``, or of `LEAST` steps if longer.

    ``quick`` leaves out the shares of time.
    """
    place = device()
    before = ceilings(1.0, place)
    precision = resolve(work.config.train.precision, place)
    model = work.model()
    # a training's clock also counts what comes before its steps
    prepared = train(work, model, precision, steps=COUNTED)[0]["seconds"]
    steps = train(work, model, precision, minutes=(seconds + prepared) / 60)
    if len(steps) < WARM + LEAST:
        steps = train(work, model, precision, steps=WARM + LEAST)
    peak_mib = peak(place)
    parts: dict[str, float] = {}
    if not quick:
        with shares() as parts:
            train(work, model, precision, steps=COUNTED)
    with counting() as counted, without_kernels():
        seen = train(work, model, resolve("fp32", place), steps=COUNTED)
    flops = counted.total / seen[-1]["target_tokens"]
    rate = rates(steps)
    done = rate["target_tokens_per_second"] * flops / 1e9
    after = ceilings(1.0, place)
    limits = {name: max(before[name], after[name]) for name in before}
    return {
        "what": "training",
        **work.said(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "precision": precision.name,
        "precision_why": precision.why,
        **rate,
        "padding_share": round(work.padding(), 4),
        "peak_memory_mib": peak_mib,
        "flops_per_target_token": round(flops),
        "product_gflops": round(done, 1),
        "utilisation": {name: round(done / limit, 3) for name, limit in limits.items()},
        "time_shares": parts,
        "ceilings_gflops": {"before": before, "after": after},
        "machine": describe(),
    }


def train(
    work: Workload,
    model: torch.nn.Module,
    precision: Precision,
    steps: int | None = None,
    minutes: float | None = None,
) -> Steps:
    """Train as ``foveate train`` does, without validation; the log's line of each step."""
    limits = {
        "max_steps": steps or ENDLESS,
        "max_minutes": minutes,
        "max_epochs": None,
        "precision": precision.name,
        "log_every": 1,
        "average": None,
        "tensorboard": False,
        "save": SaveConfig(every=None, every_minutes=None, keep=1),
        "validation": ValidationConfig(every=None),
    }
    config = work.config.train.model_copy(update=limits)
    with tempfile.TemporaryDirectory(prefix="foveate-bench-") as folder:
        fit(job_of(work.config, work.task, model), config, Path(folder))
        return [line for line in read(Path(folder)) if line["event"] == "train"]


def rates(steps: Steps) -> dict[str, Any]:
    """Real target tokens a second by the wall clock after the warm-up, and the median step's."""
    start, kept = steps[WARM - 1], steps[WARM:]
    spent = kept[-1]["seconds"] - start["seconds"]
    tokens = kept[-1]["target_tokens"] - start["target_tokens"]
    each = sorted(line["tokens_per_second"] for line in kept)
    return {
        "target_tokens_per_second": round(tokens / max(spent, 1e-9), 1),
        "target_tokens_per_second_median_step": each[len(each) // 2],
        "steps": len(kept),
        "seconds": round(spent, 2),
    }
