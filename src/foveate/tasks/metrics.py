"""Metrics of generated text, and minimum Bayes risk decoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, Self

import pydantic

from foveate.decode.constraints import Constrained
from foveate.decode.sample import Sample
from foveate.decode.search import Hypothesis, Search

Texts = Sequence[str]
References = Sequence[str | tuple[str, ...]]
Metric = Callable[[Texts, References], tuple[float, str]]


def bleu(outputs: Texts, references: References) -> tuple[float, str]:
    """BLEU of a corpus, detokenised and cased, by sacreBLEU (Papineni, 2002; Post, 2018)."""
    from sacrebleu.metrics.bleu import BLEU

    return _sacrebleu(BLEU(), outputs, references)


def chrf(outputs: Texts, references: References) -> tuple[float, str]:
    """chrF2: F-score of character n-grams, by sacreBLEU (Popović, 2015)."""
    from sacrebleu.metrics.chrf import CHRF

    return _sacrebleu(CHRF(), outputs, references)


def ter(outputs: Texts, references: References) -> tuple[float, str]:
    """Translation edit rate, by sacreBLEU (Snover, 2006)."""
    from sacrebleu.metrics.ter import TER

    return _sacrebleu(TER(), outputs, references)


def exact_match(outputs: Texts, references: References) -> tuple[float, str]:
    """Percentage of outputs that equal their references: accuracy of whole outputs."""
    pairs = zip(outputs, references, strict=True)
    return 100 * sum(output in _all(right) for output, right in pairs) / max(1, len(outputs)), ""


def wer(outputs: Texts, references: References) -> tuple[float, str]:
    """Percentage of outputs that are wrong: the word error rate of pronunciations (g2p)."""
    return 100 - exact_match(outputs, references)[0], ""


def per(outputs: Texts, references: References) -> tuple[float, str]:
    """Phoneme error rate: 100 · Σ edits / Σ symbols of the references, symbols between blanks.

    Edits are insertions, deletions and substitutions (Levenshtein, 1966), by RapidFuzz; of several
    references the nearest counts.
    """
    import rapidfuzz
    from rapidfuzz.distance import Levenshtein

    edits = symbols = 0
    for output, right in zip(outputs, references, strict=True):
        written = output.split()
        far = [
            (Levenshtein.distance(written, one.split()), len(one.split())) for one in _all(right)
        ]
        nearest, length = min(far)
        edits, symbols = edits + nearest, symbols + length
    return 100 * edits / max(1, symbols), f"rapidfuzz:{rapidfuzz.__version__}"


def rouge(name: str) -> Metric:
    """ROUGE: mean F of n-grams ("rouge1", "rouge2") or of the longest common subsequence ("rougeL")
    of stemmed words, by Google's ``rouge-score``; the best of several references (Lin, 2004).
    """

    def figure(outputs: Texts, references: References) -> tuple[float, str]:
        from importlib.metadata import version

        from rouge_score.rouge_scorer import RougeScorer  # type: ignore[import-untyped]

        scorer = RougeScorer([name], use_stemmer=True)
        best = [
            scorer.score_multi(list(_all(right)), output)[name].fmeasure
            for output, right in zip(outputs, references, strict=True)
        ]
        return 100 * sum(best) / max(1, len(best)), f"rouge-score:{version('rouge-score')}|stem:yes"

    return figure


METRICS: dict[str, Metric] = {
    "bleu": bleu,
    "chrf": chrf,
    "ter": ter,
    "exact_match": exact_match,
    "wer": wer,
    "per": per,
    **{name: rouge(name) for name in ("rouge1", "rouge2", "rougeL")},
}
LOWER_IS_BETTER = {"ter", "wer", "per"}
SLOW = {"ter"}  # left to `evaluate`; validations during training do without


def known_metrics(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names. Raises ``ValueError`` for one that is not known."""
    for name in names:
        if name not in METRICS:
            raise ValueError(f"no metric {name!r}; there are: {', '.join(METRICS)}")
    return names


def figures_of(
    outputs: Texts, references: References, names: Sequence[str]
) -> tuple[dict[str, float], dict[str, str]]:
    """The figures of the given names, and the signatures of those that have one.

    Raises ``ValueError`` where outputs and references differ in number.
    """
    if len(outputs) != len(references):
        raise ValueError(f"{len(outputs)} outputs but {len(references)} references")
    found = {name: METRICS[name](outputs, references) for name in names}
    return (
        {name: value for name, (value, _) in found.items()},
        {name: signature for name, (_, signature) in found.items() if signature},
    )


def interval(
    name: str, outputs: Texts, references: References, draws: int = 200
) -> tuple[float, float, float]:
    """BLEU or chrF of a corpus and the ends of its 95 % interval, by sacreBLEU's bootstrap.

    Sentences are drawn anew with replacement, always the same draws (Koehn, 2004; Post, 2018).
    Raises ``ValueError`` for another metric.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    known = {"bleu": BLEU, "chrf": CHRF}
    if name not in known:
        raise ValueError(f"no interval of {name!r}; there are: {', '.join(known)}")
    streams = list(map(list, zip_longest(*map(_all, references))))
    found: Any = known[name]().corpus_score(list(outputs), streams, n_bootstrap=draws)
    middle, half = float(found._mean), float(found._ci)
    return float(found.score), middle - half, middle + half


def _sacrebleu(metric: object, outputs: Texts, references: References) -> tuple[float, str]:
    streams = zip_longest(*map(_all, references))  # the first of each, the second of each, …
    score = metric.corpus_score(list(outputs), list(map(list, streams)))  # type: ignore[attr-defined]
    return float(score.score), str(metric.get_signature())  # type: ignore[attr-defined]


def _all(reference: str | tuple[str, ...]) -> tuple[str, ...]:
    return (reference,) if isinstance(reference, str) else reference


# ------------------------------------------------------------------------------ minimum bayes risk
# Minimum Bayes risk: not the most probable output, but the one most like all probable ones.
#
#     ŷ = argmax_{y ∈ C} Σ_{y' ∈ C} w(y') u(y, y')
#
# C are outputs that another search finds: draws from the model, where each weighs the same
# (Eikema &
# Aziz, 2020), or an n-best list, where each weighs its probability (Kumar & Byrne, 2004). The
# utility u compares texts, which is why this search stands here and not in `foveate.decode`.


class MinimumBayesRisk(Search):
    """Outputs of another search, ordered by their expected utility, which is then their score."""

    class Config(Search.Config, kind="minimum_bayes_risk"):
        """``candidates`` finds C; its limits of length and rules are those said here.

        ``utility`` is a metric by name (sentence chrF unless told); one of errors is turned round.
        """

        candidates: Search.Config = Sample.Config(num_samples=32)
        """The search that proposes outputs."""
        utility: str = "chrf"  # the metric by which candidates are compared

        @pydantic.field_validator("utility")
        @classmethod
        def _known(cls, name: str) -> str:
            return known_metrics((name,))[0]

        @pydantic.model_validator(mode="after")
        def _said_once(self) -> Self:
            plain = Search.Config()
            for name in Search.Config.model_fields:
                said = getattr(self.candidates, name)
                if said not in (getattr(plain, name), getattr(self, name)):
                    raise ValueError(f"say {name} of the search itself, not of its candidates")
            return self

        def giving(self, count: int) -> Search.Config:
            return self.like(self, candidates=self.candidates.giving(count))

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.candidates: Search = config.candidates.build()

    @property
    def width(self) -> int:
        return self.candidates.width

    def find(
        self,
        steps: Constrained,
        limits: Sequence[int],
        start: int,
        end: int,
        rows: Sequence[int],
    ) -> list[list[Hypothesis]]:
        candidates = self.candidates
        if self.listener is not None:
            candidates = candidates.watched(self.listener)
        return candidates.find(steps, limits, start, end, rows)

    def posterior(self, found: Sequence[Hypothesis]) -> list[float]:
        return self.candidates.posterior(found)

    def decide(self, found: list[Hypothesis], text: Callable[[list[int]], str]) -> list[Hypothesis]:
        """The distinct texts among the candidates, the one of least risk first."""
        first: dict[str, Hypothesis] = {}
        weight: dict[str, float] = {}
        for one, w in zip(found, self.posterior(found), strict=True):
            written = text(one.ids)
            first.setdefault(written, one)
            weight[written] = weight.get(written, 0.0) + w
        scored = [replace(one, score=self.expected(y, weight)) for y, one in first.items()]
        return sorted(scored, key=lambda one: -one.score)

    def expected(self, output: str, weight: dict[str, float]) -> float:
        """Σ_y' w(y') u(output, y') over texts and their weights."""
        return sum(w * self.utility(output, other) for other, w in weight.items())

    def utility(self, output: str, reference: str) -> float:
        """How good a text is when another is right: u, a figure of `foveate.tasks.metrics`."""
        name = self.config.utility
        figure, _ = METRICS[name]([output], [reference])
        return -figure if name in LOWER_IS_BETTER else figure
