"""What can be asked of a run in a batch: translations, scores, alignments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from foveate.answers import PairScore, Translation
from foveate.run import Run
from foveate.serve.helping import Helped

Pair = tuple[str, str]
Links = list[tuple[int, int]]


@dataclass(frozen=True)
class Translate:
    """A line in, its best hypotheses out; ``to`` names the language where a run knows several.

    ``helped`` are the aids of the direction, if it has any.
    """

    to: str | None = None
    num_hypotheses: int = 1
    helped: Helped | None = None

    @property
    def alone(self) -> bool:
        """Unknown words are copied by looking into the model."""
        return self.helped is not None and self.helped.aids.copies_unknown

    def lengths(self, run: Run, items: Sequence[str]) -> list[int]:
        return [1 + len(ids) for ids in run.task.source_tokenizer.encode_ids(list(items))]

    def budget(self, run: Run, tokens: int) -> int:
        return max(1, tokens // run.search(None, None, self.num_hypotheses).width)

    def answers(self, run: Run, items: Sequence[str], tokens: int) -> list[Translation]:
        translate = run.translate if self.helped is None else partial(self.helped.translate, run)
        return translate(items, num_hypotheses=self.num_hypotheses, batch_tokens=tokens, to=self.to)


class _OfPairs:
    """What is asked of pairs (source, target)."""

    alone: ClassVar[bool] = False

    def lengths(self, run: Run, items: Sequence[Pair]) -> list[int]:
        sources = run.task.source_tokenizer.encode_ids([source for source, _ in items])
        targets = run.task.target_tokenizer.encode_ids([target for _, target in items])
        return [1 + max(len(s), len(t)) for s, t in zip(sources, targets, strict=True)]

    def budget(self, run: Run, tokens: int) -> int:
        return tokens


@dataclass(frozen=True)
class Score(_OfPairs):
    """log p(target | source) of pairs."""

    to: str | None = None

    def answers(self, run: Run, items: Sequence[Pair], tokens: int) -> list[PairScore]:
        sources = run.can("addressed", "score")([s for s, _ in items], self.to)
        return run.score(list(zip(sources, [t for _, t in items], strict=True)))


@dataclass(frozen=True)
class Align(_OfPairs):
    """Links between the words of pairs, by the head that the run has saved.

    Words are counted from 0; the tag of a language is none of them.
    """

    to: str | None = None
    alone: ClassVar[bool] = True  # looks into the model, which shows whatever runs through it

    def answers(self, run: Run, items: Sequence[Pair], tokens: int) -> list[Links]:
        sources = run.can("addressed", "align")([s for s, _ in items], self.to)
        tags = 0 if self.to is None else 1
        found = run.links(list(zip(sources, [t for _, t in items], strict=True)))
        return [sorted((i - tags, j) for i, j in links if i >= tags) for links in found]
