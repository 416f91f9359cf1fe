"""The search of a run that generates text, step by step: each partial hypothesis as text.

What a search reports of its steps is `foveate.decode.search.Watch`; how tokens become text is up to
the task (`foveate.tasks.base.Generates`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from foveate.answers import Picture
from foveate.data.tokenizer import EOS
from foveate.decode.search import Alternatives, PartialHypothesis, Search, Watch
from foveate.draw.drawings import LanesDrawing, Node
from foveate.draw.drawings import lanes as draw_lanes
from foveate.run import Run
from foveate.tasks.base import NEAR, Generates

Listener = Callable[[list[PartialHypothesis]], None]


@dataclass(frozen=True)
class Output:
    """An output with its tokens, its end among them."""

    ids: list[int]
    text: str
    log_p: float
    score: float
    ended: bool
    path: list[PartialHypothesis]


class Watched:
    """A search of one source, step by step, in text; it can be read while it goes on.

    ``listener`` is called after each step with its partial hypotheses, best first; an exception
    that it raises stops the search. Of each token the ``top_k`` most probable ones are stored.
    """

    def __init__(self, run: Run, top_k: int = 8, listener: Listener | None = None) -> None:
        """Raises ``ConfigError`` where the task of the run generates no text."""
        self.run, self.task = run, run.need(Generates, "write text")
        self.watch = Watch(top_k, listener)

    def search(self, kind: str | None = None, **fields: object) -> Search.Config:
        """The run's own search with other fields, or of another kind."""
        return self.task.search_config(self.run.config.decode, kind, **fields)

    def write(
        self, source: Picture | None, search: Search, prefix: Sequence[int] = ()
    ) -> list[Output]:
        """The outputs of the search, best first; each begins with the ids of the ``prefix``."""
        begun = search.after([list(prefix)]) if prefix else search
        hypotheses = self.task.write(self.run.model, source, begun.watched(self.watch))
        paths = [(self.watch.find(h.ids, EOS), h.score) for h in hypotheses]
        return [self.output(path, score) for path, score in paths or self._ended() if path]

    def _ended(self) -> list[tuple[list[PartialHypothesis], float]]:
        """The paths of what has ended, the highest score first, each output once."""
        done = [partial for step in self.watch.steps for partial in step if partial.state == "done"]
        paths: dict[tuple[int, ...], list[PartialHypothesis]] = {}
        for partial in sorted(done, key=lambda partial: -partial.score):
            path = self.watch.path(partial)
            paths.setdefault(tuple(step.token for step in path), path)
        return [(path, path[-1].score) for path in paths.values()]

    def output(self, path: list[PartialHypothesis], score: float | None = None) -> Output:
        """The output of a path."""
        ids = [partial.token for partial in path]
        ended = ids[-1] == EOS and EOS in self.task.silent
        ids = ids[:-1] if ended else ids
        last = path[-1]
        value = last.score if score is None else score
        return Output(ids, self.task.text_of(ids), last.log_p, value, ended, path)

    def before(self, partial: PartialHypothesis) -> list[int]:
        """The ids before the last token of a partial hypothesis."""
        return [step.token for step in self.watch.path(partial)[:-1]]

    def name(self, partial: PartialHypothesis) -> str:
        """What the last token of a partial hypothesis adds to those before it."""
        return self.task.token_text(self.before(partial)[-NEAR:], partial.token)

    def instead(self, partial: PartialHypothesis) -> tuple[Alternatives, list[str]]:
        """The alternatives to the last token of a partial hypothesis, and their texts."""
        before, alternatives = self.before(partial)[-NEAR:], self.watch.instead(partial)
        return alternatives, [self.task.token_text(before, token) for token in alternatives.tokens]

    def node(self, partial: PartialHypothesis) -> Node:
        """A partial hypothesis as it is drawn."""
        return Node(
            id=partial.id,
            parent=partial.parent,
            text=self.name(partial),
            log_p=partial.log_p,
            score=partial.score,
            state=partial.state,
        )

    def lanes(self, best: Output | None = None, title: str = "") -> LanesDrawing:
        """The beam at each step, with the path of an output."""
        steps = [[self.node(partial) for partial in step] for step in self.watch.steps]
        return draw_lanes(steps, [partial.id for partial in best.path] if best else [], title)
