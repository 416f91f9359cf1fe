"""Tasks on text: batches of tokens, lines read from files, and from a line of text to a line."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import pydantic
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from foveate.config import Config
from foveate.data.batches import BatchPlan, Mixture, pad, sorted_batches, source_batch
from foveate.data.catalogue import DataError
from foveate.data.corpus import content_of, learn_tokenizer, prepare_ids, prepare_texts, sample
from foveate.data.report import report
from foveate.data.text import (
    SKIPPED,
    Corpus,
    Pair,
    Reading,
    TextData,
    TokenIds,
    collect,
    ending_of,
    joined,
    keep,
    read_pairs,
    taken,
    to_measure,
)
from foveate.data.tokenizer import BOS, BPE, EOS, TextSides, Tokenizer, bare, tagged
from foveate.decode.engine import SearchRequest, best
from foveate.decode.search import Search
from foveate.errors import UserError
from foveate.models.encoder_decoder import Writer
from foveate.tasks.abilities import Generates, Scores, Vocabulary
from foveate.tasks.base import (
    Batch,
    Loss,
    Measures,
    TensorBatch,
    ValidationSample,
    by_split,
    of_nll,
    spread,
)
from foveate.tasks.engine import TorchEngine
from foveate.tasks.metrics import (
    METRICS,
    SLOW,
    BleuTokenizer,
    MetricName,
    check_tokenizer,
    figures_of,
)
from foveate.tasks.objectives import CrossEntropy, token_loss

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


class CorpusFiles(Config):
    """One of several corpora; ``source`` and ``target`` as in a task with one.

    ``weight`` is its share relative to the others, its number of pairs if absent. ``tag`` is put
    before its sources, a piece of its own: ``<2fr>`` asks for French (Johnson et al., 2017). A
    corpus without ``{split}`` in its name, beside others that have it, is for training alone.
    """

    source: str  # file of the sources, or of both sides (TSV, JSONL)
    target: str | None = None  # file of the targets, line by line
    weight: float | None = Field(default=None, gt=0)
    """Share of its pairs in training, relative to the other corpora."""
    tag: str | None = Field(default=None, pattern=r"^<2[^<>\s]+>$")
    """Token before each source that names the target language: <2fr>."""


class Tagged(Reading):
    """The pairs of a split of one corpus, the sources behind its tag."""

    def __init__(self, part: CorpusFiles, split: str, config: TextData) -> None:
        super().__init__(part.source, part.target, split, config)
        self.tag = part.tag

    def changed(self, pair: Pair) -> Pair:
        line, source, target = pair
        return line, tagged(source, self.tag), target

    def key(self) -> dict[str, object]:
        return {"tag": self.tag, **super().key()}


# Pairs of texts with their ids, and which of them training takes.

Sides = tuple[Sequence[Ids], ...]  # of the source and of the target


@dataclass(frozen=True)
class Examples:
    """Pairs with their ids. ``rows`` are their places in the corpus as it was read, None if all
    are here.
    """

    corpus: Corpus
    sources: Sequence[Ids]
    targets: Sequence[Ids]
    rows: NDArray[np.integer] | None = None

    def trainable(self, config: TextData) -> Examples:
        """The examples whose lengths training takes; the corpus counts the others."""
        rows, dropped = keep(lengths_of(self.sources, self.targets), config)
        if not dropped:
            return self
        sides = taken(self.sources, rows), taken(self.targets, rows)
        return Examples(self.corpus.take(rows, dropped), *sides, rows.astype(np.uint32))

    def row(self, index: int) -> int:
        """Return the row of an example in the corpus as it was read."""
        return index if self.rows is None else int(self.rows[index])


def mean_nll(
    task: Any, model: Writer, split: str, lengths: NDArray[np.int32], batch_tokens: int
) -> float:
    """Mean −log p of a token of a split, all that is read being true."""
    plain = CrossEntropy.Config(label_smoothing=0.0).build()
    total, count = 0.0, 0
    for indices in sorted_batches(lengths, batch_tokens):
        batch = task.decoder_batch(model, task.batch(split, indices.tolist()))
        loss = token_loss(model, batch, plain)
        total, count = total + float(loss.logged["nll"]), count + loss.count
    return total / max(count, 1)


class TextToText(TextTask[Batch], Generates[str], Scores):
    """A line of text for a line of text; a subclass says how they are modelled."""

    class Config(TextTask.Config):
        """The pairs and their tokenizers.

        ``source`` and ``target`` name line-aligned files with ``{split}`` for train, valid, test;
        without ``target``, ``source`` is one TSV or JSONL file that holds both sides, or a file of
        ``data.format``. ``target_tokenizer`` is that of the target where it is of another kind.
        ``corpora`` in place of ``source`` are several such pairs, each with a weight and a tag.
        ``bleu_tokenizer`` cuts the words that BLEU counts; absent, the references' script decides.
        """

        source: str | None = None
        """File of the sources, or of both sides (TSV, JSONL), with {split}."""
        target: str | None = None  # file of the targets, line by line
        tokenizer: Tokenizer.Config = BPE.Config()
        """Of the source, and of the target where it has none of its own."""
        target_tokenizer: Tokenizer.Config | None = None  # of the target, where it differs
        corpora: tuple[CorpusFiles, ...] = ()  # several corpora instead of source and target
        joint: bool = True  # one vocabulary for both sides, which a model may then tie
        metrics: tuple[MetricName, ...] = ("bleu", "chrf", "ter", "exact_match")
        """What outputs are measured by: bleu, chrf, ter, wer, …."""
        bleu_tokenizer: BleuTokenizer | None = None  # by the references' script where absent

        @pydantic.model_validator(mode="after")
        def _source_or_corpora(self) -> Self:
            if self.joint and self.target_tokenizer is not None:
                raise UserError("a target_tokenizer needs joint = false: two vocabularies")
            if (self.source is None) == (not self.corpora):
                raise UserError("needs either source or corpora: where the pairs lie")
            return self

        def parts(self) -> tuple[CorpusFiles, ...]:
            """The corpora, also where there is one."""
            if self.source is None:
                return self.corpora
            return (CorpusFiles(source=self.source, target=self.target),)

        def tags(self) -> list[str]:
            """The tags of the corpora, each once."""
            return list(dict.fromkeys(part.tag for part in self.parts() if part.tag))

    figures = ("loss", "perplexity", *(name for name in METRICS if name not in SLOW))
    config: Config
    folder = Path()  # of the run, from `prepare` or `restore`
    tokenizers: tuple[Tokenizer, ...] = ()  # of sources and of targets, from there too

    def prepare(self, folder: Path, seed: int) -> None:
        self.folder = folder
        check_tokenizer(self.config.bleu_tokenizer)
        if not self.tokenizers:
            self.tokenizers = self._train(seed)
        source, target = self.tokenizers
        source.save(folder / "source.tokenizer.json")
        target.save(folder / "target.tokenizer.json")

    def _train(self, seed: int) -> tuple[Tokenizer, Tokenizer]:
        tags = self.config.tags()
        sources, targets = self._learnt_from(tags, seed)
        if self.config.joint:
            source = target = learn_tokenizer(
                self.config.tokenizer, lambda: chain(sources, targets)
            )
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
        source, target = self.tokenizers
        further = list(dict.fromkeys([*tags, *self.config.tags()]))
        if self.config.joint or source.paired:
            sides = ([*chain(*sides)],) * 2
        source.extend(sides[0], self.config.tokenizer)
        source.add_tags(further)
        if not self.config.joint:
            target.extend(sides[1], self.config.target_tokenizer or self.config.tokenizer)
            if source.paired:
                target.add_tags(further)

    def pieces(self) -> dict[str, list[str]]:
        source, target = self.tokenizers
        return {"encoder": source.pieces, "decoder": target.pieces, "output": target.pieces}

    def restore(self, folder: Path) -> None:
        self.folder = folder
        source = Tokenizer.load(folder / "source.tokenizer.json")
        target = folder / "target.tokenizer.json"
        self.tokenizers = source, source if self.config.joint else Tokenizer.load(target)

    @property
    def source_tokenizer(self) -> Tokenizer:
        return self.tokenizers[0]

    @property
    def target_tokenizer(self) -> Tokenizer:
        return self.tokenizers[1]

    @property
    def sides(self) -> TextSides:
        source, target = self.tokenizers
        return TextSides(source, target, self.data.format, self.data.max_length)

    def tokenizers_by_name(self) -> dict[str, Tokenizer]:
        return {"source": self.source_tokenizer, "target": self.target_tokenizer}

    def readings(self, split: str) -> list[Reading]:
        parts = self.config.parts()
        if split != "train" and not self.data.holdout:  # of several, one may be for training alone
            parts = tuple(part for part in parts if "{split}" in part.source) or parts
        return [Tagged(part, split, self.data) for part in parts]

    @by_split
    def _ids(self, split: str) -> Sides:
        """The ids of both sides of the pairs of `corpus`."""
        return tuple(self.encoded(split, self.tokenizers_by_name()))

    @by_split
    def tokens(self, split: str) -> Examples:
        """The pairs of a split with their ids, in training without those of bad lengths."""
        sources, targets = self._ids(split)
        examples = Examples(self.corpus(split), sources, targets)
        return examples.trainable(self.data) if split == "train" else examples

    def lengths(self, split: str) -> NDArray[np.int32]:
        examples = self.tokens(split)
        return self.sizes(examples.sources, examples.targets)

    def target_counts(self, split: str) -> NDArray[np.int32]:
        ends = 1 + (self.target_tokenizer.certain > 0)  # its opening counts too
        return lengths_of(self.tokens(split).targets)[:, 0] + np.int32(ends)

    def sizes(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> NDArray[np.int32]:
        """(N, sides) numbers of tokens that a batch has of each pair, ends included."""
        return lengths_of(sources, targets) + 1 + (self.target_tokenizer.certain > 0)

    def plan(self, lengths: NDArray[np.int32], batch_tokens: int, seed: int) -> BatchPlan | Mixture:
        parts, numbers = self.config.parts(), self.tokens("train").corpus.parts
        if numbers is None:
            return super().plan(lengths, batch_tokens, seed)
        sizes = np.bincount(numbers, minlength=len(parts)).tolist()
        weights = [p.weight or size for p, size in zip(parts, sizes, strict=True)]
        return Mixture(lengths, batch_tokens, seed, numbers, weights)

    def describe_data(self) -> list[str]:
        """The report on the data in short: what is there, what is odd, what is dropped and why."""
        corpora = {"train": self.corpus("train")}
        for split in ("valid", "test"):
            with contextlib.suppress(DataError):  # a run may do without
                corpora[split] = self.corpus(split)
        sizes = [f"{t.vocab_size:,} {t.config.kind}" for t in dict.fromkeys(self.tokenizers)]
        done = {"drop_duplicates": False, "drop_identical": False}  # when they were read
        tokens = {split: lengths_of(*self._ids(split)) for split in corpora}
        summary = report(corpora, self.data.model_copy(update=done), tokens)
        vocabulary = " and ".join(sizes), len(corpora["train"]), "pairs"
        return [*summary.lines(), vocabulary_line(self.data, *vocabulary)]

    @torch.inference_mode()
    def measure(self, model: Any, split: str, search: Search, samples: int = 3) -> Measures:
        examples = self.tokens(split)
        corpus, sources, targets = examples.corpus, examples.sources, examples.targets
        nll = mean_nll(self, model, split, lengths_of(sources, targets) + 1, 4096)
        prefixes = self.target_tokenizer.begun(corpus.sources)
        request = SearchRequest(search, prefixes, batch_tokens=4096 * search.width)
        results = TorchEngine(self, model).outputs(sources, request)
        outputs = [self.target_tokenizer.decode(best(hypotheses).ids) for hypotheses in results]
        names = [name for name in self.config.metrics if name not in SLOW]
        figures, _ = figures_of(outputs, corpus.references, names, self.config.bleu_tokenizer)
        shown = spread(len(outputs), samples)
        return Measures(
            of_nll(nll) | figures,
            [ValidationSample(corpus.sources[i], corpus.targets[i], outputs[i]) for i in shown],
        )

    def encode(self, inputs: Sequence[str]) -> list[Ids]:
        return [ids[: self.data.max_length] for ids in self.sides.read_ids(inputs)]

    def force(self, model: nn.Module, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
        """Log p of each token of each given target, its end included."""
        log_p: list[list[float]] = [[] for _ in pairs]
        sizes = self.sizes([s for s, _ in pairs], [t for _, t in pairs])
        for indices in sorted_batches(sizes, 4096):
            rows = self._log_p(model, [pairs[i] for i in indices])
            for i, row in zip(indices.tolist(), rows, strict=True):
                log_p[i] = row
        return log_p

    def loss(self, model: Any, batch: Batch, objective: CrossEntropy) -> Loss:
        """Return the loss of what the decoder predicts, for `Objective.loss`, which calls this."""
        return token_loss(model, self.decoder_batch(model, batch), objective)

    @abstractmethod
    def _log_p(self, model: Any, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
        """`force` of one batch."""

    @property
    def output_tokenizer(self) -> Tokenizer:
        return self.target_tokenizer


AnyTextToText = TextToText[Any]
