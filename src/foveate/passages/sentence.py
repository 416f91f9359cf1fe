"""A sentence with what stands in it and is not the model's to change: spans, objects, elements.

Lives here: what the model gets of it, and where its answer takes these again. Does not live here:
where a sentence begins and ends (`run`), which spans are protected (`rules`).
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from foveate.data.words import split_words
from foveate.passages.pieces import Piece, Writer
from foveate.passages.rules import Rules

Links = Sequence[tuple[int, int]]  # (source word, target word)


@dataclass(frozen=True)
class Held:
    """What must stand in the answer once: a protected span, or an object such as an image.

    ``at`` is its place in the sentence as the model gets it, ``span`` its text where it is a
    protected span; ``before`` and ``after`` are the characters that stood right beside it, if any.
    """

    at: int
    pieces: tuple[Piece, ...]
    span: str | None = None
    before: str = ""
    after: str = ""


@dataclass(frozen=True)
class Mark:
    """An element around the characters from ``start`` to ``end``, with what it holds."""

    start: int
    end: int
    open: str
    close: str
    marks: tuple[Mark, ...] = ()
    helds: tuple[Held, ...] = ()


@dataclass(frozen=True)
class Sentence:
    """What the model is to translate, and what is to be put into the answer.

    ``source`` are the pieces as they stood, the answer of last resort.
    """

    text: str
    root: Mark
    source: tuple[Piece, ...]

    @cached_property
    def spans(self) -> Counter[str]:
        """The protected spans that the answer may hold, those inside of objects left out."""
        found, marks = Counter[str](), [self.root]
        while marks:
            mark = marks.pop()
            found.update(held.span for held in mark.helds if held.span is not None)
            marks += mark.marks
        return found

    @property
    def holds(self) -> bool:
        """Whether anything stands in it that is not the model's to change."""
        return bool(self.root.marks or self.root.helds)

    def places(self, cleaned: str, rules: Rules) -> bool:
        """Whether something has to be placed in an answer: all but spans that the model wrote."""
        if self.root.marks or any(held.span is None for held in self.root.helds):
            return True
        there = Counter(cleaned[a:b] for (a, b), _ in rules.spans(cleaned))
        return bool(self.spans - there)

    def cleaned(self, answer: str, rules: Rules) -> str:
        """The answer on one line, without protected spans that the model invented or doubled."""
        if not answer.isprintable():
            answer = "".join(c if _printed(c) else " " for c in answer)
        line = " ".join(answer.split())
        left, kept, done = self.spans.copy(), "", 0
        for (start, end), _ in rules.spans(line):
            if left[line[start:end]] > 0:
                left[line[start:end]] -= 1
            else:
                kept += line[done:start]
                kept = kept.rstrip() if line[end : end + 1] in tuple(Writer.CLOSING) else kept
                done = end
        return " ".join((kept + line[done:]).split())

    def render(self, answer: str, links: Links, rules: Rules, loose: bool = False) -> list[Piece]:
        """The cleaned answer with everything in its place."""
        if not self.holds:
            return [Piece(answer)] if answer else []
        return Placing(self, answer, links, rules, loose).pieces()


class Placing:
    """Where the parts of one sentence go in one answer.

    A place is a gap: number j is before word j of the answer, the last one after its end.
    """

    def __init__(
        self, sentence: Sentence, answer: str, links: Links, rules: Rules, loose: bool
    ) -> None:
        self.answer, self.root = answer, sentence.root
        self.source = split_words(sentence.text)
        inside = [span for span, _ in rules.spans(answer)]
        within = {place for start, end in inside for place in range(start + 1, end)}
        self.words = [(a, b) for a, b in split_words(answer) if a not in within]  # a span is one
        old = {a: n for n, (a, _) in enumerate(self.words)}
        numbers = [old.get(a, -1) for a, _ in split_words(answer)]
        self.of_source: dict[int, list[int]] = {}
        for s, t in links:
            if 0 <= t < len(numbers) and numbers[t] >= 0:
                self.of_source.setdefault(s, []).append(numbers[t])
        self.linked = sorted(self.of_source)
        self.there = Counter(answer[a:b] for a, b in inside)
        self.writer = Writer(loose)

    def pieces(self) -> list[Piece]:
        """The answer with marks and protected pieces."""
        self._write(self.root, 0, len(self.words))
        self.writer.text(self.answer[self._end(len(self.words)) :])
        return self.writer.pieces

    # ---- writing

    def _write(self, mark: Mark, low: int, high: int) -> None:
        """The words from gap ``low`` to ``high`` with what a mark holds among them."""
        inner = self._intervals(mark.marks, low, high)
        events: list[tuple[int, int, Mark | Held]] = []
        for held in mark.helds:
            if held.span is not None and self.there[held.span] > 0:
                self.there[held.span] -= 1  # the model wrote it
            else:
                gap = min(max(self._gap(held), low), high)
                events.append((self._outside(gap, inner), -1, held))
        events += [(a, b, one) for one, (a, b) in zip(mark.marks, inner, strict=True)]
        done = low
        for start, end, what in sorted(events, key=lambda event: event[:2]):
            self._words(done, start, low)
            done = start
            if isinstance(what, Held):
                self.writer.kept(what.pieces, what.before, what.after)
                continue
            if start < end and start > low:
                self.writer.text(self.answer[self._end(start) : self.words[start][0]])
            self.writer.markup(what.open)
            self._write(what, start, end)
            self.writer.markup(what.close)
            done = end
        self._words(done, high, low)

    def _words(self, start: int, end: int, low: int) -> None:
        """Words of the answer, each behind the white space before it, but for that at ``low``."""
        for word in range(start, end):
            before = "" if word == low else self.answer[self._end(word) : self.words[word][0]]
            self.writer.text(before)
            self.writer.text(self._word(word))

    def _word(self, word: int) -> str:
        return self.answer[self.words[word][0] : self._end(word + 1)]

    def _end(self, gap: int) -> int:
        """Where the word before a gap ends; a protected span is one word."""
        if gap == 0:
            return 0
        start = self.words[gap - 1][0]
        following = self.words[gap][0] if gap < len(self.words) else len(self.answer)
        return start + len(self.answer[start:following].rstrip())

    # ---- placing

    def _near(self, at: int) -> tuple[int, int]:
        """The source words before and after a place: −1 and the number of words at the ends."""
        before = bisect_right(self.source, at, key=lambda word: word[1])
        return before - 1, before

    def _gap(self, held: Held) -> int:
        """The gap of a protected piece: by the nearest word that is linked, else in proportion."""
        left, right = self._near(held.at)
        if left < 0:
            return 0
        place = bisect_left(self.linked, right)
        before, after = self.linked[:place][-1:], self.linked[place:][:1]
        if before and (not after or left - before[0] <= after[0] - right):
            return max(self.of_source[before[0]]) + 1
        if after:
            return min(self.of_source[after[0]])
        return round(len(self.words) * right / max(1, len(self.source)))

    @staticmethod
    def _outside(gap: int, intervals: Sequence[tuple[int, int]]) -> int:
        """The gap, or the end of the interval that it is inside."""
        return next((b for a, b in intervals if a < gap < b), gap)

    def _intervals(self, marks: Sequence[Mark], low: int, high: int) -> list[tuple[int, int]]:
        """The words of the answer that each mark gets: disjoint, the best linked ones first."""
        owner: dict[int, int] = {}
        plain: set[int] = set()
        for s, (start, end) in enumerate(self.source):
            mine = [n for n, m in enumerate(marks) if m.start < end and start < m.end]
            for t in self.of_source.get(s, ()):
                if mine:
                    owner[t] = mine[0]
                else:
                    plain.add(t)
        taken, full = list[tuple[int, int]](), set[int]()
        found: dict[int, tuple[int, int]] = {}
        sizes = Counter(owner.values())
        for n in sorted(range(len(marks)), key=lambda n: (-sizes[n], n)):
            weights = {
                t: 1.0 if owner.get(t) == n else -0.6 if t in plain else 0.0
                for t in range(low, high)
            }
            for t, other in owner.items():
                if other != n:
                    weights[t] = -2.0
            found[n] = _best(weights, low, high, full) or self._guess(marks[n], low, high, taken)
            taken.append(found[n])
            full.update(range(*found[n]))
        return [found[n] for n in range(len(marks))]

    def _guess(
        self, mark: Mark, low: int, high: int, taken: Sequence[tuple[int, int]]
    ) -> tuple[int, int]:
        """Where a mark without links goes: in proportion to its place in the source."""
        scale = len(self.words) / max(1, len(self.source))
        first, last = self._near(mark.start)[1], self._near(mark.end)[1]
        start = min(max(int(first * scale), low), high)
        end = min(max(round(last * scale), start), high)
        if start < end and all(b <= start or end <= a for a, b in taken):
            return start, end
        gap = self._outside(start, taken)
        return gap, gap


def _printed(character: str) -> bool:
    """Whether a character may stand in a text: no control character, no code point of none."""
    code = ord(character)
    none = code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF
    return not none and unicodedata.category(character) not in ("Cc", "Cs")


def _best(
    weights: dict[int, float], low: int, high: int, taken: set[int]
) -> tuple[int, int] | None:
    """The run of free words with the largest sum of weights above 0 (Bentley, 1984)."""
    best, sum_, start = (0.0, (low, low)), 0.0, low
    for t in range(low, high):
        if t in taken:
            sum_, start = 0.0, t + 1
            continue
        if sum_ <= 0:
            sum_, start = 0.0, t
        sum_ += weights.get(t, 0.0)
        if sum_ > best[0]:
            best = sum_, (start, t + 1)
    return best[1] if best[0] > 0 else None
