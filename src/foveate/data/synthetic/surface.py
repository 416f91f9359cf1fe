"""From linked tokens to text: how words change beside each other, how they are spelled out.

Lives here: tokens of a synchronous phrase, whose links say which words translate which, and the
rewrite rules over them: French elision and contraction, English a and an, spaces, capitals. A
rewritten token keeps the links of what it was made from, so the gold alignment survives.
Does not live here: which words stand in a sentence (grammar.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import NamedTuple

Link = tuple[int, ...]  # concepts; two words are aligned where they share one
Token = tuple[str, Link]

_concepts = itertools.count()


class Phrase(NamedTuple):
    """A piece of a sentence in both languages: the same concepts in two orders."""

    english: list[Token]
    french: list[Token]


def new_link() -> Link:
    """A link to a concept that no other token has yet."""
    return (next(_concepts),)


_VOWELS = frozenset("aeiouâàéèêëîïôœùû")
_ASPIRATED = {"huit", "onze"}  # before these nothing elides, nor before an aspirated h


def aspirate(*forms: str) -> None:
    """Note words whose h is aspirated: le héros, la haine."""
    _ASPIRATED.update(form.lower() for form in forms)


def begins_with_vowel(word: str) -> bool:
    """Whether a French word begins with a vowel sound, so that the word before it elides."""
    lower = word.lower()
    if lower in _ASPIRATED:
        return False
    return lower[:1] in _VOWELS or lower[:1] == "h" or lower == "y"


_BEFORE_VOWEL = {
    **{"le": "l'", "la": "l'", "de": "d'", "ne": "n'", "je": "j'", "que": "qu'"},
    **{"me": "m'", "se": "s'", "ce": "cet", "ma": "mon", "sa": "son"},
}
_CONTRACTED = {
    **{("de", "le"): "du", ("de", "les"): "des"},
    **{("à", "le"): "au", ("à", "les"): "aux"},
}


def french(tokens: Iterable[Token]) -> list[Token]:
    """Elide and contract, from the end: de + le + homme → de l' homme; de + le + chat → du chat."""
    done: list[Token] = [("", ())]
    for text, link in reversed(list(tokens)):
        following, its_link = done[-1]
        contracted = _CONTRACTED.get((text, following))
        if contracted:
            done[-1] = (contracted, link + its_link)
        elif text in _BEFORE_VOWEL and begins_with_vowel(following):
            done.append((_BEFORE_VOWEL[text], link))
        elif text == "si" and following in ("il", "ils"):
            done.append(("s'", link))
        else:
            done.append((text, link))
    return done[:0:-1]


_SOUNDS_LIKE_YOU = ("eu", "uni", "use", "one")


def english(tokens: Iterable[Token]) -> list[Token]:
    """Write "a" as "an" before a vowel sound: an old house, a European house."""
    done = list(tokens)
    for at, (text, link) in enumerate(done):
        if text != "a":
            continue
        following = done[at + 1][0].lower()
        vowel = following[0] in "aeiou" and not following.startswith(_SOUNDS_LIKE_YOU)
        if vowel or following.startswith(("honest", "hour")):
            done[at] = ("an", link)
    return done


def spell(tokens: Iterable[Token], attached: str) -> str:
    """The tokens as one string with a capital; ``attached`` are the marks with no space before."""
    text = " ".join(word for word, _ in tokens).replace("' ", "'")
    for mark in attached:
        text = text.replace(f" {mark}", mark)
    return text[0].upper() + text[1:]


def align(source: Iterable[Token], target: Iterable[Token]) -> tuple[tuple[int, int], ...]:
    """The pairs (i, j) of words that share a concept, in order."""
    places: dict[int, list[int]] = {}
    for j, (_, link) in enumerate(target):
        for concept in link:
            places.setdefault(concept, []).append(j)
    pairs: set[tuple[int, int]] = set()
    for i, (_, link) in enumerate(source):
        for concept in link:
            pairs.update((i, j) for j in places.get(concept, ()))
    return tuple(sorted(pairs))
