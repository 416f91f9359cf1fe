"""The models of the lectures on the embedded grammar: from no attention to Transformer and Mamba.

Which models, their sizes and the time of each stand in ``lineage.toml`` beside this module.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from random import Random

from foveate.compare.budget import ComparisonPlan, add
from foveate.config import ConfigError, merge, parse_tree, with_overrides
from foveate.data import synthetic
from foveate.files import replace_file
from foveate.run import RunConfig

SPLITS = {"train": (60_000, 2500), "valid": (500, 100), "test": (1000, 400)}  # read, written
LONGEST = 60  # words of a text


def lineage(
    folder: Path, names: Sequence[str] = (), overrides: Sequence[str] = ()
) -> tuple[ComparisonPlan, float]:
    """The plan of the lecture, and the minutes of each model; its data is written to ``folder``.

    ``names`` are other models than the usual ones. Raises ``ConfigError`` naming those that exist.
    """
    text = files("foveate.compare").joinpath("lineage.toml").read_text(encoding="utf-8")
    settings = tomllib.loads(text.replace("{folder}", folder.as_posix()))
    known = settings["models"]
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(f"lineage: no model {unknown[0]!r}; there are: {', '.join(known)}")
    write_data(folder / "data", settings["words"])
    plan = ComparisonPlan()
    for name in names or settings["usual"]:
        model = known[name]
        model = merge(settings.get(model.pop("base", ""), {}), model)
        tree = with_overrides(RunConfig, {**settings["common"], "model": model}, overrides)
        add(plan, name, parse_tree(RunConfig, tree))
    return plan, float(settings["minutes"])


def write_data(folder: Path, words: int) -> None:
    """Sentences of the ``words`` most frequent words, and texts of several, up to `LONGEST` words.

    Texts of each length are as frequent. In training all single sentences stand beside them.
    A small vocabulary and short examples are learnt soon; what remains difficult is the length.
    """
    folder.mkdir(parents=True, exist_ok=True)
    known: set[str] = set()
    for split, (count, size) in SPLITS.items():
        pairs = [(p.source, p.target) for p in synthetic.pairs(split, count)]
        if not known:
            counts = Counter(word for source, _ in pairs for word in cut(source))
            known = {word for word, _ in counts.most_common(words)}
        pairs = [pair for pair in pairs if known.issuperset(cut(pair[0]))]
        random, texts = Random(split), list[tuple[str, str]]()
        for number in range(size):
            length = 4 + number % (LONGEST - 4)
            chosen = [random.choice(pairs)]
            while sum(len(source.split()) for source, _ in chosen) < length - 3:
                chosen.append(random.choice(pairs))
            texts.append((" ".join(s for s, _ in chosen), " ".join(t for _, t in chosen)))
        texts += pairs if split == "train" else []
        for ending, side in zip(("en", "fr"), zip(*texts, strict=True), strict=True):
            replace_file(folder / f"{split}.{ending}", "".join(f"{line}\n" for line in side))


def cut(text: str) -> list[str]:
    """The words and signs of a text, in small letters."""
    return re.findall(r"\w+|[^\w\s]", text.lower())
