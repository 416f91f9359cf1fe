"""A run of text with elements in it, cut into sentences: what both plain text and HTML become.

Lives here: the tree of a run, by characters of its text, and its sentences. Does not live here:
how HTML becomes a run (`html`), and how an answer is put together (`sentence`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from foveate.data.vocabulary import Span
from foveate.passages.cut import blanks
from foveate.passages.pieces import Piece, Writer
from foveate.passages.rules import Rules
from foveate.passages.sentence import Held, Mark, Sentence

Part = Piece | Sentence
BRACKETS = ("()", "[]", "{}", "<>", "«»", "“”", '""', "''")


@dataclass(frozen=True)
class Leaf:
    """What is kept as it is: a protected span, or an object, whose text may be empty.

    The model sees it only if ``shown``.
    """

    start: int
    end: int
    pieces: tuple[Piece, ...]
    span: str | None = None
    shown: bool = False


@dataclass
class Node:
    """An element around the characters from ``start`` to ``end`` of the run."""

    start: int
    end: int = -1
    open: str = ""
    close: str = ""
    kids: list[Node | Leaf] = field(default_factory=list)


class Run:
    """Text being read with its elements; `parts` cuts it once it is whole."""

    def __init__(self, rules: Rules, layout: bool) -> None:
        self.rules, self.layout = rules, layout
        self.text = ""
        self.open = [Node(0)]

    # ---- reading

    def add_text(self, text: str) -> None:
        """Text; its protected spans are found here, so none reaches over an element's edge."""
        start = len(self.text)
        self.text += text
        for (a, b), hidden in self.rules.spans(text):
            span, shown = text[a:b], not hidden
            if hidden and text[:a][-1:] + text[b : b + 1] in BRACKETS:
                a, b = a - 1, b + 1  # empty brackets would only confuse the model
            leaf = Leaf(start + a, start + b, (Piece(text[a:b]),), span, shown)
            self.open[-1].kids.append(leaf)

    def add_object(self, markup: str) -> None:
        """Markup that stands in the text like a word."""
        here = len(self.text)
        self.open[-1].kids.append(Leaf(here, here, (Piece(markup, markup=True),)))

    def add_open(self, opening: str, closing: str) -> None:
        """An element begins."""
        self.open.append(Node(len(self.text), open=opening, close=closing))

    def add_close(self) -> None:
        """The element that was opened last ends; without words of its own it is an object."""
        node = self.open.pop()
        node.end = len(self.text)
        kid: Node | Leaf = node
        if not self._shown(node.kids, node.start, node.end).strip():
            kid = Leaf(node.start, node.end, tuple(self._original([node], node.start, node.end)))
        self.open[-1].kids.append(kid)

    # ---- cutting

    def parts(self) -> list[Part]:
        """Sentences, and what stands between them."""
        root = self.open[0]
        root.end = len(self.text)
        kept = [(leaf.start, leaf.end) for leaf in _leaves(root)]
        return list(self._cut(root, blanks(self.text, kept, self.layout)))

    def _cut(self, node: Node, cuts: Sequence[Span]) -> Iterator[Part]:
        """The parts of an element: elements of whole sentences are cut in their turn."""
        cuts, whole = self._settled(node, cuts)
        edges: list[tuple[int, int, Node | None]] = [(k.start, k.end, k) for k in whole]
        edges += [(a, b, None) for a, b in cuts if not any(_overlap(a, b, k) for k in whole)]
        kids, done = list(node.kids), node.start
        for start, end, kid in [*sorted(edges, key=lambda e: e[:2]), (node.end, node.end, None)]:
            mine = []
            while kids and kids[0] is not kid and kids[0].end <= start:
                mine.append(kids.pop(0))
            yield from self._segment(mine, done, start)
            done = start if kid is None else end
            if kid is not None:
                kids.pop(0)
                yield Piece(kid.open, markup=True)
                yield from self._cut(kid, [c for c in cuts if _overlap(*c, kid)])
                yield Piece(kid.close, markup=True)

    def _settled(self, node: Node, cuts: Sequence[Span]) -> tuple[list[Span], list[Node]]:
        """The cuts that do not go through an element, and the elements of whole sentences."""
        inside = [c for c in cuts if node.start <= c[0] and c[1] <= node.end]
        while True:
            first, last = self._trimmed(node.start, node.end)
            starts = {first, *(end for _, end in inside)}
            ends = {last, *(start for start, _ in inside)}
            whole, split = list[Node](), list[Node]()
            for kid in node.kids:
                if isinstance(kid, Node):
                    a, b = self._trimmed(kid.start, kid.end)
                    (whole if a in starts and b in ends else split).append(kid)
            wrong = {c for c in inside for k in split if c[0] < k.end and k.start < c[1]}
            if not wrong:
                return inside, whole
            inside = [c for c in inside if c not in wrong]

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

    def _shown(self, kids: Sequence[Node | Leaf], start: int, end: int) -> str:
        """A stretch as the model sees it, but for its white space.

        Where a hidden span stood before a closing mark, the blank before the span goes with it.
        """
        found, done = "", start
        for kid in (k for k in kids if k.start <= end):
            found += self.text[done : kid.start]
            done = min(kid.end, end)
            span = self.text[kid.start : done]
            if isinstance(kid, Node):
                found += self._shown(kid.kids, kid.start, done)
            elif kid.shown:
                found += span
            elif span.strip() != span:
                found += " "
            elif span and self._closes(done):
                found = found.rstrip()
            elif span and found[-1:].strip(Writer.OPENING) and self.text[done : done + 1].strip():
                found += " "
        return found + self.text[done:end]

    def _closes(self, place: int) -> bool:
        """Whether a closing mark stands there, at the end of a word."""
        first, second = self.text[place : place + 1], self.text[place + 1 : place + 2]
        marks = tuple(Writer.CLOSING)
        return first in marks and (not second.strip() or second in marks)

    def _mark(self, kids: Sequence[Node | Leaf], start: int, end: int) -> Mark:
        """The tree of a sentence, by characters of what the model sees."""

        def at(place: int) -> int:
            before = self._shown([k for k in kids if k.start < place], start, place)
            return len(" ".join(before.split()))

        def mark(node: Node) -> Mark:
            helds = [self._held(kid, at(kid.start)) for kid in node.kids if isinstance(kid, Leaf)]
            marks = [mark(kid) for kid in node.kids if isinstance(kid, Node)]
            sides = at(node.start), at(node.end)
            return Mark(*sides, node.open, node.close, tuple(marks), tuple(helds))

        return mark(Node(start, end, kids=list(kids)))

    def _held(self, leaf: Leaf, at: int) -> Held:
        before, after = self.text[: leaf.start][-1:], self.text[leaf.end :][:1]
        return Held(at, leaf.pieces, leaf.span, before.strip(), after.strip())


def _asks(kids: Sequence[Node | Leaf], text: str) -> bool:
    """Whether there is more to translate than spans that the model would copy."""
    for kid in kids:
        if isinstance(kid, Leaf) and kid.shown and kid.span is not None:
            text = text.replace(kid.span, "", 1)
    return any(character.isalpha() for character in text)


def _overlap(start: int, end: int, kid: Node) -> bool:
    return start <= kid.end and kid.start <= end and (start < kid.end or end > kid.start)


def _leaves(node: Node) -> Iterator[Leaf]:
    for kid in node.kids:
        if isinstance(kid, Leaf):
            yield kid
        else:
            yield from _leaves(kid)
