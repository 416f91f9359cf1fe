"""foveate itself, by the functions behind ``foveate bench``; runs in its own environment.

Modes are precisions: ``fp32``, ``bf16``, and ``auto``, what a user gets who says nothing. Decoding
knows ``int8`` as well, and ``fp32x2`` and ``int8x2``: two processes of one thread each.
"""

from __future__ import annotations

import dataclasses
import functools
import resource
from typing import Any

import common
import torch
from common import Job
from foveate_search import engine_of, forced_search, searching

from foveate.decode.engine import SearchRequest
from foveate.engine.packed import ChosenSearch
from foveate.measure import training
from foveate.measure.training import workload
from foveate.nn.recurrent import Cell, ElmanCell, GRUCell, LSTMCell
from foveate.nn.ssm import SelectiveStateSpace
from foveate.run.training import job_of
from foveate.train.fit import fit

SHAPES = {"tiny": "transformer-tiny"}
KEPT = ("parameters", "padding_share", "steps", "seconds", "flops_per_target_token", "utilisation")


def train(job: Job) -> dict[str, Any]:
    torch.set_num_threads(job.threads)
    chosen = [f"train.precision={job.mode}", f"train.batch_tokens={job.batch_tokens}"]
    with workload(SHAPES.get(job.shape, job.shape), chosen) as work:
        result = training.measure(work, job.seconds, quick=True)
    return {name: result[name] for name in KEPT} | {
        "target_tokens_per_second": result["target_tokens_per_second"],
        "peak_rss_mib": result["peak_memory_mib"],
        "computes": result["precision"],
        "versions": common.versions("foveate", "torch"),
        "batches": "its plan: like lengths, rows × longest ≤ 4,096",
    }


class Told:
    """A task whose every validation is told."""

    def __init__(self, task: Any, every: int) -> None:
        self.task, self.every, self.looks = task, every, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def measure(self, *inputs: Any, **choices: Any) -> Any:
        result = self.task.measure(*inputs, **choices)
        self.looks += 1
        common.look(self.every * self.looks, bleu=result.figures["bleu"])
        return result


def quality(job: Job) -> dict[str, Any]:
    """Train, with a look every so many steps; whoever reads them ends the process."""
    torch.set_num_threads(job.threads)
    chosen = [
        f"train.precision={job.mode}", f"train.batch_tokens={job.batch_tokens}",
        f"train.max_steps={common.MOST_STEPS}", f"train.validation.every={job.every}",
        f"train.optimizer.lr={common.BEST_RATE}", "train.schedule.kind=inverse_sqrt",
        f"train.schedule.warmup_steps={common.WARM_UP}", "train.validation.samples=0",
    ]  # fmt: skip
    with workload(SHAPES.get(job.shape, job.shape), chosen) as work:
        inputs = job_of(work.config, work.task, work.model())
        inputs = dataclasses.replace(inputs, task=Told(work.task, job.every))
        fit(inputs, work.config.train, job.folder / "run")
    return {"versions": common.versions("foveate", "torch")}


def decode(job: Job) -> dict[str, Any]:
    numbers, _, count = job.mode.partition("x")
    processes = int(count or 1)
    threads = max(1, job.threads // processes)
    values = {"shape": SHAPES.get(job.shape, job.shape), "numbers": numbers, "threads": threads}
    known = {piece: i for i, piece in enumerate(job.vocabulary())}
    with searching(values, processes) as call:

        def search(sentences: list[common.Pieces], beam: int, rows: int | None) -> None:
            call([[known.get(p, common.UNK) for p in line] for line in sentences], beam, rows)

        together = common.TOGETHER if processes > 1 else 1
        result = common.speeds(job, search, together=together)
    if processes > 1:
        result["peak_rss_mib"] += processes * common.peak_mib(resource.RUSAGE_CHILDREN)
    return result | {
        "computes": numbers,
        "versions": common.versions("foveate", "torch"),
        "batches": f"{processes} process(es), {threads} thread(s) each",
    }


def batches(job: Job) -> dict[str, Any]:
    """The engine alone, on ``job.threads`` threads."""
    known = {piece: i for i, piece in enumerate(job.vocabulary())}
    engine = engine_of(job, job.mode)

    def search(sentences: list[common.Pieces], beam: int, rows: int | None) -> None:
        ids = [[known.get(p, common.UNK) for p in line] for line in sentences]
        search = ChosenSearch(forced_search(beam, bool(engine.shortlist)))
        engine.decode(ids, SearchRequest(search, num=1))

    return common.curve(job, [search]) | {"versions": common.versions("foveate", "numpy")}


def cells(job: Job) -> dict[str, Any]:
    """Milliseconds forward and backward of a layer of each cell, and of a state space."""
    torch.set_num_threads(job.threads)
    bf16 = torch.autocast("cpu", dtype=torch.bfloat16, enabled=job.mode == "bf16")
    result = {}
    for name, config in {"rnn": ElmanCell, "gru": GRUCell, "lstm": LSTMCell}.items():
        cell = config.Config().build(256, 256)
        with bf16:
            run = functools.partial(whole, cell)
            result[name] = common.milliseconds(torch, run, (128, 20), job.seconds)
    layer = SelectiveStateSpace.Config().build(256)
    with bf16:
        result["mamba"] = common.milliseconds(torch, layer, (4, 128), job.seconds)
    return {"milliseconds": result, "versions": common.versions("foveate", "torch")}


def whole(cell: Cell, x: torch.Tensor) -> torch.Tensor:
    """A sequence through a cell."""
    return cell.run(x, cell.start(x[:, 0]))[0]


if __name__ == "__main__":
    common.main(
        {"train": train, "decode": decode, "batches": batches, "cells": cells, "quality": quality}
    )
