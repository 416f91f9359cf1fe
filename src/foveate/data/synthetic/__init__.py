"""The embedded corpus: English sentences, their French translations and gold word alignments.

Lives here: numbered random sentences of a split, and files of them. Everything is a function of
(seed, split, index). The valid and test splits hold pairs of words, an adjective or a verb with
its noun, that training never shows: ``chooser.split_of`` deals the pairs out.
Does not live here: words (lexicon.toml), grammar (grammar.py), choice of sentences (sentences.py).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from foveate.atomic import replacing
from foveate.data.synthetic import surface
from foveate.data.synthetic.lexicon import lexicon
from foveate.data.synthetic.sentences import Sentences

SPLITS = ("train", "valid", "test")
MIN_WORDS, MAX_WORDS = 3, 25


@dataclass(frozen=True, slots=True)
class SyntheticPair:
    """A sentence, its translation, and which words translate which.

    ``alignment`` holds pairs (i, j): source word i, target word j, counted from 0, words as
    `data.words.split_words` cuts them. A word may have several partners or none.
    """

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]


def pairs(split: str, count: int, seed: int = 1) -> list[SyntheticPair]:
    """The first ``count`` pairs of a split, all distinct; pair k does not depend on ``count``.

    Raises ValueError for a split that is not train, valid or test.
    """
    return list(islice(_stream(split, seed), count))


def write(folder: Path, sizes: Mapping[str, int], seed: int = 1) -> None:
    """Write ``{split}.en``, ``{split}.fr`` and ``{split}.align``, a line for each pair.

    Alignments are in Pharaoh format: ``0-0 1-2``. Each file is replaced atomically.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in sizes.items():
        with ExitStack() as stack:
            source, target, links = (
                stack.enter_context(replacing(folder / f"{split}.{ending}"))
                for ending in ("en", "fr", "align")
            )
            for pair in islice(_stream(split, seed), count):
                source.write(f"{pair.source}\n".encode())
                target.write(f"{pair.target}\n".encode())
                links.write((" ".join(f"{i}-{j}" for i, j in pair.alignment) + "\n").encode())


def _stream(split: str, seed: int) -> Iterator[SyntheticPair]:
    """Pairs of a split without end: sentences are drawn until one is new and belongs to it."""
    if split not in SPLITS:
        raise ValueError(f"split {split!r} is none of {', '.join(SPLITS)}")
    draw = random.Random(f"{seed} {split}").random  # random() alone is the same in every Python
    admitted = ("train",) if split == "train" else ("train", split)
    sentences = Sentences(lexicon(), draw, admitted)
    seen: set[str] = set()
    while True:
        sentences.shown.clear()
        english, french = sentences.sentence()
        if split != "train" and split not in sentences.shown:
            continue
        english, french = surface.english(english), surface.french(french)
        if not all(MIN_WORDS <= len(side) <= MAX_WORDS for side in (english, french)):
            continue
        source = surface.spell(english, attached=".,?")
        if source not in seen:
            seen.add(source)
            target = surface.spell(french, attached=".,")
            yield SyntheticPair(source, target, surface.align(english, french))
