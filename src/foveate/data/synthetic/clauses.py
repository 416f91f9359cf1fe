"""Random clauses for the embedded corpus: a subject, its verb and all that goes with the verb.

Lives here: the objects and complements of each kind of verb, object pronouns, modals, negation,
manner, place and time. Does not live here: sentences of several clauses (sentences.py).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable

from foveate.data.synthetic.grammar import Clause, Clitic, Nominal, join, word, words_of
from foveate.data.synthetic.lexicon import Adjective, Lexicon
from foveate.data.synthetic.nominals import Nominals
from foveate.data.synthetic.numerals import day, hour
from foveate.data.synthetic.surface import Phrase, new_link

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
