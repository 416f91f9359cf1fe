"""What looking costs, and what it costs when nobody looks: python benchmarks/unseen.py [--rounds 8]

The same steps of *small*, forward and backward, in turn: as they are; with the lines on taps taken
out of `foveate.nn.attention`; and with somebody looking (`foveate.look.records`). Processor time on
one thread; ratios are of the same batch in the same round. Writes docs/results/unseen.json.
"""

from __future__ import annotations

import inspect
import statistics
import textwrap
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import torch

import harness
from foveate.bench.training import workload
from foveate.data.batches import BatchPlan
from foveate.look.records import capture
from foveate.nn import attention
from foveate.nn.attention import Attention
from foveate.training import job_of

BATCHES = 4
TAPS = {"self.tap is not None": "False", "self.tap is None": "True"}


def without_taps() -> Callable[..., Any]:
    """The one method of `Attention` that has them, compiled as if nobody could ever look."""
    source = textwrap.dedent(inspect.getsource(Attention._mix))
    for output, never in TAPS.items():
        assert output in source, f"nothing in it says {output!r}"
        source = source.replace(output, never)
    result: dict[str, Any] = {}
    exec(source, vars(attention), result)
    made: Callable[..., Any] = result["_mix"]
    return made


def main(rounds: int = 8) -> None:
    torch.set_num_threads(1)
    method = without_taps()
    with workload("small") as work:
        model = work.model().train()
        job = job_of(work.config, work.task, model)
        plan = BatchPlan(work.task.lengths("train"), 4096, 1).epoch(0)[:BATCHES]
        batches = [work.task.batch("train", rows.tolist()) for rows in plan]
    ways: dict[str, Callable[[], Any]] = {
        "as it is": nullcontext,
        "without the lines on taps": lambda: patch.object(Attention, "_mix", method),
        "somebody looks": lambda: capture(model),
    }
    seconds: dict[str, list[float]] = {route: [] for route in ways}
    for turn in range(-1, rounds):  # the first warms up
        for batch in batches:
            order = list(ways)[turn % len(ways) :] + list(ways)[: turn % len(ways)]
            for route in order:  # nobody is always the first
                model.zero_grad()
                torch.manual_seed(turn)
                began = time.process_time()
                with ways[route]():
                    job.task.loss(model, batch, job.objective).total.backward()
                if turn >= 0:
                    seconds[route].append(time.process_time() - began)
    plain = seconds["as it is"]
    ratios = {
        route: [item / other for item, other in zip(spent, plain, strict=True)]
        for route, spent in seconds.items()
        if route != "as it is"
    }
    result = {
        "steps": len(plain),
        "median_seconds": {route: round(statistics.median(s), 4) for route, s in seconds.items()},
        "ratio_to_as_it_is": {
            route: {
                "median": round(statistics.median(results), 4),
                "quartiles": [round(q, 4) for q in statistics.quantiles(results, n=4)[::2]],
            }
            for route, results in ratios.items()
        },
    }
    print(harness.write("unseen", result).read_text(encoding="utf-8"))


if __name__ == "__main__":
    harness.run(main)
