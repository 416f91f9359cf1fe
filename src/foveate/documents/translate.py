"""Translate passages of text by sentence, with protected spans, markup and white space.

Whatever the model answers, the output has the protected spans of the input, each as often, all
markup, and the white space between sentences.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from math import inf

from foveate.data.tokenizer import Span
from foveate.data.words import split_words
from foveate.documents.spans import CLOSING, OPENING, Piece, PieceWriter, Rules, texts_of

LAYOUT = re.compile(r"[^\S\n]*[\n\r\t\v\f\x1c-\x1e\x85\u2028\u2029]\s*|\s{2,}")
_END = re.compile(
    r"(?<![.!?…])[.!?…]++[\"'’”»)\]]*+(?P<blank>\s++)(?=[\"'‘“«(\[¿¡]*+(?P<next>[^\W_]))"
    r"|[。！？]+[」』”）]*(?P<none>\s*)"
)
_WORD_BEFORE = re.compile(r"(\w+(?:\.\w+)*)\.$")
_SHORT = """al approx bzw ca cf col d.h dr e.g etc fig gen i.e inc jr ltd m mlle mme mr mrs ms no nr
    p pp prof rep sen sr st str u.a usw vol vs z.b"""
_ABBREVIATIONS = frozenset(_SHORT.split())
NEAR = 40  # characters before a full stop that may contain an abbreviation


def blanks(text: str, protected: Sequence[Span], layout: bool = True) -> list[Span]:
    """Return the white space between a text's sentences, in order; empty spans where there is none.

    ``protected`` spans are never cut. With ``layout``, line breaks, tabs and two or more spaces
    also end a sentence.
    """
    spaces = [m.span() for m in LAYOUT.finditer(text)] if layout else []
    for match in _END.finditer(text):
        group = "blank" if match["blank"] is not None else "none"
        end = match.start() + 1
        if not (match["next"] or "").islower() and not _abbreviated(text[max(0, end - NEAR) : end]):
            spaces.append(match.span(group))
    cuts: list[Span] = []
    spans = iter([*sorted(protected), (len(text) + 1, len(text) + 1)])
    span = next(spans)
    for start, end in sorted(spaces):
        while span[1] <= start:
            span = next(spans)
        if span[0] >= end and (not cuts or start >= cuts[-1][1]):
            cuts.append((start, end))
    return cuts


def _abbreviated(before: str) -> bool:
    """Return whether a text ends in the full stop of an abbreviation or an initial."""
    match = _WORD_BEFORE.search(before)
    if match is None:
        return False
    word = match[1]
    return word.lower() in _ABBREVIATIONS or (len(word) == 1 and word.isalpha() and word.isupper())


LONGEST = 1000  # characters and elements in a sentence; longer ones are cut at white space


@dataclass(frozen=True)
class Leaf:
    """A piece that must be in the answer once: a protected span, or an object such as an image.

    ``span`` is the text of a protected span, which is visible to the model if ``shown``; ``before``
    and ``after`` are the neighbouring characters, if any.
    """

    start: int
    end: int
    pieces: tuple[Piece, ...]
    span: str | None = None
    shown: bool = False
    before: str = ""
    after: str = ""
    count: int = 1  # number of elements and leaves that it counts as


@dataclass
class Element:
    """An element around the characters from ``start`` to ``end`` of the text."""

    start: int
    end: int = -1
    open: str = ""
    close: str = ""
    kids: "list[Element | Leaf]" = field(default_factory=list)
    count: int = 1

    @property
    def long(self) -> bool:
        """True if it is too long to be in a sentence: it is split into sentences."""
        return self.end - self.start + self.count > LONGEST

    @property
    def elements(self) -> "list[Element]":
        """The direct child elements, in order."""
        return [kid for kid in self.kids if isinstance(kid, Element)]


def overlapped(cuts: Sequence[Span], kid: Element) -> list[Span]:
    """Return those cuts, in order and disjoint, that overlap an element."""
    first = bisect_left(cuts, kid.start, key=lambda cut: cut[1])
    last = bisect_right(cuts, kid.end, key=lambda cut: cut[0])
    return [(a, b) for a, b in cuts[first:last] if a < kid.end or b > kid.start]


def inside(node: Element) -> Iterator[Element | Leaf]:
    """Yield all elements and leaves inside an element, in order."""
    for kid in node.kids:
        yield kid
        yield from inside(kid) if isinstance(kid, Element) else ()


Links = Sequence[tuple[int, int]]  # (source word, target word)


@dataclass(frozen=True)
class Sentence:
    """A text for the model, and what is inserted into its answer.

    ``source`` are the original pieces, used if no answer preserves the protected spans.
    """

    text: str
    root: Element
    source: tuple[Piece, ...]

    @cached_property
    def spans(self) -> Counter[str]:
        """The protected spans that the answer may contain, without those inside objects."""
        leaves = (kid for kid in inside(self.root) if isinstance(kid, Leaf))
        return Counter(leaf.span for leaf in leaves if leaf.span is not None)

    @property
    def holds(self) -> bool:
        """True if it has elements or protected pieces."""
        return bool(self.root.kids)

    def places(self, cleaned: str, rules: Rules) -> bool:
        """Return whether an answer needs pieces placed: all but spans that the model wrote."""
        if any(isinstance(kid, Element) or kid.span is None for kid in self.root.kids):
            return True
        return bool(self.spans - Counter(cleaned[a:b] for (a, b), _ in rules.spans(cleaned)))

    def cleaned(self, answer: str, rules: Rules) -> str:
        """Return the answer on one line, without invented or doubled protected spans."""
        if not answer.isprintable():
            answer = "".join(c if _printed(c) else " " for c in answer)
        line = " ".join(answer.split())
        left, text, done = self.spans.copy(), "", 0
        for (start, end), _ in rules.spans(line):
            if left[line[start:end]] > 0:
                left[line[start:end]] -= 1
            else:
                text += line[done:start]
                text = text.rstrip() if line[end : end + 1] in tuple(CLOSING) else text
                done = end
        return " ".join((text + line[done:]).split())

    def render(self, answer: str, links: Links, rules: Rules, loose: bool = False) -> list[Piece]:
        """Return the cleaned answer with everything inserted."""
        if not self.holds:
            return [Piece(answer)] if answer else []
        return Placing(self, answer, links, rules, loose).pieces()


class Placing:
    """The places of one sentence's parts in one answer.

    A place is a gap: gap j is before word j of the answer, the last one after its end.
    """

    def __init__(
        self, sentence: Sentence, answer: str, links: Links, rules: Rules, loose: bool
    ) -> None:
        self.answer, self.root = answer, sentence.root
        inside = [span for span, _ in rules.spans(answer)]
        within = {place for start, end in inside for place in range(start + 1, end)}
        words = [(a, b) for a, b in split_words(answer) if a not in within]  # a span is one word
        old = {a: n for n, (a, _) in enumerate(words)}
        numbers = [old.get(a, -1) for a, _ in split_words(answer)]
        linked: dict[int, list[int]] = {}
        for s, t in links:
            if 0 <= t < len(numbers) and numbers[t] >= 0:
                linked.setdefault(s, []).append(numbers[t])
        self.there = Counter(answer[a:b] for a, b in inside)
        self.inner = set[int]()  # where elements begin or end inside a source word
        self.source, self.words, self.of_source = self._split(sentence, words, linked)
        self.linked = sorted(self.of_source)
        self.writer = PieceWriter(loose)

    def _split(
        self, sentence: Sentence, words: Sequence[Span], linked: Mapping[int, Sequence[int]]
    ) -> tuple[list[Span], list[Span], dict[int, list[int]]]:
        """Return words of source and answer and their links, cut where an element cuts a word.

        The parts of m<sup>2</sup> and of its translation m2 are linked, as are those of
        5<sup>th</sup> and 5e, in which the part before the element is the same.
        """
        edges = {edge for kid in inside(self.root) for edge in (kid.start, kid.end)}
        cut_words: dict[int, list[int]] = {}  # where words of the answer are cut
        source, parts = list[Span](), dict[int, list[int]]()
        for s, (start, end) in enumerate(split_words(sentence.text)):
            cuts = [start, *sorted(e for e in edges if start < e < end), end]
            parts[s] = list(range(len(source), len(source) + len(cuts) - 1))
            source += pairwise(cuts)
            self.inner.update(cuts[1:-1])
            own = [sentence.text[a:b] for a, b in pairwise(cuts)]
            numbered = any(character.isdigit() for character in "".join(own))
            unlinked = range(len(words)) if numbered else range(0)
            for t in linked.get(s, unlinked) if len(own) > 1 else ():
                places = _like(own, self.answer[slice(*words[t])])
                if places and t not in cut_words:
                    cut_words[t], linked = places, {**linked, s: [t]}
                    break
        pieces, of_word = list[Span](), list[range]()  # parts of the answer's words
        for t, (start, end) in enumerate(words):
            cuts = [start, *(start + place for place in cut_words.get(t, ())), end]
            of_word.append(range(len(pieces), len(pieces) + len(cuts) - 1))
            pieces += pairwise(cuts)
            if t in cut_words:
                texts = (self.answer[a:b] for a, b in pairwise(cuts))
                self.there.update(text for text in texts if text in sentence.spans)
        result: dict[int, list[int]] = {}
        for s, t in ((s, t) for s, targets in linked.items() if s in parts for t in targets):
            if len(of_word[t]) == len(parts[s]) > 1:
                for a, b in zip(parts[s], of_word[t], strict=True):
                    result.setdefault(a, []).append(b)
            else:  # only cut in the source: the first part is linked
                result.setdefault(parts[s][0], []).extend(of_word[t])
        return source, pieces, result

    def pieces(self) -> list[Piece]:
        """Return the answer with marks and protected pieces."""
        self._write(self.root, 0, len(self.words))
        self.writer.text(self.answer[self._end(len(self.words)) :])
        return self.writer.pieces

    def _write(self, element: Element, low: int, high: int) -> None:
        """Write the words from gap ``low`` to ``high``, and an element's content among them."""
        inner = self._intervals(element.elements, low, high)
        events: list[tuple[int, int, Element | Leaf]] = []
        for piece in (kid for kid in element.kids if isinstance(kid, Leaf)):
            if piece.span is not None and self.there[piece.span] > 0:
                self.there[piece.span] -= 1  # the model wrote it
            else:
                follows = bool(piece.after) and not piece.before  # right before a word: <b>dog
                gap = min(max(self._gap(piece.start, follows), low), high)
                events.append((self._outside(gap, inner), -1, piece))
        events += [(a, b, part) for part, (a, b) in zip(element.elements, inner, strict=True)]
        done = low
        for start, end, what in sorted(events, key=lambda event: event[:2]):
            self._words(done, start, low)
            done = start
            if isinstance(what, Leaf):
                self.writer.protected(what.pieces, what.before, what.after)
                continue
            if start < end and start > low:
                self.writer.text(self.answer[self._end(start) : self.words[start][0]])
            self.writer.separate()
            self.writer.markup(what.open)
            self._write(what, start, end)
            self.writer.markup(what.close)
            done = end
        self._words(done, high, low)

    def _words(self, start: int, end: int, low: int) -> None:
        """Write words of the answer after their white space, omitting that of word ``low``."""
        for word in range(start, end):
            before = "" if word == low else self.answer[self._end(word) : self.words[word][0]]
            self.writer.text(before)
            self.writer.text(self.answer[self.words[word][0] : self._end(word + 1)])

    def _end(self, gap: int) -> int:
        """Return where the word before a gap ends; a protected span is one word."""
        if gap == 0:
            return 0
        start = self.words[gap - 1][0]
        following = self.words[gap][0] if gap < len(self.words) else len(self.answer)
        return start + len(self.answer[start:following].rstrip())

    def _near(self, at: int) -> tuple[int, int]:
        """Return the source words before and after ``at``; −1 and the word count at the ends."""
        before = bisect_right(self.source, at, key=lambda word: word[1])
        return before - 1, before

    def _gap(self, at: int, follows: bool = False) -> int:
        """Return a piece's gap: by its nearest linked word (``follows``: the next), or a share."""
        left, right = self._near(at)
        if left < 0:
            return 0
        place = bisect_left(self.linked, right)
        before, after = self.linked[:place][-1:], self.linked[place:][:1]
        if before and not (after and (follows or left - before[0] > after[0] - right)):
            return max(self.of_source[before[0]]) + 1
        if after:
            return min(self.of_source[after[0]])
        return round(len(self.words) * right / max(1, len(self.source)))

    @staticmethod
    def _outside(gap: int, intervals: Sequence[tuple[int, int]]) -> int:
        """Return the gap, or the end of the interval that contains it."""
        return next((b for a, b in intervals if a < gap < b), gap)

    def _intervals(self, marks: Sequence[Element], low: int, high: int) -> list[tuple[int, int]]:
        """Return each element's interval of answer words: disjoint, best linked elements first."""
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
        intervals: dict[int, tuple[int, int]] = {}
        sizes = Counter(owner.values())
        for n in sorted(range(len(marks)), key=lambda n: (-sizes[n], n)):
            weights = dict.fromkeys(plain, -0.6)
            weights |= {t: 1.0 if other == n else -2.0 for t, other in owner.items()}
            weights |= dict.fromkeys(full, -inf)
            best = _best([weights.get(t, 0.0) for t in range(low, high)], low)
            best = best or self._guess(marks[n], low, high, taken)
            intervals[n] = best
            taken.append(best)
            full.update(range(*best))
        return [intervals[n] for n in range(len(marks))]

    def _guess(
        self, mark: Element, low: int, high: int, taken: Sequence[tuple[int, int]]
    ) -> tuple[int, int]:
        """Return the interval of an element without links, in proportion to its source position."""
        if mark.start in self.inner:
            gap = self._outside(min(max(self._gap(mark.start), low), high), taken)
            return gap, gap  # a part of a word that is missing in the answer: word<sup>1</sup>
        scale = len(self.words) / max(1, len(self.source))
        first, last = self._near(mark.start)[1], self._near(mark.end)[1]
        start = min(max(int(first * scale), low), high)
        end = min(max(round(last * scale), start), high)
        if start < end and all(b <= start or end <= a for a, b in taken):
            return start, end
        gap = self._outside(start, taken)
        return gap, gap


def _printed(character: str) -> bool:
    """Return whether a character is printable: neither a control nor a noncharacter."""
    code = ord(character)
    none = code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF
    return not none and unicodedata.category(character) not in ("Cc", "Cs")


def _like(parts: Sequence[str], word: str) -> list[int]:
    """Return where to cut a word into parts like another's, one of which may differ; or []."""
    begins, ends = [0], [len(word)]
    for part in parts:
        if not word.startswith(part, begins[-1]):
            break
        begins.append(begins[-1] + len(part))
    for part in reversed(parts[len(begins) - 1 :]):
        if not word.endswith(part, begins[-1], ends[-1]):
            break
        ends.append(ends[-1] - len(part))
    if begins[-1] == len(word):
        return begins[1:-1] if len(begins) == len(parts) + 1 else []
    unpaired = len(begins) + len(ends) == len(parts) + 1 and begins[-1] < ends[-1]
    return [*begins[1:], *reversed(ends[1:])] if unpaired else []


def _best(weights: Sequence[float], low: int) -> tuple[int, int] | None:
    """Return the range with the largest sum of weights above 0, counted from ``low``, if any.

    The weights are read once (Bentley, 1984).
    """
    best, interval, sum_, start = 0.0, None, 0.0, low
    for t, weight in enumerate(weights, start=low):
        sum_, start = (sum_ + weight, start) if sum_ > 0 else (weight, t)
        if sum_ > best:
            best, interval = sum_, (start, t + 1)
    return interval


Part = Piece | Sentence
BRACKETS = ("()", "[]", "{}", "<>", "«»", "“”", '""', "''")
ROUNDS = 50  # until cuts and elements agree; after that, elements are not cut
TOUCHING = "\ufffc"  # the character before a leaf that directly follows another
_WORD = re.compile(rf"\S{{1,{LONGEST}}}\s*|\s+")
# Marks of items and speakers before a sentence, and of songs around it; not a number's minus.
_ITEM = re.compile(r"(?:[-–—]{1,2}(?:\s+|(?=[^\W\d_]))|[•·*♪♫►▶→✓✔●○■□▪▫‣◦⁃∙]\s+)*")


DEEPEST = 32  # nested codes that are around words


def nested(codes: Iterable[tuple[str, str]]) -> dict[int, int]:
    """Return the numbers of the codes that open something, each with that of its end.

    A code is what it opens and what it closes, one of which is empty. What is closed ends what was
    opened in it, which is alone then.
    """
    pairs, opened = dict[int, int](), list[tuple[str, int]]()
    for number, (opens, closes) in enumerate(codes):
        depths = reversed(range(len(opened)))
        depth = next((n for n in depths if opened[n][0] == closes), None)
        if depth is not None:
            pairs[opened[depth][1]] = number
            del opened[depth:]
        elif opens and len(opened) < DEEPEST:
            opened.append((opens, number))
    return pairs


class TextBuilder:
    """Collects a text with its elements, plain or HTML; `parts` splits it into sentences."""

    def __init__(self, rules: Rules, layout: bool) -> None:
        self.rules, self.layout = rules, layout
        self.text, self._texts, self._size = "", list[str](), 0  # `parts` joins the text
        self.open = [Element(0)]

    def add_text(self, text: str) -> None:
        """Add text; its protected spans end with it, so that none crosses an element's edge."""
        start = self._size
        self._texts.append(text)
        self._size += len(text)
        for (a, b), hidden in self.rules.spans(text):
            span, shown = text[a:b], not hidden
            if hidden and text[max(0, a - 1) : a] + text[b : b + 1] in BRACKETS:
                a, b = a - 1, b + 1  # empty brackets would only confuse the model
            self._add(Leaf(start + a, start + b, (Piece(text[a:b]),), span, shown))

    def add_object(self, markup: str) -> None:
        """Add markup that acts as a word in the text."""
        self._add(Leaf(self._size, self._size, (Piece(markup, markup=True),)))

    def add_break(self, text: str) -> None:
        """Add a line break or a tab: elements around it end before it and are reopened after."""
        around = [(element.open, element.close) for element in self.open[1:]]
        for _ in around:
            self.add_close()
        self.add_text(text)
        for opening, closing in around:
            self.add_open(opening, closing)

    def add_open(self, opening: str, closing: str) -> None:
        """Begin an element."""
        self.open.append(Element(self._size, open=opening, close=closing))

    def add_close(self) -> None:
        """End the innermost element."""
        node = self.open.pop()
        node.end = self._size
        self._add(node)

    def _add(self, kid: Element | Leaf) -> None:
        self.open[-1].kids.append(kid)
        self.open[-1].count += kid.count

    def parts(self) -> list[Part]:
        """Return the sentences, and what is between them."""
        self.text = "".join(self._texts)
        root = self.open[0]
        root.end = len(self.text)
        self._level(root)
        protected = [(kid.start, kid.end) for kid in inside(root) if isinstance(kid, Leaf)]
        return list(self._cut(root, blanks(self.text, protected, self.layout)))

    def _level(self, node: Element) -> None:
        """Make objects of the elements that contain no words."""
        for n, kid in enumerate(node.kids):
            if isinstance(kid, Element) and self._shown(kid.kids, kid.start, kid.end).strip():
                self._level(kid)
            elif isinstance(kid, Element):
                pieces = tuple(self._original([kid], kid.start, kid.end))
                node.kids[n] = Leaf(kid.start, kid.end, pieces)

    def _cut(self, node: Element, cuts: Sequence[Span]) -> Iterator[Part]:
        """Yield the parts of an element; elements of whole sentences are cut recursively."""
        cuts, whole = self._settled(node, cuts)
        edges: list[tuple[int, int, Element | None]] = [(k.start, k.end, k) for k in whole]
        inner = {cut for k in whole for cut in overlapped(cuts, k)}
        edges += [(a, b, None) for a, b in cuts if (a, b) not in inner]
        kids, done = deque(node.kids), node.start
        for start, end, kid in [*sorted(edges, key=lambda e: e[:2]), (node.end, node.end, None)]:
            mine = []
            while kids and kids[0] is not kid and kids[0].end <= start:
                mine.append(kids.popleft())
            for stretch in self._stretches(mine, done, start):
                yield from self._segment(*stretch)
            done = start if kid is None else end
            if kid is not None:
                kids.popleft()
                yield Piece(kid.open, markup=True)
                yield from self._cut(kid, overlapped(cuts, kid))
                yield Piece(kid.close, markup=True)

    def _settled(self, node: Element, cuts: Sequence[Span]) -> tuple[list[Span], list[Element]]:
        """Return the cuts that do not go through an element, and the elements of whole sentences.

        An element longer than a sentence may be counts as one of whole sentences.
        """
        inside = [c for c in cuts if node.start <= c[0] and c[1] <= node.end]
        nodes = node.elements
        first, last = self._trimmed(node.start, node.end)
        for round in range(ROUNDS + 1):
            starts = {first, *(end for _, end in inside)}
            ends = {last, *(start for start, _ in inside)}
            whole, split = list[Element](), list[Element]()
            for kid in nodes:
                a, b = self._trimmed(kid.start, kid.end)
                fits = round < ROUNDS and a in starts and b in ends
                (whole if fits or kid.long else split).append(kid)
            outside = [cut for c in inside if (cut := _outside_of(c, split)) is not None]
            if outside == inside:
                break
            inside = outside
        return inside, whole

    def _stretches(
        self, kids: Sequence[Element | Leaf], start: int, end: int
    ) -> Iterator[tuple[list[Element | Leaf], int, int]]:
        """Yield a stretch as one sentence, or as several if it is too long.

        It is cut at white space, or else between words and elements.
        """
        mine, size = list[Element | Leaf](), 0
        if end - start + sum(kid.count for kid in kids) <= LONGEST:
            yield list(kids), start, end
            return
        for kid, a, b in self._atoms(kids, start, end):
            more = b - a + (0 if kid is None else kid.count)
            blank = self.text[a - 1 : a].isspace()
            if size and size + more > (LONGEST if blank else 2 * LONGEST):
                yield mine, start, a
                mine, start, size = [], a, 0
            mine += [] if kid is None else [kid]
            size += more
        yield mine, start, end

    def _atoms(
        self, kids: Sequence[Element | Leaf], start: int, end: int
    ) -> Iterator[tuple[Element | Leaf | None, int, int]]:
        """Yield elements, leaves, and the words between them with the white space after each."""
        for kid in [*kids, None]:
            to = end if kid is None else kid.start
            for word in _WORD.finditer(self.text, start, to):
                yield None, *word.span()
            if kid is not None:
                yield kid, kid.start, kid.end
                start = kid.end

    def _segment(self, kids: Sequence[Element | Leaf], start: int, end: int) -> Iterator[Part]:
        """Yield a sentence with the white space and the objects at its ends."""
        a, b = self._trimmed(start, end)
        for kid in kids:  # an element that ends in white space includes it
            a = kid.start if kid.start < a < kid.end else a
            b = kid.end if kid.start < b < kid.end else b
        before = [k for k in kids if k.end <= a]
        after = [k for k in kids[len(before) :] if k.start >= b]
        inner = kids[len(before) : len(kids) - len(after)]
        a, b = self._without_marks(inner, a, b)
        text = " ".join(self._shown(inner, a, b).split())
        yield from self._original(before, start, a)
        source = tuple(self._original(inner, a, b))
        if any(character.isalnum() for character in text) and _has_words(inner, text):
            tree = self._tree(inner, a, b) if inner else Element(0, len(text))
            yield Sentence(text, tree, source)
        else:
            yield from source
        yield from self._original(after, b, end)

    def _trimmed(self, start: int, end: int) -> Span:
        """Return the stretch without white space at its ends."""
        text = self.text[start:end]
        a = start + len(text) - len(text.lstrip())
        return a, max(a, start + len(text.rstrip()))

    def _without_marks(self, kids: Sequence[Element | Leaf], start: int, end: int) -> Span:
        """Return the stretch without the marks of an item, a speaker or a song around it."""
        item = _ITEM.match(self.text, start, end)
        words = self.text[start:end].rstrip("♪♫")
        a = item.end() if item else start
        b = start + len(words.rstrip()) if words[-1:].isspace() else end
        first, last = min((k.start for k in kids), default=a), max((k.end for k in kids), default=b)
        return (a if a <= first else start), (b if b >= last else end)

    def _original(self, kids: Sequence[Element | Leaf], start: int, end: int) -> Iterator[Piece]:
        """Yield a stretch in its original form."""
        done = start
        for kid in kids:
            yield Piece(self.text[done : kid.start])
            if isinstance(kid, Leaf):
                yield from kid.pieces
            else:
                yield Piece(kid.open, markup=True)
                yield from self._original(kid.kids, kid.start, kid.end)
                yield Piece(kid.close, markup=True)
            done = kid.end
        yield Piece(self.text[done:end])

    def _shown(
        self,
        kids: Sequence[Element | Leaf],
        start: int,
        end: int,
        before: str = "",
        places: dict[int, Span] | None = None,
    ) -> str:
        """Return a stretch as the model sees it, before its white space is normalised.

        A hidden span before a closing mark removes the space before it. ``places`` receives, by id,
        the start and end of each element and leaf in the sentence, which starts with ``before``.
        """
        shown, done = "", start
        for kid in kids:
            shown += self.text[done : kid.start]
            done, span = kid.end, self.text[kid.start : kid.end]
            begins = 0 if places is None else _length(before + shown)
            if isinstance(kid, Element):
                shown += self._shown(kid.kids, kid.start, done, before + shown, places)
            elif kid.shown:
                shown += span
            elif span.strip() != span:
                shown += " "
            elif span and self._closes(done):
                shown = shown.rstrip()
            elif span and shown[-1:].strip(OPENING) and self.text[done : done + 1].strip():
                shown += " "
            if places is not None:
                places[id(kid)] = begins, _length(before + shown)
        return shown + self.text[done:end]

    def _closes(self, place: int) -> bool:
        """Return whether a closing mark is at ``place``, at the end of a word."""
        first, second = self.text[place : place + 1], self.text[place + 1 : place + 2]
        marks = tuple(CLOSING)
        return first in marks and (not second.strip() or second in marks)

    def _tree(self, kids: Sequence[Element | Leaf], start: int, end: int) -> Element:
        """Return the tree of a sentence, in character positions of the text that the model sees."""
        root, places = Element(start, end, kids=list(kids)), dict[int, Span]()
        places[id(root)] = 0, _length(self._shown(kids, start, end, places=places))
        ended = -1  # where the previous leaf ends

        def moved(kid: Element | Leaf) -> Element | Leaf:
            begin, stop = places[id(kid)]
            if isinstance(kid, Element):
                return Element(begin, stop, kid.open, kid.close, list(map(moved, kid.kids)))
            nonlocal ended
            before = self.text[max(0, kid.start - 1) : kid.start].strip()
            before, ended = before or (TOUCHING if kid.start == ended else ""), kid.end
            after = self.text[kid.end : kid.end + 1].strip()
            return replace(kid, start=begin, end=stop, before=before, after=after)

        return Element(*places[id(root)], kids=list(map(moved, kids)))


def _outside_of(cut: Span, elements: Sequence[Element]) -> Span | None:
    """Return the part of a cut outside elements, possibly at their ends; None if there is none."""
    start, end = cut
    for element in elements:
        if element.start < end and start < element.end:
            if element.end < end:
                start = element.end
            elif start < element.start:
                end = element.start
            else:
                return None
    return (start, end)


def _has_words(kids: Sequence[Element | Leaf], text: str) -> bool:
    """Return whether there are words beside the spans that the model would copy."""
    for kid in kids:
        if isinstance(kid, Leaf) and kid.shown and kid.span is not None:
            text = text.replace(kid.span, "", 1)
    return any(character.isalpha() for character in text)


def _length(text: str) -> int:
    """Return the length of a text with normalised white space."""
    return len(" ".join(text.split()))


Pair = tuple[str, str]  # a sentence and its translation
Aligner = Callable[[Sequence[Pair]], list[list[tuple[int, int]]]]  # the word links of each pair
Pieces = list[Piece]


@dataclass(frozen=True)
class Passage:
    """A text or HTML fragment in parts; ``written`` formats a piece, ``ending`` the whole."""

    parts: tuple[Part, ...]
    rules: Rules
    written: Callable[[Piece], str] = lambda piece: piece.text
    ending: Callable[[str], str] = str
    stayed: list[int] = field(default_factory=list, compare=False)  # numbers of untranslated ones
    shown: list[tuple[str, str]] = field(default_factory=list, compare=False)  # without markup

    @cached_property
    def to_translate(self) -> list[Sentence]:
        """The parts for the model."""
        return [part for part in self.parts if isinstance(part, Sentence)]

    @property
    def sentences(self) -> list[str]:
        """The texts for the model, one line each."""
        return [sentence.text for sentence in self.to_translate]

    @property
    def plain(self) -> bool:
        """True if no sentence has elements or protected pieces."""
        return not any(sentence.holds for sentence in self.to_translate)

    def pairs(self, answers: Sequence[str]) -> list[Pair]:
        """Return the sentences and answers whose words need links: few, or none."""
        pairs = (self._pair(*both) for both in zip(self.to_translate, answers, strict=True))
        return [pair for pair in pairs if pair is not None]

    def _pair(self, sentence: Sentence, answer: str) -> Pair | None:
        """Return a sentence and its answer if their links determine a placement."""
        if not sentence.holds:
            return None
        cleaned = sentence.cleaned(answer, self.rules)
        return (sentence.text, cleaned) if sentence.places(cleaned, self.rules) else None

    def placed(self, answers: Sequence[str], links: Iterator[Links]) -> str:
        """Return the joined text, given the word links of its `pairs`, in order."""
        chosen: list[Pieces] = []
        for sentence, answer in zip(self.to_translate, answers, strict=True):
            linked = next(links) if self._pair(sentence, answer) else []
            chosen.append(self._safe(sentence, answer, linked))
        if not self._keeps(chosen):
            chosen = self._most_that_keep(chosen)
        self.stayed.clear()
        self.shown.clear()
        for n, sentence in enumerate(self.to_translate):
            if chosen[n] == list(sentence.source) and answers[n] != sentence.text:
                self.stayed.append(n)
            source, text = ("".join(texts_of(pieces)) for pieces in (sentence.source, chosen[n]))
            self.shown.append((source, text))
        return self.ending("".join(map(self.written, self._whole(chosen))))

    @cached_property
    def _protected(self) -> list[str]:
        """The protected spans of the input, sorted."""
        return self.rules.count(texts_of(self._whole([list(s.source) for s in self.to_translate])))

    def _safe(self, sentence: Sentence, answer: str, links: Links) -> Pieces:
        """Return the first candidate with the protected spans of the sentence, else its source.

        An answer without words is not a candidate: its sentence would be lost.
        """
        right, cleaned = self._counted(sentence.source), sentence.cleaned(answer, self.rules)
        for pieces in self._candidates(sentence, cleaned, links) if self._says(cleaned) else ():
            if self._counted(pieces) == right:
                return pieces
        return list(sentence.source)

    def _counted(self, pieces: Sequence[Piece]) -> list[str]:
        """Return the protected spans between markup, and those of the text without markup."""
        texts = texts_of(pieces)
        return self.rules.count([*texts, "".join(texts)] if len(texts) > 1 else texts)

    def _says(self, cleaned: str) -> bool:
        """Return whether an answer has words beside the protected spans."""
        words, done = "", 0
        for (start, end), _ in self.rules.spans(cleaned):
            words, done = words + cleaned[done:start], end
        return any(map(str.isalpha, words + cleaned[done:]))

    def _candidates(self, sentence: Sentence, cleaned: str, links: Links) -> Iterator[Pieces]:
        for linked, loose in ((links, False), ([], False), (links, True), ([], True)):
            yield sentence.render(cleaned, linked, self.rules, loose)
        words = "".join(c if c.isalpha() or c == " " else " " for c in cleaned)
        yield sentence.render(sentence.cleaned(words, self.rules), [], self.rules, loose=True)

    def _keeps(self, chosen: Sequence[Pieces]) -> bool:
        """Return whether the protected spans of the whole passage are those of the input."""
        return self.rules.count(texts_of(self._whole(chosen))) == self._protected

    def _most_that_keep(self, chosen: Sequence[Pieces]) -> list[Pieces]:
        """Return the answers without those that form a protected span across sentences (rare).

        A stretch of answers replaces its sources, or else its halves are tried.
        """
        taken = [list(sentence.source) for sentence in self.to_translate]
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
        """Return all pieces of the passage, with those chosen for its sentences."""
        of_sentence = iter(chosen)
        return [
            piece
            for part in self.parts
            for piece in (next(of_sentence) if isinstance(part, Sentence) else [part])
        ]


def text_passage(
    text: str, rules: Rules | None = None, ending: Callable[[str], str] = str
) -> Passage:
    """Return a plain text as a passage: line breaks, tabs, and two or more spaces stay."""
    rules = rules or Rules()
    run = TextBuilder(rules, layout=True)
    run.add_text(text)
    return Passage(tuple(run.parts()), rules, ending=ending)


def joined_all(
    passages: Sequence[Passage], answers: Sequence[Sequence[str]], align: Aligner
) -> list[str]:
    """Return the texts of passages with answers for their sentences, linking all pairs at once.

    Raises ``ValueError`` if the numbers of answers and sentences differ.
    """
    pairs = [pair for p, a in zip(passages, answers, strict=True) for pair in p.pairs(a)]
    links = iter(align(pairs) if pairs else [])
    return [p.placed(a, links) for p, a in zip(passages, answers, strict=True)]
