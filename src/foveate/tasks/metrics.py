"""Figures of text against references, each from the library that the field agreed on.

A new one is a function here: outputs and references in, the figure and a signature out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Texts = Sequence[str]
Metric = Callable[[Texts, Texts], tuple[float, str]]


def bleu(outputs: Texts, references: Texts) -> tuple[float, str]:
    """BLEU of a corpus, detokenised and cased, by sacreBLEU (Papineni, 2002; Post, 2018)."""
    from sacrebleu.metrics.bleu import BLEU

    return _sacrebleu(BLEU(), outputs, references)


def chrf(outputs: Texts, references: Texts) -> tuple[float, str]:
    """chrF2: F-score of character n-grams, by sacreBLEU (Popović, 2015)."""
    from sacrebleu.metrics.chrf import CHRF

    return _sacrebleu(CHRF(), outputs, references)


def ter(outputs: Texts, references: Texts) -> tuple[float, str]:
    """Translation edit rate, by sacreBLEU (Snover, 2006)."""
    from sacrebleu.metrics.ter import TER

    return _sacrebleu(TER(), outputs, references)


def exact_match(outputs: Texts, references: Texts) -> tuple[float, str]:
    """Percentage of outputs that equal their references."""
    same = sum(output == reference for output, reference in zip(outputs, references, strict=True))
    return 100 * same / max(1, len(outputs)), ""


METRICS: dict[str, Metric] = {"bleu": bleu, "chrf": chrf, "ter": ter, "exact_match": exact_match}
LOWER_IS_BETTER = {"ter"}
SLOW = {"ter"}  # left to `evaluate`; validations during training do without


def known_metrics(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names. Raises ``ValueError`` for one that is not known."""
    for name in names:
        if name not in METRICS:
            raise ValueError(f"no metric {name!r}; there are: {', '.join(METRICS)}")
    return names


def figures_of(
    outputs: Texts, references: Texts, names: Sequence[str]
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


def _sacrebleu(metric: object, outputs: Texts, references: Texts) -> tuple[float, str]:
    score = metric.corpus_score(list(outputs), [list(references)])  # type: ignore[attr-defined]
    return float(score.score), str(metric.get_signature())  # type: ignore[attr-defined]
