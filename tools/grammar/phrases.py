"""The synchronous grammar: numbers, phrases and clauses built in English and French at once.

Agreement, the place of adjectives, negation, object pronouns, relative clauses, questions. A word
is linked to what it translates:

- a determiner to the determiner, or the noun where English has none ("books", "des livres");
- not, never, no longer to both ne and pas, jamais, plus;
- a verb to all words of the French verb; do, does, did, will to the finite French verb, and in a
  question also to est-ce que;
- of and the both to the contraction du; 's to de and to the article of what is owned.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from grammar.lexicon import (
    PEOPLE,
    Adjective,
    Determiner,
    Expression,
    Link,
    Noun,
    Phrase,
    Token,
    Verb,
    begins_with_vowel,
    new_link,
)

# ---------------------------------------------------------------------- numbers, dates and hours

_ENGLISH = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
]  # fmt: skip
_ENGLISH_TENS = [
    "-",
    "-",
    "twenty",
    "thirty",
    "forty",
    "fifty",
    "sixty",
    "seventy",
    "eighty",
    "ninety",
]
_FRENCH = [
    "zéro", "un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix", "onze",
    "douze", "treize", "quatorze", "quinze", "seize", "dix-sept", "dix-huit", "dix-neuf",
]  # fmt: skip
_FRENCH_TENS = [
    "-",
    "-",
    "vingt",
    "trente",
    "quarante",
    "cinquante",
    "soixante",
    "-",
    "quatre-vingt",
    "-",
]


def english_number(number: int) -> str:
    """A number below 100 in English, as one word: 21 → twenty-one."""
    if number < 20:
        return _ENGLISH[number]
    tens, units = divmod(number, 10)
    return _ENGLISH_TENS[tens] + (f"-{_ENGLISH[units]}" if units else "")


def french_number(number: int, gender: int) -> str:
    """A number below 100 in French: 21 → vingt et un, vingt et une; 80 → quatre-vingts."""
    tens, units = divmod(number, 10)
    if tens in (1, 7, 9):  # 10 to 19, 70 to 79 and 90 to 99 count on from ten
        tens, units = tens - 1, units + 10
    words = _FRENCH[units] + ("e" if units == 1 and gender else "")
    if not tens:
        return words
    stem = _FRENCH_TENS[tens]
    if not units:
        return stem + ("s" if tens == 8 else "")
    if units in (1, 11) and tens != 8:
        return f"{stem} et {words}"
    return f"{stem}-{words}"


def cardinal(number: int, gender: int) -> Phrase:
    """A number from 1 to 999: 201 → two hundred and one, deux cent un."""
    hundreds, rest = divmod(number, 100)
    phrase = Phrase([], [])
    if hundreds:
        count, hundred = new_link(), new_link()
        phrase.english.extend([(_ENGLISH[hundreds], count), ("hundred", hundred)])
        if hundreds == 1:
            phrase.french.append(("cent", count + hundred))
        else:
            cent = "cent" if rest else "cents"
            phrase.french.extend([(_FRENCH[hundreds], count), (cent, hundred)])
    if rest:
        link = new_link()
        phrase.english.extend([("and", ())] if hundreds else [])
        phrase.english.append((english_number(rest), link))
        phrase.french.extend((word, link) for word in french_number(rest, gender).split())
    return phrase


def day(date: datetime.date, names: tuple[str, str], weekday: tuple[str, str] | None) -> Phrase:
    """A date: on 3 May 2019, le 3 mai 2019; the first day is 1er in French."""
    on: Link = new_link()
    ordinal = "1er" if date.day == 1 else str(date.day)
    pairs = [weekday] if weekday else []
    pairs += [(str(date.day), ordinal), names, (str(date.year), str(date.year))]
    links = [new_link() for _ in pairs]
    return Phrase(
        [("on", on), *((pair[0], link) for pair, link in zip(pairs, links, strict=True))],
        [("le", on), *((pair[1], link) for pair, link in zip(pairs, links, strict=True))],
    )


def hour(number: int) -> Phrase:
    """A full hour: at three o'clock, à trois heures; at one o'clock, à une heure."""
    at, count, clock = new_link(), new_link(), new_link()
    heures = "heure" if number == 1 else "heures"
    return Phrase(
        [("at", at), (_ENGLISH[number], count), ("o'clock", clock)],
        [("à", at), (french_number(number, 1), count), (heures, clock)],
    )


# --------------------------------------------------------------------------- phrases and clauses

Determine = Callable[[int, int, Link], Phrase]  # gender, number, link of the noun → determiner

INDEFINITE = Determiner.parse("a, ", "un une des")
BARE = Determiner.parse("", "de_le de_la des")  # bread, books: du pain, des livres
GENERIC = Determiner.parse("", "le la les")  # he loves bread: il aime le pain
NEGATED = Determiner.parse("a, ", "de de de")  # not a dog: pas de chien
NEGATED_BARE = Determiner.parse("", "de de de")

_NEGATIONS = {"not": "pas", "never": "jamais", "no longer": "plus"}
_REFLEXIVE = ("me", "se", "nous", "vous", "se")  # by person
_AVOIR = ("ai", "a", "avons", "avez", "ont")
_ETRE = ("suis", "est", "sommes", "êtes", "sont")


class Nominal(NamedTuple):
    """What can be subject or object: its words and the features that others agree with."""

    english: list[Token]
    french: list[Token]
    gender: int
    plural: int
    person: int
    noun: Noun | None = None


class Clitic(NamedTuple):
    """An object pronoun, which stands before the verb in French."""

    english: str
    french: str
    direct: bool
    gender: int = 0
    plural: int = 0


def word(english: str, french: str) -> Phrase:
    """One concept, in one or more words of each language."""
    link = new_link()
    return Phrase([(w, link) for w in english.split()], [(w, link) for w in french.split()])


def pronoun(english: str, french: str, gender: int, plural: int, person: int) -> Nominal:
    """A subject pronoun or a name."""
    return Nominal(*word(english, french), gender, plural, person)


def join(*phrases: Phrase) -> Phrase:
    """Phrases one after the other, in both languages."""
    joined = Phrase([], [])
    for phrase in phrases:
        joined.english.extend(phrase.english)
        joined.french.extend(phrase.french)
    return joined


def words_of(nominal: Nominal) -> Phrase:
    """The words of a noun phrase, without its features."""
    return Phrase(nominal.english, nominal.french)


def noun_phrase(
    noun: Noun, plural: int, determine: Determine, adjectives: Sequence[Adjective] = ()
) -> Nominal:
    """Determiner, adjectives and noun; adjectives after the noun stand in mirrored order.

    the European economic area → la zone économique européenne
    """
    link = new_link()
    determiner = determine(noun.gender, plural, link)
    text = noun.french[plural]
    english, before = list(determiner.english), list(determiner.french)
    after: list[Token] = []
    if plural and before and before[-1][0] == "des" and any(a.before for a in adjectives):
        before[-1] = ("de", before[-1][1])  # de beaux livres
    for adjective in adjectives:
        own = new_link()
        english.append((adjective.english, own))
        form = adjective.french[noun.gender][plural]
        if adjective.before and not noun.gender and not plural and begins_with_vowel(text):
            form = adjective.liaison
        (before if adjective.before else after).append((form, own))
    english.append((noun.english[plural], link))
    french = [*before, (text, link), *reversed(after)]
    return Nominal(english, french, noun.gender, plural, 4 if plural else 1, noun)


def possessed(owner: Nominal, head: Nominal) -> Nominal:
    """Anne's brother → le frère d'Anne; the head comes with the definite article."""
    of = new_link()
    text, link = owner.english[-1]
    english = [*owner.english[:-1], (f"{text}'s", link + of), *head.english[1:]]
    (article, _), *rest = head.french
    french = [(article, of), *rest, ("de", of), *owner.french]
    return head._replace(english=english, french=french)


def extended(nominal: Nominal, *phrases: Phrase) -> Nominal:
    """A noun phrase with something after it: of the house, that she wrote."""
    english, french = join(words_of(nominal), *phrases)
    return nominal._replace(english=english, french=french)


def both(first: Nominal, second: Nominal) -> Nominal:
    """Anne and Paul: plural, and feminine only where both are."""
    english, french = join(words_of(first), word("and", "et"), words_of(second))
    return Nominal(english, french, first.gender & second.gender, 1, 4)


def pronoun_for(nominal: Nominal) -> Nominal:
    """The subject pronoun that stands for a noun phrase: he, she, it or they."""
    if nominal.person in (0, 2, 3):
        english, french = (("I", "je"), ("we", "nous"), ("you", "vous"))[max(nominal.person - 1, 0)]
        return pronoun(english, french, nominal.gender, nominal.plural, nominal.person)
    human = nominal.noun is None or nominal.noun.group in PEOPLE
    english = ("he", "she")[nominal.gender] if human else "it"
    french = ("il", "elle")[nominal.gender] + ("s" if nominal.plural else "")
    english = "they" if nominal.plural else english
    return pronoun(english, french, nominal.gender, nominal.plural, nominal.person)


def clitic_for(nominal: Nominal) -> Clitic:
    """The direct object pronoun that stands for a thing: it or them."""
    french = "les" if nominal.plural else ("le", "la")[nominal.gender]
    english = "them" if nominal.plural else "it"
    return Clitic(english, french, True, nominal.gender, nominal.plural)


def complement(verb: Verb, nominal: Nominal, link: Link) -> Phrase:
    """The object of a verb with its preposition: replies to the letter, répond à la lettre.

    ``link`` is the verb's: "obeys" is linked to both words of "obéit à".
    """
    english, french = verb.preposition
    link = new_link() if english else link
    ahead = Phrase([(english, link)] if english else [], [(french, link)] if french else [])
    return join(ahead, words_of(nominal))


class _Links(NamedTuple):
    """The concepts of a clause; the finite verb has its own only beside a modal."""

    verb: Link
    finite: Link
    support: Link
    negation: Link
    clitic: Link
    question: Link


@dataclass(slots=True)
class Clause:
    """A subject and what it does; ``phrase`` says it in both languages."""

    subject: Nominal
    verb: Verb
    tense: str  # present, past (passé composé) or future
    negation: str | None = None
    modal: Verb | None = None
    clitic: Clitic | None = None
    adverb: Expression | None = None  # before the English verb: often
    short: Expression | None = None  # after the English verb, before a participle: well
    preceding: Nominal | None = None  # the direct object, where it stands before the verb
    rest: list[Phrase] = field(default_factory=list)
    link: Link = field(default_factory=new_link)  # of the verb

    def phrase(self, question: Link = ()) -> Phrase:
        """The clause; with the link of a question, inverted in English."""
        finite = new_link() if self.modal else self.link
        links = _Links(self.link, finite, new_link(), new_link(), new_link(), question)
        adverb = self.adverb.phrase() if self.adverb else Phrase([], [])
        short = self.short.phrase() if self.short else Phrase([], [])
        rest = join(*self.rest)
        english = [
            *self._english_group(links, adverb.english),
            *self._english_objects(links),
            *short.english,
            *rest.english,
        ]
        group = self._french_group(links, [*adverb.french, *short.french])
        return Phrase(english, [*self.subject.french, *group, *rest.french])

    def _english_group(self, links: _Links, adverb: list[Token]) -> list[Token]:
        """Subject, auxiliary, negation, adverb and the head verb, inverted in a question."""
        head, subject = self.modal or self.verb, self.subject.english
        auxiliary = self._auxiliary(inverted=bool(links.question))
        alone = head.auxiliary and self.tense != "future"  # is, can, must: no other verb comes
        link = (links.finite if alone else links.support) + links.question
        denied = [(w, links.negation) for w in self.negation.split()] if self.negation else []
        if auxiliary == "can" and self.negation == "not" and not links.question:
            return [*subject, ("cannot", link + links.negation), *adverb]
        ahead = [(auxiliary, link)] if auxiliary else []
        front = [*ahead, *subject] if links.question else [*subject, *ahead]
        main = [] if alone else [(self._main(head, auxiliary), links.finite)]
        return [*front, *denied, *adverb, *main]

    def _auxiliary(self, inverted: bool) -> str:
        """The English auxiliary: will, is, can, or do where there must be one; else nothing."""
        head, person = self.modal or self.verb, self.subject.person
        if self.tense == "future":
            return "will"
        if head.auxiliary:
            return head.english_present(person)
        if not inverted and self.negation != "not":
            return ""
        return "did" if self.tense == "past" else ("does" if person == 1 else "do")

    def _main(self, head: Verb, auxiliary: str) -> str:
        if auxiliary:
            return head.base
        past = head.past if self.tense == "past" else None
        return past or head.english_present(self.subject.person)

    def _english_objects(self, links: _Links) -> list[Token]:
        """Particles, the infinitive after a modal, and the object pronoun."""
        tokens: list[Token] = []
        if self.modal:
            tokens = [
                *((p, links.finite) for p in self.modal.particle),
                (self.verb.base, links.verb),
            ]
        tokens += [(p, links.verb) for p in self.verb.particle]
        if self.clitic:
            output = f"{self.verb.preposition[0]} {self.clitic.english}"
            tokens += [(w, links.clitic) for w in output.split()]
        return tokens

    def _french_group(self, links: _Links, adverbs: list[Token]) -> list[Token]:
        """ne, pronouns, finite verb, pas, adverbs, and the infinitive or participle."""
        verb, person = self.verb, self.subject.person
        pronouns = [(_REFLEXIVE[person], links.verb)] if verb.reflexive else []
        if self.clitic:
            pronouns.append((self.clitic.french, links.clitic))
        ne = [("ne", links.negation)] if self.negation else []
        pas = [(_NEGATIONS[self.negation], links.negation)] if self.negation else []
        tail = [(w, links.verb) for w in verb.tail.split()]
        finite = links.finite + links.support
        if self.modal:
            infinitive = (verb.infinitive, links.verb)
            form = (self.modal.present[person], finite)
            return [*ne, form, *pas, *adverbs, *pronouns, infinitive, *tail]
        after: list[Token] = []
        if self.tense == "past":
            form = ((_ETRE if verb.etre else _AVOIR)[person], finite)
            after = [(self._participle(), links.verb)]
        else:
            form = ((verb.present if self.tense == "present" else verb.future)[person], finite)
        return [*ne, *pronouns, form, *pas, *adverbs, *after, *tail]

    def _participle(self) -> str:
        """With être it agrees with the subject, with avoir with a direct object before it."""
        direct = self.clitic if self.clitic and self.clitic.direct else self.preceding
        controller = self.subject if self.verb.etre else direct
        if controller is None:
            return self.verb.participle[0][0]
        return self.verb.participle[controller.gender][controller.plural]
