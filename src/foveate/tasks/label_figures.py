"""What all tasks with one label for an example share: label names, loss, figures, answers.

Lives here: from labels in files to numbers and back, from scores of labels to figures. Does not
live here: what is labelled (`foveate.tasks.classification`, `foveate.tasks.image_classification`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from foveate.atomic import replace_file
from foveate.data.catalogue import DataError
from foveate.look.record import AttentionRecord
from foveate.look.words import Units
from foveate.models.classifier import Classifier
from foveate.tasks.base import Evaluation, Loss, Measures, Sample, Table
from foveate.tasks.objective import CrossEntropy
from foveate.tree import from_json

LABELS = "labels.json"  # in the folder of a run
Names = tuple[str, ...]
LogP = NDArray[np.float32]  # (N, C) log p(label | example)


@dataclass(frozen=True)
class Classification:
    """The answer to one example: the most probable label, and p of every label by its name.

    ``source`` is what was labelled: a line of text, or a picture by its file or number. An empty
    line has the label "" and no probabilities; ``cut`` counts tokens that were left out because
    the line was longer than the run allows.
    """

    source: Any
    label: str
    probabilities: dict[str, float]
    cut: int = 0
    run: Any = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return self.label

    def record(self, units: Units = "auto") -> AttentionRecord:
        """What the model attended to as it read the source, by layer and head.

        ``units`` are those of `Run.explain`. Raises ``IndexError`` where there is
        no label to explain.
        """
        if not self.probabilities or self.run is None:
            raise IndexError("an empty line has no label to explain")
        record: AttentionRecord = self.run.explain(self.source, self.label, units)
        return record


# ------------------------------------------------------------------------------ names


def label_names(labels: Iterable[str]) -> Names:
    """The distinct labels in their fixed order: numbers by value, then others by code point."""
    return tuple(sorted(set(labels), key=_order))


def _order(label: str) -> tuple[bool, int, str]:
    number = label.isascii() and label.isdecimal()
    return not number, int(label) if number else 0, label


def save_labels(names: Names, folder: Path) -> None:
    """Write the names into a run; the file appears whole or not at all."""
    replace_file(folder / LABELS, json.dumps({"labels": names}, ensure_ascii=False, indent=1))


def load_labels(folder: Path) -> Names:
    """Read the names from a run. Raises ``ConfigError`` that names a file which holds none."""
    return from_json(folder / LABELS, lambda tree: tuple(str(name) for name in tree["labels"]))


def numbers_of(labels: Sequence[str], names: Names, place: Callable[[int], str]) -> list[int]:
    """The number of each label. Raises ``DataError`` at the first that training has not shown.

    ``place(i)`` says where label i stands, such as ``valid.tsv:12``.
    """
    known = {name: number for number, name in enumerate(names)}
    for i, label in enumerate(labels):
        if label not in known:
            shown = ", ".join(map(repr, names[:10])) + (", …" if len(names) > 10 else "")
            raise DataError(
                f"{place(i)}: the label {label!r} is not in the training data, which has {shown}; "
                "mend it, or add examples of it to the training data"
            )
    return [known[label] for label in labels]


# ------------------------------------------------------------------------------ loss, figures


def label_loss(
    model: Classifier,
    features: Float[Tensor, "B D"],
    wanted: Int[Tensor, "B"],
    objective: CrossEntropy,
) -> Loss:
    """−Σ_b log p(label_b | x_b), from the pooled vectors of B examples."""
    return objective(features, model.output.weight, wanted, model.output.bias)


def figures_of_labels(log_p: LogP, wanted: Sequence[int]) -> dict[str, float]:
    """Loss, accuracy and macro F1, the last two in per cent.

    accuracy = right / N;  F1 = mean over labels of 2 tp / (2 tp + fp + fn), 0 for a label that is
    neither wanted nor given (as scikit-learn has it).
    """
    counts = _counts(log_p, wanted)
    right = np.diag(counts)
    both = counts.sum(axis=0) + counts.sum(axis=1)  # 2 tp + fp + fn of each label
    picked = log_p[np.arange(len(wanted)), np.asarray(wanted, dtype=np.int64)]
    return {
        "loss": -float(picked.mean(dtype=np.float64)),
        "accuracy": 100 * float(right.sum() / len(wanted)),
        "f1_macro": 100 * float((2 * right / np.maximum(both, 1)).mean()),
    }


def _counts(log_p: LogP, wanted: Sequence[int]) -> NDArray[np.int64]:
    """How often each label (row) was taken for each (column), (C, C)."""
    counts = np.zeros((log_p.shape[1],) * 2, dtype=np.int64)
    np.add.at(counts, (np.asarray(wanted, dtype=np.int64), log_p.argmax(axis=1)), 1)
    return counts


def confusion(log_p: LogP, wanted: Sequence[int], names: Names) -> Table:
    """How often each label (row) was taken for each (column)."""
    counts = _counts(log_p, wanted).tolist()
    return Table("true label by label given", list(names), list(names), counts)


def measures_of_labels(
    log_p: LogP, wanted: Sequence[int], names: Names, texts: Sequence[str], samples: int
) -> Measures:
    """The figures of a validation; ``texts`` say what each example is, for the samples."""
    step = max(1, len(texts) // max(1, samples))
    shown = range(0, len(texts), step)[:samples]
    found = log_p.argmax(axis=1)
    return Measures(
        figures_of_labels(log_p, wanted),
        [Sample(texts[i], names[wanted[i]], names[found[i]]) for i in shown],
    )


def evaluation_of_labels(
    log_p: LogP, wanted: Sequence[int], names: Names, noted: dict[str, list[int]] | None = None
) -> Evaluation:
    """All figures, the label given to each example, and the confusion matrix."""
    return Evaluation(
        figures_of_labels(log_p, wanted),
        {"f1_macro": "mean of 2 tp / (2 tp + fp + fn) over the labels"},
        [names[i] for i in log_p.argmax(axis=1)],
        noted or {},
        {"confusion": confusion(log_p, wanted, names)},
    )


def probabilities_of(log_p: NDArray[np.float32], names: Names) -> dict[str, float]:
    """Probability of each label (C,), the most probable first."""
    order = np.argsort(-log_p, kind="stable")
    return {names[i]: float(np.exp(log_p[i])) for i in order}
