"""Shared by tasks on text: batches of tokens, labels of axes, a single text as input."""

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.data.batches import pad, source_batch
from foveate.data.catalogue import DataError
from foveate.data.corpus import content_of, learn_tokenizer, prepare_ids, prepare_texts, sample
from foveate.data.text import (
    CUT,
    SKIPPED,
    Corpus,
    Reading,
    TextData,
    TokenIds,
    collect,
    ending_of,
    file_of,
    is_table,
    joined,
    keep,
    read_pairs,
    taken,
    to_measure,
)
from foveate.data.tokenizer import BOS, BPE, EOS, Tokenizer
from foveate.errors import UserError
from foveate.tasks.abilities import Vocabulary
from foveate.tasks.base import Batch, Task, TensorBatch, by_split

Ids = list[int]


@dataclass(frozen=True)
class TextBatch(TensorBatch):
    """Pairs side by side: ``source`` (B, S) with ends, or pixels; ``source_mask`` true at its real
    tokens, None if all are; ``inputs``, ``targets`` (B, T), ``counted`` as of a `DecoderBatch`.
    """

    source: Tensor
    source_mask: Tensor | None
    inputs: Tensor
    targets: Tensor
    counted: Tensor | None


def collate(sources: Sequence[Ids], targets: Sequence[Ids]) -> TextBatch:
    """Return tensors of some pairs of ids: ends and starts added, padded on the right."""
    source, source_mask = source_batch(sources)
    return TextBatch(source, source_mask, *decoder_sides(targets))


def decoder_sides(targets: Sequence[Ids]) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return what a decoder reads of some texts, and the same shifted by one, which it predicts.

    ``<s> a b`` and ``a b </s>``, (B, T) each; and the flat positions of real tokens, which count,
    None without padding.
    """
    inputs = torch.from_numpy(pad([[BOS, *ids] for ids in targets]))
    shifted = torch.from_numpy(pad([[*ids, EOS] for ids in targets]))
    lengths = torch.tensor([len(ids) + 1 for ids in targets])
    ragged = len(set(lengths.tolist())) > 1
    real = torch.arange(inputs.shape[1])[None] < lengths[:, None]
    return inputs, shifted, real.flatten().nonzero().flatten() if ragged else None


def lengths_of(*sides: Sequence[Ids]) -> NDArray[np.int32]:
    """(N, sides) numbers of tokens."""
    return np.stack([sizes_of(side).astype(np.int32) for side in sides], axis=1)


def sizes_of(texts: Sequence[Ids]) -> NDArray[np.int64]:
    """(N,) numbers of tokens."""
    if isinstance(texts, TokenIds):
        return texts.lengths()
    return np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))


def by_length(rows: Sequence[Sequence[int]]) -> dict[int, list[int]]:
    """Return the numbers of the rows of each length: together they need no padding."""
    alike: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        alike.setdefault(len(row), []).append(number)
    return alike


def namer(tokenizer: Tokenizer) -> Callable[[int], str]:
    """Return a function that gives the text of an id, or the name of a special one."""
    return lambda i: tokenizer.decode([i], skip_special=False) or tokenizer.name(i)


# One text an example, as data: a file, a tokenizer, lengths, batches. Knows no model.
#
# What is done with the texts (labels, hidden words) is up to the tasks that derive from it.

TOKENIZER = "tokenizer.json"  # in the folder of a run
TOKENIZERS = (TOKENIZER, "source.tokenizer.json")  # of runs of other tasks, the fitting one
EXTRA = 2  # the start and the end that stand around each text


class TextTask(Vocabulary[Batch]):
    """Lines of text in, read from files."""

    @abstractmethod
    def readings(self, split: str) -> list[Reading]:
        """Return the readings of a split, one for each of its corpora."""

    @by_split
    def corpus(self, split: str) -> Corpus:
        """The texts of a split and what belongs to them, without those that the config drops.

        Those of the training split stay in files and are read when they are needed.
        """
        readings = self.readings(split)
        return prepare_texts(readings) if split == "train" else joined(list(map(collect, readings)))

    def encoded(self, split: str, sides: dict[str, Tokenizer]) -> list[Sequence[Ids]]:
        """The ids of the texts of `corpus` by the tokenizers of "source" and "target"."""
        corpus = self.corpus(split)
        if corpus.folder is not None:
            return list(prepare_ids(corpus.folder, sides))
        texts = {"source": corpus.sources, "target": corpus.targets}
        return [tokenizer.encode_ids(texts[side]) for side, tokenizer in sides.items()]

    def digest(self, split: str) -> str:
        folder = self.corpus(split).folder
        return super().digest(split) if folder is None else content_of(folder)


def vocabulary_line(data: TextData, sizes: str, count: int, unit: str) -> str:
    """The line that describes the tokenizers and of how many texts they were learnt."""
    seen = data.tokenizer_sample
    some = f", learnt from {seen:,} of {count:,} {unit}" if seen < count else ""
    return f"vocabulary: {sizes} pieces{some}"


def paired(sources: Sequence[str], others: Sequence[str], names: tuple[str, str]) -> Corpus:
    """Pairs of the user's own. Raises `UserError` where one side has more."""
    if len(sources) != len(others):
        raise UserError(f"{len(sources)} {names[0]} but {len(others)} {names[1]}")
    return Corpus(list(sources), list(others), range(1, len(sources) + 1))


def read_own(source: Path, reference: Path | None, data: TextData) -> Corpus:
    """The pairs of the user's files, laid out as the run's. Raises ``DataError`` where it has none.

    Lines of two files are of no ``format``, and the columns of a TSV without names the first two.
    """
    if reference is not None:
        data = data.model_copy(update={"format": None})
    elif ending_of(source) == ".tsv" and any(isinstance(name, str) for name in data.columns):
        data = data.model_copy(update={"columns": TextData().columns})
    corpus = to_measure(read_pairs(source, reference, data), data)
    if not len(corpus):
        raise DataError(f"{source} is empty: nothing to evaluate on")
    return corpus


def unread(examples: Corpus) -> dict[str, list[int]]:
    """The lines of examples that were skipped, as an `Evaluation` notes them."""
    lines = list(dict.fromkeys(bad.line for bad in examples.skipped))  # both sides may be bad
    return {SKIPPED: lines} if lines else {}


class OneTokenizer:
    """The tokenizer of a task that has one."""

    tokenizer: Tokenizer  # from `prepare` or `restore`

    @property
    def output_tokenizer(self) -> Tokenizer:
        return self.tokenizer

    def tokenizers_by_name(self) -> dict[str, Tokenizer]:
        return {"text": self.tokenizer}


class SingleText(OneTokenizer, TextTask[Batch]):
    """Lines of text in; every text is read as ``<s> text </s>``."""

    class Config(Task.Config):
        """The texts and their tokenizer.

        ``source`` names a file with ``{split}`` for train, valid and test: one text a line, or a
        TSV, CSV or JSONL file, of which `foveate.data.text.TextData` names columns and keys.
        """

        source: str  # file of the texts, or of text and label (TSV, JSONL), with {split}
        tokenizer: Tokenizer.Config = BPE.Config()  # how text becomes tokens

    config: Config

    def prepare(self, folder: Path, seed: int) -> None:
        if not hasattr(self, "tokenizer"):
            corpus = self.corpus("train")
            texts = corpus.take(sample(len(corpus), self.data.tokenizer_sample, seed)).sources
            self.tokenizer = learn_tokenizer(self.config.tokenizer, lambda: texts)
        self.tokenizer.save(folder / TOKENIZER)

    def restore(self, folder: Path) -> None:
        self.tokenizer = Tokenizer.load(folder / TOKENIZER)

    def inherit(self, run: Path) -> None:
        file = next((run / name for name in TOKENIZERS if (run / name).is_file()), None)
        if file is None:
            raise DataError(f"{run} has no tokenizer to take over: no {' or '.join(TOKENIZERS)}")
        self.tokenizer = Tokenizer.load(file)

    def readings(self, split: str) -> list[Reading]:
        """The texts of a split; the other side of a table is read and left alone."""
        source = self.config.source
        other = None if is_table(file_of(source, split, self.data)) else source
        return [Reading(source, other, split, self.data)]

    @by_split
    def tokens(self, split: str) -> tuple[Corpus, Sequence[Ids]]:
        """Texts and their ids; in training without empty and too long ones, which are counted."""
        corpus = self.corpus(split)
        (ids,) = self.encoded(split, {"source": self.tokenizer})
        if split == "train":
            rows, dropped = keep(lengths_of(ids), self.data)
            dropped = {reason.replace("side", "text"): n for reason, n in dropped.items()}
            corpus, ids = corpus.take(rows, dropped), taken(ids, rows)
        return corpus, ids

    def lengths(self, split: str) -> NDArray[np.int32]:
        return lengths_of(self.tokens(split)[1]) + np.int32(EXTRA)

    def describe_data(self) -> list[str]:
        """Describe each split: what was read, dropped and why, and what is in train as well."""
        lines, known = [], set(map(hash, self.corpus("train").sources))
        for split in ("train", "valid", "test"):
            with contextlib.suppress(DataError):  # a run may do without
                corpus, ids = self.tokens(split)
                sizes = sizes_of(ids)
                lines.append(
                    f"{split}: {len(corpus):,} texts, {int(sizes.sum()):,} tokens, longest "
                    f"{int(sizes.max(initial=0)):,}; {self._about(corpus)}"
                )
                both = sum(hash(text) in known for text in corpus.sources)
                if both and split != "train":
                    lines.append(f"{split}: {both:,} texts also in train")
                lines += [f"{split}: dropped, {what}: {n:,}" for what, n in corpus.dropped.items()]
                lines += [f"{split}: skipped, {line}" for line in corpus.skipped]
        vocabulary = f"{self.tokenizer.vocab_size:,} {self.tokenizer.config.kind}"
        return [*lines, vocabulary_line(self.data, vocabulary, len(self.corpus("train")), "texts")]

    def _about(self, corpus: Corpus) -> str:
        """Return what else describes a split."""
        return f"{sum(len(text.split()) for text in corpus.sources):,} words between blanks"

    def cut(self, corpus: Corpus) -> tuple[list[Ids], dict[str, list[int]]]:
        """The ids of each text, at most ``data.max_length``.

        Lines that lost some, and those that were skipped, are noted.
        """
        ids, limit = self.tokenizer.encode_ids(corpus.sources), self.data.max_length
        longer = [line for line, text in zip(corpus.lines, ids, strict=True) if len(text) > limit]
        cut = {CUT: longer} if longer else {}
        return [text[:limit] for text in ids], cut | unread(corpus)


def wrapped(
    texts: Sequence[Ids], device: torch.device | None = None
) -> tuple[Tensor, Tensor | None]:
    """``<s> text </s>`` of some texts, (B, S), and where they are real, None if everywhere."""
    return source_batch(texts, device, [BOS])
