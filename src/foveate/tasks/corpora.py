"""Several corpora for one model: where each lies, how much it counts, what marks its sources.

Lives here: their description and their joining. Does not live here: reading a corpus
(`foveate.data.text`) and the shares in an epoch (`foveate.data.mixture`).
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import chain

from pydantic import Field

from foveate.config import Config
from foveate.data.text import Corpus, Pair, Reading, TextData


class Part(Config):
    """One of several corpora; ``source`` and ``target`` as in a task with one.

    ``weight`` is its share relative to the others, its number of pairs if absent. ``tag`` is put
    before its sources, a piece of its own: ``<2fr>`` asks for French (Johnson et al., 2017).
    """

    source: str
    target: str | None = None
    weight: float | None = Field(default=None, gt=0)
    tag: str | None = Field(default=None, pattern=r"^<2[^<>\s]+>$")


class Tagged(Reading):
    """The pairs of a split of one corpus, the sources behind its tag."""

    def __init__(self, part: Part, split: str, config: TextData) -> None:
        super().__init__(part.source, part.target, split, config)
        self.tag = part.tag

    def changed(self, pair: Pair) -> Pair:
        line, source, target = pair
        return line, tagged(source, self.tag), target

    def key(self) -> dict[str, object]:
        return {"tag": self.tag, **super().key()}


def join(corpora: Sequence[Corpus]) -> Corpus:
    """One corpus of all, in their order."""
    if len(corpora) == 1:
        return corpora[0]
    dropped = Counter[str]()
    for corpus in corpora:
        dropped.update(corpus.dropped)
    several = any(corpus.alternatives is not None for corpus in corpora)
    alternatives = [
        (one,) if isinstance(one, str) else one for corpus in corpora for one in corpus.references
    ]
    return Corpus(
        list(chain.from_iterable(corpus.sources for corpus in corpora)),
        list(chain.from_iterable(corpus.targets for corpus in corpora)),
        array("q", chain.from_iterable(corpus.lines for corpus in corpora)),
        list(chain.from_iterable(corpus.skipped for corpus in corpora)),
        dict(dropped),
        alternatives if several else None,
    )


def tagged(text: str, tag: str | None) -> str:
    """A text behind its tag; without one, or where there is no text, as it is."""
    return text if tag is None or not text.strip() else f"{tag} {text}"


def bare(text: str, tags: Sequence[str]) -> str:
    """A text without the tag that it begins with."""
    tag = next((tag for tag in tags if text.startswith(tag)), "")
    return text.removeprefix(tag).removeprefix(" ") if tag else text
