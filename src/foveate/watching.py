"""The search of a run that generates text, step by step: each partial hypothesis as text.

What a search reports of its steps is `foveate.decode.search.Watch`; how tokens become text is up to
the task (`foveate.tasks.base.Generates`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from foveate.data.tokenizer import EOS
from foveate.decode.search import Alternatives, Beginning, Search, Watch
from foveate.look.drawings import LanesDrawing, Node
from foveate.look.drawings import lanes as draw_lanes
from foveate.run import Run
from foveate.tasks.base import NEAR, Generates

Heard = Callable[[list[Beginning]], None]


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

    def __init__(self, run: Run, top_k: int = 8, told: Heard | None = None) -> None:
        """Raises ``ConfigError`` where the task of the run generates no text."""
        self.run, self.task = run, run.need(Generates, "write text")
        self.watch = Watch(top_k, told)

    def search(self, kind: str | None = None, **fields: object) -> Search.Config:
        """The run's own search with other fields, or of another kind."""
        return self.task.search_config(self.run.config.decode, kind, **fields)

    def write(self, source: Any, search: Search, prefix: Sequence[int] = ()) -> list[Output]:
        """What the search finds, best first; each begins with the ids of the ``prefix``."""
        begun = search.after([list(prefix)]) if prefix else search
        found = self.task.write(self.run.model, source, begun.watched(self.watch))
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
        ended = ids[-1] == EOS and EOS in self.task.silent
        ids = ids[:-1] if ended else ids
        last = path[-1]
        said = last.score if score is None else score
        return Output(ids, self.task.text_of(ids), last.log_p, said, ended, path)

    def before(self, one: Beginning) -> list[int]:
        """The ids before the last token of a beginning."""
        return [step.token for step in self.watch.path(one)[:-1]]

    def name(self, one: Beginning) -> str:
        """What the last token of a beginning adds to those before it."""
        return self.task.token_text(self.before(one)[-NEAR:], one.token)

    def instead(self, one: Beginning) -> tuple[Alternatives, list[str]]:
        """What might have stood in the place of a beginning's last token, and how it is written."""
        before, found = self.before(one)[-NEAR:], self.watch.instead(one)
        return found, [self.task.token_text(before, token) for token in found.tokens]

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

    def lanes(self, best: Output | None = None, title: str = "") -> LanesDrawing:
        """The beam as it went, with the path of an output."""
        steps = [[self.node(one) for one in step] for step in self.watch.steps]
        return draw_lanes(steps, [one.id for one in best.path] if best else [], title)
