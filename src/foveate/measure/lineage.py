"""The lecture's models on the embedded grammar: from no attention to the Transformer and Mamba.

The models, their sizes, their budget and the texts are in ``lineage.toml`` beside this module.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from random import Random

from foveate.config import ConfigError, merge, parse_tree, with_overrides
from foveate.data import synthetic
from foveate.files import replace_file
from foveate.measure.budget import Budget, ComparisonPlan, add
from foveate.run import RunConfig

SENTENCES = 60_000  # sentences read from the embedded corpus
TENTH = 10  # one sentence in ten is for validation, one for testing
SHORTEST, MEAN = 4, 6  # words in the shortest text, and about how many in a sentence


def lineage(
    folder: Path, names: Sequence[str] = (), overrides: Sequence[str] = ()
) -> tuple[ComparisonPlan, Budget]:
    """Return the plan of the lecture and the budget of each model; write its data to ``folder``.

    ``names`` replaces the usual models. Raises ``ConfigError`` with the known names.
    """
    text = files("foveate.measure").joinpath("lineage.toml").read_text(encoding="utf-8")
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
    """Write texts of up to ``longest`` words: sentences in the ``words`` most frequent words.

    ``train``, ``valid`` and ``test`` are counts; no split has a sentence of another. In valid and
    test all lengths are equally frequent. In training short texts are more frequent, and all single
    sentences are added: a small vocabulary and short examples are learned quickly, and the
    difficulty that remains is length. Training has ``each`` more sentences for each ``rare``
    word: those with the fewest other infrequent words.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sides = (synthetic.read_lines("train", ending, SENTENCES) for ending in ("en", "fr"))
    pairs = list(zip(*sides, strict=True))
    counts = Counter(word for source, _ in pairs for word in cut(source))
    known = {word for word, _ in counts.most_common(words)}
    others = {pair: set(cut(pair[0])) - known for pair in pairs}  # infrequent words
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
    """Return the words and punctuation marks of a text in lower case."""
    return re.findall(r"\w+|[^\w\s]", text.lower())
