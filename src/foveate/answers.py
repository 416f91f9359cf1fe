"""What a run answers: translations and scores of pairs; they draw themselves in notebooks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from foveate.decode.search import Hypothesis
from foveate.look.capture import AttentionRecord
from foveate.look.maps import AttentionView, attention
from foveate.look.words import Units

if TYPE_CHECKING:
    from foveate.run import Run


@dataclass(frozen=True)
class Translation:
    """The answer to one line, best hypothesis first.

    ``scores`` are what the search compared (for a beam log p / lp); ``cut`` counts source tokens
    that were left out because the line was longer than the run allows.
    """

    source: str
    hypotheses: list[str]
    scores: list[float]
    cut: int = 0
    found: list[Hypothesis] = field(default_factory=list, repr=False)
    run: Run | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return self.hypotheses[0]

    def record(self, i: int = 0, units: Units = "auto") -> AttentionRecord:
        """What the model attended to as it produced hypothesis i, by layer and head.

        ``units`` are those of `Run.explain`. One forced pass over (source, hypothesis); raises
        ``IndexError`` where there is none.
        """
        if not self.found or self.run is None:
            raise IndexError("an empty line has no hypothesis to explain")
        return self.run.explain(self.source, self.found[i].ids, units)

    @property
    def attention(self) -> AttentionView:
        """The map of the best hypothesis: last layer, mean of the heads."""
        return attention(self.record())

    def alignment(self, i: int = 0) -> list[tuple[int, int]]:
        """Word links (source, target), counted from 0: each target word's most attended one.

        By the head that the run has saved (``foveate align RUN … --save``), else by the last
        layer, mean of the heads; none where the model has no attention to the source.
        """
        if not self.found or self.run is None:
            return []
        return sorted(self.run.links([(self.source, self.found[i].ids)])[0])

    def _repr_mimebundle_(self, **kwargs: object) -> object:
        return self.attention._repr_mimebundle_(**kwargs)


@dataclass(frozen=True)
class PairScore:
    """log p(target | source), and that of each token, the end included."""

    log_probability: float
    tokens: list[str]
    token_log_probabilities: list[float]
