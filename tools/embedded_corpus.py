"""Write the embedded corpus: English sentences, their French translations, gold word alignments.

    python tools/embedded_corpus.py [--folder src/foveate/data/embedded]

A random synchronous grammar makes two corpora: short sentences (3 to 25 words) and long ones (3 to
60 words, each length as often). Everything is a function of (corpus, seed, split, index). The valid
and test splits hold pairs of words, an adjective or a verb with its noun, that training never
shows: ``split_of`` deals the pairs out. `foveate.data.synthetic` reads what this writes.
"""

from __future__ import annotations

import argparse
import bz2
import hashlib
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from foveate.data.synthetic import EMBEDDED, SPLITS
from foveate.files import replace_file
from grammar.laws import check
from grammar.lexicon import Phrase, align, english, french, lexicon, spell
from grammar.pairs import SyntheticPair
from grammar.sentences import LongSentences, Sentences

MIN_WORDS, MAX_WORDS = 3, {"short": 25, "long": 60}
SHIPPED: Mapping[str, Mapping[str, int]] = {  # pairs of each split
    "short": {"train": 60_000, "valid": 500, "test": 1000},
    "long": {"train": 4700, "valid": 290, "test": 580},
}
DRAWS = 500  # of a long sentence, before its length is passed over


def pairs(split: str, count: int, seed: int = 1, corpus: str = "short") -> list[SyntheticPair]:
    """The first ``count`` pairs of a split, all distinct; pair k does not depend on ``count``.

    Raises ValueError for a split that is not train, valid or test.
    """
    return list(islice(stream(split, seed, corpus), count))


def stream(split: str, seed: int = 1, corpus: str = "short") -> Iterator[SyntheticPair]:
    """Pairs of a split without end; each 58 long ones have every length from 3 to 60 once.

    Sentences are drawn until one is new and belongs to the split. A length that many draws do not
    reach is passed over: three words hold no pair of words that training never shows.
    """
    if split not in SPLITS:
        raise ValueError(f"split {split!r} is none of {', '.join(SPLITS)}")
    name = f"{seed} {split}" if corpus == "short" else f"{seed} {split} {corpus}"
    draw = random.Random(name).random  # random() alone is the same in every Python
    admitted = ("train",) if split == "train" else ("train", split)
    short, long = Sentences(lexicon(), draw, admitted), LongSentences(lexicon(), draw, admitted)
    seen: set[str] = set()
    for turn in itertools.count():
        length = MIN_WORDS + 37 * turn % (MAX_WORDS["long"] - MIN_WORDS + 1)
        for _ in range(1 if corpus == "short" else DRAWS):
            sentences = short if corpus == "short" else long
            sentences.shown = set()
            phrase = short.sentence() if corpus == "short" else long.sentence_of(length)
            if phrase is None or (split != "train" and split not in sentences.shown):
                continue
            pair = spelled(phrase, MAX_WORDS[corpus])
            if pair and pair.source not in seen:
                seen.add(pair.source)
                yield pair
                break


def spelled(phrase: Phrase, most: int) -> SyntheticPair | None:
    """A sentence as text with its links, or None where a side has too few or too many words."""
    source, target = english(phrase.english), french(phrase.french)
    if not all(MIN_WORDS <= len(side) <= most for side in (source, target)):
        return None
    return SyntheticPair(spell(source, ".,?"), spell(target, ".,"), align(source, target))


def files(corpus: str, split: str, made: Sequence[SyntheticPair]) -> dict[str, bytes]:
    """What is shipped of a split: a compressed file for each language and for the links."""
    columns = {
        "en": (pair.source for pair in made),
        "fr": (pair.target for pair in made),
        "align": (" ".join(f"{i}-{j}" for i, j in pair.alignment) for pair in made),
    }
    return {
        f"{corpus}/{split}.{ending}.bz2": bz2.compress("".join(f"{x}\n" for x in lines).encode())
        for ending, lines in columns.items()
    }


def main() -> None:
    """Write every split of both corpora, and print the checksum of each file."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--folder", type=Path, default=EMBEDDED, help="where it is written")
    folder = options.parse_args().folder
    for corpus, sizes in SHIPPED.items():
        (folder / corpus).mkdir(parents=True, exist_ok=True)
        splits = {split: pairs(split, count, corpus=corpus) for split, count in sizes.items()}
        if corpus == "short":
            check(splits["train"], {split: splits[split] for split in ("valid", "test")})
        for split, made in splits.items():
            for name, content in files(corpus, split, made).items():
                replace_file(folder / name, content)
                print(f"{hashlib.sha256(content).hexdigest()}  {name}  {len(content):,} bytes")


if __name__ == "__main__":
    main()
