"""Figures of text on cases that can be counted by hand."""

from __future__ import annotations

import pytest

from foveate.tasks.metrics import METRICS, figures_of

SEVERAL = [("R EH1 D", "R IY1 D"), ("K AE1 T",)]


def test_any_of_several_references_is_right() -> None:
    figures, _ = figures_of(["R IY1 D", "K AA1 T"], SEVERAL, ["exact_match", "wer", "per"])
    assert figures == {"exact_match": 50, "wer": 50, "per": pytest.approx(100 / 6)}


def test_phoneme_errors_are_insertions_deletions_and_substitutions() -> None:
    figures, signatures = figures_of(["A B C D", "A", ""], ["A C D", "A B", "C D"], ["per"])
    assert figures["per"] == pytest.approx(100 * (1 + 1 + 2) / 7)
    assert signatures["per"].startswith("rapidfuzz:")


def test_rouge_by_hand() -> None:
    outputs, references = ["the cats sat on the mat"], ["the cat sat"]
    figures, signatures = figures_of(outputs, references, ["rouge1", "rouge2", "rougeL"])
    f = {n: 2 * p * r / (p + r) for n, p, r in (("1", 3 / 6, 1.0), ("2", 2 / 5, 1.0))}
    assert figures == {
        "rouge1": pytest.approx(100 * f["1"]),
        "rouge2": pytest.approx(100 * f["2"]),
        "rougeL": pytest.approx(100 * f["1"]),
    }
    assert "rouge-score" in signatures["rougeL"]


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_knows_the_perfect_and_takes_several_references(name: str) -> None:
    texts = ["a small dog runs in the snow", "two women look at the sea"]
    perfect, _ = METRICS[name](texts, texts)
    assert perfect == pytest.approx(0 if name in ("ter", "wer", "per") else 100)
    several = [("nothing of the kind", texts[0]), (texts[1],)]
    assert METRICS[name](texts, several)[0] == pytest.approx(perfect)
    wrong, _ = METRICS[name](["zebra", "zebra"], texts)
    assert wrong != pytest.approx(perfect)
