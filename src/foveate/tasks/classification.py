"""Classification of text, and the figures of labels."""

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from foveate.config import from_json
from foveate.data.batches import sorted_batches
from foveate.data.catalogue import DataError
from foveate.data.text import Corpus, Pair, Reading, file_of
from foveate.data.tokenizer import UNK
from foveate.decode.search import Search
from foveate.files import replace_file
from foveate.models.classifier import Classifier
from foveate.models.encoder_decoder import Model
from foveate.nn.spec import Labels, Tokens
from foveate.tasks.abilities import Classifies
from foveate.tasks.base import Loss, Measures, TensorBatch, ValidationSample, spread
from foveate.tasks.objectives import CrossEntropy
from foveate.tasks.single_text import EXTRA, SingleText, wrapped
from foveate.tasks.text import Ids, sizes_of

LABELS = "labels.json"  # in the folder of a run
WIDEST = 20  # labels whose counts are listed one by one
Names = tuple[str, ...]
LogP = NDArray[np.float32]  # (N, C) log p(label | example)


def sorted_labels(labels: Collection[str]) -> Names:
    """The distinct labels in their fixed order: numbers by value, then others by code point."""
    numbers = {x: int(x) for x in labels if x.isascii() and x.isdecimal()}
    return tuple(sorted(set(labels), key=lambda x: (x not in numbers, numbers.get(x, 0), x)))


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
                "fix it, or add examples of it to the training data"
            )
    return [known[label] for label in labels]


FIGURES: tuple[str, ...] = ("loss", "accuracy", "f1_macro")


def figures_of_labels(log_p: LogP, target: Sequence[int]) -> dict[str, float]:
    """Loss, accuracy and macro F1, the last two in per cent.

    accuracy = right / N;  F1 = mean over labels of 2 tp / (2 tp + fp + fn), 0 for a label that is
    neither wanted nor given (as scikit-learn has it).
    """
    counts = counts_of(log_p, target)
    right = np.diag(counts)
    both = counts.sum(axis=0) + counts.sum(axis=1)  # 2 tp + fp + fn of each label
    picked = log_p[np.arange(len(target)), np.asarray(target, dtype=np.int64)]
    return {
        "loss": -float(picked.mean(dtype=np.float64)),
        "accuracy": 100 * float(right.sum() / len(target)),
        "f1_macro": 100 * float((2 * right / np.maximum(both, 1)).mean()),
    }


def counts_of(log_p: LogP, target: Sequence[int]) -> NDArray[np.int64]:
    """Count how often each label (row) was taken for each (column), (C, C)."""
    counts = np.zeros((log_p.shape[1],) * 2, dtype=np.int64)
    np.add.at(counts, (np.asarray(target, dtype=np.int64), log_p.argmax(axis=1)), 1)
    return counts


def measures_of_labels(
    log_p: LogP, target: Sequence[int], names: Names, texts: Sequence[str], samples: int
) -> Measures:
    """The figures of a validation; ``texts`` say what each example is, for the samples."""
    shown = spread(len(texts), samples)
    predicted = log_p.argmax(axis=1)
    return Measures(
        figures_of_labels(log_p, target),
        [ValidationSample(texts[i], names[target[i]], names[predicted[i]]) for i in shown],
    )


@dataclass(frozen=True)
class LabelledBatch(TensorBatch):
    """``source`` (B, S) texts with start and end, or pixels; ``source_mask`` true at real tokens or
    None where all are, ``targets`` (B,) the numbers of the labels.
    """

    source: Tensor
    source_mask: Tensor | None
    targets: Tensor


class TextClassification(SingleText[LabelledBatch], Classifies):
    """A text x in, one of the labels of the training data out: that of the highest p.

    The loss is −log p(label | x), x between its start and its end.
    """

    class Config(SingleText.Config, kind="classification"):
        """``source`` and ``labels`` name line-aligned files with ``{split}`` for train, valid,
        test; without ``labels``, ``source`` is one TSV or JSONL file that holds text and label.

        In training each token becomes ``<unk>`` with the probability ``word_dropout``
        (Iyyer et al., 2015), anew in every epoch.
        """

        labels: str | None = None
        """Line-aligned file of the labels, with {split}; absent: source holds both."""
        word_dropout: float = Field(0.0, ge=0, lt=1)
        """Probability that a token becomes <unk> in training."""

    figures = FIGURES
    gives = "label"
    config: Config

    def prepare(self, folder: Path, seed: int) -> None:
        """Read the labels of all splits first: what is wrong with one is met before training."""
        self.label_names = sorted_labels(self.corpus("train").targets)
        if len(self.label_names) < 2:
            raise DataError(
                f"{self.config.source}: one label leaves nothing to learn: {self.label_names}"
            )
        for split in ("valid", "test"):
            corpus = None
            with contextlib.suppress(DataError):  # a run may do without
                corpus = self.corpus(split)
            if corpus is not None:
                self.numbers(corpus, self._file(split))
        super().prepare(folder, seed)
        save_labels(self.label_names, folder)

    def restore(self, folder: Path) -> None:
        super().restore(folder)
        self.label_names = load_labels(folder)

    def readings(self, split: str) -> list[Reading]:
        return [Labelled(self.config.source, self.config.labels, split, self.data)]

    def _file(self, split: str) -> Path:
        """The file in which the labels of a split stand."""
        return file_of(self.config.labels or self.config.source, split, self.data)

    def numbers(self, corpus: Corpus, file: Path) -> list[int]:
        return numbers_of(corpus.targets, self.label_names, lambda i: f"{file}:{corpus.lines[i]}")

    def batch(self, split: str, indices: Sequence[int], noise: int = 0) -> LabelledBatch:
        corpus, ids = self.tokens(split)
        texts = [ids[i] for i in indices]
        if self.config.word_dropout and split == "train":
            texts = [self._noisy(ids[i], noise, i) for i in indices]
        source, source_mask = wrapped(texts)
        target = numbers_of([corpus.targets[i] for i in indices], self.label_names, str)
        return LabelledBatch(source, source_mask, torch.tensor(target))

    def _noisy(self, ids: Ids, noise: int, index: int) -> Ids:
        dropped = np.random.default_rng((noise, index)).random(len(ids)) < self.config.word_dropout
        return [UNK if drop else i for i, drop in zip(ids, dropped, strict=True)]

    def _about(self, corpus: Corpus) -> str:
        counts = Counter(corpus.targets)
        if len(self.label_names) > WIDEST:
            each = [counts[name] for name in self.label_names]
            return f"{len(each)} labels, {min(each):,} to {max(each):,} examples of each"
        return "labels " + ", ".join(f"{name}: {counts[name]:,}" for name in self.label_names)

    def build(self, model: Model.Config) -> nn.Module:
        return model.build(Tokens(self.tokenizer.vocab_size), Labels(self.label_names))

    def pieces(self) -> dict[str, list[str]]:
        return {"encoder": self.tokenizer.pieces, "output": list(self.label_names)}

    def loss(self, model: Classifier, batch: LabelledBatch, objective: CrossEntropy) -> Loss:
        batch = batch.to(model.output.weight.device)
        if not model.scores_are_product:
            return objective.of_scores(model(batch.source, batch.source_mask), batch.targets)
        features = model.features(batch.source, batch.source_mask)
        return objective(features, model.output.weight, batch.targets, model.output.bias)

    def measure(self, model: Classifier, split: str, search: Search, samples: int = 3) -> Measures:
        corpus, ids = self.tokens(split)
        log_p = self.predict(model, [text[: self.data.max_length] for text in ids])
        target = self.numbers(corpus, self._file(split))
        return measures_of_labels(log_p, target, self.label_names, corpus.sources, samples)

    @torch.inference_mode()
    def predict(self, model: Classifier, texts: Sequence[Ids], batch_tokens: int = 8192) -> LogP:
        """Log p of every label for each text, (N, C)."""
        log_p = np.zeros((len(texts), len(self.label_names)), dtype=np.float32)
        for indices in sorted_batches(sizes_of(texts)[:, None] + EXTRA, batch_tokens):
            source, source_mask = wrapped([texts[i] for i in indices], model.output.weight.device)
            log_p[indices] = model(source, source_mask).float().log_softmax(dim=-1).cpu().numpy()
        return log_p


class Labelled(Reading):
    """Texts and labels, without blanks around these. Raises ``DataError`` at an empty label."""

    def changed(self, pair: Pair) -> Pair:
        return stripped(pair, self.files[-1])


def stripped(pair: Pair, file: Path) -> Pair:
    """Return a pair without blanks around its label. Raises ``DataError`` for an empty label."""
    line, text, label = pair
    if not label.strip():
        raise DataError(f"{file}:{line}: no label; write one, or remove the line")
    return line, text, label.strip()
