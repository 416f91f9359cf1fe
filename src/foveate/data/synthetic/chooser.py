"""Random choice of words for the embedded corpus, kept apart by split.

Lives here: which words go together, and which pairs of words are held out of training. A noun is
chosen with its adjective or its verb only if that pair belongs to an admitted split.
Does not live here: noun phrases (nominals.py), whole sentences (sentences.py).
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from foveate.data.synthetic.lexicon import Adjective, Lexicon, Noun, Verb

T = TypeVar("T")
TENSES = ("present", "past", "future")


@functools.cache
def split_of(first: str, second: str) -> str:
    """The split that a pair of words belongs to: 90 % train, 5 % valid, 5 % test."""
    digest = hashlib.blake2b(f"{first}|{second}".encode(), digest_size=4).digest()
    share = int.from_bytes(digest, "big") % 100
    return "train" if share < 90 else ("valid" if share < 95 else "test")


def verb_name(verb: Verb) -> str:
    """The English verb with its particles: look for."""
    return " ".join((verb.base, *verb.particle, verb.preposition[0])).strip()


class Chooser:
    """Chooses words and builds noun phrases; notes in ``shown`` the splits of the pairs chosen."""

    def __init__(
        self, lexicon: Lexicon, random: Callable[[], float], admitted: tuple[str, ...]
    ) -> None:
        self.lexicon, self.random, self.admitted = lexicon, random, admitted
        self.shown: set[str] = set()
        self._objects: dict[Verb, list[tuple[Noun, str]]] = {}
        self._verbs: dict[tuple[str, bool, bool], list[Verb]] = {}
        self._takers: dict[Noun, list[tuple[Verb, str]]] = {}
        for verb in (v for verbs in lexicon.verbs.values() for v in verbs):
            mates = ((noun, split_of(verb_name(verb), noun.english[0])) for noun in verb.nouns)
            self._objects[verb] = [(noun, split) for noun, split in mates if split in admitted]
            for noun, split in self._objects[verb]:
                self._takers.setdefault(noun, []).append((verb, split))
        for verb, objects in self._objects.items():  # a noun with few verbs: often with these
            often = ([mate] * (1 + 24 // len(self._takers[mate[0]])) for mate in objects)
            self._objects[verb] = [mate for mates in often for mate in mates]
        self._adjectives: dict[tuple[Noun, str], list[tuple[Adjective, str]]] = {}

    # chance

    def pick(self, items: Sequence[T]) -> T:
        """One of the items, each as likely."""
        return items[int(self.random() * len(items))]

    def chance(self, probability: float) -> bool:
        """True this often."""
        return self.random() < probability

    def _mate(self, mates: Sequence[tuple[T, str]]) -> T:
        item, split = self.pick(mates)
        self.shown.add(split)
        return item

    # words

    def object_of(self, verb: Verb) -> Noun:
        """A noun that the verb takes, in a pair of an admitted split."""
        return self._mate(self._objects[verb])

    def taker_of(self, noun: Noun, *kinds: str, besides: Verb | None = None) -> Verb | None:
        """A verb of these kinds that takes the noun."""
        takers = [t for t in self._takers.get(noun, ()) if t[0].kind in kinds and t[0] != besides]
        return self._mate(takers) if takers else None

    def verb(self, kind: str, tense: str | None = None, eventive: bool = False) -> Verb:
        """A verb of a kind that has this tense; an eventive one is not stative."""
        key = (kind, tense == "past", eventive)
        if key not in self._verbs:
            verbs = (v for v in self.lexicon.verbs[kind] if v.past or tense != "past")
            self._verbs[key] = [v for v in verbs if not (eventive and v.stative)]
        return self.pick(self._verbs[key])

    def tense(self, verb: Verb) -> str:
        """One of the tenses of the verb."""
        return self.pick(TENSES if verb.past else ("present", "present", "future"))

    def adjective(self, noun: Noun, role: str) -> Adjective | None:
        """An adjective that goes with the noun in a role: see ``_plays``."""
        mates = self.describers(noun, role)
        return self._mate(mates) if mates else None

    def describers(self, noun: Noun, role: str) -> list[tuple[Adjective, str]]:
        """The adjectives that go with the noun in a role, each with the split of the pair."""
        key = (noun, role)
        if key not in self._adjectives:
            fits = [a for a in self.lexicon.adjectives_of(noun) if _plays(a, role, noun)]
            often = (a for a in fits for _ in range(1 + 200 // len(a.nouns)))
            mates = [(a, split_of(a.english, noun.english[0])) for a in often]
            self._adjectives[key] = [(a, split) for a, split in mates if split in self.admitted]
        return self._adjectives[key]

    def attributes(self, noun: Noun, definite: bool, most: int = 2) -> list[Adjective]:
        """No, one or two adjectives, the inner one last as in English."""
        draw = self.random()
        if draw < 0.5 or not most:
            return []
        if draw < 0.8 or most == 1:
            chosen = [self.adjective(noun, "definite" if definite else "any")]
        else:
            inner = self.adjective(noun, "inner")
            outer = self.adjective(noun, "outer" if inner else "before")
            chosen = [outer, inner or self.adjective(noun, "after")]
        return [adjective for adjective in chosen if adjective]


def _plays(adjective: Adjective, role: str, noun: Noun) -> bool:
    """Whether an adjective can stand in a role."""
    if role == "predicate":
        return adjective.predicate
    if role == "inner":
        return adjective.inner
    if role == "after":
        return not adjective.before
    if role == "before":
        return adjective.before and not adjective.definite
    if role == "outer":  # the red Italian car, but the European economic area
        origin = adjective.english[0].isupper() and noun.group != "institution"
        return not (adjective.inner or adjective.definite or origin)
    return role == "definite" or not adjective.definite
