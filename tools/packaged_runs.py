"""Train the small runs that ship with foveate, and write them: src/foveate/packaged.

    python tools/packaged_runs.py [NAME …] [--work build/packaged]    (make packaged)

`no-attention`, `rnn` and `en-fr` are trained as `foveate compare lineage` trains them, the others
as tools/packaged_runs.toml says; without attention, which learns slowly, for twice the budget.
Budgets are tokens and steps: the same commit writes the same
bytes on machines of one kind. What is trained in the folder of work stays. The chart of `foveate
demo bottleneck` is taken from docs/results/lineage.json, without attention measured with its run.
The name `demos` is of what the demos landscape, steadiness, coreference and learn train (a minute;
the last one by Node).
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from foveate.config import PACKAGED, merge, parse_tree, read, shipped
from foveate.data.catalogue import find
from foveate.engine.packed import NAME
from foveate.files import replace_file
from foveate.look.draw.charts import LinesDrawing
from foveate.look.views.demos.trained import STORED
from foveate.look.views.text import by_length
from foveate.measure.budget import contenders
from foveate.measure.lineage import lineage
from foveate.run import Run, RunConfig, load
from foveate.run.pack import pack
from foveate.run.training import train
from foveate.tasks.text import TextToText
from foveate.train.journal import LOG, SNAPSHOTS, SnapshotConfig
from foveate.train.journal import read as read_log
from foveate.train.stored import WEIGHTS, own_tensors, run_files, sealed_folder, write_tensors
from small_trainings import train_coreference, train_landscapes, train_norms

SETTINGS = Path(__file__).with_suffix(".toml")
WEB = Path(__file__).parent.parent / "web"
RESULT = Path(__file__).parent.parent / "docs" / "results" / "lineage.json"
LINEAGE = {"no-attention": "no-attention", "rnn": "bahdanau", "en-fr": "transformer"}
LONGER = {"no-attention": 2}  # times the budget
EXAMPLE = (
    "She closes the old window.",
    "Elle ferme la vieille fenêtre.",
)  # of its film
DEMOS = "demos"  # the name of what they train
CHAPTER, CHART = "Length of the source", "BLEU"  # what is drawn of the comparison
OF_A_MACHINE = {"seconds", "tokens_per_second", "memory_mib", "threads"}  # figures of a log
EVERY = 5  # of the snapshots of a training, one is kept
SPLITS = ("valid", "test")  # that are shipped
NEGATIONS = re.compile(r"\b(not|never|no|nobody|nothing)\b|n't")
WITHOUT_TORCH = "en-fr"  # is packed too: the README translates with it


def write_chart() -> None:
    """The part of the result of ``foveate compare lineage`` that is drawn."""
    tree = json.loads(RESULT.read_text(encoding="utf-8"))
    chart = tree["chapters"][CHAPTER][CHART]
    tokens = int(tree["terms"]["budget"].partition(" ")[0].replace(",", ""))
    for name, times in LONGER.items():
        run = load(PACKAGED / name)
        corpus = run.need(TextToText, "give pairs of texts").corpus("test")
        outputs = [str(answer) for answer in run.translate(corpus.sources, beam_size=1)]
        panel = by_length({name: (corpus.sources, outputs, corpus.references)}).panels[0]
        assert isinstance(panel, LinesDrawing)
        curve = panel.curves[0]
        for suffix, values in (("", curve.y), (", low", curve.low), (", high", curve.high)):
            chart[f"{name}{suffix}"] = np.asarray(values).tolist()
        tree["terms"]["budget"] += f" ({name}: {times * tokens:,})"
    tree["terms"] = {"models": tree["terms"]["models"], "budget": tree["terms"]["budget"]}
    tree["chapters"] = {CHAPTER: {CHART: chart}}
    replace_file(PACKAGED / "lineage.json", json.dumps(tree, ensure_ascii=False, indent=1) + "\n")


def write_trained() -> None:
    """What the demos of small trainings draw."""
    result = {
        "landscape": train_landscapes(),
        "steadiness": train_norms(),
        "coreference": train_coreference(),
        "learn": json.loads(subprocess.check_output(["npm", "run", "-s", "film"], cwd=WEB)),
    }
    text = json.dumps(result, ensure_ascii=False).replace("], [", "],\n[").replace("}, ", "},\n")
    replace_file(STORED, f"{text}\n")


def write_labelled(data: Path) -> None:
    """``{split}.tsv`` of the sentences of the texts, without their last sign, and their labels."""
    for split in ("train", *SPLITS):
        text = (data / f"{split}.en").read_text(encoding="utf-8")
        lines = []
        for sentence, sign in dict.fromkeys(re.findall(r"([^.?\n]+)([.?])", text)):
            label = "question" if sign == "?" else "statement"
            label = "negation" if label == "statement" and NEGATIONS.search(sentence) else label
            lines.append(f"{sentence.strip()}\t{label}\n")
        replace_file(data / f"{split}.tsv", "".join(lines))


def ship(run: Run, data: Path, target: Path) -> None:
    """Write a run without what training needs: its config, tokenizers, log and weights in fp16.

    Its config names the files of ``packaged/data`` in place of those of ``data``.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    config = (run.path / "config.toml").read_text(encoding="utf-8")
    for place in (data.as_posix(), "time-series"):
        config = config.replace(f"{place}/", "packaged/data/")
    replace_file(target / "config.toml", config)
    own_files = run_files(run.path, run.path / run.checkpoint)
    for name in own_files:
        shutil.copyfile(run.path / name, target / name)
    for name, every in ((LOG, 1), (SNAPSHOTS, EVERY)):
        if (run.path / name).is_file():
            lines = read_log(run.path, name)[::every]
            lines = [{k: v for k, v in line.items() if k not in OF_A_MACHINE} for line in lines]
            replace_file(target / name, "".join(f"{json.dumps(line)}\n" for line in lines))
    tensors = own_tensors(run.model)
    tensors = {name: x.half() if x.is_floating_point() else x for name, x in tensors.items()}
    with sealed_folder(target / run.checkpoint, own_files) as folder:
        write_tensors(tensors, folder / WEIGHTS)
    if (run.path / "best.json").is_file():
        shutil.copyfile(run.path / "best.json", target / "best.json")
    if target.name == WITHOUT_TORCH:
        pack(load(target), target / NAME, "fp16")


def of_lineage(work: Path, name: str) -> Run:
    """A model of the lineage, trained with its budget; of the Transformer the film of learning."""
    plan, budget = lineage(work, [model := LINEAGE[name]])
    assert budget.tokens is not None
    budget = replace(budget, tokens=budget.tokens * LONGER.get(name, 1))
    if model == "transformer":
        config, film = plan.configs[model], SnapshotConfig(source=EXAMPLE[0], target=EXAMPLE[1])
        training = config.train.model_copy(update={"snapshots": film})
        plan.configs[model] = config.model_copy(update={"train": training})
    return contenders(plan, budget, work, print)[0].run


def of_settings(work: Path, name: str, settings: dict[str, Any]) -> Run:
    """A run of the settings, where a table is laid over those that it is based on."""
    own = settings["runs"][name]
    if "config" in own:
        config = read(RunConfig, shipped(Path(own["config"])))
    else:
        base = merge(settings["common"], settings[own.pop("base")])
        config = parse_tree(RunConfig, merge(base, own))
    return train(config, folder=work / name)


def main(names: Sequence[str], work: Path) -> None:
    """Train what is not trained in ``work``, and write the runs of these names, or all."""
    if not names or DEMOS in names:
        write_trained()
    if names and not (names := [name for name in names if name != DEMOS]):
        return
    data = work / "data"
    lineage(work)  # writes the texts
    write_labelled(data)
    settings = tomllib.loads(SETTINGS.read_text("utf-8").replace("{folder}", data.as_posix()))
    for name in names or [*LINEAGE, *settings["runs"]]:
        run = of_lineage(work, name) if name in LINEAGE else of_settings(work, name, settings)
        ship(run, data, PACKAGED / name)
    texts = [f"{split}.{end}" for split in SPLITS for end in ("en", "fr", "tsv")]
    copies = {name: data / name for name in texts}
    copies["airline-passengers.csv"] = find("time-series/airline-passengers.csv")
    for name, file in copies.items():
        (PACKAGED / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        replace_file(PACKAGED / "data" / f"{name}.gz", gzip.compress(file.read_bytes(), mtime=0))
    write_chart()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("names", nargs="*", metavar="NAME")
    options.add_argument("--work", type=Path, default=Path("build/packaged"), help="trainings")
    chosen = options.parse_args()
    main(chosen.names, chosen.work.resolve())
