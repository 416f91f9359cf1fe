"""A run of text with elements in it, cut into sentences: what both plain text and HTML become.

Lives here: reading a run, and its sentences. Does not live here: its elements (`stretch`), how HTML
becomes a run (`html`), and how an answer is put together (`sentence`).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence

from foveate.data.vocabulary import Span
from foveate.passages.cut import blanks
from foveate.passages.pieces import Piece, Writer
from foveate.passages.rules import Rules
from foveate.passages.sentence import Held, Mark, Sentence
from foveate.passages.stretch import LONGEST, Leaf, Node, leaves, overlapped

Part = Piece | Sentence
BRACKETS = ("()", "[]", "{}", "<>", "«»", "“”", '""', "''")
ROUNDS = 50  # in which cuts and elements settle; then elements are not cut any more
_WORD = re.compile(rf"\S{{1,{LONGEST}}}\s*|\s+")


class Run:
    """Text being read with its elements; `parts` cuts it once it is whole."""

    def __init__(self, rules: Rules, layout: bool) -> None:
        self.rules, self.layout = rules, layout
        self.text, self._texts, self._size = "", list[str](), 0  # the text is whole in the end
        self.open = [Node(0)]

    # ---- reading

    def add_text(self, text: str) -> None:
        """Text; its protected spans are found here, so none reaches over an element's edge."""
        start = self._size
        self._texts.append(text)
        self._size += len(text)
        for (a, b), hidden in self.rules.spans(text):
            span, shown = text[a:b], not hidden
            if hidden and text[max(0, a - 1) : a] + text[b : b + 1] in BRACKETS:
                a, b = a - 1, b + 1  # empty brackets would only confuse the model
            self._add(Leaf(start + a, start + b, (Piece(text[a:b]),), span, shown))

    def add_object(self, markup: str) -> None:
        """Markup that stands in the text like a word."""
        self._add(Leaf(self._size, self._size, (Piece(markup, markup=True),)))

    def add_open(self, opening: str, closing: str) -> None:
        """An element begins."""
        self.open.append(Node(self._size, open=opening, close=closing))

    def add_close(self) -> None:
        """The element that was opened last ends."""
        node = self.open.pop()
        node.end = self._size
        self._add(node)

    def _add(self, kid: Node | Leaf) -> None:
        self.open[-1].kids.append(kid)
        self.open[-1].count += kid.count

    # ---- cutting

    def parts(self) -> list[Part]:
        """Sentences, and what stands between them."""
        self.text = "".join(self._texts)
        root = self.open[0]
        root.end = len(self.text)
        self._level(root)
        kept = [(leaf.start, leaf.end) for leaf in leaves(root)]
        return list(self._cut(root, blanks(self.text, kept, self.layout)))

    def _level(self, node: Node) -> None:
        """Make objects of the elements without words of their own."""
        for n, kid in enumerate(node.kids):
            if isinstance(kid, Node) and self._shown(kid.kids, kid.start, kid.end).strip():
                self._level(kid)
            elif isinstance(kid, Node):
                pieces = tuple(self._original([kid], kid.start, kid.end))
                node.kids[n] = Leaf(kid.start, kid.end, pieces)

    def _cut(self, node: Node, cuts: Sequence[Span]) -> Iterator[Part]:
        """The parts of an element: elements of whole sentences are cut in their turn."""
        cuts, whole = self._settled(node, cuts)
        edges: list[tuple[int, int, Node | None]] = [(k.start, k.end, k) for k in whole]
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

    def _settled(self, node: Node, cuts: Sequence[Span]) -> tuple[list[Span], list[Node]]:
        """The cuts that do not go through an element, and the elements of whole sentences.

        An element that is longer than a sentence may be is one of these.
        """
        inside = [c for c in cuts if node.start <= c[0] and c[1] <= node.end]
        nodes = [kid for kid in node.kids if isinstance(kid, Node)]
        first, last = self._trimmed(node.start, node.end)
        for round in range(ROUNDS + 1):
            starts = {first, *(end for _, end in inside)}
            ends = {last, *(start for start, _ in inside)}
            whole, split = list[Node](), list[Node]()
            for kid in nodes:
                a, b = self._trimmed(kid.start, kid.end)
                fits = round < ROUNDS and a in starts and b in ends
                (whole if fits or kid.long else split).append(kid)
            wrong = {
                c for k in split for c in overlapped(inside, k) if c[0] < k.end and k.start < c[1]
            }
            if not wrong:
                break
            inside = [c for c in inside if c not in wrong]
        return inside, whole

    def _stretches(
        self, kids: Sequence[Node | Leaf], start: int, end: int
    ) -> Iterator[tuple[list[Node | Leaf], int, int]]:
        """What may be a sentence, or several where it is too long for one.

        They are cut at white space, or else between words and elements.
        """
        mine, size = list[Node | Leaf](), 0
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
        self, kids: Sequence[Node | Leaf], start: int, end: int
    ) -> Iterator[tuple[Node | Leaf | None, int, int]]:
        """Elements, leaves, and between them words with the white space behind them."""
        for kid in [*kids, None]:
            to = end if kid is None else kid.start
            for word in _WORD.finditer(self.text, start, to):
                yield None, *word.span()
            if kid is not None:
                yield kid, kid.start, kid.end
                start = kid.end

    def _segment(self, kids: Sequence[Node | Leaf], start: int, end: int) -> Iterator[Part]:
        """A sentence with the white space and the objects at its ends."""
        a, b = self._trimmed(start, end)
        for kid in kids:  # one that ends in white space keeps it
            a = kid.start if kid.start < a < kid.end else a
            b = kid.end if kid.start < b < kid.end else b
        before = [k for k in kids if k.end <= a]
        after = [k for k in kids[len(before) :] if k.start >= b]
        inner = kids[len(before) : len(kids) - len(after)]
        text = " ".join(self._shown(inner, a, b).split())
        yield from self._original(before, start, a)
        source = tuple(self._original(inner, a, b))
        if any(character.isalnum() for character in text) and _asks(inner, text):
            yield Sentence(text, self._mark(inner, a, b), source)
        else:
            yield from source
        yield from self._original(after, b, end)

    def _trimmed(self, start: int, end: int) -> Span:
        """The same stretch without white space at its ends."""
        text = self.text[start:end]
        a = start + len(text) - len(text.lstrip())
        return a, max(a, start + len(text.rstrip()))

    # ---- two ways of reading a stretch

    def _original(self, kids: Sequence[Node | Leaf], start: int, end: int) -> Iterator[Piece]:
        """A stretch as it stood."""
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
        kids: Sequence[Node | Leaf],
        start: int,
        end: int,
        before: str = "",
        places: dict[int, Span] | None = None,
    ) -> str:
        """A stretch as the model sees it, but for its white space.

        Where a hidden span stood before a closing mark, the blank before the span goes with it.
        ``places`` gets, by id, where each element and leaf begins and ends in the sentence of which
        this stands behind ``before``.
        """
        found, done = "", start
        for kid in kids:
            found += self.text[done : kid.start]
            done, span = kid.end, self.text[kid.start : kid.end]
            begins = 0 if places is None else _length(before + found)
            if isinstance(kid, Node):
                found += self._shown(kid.kids, kid.start, done, before + found, places)
            elif kid.shown:
                found += span
            elif span.strip() != span:
                found += " "
            elif span and self._closes(done):
                found = found.rstrip()
            elif span and found[-1:].strip(Writer.OPENING) and self.text[done : done + 1].strip():
                found += " "
            if places is not None:
                places[id(kid)] = begins, _length(before + found)
        return found + self.text[done:end]

    def _closes(self, place: int) -> bool:
        """Whether a closing mark stands there, at the end of a word."""
        first, second = self.text[place : place + 1], self.text[place + 1 : place + 2]
        marks = tuple(Writer.CLOSING)
        return first in marks and (not second.strip() or second in marks)

    def _mark(self, kids: Sequence[Node | Leaf], start: int, end: int) -> Mark:
        """The tree of a sentence, by characters of what the model sees."""
        root, places = Node(start, end, kids=list(kids)), dict[int, Span]()
        places[id(root)] = 0, _length(self._shown(kids, start, end, places=places))

        def mark(node: Node) -> Mark:
            leaves = [kid for kid in node.kids if isinstance(kid, Leaf)]
            helds = [self._held(leaf, places[id(leaf)][0]) for leaf in leaves]
            marks = [mark(kid) for kid in node.kids if isinstance(kid, Node)]
            return Mark(*places[id(node)], node.open, node.close, tuple(marks), tuple(helds))

        return mark(root)

    def _held(self, leaf: Leaf, at: int) -> Held:
        before = self.text[max(0, leaf.start - 1) : leaf.start]
        after = self.text[leaf.end : leaf.end + 1]
        return Held(at, leaf.pieces, leaf.span, before.strip(), after.strip())


def _asks(kids: Sequence[Node | Leaf], text: str) -> bool:
    """Whether there is more to translate than spans that the model would copy."""
    for kid in kids:
        if isinstance(kid, Leaf) and kid.shown and kid.span is not None:
            text = text.replace(kid.span, "", 1)
    return any(character.isalpha() for character in text)


def _length(text: str) -> int:
    """Of a text whose white space is levelled."""
    return len(" ".join(text.split()))
