"""Figures of text against references, each from the library that the field agreed on.

A new one is a function here: outputs and references in, the figure and a signature out. A reference
is a text, or several texts of which any is right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

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
