"""Teacher forcing against scheduled sampling, at equal steps: error by place, forced and free.

    python benchmarks/exposure.py FOLDER [--family language …]

Trains the shipped config of each family, made small enough for five minutes, with each choice of
what is read in training; a run that is in the folder already is not trained again. Error by place
is that of `foveate look exposure`, on the validation data of language models and the test data of
the others. Writes docs/results/exposure.json.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import foveate
import harness
from foveate.views.exposure import place_errors

FAMILIES: dict[str, tuple[str, str, list[str]]] = {  # config, split, what is made smaller
    "language": (
        "language/tiny-shakespeare.toml",
        "valid",
        [
            "task.block_length=64", "train.max_steps=150", "train.batch_tokens=1024",
            "model.decoder.num_layers=2", "model.decoder.hidden_size=128",
            "model.decoder.num_heads=4", "model.decoder.ffn_size=512",
        ],
    ),
    "captioning": (
        "captioning/flickr8k-soft.toml",
        "test",
        [
            "task.pictures.size=36", "task.augmentation.size=32", "train.max_steps=100",
            "train.batch_tokens=512", "model.decoder.hidden_size=128",
            "train.schedule.warmup_steps=20", "train.validation.every=100", "train.save.every=100",
        ],
    ),
    "airline": (
        "forecasting/airline-rnn.toml",
        "test",
        ["train.max_steps=300", "train.validation.every=300", "train.save.every=300"],
    ),
}  # fmt: skip
LINEAR = {  # by which ε falls a step, and to what
    "language": (0.5 / 112, 0.5),
    "captioning": (0.5 / 75, 0.5),
    "airline": (1 / 225, 0.0),
}
CHOICES: dict[str, dict[str, list[str]]] = {
    name: {
        "teacher forcing": [],
        "scheduled": [
            "objective.teacher_forcing.kind=scheduled",
            "objective.teacher_forcing.schedule.kind=linear",
            f"objective.teacher_forcing.schedule.slope={slope:.6f}",
            f"objective.teacher_forcing.schedule.floor={floor}",
        ],
        **({} if floor else {"own": ["objective.teacher_forcing.kind=own"]}),
    }
    for name, (slope, floor) in LINEAR.items()
}


def trained(folder: Path, family: str, choice: str) -> Path:
    """The run of a family and a choice, trained by one thread where it is not there."""
    config, _, small = FAMILIES[family]
    run = folder / f"{family}-{choice.replace(' ', '-')}"
    changes = [*small, *CHOICES[family][choice]]
    return harness.trained(run, harness.ROOT / "configs" / config, changes)


def measured(folder: Path, family: str, choice: str) -> dict[str, Any]:
    """The figures of a run by place, their means, and those of its evaluation."""
    run, split = foveate.load(trained(folder, family, choice)), FAMILIES[family][1]
    errors = place_errors(run, split)
    figures = run.evaluate(split=split, beam_size=1).figures if family != "language" else {}
    modes = {"forced": errors.forced, "free": errors.free}
    weights = errors.counts / errors.counts.sum()
    train = harness.logged(run.path, "train")[-1]
    return {
        "config": CHOICES[family][choice],
        "steps": train["step"],
        "seconds": round(train["seconds"], 1),
        "figures": {name: round(value, 4) for name, value in figures.items()},
        "mean": {
            mode: {name: round(float(weights @ values), 4) for name, values in by_name.items()}
            for mode, by_name in modes.items()
        },
        "by_place": {
            mode: {name: [round(v, 4) for v in values.tolist()] for name, values in of.items()}
            for mode, of in modes.items()
        },
        "counts": errors.counts.astype(int).tolist(),
    }


def main(
    runs: Path, family: Annotated[list[str] | None, harness.among(FAMILIES, "families")] = None
) -> None:
    result = harness.previous("exposure").get("families", {})
    for name in family or FAMILIES:
        config, split, smaller = FAMILIES[name]
        choices = {choice: measured(runs, name, choice) for choice in CHOICES[name]}
        result[name] = {"config": config, "split": split, "smaller": smaller, "choices": choices}
        for choice, row in choices.items():
            print(name, choice, row["mean"], row["figures"], flush=True)
    harness.write("exposure", {"families": result})


if __name__ == "__main__":
    harness.run(main)
