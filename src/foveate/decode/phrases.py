"""Phrases that outputs must or must not contain, and the tokens that spell or complete them."""

import warnings
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple
from unicodedata import normalize

from foveate.config import ConfigError
from foveate.data.tokenizer import BOS, PAD, SPECIALS, UNK, Tokenizer
from foveate.data.words import UNSPACED

UNFINISHED = "\ufffd"  # stands for a character with some bytes missing
CHARACTER = 4  # most tokens of one: its bytes in UTF-8


def _listed(phrases: Sequence[str]) -> Sequence[str]:
    """Return the phrases. Raises ``ConfigError`` for a string instead of a list."""
    if isinstance(phrases, str):
        raise ConfigError(f"{phrases!r} is a string: expected a list of strings, [{phrases!r}]")
    return phrases


class BannedPhrases:
    """Phrases, regardless of case; those that begin or end with a letter or digit as whole words.

    A token that ends with a phrase counts as its end, since what follows is not known yet.
    """

    def __init__(self, phrases: Sequence[str], tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        folded = [" ".join(phrase.casefold().split()) for phrase in _listed(phrases)]
        forms = [
            form
            for each in folded
            for form in (each, normalize("NFC", each), normalize("NFD", each))
            if form
        ]
        self.phrases = list(dict.fromkeys(forms))
        longest = max(map(len, self.phrases), default=0)
        self.longest = CHARACTER * (longest + 1)  # most tokens of a phrase and one before
        texts, self.inside = _folded(tokenizer, tokenizer.vocab_size)
        self.ending = [_ending(phrase, texts) for phrase in self.phrases]

    def completing(self, recent: Sequence[int]) -> set[int]:
        """Return the tokens that complete a phrase after ``recent``; most need no decoding."""
        text, tokens = self.tokenizer.decode(recent).casefold(), set[int]()
        part = self.inside if text.endswith(UNFINISHED) else []
        whole = text.rstrip(UNFINISHED)
        for phrase, ending in zip(self.phrases, self.ending, strict=True):
            begun = [n for n in range(1, len(phrase)) if text.endswith(phrase[:n])]
            for token in {*part, *(token for n in (0, *begun) for token in ending[n])}:
                longer = self.tokenizer.decode([*recent, token]).casefold()
                if _holds(longer, phrase, len(whole)):
                    tokens.add(token)
        return tokens


def _holds(text: str, phrase: str, start: int) -> bool:
    """Return whether a text contains a phrase, as whole words, that ends after ``start``."""
    at = text.find(phrase, max(0, start - len(phrase) + 1))
    while at >= 0:
        around = text[at - 1 : at], phrase[0], phrase[-1], text[at + len(phrase) :][:1]
        before, first, last, after = map(str.isalnum, around)
        if not (before and first) and not (last and after):
            return True
        at = text.find(phrase, at + 1)
    return False


def after_a_word(tokenizer: Tokenizer) -> list[str]:
    """Return the text that each piece of a vocabulary adds after a word; "" for special ones."""
    word = tokenizer.encode("a").ids[-1:]
    size = len(tokenizer.decode(word))
    return ["" if i < len(SPECIALS) else tokenizer.decode([*word, i])[size:]
            for i in range(tokenizer.vocab_size)]  # fmt: skip


@lru_cache(maxsize=8)
def _folded(tokenizer: Tokenizer, _: int) -> tuple[list[str], list[int]]:
    """Return the casefolded texts of `after_a_word`, and the pieces that begin inside a character.

    They are cached for a vocabulary of this size.
    """
    inside = [i for i, piece in enumerate(tokenizer.surfaces) if piece and piece[0] & 0xC0 == 0x80]
    return [text.casefold() for text in after_a_word(tokenizer)], inside


def _ending(phrase: str, texts: Sequence[str]) -> list[list[int]]:
    """Return, by the characters of a phrase already written, the tokens that may write the rest."""
    rests = [phrase[n:].lstrip() for n in range(len(phrase))]
    bare = list(enumerate(text.lstrip() for text in texts))
    begun = [[i for i, t in bare if t.startswith(rest) and _holds(t, rest, 0)] for rest in rests]
    return [[i for i, text in enumerate(texts) if _holds(text, phrase, 0)], *begun[1:]]


class Spelling(NamedTuple):
    """The ids of a phrase; ``bare`` if without a space before, ``initial`` if it begins a text."""

    ids: tuple[int, ...]
    bare: bool = False
    initial: bool = False


class UnspelledTerms(UserWarning):
    """Warns of required terms that no output can contain, as the tokenizer cannot spell them."""


Phrase = tuple[Spelling, ...]  # any of these spellings meets it


class WordPieces(NamedTuple):
    """Flags for each id: if it continues a word, and if it ends inside one."""

    goes_on: Sequence[bool]
    in_word: Sequence[bool]


def phrase_of(variants: Sequence[str], tokenizer: Tokenizer) -> Phrase:
    """Return the spellings of a term: each variant, and, in lower case, capitalised at a start.

    Each follows a space or a mark. Spellings with unknown tokens are left out, so that a term that
    no output can contain has none.
    """
    spellings: dict[Spelling, None] = {}
    for variant in _listed(variants):
        capitalised = variant[:1].upper() + variant[1:] if variant.islower() else variant
        for text in dict.fromkeys((variant, capitalised)):
            for before, bare in (("a", False), ("l'", True)):
                blank = "" if bare else " "
                start = tokenizer.encode(before).ids
                ids = tokenizer.encode(before + blank + text).ids
                if ids[: len(start)] == start and len(ids) > len(start):
                    spelling = Spelling(tuple(ids[len(start) :]), bare, text != variant)
                    spellings[spelling] = None
    return tuple(spelling for spelling in spellings if UNK not in spelling.ids)


def phrases_of(
    terms: Sequence[Sequence[Sequence[str]]], search: str | None, tokenizer: Tokenizer
) -> list[list[Phrase]]:
    """Return the phrases of the terms of each source, without terms that no output can contain.

    Warns of these. Raises ``ConfigError`` for terms that a search of this kind cannot force.
    """
    if search != "beam":
        raise ConfigError(f"{search} search cannot force terms; use decode.kind=beam")
    phrases = [[phrase_of(term, tokenizer) for term in each] for each in terms]
    both = zip(chain(*terms), chain(*phrases), strict=True)
    if unspelt := dict.fromkeys(next(iter(term), "") for term, phrase in both if not phrase):
        names = ", ".join(map(repr, unspelt))
        message = f"not in the target vocabulary, so not required: {names}"
        warnings.warn(message, UnspelledTerms, stacklevel=2)
    return [list(filter(None, each)) for each in phrases]


@lru_cache(maxsize=8)
def word_pieces(tokenizer: Tokenizer) -> WordPieces:
    """Return where each piece of a vocabulary begins and ends relative to words.

    A piece that is a part of a character counts as a letter, or as what most characters are that
    begin like it; padding, which writes nothing, ends no word.
    """
    texts = after_a_word(tokenizer)
    first = [_likely(piece) if text[:1] == UNFINISHED else text[:1]
             for text, piece in zip(texts, tokenizer.surfaces, strict=True)]  # fmt: skip
    last = [text[-1:].replace(UNFINISHED, "a") for text in texts]
    goes_on = [i in (PAD, BOS) or _in_word(text) for i, text in enumerate(first)]
    return WordPieces(goes_on, [*map(_in_word, last)])


def _in_word(character: str) -> bool:
    """Return whether a character belongs to a word of a script with spaces between words."""
    return character.isalnum() and not UNSPACED.match(character)


def _likely(piece: bytes) -> str:
    """Return a typical character among the many that begin with the bytes of a piece."""
    texts = (piece + more * (CHARACTER - 1) for more in (b"\x90", b"\xb0"))
    return next((t[:1] for t in (each.decode(errors="ignore") for each in texts) if t), "a")
