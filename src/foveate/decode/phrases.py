"""Phrases that outputs must, or must not, hold, and the tokens that spell or complete them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from foveate.config import ConfigError
from foveate.data.tokenizer import SPECIALS, UNK, Tokenizer


class BannedPhrases:
    """Phrases as whole words, in whatever case."""

    def __init__(self, phrases: Sequence[str], tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.phrases = [" " + " ".join(p.casefold().split()) for p in phrases if p.strip()]
        self.longest = max(map(len, self.phrases), default=0)
        texts = [text.casefold() for text in after_a_word(tokenizer)]
        self.ending = [_ending(phrase, texts) for phrase in self.phrases]

    def completing(self, recent: Sequence[int]) -> set[int]:
        """The tokens that complete a phrase after ``recent``; most are excluded undecoded."""
        text, tokens = self.tokenizer.decode(recent).casefold(), set[int]()
        for phrase, ending in zip(self.phrases, self.ending, strict=True):
            begun = [n for n in range(2, len(phrase)) if text.endswith(phrase[1:n])]
            for token in {token for n in (1, *begun) for token in ending[n]}:
                longer = " " + self.tokenizer.decode([*recent, token]).casefold()
                place = len(longer) - len(phrase) + 1
                if longer.endswith(phrase[1:]) and place > 0 and not longer[place - 1].isalnum():
                    tokens.add(token)
        return tokens


def after_a_word(tokenizer: Tokenizer) -> list[str]:
    """The text that each piece of a vocabulary adds after a word; special ones none."""
    word = tokenizer.encode("a").ids[-1:]
    size = len(tokenizer.decode(word))
    return ["" if i < len(SPECIALS) else tokenizer.decode([*word, i])[size:]
            for i in range(tokenizer.vocab_size)]  # fmt: skip


def _ending(phrase: str, texts: Sequence[str]) -> list[list[int]]:
    """For each position of a phrase the tokens that end with the phrase from there on."""
    last = [i for i, text in enumerate(texts) if text.endswith(phrase[-1])]
    rests = [phrase[n:].lstrip() for n in range(len(phrase))]
    return [[i for i in last if texts[i].endswith(rest)] for rest in rests]


class Spelling(NamedTuple):
    """The ids of a phrase; ``bare`` if it brings no blank of its own."""

    ids: tuple[int, ...]
    bare: bool = False


Phrase = tuple[Spelling, ...]  # any of these meets it


class WordPieces(NamedTuple):
    """For each id, whether it continues a word, and whether it ends inside one."""

    goes_on: Sequence[bool]
    in_word: Sequence[bool]


def phrase_of(variants: Sequence[str], tokenizer: Tokenizer) -> Phrase:
    """The spellings of a term: each variant as it is and capitalised, after a blank or a mark.

    Spellings with unknown tokens are left out, so that a term that no output can hold has none.
    """
    spellings: dict[Spelling, None] = {}
    for variant in variants:
        for text in dict.fromkeys((variant, variant[:1].upper() + variant[1:])):
            for before, bare in (("a", False), ("l'", True)):
                blank = "" if bare else " "
                start = tokenizer.encode(before).ids
                ids = tokenizer.encode(before + blank + text).ids
                if ids[: len(start)] == start and len(ids) > len(start):
                    spellings[Spelling(tuple(ids[len(start) :]), bare)] = None
    return tuple(spelling for spelling in spellings if UNK not in spelling.ids)


def phrases_of(
    terms: Sequence[Sequence[Sequence[str]]], search: str | None, tokenizer: Tokenizer
) -> list[list[Phrase]]:
    """The phrases of the terms of each source.

    Raises ``ConfigError`` for terms that a search of this kind cannot force.
    """
    if search != "beam":
        raise ConfigError(f"a search {search} cannot force terms; use decode.kind=beam")
    phrases = ((phrase_of(term, tokenizer) for term in each) for each in terms)
    return [list(filter(None, each)) for each in phrases]


@lru_cache(maxsize=8)
def word_pieces(tokenizer: Tokenizer) -> WordPieces:
    """Where each piece of a vocabulary begins and ends relative to words."""
    texts = after_a_word(tokenizer)
    return WordPieces([t[:1].isalnum() for t in texts], [t[-1:].isalnum() for t in texts])
