"""Minutes to a fixed score: the records of docs/reference/records.md.

    make speedrun                                         # the standing recipes, five seeds each
    make speedrun RUNS="--only grammar --config my.toml"  # a recipe of one's own beside it

A recipe is a config with a fixed number of steps. Each seed is one training from a fresh cache, on
a machine that does nothing else: its minutes are those of the whole command ``foveate train``, with
reading, tokenizer and checkpoints. Afterwards the run is evaluated on examples that it has not
trained on. A recipe reaches the goal when its mean score over the seeds is beyond the goal with
p < 0.01 (one-sided t-test); it is a record when it also takes fewer minutes on the average than
the standing recipe, trained in turn with it (A B A B) in the same call.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from scipy.stats import ttest_1samp

import harness
from foveate.data import synthetic

RECIPES = harness.ROOT / "configs" / "speedrun"
PAGE = harness.ROOT / "docs" / "reference" / "records.md"
P = 0.01  # of a mean score that is not beyond the goal


@dataclass(frozen=True)
class Record:
    """What has to be reached: a figure of ``foveate evaluate`` on a split, by a search."""

    what: str
    figure: str
    goal: float
    evaluate: tuple[str, ...] = ()
    least: bool = False  # the figure falls

    def beyond(self, scores: Sequence[float]) -> float:
        """p of the one-sided t-test (Student, 1908) that the mean is beyond the goal; 1 of one."""
        side = "less" if self.least else "greater"
        p = ttest_1samp(scores, self.goal, alternative=side).pvalue if len(scores) > 1 else 1
        return float(p)


RECORDS = {
    "multi30k": Record("Multi30k en→fr, validation, greedy: BLEU", "bleu", 50.0,
                       ("--split", "valid", "--beam-size", "1")),
    "shakespeare-1.88": Record("tiny-shakespeare, last tenth: nats per character", "loss", 1.88,
                               ("--split", "valid"), least=True),
    "shakespeare-1.47": Record("tiny-shakespeare, last tenth: nats per character", "loss", 1.47,
                               ("--split", "valid"), least=True),
    "grammar": Record("built-in en→fr grammar, test, greedy: chrF", "chrf", 95.0,
                      ("--split", "test", "--beam-size", "1")),
}  # fmt: skip


def timed(config: Path, seed: int, threads: int, record: Record) -> dict[str, float]:
    """One training from nothing: minutes of the whole command, and the score afterwards.

    OpenMP's settings in the shell do not count. ``{folder}`` in a recipe is a folder with the texts
    of the embedded grammar, written before.
    """
    with tempfile.TemporaryDirectory() as folder:
        text = config.read_text("utf-8")
        if "{folder}" in text:
            synthetic.write(Path(folder) / "data", {"train": 60_000, "valid": 500, "test": 1000})
        recipe, run = Path(folder) / config.name, Path(folder) / "run"
        recipe.write_text(text.replace("{folder}", folder), "utf-8", newline="\n")
        shell = {k: value for k, value in os.environ.items() if not k.startswith("OMP_")}
        environment = shell | {
            "XDG_CACHE_HOME": f"{folder}/cache", "OMP_NUM_THREADS": str(threads),
            "FOVEATE_DATA": str(harness.DATA),
        }  # fmt: skip
        train = harness.foveate("train", recipe, "--run", run, f"seed={seed}")
        started = time.perf_counter()
        subprocess.run(train, check=True, env=environment, stdout=sys.stderr)
        minutes = (time.perf_counter() - started) / 60
        result = harness.evaluated(run, *record.evaluate, environment=environment)
        return {"minutes": minutes, "score": result["figures"][record.figure]}


def row(record: Record, config: Path, runs: Sequence[dict[str, float]]) -> dict[str, Any]:
    """What is recorded of a recipe: every seed, the means, and whether the goal is reached."""
    scores = [run["score"] for run in runs]
    p = record.beyond(scores)
    return {
        "recipe": config.stem, "minutes": round(statistics.mean(r["minutes"] for r in runs), 2),
        "score": round(statistics.mean(scores), 3), "p": float(f"{p:.2g}"), "reached": p < P,
        "seeds": [{name: round(value, 3) for name, value in run.items()} for run in runs],
    }  # fmt: skip


def measured(name: str, own: Path | None, seeds: int, threads: int) -> list[dict[str, Any]]:
    """The rows of the standing recipe and of one's own, their seeds in turn."""
    recipes = [RECIPES / f"{name}.toml", *([own] if own else [])]
    runs: list[list[dict[str, float]]] = [[] for _ in recipes]
    for seed in range(1, seeds + 1):
        for config, done in zip(recipes, runs, strict=True):
            done.append(timed(config, seed, threads, RECORDS[name]))
            print(f"{name} · {config.stem} · seed {seed}: {done[-1]['minutes']:.2f} minutes, "
                  f"{RECORDS[name].figure} {done[-1]['score']:.3f}", flush=True)  # fmt: skip
    return [row(RECORDS[name], *each) for each in zip(recipes, runs, strict=True)]


def table(records: dict[str, list[dict[str, Any]]]) -> str:
    """The rows of the page, newest first."""
    lines = ["| record | goal | minutes | mean score | p | seeds | date | commit | machine |",
             "|---|---:|---:|---:|---:|---:|---|---|---|"]  # fmt: skip
    for name, record in RECORDS.items():
        for each in reversed(records.get(name, [])):
            sign = "≤" if record.least else "≥"
            lines.append(
                f"| {record.what} | {sign} {record.goal:g} | **{each['minutes']:.2f}** "
                f"| {each['score']:g} | {each['p']:g} | {len(each['seeds'])} "
                f"| {each['date']} | {each['commit']} "
                f"| {each['threads']} threads of {each['cpu']} |"
            )
    return "\n".join(lines)


def main(
    only: Annotated[list[str] | None, harness.among(RECORDS, "which records; repeat")] = None,
    config: Path | None = None,
    seeds: int = 5,
    threads: int = os.cpu_count() or 1,
    json: Path | None = None,
) -> None:
    """Measure, and add a row for each record that was set."""
    names = only or list(RECORDS)
    if config and len(names) != 1:
        sys.exit("--config is a recipe for one record: name it with --only")
    records = harness.previous("records", json).get("records", {})
    here = harness.describe()
    for name in names:
        standing, *own = measured(name, config, seeds, threads)
        rows = records.setdefault(name, [])
        best = own[0] if own else standing
        faster = best["reached"] and (not own or best["minutes"] < standing["minutes"])
        print(f"{name}: {best['minutes']:.2f} minutes, p {best['p']:g}, "
              + ("recorded" if faster else "no record"))  # fmt: skip
        if faster:
            places = {key: here[key] for key in ("date", "commit", "cpu", "bf16_gflops")}
            rows.append(best | places | {"threads": threads})
    harness.write("records", {"records": records}, json)
    if json is None:
        harness.fill(PAGE, "records", table(records))


if __name__ == "__main__":
    harness.run(main)
