"""Minutes until greedy search writes translations of a BLEU, by foveate and by JoeyNMT.

    python benchmarks/peers/quality.py [--goal 50] [--every 100] [--threads 1]

Both train *small* (3 + 3 layers of 256) on Multi30k en→fr, the same 8,000 joint pieces, batches of
4,096 padded tokens, AdamW at 2e-3 after 400 steps of warm-up and falling with their square root,
dropout and label smoothing 0.1, and translate the validation set greedily every so many steps. The
clock is the wall's, from the start of the process to the look that reaches the goal: what a user
waits; processor time stands beside it. Both train at once, each on processors of its own, so that
what else the machine does meets both alike. docs/results/time-to-quality.json is written after
every look.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import data
from environments import BUILD, ROOT, python_of
from starting import command, environment

from foveate.measure.machine import describe
from foveate.measure.training import workload
from foveate.tasks.metrics import bleu

MODES = {"foveate": "auto", "joeynmt": "fp32"}  # it trains in no other on a processor
PEERS = tuple(MODES)
RESULT = ROOT / "docs" / "results" / "time-to-quality.json"
UNITS = ("minutes", "processor_minutes")
Look = dict[str, Any]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--goal", type=float, default=50.0)
    options.add_argument("--every", type=int, default=100)
    options.add_argument("--shape", default="small")
    options.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 1) // len(PEERS)))
    inputs = options.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    about = vars(inputs) | data.write(BUILD / "data") | {"machine": describe()}
    looks: dict[str, list[Look]] = {peer: [] for peer in PEERS}
    item = threading.Lock()
    with workload("small") as work:

        def follow(first: int, peer: str) -> None:
            cores = range(first * inputs.threads, (first + 1) * inputs.threads)
            for look in learn(peer, inputs, work.task, cores):
                print(peer, *look.values(), flush=True)
                with item:
                    looks[peer].append(look)
                    write(about, looks)

        both = [threading.Thread(target=follow, args=pair) for pair in enumerate(PEERS)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()


def write(about: dict[str, Any], looks: dict[str, list[Look]]) -> None:
    """What is known by now: the look at which each reached the goal, and their times' ratio."""
    reached = {
        peer: next((look for look in its if look["bleu"] >= about["goal"]), None)
        for peer, its in looks.items()
    }
    ours, theirs = reached.values()
    last = theirs or next(reversed(looks["joeynmt"]), None)  # on its way the ratio can only grow
    ratios = {unit: round(last[unit] / ours[unit], 2) for unit in UNITS} if ours and last else {}
    known = {"ratio" if theirs else "ratio_at_least": ratios}
    result = about | known | {"ratios_at_equal_bleu": equal(*looks.values())}
    result |= {"reached": reached, "looks": looks}
    RESULT.write_text(
        json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n"
    )


def equal(ours: list[Look], theirs: list[Look]) -> list[Look]:
    """How many times as long the other took to each BLEU that it has come to.

    Between two looks of ours BLEU is taken to grow in proportion; before the first nothing is said.
    """
    result = []
    for their in theirs:
        for before, after in pairwise(ours):
            if before["bleu"] <= their["bleu"] < after["bleu"]:
                part = (their["bleu"] - before["bleu"]) / (after["bleu"] - before["bleu"])
                at = {unit: before[unit] + part * (after[unit] - before[unit]) for unit in UNITS}
                ratios = {unit: round(their[unit] / at[unit], 2) for unit in UNITS}
                result.append({"bleu": their["bleu"]} | ratios)
                break
    return result


def learn(peer: str, values: argparse.Namespace, task: Any, cores: range) -> Iterator[Look]:
    """Every look at one training, until it has reached the goal or ends by itself."""
    line = command(
        peer, python_of(peer), "quality",
        shape=values.shape, mode=MODES[peer], threads=values.threads, every=values.every,
    )  # fmt: skip
    started = time.perf_counter()
    with subprocess.Popen(
        line,
        stdout=subprocess.PIPE,
        text=True,
        cwd=BUILD,
        env=environment(peer, values.threads),
        encoding="utf-8",
    ) as child:
        assert child.stdout is not None
        os.sched_setaffinity(child.pid, cores)
        for output in child.stdout:
            if not output.startswith('{"step"'):
                continue
            waited, look = time.perf_counter() - started, json.loads(output)
            spent = (waited, processor(child.pid))
            bleu = look["bleu"] if "bleu" in look else score(task, look["outputs"])
            minutes = (round(seconds / 60, 2) for seconds in spent)
            yield {"step": look["step"], "bleu": bleu, **dict(zip(UNITS, minutes, strict=True))}
            if bleu >= values.goal:
                child.terminate()
                break


def processor(process: int) -> float:
    """Seconds of processor time that a running process has used (proc(5): fields 14 and 15)."""
    stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return sum(map(int, stat[11:13])) / os.sysconf("SC_CLK_TCK")


def score(task: Any, outputs: list[list[str]]) -> float:
    """BLEU of pieces, joined as our tokenizer joins them."""
    tokenizer = task.target_tokenizer
    known = {piece: i for i, piece in enumerate(tokenizer.pieces)}
    texts = [tokenizer.decode([known[p] for p in line if p in known]) for line in outputs]
    return round(bleu(texts, task.corpus("valid").targets)[0], 2)


if __name__ == "__main__":
    main()
