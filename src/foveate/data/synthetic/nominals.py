"""Random noun phrases and places for the embedded corpus.

Lives here: determiners, people, things, parts of things, relative clauses, places.
Does not live here: which words go together (chooser.py), whole sentences (sentences.py).
"""

from __future__ import annotations

from collections.abc import Callable

from foveate.data.synthetic.chooser import Chooser
from foveate.data.synthetic.grammar import (
    BARE,
    GENERIC,
    INDEFINITE,
    NEGATED,
    NEGATED_BARE,
    Clause,
    Determine,
    Nominal,
    both,
    complement,
    extended,
    join,
    noun_phrase,
    possessed,
    pronoun,
    word,
    words_of,
)
from foveate.data.synthetic.lexicon import PEOPLE, Expression, Lexicon, Noun, Verb
from foveate.data.synthetic.numerals import cardinal
from foveate.data.synthetic.surface import Phrase, new_link

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
            clause.rest.append(words_of(self.phrase(self.object_of(verb), "definite", 1)))
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
