"""Figures of labels, and the baseline of labels, are those of scikit-learn."""

import numpy as np
import pytest

from foveate.run.baselines import STRENGTH, logistic_regression, terms
from foveate.run.evaluation import evaluation_of_labels
from foveate.tasks.classification import figures_of_labels
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
    table = evaluation_of_labels(log_p, expected, names).tables["confusion"]
    assert table.cells == matrix.tolist()
    assert figures["loss"] == near(metrics.log_loss(expected, np.exp(log_p), labels=range(labels)))


def test_logistic_regression_on_tf_idf() -> None:
    text = pytest.importorskip("sklearn.feature_extraction.text", reason="needs scikit-learn")
    linear = pytest.importorskip("sklearn.linear_model")
    random = np.random.default_rng(0)
    texts = [" ".join(f"w{n}" for n in random.integers(0, 30, 8) // 2) + " 彼" for _ in range(60)]
    target = [int("w3" in text) + int("w7" in text) for text in texts]
    ours = logistic_regression(texts[:40], target[:40], 3, [*texts[40:], "", "unknown"])
    vectors = text.TfidfVectorizer(analyzer=terms).fit(texts[:40])
    model = linear.LogisticRegression(C=STRENGTH, tol=1e-8, max_iter=1000)
    model.fit(vectors.transform(texts[:40]), target[:40])
    theirs = model.predict_log_proba(vectors.transform([*texts[40:], "", "unknown"]))
    np.testing.assert_allclose(ours, theirs, atol=5e-3)
