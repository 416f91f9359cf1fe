"""Figures of quality, each from the library that the field agreed on."""

from __future__ import annotations

from collections.abc import Sequence


def translation_figures(
    outputs: Sequence[str], references: Sequence[str], names: Sequence[str] = ("bleu", "chrf")
) -> tuple[dict[str, float], dict[str, str]]:
    """BLEU, chrF or TER by sacreBLEU (Post, 2018), and the signature of each.

    Outputs and references are plain, detokenised text. Raises ``ValueError`` where they differ in
    number.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    if len(outputs) != len(references):
        raise ValueError(f"{len(outputs)} outputs but {len(references)} references")
    metrics = {"bleu": BLEU, "chrf": CHRF, "ter": TER}
    figures, signatures = {}, {}
    for name in names:
        metric = metrics[name]()
        figures[name] = float(metric.corpus_score(list(outputs), [list(references)]).score)
        signatures[name] = str(metric.get_signature())
    return figures, signatures
