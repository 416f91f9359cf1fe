"""The models of the lectures on the embedded grammar: from no attention to Transformer and Mamba.

Which models, their sizes and the time of each stand in ``lineage.toml`` beside this module.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from foveate.compare.budget import ComparisonPlan, add
from foveate.config import merge, parse_tree, with_overrides
from foveate.data import synthetic
from foveate.files import replace_file
from foveate.run import RunConfig

SIZES = {"train": 4700, "valid": 145, "test": 580}  # of the long sentences


def lineage(folder: Path, overrides: Sequence[str] = ()) -> tuple[ComparisonPlan, float]:
    """The plan of the lecture, and the minutes of each model; its data is written to ``folder``."""
    text = files("foveate.compare").joinpath("lineage.toml").read_text(encoding="utf-8")
    settings = tomllib.loads(text.replace("{folder}", folder.as_posix()))
    write_data(folder / "data", settings["short"])
    plan = ComparisonPlan()
    for name, model in settings["models"].items():
        model = merge(settings.get(model.pop("base", ""), {}), model)
        tree = with_overrides(RunConfig, {**settings["common"], "model": model}, overrides)
        add(plan, name, parse_tree(RunConfig, tree))
    return plan, float(settings["minutes"])


def write_data(folder: Path, short: int) -> None:
    """All long pairs, and in training so many short ones beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in SIZES.items():
        for ending in ("en", "fr"):
            lines = synthetic.read_lines(split, ending, count, "long")
            if split == "train":
                lines += synthetic.read_lines(split, ending, short)
            replace_file(folder / f"{split}.{ending}", "".join(f"{line}\n" for line in lines))
