"""One text an example, as data: a file, a tokenizer, lengths, batches. Knows no model.

What is done with the texts (labels, hidden words) is up to the tasks that derive from `SingleText`.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.data.batches import source_batch
from foveate.data.catalogue import DataError
from foveate.data.corpus import learn_tokenizer, sample
from foveate.data.text import CUT, Corpus, Reading, file_of, is_table, keep, taken
from foveate.data.tokenizer import BOS, BPE, Tokenizer
from foveate.tasks.base import Batch, Task, by_split
from foveate.tasks.text import (
    Ids,
    OneTokenizer,
    TextTask,
    lengths_of,
    sizes_of,
    unread,
    vocabulary_line,
)

TOKENIZER = "tokenizer.json"  # in the folder of a run
TOKENIZERS = (TOKENIZER, "source.tokenizer.json")  # of runs of other tasks, the fitting one
EXTRA = 2  # the start and the end that stand around each text


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
