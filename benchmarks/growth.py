"""What a corpus costs as it grows: time and memory of preparing it, of a plan, and of its batches.

    python benchmarks/growth.py [--pairs 10000000] [--plan 100000000] [--folder build/growth]

Pairs of the embedded grammar are written once and kept; corpora of 10,000, 100,000, … pairs are the
beginnings of that file. Each is measured in a process of its own, with its memory beside the limit
of 16 GiB. Rates are pairs for each second of processor time, of this process and of its workers
together, so that other work on the machine counts little; seconds by the clock stand beside them.
Writes docs/results/growth.json.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from typer import Option

import harness
from foveate.data.batches import BatchPlan
from foveate.data.corpus import cores, prepare_ids, prepare_texts
from foveate.data.report import traits_of
from foveate.data.text import Reading, TextData
from foveate.data.tokenizer import BPE
from foveate.tasks.translation import Translation

sys.path.append(str(harness.ROOT / "tools"))
from embedded_corpus import stream

BATCHES = 300  # that are drawn to see what one costs
WHO = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def timed(work: Callable[[], Any], rows: int) -> tuple[Any, dict[str, float]]:
    """What comes out, rows for each second of all processors together, seconds by the clock."""
    before, clock = processor(), time.perf_counter()
    result = work()
    spent, clock = processor() - before, time.perf_counter() - clock
    return result, {"a_second_of_a_core": round(rows / spent), "seconds": round(clock, 2)}


def processor() -> float:
    """Seconds of processor time, of this process and of those that it has waited for."""
    used = map(resource.getrusage, WHO)
    return sum(item.ru_utime + item.ru_stime for item in used)


def memory() -> dict[str, float]:
    """GiB at the peak: of this process, and of the largest of its workers."""
    own, workers = (resource.getrusage(who).ru_maxrss / 2**20 for who in WHO)
    return {"gib": round(own, 2), "gib_of_a_worker": round(workers, 2)}


def prepare(folder: Path, pairs: int) -> dict[str, Any]:
    """Read, learn, encode, look through, plan and draw batches of the first pairs."""
    os.environ["FOVEATE_PREPARED"] = str(folder / "prepared")
    shutil.rmtree(folder / "prepared", ignore_errors=True)
    for side in ("en", "fr"):
        with (
            (folder / f"all.{side}").open("rb") as file,
            (folder / f"train.{side}").open("wb") as to,
        ):
            to.writelines(islice(file, pairs))
    sides = [str(folder / f"{{split}}.{side}") for side in ("en", "fr")]
    data, result = TextData(), dict[str, Any](pairs=pairs)
    corpus, result["read"] = timed(lambda: prepare_texts([Reading(*sides, "train", data)]), pairs)
    config = Translation.Config(source=sides[0], target=sides[1], tokenizer=BPE.Config())
    task = config.build(data)
    _, result["learn"] = timed(lambda: task.prepare(folder, 1), pairs)
    both = {"source": task.source_tokenizer, "target": task.target_tokenizer}
    _, result["encode"] = timed(lambda: prepare_ids(corpus.folder, both), pairs)
    some = min(pairs, 20_000)
    texts = [side[:some] for side in (corpus.sources, corpus.targets)]
    _, result["the_tokenizer_alone"] = timed(
        lambda: [task.source_tokenizer.encode_ids(side) for side in texts], some
    )
    _, result["look_through"] = timed(lambda: traits_of(corpus), pairs)
    _, result["find_again"] = timed(lambda: config.build(data).corpus("train"), pairs)
    lengths = task.lengths("train")
    plan = BatchPlan(lengths, 4096, 1)
    batches, result["plan"] = timed(lambda: plan.epoch(0), pairs)
    tokens = sum(int(lengths[batch].sum()) for batch in batches[:BATCHES])
    drawn, result["batches"] = timed(
        lambda: [task.batch("train", batch.tolist()) for batch in batches[:BATCHES]], tokens
    )
    assert len(drawn) == min(BATCHES, len(batches))
    return result | memory()


def plan_of(count: int) -> dict[str, Any]:
    """An epoch of so many pairs, of lengths as captions have them."""
    random = np.random.default_rng(0)
    lengths = np.empty((count, 2), dtype=np.int32)
    for side in (0, 1):
        lengths[:, side] = np.clip(random.normal(15, 5, count), 2, 90)
    batches, result = timed(lambda: BatchPlan(lengths, 4096, 1).epoch(0), count)
    assert sum(map(len, batches)) == count
    return {"pairs": count, "batches": len(batches), **result, **memory()}


def alone(*what: Any) -> dict[str, Any]:
    """A measurement in a process of its own, whose peak of memory is its own."""
    parts = [word for part in what for word in ("--one", str(part))]
    command = [sys.executable, __file__, *parts]
    output = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ).stdout
    measured: dict[str, Any] = json.loads(output.splitlines()[-1])
    print(json.dumps(measured), file=sys.stderr)
    return measured


def main(
    pairs: int = 10_000_000,
    plan: int = 100_000_000,
    folder: Path = Path("build/growth"),
    single: Annotated[list[str] | None, Option(hidden=True)] = None,
) -> None:
    if single:
        name, *rest = single
        measured = plan_of(int(rest[0])) if name == "plan" else prepare(Path(rest[0]), int(rest[1]))
        print(json.dumps(measured))
        return
    folder = folder / str(pairs)
    if not (folder / "all.en").exists():
        folder.mkdir(parents=True, exist_ok=True)
        with (
            (folder / "all.fr").open("w", encoding="utf-8", newline="\n") as target,
            (folder / "all.part").open("w", encoding="utf-8", newline="\n") as source,
        ):
            for pair in islice(stream("train"), pairs):
                source.write(f"{pair.source}\n")
                target.write(f"{pair.target}\n")
        (folder / "all.part").replace(folder / "all.en")
    sizes = [10**k for k in range(4, 12) if 10**k < pairs] + [pairs]
    corpora = [alone("prepare", folder, size) for size in sizes]
    result = {"corpora": corpora, "epoch": alone("plan", plan), "processes": cores()}
    print(harness.write("growth", result))


if __name__ == "__main__":
    harness.run(main)
