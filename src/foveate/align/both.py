"""Aligners of both directions: trained apart and joined, or trained to agree.

Does not live here: how links are joined (`symmetrize`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from pydantic import Field

from foveate.align.aligner import Aligner, Expectation, Training, WordAligner
from foveate.align.bitext import Floats, Pair
from foveate.align.extract import Links
from foveate.align.hmm import HMM
from foveate.align.symmetrize import Method, symmetrize


class Both(Aligner):
    """Two aligners, from the source's words to the target's and back."""

    class Config(Aligner.Config):
        """``aligner`` is what is trained in each direction."""

        aligner: Aligner.Config = HMM.Config()

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.forward, self.backward = config.aligner.build(), config.aligner.build()


class Symmetrized(Both):
    """Both directions trained apart, their links joined (Och & Ney, 2003)."""

    class Config(Both.Config, kind="symmetrised"):
        """``method`` joins the links of the two directions."""

        method: Method = "grow-diag-final-and"

    config: Config

    def train(self, pairs: Sequence[Pair]) -> list[float]:
        forward, backward = self.forward.train(pairs), self.backward.train(reverse(pairs))
        return [f + b for f, b in zip(forward, backward, strict=True)]

    def align(self, pairs: Sequence[Pair]) -> list[Links]:
        back = self.backward.align(reverse(pairs))
        return [
            symmetrize(forward, {(s, t) for t, s in backward}, self.config.method)
            for forward, backward in zip(self.forward.align(pairs), back, strict=True)
        ]


class Agreement(Both):
    """Both directions trained to agree: q(i, j) = p(a_j = i | f, e) p(b_i = j | f, e) is what
    both count, and a link is where √q is above a threshold (Liang, Taskar & Klein, 2006).
    """

    class Config(Both.Config, kind="agreement"):
        """``threshold`` of √q: higher for precision, lower for recall."""

        aligner: WordAligner.Config = HMM.Config()
        threshold: float = Field(0.3, gt=0, lt=1)

    config: Config

    def train(self, pairs: Sequence[Pair]) -> list[float]:
        """The sum of both log-likelihoods, which agreement need not raise at every step."""
        ready = self.ready(pairs)
        models = self.forward, self.backward
        corpora = Training(ready), Training(reverse(ready))
        first = [m.first for m in models if m.first is not None]
        found: list[float] = []
        for stage in (first, models):
            for model, corpus in zip(stage, corpora, strict=False):
                model.numbers, model.lexicon = corpus.numbers, corpus.lexicon
            steps = stage[0].config.iterations if stage else 0
            found = [_step(stage, corpora) for _ in range(steps)]
        return found

    def align(self, pairs: Sequence[Pair]) -> list[Links]:
        ready = self.ready(pairs)
        links: list[Links] = [set() for _ in pairs]
        numbers = self.forward.numbers, self.backward.numbers
        backward = {g.shape: g for g in numbers[1].groups(reverse(ready))}
        for group in numbers[0].groups(ready):
            there = self.forward.posterior(group)
            back = self.backward.posterior(backward[group.shape[::-1]])
            sure = agreed(there, back)[:, :, 1:] > self.config.threshold**2
            for pair, target, source in np.argwhere(sure):
                links[group.pairs[pair]].add((int(source), int(target)))
        return links


def reverse(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs read the other way."""
    return [(target, source) for source, target in pairs]


def agreed(there: Floats, back: Floats) -> Floats:
    """The q (B, T, S + 1) from posteriors (B, T, S + 1) and (B, S, T + 1); NULL keeps its own."""
    both = there.copy()
    both[:, :, 1:] *= back[:, :, 1:].transpose(0, 2, 1)
    return both


def _step(models: Sequence[WordAligner], corpora: tuple[Training, Training]) -> float:
    """One iteration in which both directions count what they agree on."""
    there, back = (c.expect(m) for c, m in zip(corpora, models, strict=True))
    for corpus, model, own, other in (
        (corpora[0], models[0], there, back),
        (corpora[1], models[1], back, there),
    ):
        corpus.learn(model, own, list(_joint(own, other)))
    return sum(e.log_likelihood for e in there + back)


def _joint(own: list[Expectation], other: list[Expectation]) -> Iterator[Floats]:
    """The agreed posteriors of each group, whose other direction has its lengths exchanged."""
    by_shape = {e.posterior.shape[1:]: e.posterior for e in other}
    for expectation in own:
        _, steps, width = expectation.posterior.shape
        yield agreed(expectation.posterior, by_shape[width - 1, steps + 1])
