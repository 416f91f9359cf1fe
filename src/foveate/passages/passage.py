"""A text or an HTML fragment as sentences for a model, and their answers as a text again.

What is guaranteed, whatever the model answers: the protected spans of the output are those of the
input, each as often; white space between sentences and all markup are there. Translating is up to
who calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from foveate.passages.pieces import Piece, texts_of
from foveate.passages.rules import Rules
from foveate.passages.run import Part, Run
from foveate.passages.sentence import Sentence

Pair = tuple[str, str]  # a sentence and its translation
Aligner = Callable[[Sequence[Pair]], list[list[tuple[int, int]]]]  # the word links of each pair
Pieces = list[Piece]


@dataclass(frozen=True)
class Passage:
    """One text, cut; ``written`` says how a piece is written down."""

    parts: tuple[Part, ...]
    rules: Rules
    written: Callable[[Piece], str] = lambda piece: piece.text

    @cached_property
    def asked(self) -> list[Sentence]:
        """The parts that the model is to translate."""
        return [part for part in self.parts if isinstance(part, Sentence)]

    @property
    def sentences(self) -> list[str]:
        """What the model gets, one line each."""
        return [sentence.text for sentence in self.asked]

    @property
    def plain(self) -> bool:
        """Whether all of it is the model's to change: nothing has to be placed."""
        return not any(sentence.holds for sentence in self.asked)

    def pairs(self, answers: Sequence[str]) -> list[Pair]:
        """The sentences with their answers whose words have to be linked: few, or none."""
        found = (self._pair(*both) for both in zip(self.asked, answers, strict=True))
        return [pair for pair in found if pair is not None]

    def _pair(self, sentence: Sentence, answer: str) -> Pair | None:
        """A sentence and its answer, if something has to be placed by their links."""
        if not sentence.holds:
            return None
        cleaned = sentence.cleaned(answer, self.rules)
        return (sentence.text, cleaned) if sentence.places(cleaned, self.rules) else None

    def joined(self, answers: Sequence[str], align: Aligner) -> str:
        """The text with an answer in place of each sentence.

        ``align`` is asked once at most. Raises ``ValueError`` where there are not as many answers
        as sentences.
        """
        pairs = self.pairs(answers)
        links = iter(align(pairs) if pairs else [])
        chosen: list[Pieces] = []
        for sentence, answer in zip(self.asked, answers, strict=True):
            found = next(links) if self._pair(sentence, answer) else []
            chosen.append(self._safe(sentence, answer, found))
        if not self._keeps(chosen):
            chosen = self._most_that_keep(chosen)
        return "".join(map(self.written, self._whole(chosen)))

    @cached_property
    def _protected(self) -> Counter[str]:
        """The protected spans of the input."""
        return self.rules.count(texts_of(self._whole([list(s.source) for s in self.asked])))

    def _safe(self, sentence: Sentence, answer: str, links: list[tuple[int, int]]) -> Pieces:
        """The first way of writing the answer that has the sentence's spans, its source at last."""
        right = self._counted(sentence.source)
        for pieces in self._ways(sentence, answer, links):
            if self._counted(pieces) == right:
                return pieces
        return list(sentence.source)

    def _counted(self, pieces: Sequence[Piece]) -> Counter[str]:
        """The protected spans between markup, and those that are seen where it is left out."""
        texts = texts_of(pieces)
        return self.rules.count([*texts, "".join(texts)] if len(texts) > 1 else texts)

    def _ways(
        self, sentence: Sentence, answer: str, links: list[tuple[int, int]]
    ) -> Iterator[Pieces]:
        cleaned = sentence.cleaned(answer, self.rules)
        yield sentence.render(cleaned, links, self.rules)
        yield sentence.render(cleaned, links, self.rules, loose=True)
        words = "".join(c if c.isalpha() or c == " " else " " for c in cleaned)
        yield sentence.render(sentence.cleaned(words, self.rules), [], self.rules, loose=True)

    def _keeps(self, chosen: Sequence[Pieces]) -> bool:
        """Whether the protected spans of the whole passage are those of the input."""
        return self.rules.count(texts_of(self._whole(chosen))) == self._protected

    def _most_that_keep(self, chosen: Sequence[Pieces]) -> list[Pieces]:
        """The answers without those that make a span together, across sentences; few do.

        From the source on a stretch of answers is taken, or else its halves are tried.
        """
        taken = [list(sentence.source) for sentence in self.asked]
        todo = [(0, len(chosen))]
        while todo:
            start, end = todo.pop()
            source, taken[start:end] = taken[start:end], chosen[start:end]
            if self._keeps(taken):
                continue
            taken[start:end] = source
            middle = (start + end) // 2
            todo += [(middle, end), (start, middle)] if end - start > 1 else []
        return taken

    def _whole(self, chosen: Sequence[Pieces]) -> Pieces:
        """All pieces of the passage, those of its sentences given."""
        of_sentence = iter(chosen)
        return [
            piece
            for part in self.parts
            for piece in (next(of_sentence) if isinstance(part, Sentence) else [part])
        ]


def text_passage(text: str, rules: Rules | None = None) -> Passage:
    """A plain text: line breaks, tabs, and two or more blanks are kept as they are."""
    rules = rules or Rules()
    run = Run(rules, layout=True)
    run.add_text(text)
    return Passage(tuple(run.parts()), rules)


def joined_all(
    passages: Sequence[Passage], answers: Sequence[Sequence[str]], align: Aligner
) -> list[str]:
    """`Passage.joined` of many passages, with all their pairs linked at once."""
    pairs = [p.pairs(a) for p, a in zip(passages, answers, strict=True)]
    every = [pair for some in pairs for pair in some]
    links = iter(align(every) if every else [])

    def found(some: Sequence[Pair]) -> list[list[tuple[int, int]]]:
        return [next(links) for _ in some]

    return [p.joined(a, found) for p, a in zip(passages, answers, strict=True)]
