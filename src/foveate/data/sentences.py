"""The sentences of the embedded corpus: random clauses and the patterns that join them.

Lives here: what a sentence is made of, and how often. Each English sentence has one translation,
so pronouns of the third person refer either to nobody named (they: ils) or to the one noun phrase
before them that fits (the keys … they: elles).
Does not live here: noun phrases (nominals.py), grammar (grammar.py), splits (synthetic.py).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable

from .grammar import (
    Clause,
    Clitic,
    Nominal,
    clitic_for,
    join,
    pronoun,
    pronoun_for,
    word,
    words_of,
)
from .lexicon import Lexicon, Noun, Verb
from .nominals import PEOPLE, Nominals
from .numerals import day, hour
from .surface import Phrase, new_link

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
DESCRIBED = (
    "animal food staple drink clothing thing vehicle furniture room site building text idea "
    "institution event"
)


class Sentences(Nominals):
    """Chooses whole sentences; ``sentence()`` gives one as a phrase with its full stop."""

    def __init__(
        self, lexicon: Lexicon, random: Callable[[], float], admitted: tuple[str, ...]
    ) -> None:
        super().__init__(lexicon, random, admitted)
        patterns: dict[Callable[[], Phrase], int] = {
            **{self.statement: 40, self.thing_is: 7, self.there_is: 4, self.animal: 4},
            **{self.yes_no: 7, self.wh: 6, self.what: 3, self.who: 4, self.how_many: 3},
            **{self.where_is: 2, self.but_pronoun: 7, self.because_it: 5, self.because: 5},
            **{self.condition: 4, self.when: 4, self.saying: 6, self.comparison: 3},
        }
        self._patterns = [pattern for pattern, often in patterns.items() for _ in range(often)]

    def sentence(self) -> Phrase:
        """One sentence of any pattern."""
        return self.pick(self._patterns)()

    # clauses

    def clause(self, subject: Nominal, tense: str | None = None, kind: str | None = None) -> Clause:
        """The subject with a verb of some kind and all that the verb needs."""
        kind = kind or self.pick(PREDICATES)
        verb = self.verb(kind, tense)
        clause = Clause(subject, verb, tense or self.tense(verb))
        getattr(self, f"_{kind}")(clause)
        return clause

    def main(self, subject: Nominal | None = None, extras: bool = True) -> Clause:
        """A main clause that may be negated, hold an object pronoun, a modal, a time, a place."""
        draw = self.random()
        negation = None
        if draw < 0.2:
            negation = "not" if draw < 0.12 else ("never" if draw < 0.16 else "no longer")
        if subject is None:
            subject = self.pronoun() if self.chance(0.45) else self.person(_table(negation))
            if not negation and self.chance(0.1):
                subject = self.with_relative(subject)
        kind = self.pick(PREDICATES)
        verb = self.verb(kind)
        clause = Clause(subject, verb, self.tense(verb), negation)
        if negation == "no longer" and clause.tense == "past":
            clause.tense = "present"
        if not verb.stative and self.chance(0.12):
            clause.modal, clause.tense = self.verb("modal"), "present"
        getattr(self, f"_{kind}")(clause)
        if extras:
            self._extras(clause)
        return clause

    def _transitive(self, clause: Clause) -> None:
        verb = clause.verb
        if verb.nouns[0].group in PEOPLE and self.chance(0.4):
            clause.clitic = self._clitic(DIRECT, clause.subject)
        else:
            clause.rest.append(self.object_phrase(verb, bool(clause.negation)))

    def _giving(self, clause: Clause) -> None:
        dative = self.chance(0.35)
        negated = bool(clause.negation)
        if dative:  # with an overt determiner: "gave her letters" would be ambiguous
            clause.clitic = self._clitic(DATIVE, clause.subject)
            clause.rest.append(words_of(self.object(clause.verb, table="singular")))
        else:
            clause.rest.append(words_of(self.object(clause.verb, negated, most=1)))
            clause.rest.append(join(word("to", "à"), words_of(self.person("definite"))))

    def _indirect(self, clause: Clause) -> None:
        if self.chance(0.35):
            clause.clitic = self._clitic(DATIVE, clause.subject)
        else:
            clause.rest.append(self.object_phrase(clause.verb))

    def _about(self, clause: Clause) -> None:
        clause.rest.append(self.object_phrase(clause.verb))

    def _enter(self, clause: Clause) -> None:
        clause.rest.append(self.object_phrase(clause.verb))

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
        if english != "in" and self.chance(0.5):
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
        subject = clause.subject
        noun = subject.noun or self.lexicon.nouns("king")[0]
        adjective = self.adjective(noun, "predicate")
        assert adjective is not None
        form = adjective.french[subject.gender][subject.plural]
        phrase = word(adjective.english, form)
        if not adjective.english[0].isupper() and self.chance(0.3):
            phrase = join(self.pick(self.lexicon.manners["degree"]).phrase(), phrase)
        clause.rest.append(phrase)

    def _clitic(self, clitics: tuple[Clitic, ...], subject: Nominal) -> Clitic:
        return self.pick([c for c in clitics if c.english != OWN.get(subject.person)])

    def _extras(self, clause: Clause) -> None:
        """A frequency, or a company, a place and a time, where they make sense."""
        verb = clause.verb
        if verb.stative or verb.kind == "copula":
            return
        plain = not (clause.negation or clause.modal or clause.short)
        if plain and self.chance(0.15):
            clause.adverb = self.pick(self.lexicon.manners["frequency"])
            return
        if verb.kind == "intransitive" and self.chance(0.25):
            ahead = self.pick(self.lexicon.prepositions["person"]).phrase()
            clause.rest.append(join(ahead, words_of(self.person("definite", 1))))
        if verb.kind == "intransitive" and self.chance(0.4):
            clause.rest.append(self.place())
        if clause.negation in (None, "not") and self.chance(0.35):
            clause.rest.append(self.time(clause.tense))

    # times

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
        return (1950 if tense == "past" else 2030) + int(self.random() * 60)

    def _date(self, tense: str) -> Phrase:
        date = datetime.date(self._year(tense), 1, 1)
        date += datetime.timedelta(days=int(self.random() * 365))
        if self.chance(0.1):
            date = date.replace(day=1)
        weekday = self.lexicon.days[date.weekday()] if self.chance(0.3) else None
        return day(date, self.lexicon.months[date.month - 1], weekday)

    # patterns

    def statement(self) -> Phrase:
        """Anne often writes long letters."""
        clause = self.main()
        said = clause.phrase()
        if clause.verb.stative or clause.adverb or clause.negation or clause.modal:
            return _stop(said)
        if self.chance(0.12) and len(said.english) < 12 and len(clause.rest) < 2:
            return _stop(join(self.time(clause.tense), word(",", ","), said))
        return _stop(said)

    def animal(self) -> Phrase:
        """The horses ran slowly near the river."""
        noun = self.pick(self.lexicon.nouns("animal"))
        subject = self.phrase(noun, "subject")
        verbs = [v for v in self.lexicon.verbs["intransitive"] if v.animal]
        verb = self.pick(verbs)
        clause = Clause(subject, verb, self.tense(verb))
        self._intransitive(clause)
        self._extras(clause)
        return _stop(clause.phrase())

    def _described(self, table: str) -> Nominal:
        """A noun phrase about something that adjectives can describe."""
        while True:
            noun = self.pick(self.lexicon.nouns(DESCRIBED))
            if self.adjective(noun, "predicate"):
                return self.phrase(noun, table, 1)

    def _is(self, subject: Nominal) -> Clause:
        """The car is red."""
        verb = self.pick(self.lexicon.verbs["copula"][::2])  # be, seem
        clause = Clause(subject, verb, "present")
        self._copula(clause)
        return clause

    def thing_is(self) -> Phrase:
        """The letters that she wrote are not very long."""
        subject = self._described("definite")
        if self.chance(0.3):
            subject = self.with_relative(subject)
        clause = self._is(subject)
        clause.negation = self.pick((None, None, None, "not", "no longer"))
        return _stop(clause.phrase())

    def comparison(self) -> Phrase:
        """Anne is as rich as the king."""
        subject = self.pronoun() if self.chance(0.3) else self.person("plain")
        noun = subject.noun or self.lexicon.nouns("king")[0]
        adjective = self.adjective(noun, "predicate")
        assert adjective is not None
        form = adjective.french[subject.gender][subject.plural]
        clause = Clause(subject, self.lexicon.verbs["copula"][0], "present")
        clause.negation = "not" if self.chance(0.3) else None
        other = words_of(self.person("plain"))
        same = word(adjective.english, form)
        clause.rest = [word("as", "aussi"), same, word("as", "que"), other]
        return _stop(clause.phrase())

    def there_is(self) -> Phrase:
        """There are three books on the table."""
        noun = self.pick(self.lexicon.nouns("animal food text clothing thing furniture"))
        nominal = self.phrase(noun, "new")
        there, be = new_link(), new_link()
        english = [("there", there), ("are" if nominal.plural else "is", be)]
        ahead = Phrase(english, [("il", there), ("y", there), ("a", be)])
        return _stop(join(ahead, words_of(nominal), self.place()))

    def _asked(self, clause: Clause, ahead: Phrase | None = None) -> Phrase:
        """The clause as a question with est-ce que, after a question word if there is one."""
        question = new_link()
        que = Phrase([], [("est-ce", question), ("que", question)])
        return _stop(join(ahead or Phrase([], []), que, clause.phrase(question)), "?")

    def yes_no(self) -> Phrase:
        """Did she read the letter?"""
        clause = self.main()
        clause.negation = None
        return self._asked(clause)

    def wh(self) -> Phrase:
        """When will you leave? Why does Anne not eat meat?"""
        asked = self.pick((("where", "où"), ("when", "quand"), ("why", "pourquoi")))
        if asked[0] == "why":
            return self._asked(self.main(), word(*asked))
        kind = self.pick(("intransitive", "transitive"))
        tense = self.pick(("past", "future"))
        subject = self.pronoun() if self.chance(0.5) else self.person("plain")
        verb = self.verb(kind, tense, eventive=True)
        clause = Clause(subject, verb, tense)
        if verb.nouns:
            clause.rest.append(words_of(self.object(verb)))
        return self._asked(clause, word(*asked))

    def what(self) -> Phrase:
        """What did they eat?"""
        verbs = [v for v in self.lexicon.verbs["transitive"] if v.nouns[0].group not in PEOPLE]
        verb = self.pick(verbs)
        subject = self.pronoun() if self.chance(0.5) else self.person("plain")
        clause = Clause(subject, verb, self.tense(verb))
        if not verb.stative and self.chance(0.4):
            clause.rest.append(self.time(clause.tense))
        return self._asked(clause, word("what", "que"))

    def who(self) -> Phrase:
        """Who wrote this letter?"""
        clause = self.main(pronoun("who", "qui", 0, 0, 1))
        clause.negation = None
        return _stop(clause.phrase(), "?")

    def how_many(self) -> Phrase:
        """How many letters did she write? Which letters did she write?"""
        verb = self.verb("transitive")
        if verb.nouns[0].group in PEOPLE:
            verb = self.lexicon.verbs["transitive"][0]
        nominal = self._countable(verb)
        subject = self.pronoun() if self.chance(0.5) else self.person("plain")
        clause = Clause(subject, verb, self.tense(verb), preceding=nominal)
        return self._asked(clause, words_of(nominal))

    def _countable(self, verb: Verb) -> Nominal:
        """How many letters, which letters, which letter."""
        raise NotImplementedError

    def where_is(self) -> Phrase:
        """Where are the keys?"""
        subject = self.phrase(self._thing(), "definite")
        question = new_link()
        be = "are" if subject.plural else "is"
        sont = "sont" if subject.plural else "est"
        return _stop(join(word("where", "où"), word(be, sont), words_of(subject)), "?")
