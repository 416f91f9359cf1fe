"""The words of the embedded corpus with all their forms, and how they are spelled out.

Tokens carry links: two words are aligned where they share one. A token that elision or contraction
rewrites keeps the links of what it was made from, so the gold alignment survives. Features are
numbers that index the tables of forms: gender 0 masculine, 1 feminine; plural 0, 1; person 0 to 4
for je, il, nous, vous, ils. The words and all that is irregular stand in lexicon.toml.
"""

from __future__ import annotations

import functools
import itertools
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

# --------------------------------------------------------------------- tokens, elision, spelling

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


# ---------------------------------------------------------------------------- regular inflection

_FEMININE = {"eux": "euse", "er": "ère", "if": "ive", "ïf": "ïve", "en": "enne", "el": "elle"}
_PLAIN_VOWELS = "aeiou"


def plural(word: str) -> str:
    """The regular French plural of a noun, an adjective or a participle."""
    if word.endswith(("s", "x", "z")):
        return word
    if word.endswith("al"):
        return word[:-1] + "ux"
    return word + ("x" if word.endswith("eau") else "s")


def feminine(word: str) -> str:
    """The regular French feminine of an adjective: heureux → heureuse, premier → première."""
    if word.endswith("e"):
        return word
    for ending, changed in _FEMININE.items():
        if word.endswith(ending):
            return word.removesuffix(ending) + changed
    return word + "e"


def english_s(word: str) -> str:
    """The regular English plural of a noun, or third person of a verb."""
    if word.endswith("y") and word[-2] not in _PLAIN_VOWELS:
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch", "sh", "o")) else "s")


def english_past(word: str) -> str:
    """The regular English past of a verb."""
    if word.endswith("y") and word[-2] not in _PLAIN_VOWELS:
        return word[:-1] + "ied"
    return word + ("d" if word.endswith("e") else "ed")


def conjugate(infinitive: str, irregular: Mapping[str, str]) -> tuple[list[str], str, str]:
    """Present, stem of the future and past participle of a French verb."""
    if infinitive in irregular:
        present, future, participle = irregular[infinitive].split(" | ")
        return present.split(), future, participle
    stem, ending = infinitive[:-2], infinitive[-2:]
    endings = {"er": "e e ons ez ent", "ir": "is it issons issez issent", "re": "s - ons ez ent"}
    present_forms = [stem + e.strip("-") for e in endings[ending].split()]
    if infinitive.endswith("ger"):
        present_forms[2] = stem + "eons"
    if infinitive.endswith("cer"):
        present_forms[2] = stem[:-1] + "çons"
    return present_forms, infinitive.rstrip("e"), stem + {"er": "é", "ir": "i", "re": "u"}[ending]


# ----------------------------------------------------------------------------------------- words

Forms = tuple[str, str]  # singular, plural
PEOPLE = ("kin", "profession")  # the groups of nouns that mean people
_FUTURE = ("ai", "a", "ons", "ez", "ont")


class Expression(NamedTuple):
    """Fixed words and their translation: each French word has its English places, or all."""

    english: tuple[str, ...]
    french: tuple[tuple[str, int | None], ...]

    @classmethod
    def parse(cls, english: str, french: str) -> Expression:
        """Read ``"last year", "l':2 année:2 dernière:1"``: places count from 1."""
        parts = [word.partition(":") for word in french.split()]
        return cls(
            tuple(english.split()),
            tuple((word, int(place) - 1 if place else None) for word, _, place in parts),
        )

    def phrase(self, without: Link = ()) -> Phrase:
        """The words with fresh links; ``without`` is the link where English has no word."""
        links = [new_link() for _ in self.english]
        whole = sum(links, ()) or without
        return Phrase(
            list(zip(self.english, links, strict=True)),
            [(word, whole if place is None else links[place]) for word, place in self.french],
        )


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """A noun of both languages with its group of meaning."""

    english: Forms
    french: Forms
    gender: int
    group: str
    of: tuple[Noun, ...]  # what it can be a part of
    single: bool  # used in the singular only

    @property
    def mass(self) -> bool:
        return self.group in ("staple", "drink", "feeling")


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    """An adjective: its French forms by gender, its place, and the nouns it goes with."""

    english: str
    french: tuple[Forms, Forms]
    liaison: str  # masculine singular before a vowel: bel, vieil, nouvel
    before: bool
    inner: bool  # stands nearest to the noun where there are two
    predicate: bool
    definite: bool  # wants the, this or a possessive: the first book
    nouns: frozenset[Noun]


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """A verb: English forms by person, the French present, future and past participle."""

    base: str
    third: str
    past: str | None  # None: not used in the past
    particle: tuple[str, ...]
    preposition: Forms  # before the object, English and French; empty where there is none
    infinitive: str
    present: tuple[str, ...]
    future: tuple[str, ...]
    participle: tuple[Forms, Forms]
    reflexive: bool
    etre: bool  # the past is made with être
    tail: str  # avoir besoin de
    nouns: tuple[Noun, ...]
    human: bool  # whether its object can be a person
    kind: str
    stative: bool
    generic: bool
    animal: bool  # whether animals do it
    moving: bool  # where it happens is not said
    how: tuple[Expression, ...]

    @property
    def auxiliary(self) -> bool:
        """Whether the English verb itself inverts and is negated: is, can, must."""
        return self.base in ("be", "can", "must")

    def english_present(self, person: int) -> str:
        if self.base == "be":
            return ("am", "is", "are", "are", "are")[person]
        return self.third if person == 1 else self.base


@dataclass(frozen=True, slots=True, eq=False)
class Determiner:
    """A determiner: expressions by number and gender; None where it has no such form."""

    singular: tuple[Expression, Expression] | None
    plural: tuple[Expression, Expression] | None

    @classmethod
    def parse(cls, english: str, french: str) -> Determiner:
        """Read ``"this, these", "ce cette ces"``: masculine, feminine, plural; - is no form."""
        item, _, many = english.partition(", ")
        masculine, feminine, plural = french.replace("_", "\t").split(" ")
        mp, _, fp = plural.partition("/")
        singular = Expression.parse(item, masculine), Expression.parse(item, feminine)
        plurals = Expression.parse(many or item, mp), Expression.parse(many or item, fp or mp)
        return cls(None if masculine == "-" else singular, None if mp == "-" else plurals)

    def phrase(self, gender: int, plural: int, without: Link) -> Phrase:
        forms = self.plural if plural else self.singular
        if forms is None:
            raise ValueError(f"the determiner {self} has no form for number {plural}")
        return forms[gender].phrase(without)


def star(word: str) -> str:
    """The word without its star; a starred word and its plural have an aspirated h."""
    if word.startswith("*"):
        aspirate(word[1:], plural(word[1:]))
    return word.removeprefix("*")


class Lexicon:
    """All words of lexicon.toml, ready to be asked by group, kind or name."""

    def __init__(self, tree: Mapping[str, Any]) -> None:
        self._selections: dict[str, tuple[Noun, ...]] = {}
        self.named: dict[str, tuple[Noun, ...]] = {}  # of each group and of each noun
        for group, entries in tree["nouns"].items():
            nouns = tuple(self._noun(group, *entry) for entry in entries.items())
            self.named.update({group: nouns}, **{noun.english[0]: (noun,) for noun in nouns})
        self.adjectives = [a for group in tree["adjectives"].values() for a in self._group(group)]
        self.manners = {name: self._expressions(t) for name, t in tree["adverbs"].items()}
        self.times = {name: self._expressions(table) for name, table in tree["times"].items()}
        self.prepositions = {n: self._expressions(t) for n, t in tree["prepositions"].items()}
        self.verbs = {
            kind: tuple(
                self._verb(kind, key, row, tree["conjugation"]) for key, row in rows.items()
            )
            for kind, rows in tree["verbs"].items()
        }
        self.determiners = {k: Determiner.parse(k, v) for k, v in tree["determiners"].items()}
        self.names: Sequence[tuple[str, ...]] = [tuple(n) for n in tree["names"].values()]
        self.places = tuple((english, star_article(p)) for english, p in tree["places"].items())
        self.days = tuple((d.split()[0], d.split()[1]) for d in tree["calendar"]["days"])
        self.months = tuple((m.split()[0], m.split()[1]) for m in tree["calendar"]["months"])
        self._adjectives_of: dict[Noun, tuple[Adjective, ...]] = {}

    def nouns(self, names: str) -> tuple[Noun, ...]:
        """The nouns of groups and names: ``nouns("kin profession book")``."""
        if names in self._selections:
            return self._selections[names]
        unknown = [name for name in names.split() if name not in self.named]
        if unknown:
            raise ValueError(f"lexicon.toml has no group or noun named {unknown[0]}; add it")
        result = tuple(noun for name in names.split() for noun in self.named[name])
        return self._selections.setdefault(names, result)

    def adjectives_of(self, noun: Noun) -> tuple[Adjective, ...]:
        """The adjectives that go with a noun."""
        if noun not in self._adjectives_of:
            self._adjectives_of[noun] = tuple(a for a in self.adjectives if noun in a.nouns)
        return self._adjectives_of[noun]

    def _noun(self, group: str, english: str, entry: str | Mapping[str, Any]) -> Noun:
        row: Mapping[str, Any] = {"french": entry} if isinstance(entry, str) else entry
        item, _, many = english.partition(", ")
        article, _, forms = row["french"].partition(" ")
        singular, _, plurals = forms.partition(", ")
        singular = star(singular)
        if forms.startswith("*"):
            aspirate(plurals)
        of = self.nouns(row["of"]) if "of" in row else ()
        french = singular, plurals or plural(singular)
        gender, single = int(article == "une"), row.get("single", False)
        return Noun((item, many or english_s(item)), french, gender, group, of, single)

    def _group(self, table: Mapping[str, Any]) -> Iterable[Adjective]:
        nouns = frozenset(self.nouns(table["of"]))
        for english, entry in table["words"].items():
            masculine, _, other = entry.partition(", ")
            plain, _, liaison = masculine.partition("/")
            word = star(plain)
            her = other or feminine(word)
            if plain.startswith("*"):
                star("*" + her)
            yield Adjective(
                english,
                ((word, plural(word)), (her, plural(her))),
                liaison or word,
                before=table["position"] == "before",
                inner=table.get("inner", False),
                predicate=table.get("predicate", True),
                definite=table.get("definite", False),
                nouns=nouns,
            )

    def _verb(
        self, kind: str, key: str, row: Mapping[str, Any], irregular: Mapping[str, str]
    ) -> Verb:
        english, _, past = key.partition(", ")
        base, *particle = english.split()
        words = row["french"].partition(",")[0].replace("s'", "se ").split()
        reflexive = words[0] == "se"
        infinitive, *after = words[reflexive:]
        french_preposition = after.pop() if after else ""
        own = bool(french_preposition and particle)
        nouns = self.nouns(row.get("of", ""))
        past = past or english_past(base)
        present, future, participle = conjugate(infinitive, irregular)
        her = participle + "e"
        return Verb(
            base=base,
            third={"have": "has", "can": "can", "must": "must"}.get(base, english_s(base)),
            past=None if row.get("stative") or past == base else past,
            particle=tuple(particle[:-1] if own else particle),
            preposition=(particle[-1] if own else "", french_preposition),
            infinitive=infinitive,
            present=tuple(present),
            future=tuple(future + ending for ending in _FUTURE),
            participle=((participle, plural(participle)), (her, plural(her))),
            reflexive=reflexive,
            etre=row.get("etre", False) or reflexive,
            tail=" ".join(after),
            nouns=nouns,
            human=any(noun.group in PEOPLE for noun in nouns),
            kind=kind,
            stative=row.get("stative", False),
            generic=row.get("generic", False),
            animal=row.get("animal", False),
            moving=row.get("moving", False),
            how=tuple(e for name in row.get("how", "").split() for e in self.manners[name]),
        )

    @staticmethod
    def _expressions(table: Mapping[str, str]) -> tuple[Expression, ...]:
        return tuple(Expression.parse(english, french) for english, french in table.items())


def star_article(place: str) -> tuple[str, str]:
    """The article and name of a place: ``"la *Hongrie"`` is la, Hongrie; a city has none."""
    article, _, name = place.replace("l'", "l' ").rpartition(" ")
    return article, star(name)


@functools.cache
def lexicon() -> Lexicon:
    """The lexicon of lexicon.toml."""
    text = Path(__file__).with_name("lexicon.toml").read_text(encoding="utf-8")
    return Lexicon(tomllib.loads(text))
