"""One text an example, as data: a file, a tokenizer, lengths, batches. Knows no model.

What is done with the texts (labels, hidden words) is up to the tasks that derive from it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.data.columns import taken
from foveate.data.lines import is_table
from foveate.data.pad import pad
from foveate.data.prepared import (
    PreparedCorpus,
    learn_tokenizer,
    prepare_ids,
    prepare_texts,
    sample,
)
from foveate.data.text import (
    Corpus,
    DataError,
    Reading,
    TextData,
    at,
    collect,
    keep,
    read_pairs,
)
from foveate.data.tokenizer import BOS, BPE, EOS, PAD, Tokenizer
from foveate.tasks.base import Task
from foveate.tasks.text_batch import Ids, lengths_of, sizes_of

Batch = TypeVar("Batch")
TOKENIZER = "tokenizer.json"  # in the folder of a run
TOKENIZERS = (TOKENIZER, "source.tokenizer.json")  # of runs of other tasks, the fitting one
EXTRA = 2  # the start and the end that stand around each text


class SingleText(Task[Batch]):
    """Lines of text in; every text is read as ``<s> text </s>``."""

    class Config(Task.Config):
        """Where the texts lie and how they become tokens.

        ``source`` names a file with ``{split}`` for train, valid and test: one text a line, or a
        TSV, CSV or JSONL file, of which `foveate.data.text.TextData` names columns and keys.
        """

        source: str
        tokenizer: Tokenizer.Config = BPE.Config()

    config: Config

    def __init__(self, config: Config, data: TextData) -> None:
        self.config, self.data = config, data
        self._tokenizer: Tokenizer | None = None
        self._read: dict[str, Corpus] = {}
        self._encoded: dict[str, tuple[Corpus, Sequence[Ids]]] = {}

    # ---- data

    def prepare(self, folder: Path, seed: int) -> None:
        if self._tokenizer is None:
            corpus = self.corpus("train")
            rows = sample(len(corpus), self.data.tokenizer_sample, seed)
            texts = corpus.take(rows).sources
            self._tokenizer = learn_tokenizer(self.config.tokenizer, lambda: texts)
        self._tokenizer.save(folder / TOKENIZER)

    def restore(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.load(folder / TOKENIZER)

    def inherit(self, run: Path) -> None:
        found = next((run / name for name in TOKENIZERS if (run / name).is_file()), None)
        if found is None:
            raise DataError(f"{run} has no tokenizer to take over: no {' or '.join(TOKENIZERS)}")
        self._tokenizer = Tokenizer.load(found)

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            raise RuntimeError("the task has no tokenizer yet: call prepare or restore first")
        return self._tokenizer

    def corpus(self, split: str) -> Corpus:
        """The texts of a split and what belongs to them, without those that the config drops.

        Those of the training split stay in files and are read when they are asked for.
        """
        if split not in self._read:
            reading = self._reading(split)
            self._read[split] = prepare_texts([reading]) if split == "train" else collect(reading)
        return self._read[split]

    def _reading(self, split: str) -> Reading:
        """The texts of a split; the other side of a table is read and left alone."""
        source = self.config.source
        other = None if is_table(at(source, split, self.data.splits)) else source
        return Reading(source, other, split, self.data)

    def _tokens(self, split: str) -> tuple[Corpus, Sequence[Ids]]:
        """Texts and their ids; in training without empty and too long ones, which are counted."""
        if split not in self._encoded:
            corpus = self.corpus(split)
            ids: Sequence[Ids]
            if isinstance(corpus, PreparedCorpus):
                (ids,) = prepare_ids(corpus.folder, {"source": self.tokenizer})
            else:
                ids = self.tokenizer.encode_ids(corpus.sources)
            if split == "train":
                kept, dropped = keep(lengths_of(ids), self.data)
                dropped = {reason.replace("side", "text"): n for reason, n in dropped.items()}
                corpus, ids = corpus.take(kept, dropped), taken(ids, kept)
            self._encoded[split] = corpus, ids
        return self._encoded[split]

    def lengths(self, split: str) -> NDArray[np.int32]:
        return lengths_of(self._tokens(split)[1]) + np.int32(EXTRA)

    def describe_data(self) -> list[str]:
        """What was read of each split, what was dropped and why, what stands in train as well."""
        said, known = [], set(map(hash, self.corpus("train").sources))
        for split in ("train", "valid", "test"):
            with contextlib.suppress(DataError):  # a run may do without
                corpus, ids = self._tokens(split)
                sizes = sizes_of(ids)
                said.append(
                    f"{split}: {len(corpus):,} texts, {int(sizes.sum()):,} tokens, longest "
                    f"{int(sizes.max(initial=0)):,}; {self._about(corpus)}"
                )
                both = (
                    sum(hash(text) in known for text in corpus.sources) if split != "train" else 0
                )
                said += [f"{split}: {both:,} texts also in train"] if both else []
                said += [f"{split}: dropped, {what}: {n:,}" for what, n in corpus.dropped.items()]
                said += [f"{split}: skipped, {line}" for line in corpus.skipped]
        size, kind = self.tokenizer.vocab_size, self.tokenizer.config.kind
        seen, texts = self.data.tokenizer_sample, len(self.corpus("train"))
        some = f", learnt from {seen:,} of {texts:,} texts" if seen < texts else ""
        return [*said, f"vocabulary: {size:,} {kind} pieces{some}"]

    def _about(self, corpus: Corpus) -> str:
        """What else is to be said of a split."""
        words = sum(len(text.split()) for text in corpus.sources)
        return f"{words:,} words between blanks"

    # ---- answers

    def examples(self, split: str) -> Corpus:
        return self.corpus(split)

    def cut(self, corpus: Corpus) -> tuple[list[Ids], list[int]]:
        """The ids of each text, at most ``data.max_length``, and the lines that lost some."""
        ids, limit = self.tokenizer.encode_ids(corpus.sources), self.data.max_length
        longer = [line for line, one in zip(corpus.lines, ids, strict=True) if len(one) > limit]
        return [one[:limit] for one in ids], longer


def read_texts(source: Path) -> Corpus:
    """The texts of a file of the user's. Raises ``DataError`` where it holds none."""
    corpus = read_pairs(source, None if is_table(source) else source, TextData())
    if not len(corpus):
        raise DataError(f"{source} is empty: nothing to evaluate on")
    return corpus


def wrapped(texts: Sequence[Ids]) -> tuple[Tensor, Tensor | None]:
    """``<s> text </s>`` of some texts, (B, S), and where they are real, None if everywhere."""
    ids = torch.from_numpy(pad([[BOS, *one, EOS] for one in texts]))
    keys = ids != PAD
    return ids, None if bool(keys.all()) else keys


def to(device: torch.device, *tensors: Tensor | None) -> Any:
    """The tensors on a device; what is None stays None."""
    return tuple(None if tensor is None else tensor.to(device) for tensor in tensors)
