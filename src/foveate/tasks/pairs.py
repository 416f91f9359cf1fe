"""Pairs of texts as data: files, tokenizers, lengths, batches. Knows no model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import numpy as np
import pydantic
from numpy.typing import NDArray

from foveate.data.report import report
from foveate.data.text import Corpus, DataError, TextData, keep, read_pairs, read_split, to_measure
from foveate.data.tokenizer import BPE, Tokenizer
from foveate.tasks.base import Task
from foveate.tasks.metrics import LOWER_IS_BETTER, known_metrics
from foveate.tasks.text_batch import Ids, TextBatch, collate, lengths_of


class PairTask(Task[TextBatch]):
    """Lines of text in, lines of text out; how they are modelled is up to who derives from it."""

    class Config(Task.Config):
        """Where the pairs lie and how they become tokens.

        ``source`` and ``target`` name line-aligned files with ``{split}`` for train, valid, test;
        without ``target``, ``source`` is one TSV or JSONL file that holds both sides, or a file of
        ``data.format``. ``target_tokenizer`` is that of the target where it is of another kind.
        """

        source: str
        target: str | None = None
        tokenizer: Tokenizer.Config = BPE.Config()
        target_tokenizer: Tokenizer.Config | None = None
        joint: bool = True  # one vocabulary for both sides, which a model may then tie
        metrics: tuple[str, ...] = ("bleu", "chrf", "ter", "exact_match")

        @pydantic.model_validator(mode="after")
        def _one_or_two(self) -> Self:
            if self.joint and self.target_tokenizer is not None:
                raise ValueError("a target_tokenizer needs joint = false: two vocabularies")
            return self

        @pydantic.field_validator("metrics")
        @classmethod
        def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
            return known_metrics(names)

    config: Config

    def __init__(self, config: Config, data: TextData) -> None:
        self.config, self.data = config, data
        self.tokenizers: tuple[Tokenizer, Tokenizer] | None = None
        self._read: dict[str, Corpus] = {}
        self._corpora: dict[str, tuple[Corpus, list[Ids], list[Ids]]] = {}

    # ---- data

    def prepare(self, folder: Path, seed: int) -> None:
        if self.tokenizers is None:
            self.tokenizers = self._train()
        source, target = self.tokenizers
        source.save(folder / "source.tokenizer.json")
        target.save(folder / "target.tokenizer.json")

    def _train(self) -> tuple[Tokenizer, Tokenizer]:
        corpus = self.corpus("train")
        sides = [corpus.sources, corpus.targets]
        source = self.config.tokenizer.build()
        source.train(sides[0] + sides[1] if self.config.joint else sides[0])
        target = source
        if not self.config.joint:
            target = (self.config.target_tokenizer or self.config.tokenizer).build()
            target.train(sides[1])
        return source, target

    def inherit(self, run: Path) -> None:
        self.restore(run)

    def restore(self, folder: Path) -> None:
        source = Tokenizer.load(folder / "source.tokenizer.json")
        joint = self.config.joint
        self.tokenizers = (
            source,
            source if joint else Tokenizer.load(folder / "target.tokenizer.json"),
        )

    @property
    def source_tokenizer(self) -> Tokenizer:
        return self._both()[0]

    @property
    def target_tokenizer(self) -> Tokenizer:
        return self._both()[1]

    def _both(self) -> tuple[Tokenizer, Tokenizer]:
        if self.tokenizers is None:
            raise RuntimeError("the task has no tokenizers yet: call prepare or restore first")
        return self.tokenizers

    def corpus(self, split: str) -> Corpus:
        """The pairs of a split as text, without those that the config drops."""
        if split not in self._read:
            source, target = self.config.source, self.config.target
            self._read[split] = read_split(source, target, split, self.data)
        return self._read[split]

    def _tokens(self, split: str) -> tuple[Corpus, list[Ids], list[Ids]]:
        if split not in self._corpora:
            corpus = self.corpus(split)
            sources = self.source_tokenizer.encode_ids(corpus.sources)
            targets = self.target_tokenizer.encode_ids(corpus.targets)
            if split == "train":
                kept, dropped = keep(lengths_of(sources, targets), self.data)
                corpus = corpus.take([int(i) for i in kept], dropped)
                sources, targets = [sources[i] for i in kept], [targets[i] for i in kept]
            self._corpora[split] = corpus, sources, targets
        return self._corpora[split]

    def lengths(self, split: str) -> NDArray[np.int32]:
        _, sources, targets = self._tokens(split)
        return (lengths_of(sources, targets) + 1).astype(np.int32)

    def batch(self, split: str, indices: Sequence[int], noise: int = 0) -> TextBatch:
        corpus, sources, targets = self._tokens(split)
        sides = [[sources[i] for i in indices], [targets[i] for i in indices]]
        texts = corpus.sources, corpus.targets
        for side, tokenizer in enumerate(self._both() if split == "train" else ()):
            if tokenizer.noisy:
                drawn = tokenizer.encode_noisy(
                    [texts[side][i] for i in indices], [(noise, side, i) for i in indices]
                )
                both = zip(drawn, sides[side], strict=True)
                sides[side] = [d if len(d) <= self.data.max_length else ids for d, ids in both]
        return collate(*sides)

    def describe_data(self) -> list[str]:
        """The report on the data in short: what is there, what is odd, what is dropped and why."""
        corpora = {"train": self.corpus("train")}
        for split in ("valid", "test"):
            with contextlib.suppress(DataError):  # a run may do without
                corpora[split] = self.corpus(split)
        source, target = self._both()

        def count(tokenizer: Tokenizer) -> Callable[[Sequence[str]], list[int]]:
            return lambda texts: [len(ids) for ids in tokenizer.encode_ids(texts)]

        sizes = " and ".join(f"{side.vocab_size:,}" for side in dict.fromkeys((source, target)))
        found = report(corpora, self.data, (count(source), count(target)))
        return [*found.lines(), f"vocabulary: {sizes} {self.config.tokenizer.kind} pieces"]

    def better(self, name: str) -> int:
        return -1 if name in LOWER_IS_BETTER else super().better(name)

    # ---- examples

    def examples(self, split: str) -> Corpus:
        return self.corpus(split)

    def given(self, sources: Sequence[str], references: Sequence[str]) -> Corpus:
        """Pairs of the user's own. Raises ``ValueError`` where one side has more."""
        if len(sources) != len(references):
            raise ValueError(f"{len(sources)} sources but {len(references)} references")
        return Corpus(list(sources), list(references), range(1, len(sources) + 1))

    def read(self, source: Path, reference: Path | None = None) -> Corpus:
        layout = TextData(format=self.data.format if reference is None else None)
        corpus = to_measure(read_pairs(source, reference, layout), layout)
        if not len(corpus):
            raise DataError(f"{source} is empty: nothing to evaluate on")
        return corpus
