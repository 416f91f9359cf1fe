"""Train, pack and score the translators of the package foveate-models, and write its files.

    python tools/models.py data|train|pack|score|all [--work build/models]    (make models)

`data` writes the training texts of each direction, `train` trains
configs/translation/everyday-{pair}.toml and goes on where it was ended, `pack` writes
models/src/foveate_models/files/{pair}.safetensors, and `score` writes docs/results/models.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from safetensors.numpy import save

from everyday import Pair, bare, folded, lines, spaced, tatoeba, tidy, words
from foveate.align.ibm import Model1, Symmetrized
from foveate.engine import packed
from foveate.files import replace_file
from foveate.measure.machine import describe
from foveate.run import load
from foveate.run.pack import pack
from foveate.tasks.metrics import bleu, chrf

ROOT = Path(__file__).parent.parent
PAIRS = ("en-fr", "fr-en")
DOCS = "python-docs-en-fr"
OPEN = ("adobe", "django", "gnome", "guides", "laws", "php", "react", "tldr")
CONFIGS, FILES = ROOT / "configs" / "translation", ROOT / "models/src/foveate_models/files"
EVALUATION = {"flores-dev": "flores-200-dev/dev", "newstest2014": "newstest2014-en-fr/newstest2014"}
BESIDE = "newstest2014-en-fr/newstest2014.bergamot-tiny.fr"
LONGEST = 600  # characters of a side
BARE, JOINED, UPPER, NOISY = 0.08, 0.08, 0.03, 0.4  # shares of the pairs that are changed as below
SURE, SEEN = 0.3, 8  # of a word's translation: its share among all, both ways, and how often


def documentation(split: str) -> list[Pair]:
    """The pairs of Python's documentation that differ, neither of them very long."""
    sides = (map(tidy, lines(f"{DOCS}/{split}.{language}")) for language in ("en", "fr"))
    return [(a, b) for a, b in zip(*sides, strict=True) if a != b and max(len(a), len(b)) < LONGEST]


def manuals() -> list[Pair]:
    """The pairs of laws and manuals under open licences, neither side very long."""
    rows = (line.split("\t") for name in OPEN for line in lines(f"open-en-fr/{name}.tsv.gz"))
    pairs = [(tidy(english), spaced(tidy(french))) for english, french in rows]
    return [pair for pair in pairs if max(map(len, pair)) < LONGEST]


def single_words(pairs: Sequence[Pair]) -> list[Pair]:
    """Words that are mostly translated by each other, as links between the words of pairs say."""
    texts = [(words(english), words(french)) for english, french in pairs]
    texts = [pair for pair in texts if min(map(len, pair)) >= 1 and max(map(len, pair)) <= 20]
    aligner = Symmetrized.Config(aligner=Model1.Config(), method="intersection").build()
    aligner.train(texts)
    both, english, french = Counter[Pair](), Counter[str](), Counter[str]()
    for (source, target), links in zip(texts, aligner.align(texts), strict=True):
        for i, j in links:
            both[source[i], target[j]] += 1
            english[source[i]] += 1
            french[target[j]] += 1
    return [
        (a, b)
        for (a, b), n in sorted(both.items())
        if n >= SEEN and n >= SURE * max(english[a], french[b]) and (a + b).isalpha()
    ]


def texts() -> dict[str, list[Pair]]:
    """All pairs by split: nothing that is evaluated on has a side equal to one of training."""
    splits = tatoeba()
    train = splits["train"] + documentation("train") + manuals()
    for pair in single_words(train):
        train += [pair, (pair[0].capitalize(), pair[1].capitalize())]
    held: tuple[set[str], set[str]] = (set(), set())
    for split in ("valid", "test"):
        for pair in splits[split] + documentation(split):
            for side, text in enumerate(pair):
                held[side].add(folded(text))
    for name in EVALUATION.values():
        for side, language in enumerate(("en", "fr")):
            held[side].update(map(folded, lines(f"{name}.{language}")))
    splits["train"] = [
        pair
        for pair in dict.fromkeys(train)
        if not any(folded(text) in held[side] for side, text in enumerate(pair))
    ]
    return splits


def typed(text: str, draw: random.Random) -> str:
    """A source with other spaces and apostrophes than ours."""
    kind = draw.random()
    if kind < 0.5:
        text = text.replace("\xa0", " ")
    elif kind < 0.75:
        text = re.sub(r"\xa0([?!:;])", r"\1", text)
    return text.replace("'", "’") if draw.random() < 0.3 else text


def changed(pairs: Sequence[Pair], draw: random.Random) -> Iterator[Pair]:
    """The pairs, and behind them bare ones, ones in capitals, and several that are joined."""
    yield from pairs
    for english, french in draw.sample(pairs, int(BARE * len(pairs))):
        yield bare(english), bare(french)
    for english, french in draw.sample(pairs, int(UPPER * len(pairs))):
        yield english.upper(), french.upper()
    for _ in range(int(JOINED * len(pairs))):
        chosen = draw.choices(pairs, k=draw.choice((2, 2, 3, 4)))
        if max(sum(map(len, side)) for side in zip(*chosen, strict=True)) < LONGEST:
            yield " ".join(a for a, _ in chosen), " ".join(b for _, b in chosen)


def write_data(work: Path) -> None:
    """Write ``{pair}/{split}.{language}`` for each direction: the same bytes from the same data."""
    splits = texts()
    for name in PAIRS:
        (work / name).mkdir(parents=True, exist_ok=True)
        for split, pairs in splits.items():
            draw = random.Random(f"{name} {split}")
            rows = list(changed(pairs, draw)) if split == "train" else pairs
            rows = [pair[::-1] for pair in rows] if name == "fr-en" else rows
            if split == "train":
                rows = [(typed(a, draw) if draw.random() < NOISY else a, b) for a, b in rows]
            for language, side in zip(name.split("-"), zip(*rows, strict=True), strict=True):
                text = "".join(f"{line}\n" for line in side)
                replace_file(work / name / f"{split}.{language}", text)
            print(f"{name} {split}: {len(rows):,} pairs")


# ------------------------------------------------------------------------------ train and pack


def train(work: Path, names: Sequence[str]) -> None:
    """Train the directions at once, one thread each; a run that was begun goes on."""
    command = [sys.executable, "-m", "foveate", "train"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    trainings = [
        subprocess.Popen(
            [*command, CONFIGS / f"everyday-{name}.toml", "--run", work / "runs" / name],
            env=environment,
        )
        for name in names
    ]
    if any([training.wait() for training in trainings]):
        raise SystemExit("a training failed; the same command goes on")


def pack_run(work: Path, name: str) -> Path:
    """The packed file of a run in int8, in the folder of the package."""
    FILES.mkdir(exist_ok=True)
    return pack(load(work / "runs" / name), FILES / f"{name}.safetensors", "int8")


# ------------------------------------------------------------------------------ score


def scored(outputs: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """BLEU (13a, cased) and chrF with the signatures of SacreBLEU."""
    (words, cut), (letters, order) = bleu(outputs, references, "13a"), chrf(outputs, references)
    return {
        "bleu": round(words, 2),
        "chrf": round(letters, 2),
        "signatures": {"bleu": cut, "chrf": order},
        "lines": len(outputs),
    }


def tests(work: Path, name: str) -> dict[str, tuple[list[str], list[str]]]:
    """Sources and references of each test set of a direction."""
    languages = name.split("-")
    own = [(work / name / f"test.{language}").read_text("utf-8") for language in languages]
    sets = {"tatoeba": (own[0].splitlines(), own[1].splitlines())}
    for title, prefix in EVALUATION.items():
        sets[title] = (lines(f"{prefix}.{languages[0]}"), lines(f"{prefix}.{languages[1]}"))
    return sets


def score(work: Path, name: str) -> dict[str, Any]:
    """Score a packed file on each test set, and write the scores into it."""
    file = FILES / f"{name}.safetensors"
    model = packed.load(file, threads=1)
    results = {}
    for title, (sources, references) in tests(work, name).items():
        outputs = [str(answer) for answer in model.translate(sources)]
        results[title] = scored(outputs, references)
        print(f"{name} {title}: {results[title]}", flush=True)
    header, tensors = packed.read(file)
    shown = {t: {n: each[n] for n in ("bleu", "chrf")} for t, each in results.items()}
    tree = header.tree() | {"scores": header.scores | {"tests": shown}}
    metadata = {packed.KEY: json.dumps(tree, ensure_ascii=False)}
    replace_file(file, save(dict(sorted(tensors.items())), metadata))
    made = header.made_of | {"bytes": file.stat().st_size}
    return {"made_of": made, "validation": header.scores, "tests": results}


def score_all(work: Path, names: Sequence[str]) -> None:
    """Write docs/results/models.json: our files, and the stored outputs of another small system."""
    result = {
        "what": "scores of the packed files of foveate-models, by the engine, one thread",
        "command": "python tools/models.py score",
        "machine": describe(),
        "models": {name: score(work, name) for name in names},
        "beside": {
            "bergamot-tiny en-fr, 17 MB, stored outputs": {
                "newstest2014": scored(lines(BESIDE), lines("newstest2014-en-fr/newstest2014.fr"))
            }
        },
    }
    text = json.dumps(result, ensure_ascii=False, indent=2) + "\n"
    replace_file(ROOT / "docs" / "results" / "models.json", text)


def main() -> None:
    """Do one step, or all."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("step", choices=("data", "train", "pack", "score", "all"))
    options.add_argument("--work", type=Path, default=Path("build/models"), help="texts and runs")
    options.add_argument("--only", choices=PAIRS, help="one direction")
    chosen = options.parse_args()
    names = [chosen.only] if chosen.only else PAIRS
    if chosen.step in ("data", "all"):
        write_data(chosen.work)
    if chosen.step in ("train", "all"):
        train(chosen.work, names)
    if chosen.step in ("pack", "all"):
        for name in names:
            print(pack_run(chosen.work, name))
    if chosen.step in ("score", "all"):
        score_all(chosen.work, names)


if __name__ == "__main__":
    main()
