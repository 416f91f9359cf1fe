"""Whole sentences of the embedded corpus: patterns of one or two clauses, and chains of them.

Each English sentence has one translation, so a pronoun of the third person refers either to nobody
named (they: ils) or to the one noun phrase before it that fits (the keys … they: elles).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from grammar.clauses import Clauses
from grammar.lexicon import Lexicon, Phrase, new_link
from grammar.phrases import Clause, Nominal, clitic_for, join, pronoun, pronoun_for, word, words_of

DESCRIBED = (
    "animal food staple drink clothing thing vehicle furniture room site building text idea "
    "institution event"
)
SMALL, LARGE = "food text clothing thing", "animal vehicle"
COMMA, BECAUSE = (",", ","), ("because", "parce que")
LONGEST_PART, TRIES = 14, 40  # English words of most patterns; tries until a part fits


class Sentences(Clauses):
    """Chooses whole sentences."""

    def __init__(
        self, lexicon: Lexicon, random: Callable[[], float], admitted: tuple[str, ...]
    ) -> None:
        super().__init__(lexicon, random, admitted)
        patterns: dict[Callable[[], Phrase], int] = {
            **{self.statement: 36, self.thing_is: 7, self.there_is: 4, self.animal: 4},
            **{self.yes_no: 7, self.wh: 6, self.what: 3, self.who: 4, self.how_many: 4},
            **{self.where_is: 2, self.but_pronoun: 7, self.because_it: 5, self.because: 8},
            **{self.condition: 6, self.when: 6, self.saying: 8, self.comparison: 3},
        }
        nouns = lexicon.nouns(DESCRIBED)
        self._describable = [noun for noun in nouns if self.describers(noun, "predicate")]
        self._patterns = [pattern for pattern, often in patterns.items() for _ in range(often)]

    def sentence(self) -> Phrase:
        """One sentence of any pattern, with its full stop or question mark."""
        return self.pick(self._patterns)()

    def statement(self) -> Phrase:
        """Anne often writes long letters. Yesterday, Anne wrote long letters."""
        if self.chance(0.9):
            return _stop(self.extras(self.main()).phrase())
        tense = self.pick(("past", "future"))
        clause = self.clause(self.subject("subject"), tense, "transitive", "intransitive", "motion")
        if clause.verb.stative:
            return _stop(clause.phrase())
        return _stop(join(self.time(tense), word(*COMMA), clause.phrase()))

    def animal(self) -> Phrase:
        """Three horses slept near the castle."""
        subject = self.phrase(self.pick(self.lexicon.nouns("animal")), "subject")
        verb = self.pick([v for v in self.lexicon.verbs["intransitive"] if v.animal])
        clause = Clause(subject, verb, self.tense(verb))
        self._complete["intransitive"](clause)
        return _stop(self.extras(clause).phrase())

    def thing_is(self) -> Phrase:
        """The letters that she wrote are not very long."""
        subject = self._described()
        if self.chance(0.4):
            subject = self.with_relative(subject)
        clause = self._is(subject)
        clause.negation = self.pick((None, None, None, "not", "no longer"))
        return _stop(clause.phrase())

    def _described(self) -> Nominal:
        """A noun phrase about something that adjectives can describe."""
        return self.phrase(self.pick(self._describable), "definite", 0)

    def _is(self, subject: Nominal) -> Clause:
        """The car is red; the car seems too heavy."""
        be, _, seem = self.lexicon.verbs["copula"]
        clause = Clause(subject, self.pick((be, be, seem)), "present")
        self._complete["copula"](clause)
        return clause

    def comparison(self) -> Phrase:
        """Anne is as rich as the king."""
        subject = self.subject("plain")
        _, same = self.quality(subject)
        clause = Clause(subject, self.lexicon.verbs["copula"][0], "present")
        clause.negation = "not" if self.chance(0.3) else None
        other = words_of(self.person("plain"))
        clause.rest = [word("as", "aussi"), same, word("as", "que"), other]
        return _stop(clause.phrase())

    def there_is(self) -> Phrase:
        """There are three books on the table."""
        large = self.chance(0.4)
        noun = self.pick(self.lexicon.nouns(LARGE if large else SMALL))
        nominal = self.phrase(noun, "new", 1)
        there, be = new_link(), new_link()
        english = [("there", there), ("are" if nominal.plural else "is", be)]
        ahead = Phrase(english, [("il", there), ("y", there), ("a", be)])
        return _stop(join(ahead, words_of(nominal), self.place(0.0 if large else 0.7)))

    # questions

    def yes_no(self) -> Phrase:
        """Did she read the letter?"""
        return self._asked(self.extras(self.main(negatable=False)))

    def wh(self) -> Phrase:
        """When will you leave? Why does Anne not eat meat?"""
        requested = self.pick((("where", "où"), ("when", "quand"), ("why", "pourquoi")))
        if requested[0] == "why":
            return self._asked(self.extras(self.main()), word(*requested))
        tense = self.pick(("past", "future"))
        verb = self.verb(self.pick(("intransitive", "transitive")), tense, eventive=True)
        if requested[0] == "where" and verb.etre:  # where did she leave? would be odd
            verb = self.verb("transitive", tense, eventive=True)
        clause = Clause(self.subject(), verb, tense)
        if verb.nouns:
            clause.rest.append(words_of(self.object(verb)))
        return self._asked(clause, word(*requested))

    def what(self) -> Phrase:
        """What did they eat?"""
        verbs = self.lexicon.verbs["transitive"]
        verb = self.pick([v for v in verbs if not v.human])
        clause = Clause(self.subject(), verb, self.tense(verb))
        if not verb.stative and self.chance(0.4):
            clause.rest.append(self.time(clause.tense))
        return self._asked(clause, word("what", "que"))

    def who(self) -> Phrase:
        """Who wrote this letter?"""
        clause = self.main(pronoun("who", "qui", 0, 0, 1), negatable=False)
        return _stop(self.extras(clause).phrase(), "?")

    def how_many(self) -> Phrase:
        """How many letters did she write? Which letter does she read?"""
        verb = self.verb("transitive")
        nominal = self.asked(self.object_of(verb))
        clause = Clause(self.subject(), verb, self.tense(verb), preceding=nominal)
        return self._asked(clause, words_of(nominal))

    def where_is(self) -> Phrase:
        """Where are the keys?"""
        noun = self.pick(self.lexicon.nouns("kin animal text clothing thing vehicle"))
        subject = self.phrase(noun, "definite")
        be = word("are", "sont") if subject.plural else word("is", "est")
        return _stop(join(word("where", "où"), be, words_of(subject)), "?")

    def _asked(self, clause: Clause, ahead: Phrase | None = None) -> Phrase:
        """The clause as a question with est-ce que, after a question word if there is one."""
        question = new_link()
        que = Phrase([], [("est-ce", question), ("que", question)])
        output = clause.phrase(question)
        return _stop(join(ahead, que, output) if ahead else join(que, output), "?")

    # two clauses

    def but_pronoun(self) -> Phrase:
        """The letters are long, but Anne will read them."""
        subject = self._described()
        first = self._is(subject)
        verb = self.taker_of(subject.noun, "transitive") if subject.noun else None
        if verb is None:
            return _stop(first.phrase())
        who = self.pronoun(third=False) if self.chance(0.5) else self.name()
        second = Clause(who, verb, self.tense(verb), clitic=clitic_for(subject))
        and_ = word("but", "mais") if self.chance(0.5) else word("and", "et")
        return _stop(join(first.phrase(), word(*COMMA), and_, second.phrase()))

    def because_it(self) -> Phrase:
        """Anne buys the car because it is new."""
        verb = self.verb("transitive")
        noun = self.object_of(verb)
        subject = self.pronoun(third=False) if self.chance(0.5) else self.name()
        first = Clause(subject, verb, self.tense(verb))
        nominal = self.phrase(noun, "definite", 0)
        first.rest.append(words_of(nominal))
        if noun.of or noun.group == "kin" or not self.describers(noun, "predicate"):
            return _stop(first.phrase())
        second = self._is(pronoun_for(nominal)._replace(noun=noun))
        return _stop(join(first.phrase(), word("because", "parce que"), second.phrase()))

    def because(self) -> Phrase:
        """The girls are happy because they will win."""
        tense = self.pick(("past", "present", "future"))
        first = self._first(tense)
        second = self.clause(self._second(first.subject), tense)
        return _stop(join(first.phrase(), word("because", "parce que"), second.phrase()))

    def condition(self) -> Phrase:
        """If he comes back, we will eat the cake."""
        first = self._first("present")
        second = self.clause(self._second(first.subject), "future")
        output = (word("if", "si"), first.phrase(), word(*COMMA), second.phrase())
        return _stop(join(*output))

    def when(self) -> Phrase:
        """When Anne arrived, the children went out."""
        tense = self.pick(("past", "past", "present"))
        first = self._first(tense)
        second = self.clause(self._second(first.subject), tense)
        output = (word("when", "quand"), first.phrase(), word(*COMMA), second.phrase())
        return _stop(join(*output))

    def saying(self) -> Phrase:
        """The queen thinks that her son will win."""
        subject = self.subject("subject")
        first = Clause(subject, self.verb("saying"), "present")
        second = self.clause(self._second(subject))
        return _stop(join(first.phrase(), word("that", "que"), second.phrase()))

    def _first(self, tense: str) -> Clause:
        """A clause with one noun phrase that a later pronoun may mean: its subject."""
        return self.clause(self.subject(), tense, "intransitive", "intransitive", "motion")

    def _second(self, first: Nominal) -> Nominal:
        """The same subject again, as a pronoun, or a new one that no pronoun confuses."""
        draw = self.random()
        if draw < 0.4:
            return pronoun_for(first)
        return self.pronoun(third=False) if draw < 0.65 else self.person("definite")


class LongSentences(Sentences):
    """Sentences of a wanted length: sentences joined by and, but, because, with deep embedding."""

    nested = 0.5

    def __init__(
        self, lexicon: Lexicon, random: Callable[[], float], admitted: tuple[str, ...]
    ) -> None:
        super().__init__(lexicon, random, admitted)
        questions = (self.yes_no, self.wh, self.what, self.who, self.how_many, self.where_is)
        self._statements = [p for p in self._patterns if p not in questions]
        self._first_part = True

    def pronoun(self, third: bool = True) -> Nominal:
        """After the first part of a sentence, "they" might mean somebody named before."""
        return super().pronoun(third and self._first_part)

    def sentence_of(self, length: int) -> Phrase | None:
        """A sentence of ``length`` English words, marks counted, or None where no parts fit."""
        self._first_part = True
        if length <= LONGEST_PART and self.chance(0.5):
            return self._fitting(self.sentence, length, exactly=True)
        phrase = self._fitting(lambda: self._piece(length - 1), length - 1)
        self._first_part = False
        while phrase and len(phrase.english) < length - 1:
            ahead = self._joint()
            room = length - 1 - len(phrase.english) - len(ahead.english)
            part = self._fitting(partial(self._piece, room), room, room <= LONGEST_PART)
            phrase = join(phrase, ahead, part) if part else None
        return _stop(phrase) if phrase else None

    def _joint(self) -> Phrase:
        """What joins two parts of a sentence: and, but, because."""
        english, french = self.pick((("and", "et"), ("and", "et"), ("but", "mais"), BECAUSE))
        joint = word(english, french)
        return joint if (english, french) == BECAUSE else join(word(*COMMA), joint)

    def _piece(self, room: int) -> Phrase:
        """A statement without its full stop; now and then what somebody says or thinks."""
        if room > LONGEST_PART and self.chance(0.25):
            clause = Clause(self.subject("plain"), self.verb("saying"), "present")
            self._first_part = False
            return join(clause.phrase(), word("that", "que"), self._piece(room - 6))
        english, french = self.pick(self._statements)()
        return Phrase(english[:-1], french[:-1])

    def _fitting(
        self, make: Callable[[], Phrase], most: int, exactly: bool = False
    ) -> Phrase | None:
        """The first of some tries that has at most, or exactly, so many English words.

        ``shown`` keeps the splits of the pairs of words of what is returned, not of other tries.
        """
        before, first_part = set(self.shown), self._first_part
        for _ in range(TRIES):
            self.shown, self._first_part = set(before), first_part
            phrase = make()
            if len(phrase.english) == most or (not exactly and len(phrase.english) < most):
                return phrase
        return None


def _stop(phrase: Phrase, mark: str = ".") -> Phrase:
    return join(phrase, word(mark, mark))
