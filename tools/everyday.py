"""Real sentences of Tatoeba: how they are divided, and the selection that is part of the package.

    python tools/everyday.py [--folder src/foveate/data/embedded/everyday]

The selection are English sentences of few and frequent words, each with one French translation;
short ones whose translation is that of several sentences stand there several times.
Everything is a function of the data set tatoeba-en-fr. `foveate.data.synthetic` reads what this
writes; tools/models.py trains on all of the data set, with the same valid and test sentences.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import hashlib
import math
import re
import unicodedata
from collections import Counter
from pathlib import Path

from foveate.data.catalogue import find
from foveate.data.synthetic import EMBEDDED
from foveate.files import replace_file

TATOEBA = "tatoeba-en-fr/pairs.tsv"
SHARES = {"valid": 0.008, "test": 0.02}  # of the English sentences
FEW = 2  # translations of a sentence that may be held out
SHORT, OFTEN = 5, 4  # words of a sentence that stands in training bare too, and up to four times
MOST_WORDS, FREQUENT = 8, 20  # English words of a sentence; how often each of its words occurs
SHIPPED = {"valid": 300, "test": 1000}  # pairs; of train all
NOTICE = (
    "# Sentence pairs of the Tatoeba project (tatoeba.org, www.manythings.org/anki), CC BY 2.0 FR: "
    "selected, spaces and apostrophes made alike"
)
Pair = tuple[str, str]


def lines(name: str) -> list[str]:
    """The lines of a text file of a data set, compressed or not."""
    path = find(name)
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return content.decode().removesuffix("\n").split("\n")


def folded(text: str) -> str:
    """The letters and digits of a text, by which equal sentences are found."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", text).casefold())


def tidy(text: str) -> str:
    """One kind of apostrophe and of space that does not break."""
    return text.replace("\u202f", "\xa0").replace("’", "'").strip()


def spaced(french: str) -> str:
    """A sentence with a space that does not break where French has one at a sign."""
    return re.sub(r"«[ \xa0]*", "«\xa0", re.sub(r"[ \xa0]*([?!:;»])(?!\S)", "\xa0\\1", french))


def share_of(text: str) -> float:
    """A number in [0, 1) that only depends on the text."""
    digest = hashlib.blake2b(text.encode(), digest_size=8, key=b"foveate-models").digest()
    return int.from_bytes(digest, "big") / 2**64


def tatoeba() -> dict[str, list[Pair]]:
    """The pairs of Tatoeba by split; valid and test have each English sentence once.

    What has many translations is said most often, and is trained on.
    """
    groups: dict[str, list[Pair]] = {}
    for line in lines(TATOEBA):
        english, french = map(tidy, line.split("\t"))
        groups.setdefault(folded(english), []).append((english, spaced(french)))
    splits: dict[str, list[Pair]] = {"train": [], "valid": [], "test": []}
    for key, pairs in groups.items():
        place = share_of(key)
        if place >= sum(SHARES.values()) or len(pairs) > FEW:
            splits["train"] += pairs
        else:
            splits["valid" if place < SHARES["valid"] else "test"].append(pairs[0])
    return splits


def bare(text: str) -> str:
    """A sentence as people type it: a small letter first, and no full stop or question mark."""
    text = re.sub(r"[\s\xa0]*[.?!]$", "", text)
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def words(text: str) -> list[str]:
    """The words of a text in small letters."""
    return re.findall(r"\w+", text.casefold())


def selection() -> dict[str, list[Pair]]:
    """The pairs of the package by split, in the order of the alphabet; valid and test drawn."""
    splits = tatoeba()
    held = [{folded(pair[n]) for split in SHARES for pair in splits[split]} for n in (0, 1)]
    counts = [Counter[str](), Counter[str]()]
    for pair in splits["train"]:
        for count, text in zip(counts, pair, strict=True):
            count.update(words(text))

    def known(pair: Pair) -> bool:
        names = set(re.findall(r"[A-Z]\w+", pair[0])) & set(re.findall(r"[A-Z]\w+", pair[1]))
        usual = {name.casefold() for name in names}
        return (
            1 <= len(words(pair[0])) <= MOST_WORDS
            and '"' not in pair[0]
            and all(
                count[word] >= FREQUENT or word in usual
                for count, text in zip(counts, pair, strict=True)
                for word in words(text)
            )
        )

    same = Counter(folded(french) for _, french in splits["train"])

    def usual(pair: Pair) -> tuple[int, float]:
        """Of how many sentences it is the translation, and how frequent its words are."""
        each = [math.log(1 + counts[1][word]) for word in words(pair[1])] or [0.0]
        return same[folded(pair[1])], min(each) + sum(each) / len(each)

    best: dict[str, Pair] = {}
    for pair in splits["train"]:
        if known(pair) and not any(folded(text) in held[n] for n, text in enumerate(pair)):
            key = folded(pair[0])
            best[key] = max(best.get(key, pair), pair, key=usual)
    train = list(best.values())
    for pair in best.values():
        if len(words(pair[0])) <= SHORT:
            train += [(bare(pair[0]), bare(pair[1]))]
            train += [pair] * (min(OFTEN, same[folded(pair[1])]) - 1)
    chosen = {"train": sorted(train)}
    for split, size in SHIPPED.items():
        pairs = sorted(filter(known, splits[split]), key=lambda pair: share_of(pair[0] + split))
        chosen[split] = sorted(pairs[:size])
    return chosen


def main() -> None:
    """Write each side of every split, and print its checksum."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--folder", type=Path, default=EMBEDDED / "everyday", help="where to")
    folder = options.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for split, pairs in selection().items():
        print(f"{split}: {len(pairs):,} pairs")
        for language, side in zip(("en", "fr"), zip(*pairs, strict=True), strict=True):
            content = bz2.compress("".join(f"{line}\n" for line in (NOTICE, *side)).encode())
            replace_file(folder / f"{split}.{language}.bz2", content)
            print(
                f"{hashlib.sha256(content).hexdigest()}  {split}.{language}.bz2  {len(content):,}"
            )


if __name__ == "__main__":
    main()
