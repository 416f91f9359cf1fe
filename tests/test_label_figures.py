"""Labels from files to numbers, and from scores to figures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from foveate.data.catalogue import DataError
from foveate.tasks.classification import (
    confusion,
    evaluation_of_labels,
    figures_of_labels,
    load_labels,
    measures_of_labels,
    numbers_of,
    probabilities_of,
    save_labels,
    sorted_labels,
)
from tolerances import ROW, near

NAMES = ("a", "b", "c")
P = np.array([[8, 1, 1], [2, 7, 1], [6, 3, 1], [1, 8, 1]], dtype=np.float32) / 10
LOG_P, WANTED = np.log(P), [0, 1, 1, 0]  # found: a b a b; "c" is never wanted nor found


def test_names_are_in_a_fixed_order() -> None:
    assert sorted_labels(["b", "10", "9", "a", "b", "B"]) == ("9", "10", "B", "a", "b")


def test_names_come_back_from_a_run(tmp_path: Path) -> None:
    save_labels(("schön", "1"), tmp_path)
    assert load_labels(tmp_path) == ("schön", "1")
    assert [p.name for p in tmp_path.iterdir()] == ["labels.json"]
    (tmp_path / "labels.json").write_text(json.dumps(["a"]))
    with pytest.raises(ValueError, match=r"labels\.json"):
        load_labels(tmp_path)


def test_an_unknown_label_is_named_with_its_place() -> None:
    assert numbers_of(["b", "a"], NAMES, str) == [1, 0]
    with pytest.raises(DataError, match=r"x\.tsv:7: the label 'd'.*'a', 'b', 'c'"):
        numbers_of(["a", "d"], NAMES, lambda i: f"x.tsv:{i + 6}")


def test_figures_by_hand() -> None:
    figures = figures_of_labels(LOG_P, WANTED)
    assert figures["accuracy"] == 50
    # a: tp 1, fp 1, fn 1, F1 1/2; b the same; c: nothing of it, 0
    assert figures["f1_macro"] == pytest.approx(100 * (0.5 + 0.5 + 0) / 3)
    assert figures["loss"] == near(-np.log([0.8, 0.7, 0.3, 0.1]).mean(), terms=ROW)


def test_the_confusion_matrix_has_true_labels_in_rows() -> None:
    table = confusion(LOG_P, [0, 1, 1, 1], NAMES)
    assert table.cells == [[1, 0, 0], [1, 2, 0], [0, 0, 0]]
    assert table.lines()[1:] == ["   a b c", "a  1 0 0", "b  1 2 0", "c  0 0 0"]


def test_evaluations_and_samples() -> None:
    evaluation = evaluation_of_labels(LOG_P, WANTED, NAMES, {"cut": [3]})
    assert evaluation.outputs == ["a", "b", "a", "b"]
    assert evaluation.noted == {"cut": [3]}
    assert "tp" in evaluation.signatures["f1_macro"]
    assert list(evaluation.tables) == ["confusion"]
    measures = measures_of_labels(LOG_P, WANTED, NAMES, ["w", "x", "y", "z"], 2)
    assert [(s.source, s.reference, s.output) for s in measures.samples] == [
        ("w", "a", "a"),
        ("y", "b", "a"),
    ]
    assert measures_of_labels(LOG_P, WANTED, NAMES, ["w", "x", "y", "z"], 0).samples == []


def test_probabilities_are_sorted() -> None:
    found = probabilities_of(LOG_P[1], NAMES)
    assert list(found) == ["b", "a", "c"]
    assert sum(found.values()) == pytest.approx(1)
