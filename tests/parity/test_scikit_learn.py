"""Figures of labels are those of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

from foveate.tasks.classification import confusion, figures_of_labels
from tolerances import near


@pytest.mark.parametrize("labels", [2, 5])
def test_accuracy_f1_and_confusion_matrix(labels: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="needs scikit-learn")
    random = np.random.default_rng(labels)
    log_p = np.log(random.dirichlet(np.ones(labels), 40)).astype(np.float32)
    expected = random.integers(0, labels - 1, 40).tolist()  # the last label is never wanted
    result, names = log_p.argmax(axis=1), tuple(map(str, range(labels)))
    figures = figures_of_labels(log_p, expected)
    f1 = metrics.f1_score(expected, result, labels=range(labels), average="macro", zero_division=0)
    assert figures["accuracy"] == pytest.approx(100 * metrics.accuracy_score(expected, result))
    assert figures["f1_macro"] == pytest.approx(100 * f1)
    matrix = metrics.confusion_matrix(expected, result, labels=range(labels))
    assert confusion(log_p, expected, names).cells == matrix.tolist()
    assert figures["loss"] == near(metrics.log_loss(expected, np.exp(log_p), labels=range(labels)))
