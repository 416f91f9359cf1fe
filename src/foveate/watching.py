"""Watching a run write: its search step by step, as text. A translation, a caption, a text goes on.

Lives here: what differs between the tasks that write, and from ids to what people read. Does not
live here: the searches, and what they tell (`foveate.decode.search`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

from foveate.config import ConfigError
from foveate.data.tokenizer import BOS, EOS, PAD, SPECIALS, Tokenizer
from foveate.decode.choose import another
from foveate.decode.sample import Sample
from foveate.decode.search import Alternatives, Beginning, Hypothesis, Search, Watch
from foveate.look.charts import LanesView
from foveate.look.charts import lanes as draw_lanes
from foveate.look.drawing import Node

if TYPE_CHECKING:
    from foveate.run import Run

LENGTH = 100  # tokens that a language model adds at most, where nothing else is said
NEAR = 8  # tokens before one that decide how it is written
END_OF_LINE = "⏎"

Heard = Callable[[list[Beginning]], None]


class Writer(ABC):
    """A run that writes tokens, one after the other; ``silent`` ones leave no trace in its text."""

    silent: frozenset[int] = frozenset((PAD, BOS, EOS))

    def __init__(self, run: Run) -> None:
        self.run = run

    @property
    @abstractmethod
    def tokenizer(self) -> Tokenizer:
        """That of what is written."""

    @abstractmethod
    def write(self, source: Any, search: Search) -> list[Hypothesis]:
        """What the search finds for a source; empty where the task keeps only texts."""

    def search(self, kind: str | None = None, **fields: Any) -> Search.Config:
        """The run's own search with other fields, or of another kind.

        Raises ``ConfigError`` naming the nearest valid kind or key.
        """
        return another(self.run.config.decode, kind, fields)

    def begun(self, text: str) -> list[int]:
        """The ids with which an output of this beginning begins.

        Raises ``ValueError`` for what no output can hold.
        """
        return list(self.run.task.beginnings(text, 1)[0])

    def name(self, ids: Sequence[int], token: int) -> str:
        """What a token adds to the ids before it, the space before it included."""
        if token < len(SPECIALS):
            return SPECIALS[token]
        near = [*ids[-NEAR:], token]
        start, end = self.tokenizer.spans(near)[-1]
        return self.tokenizer.decode(near)[start:end]

    def text(self, ids: Sequence[int]) -> str:
        """The text of an output."""
        return self.tokenizer.decode(list(ids))

    def parts(self, ids: Sequence[int]) -> list[str]:
        """What each token adds to the text of all, which they give in a row.

        A character that several tokens make stands with the first of them.
        """
        text, spans = self.tokenizer.decode(list(ids)), self.tokenizer.spans(list(ids))
        starts = [start for start, _ in spans] + [len(text)]
        return [text[a:b] for a, b in pairwise(starts)]


class Translator(Writer):
    """Writes a line for a line."""

    @property
    def tokenizer(self) -> Tokenizer:
        found: Tokenizer = self.run.task.target_tokenizer
        return found

    def write(self, source: str, search: Search) -> list[Hypothesis]:
        found: list[Hypothesis] = self.run.task.answer(self.run.model, [source], search)[0].found
        return found


class Captioner(Writer):
    """Writes a sentence for a picture."""

    @property
    def tokenizer(self) -> Tokenizer:
        found: Tokenizer = self.run.task.tokenizer
        return found

    def begun(self, text: str) -> list[int]:
        return self.tokenizer.encode_ids([text.rstrip()])[0]

    def write(self, source: Any, search: Search) -> list[Hypothesis]:
        self.run.task.caption(self.run.model, [source], search)
        return []


class Continuer(Writer):
    """Goes on with a text, in which an end stands for the end of a line."""

    silent = frozenset((PAD, BOS))

    @property
    def tokenizer(self) -> Tokenizer:
        found: Tokenizer = self.run.task.tokenizer
        return found

    def search(self, kind: str | None = None, **fields: Any) -> Search.Config:
        """The search "sample" unless told; at most `LENGTH` tokens more."""
        own = self.run.config.decode
        own = own if isinstance(own, Sample.Config) else Sample.Config()
        return another(own, kind, {"max_ratio": 0.0, "max_extra": LENGTH} | fields)

    def begun(self, text: str) -> list[int]:
        ids: list[int] = self.run.task.ids_of(text)
        return ids

    def write(self, source: str, search: Search) -> list[Hypothesis]:
        self.run.task.generate(self.run.model, [source], search)
        return []

    def name(self, ids: Sequence[int], token: int) -> str:
        return END_OF_LINE if token == EOS else super().name(ids, token)

    def text(self, ids: Sequence[int]) -> str:
        found: str = self.run.task.text_of(ids)
        return found

    def parts(self, ids: Sequence[int]) -> list[str]:
        found: list[str] = []
        for line in _lines(ids):
            found += ["\n"] if line == [EOS] else super().parts(line)
        return found


WRITERS: dict[str, Callable[[Run], Writer]] = {
    "answer": Translator,
    "generate": Continuer,
    "caption": Captioner,
}


def writer(run: Run) -> Writer:
    """The run as one that writes. Raises ``ConfigError`` where its task writes nothing."""
    for method, kind in WRITERS.items():
        if hasattr(run.task, method):
            return kind(run)
    raise ConfigError(f"{run.path}: the task {run.config.task.kind} writes no text")


@dataclass(frozen=True)
class Output:
    """An output with its tokens, its end among them."""

    ids: list[int]
    text: str
    log_p: float
    score: float
    ended: bool
    path: list[Beginning]


class Watched:
    """A search of one source, step by step, in text; it can be read while it goes on.

    ``told`` is called after each step with its beginnings, best first; what raises in it stops the
    search. Of each token the ``top_k`` likeliest are kept.
    """

    def __init__(self, writer: Writer, top_k: int = 8, told: Heard | None = None) -> None:
        self.writer, self.watch = writer, Watch(top_k, told)

    def write(self, source: Any, search: Search, prefix: Sequence[int] = ()) -> list[Output]:
        """What the search finds, best first; each begins with the ids of the ``prefix``."""
        begun = search.after([list(prefix)]) if prefix else search
        found = self.writer.write(source, begun.watched(self.watch))
        paths = [(self.watch.find(one.ids, EOS), one.score) for one in found]
        return [self.output(path, score) for path, score in paths or self._ended() if path]

    def _ended(self) -> list[tuple[list[Beginning], float]]:
        """The paths of what has ended, the highest score first, each output once."""
        done = [one for step in self.watch.steps for one in step if one.state == "done"]
        found: dict[tuple[int, ...], list[Beginning]] = {}
        for one in sorted(done, key=lambda one: -one.score):
            path = self.watch.path(one)
            found.setdefault(tuple(step.token for step in path), path)
        return [(path, path[-1].score) for path in found.values()]

    def output(self, path: list[Beginning], score: float | None = None) -> Output:
        """The output of a path."""
        ids = [one.token for one in path]
        ended = ids[-1] == EOS and not isinstance(self.writer, Continuer)
        ids = ids[:-1] if ended else ids
        last = path[-1]
        said = last.score if score is None else score
        return Output(ids, self.writer.text(ids), last.log_p, said, ended, path)

    def before(self, one: Beginning) -> list[int]:
        """The ids before the last token of a beginning."""
        return [step.token for step in self.watch.path(one)[:-1]]

    def name(self, one: Beginning) -> str:
        """What the last token of a beginning adds to those before it."""
        return self.writer.name(self.before(one)[-NEAR:], one.token)

    def instead(self, one: Beginning) -> tuple[Alternatives, list[str]]:
        """What might have stood in the place of a beginning's last token, and how it is written."""
        before, found = self.before(one)[-NEAR:], self.watch.instead(one)
        return found, [self.writer.name(before, token) for token in found.tokens]

    def node(self, one: Beginning) -> Node:
        """A beginning as it is drawn."""
        return Node(
            id=one.id,
            parent=one.parent,
            text=self.name(one),
            log_p=one.log_p,
            score=one.score,
            state=one.state,
        )

    def lanes(self, best: Output | None = None, title: str = "") -> LanesView:
        """The beam as it went, with the path of an output."""
        steps = [[self.node(one) for one in step] for step in self.watch.steps]
        return draw_lanes(steps, [one.id for one in best.path] if best else [], title)


def _lines(ids: Sequence[int]) -> Iterator[list[int]]:
    """The runs of ids between ends of lines, and these ends."""
    for ends, group in groupby(ids, lambda i: i == EOS):
        line = list(group)
        yield from ([i] for i in line) if ends else [line]
