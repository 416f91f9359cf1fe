"""Random words, noun phrases and clauses of the embedded corpus.

A noun is chosen with its adjective or its verb only if that pair of words belongs to an admitted
split.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from grammar.lexicon import PEOPLE, Adjective, Expression, Lexicon, Noun, Phrase, Verb, new_link
from grammar.phrases import (
    BARE,
    GENERIC,
    INDEFINITE,
    NEGATED,
    NEGATED_BARE,
    Clause,
    Clitic,
    Determine,
    Nominal,
    both,
    cardinal,
    complement,
    day,
    extended,
    hour,
    join,
    noun_phrase,
    possessed,
    pronoun,
    word,
    words_of,
)

# ------------------------------------------------------------------------ words that go together

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


# ----------------------------------------------------------------------- noun phrases and places

OWNERS = ("my", "your", "his", "her", "our", "their")
PRONOUNS = (
    *(("I", "je", 0, 0, 0), ("he", "il", 0, 0, 1), ("she", "elle", 1, 0, 1)),
    *(("we", "nous", 0, 1, 2), ("you", "vous", 0, 1, 3), ("they", "ils", 0, 1, 4)),
)
# Where a noun phrase stands → the determiners it may take, as often as written; + is plural.
TABLES = {
    "subject": "the the the the+ the+ this this+ a every many+ several+ all+ number+",
    "object": "the the the+ the+ a a a bare+ bare+ own own own+ this this+ every "
    "number+ number+ several+ many+ all+",
    "negated": "the the+ no no no_bare+ own own+ this this+",
    "generic": "generic+ generic+ generic+ the own this the+",
    "definite": "the the the+ own own+ this this+",
    "singular": "the the the the own this",
    "plain": "the the the the+ the+ this own own+",
    "mass object": "the bare bare own this",
    "mass negated": "the no_bare no_bare own",
    "mass generic": "generic generic the own",
    "asked": "how_many+ how_many+ which which+",
    "mass asked": "which",
    "new": "a a a bare+ number+ many+ several+",
}
SPECIAL = {
    "a": INDEFINITE,
    "bare": BARE,
    "generic": GENERIC,
    "no": NEGATED,
    "no_bare": NEGATED_BARE,
}
NAMED = {
    **{"the": "the", "this": "this, these", "every": "every, -"},
    **{"many": "-, many", "several": "-, several", "all": "-, all the"},
    **{"how_many": "-, how many", "which": "which"},
}
PLACES = {
    "room": "room",
    "site": "site",
    "any": "house church castle site building",
    "furniture": "furniture",
}
DEFINITE = ("the", "own", "this")


class Nominals(Chooser):
    """Chooses what stands as subject, object or place."""

    nested = 0.0  # how often the object of a relative clause has a relative clause of its own

    def __init__(
        self, lexicon: Lexicon, random: Callable[[], float], admitted: tuple[str, ...]
    ) -> None:
        super().__init__(lexicon, random, admitted)
        self._tables = {
            name: [(entry.rstrip("+"), int(entry.endswith("+"))) for entry in table.split()]
            for name, table in TABLES.items()
        }
        self._determiners = {n: lexicon.determiners[key] for n, key in NAMED.items()} | SPECIAL
        self._ahead = {
            "room": (Expression.parse("in", "dans"),),
            "site": (Expression.parse("at", "à"),),
            "any": lexicon.prepositions["place"],
            "furniture": lexicon.prepositions["furniture"],
        }

    def determiner(self, name: str) -> Determine:
        """A determiner by its name in the tables."""
        if name == "number":
            number = self.number()
            return lambda gender, plural, link: cardinal(number, gender)
        if name == "own":
            return self.lexicon.determiners[self.pick(OWNERS)].phrase
        return self._determiners[name].phrase

    def number(self) -> int:
        """A number from 2 to 999, most often a small one."""
        first, after = self.pick(((2, 19), (2, 19), (20, 80), (20, 80), (100, 900)))
        return first + int(self.random() * after)

    def phrase(self, noun: Noun, table: str, most: int = 2) -> Nominal:
        """A noun phrase about the noun with a determiner of the table."""
        if noun.of:
            return self._part(noun)
        if noun.group == "feeling":
            return noun_phrase(noun, 0, self.determiner(self.pick(("the", "own"))))
        if noun.mass:
            table = f"mass {table}" if f"mass {table}" in self._tables else "singular"
        if noun.group == "kin":
            return self._relative(noun, table)
        name, plural = self.pick(self._tables[table])
        if name == "own" and noun.group == "profession":  # nobody has a king of his own
            name = "the"
        adjectives = self.attributes(noun, name in DEFINITE, most)
        return noun_phrase(noun, plural, self.determiner(name), adjectives)

    def asked(self, noun: Noun) -> Nominal:
        """How many letters, which letters, which letter."""
        table = "mass asked" if noun.mass or noun.of or noun.single else "asked"
        name, plural = self.pick(self._tables[table])
        return noun_phrase(noun, plural, self.determiner(name), self.attributes(noun, False, 1))

    def _part(self, noun: Noun) -> Nominal:
        """The door of the house."""
        whole = self.pick(noun.of)
        name, plural = self.pick(self._tables["definite"])
        owner = noun_phrase(whole, plural * (not whole.mass), self.determiner(name))
        head = noun_phrase(noun, 0, self.determiner("the"))
        return extended(head, word("of", "de"), words_of(owner))

    def _relative(self, noun: Noun, table: str) -> Nominal:
        """My brother, Anne's brother, the singer's brothers."""
        plural = int(self.chance(0.3)) * (not noun.single)
        adjectives = self.attributes(noun, True, 1)
        if self.chance(0.3):
            owner = self.name() if self.chance(0.6) else self._owner()
            head = noun_phrase(noun, plural, self.determiner("the"), adjectives)
            return possessed(owner, head)
        return noun_phrase(noun, plural, self.determiner("own"), adjectives)

    def _owner(self) -> Nominal:
        noun = self.pick(self.lexicon.nouns("profession"))
        return noun_phrase(noun, 0, self.determiner("the"))

    def name(self) -> Nominal:
        """Anne or Paul."""
        gender = int(self.chance(0.5))
        name = self.pick(self.lexicon.names[gender])
        return pronoun(name, name, gender, 0, 1)

    def person(self, table: str = "subject", most: int = 1) -> Nominal:
        """A noun phrase or name for one or more people."""
        draw = self.random()
        if draw < 0.25:
            return self.name()
        if draw < 0.32 and table in ("subject", "plain"):  # French would repeat à and de
            first, second = self.name(), self.name()
            return both(first, second) if first.english[0][0] != second.english[0][0] else first
        return self.phrase(self.pick(self.lexicon.nouns(self.pick(PEOPLE))), table, most)

    def pronoun(self, third: bool = True) -> Nominal:
        """A subject pronoun; without the third person where nothing says whom it means."""
        return pronoun(*self.pick(PRONOUNS if third else (PRONOUNS[0], *PRONOUNS[3:5])))

    # relative clauses

    def with_relative(self, nominal: Nominal, verb: Verb | None = None) -> Nominal:
        """The noun phrase with a relative clause: who sings, that she wrote, whose son sleeps.

        Not after a possessive, and not with the verb of the main clause again.
        """
        noun = nominal.noun
        if noun is None or noun.of or noun.group == "kin" or nominal.english[0][0] in OWNERS:
            return nominal
        kinds: list[Callable[[Nominal, Verb | None], Phrase | None]] = [self._that]
        if noun.group in PEOPLE:
            kinds += [self._who, self._who, self._whose]
        clause = self.pick(kinds)(nominal, verb)
        return extended(nominal, clause) if clause else nominal

    def _who(self, nominal: Nominal, besides: Verb | None) -> Phrase | None:
        who = nominal._replace(**word("who", "qui")._asdict())
        verb = self.verb("intransitive" if self.chance(0.4) else "transitive")
        if verb is besides:
            return None
        clause = Clause(who, verb, self.tense(verb))
        if verb.nouns:
            nominal = self.phrase(self.object_of(verb), "definite", 1)
            if self.nested and self.chance(self.nested):
                nominal = self.with_relative(nominal, verb)
            clause.rest.append(words_of(nominal))
        return clause.phrase()

    def _whose(self, _: Nominal, besides: Verb | None) -> Phrase | None:
        whose = new_link()
        noun = self.pick(self.lexicon.nouns("kin"))
        head = noun_phrase(noun, 0, lambda *_: Phrase([], []))
        article = ("la" if noun.gender else "le", whose)
        owned = head._replace(
            english=[("whose", whose), *head.english],
            french=[("dont", whose), article, *head.french],
        )
        verb = self.verb("intransitive")
        if verb is besides:
            return None
        return Clause(owned, verb, self.tense(verb)).phrase()

    def _that(self, nominal: Nominal, besides: Verb | None) -> Phrase | None:
        noun = nominal.noun
        verb = self.taker_of(noun, "transitive", "about", besides=besides) if noun else None
        if verb is None:
            return None
        subject = self.pronoun(third=False) if self.chance(0.6) else self.name()
        clause = Clause(subject, verb, self.tense(verb))
        if verb.kind == "transitive":
            clause.preceding = nominal
            return join(word("that", "que"), clause.phrase())
        that, about = new_link(), new_link()
        english, _ = verb.preposition
        clause.rest.append(Phrase([(english, about)] if english else [], []))
        dont = Phrase([("that", that)], [("dont", that + about)])
        return join(dont, clause.phrase())

    def place(self, furniture: float = 0.0) -> Phrase:
        """In the garden, at the market, near the castle; this often on or under furniture."""
        kind = "furniture" if self.chance(furniture) else self.pick(("room", "site", "any"))
        noun = self.pick(self.lexicon.nouns(PLACES[kind]))
        ahead = self.pick(self._ahead[kind]).phrase()
        return join(ahead, words_of(self.phrase(noun, "singular", 1)))

    def object(self, verb: Verb, negated: bool = False, most: int = 2) -> Nominal:
        """An object for the verb, with the determiners that it and a negation ask for."""
        table = "generic" if verb.generic else ("negated" if negated else "object")
        if verb.preposition[1]:  # de + des would have to become de
            table = "definite"
        return self.phrase(self.object_of(verb), table, most)

    def object_phrase(self, clause: Clause) -> Phrase:
        """The object of a clause with its preposition and, now and then, a relative clause."""
        verb, negated = clause.verb, bool(clause.negation)
        nominal = self.object(verb, negated)
        if not negated and self.chance(0.2):
            nominal = self.with_relative(nominal, verb)
        return complement(verb, nominal, clause.link)


# --------------------------------------------------------------------------------------- clauses

NEGATIONS = ("not", "not", "not", "never", "no longer")
DIRECT = (
    *(Clitic("me", "me", True, 0, 0), Clitic("us", "nous", True, 0, 1)),
    *(Clitic("you", "vous", True, 0, 1), Clitic("him", "le", True, 0, 0)),
    *(Clitic("her", "la", True, 1, 0), Clitic("them", "les", True, 0, 1)),
)
DATIVE = tuple(
    Clitic(english, french, False)
    for english, french in (
        *(("me", "me"), ("us", "nous"), ("you", "vous")),
        *(("him", "lui"), ("her", "lui"), ("them", "leur")),
    )
)
OWN = {0: "me", 2: "us", 3: "you"}  # the pronoun that would point back at the subject
RELATIVES = {"that", "who", "whose"}
PREDICATES = (  # kinds of verbs, as often as written
    *("transitive",) * 9,
    *("intransitive",) * 4,
    *("giving",) * 2,
    *("indirect",) * 2,
    *("about",) * 2,
    *("motion",) * 3,
    "enter",
    *("copula",) * 3,
)


class Clauses(Nominals):
    """Chooses clauses."""

    def __init__(
        self, lexicon: Lexicon, random: Callable[[], float], admitted: tuple[str, ...]
    ) -> None:
        super().__init__(lexicon, random, admitted)
        self._complete: dict[str, Callable[[Clause], None]] = {
            **dict.fromkeys(("transitive", "indirect", "about", "enter"), self._simple),
            **{"giving": self._giving, "intransitive": self._intransitive},
            **{"motion": self._motion, "copula": self._copula},
        }

    def clause(self, subject: Nominal, tense: str | None = None, *kinds: str) -> Clause:
        """The subject with a verb of some kind and all that the verb needs."""
        kind = self.pick(kinds or PREDICATES)
        verb = self.verb(kind, tense)
        clause = Clause(subject, verb, tense or self.tense(verb))
        self._complete[kind](clause)
        return clause

    def main(self, subject: Nominal | None = None, negatable: bool = True) -> Clause:
        """A main clause that may be negated and hold an object pronoun or a modal."""
        negation = self.pick(NEGATIONS) if negatable and self.chance(0.2) else None
        verb = self.verb(self.pick(PREDICATES))
        if subject is None:
            subject = self.subject("plain" if negation else "subject")
            if not negation and self.chance(0.2):
                subject = self.with_relative(subject, verb)
        clause = Clause(subject, verb, self.tense(verb), negation)
        if negation == "no longer" and clause.tense == "past":
            clause.tense = "present"
        if not verb.stative and self.chance(0.12):
            clause.modal, clause.tense = self.verb("modal"), "present"
        if not self._with_pronoun(clause):
            self._complete[verb.kind](clause)
        return clause

    def subject(self, table: str = "plain") -> Nominal:
        """A pronoun, a name or a noun phrase."""
        return self.pronoun() if self.chance(0.45) else self.person(table)

    def _with_pronoun(self, clause: Clause) -> bool:
        """Give the verb an object pronoun, now and then, where it takes people."""
        verb = clause.verb
        direct = verb.kind == "transitive" and verb.human
        if not (direct or verb.kind in ("giving", "indirect")) or not self.chance(0.35):
            return False
        own = OWN.get(clause.subject.person)
        clause.clitic = self.pick([c for c in (DIRECT if direct else DATIVE) if c.english != own])
        if verb.kind == "giving":  # "gave her letters" would be ambiguous: no bare plural
            nominal = self.phrase(self.object_of(verb), "definite", 1)
            clause.rest.append(words_of(nominal))
        return True

    def _simple(self, clause: Clause) -> None:
        clause.rest.append(self.object_phrase(clause))

    def _giving(self, clause: Clause) -> None:
        clause.rest.append(words_of(self.object(clause.verb, bool(clause.negation), most=1)))
        clause.rest.append(join(word("to", "à"), words_of(self.person("definite"))))

    def _intransitive(self, clause: Clause) -> None:
        verb = clause.verb
        if verb.how and not clause.modal and self.chance(0.35):
            how = self.pick(verb.how)
            if how in self.lexicon.manners["short"]:
                clause.short = how
            else:
                clause.rest.append(how.phrase())

    def _motion(self, clause: Clause) -> None:
        english, french = clause.verb.preposition
        if clause.verb.etre and self.chance(0.5):
            site = self.phrase(self.pick(self.lexicon.nouns("site")), "singular", 1)
            clause.rest.append(join(word(english, french), words_of(site)))
            return
        name, (article, place) = self.pick(self.lexicon.places)
        ahead, link = new_link(), new_link()
        feminine = article in ("la", "l'")
        tokens = [("en" if feminine and french == "à" else french, ahead)]
        if article and not feminine:
            tokens.append((article, link))
        words = [(english, ahead), *((w, link) for w in name.split())]
        clause.rest.append(Phrase(words, [*tokens, (place, link)]))

    def _copula(self, clause: Clause) -> None:
        adjective, phrase = self.quality(clause.subject)
        if not adjective.english[0].isupper() and self.chance(0.2):
            phrase = join(self.pick(self.lexicon.manners["degree"]).phrase(), phrase)
        clause.rest.append(phrase)

    def quality(self, subject: Nominal) -> tuple[Adjective, Phrase]:
        """An adjective that can be said of the subject, agreeing with it."""
        if subject.noun:
            adjective = self.adjective(subject.noun, "predicate")
        else:
            king = self.lexicon.nouns("king")[0]
            fits = (a for a in self.lexicon.adjectives_of(king) if a.predicate)
            adjective = self.pick(tuple(fits))
        if adjective is None:
            raise ValueError(f"lexicon.toml has no adjective for {subject.noun}; add one")
        form = adjective.french[subject.gender][subject.plural]
        return adjective, word(adjective.english, form)

    def extras(self, clause: Clause) -> Clause:
        """The clause with a frequency, or a company, a place and a time, where they make sense."""
        verb = clause.verb
        if verb.stative or verb.kind == "copula":
            return clause
        plain = not (clause.negation or clause.modal or clause.short)
        if plain and self.chance(0.15):
            clause.adverb = self.pick(self.lexicon.manners["frequency"])
            return clause
        if verb.kind == "intransitive" and self.chance(0.35):
            ahead = self.pick(
                self.lexicon.prepositions["person" if verb.how else "company"]
            ).phrase()
            clause.rest.append(join(ahead, words_of(self.person("definite", 1))))
        if verb.kind == "intransitive" and not verb.moving and self.chance(0.5):
            clause.rest.append(self.place())
        last = [w for phrase in clause.rest for w, _ in phrase.english]
        if RELATIVES & set(last):  # a time would seem to belong to the relative clause
            return clause
        if clause.negation in (None, "not") and self.chance(0.45):
            clause.rest.append(self.time(clause.tense))
        return clause

    def time(self, tense: str) -> Phrase:
        """When it happens, in accord with the tense."""
        draw = self.random()
        if draw < 0.45:
            return self.pick(self.lexicon.times[tense]).phrase()
        if draw < 0.6:
            return hour(1 + int(self.random() * 11))
        if draw < 0.72:
            english, french = self.pick(self.lexicon.months)
            return join(word("in", "en"), word(english, french))
        if tense == "present" or draw < 0.82:
            english, french = self.pick(self.lexicon.days)
            if tense == "present":
                return join(word("on", "le"), word(f"{english}s", french))
            return word(f"on {english}", french)
        if draw < 0.88:
            year = str(self._year(tense))
            return join(word("in", "en"), word(year, year))
        return self._date(tense)

    def _year(self, tense: str) -> int:
        return (1990 if tense == "past" else 2030) + int(self.random() * 30)

    def _date(self, tense: str) -> Phrase:
        date = datetime.date(self._year(tense), 1, 1)
        date += datetime.timedelta(days=int(self.random() * 365))
        if self.chance(0.1):
            date = date.replace(day=1)
        weekday = self.lexicon.days[date.weekday()] if self.chance(0.3) else None
        return day(date, self.lexicon.months[date.month - 1], weekday)
