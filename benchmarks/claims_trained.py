"""Short trainings that answer claims of the lectures, predicted in docs/development/LOG.md.

    python benchmarks/claims_trained.py RUNS [--only no-mask …] [--seconds 36] [--seeds 3]

``no-mask`` (a language model without one), ``scaling-curve`` (five sizes for equal ``--seconds`` of
processor time) and ``smoothing-averaging`` (a small translator) write docs/results/NAME.json, which
benchmarks/claims.py reads. Each training takes one thread; a run that is in the folder RUNS already
is not trained again.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import time
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

import foveate
import harness
from foveate.data import synthetic
from foveate.data.tokenizer import EOS
from foveate.measure import training
from foveate.nn.context import DecoderState
from foveate.run import Run
from foveate.run.evaluation import examples
from foveate.tasks.metrics import paired_texts
from foveate.train.config import resolve

TEXT = harness.ROOT / "configs" / "language" / "tiny-shakespeare.toml"
BLOCK, BATCH = 128, 1024  # characters of a block, and of a step
SMALL = [
    f"task.block_length={BLOCK}", f"train.batch_tokens={BATCH}", "task.shares=[0.9, 0.02, 0.08]",
    "model.decoder.num_layers=2", "model.decoder.num_heads=4", "model.decoder.dropout=0.0",
    "train.schedule.kind=constant", "train.schedule.warmup_steps=50", "train.precision=fp32",
    "train.save.every=none", "train.validation.samples=0",
    'train.optimizer={kind="adamw", lr=2e-3, betas=[0.9, 0.99], weight_decay=0.1}',
]  # fmt: skip
STEPS = 400  # of the models with and without a mask
SIZES = (16, 32, 64, 128, 256)
EVERY = 80  # steps from one validation of the curve to the next
WARM, TIMED = 5, 30  # steps before those whose processor time is taken, and these


def sized(size: int) -> list[str]:
    """The overrides of a model of D = ``size``, its rate 2e-3 √(256 / D)."""
    return [*SMALL, f"model.decoder.hidden_size={size}", f"model.decoder.ffn_size={4 * size}",
            f"train.optimizer.lr={2e-3 * math.sqrt(256 / size):.6f}"]  # fmt: skip


# ------------------------------------------------------------------------------ without a mask


@torch.inference_mode()
def one_by_one(run: Run, texts: int = 64) -> float:
    """Nats a character of validation text, read one character at a time as in generation."""
    ids = torch.from_numpy(examples(run.task, "valid").ids[: texts * BLOCK].astype(np.int64))
    ids = torch.cat((torch.full((texts, 1), EOS), ids.view(texts, BLOCK)), dim=1)
    state, total = DecoderState(), 0.0
    for t in range(BLOCK):
        logits = run.model.logits(run.model.decode(ids[:, t : t + 1], state=state)[:, -1])
        total += float(cross_entropy(logits, ids[:, t + 1]))
    return total / BLOCK


def known(text: str, words: set[str]) -> float:
    """The share of the words of three letters or more that are among ``words``; 0 of none."""
    written = re.findall(r"[A-Za-z]{3,}", text)
    return sum(word in words for word in written) / max(1, len(written))


def no_mask(runs: Path, seconds: float, seeds: int) -> dict[str, Any]:
    """A language model with and without a causal mask, a row of each seed."""
    rows: dict[str, list[dict[str, Any]]] = {"with": [], "without": []}
    for name, each in rows.items():
        for seed in range(1, seeds + 1):
            overrides = [*sized(128), f"seed={seed}", f"train.max_steps={STEPS}",
                         f"model.decoder.causal={str(name == 'with').lower()}",
                         "train.validation.every=none"]  # fmt: skip
            trained = harness.trained(runs / f"mask-{name}-{seed}", TEXT, overrides)
            run = foveate.load(trained, "last")
            lines = "\n".join(examples(run.task, "train").text.lines)
            text = run.generate(["\n"], max_length=2000, temperature=0.8, seed=1)[0].text
            each.append({
                "training_loss": round(harness.logged(run.path, "train")[-1]["loss"], 4),
                "loss_in_one_pass": round(run.evaluate(split="valid").figures["loss"], 4),
                "loss_one_by_one": round(one_by_one(run), 4),
                "known_words": round(known(text, set(re.findall(r"[A-Za-z]{3,}", lines))), 4),
                "written": text[:200],
            })  # fmt: skip
    return {"config": TEXT.name, "steps": STEPS, "seeds": seeds, "overrides": sized(128),
            "rows": rows}  # fmt: skip


# ------------------------------------------------------------------------------ size


def seconds_of_step(size: int) -> tuple[int, float]:
    """Parameters, and processor seconds of a step of training: the median of three, no set-up."""
    with training.workload(str(TEXT), sized(size)) as work:
        model, spent = work.model(), []
        for steps in (WARM, *[WARM, WARM + TIMED] * 3):  # the first imports and compiles
            began = time.process_time()
            training.train(work, model, resolve("fp32", "cpu"), steps=steps)
            spent.append(time.process_time() - began)
    each = [(long - short) / TIMED for short, long in zip(spent[1::2], spent[2::2], strict=True)]
    return sum(p.numel() for p in model.parameters()), statistics.median(each)


def scaling_curve(runs: Path, seconds: float, seeds: int) -> dict[str, Any]:
    """Validation loss of five sizes against characters read and against processor time."""
    plan = runs / "steps.json"  # so that a run that goes on has the number of steps it began with
    if not plan.exists():
        runs.mkdir(parents=True, exist_ok=True)
        times = {size: seconds_of_step(size) for size in SIZES}
        plan.write_text(json.dumps(times), encoding="utf-8", newline="\n")
    rows = {}
    for size, (count, of_step) in json.loads(plan.read_text(encoding="utf-8")).items():
        steps = EVERY * max(1, round(seconds / of_step / EVERY))
        losses = []
        for seed in range(1, seeds + 1):
            overrides = [*sized(int(size)), f"seed={seed}", f"train.max_steps={steps}",
                         f"train.validation.every={EVERY}"]  # fmt: skip
            run = harness.trained(runs / f"size-{size}-{seed}", TEXT, overrides)
            losses.append([round(line["loss"], 4) for line in harness.logged(run, "valid")])
        rows[size] = {"parameters": count, "seconds_of_step": round(of_step, 5), "losses": losses}
        print(size, rows[size]["seconds_of_step"], [each[-1] for each in losses], flush=True)
    return {"config": TEXT.name, "overrides": SMALL, "seeds": seeds, "every": EVERY, "batch": BATCH,
            "sizes": rows}  # fmt: skip


# ------------------------------------------------------------------------------ translators

LAST = ["train.save.every=20", "train.save.keep=5", "train.average=5"]
SHORT = ["train.max_steps=600", "train.max_minutes=none", "train.validation.every=none",
         "train.precision=fp32", "train.schedule.warmup_steps=100", *LAST]  # fmt: skip
KINDS = {  # label smoothing, schedule
    "smoothed": (0.1, "inverse_sqrt"), "plain": (0.0, "inverse_sqrt"), "to zero": (0.1, "cosine")
}  # fmt: skip


def translated(path: Path, which: str) -> list[str]:
    """The test sentences by a run's weights, with a beam of 5; kept in the run."""
    file = path / f"{which}.json"
    if not file.exists():
        outputs = foveate.load(path, which).evaluate(split="test", beam_size=5).outputs
        file.write_text(json.dumps(list(outputs)), encoding="utf-8", newline="\n")
    return list(json.loads(file.read_text(encoding="utf-8")))


def gain(before: list[list[str]], after: list[list[str]], references: list[str]) -> dict[str, Any]:
    """BLEU of each seed before and after, and p of the paired bootstrap over all outputs."""
    both = [paired_texts({"before": b, "after": a}, references, "bleu")
            for b, a in zip(before, after, strict=True)]  # fmt: skip
    pooled = {"before": [*chain(*before)], "after": [*chain(*after)]}
    p = paired_texts(pooled, references * len(before), "bleu")["after"].bootstrap
    values = {name: [round(pair[name].value, 2) for pair in both] for name in pooled}
    gains = [a - b for b, a in zip(values["before"], values["after"], strict=True)]
    return {**values, "gain": round(statistics.mean(gains), 2), "p": p,
            "p_of_each_seed": [pair["after"].bootstrap for pair in both]}  # fmt: skip


def smoothing_averaging(runs: Path, seconds: float, seeds: int) -> dict[str, Any]:
    """BLEU with and without label smoothing, of averaged and last checkpoints."""
    synthetic.write(runs / "data", {"train": 60_000, "valid": 500, "test": 1000})
    template = files("foveate").joinpath("grammar.toml").read_text(encoding="utf-8")
    config = runs / "grammar.toml"
    config.write_text(template.replace("{folder}", runs.as_posix()), encoding="utf-8", newline="\n")
    references = synthetic.read_lines("test", "fr", 1000)
    outputs: dict[str, list[list[str]]] = {}
    for kind, (smoothing, schedule) in KINDS.items():
        for seed in range(1, seeds + 1):
            overrides = [f"seed={seed}", f"objective.label_smoothing={smoothing}",
                         f"train.schedule.kind={schedule}", *SHORT]  # fmt: skip
            path = harness.trained(runs / f"{kind.replace(' ', '-')}-{seed}", config, overrides)
            for which in ("last", "average"):
                outputs.setdefault(f"{kind}, {which}", []).append(translated(path, which))
    pairs = {
        "label smoothing": ("plain, last", "smoothed, last"),
        "averaging, 1/√step": ("smoothed, last", "smoothed, average"),
        "averaging, cosine to 0": ("to zero, last", "to zero, average"),
    }
    rows = {name: gain(outputs[b], outputs[a], references)
            for name, (b, a) in pairs.items() if b in outputs}  # fmt: skip
    for name, row in rows.items():
        print(name, row, flush=True)
    return {"config": "src/foveate/grammar.toml", "overrides": SHORT, "seeds": seeds,
            "sentences": len(references), "rows": rows}  # fmt: skip


TRAINED = {
    "no-mask": no_mask, "scaling-curve": scaling_curve, "smoothing-averaging": smoothing_averaging
}  # fmt: skip


def main(
    runs: Path,
    only: Annotated[list[str] | None, harness.among(TRAINED, "what to train; repeat")] = None,
    seconds: float = 36.0,
    seeds: int = 3,
) -> None:
    """Train what is missing, and write the results."""
    torch.set_num_threads(1)
    for name in only or TRAINED:
        harness.write(name, TRAINED[name](runs.resolve(), seconds, seeds))


if __name__ == "__main__":
    harness.run(main)
