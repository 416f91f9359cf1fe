"""Pairs of texts as data: files, tokenizers, lengths, batches. Knows no model."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import pydantic
from numpy.typing import NDArray

from foveate.data.mixture import Mixture
from foveate.data.prepared import (
    PreparedCorpus,
    learn_tokenizer,
    prepare_ids,
    prepare_texts,
    sample,
)
from foveate.data.report import report
from foveate.data.text import (
    Corpus,
    DataError,
    TextData,
    collect,
    read_pairs,
    to_measure,
)
from foveate.data.tokenizer import BPE, UNK, Tokenizer
from foveate.tasks.base import Task
from foveate.tasks.corpora import Part, Tagged, bare, join, tagged
from foveate.tasks.examples import Examples, Sides
from foveate.tasks.metrics import LOWER_IS_BETTER, known_metrics
from foveate.tasks.text_batch import Ids, TextBatch, collate, lengths_of


class PairTask(Task[TextBatch]):
    """Lines of text in, lines of text out; how they are modelled is up to who derives from it."""

    class Config(Task.Config):
        """Where the pairs lie and how they become tokens.

        ``source`` and ``target`` name line-aligned files with ``{split}`` for train, valid, test;
        without ``target``, ``source`` is one TSV or JSONL file that holds both sides, or a file of
        ``data.format``. ``target_tokenizer`` is that of the target where it is of another kind.
        ``corpora`` in place of ``source`` are several such pairs, each with a weight and a tag.
        """

        source: str | None = None
        target: str | None = None
        tokenizer: Tokenizer.Config = BPE.Config()
        target_tokenizer: Tokenizer.Config | None = None
        corpora: tuple[Part, ...] = ()
        joint: bool = True  # one vocabulary for both sides, which a model may then tie
        metrics: tuple[str, ...] = ("bleu", "chrf", "ter", "exact_match")

        @pydantic.model_validator(mode="after")
        def _one_or_two(self) -> Self:
            if self.joint and self.target_tokenizer is not None:
                raise ValueError("a target_tokenizer needs joint = false: two vocabularies")
            if (self.source is None) == (not self.corpora):
                raise ValueError("needs either source or corpora: where the pairs lie")
            return self

        def parts(self) -> tuple[Part, ...]:
            """The corpora, also where there is one."""
            if self.source is None:
                return self.corpora
            return (Part(source=self.source, target=self.target),)

        def tags(self) -> list[str]:
            """The tags of the corpora, each once."""
            return list(dict.fromkeys(part.tag for part in self.parts() if part.tag))

        @pydantic.field_validator("metrics")
        @classmethod
        def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
            return known_metrics(names)

    config: Config

    def __init__(self, config: Config, data: TextData) -> None:
        self.config, self.data = config, data
        self.tokenizers: tuple[Tokenizer, Tokenizer] | None = None
        self.folder = Path()  # of the run
        self._read: dict[str, Corpus] = {}
        self._encoded: dict[str, Sides] = {}
        self._examples: dict[str, Examples] = {}

    # ---- data

    def prepare(self, folder: Path, seed: int) -> None:
        self.folder = folder
        if self.tokenizers is None:
            self.tokenizers = self._train(seed)
        source, target = self.tokenizers
        source.save(folder / "source.tokenizer.json")
        target.save(folder / "target.tokenizer.json")

    def _train(self, seed: int) -> tuple[Tokenizer, Tokenizer]:
        tags = self.config.tags()
        sources, targets = self._learnt_from(tags, seed)
        if self.config.joint:
            source = learn_tokenizer(self.config.tokenizer, lambda: chain(sources, targets))
            target = source
        else:
            config = self.config.target_tokenizer or self.config.tokenizer
            source = learn_tokenizer(self.config.tokenizer, lambda: sources, "source tokenizer")
            target = learn_tokenizer(config, lambda: targets, "target tokenizer")
        source.add_tags(tags)
        return source, target

    def _learnt_from(self, tags: Sequence[str], seed: int) -> tuple[Sequence[str], Sequence[str]]:
        """The sources without tags and the targets that tokenizers see."""
        corpus = self.corpus("train")
        some = corpus.take(sample(len(corpus), self.data.tokenizer_sample, seed))
        return [bare(text, tags) for text in some.sources] if tags else some.sources, some.targets

    def inherit(self, run: Path) -> None:
        self.restore(run)

    def extend(self) -> None:
        tags = list(self.source_tokenizer.tags)
        sides = self._learnt_from(tags, 0)
        source, target = self._both()
        source.extend(chain(*sides) if self.config.joint else sides[0], self.config.tokenizer)
        if not self.config.joint:
            target.extend(sides[1], self.config.target_tokenizer or self.config.tokenizer)
        source.add_tags(list(dict.fromkeys([*tags, *self.config.tags()])))

    def pieces(self) -> dict[str, list[str]]:
        source, target = self._both()
        return {"encoder": source.pieces, "decoder": target.pieces, "output": target.pieces}

    def restore(self, folder: Path) -> None:
        self.folder = folder
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
        """The pairs of a split as text, without those that the config drops.

        Those of the training split stay in files and are read when they are asked for.
        """
        if split not in self._read:
            readings = [Tagged(part, split, self.data) for part in self.config.parts()]
            self._read[split] = (
                prepare_texts(readings) if split == "train" else join(list(map(collect, readings)))
            )
        return self._read[split]

    def _ids(self, split: str) -> Sides:
        """The ids of both sides of the pairs of `corpus`."""
        if split not in self._encoded:
            corpus, (source, target) = self.corpus(split), self._both()
            if isinstance(corpus, PreparedCorpus):
                sides = {"source": source, "target": target}
                self._encoded[split] = tuple(prepare_ids(corpus.folder, sides))
            else:
                self._encoded[split] = (
                    source.encode_ids(corpus.sources),
                    target.encode_ids(corpus.targets),
                )
        return self._encoded[split]

    def _tokens(self, split: str) -> Examples:
        """The pairs of a split with their ids, in training without those of bad lengths."""
        if split not in self._examples:
            sources, targets = self._ids(split)
            examples = Examples(self.corpus(split), sources, targets)
            self._examples[split] = examples.kept(self.data) if split == "train" else examples
        return self._examples[split]

    def lengths(self, split: str) -> NDArray[np.int32]:
        examples = self._tokens(split)
        return lengths_of(examples.sources, examples.targets) + 1

    def batch(self, split: str, indices: Sequence[int], noise: int = 0) -> TextBatch:
        examples = self._tokens(split)
        corpus = examples.corpus
        sides = [[ids[i] for i in indices] for ids in (examples.sources, examples.targets)]
        texts = corpus.sources, corpus.targets
        for side, tokenizer in enumerate(self._both() if split == "train" else ()):
            if tokenizer.noisy:
                drawn = tokenizer.encode_noisy(
                    [texts[side][i] for i in indices], [(noise, side, i) for i in indices]
                )
                both = zip(drawn, sides[side], strict=True)
                sides[side] = [d if len(d) <= self.data.max_length else ids for d, ids in both]
        return collate(*sides)

    def plan(self, lengths: NDArray[np.int32], batch_tokens: int, seed: int) -> Any:
        parts, numbers = self.config.parts(), self._tokens("train").corpus.parts
        if numbers is None:
            return super().plan(lengths, batch_tokens, seed)
        sizes = np.bincount(numbers, minlength=len(parts)).tolist()
        weights = [p.weight or size for p, size in zip(parts, sizes, strict=True)]
        return Mixture(lengths, batch_tokens, seed, numbers, weights)

    def addressed(self, lines: Sequence[str], to: str | None = None) -> list[str]:
        """Lines behind the tag that asks for a language, such as "fr" for ``<2fr>``.

        Raw lines of the run's ``data.format`` become sources. Raises ``ValueError`` where a line is
        neither, where the run has no such tag, or needs one and a line has none.
        """
        if self.data.format is not None:
            lines = list(map(self.data.format.build().source, lines))
        tags = self.source_tokenizer.tags
        known = ", ".join(tag[2:-1] for tag in tags) or "none, this run has one pair of languages"
        if to is not None:
            if f"<2{to}>" not in tags:
                raise ValueError(f"no language {to!r} to translate to; there are: {known}")
            return [tagged(line, f"<2{to}>") for line in lines]
        plain = (line for line in lines if line.strip() and not line.startswith(tuple(tags)))
        if tags and next(plain, None) is not None:
            raise ValueError(f"this run translates to several languages; name one (to): {known}")
        return list(lines)

    def beginnings(self, prefix: str | Sequence[str], count: int) -> list[Ids]:
        """The ids with which the outputs of ``count`` lines begin: one text for all, or for each.

        White space at its end is left out: a word that follows brings its own. Raises
        ``ValueError`` where there are not as many as lines, or one holds what no output can.
        """
        texts = [prefix] * count if isinstance(prefix, str) else list(prefix)
        if len(texts) != count:
            raise ValueError(f"{len(texts)} prefixes for {count} lines; give one for each, or one")
        found = self.target_tokenizer.encode_ids([text.rstrip() for text in texts])
        for text, ids in zip(texts, found, strict=True):
            if UNK in ids:
                raise ValueError(f"the prefix {text!r} holds what is not in the target vocabulary")
        return found

    def describe_data(self) -> list[str]:
        """The report on the data in short: what is there, what is odd, what is dropped and why."""
        corpora = {"train": self.corpus("train")}
        for split in ("valid", "test"):
            with contextlib.suppress(DataError):  # a run may do without
                corpora[split] = self.corpus(split)
        sizes = [f"{t.vocab_size:,} {t.config.kind}" for t in dict.fromkeys(self._both())]
        done = {"drop_duplicates": False, "drop_identical": False}  # when they were read
        tokens = {split: lengths_of(*self._ids(split)) for split in corpora}
        found = report(corpora, self.data.model_copy(update=done), tokens)
        seen, pairs = self.data.tokenizer_sample, len(corpora["train"])
        some = f", learnt from {seen:,} of {pairs:,} pairs" if seen < pairs else ""
        return [*found.lines(), f"vocabulary: {' and '.join(sizes)} pieces{some}"]

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
