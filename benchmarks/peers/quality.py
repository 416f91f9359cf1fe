"""Minutes until greedy search writes translations of a BLEU, by foveate and by JoeyNMT.

    python benchmarks/peers/quality.py [--goal 50] [--every 100] [--only joeynmt]

Both train *small* (3 + 3 layers of 256) on Multi30k en→fr, the same 8,000 joint pieces, batches of
4,096 padded tokens, AdamW at 2e-3 after 400 steps of warm-up and falling with their square root,
dropout and label smoothing 0.1, and translate the validation set greedily every so many steps. The
clock is the wall's, from the start of the process to the look that reaches the goal: what a user
waits. They are run one after the other, each on all threads. docs/results/time-to-quality.json
keeps every look.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from typing import Any

import data
from environments import BUILD, ROOT, python_of
from sacrebleu.metrics.bleu import BLEU
from starting import command, environment

from foveate.bench.machine import describe
from foveate.bench.workload import workload

PEERS = ("foveate", "joeynmt")
RESULT = ROOT / "docs" / "results" / "time-to-quality.json"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--goal", type=float, default=50.0)
    options.add_argument("--every", type=int, default=100)
    options.add_argument("--shape", default="small")
    options.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options.add_argument("--only", choices=PEERS)
    given = options.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    about = data.write(BUILD / "data")
    found = {}
    with workload("small") as work:
        for peer in PEERS if given.only is None else (given.only,):
            looks = learn(peer, given, work.task)
            minutes = next((one["minutes"] for one in looks if one["bleu"] >= given.goal), None)
            found[peer] = {"minutes": minutes, "looks": looks}
    reached = {peer: one["minutes"] for peer, one in found.items()}
    ratio = None
    if len(reached) == len(PEERS) and all(reached.values()):
        ratio = round(reached["joeynmt"] / reached["foveate"], 2)
    chosen = {name: getattr(given, name) for name in ("shape", "goal", "every", "threads")}
    result = chosen | about | {"ratio": ratio, **found, "machine": describe()}
    RESULT.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def learn(peer: str, given: argparse.Namespace, task: Any) -> list[dict[str, Any]]:
    """Every look at one training, until it has reached the goal or ends by itself."""
    line = command(
        peer, python_of(peer), "quality",
        shape=given.shape, mode="fp32", threads=given.threads, every=given.every,
    )  # fmt: skip
    looks: list[dict[str, Any]] = []
    started = time.perf_counter()
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, text=True, cwd=BUILD, env=environment(peer, given.threads)
    ) as child:
        assert child.stdout is not None
        for said in child.stdout:
            if not said.startswith('{"step"'):
                continue
            minutes, look = (time.perf_counter() - started) / 60, json.loads(said)
            bleu = look["bleu"] if "bleu" in look else score(task, look["outputs"])
            looks.append({"step": look["step"], "minutes": round(minutes, 2), "bleu": bleu})
            print(peer, *looks[-1].values(), flush=True)
            if bleu >= given.goal:
                child.terminate()
                break
    return looks


def score(task: Any, outputs: list[list[str]]) -> float:
    """BLEU of pieces, joined as our tokenizer joins them."""
    tokenizer = task.target_tokenizer
    known = {piece: i for i, piece in enumerate(tokenizer.pieces)}
    texts = [tokenizer.decode([known[p] for p in line if p in known]) for line in outputs]
    return round(BLEU().corpus_score(texts, [list(task.corpus("valid").targets)]).score, 2)


if __name__ == "__main__":
    main()
