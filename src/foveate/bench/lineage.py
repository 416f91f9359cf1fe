"""The models of the lectures on the embedded grammar: from no attention to Transformer and Mamba.

Which models, their sizes, their budget and the texts stand in ``lineage.toml`` beside this module.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from random import Random

from foveate.bench.budget import Budget, ComparisonPlan, add
from foveate.config import ConfigError, merge, parse_tree, with_overrides
from foveate.data import synthetic
from foveate.files import replace_file
from foveate.run import RunConfig

SENTENCES = 60_000  # of the embedded corpus that are read
TENTH = 10  # of the sentences, one for validation and one for the test
SHORTEST, MEAN = 4, 6  # words of a text and, about, of a sentence


def lineage(
    folder: Path, names: Sequence[str] = (), overrides: Sequence[str] = ()
) -> tuple[ComparisonPlan, Budget]:
    """The plan of the lecture, and the budget of each model; its data is written to ``folder``.

    ``names`` are other models than the usual ones. Raises ``ConfigError`` naming those that exist.
    """
    text = files("foveate.bench").joinpath("lineage.toml").read_text(encoding="utf-8")
    settings = tomllib.loads(text.replace("{folder}", folder.as_posix()))
    known = settings["models"]
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(f"lineage: no model {unknown[0]!r}; there are: {', '.join(known)}")
    write_data(folder / "data", **settings["texts"])
    plan = ComparisonPlan()
    for name in names or settings["usual"]:
        model = known[name]
        model = merge(settings.get(model.pop("base", ""), {}), model)
        tree = with_overrides(RunConfig, {**settings["common"], "model": model}, overrides)
        add(plan, name, parse_tree(RunConfig, tree))
    return plan, Budget(tokens=settings["tokens"])


def write_data(
    folder: Path, words: int, rare: str, each: int, longest: int, train: int, valid: int, test: int
) -> None:
    """Texts of several sentences of the ``words`` most frequent words, up to ``longest`` words.

    ``train``, ``valid`` and ``test`` are how many; no split has a sentence of another. In valid and
    test each length is as frequent. In training short texts are more frequent, and all single
    sentences stand beside them: a small vocabulary and short examples are learnt soon, and what
    remains difficult is the length. Training has ``each`` sentences more for each of the ``rare``
    words, those with the fewest other words that are not frequent.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sides = (synthetic.read_lines("train", ending, SENTENCES) for ending in ("en", "fr"))
    pairs = list(zip(*sides, strict=True))
    counts = Counter(word for source, _ in pairs for word in cut(source))
    known = {word for word, _ in counts.most_common(words)}
    others = {pair: set(cut(pair[0])) - known for pair in pairs}  # words that are not frequent
    pairs = [pair for pair, unknown in others.items() if not unknown]
    written = {"valid": (pairs[::TENTH], valid), "test": (pairs[1::TENTH], test)}
    rest = [pair for number, pair in enumerate(pairs) if number % TENTH > 1]
    also = set(rare.split())
    for word in sorted(also):
        with_it = [pair for pair, unknown in others.items() if word in unknown]
        rest += sorted(with_it, key=lambda pair: len(others[pair] - also))[:each]
    rest = list(dict.fromkeys(rest))
    for split, (sentences, size) in {"train": (rest, train), **written}.items():
        random, texts = Random(split), list[tuple[str, str]]()
        for number in range(size):
            share = ((number + 0.5) / size) ** (2 if split == "train" else 1)
            length = SHORTEST + round(share * (longest - SHORTEST))
            source, target = random.choice(sentences)
            while len(source.split()) < length - MEAN // 2:
                more, translated = random.choice(sentences)
                if len(source.split()) + len(more.split()) > longest:
                    break
                source, target = f"{source} {more}", f"{target} {translated}"
            texts.append((source, target))
        texts += sentences if split == "train" else []
        for ending, side in zip(("en", "fr"), zip(*texts, strict=True), strict=True):
            replace_file(folder / f"{split}.{ending}", "".join(f"{line}\n" for line in side))


def cut(text: str) -> list[str]:
    """The words and signs of a text, in small letters."""
    return re.findall(r"\w+|[^\w\s]", text.lower())
