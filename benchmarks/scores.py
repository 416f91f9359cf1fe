"""What each task reaches in how many minutes: the table of docs/reference/scores.md.

    make scores RUNS="--only sst2-lstm --seeds 3"          # three trainings of one thread
    make scores RUNS="--only sst2-lstm --trained runs/a"   # a training that is there; repeat
    make scores                                            # the page alone, of what was measured

A row is a shipped config and the splits on which its run is evaluated, or several, or several seeds
of one, whose runs decode together: one for each core of the machine. Every training has an entry in
docs/results/scores.json with the minutes of its log, its machine, and its validation figures by the
minute. The figures published for a task stand beside it, with what they are figures of.
"""

from __future__ import annotations

import os
import statistics
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import BadParameter, Option

import harness

PAGE = harness.ROOT / "docs" / "reference" / "scores.md"
MULTI30K = ("test", "test_2017_flickr", "test_2017_mscoco")
TOKENISED = ("test", "test2017", "testcoco")
KEPT = ("step", "seconds", "bleu", "exact_match", "accuracy", "perplexity", "wer", "mse", "loss")


@dataclass(frozen=True)
class Task:
    """A config, the figure that counts, the splits it is measured on, and its reference.

    Runs of several configs decode together; one that is named twice has two seeds.
    """

    what: str
    configs: tuple[str, ...]
    figure: str
    wanted: str
    published: str
    splits: tuple[str, ...] = ("test",)
    evaluate: tuple[str, ...] = ()

    def members(self, number: int) -> list[tuple[str, int]]:
        """The config and the seed of each run of the row's n-th training, from 0 on."""
        return [
            (name, number * self.configs.count(name) + self.configs[:place].count(name) + 1)
            for place, name in enumerate(self.configs)
        ]


# The figure that counts, what is wanted of it, what is published, and the splits.
FRENCH = "bleu", "≥ 59.5", "61.8 on lower-cased tokens (Wu et al., 2021)", MULTI30K
GERMAN = "bleu", "≥ 40", "41.0 on lower-cased tokens (Wu et al., 2021)", MULTI30K
PAPERS = TOKENISED, ("--signature", "papers")
PUBLISHED = "bleu_papers", "≥ 61.8", "61.8 (Wu et al., 2021)", *PAPERS
PUBLISHED_GERMAN = "bleu_papers", "≥ 41.0", "41.0 (Wu et al., 2021)", *PAPERS
SHAKESPEARE = "loss", "≤ 1.47", "1.47 on a GPU, 1.88 in 3 minutes (nanoGPT)", ("valid",)
PHONES = "wer", "≤ 26", "30.2 (a Transformer)"
INFLECTION = "exact_match", "≥ 92", "about 93–95"

TASKS = {
    "multi30k-en-fr-small": Task(
        "Multi30k en→fr: BLEU on 2016, 2017, COCO", ("translation/multi30k-en-fr-small",), *FRENCH,
    ),
    "multi30k-en-fr-small, two seeds": Task(
        "Multi30k en→fr, ensemble of two",
        ("translation/multi30k-en-fr-small",) * 2, *FRENCH,
    ),
    "multi30k-en-fr-mamba": Task(
        "Multi30k en→fr, Mamba", ("translation/multi30k-en-fr-mamba",), *FRENCH,
    ),
    "multi30k-en-fr-mamba, with -small": Task(
        "Multi30k en→fr, ensemble of both",
        ("translation/multi30k-en-fr-mamba", "translation/multi30k-en-fr-small"), *FRENCH,
    ),
    "multi30k-en-fr": Task(
        "Multi30k en→fr, the smaller model", ("translation/multi30k-en-fr",), *FRENCH,
    ),
    "multi30k-en-de": Task(
        "Multi30k en→de: BLEU on 2016, 2017, COCO", ("translation/multi30k-en-de",), *GERMAN,
    ),
    "multi30k-en-de-mamba": Task(
        "Multi30k en→de, Mamba", ("translation/multi30k-en-de-mamba",), *GERMAN,
    ),
    "multi30k-en-de-mamba, with -small": Task(
        "Multi30k en→de, ensemble of both",
        ("translation/multi30k-en-de-mamba", "translation/multi30k-en-de-small"), *GERMAN,
    ),
    "multi30k-tokenised-en-fr": Task(
        "Multi30k en→fr, published text: BLEU on its tokens, 2016, 2017, COCO",
        ("translation/multi30k-tokenised-en-fr",), *PUBLISHED,
    ),
    "multi30k-tokenised-en-fr-small": Task(
        "Multi30k en→fr, published text, Transformer",
        ("translation/multi30k-tokenised-en-fr-small",), *PUBLISHED,
    ),
    "multi30k-tokenised-en-fr, with -small": Task(
        "Multi30k en→fr, published text, ensemble of both",
        ("translation/multi30k-tokenised-en-fr", "translation/multi30k-tokenised-en-fr-small"),
        *PUBLISHED,
    ),
    "multi30k-tokenised-en-de": Task(
        "Multi30k en→de, published text: BLEU on its tokens, 2016, 2017, COCO",
        ("translation/multi30k-tokenised-en-de",), *PUBLISHED_GERMAN,
    ),
    "multi30k-tokenised-en-de-tiny": Task(
        "Multi30k en→de, published text, published recipe",
        ("translation/multi30k-tokenised-en-de-tiny",), *PUBLISHED_GERMAN,
    ),
    "multi30k-tokenised-en-de-tiny, two seeds": Task(
        "Multi30k en→de, published text, ensemble of two",
        ("translation/multi30k-tokenised-en-de-tiny",) * 2, *PUBLISHED_GERMAN,
    ),
    "tiny-shakespeare": Task(
        "tiny-shakespeare, last tenth: nats per character",
        ("language/tiny-shakespeare",), *SHAKESPEARE,
    ),
    "tiny-shakespeare, two seeds": Task(
        "tiny-shakespeare, ensemble of two",
        ("language/tiny-shakespeare",) * 2, *SHAKESPEARE,
    ),
    "tiny-shakespeare-mamba": Task(
        "tiny-shakespeare, Mamba", ("language/tiny-shakespeare-mamba",), *SHAKESPEARE,
    ),
    "tiny-shakespeare-mamba, two seeds": Task(
        "tiny-shakespeare, Mamba, ensemble of two",
        ("language/tiny-shakespeare-mamba",) * 2, *SHAKESPEARE,
    ),
    "ptb-mamba-long": Task(
        "Penn Treebank: perplexity", ("language/ptb-mamba-long",),
        "perplexity", "≤ 80", "57.3 with 24 M weights (Merity et al., 2018)",
    ),
    "etth1-linear": Task(
        "ETTh1, 336 → 96 hours: squared error", ("forecasting/etth1-linear",), "mse",
        "≤ 0.375", "0.375 (Nie et al., 2023)",
    ),
    "sst2-lstm": Task(
        "SST-2, whole sentences: accuracy", ("classification/sst2-lstm",), "accuracy",
        "≥ 83", "82.7, also trained on labelled phrases (Kim, 2014)",
    ),
    "cmudict": Task(
        "CMUdict without stress: word error rate", ("transduction/cmudict",), *PHONES,
    ),
    "cmudict, two seeds": Task(
        "CMUdict, ensemble of two", ("transduction/cmudict",) * 2, *PHONES,
    ),
    "german-inflection": Task(
        "German inflection: exact match", ("transduction/german-inflection",), *INFLECTION,
    ),
    "german-inflection, two seeds": Task(
        "German inflection, ensemble of two", ("transduction/german-inflection",) * 2,
        *INFLECTION,
    ),
}  # fmt: skip


def measured(task: Task, run: Path, *others: Path) -> dict[str, Any]:
    """A training and its figures: of each split as ``evaluate`` gives them, of validations by the
    minute. With ``others`` it decodes as an ensemble, which has no validations of its own."""
    start = harness.logged(run, "start")[0]
    ends = [harness.logged(each, "end")[-1] for each in (run, *others)]
    minutes = max(end["seconds"] for end in ends) / 60
    options = [*task.evaluate, *(word for other in others for word in ("--ensemble", other))]
    figures = {}
    for split in task.splits:
        said = harness.evaluated(run, "--split", split, "--no-baseline", *options)
        figures[split] = {k: round(v, 4) for k, v in said["figures"].items()}
    here = harness.describe()
    config = tomllib.loads((run / "config.toml").read_text("utf-8"))
    return {
        "seed": config.get("seed", 0), "minutes": round(minutes, 1),
        "steps": ends[0]["step"], "threads": start["threads"], "precision": start["precision"],
        "parameters": start["parameters"], "figures": figures,
        "validation": [] if others else [
            {key: round(line[key], 4) for key in KEPT if key in line}
            for line in harness.logged(run, "valid")
        ],
        **{key: here[key] for key in ("date", "commit", "cpu")},
    }  # fmt: skip


def trained(config: str, seed: int, folder: Path) -> Path:
    """The run of a config with a seed, trained where it is not there."""
    path = harness.ROOT / "configs" / f"{config}.toml"
    return harness.trained(folder / f"{path.stem}-{seed}", path, [f"seed={seed}"])


def line(name: str, seeds: Sequence[dict[str, Any]]) -> str:
    """The row of a task: means over its seeds, and the range of the first split where several."""
    task = TASKS[name]
    values = [
        [seed["figures"][split][task.figure] for seed in seeds]
        for split in task.splits
        if all(split in seed["figures"] for seed in seeds)
    ]
    digits = 3 if max(values[0]) < 10 else 1
    score = " · ".join(f"{statistics.mean(each):.{digits}f}" for each in values)
    if len(seeds) > 1:
        score += f" ({min(values[0]):.{digits}f} to {max(values[0]):.{digits}f})"
    minutes = statistics.mean(seed["minutes"] for seed in seeds)
    last = seeds[-1]
    machine = f"{last['cpu']}, threads: {last['threads']}, {last['date']}"
    config = f"[{name}](../../configs/{task.configs[0]}.toml)"
    count = len(seeds) * max(map(task.configs.count, task.configs))
    return (f"| {config} | {task.what} | **{score}** | {task.wanted} | {task.published} "
            f"| {count} | {minutes:.{int(minutes < 10)}f} | {machine} |")  # fmt: skip


def table(rows: dict[str, list[dict[str, Any]]]) -> str:
    """The rows of the page."""
    head = ["config", "task", "score", "goal", "published", "seeds", "minutes", "machine"]
    lines = [f"| {' | '.join(head)} |", "|---|---|---|---|---|---:|---:|---|"]
    return "\n".join([*lines, *(line(name, rows[name]) for name in TASKS if rows.get(name))])


def main(
    only: Annotated[list[str] | None, harness.among(TASKS, "train these; repeat")] = None,
    seeds: int = 1,
    there: Annotated[list[Path] | None, Option("--trained", help="a run that is there")] = None,
    folder: Annotated[Path, Option(help="of the runs")] = Path("runs/scores"),
) -> None:
    """Train and evaluate what is named; write the page."""
    if there and len(only or []) != 1:
        raise BadParameter("--trained is a run of one task: name it with --only")
    rows = harness.previous("scores").get("rows", {})
    for name in only or []:
        task = TASKS[name]
        wanted = (each for number in range(seeds) for each in task.members(number))
        runs, size = there or [trained(*each, folder) for each in wanted], len(task.configs)
        if len(runs) % size:
            raise BadParameter(f"{name} takes runs by {size}: --trained A --trained B")
        for first in range(0, len(runs), size):
            new = measured(task, *runs[first : first + size])
            others = [each for each in rows.get(name, []) if each["seed"] != new["seed"]]
            rows[name] = sorted([*others, new], key=lambda each: int(each["seed"]))
            print(name, new["seed"], new["minutes"], "minutes", new["figures"], file=sys.stderr)
            harness.write("scores", {"rows": rows})
    harness.fill(PAGE, "scores", table(rows))


if __name__ == "__main__":
    os.environ.setdefault("FOVEATE_DATA", str(harness.DATA))
    harness.run(main)
