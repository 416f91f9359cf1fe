"""The search of a text-generating run, position by position: each partial hypothesis as text.

Each `foveate.decode.search.SearchPosition` is recorded by a `foveate.decode.watch.Watch`; how
tokens become text is up to the task (`foveate.tasks.abilities.Generates`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from foveate.data.tokenizer import EOS
from foveate.decode.engine import SearchRequest
from foveate.decode.search import Followed, Search
from foveate.decode.watch import Alternatives, PartialHypothesis, Watch
from foveate.engine.answers import Picture
from foveate.look.draw.lanes import LanesDrawing, Node
from foveate.look.draw.lanes import lanes as draw_lanes
from foveate.run import Run
from foveate.tasks.abilities import NEAR, Generates


@dataclass(frozen=True)
class Output:
    """An output with its tokens, including its end."""

    ids: list[int]
    text: str
    log_p: float
    score: float
    ended: bool
    path: list[PartialHypothesis]


class Watched:
    """A search of one source, position by position, as text; it can be read while it runs.

    For each token the ``top_k`` most probable ones are stored.
    """

    def __init__(self, run: Run, top_k: int = 8) -> None:
        """Raise ``ConfigError`` if the task of the run does not generate text."""
        self.run, self.task = run, run.need(Generates, "write text")
        self.watch, self.outputs = Watch(top_k), list[Output]()

    def positions(
        self, source: Picture | None, search: Search, prefix: Sequence[int] = ()
    ) -> Iterator[list[PartialHypothesis]]:
        """Yield the partial hypotheses at each position, best first.

        Afterwards ``outputs`` are those of the search, best first without duplicates; they begin
        with the ids of the ``prefix``, after the opening of the source (`Tokenizer.begun`).
        """
        begins = self.task.output_tokenizer.begun([source], [list(prefix)] if prefix else ())
        request = SearchRequest(search, begins)
        followed = Followed(self.run.engine.positions(self.task.encode([source])[0], request))
        for position in followed:
            yield self.watch.read(position)
        (hypotheses,) = followed.outputs
        paths = {tuple(h.ids): (self.watch.find(h.ids, EOS), h.score) for h in reversed(hypotheses)}
        ordered = [paths.pop(tuple(h.ids), ([], 0.0)) for h in hypotheses]
        self.outputs = [self.output(path, score) for path, score in ordered if path]

    def write(
        self, source: Picture | None, search: Search, prefix: Sequence[int] = ()
    ) -> list[Output]:
        """Run the search and return its outputs."""
        for _ in self.positions(source, search, prefix):
            pass
        return self.outputs

    def output(self, path: list[PartialHypothesis], score: float | None = None) -> Output:
        """Return the output of a path."""
        ids = [partial.token for partial in path]
        last, ended = path[-1], ids[-1] == EOS and EOS in self.task.silent
        ids = ids[:-1] if ended else ids
        value = last.score if score is None else score
        return Output(ids, self.task.text_of(ids), last.log_p, value, ended, path)

    def before(self, partial: PartialHypothesis) -> list[int]:
        """Return the ids before the last token of a partial hypothesis."""
        return [step.token for step in self.watch.path(partial)[:-1]]

    def name(self, partial: PartialHypothesis) -> str:
        """Return what the last token of a partial hypothesis adds to those before it."""
        return self.task.token_text(self.before(partial)[-NEAR:], partial.token)

    def instead(self, partial: PartialHypothesis) -> tuple[Alternatives, list[str]]:
        """Return the alternatives to the last token of a partial hypothesis, and their texts."""
        before, alternatives = self.before(partial)[-NEAR:], self.watch.instead(partial)
        return alternatives, [self.task.token_text(before, token) for token in alternatives.tokens]

    def node(self, partial: PartialHypothesis) -> Node:
        """Return a partial hypothesis in the form in which it is drawn."""
        shared = Node.model_fields.keys() - {"text"}
        return Node(text=self.name(partial), **{each: getattr(partial, each) for each in shared})

    def lanes(
        self, best: Output | None = None, title: str = "", greedy: Sequence[Node] = ()
    ) -> LanesDrawing:
        """Draw the beam at each position, with the paths of an output and of greedy search."""
        columns = [[self.node(partial) for partial in column] for column in self.watch.positions]
        path = [partial.id for partial in best.path] if best else []
        return draw_lanes(columns, path, title, greedy)
