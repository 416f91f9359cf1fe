"""Tatoeba's text in the shape of the Hansards gold: the training data of every aligner there.

The gold French has its elisions and contractions written out ("le Orateur", "de le", "à les") and
its hyphens apart; text of today is brought to the same shape, so that words are the same words.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path

from foveate.data.words import words

DATA = Path(os.environ.get("FOVEATE_DATA", "../shared/data"))
GOLD = DATA / "alignment-gold"
FULL = {  # clitics before a vowel, and contractions, as the gold writes them
    "l'": "le", "d'": "de", "j'": "je", "m'": "me", "t'": "te", "s'": "se", "c'": "ce",
    "n'": "ne", "qu'": "que", "jusqu'": "jusque", "lorsqu'": "lorsque", "puisqu'": "puisque",
    "quoiqu'": "quoique", "du": "de le", "des": "de les", "au": "à le", "aux": "à les",
}  # fmt: skip

Pair = tuple[list[str], list[str]]


def english(text: str) -> list[str]:
    """Words in lower case, hyphens apart, n't as not."""
    plain = text.replace("’", "'").replace("can't", "can not").replace("won't", "will not")
    plain = plain.replace("n't", " not").replace("'", " '").replace("-", " - ")
    return " ".join(words(plain)).lower().split()


def french(text: str) -> list[str]:
    """Words in lower case, hyphens apart, elisions and contractions written out."""
    plain = text.replace("’", "'").replace("-", " - ").lower()
    return " ".join(FULL.get(word, word) for word in words(plain)).split()


def tatoeba() -> list[Pair]:
    """The 165,130 pairs."""
    with gzip.open(DATA / "tatoeba-en-fr" / "pairs.tsv.gz", "rt", encoding="utf-8") as lines:
        rows = (line.rstrip("\n").split("\t") for line in lines)
        return [(english(row[0]), french(row[1])) for row in rows]


def gold_pairs() -> list[Pair]:
    """The 447 pairs that were annotated, words as they stand."""
    sides = [(GOLD / name).read_text("utf-8").splitlines() for name in ("en.txt", "fr.txt")]
    return [(e.lower().split(), f.lower().split()) for e, f in zip(*sides, strict=True)]
