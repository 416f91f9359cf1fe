"""What a task is to the trainer, to views and to servers: batches, a loss, measures, answers.

The trainer sees only `Task`: lengths to plan batches, a batch by its indices, a `Loss` of sums, and
measures by name. What only some tasks do is an abstract base class that they inherit: `Generates`,
`Scores`, `Aligns`, `Classifies`. `foveate.run.Run.need` asks a run for one; ``issubclass`` asks the
class of a config, so that lists of runs need not load them.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.align.aer import Head, Links, Rows
from foveate.answers import Answer
from foveate.config import BaseConfig, ConfigError, Configurable
from foveate.data.batches import BatchPlan, Mixture
from foveate.data.text import TextData
from foveate.data.tokenizer import BOS, EOS, PAD, SPECIALS, Tokenizer
from foveate.data.words import split_words
from foveate.decode.beam import Greedy, another
from foveate.decode.search import Search
from foveate.engine.base import Engine, Module, SearchRequest, Source
from foveate.engine.packed import TaskKind
from foveate.engine.pytorch import DecodingBatch, TorchEngine
from foveate.errors import UserError, check_finite
from foveate.inspect.hooks import ForcedPass
from foveate.inspect.records import AttentionRecord, Units
from foveate.models.encoder_decoder import Memory

Input = TypeVar("Input")  # of one example: a line, a picture, a date
AnswerType = TypeVar("AnswerType", bound=Answer)  # to one input
Batch = TypeVar("Batch")
Reads = Literal["text", "picture", "series"]
Gives = Literal["text", "label", "words", "forecast"]


@dataclass(frozen=True)
class TensorBatch:
    """Tensors of some examples, by their names; those that are not needed are None."""

    def to(self, device: torch.device) -> Self:
        """The same on a device."""
        tensors = {name: t if t is None else t.to(device) for name, t in vars(self).items()}
        return replace(self, **tensors)


@dataclass(frozen=True)
class DecoderBatch:
    """What a decoder reads, ``gold`` (B, T), and predicts, ``target`` (B, T) the token after each.

    ``real`` are the flat places that count, all where None; ``memory`` is that of the source, and
    the first ``prompt`` places, of all or of each row (B, 1), are read and never predicted.
    """

    gold: Tensor
    target: Tensor
    real: Tensor | None = None
    memory: Memory | None = None
    prompt: int | Tensor = 1


def spread(count: int, most: int) -> range:
    """At most so many numbers from 0 to ``count``, evenly."""
    return range(0, count, max(1, count // max(1, most)))[:most]


@dataclass(frozen=True)
class Loss:
    """A sum and the number of terms in it, never a mean: parts then add up exactly.

    ``total`` is what is minimised (a scalar with a graph, summed over ``count`` targets);
    ``logged`` are further sums over the same terms, such as the unsmoothed ``nll``.
    """

    total: Tensor
    count: int
    logged: dict[str, Tensor] = field(default_factory=dict)


def of_nll(nll: float) -> dict[str, float]:
    """The figures of −log p of a token, in nats: the loss, and exp of it."""
    return {"loss": nll, "perplexity": float(np.exp(min(nll, 700.0)))}


@dataclass(frozen=True)
class ValidationSample:
    """One example as text: the input, the reference and the output."""

    source: str
    reference: str
    output: str


@dataclass(frozen=True)
class Measures:
    """Figures of a validation by name, such as ``{"loss": 1.2, "bleu": 31.5}``, and samples."""

    figures: dict[str, float]
    samples: list[ValidationSample] = field(default_factory=list)


WIDEST, LARGEST = 20, 15  # columns of a table that is printed whole; cells of one that is not


@dataclass(frozen=True)
class Table:
    """Numbers with names for rows and columns, such as a confusion matrix."""

    title: str
    rows: list[str]
    columns: list[str]
    cells: Sequence[Sequence[float]]

    def lines(self) -> list[str]:
        """The table as text; of one with more than `WIDEST` columns the largest cells off the
        diagonal, which of a confusion matrix are the labels that are most often mistaken.
        """
        if len(self.columns) > WIDEST:
            cells = {
                f"{row} → {column}": cell
                for row, cells in zip(self.rows, self.cells, strict=True)
                for column, cell in zip(self.columns, cells, strict=True)
                if row != column and cell
            }
            most = sorted(cells, key=lambda name: -cells[name])[:LARGEST]
            heading = f"{self.title}: the largest {len(most)} off the diagonal (--json prints all)"
            return [heading] + [f"{cells[name]:>6}  {name}" for name in most]
        table = [self.columns, *([str(cell) for cell in row] for row in self.cells)]
        width = max((len(cell) for row in table for cell in row), default=0)
        left = max(map(len, self.rows), default=0)
        names = ["", *self.rows]
        return [self.title] + [
            f"{name:<{left}}  " + " ".join(f"{cell:>{width}}" for cell in row)
            for name, row in zip(names, table, strict=True)
        ]


@dataclass(frozen=True)
class Baseline:
    """Figures of a method of seconds; ``about`` names it, or says why there are none.

    ``better`` are those in which it is better than the model.
    """

    about: str
    figures: dict[str, float] = field(default_factory=dict)
    better: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Against:
    """Another run on the same examples: its figures, and p of the difference by paired bootstrap.

    Metrics without a paired test, such as error rates of whole corpora, are left out.
    """

    run: str
    figures: dict[str, float]
    p: dict[str, float]


@dataclass(frozen=True)
class Evaluation:
    """Figures by name with the signatures of their libraries, and one output for each example.

    ``noted`` lists the examples (from 1) of each event, such as sources that were cut; ``baseline``
    is of the same examples, where it was asked for and the task has one; ``against``, another run.
    """

    figures: dict[str, float]
    signatures: dict[str, str]
    outputs: list[str] = field(repr=False)
    noted: dict[str, list[int]] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    baseline: Baseline | None = None
    against: Against | None = None

    def __post_init__(self) -> None:
        """Raise `NoOutputError` where a loss or an error is not finite."""
        for name in ("loss", "perplexity", "bits_per_character", "mse", "mae"):
            check_finite(self.figures.get(name, 0.0), f"no {name}")


class Task(Configurable, ABC, Generic[Input, AnswerType, Batch]):
    """A problem: data in, batches and losses out, and words for what the model did."""

    class Config(BaseConfig, family="task"):
        """Which problem, and where its data lies."""

        @property
        def default_objective(self) -> str:
            """The kind of the objective where a run's config has no ``[objective]``."""
            return "cross_entropy"

        def check_objective(self, objective: BaseConfig) -> None:
            """Raise ``ConfigError`` with the remedy where the task cannot learn by an objective."""
            if getattr(objective.owner, "numeric", False):
                raise ConfigError(
                    f"{objective.kind!r} compares numbers, which {self.kind} does not give; "
                    f'write "{self.default_objective}", or leave out [objective]',
                    ("objective", "kind"),
                )

    config: Config
    data: TextData
    figures: ClassVar[tuple[str, ...]] = ("loss",)  # of a validation; ``train.save.best`` names one
    own_outputs: ClassVar[bool] = False  # whether ``objective.teacher_forcing`` is heeded
    packs_as: ClassVar[TaskKind | None] = None  # of this class alone: others may decode otherwise
    reads: ClassVar[Reads] = "text"
    gives: ClassVar[Gives] = "text"

    def __init__(self, config: Config, data: TextData) -> None:
        """``data`` says how text is read and divided."""
        self.config, self.data = config, data

    @abstractmethod
    def prepare(self, folder: Path, seed: int) -> None:
        """Read the training data and train what the data decides (tokenizers), into ``folder``.

        Called once for a new run; afterwards `restore` reads what was written.
        """

    @abstractmethod
    def restore(self, folder: Path) -> None:
        """Read tokenizers and the like from a run, without touching the training data."""

    def inherit(self, run: Path) -> None:
        """Take the tokenizers of another run; `prepare` then writes these and trains none.

        Raises `UserError` where the task cannot, or the run has none that fit.
        """
        raise UserError(f"the task {self.config.kind} cannot start from another run: {run}")

    def extend(self) -> None:
        """Add tokens of the training data to the tokenizers that were inherited.

        Raises `UserError` where the task or its tokenizers cannot.
        """
        raise UserError(f"the task {self.config.kind} cannot extend a vocabulary; take the same")

    def pieces(self) -> dict[str, list[str]]:
        """The tokens of each part of the model that has a table of them, by their ids."""
        raise UserError(
            f"the task {self.config.kind} supports neither another vocabulary nor ensembles"
        )

    def tokenizers_by_name(self) -> dict[str, Tokenizer]:
        """The tokenizers of "source" and "target", or of "text"; the first is of what is read."""
        return {}

    @abstractmethod
    def lengths(self, split: str) -> NDArray[np.int32]:
        """Number of tokens of each side of each example of a split: (N, sides)."""

    @abstractmethod
    def batch(self, split: str, indices: Sequence[int], noise: int = 0) -> Batch:
        """The examples of the given indices as tensors; ``noise`` seeds what is random in them."""

    def digest(self, split: str) -> str:
        """A hash of all examples of a split, by which a run that goes on knows its data.

        This one makes every batch; a task with much data has a cheaper one.
        """
        content, count = hashlib.sha256(), len(self.lengths(split))
        for first in range(0, count, 256):
            batch = self.batch(split, range(first, min(first + 256, count)))
            for tensor in [batch] if isinstance(batch, Tensor) else vars(batch).values():
                if isinstance(tensor, Tensor):
                    content.update(tensor.cpu().numpy().tobytes())
        return content.hexdigest()

    def plan(self, lengths: NDArray[np.int32], batch_tokens: int, seed: int) -> BatchPlan | Mixture:
        """Which examples stand together in which batch of which epoch (`foveate.data.batches`)."""
        return BatchPlan(lengths, batch_tokens, seed)

    def describe_data(self) -> list[str]:
        """Lines that say what was read, dropped and why, for the start of training."""
        return []

    @abstractmethod
    def build(self, model: Module) -> nn.Module:
        """The model of a config, with the sizes that the data decides."""

    @abstractmethod
    def loss(self, model: Module, batch: Batch, objective: Any) -> Loss:
        """The loss of one batch, as sums over its targets."""

    @abstractmethod
    def measure(self, model: Module, split: str, search: Search, samples: int = 3) -> Measures:
        """Loss on a split and what users care for (BLEU by free-running decoding, …)."""

    @property
    def packed_kind(self) -> TaskKind | None:
        """What a packed file calls the task; None where the engine in C does not know it."""
        return vars(type(self)).get("packs_as")

    def reach(self, model: Module) -> int | None:
        """How many tokens of a text the model may read at once; None for any number."""
        return None

    def engine(self, model: Module) -> TorchEngine:
        """What searches and scores with a model in PyTorch."""
        return TorchEngine(self, model)

    def answer(
        self, engine: Engine, inputs: Sequence[Input], request: SearchRequest
    ) -> Sequence[AnswerType]:
        """An answer for each input, in order. Raises ``ConfigError`` where the task gives none."""
        raise ConfigError(f"the task {self.config.kind} gives no answers")

    def examples(self, split: str) -> Any:
        """The examples of a split of the run's own data, as `evaluate` wants them."""
        raise NotImplementedError

    def as_examples(self, *columns: Any, **named: Any) -> Any:
        """Examples of the user's own, such as sources and references, as `evaluate` wants them."""
        raise UserError(f"the task {self.config.kind} is evaluated on a split or on files")

    def read(self, source: Path, reference: Path | None = None) -> Any:
        """Examples from files of the user's, as `evaluate` wants them."""
        raise NotImplementedError

    def evaluate(self, engine: Engine, examples: Any, request: SearchRequest) -> Evaluation:
        """All that is measured of a trained model, and its outputs."""
        raise NotImplementedError

    def baseline(self, examples: Any) -> Baseline | None:
        """The figures of a method of seconds, such as one fitted to the training data."""
        return None

    def forced(
        self, model: Module, source: Input, target: Any = None, search: Search | None = None
    ) -> ForcedPass:
        """A forced pass over a source and a target, to look inside the model.

        Without a target, the best output of the search (greedy if None), or the model's answer.
        """
        if target is None:
            target = self.default_target(model, source, search or Greedy.Config().build())
        return self.forced_pass(model, source, target)

    def forced_pass(self, model: Module, source: Input, target: Any) -> ForcedPass:
        """The forced pass of `forced`; the target is that of `default_target` where none is given.

        Raises `UserError` where the task has none.
        """
        raise UserError(f"the task {self.config.kind} has nothing to explain")

    def first_example(self) -> tuple[Any, Any]:
        """Source and target of `forced_pass` for the first example that is not trained on.

        None where the task has one of its own.
        """
        return None, None

    def default_target(self, model: Module, source: Input, search: Search) -> object:
        """The target of a forced pass where none is given: a search's best output, or None."""
        return None

    def explain(
        self,
        model: nn.Module,
        source: Input,
        target: str | list[int] | None = None,
        search: Search | None = None,
        units: Units = "auto",
    ) -> AttentionRecord:
        """The weights of every attention in a forced pass, with labels on both axes."""
        return replace(self.forced(model, source, target, search), units=units).record()

    def better(self, name: str) -> int:
        """+1 where a larger figure is better, -1 where a smaller one is."""
        return -1 if name in ("loss", "perplexity", "ter") else 1


AnyTask = Task[Any, Any, Any]

# What only some tasks do: each class is one thing that a run can be needed for.

NEAR = 8  # tokens before one that decide how it is written
WordMaps = dict[str, NDArray[np.float32]]  # by layer (H, T, S + 1)
Cut = Callable[[str], list[tuple[int, int]]]  # where the words of a text stand


class Generates(ABC, Generic[Input]):
    """Writes text token by token; ``silent`` tokens leave no trace in it."""

    silent: ClassVar[frozenset[int]] = frozenset((PAD, BOS, EOS))
    start: ClassVar[int] = BOS
    end: ClassVar[int] = EOS

    @property
    @abstractmethod
    def output_tokenizer(self) -> Tokenizer:
        """The tokenizer of what is written."""

    @abstractmethod
    def target_counts(self, split: str) -> NDArray[np.int32]:
        """How many tokens of each example of a split the loss counts, (N,)."""

    @abstractmethod
    def encode(self, inputs: Sequence[Input]) -> Sequence[Source]:
        """What an engine reads of each input: ids, or pixels; nothing for an empty one."""

    @abstractmethod
    def decoding_batches(
        self, model: Module, sources: Sequence[Source], request: SearchRequest
    ) -> Iterator[DecodingBatch]:
        """The sources that are not empty, in batches that are decoded together."""

    def decoder_batch(self, model: Module, batch: Any) -> DecoderBatch:
        """What the decoder reads and predicts in a batch of the task, the source being encoded.

        Raises ``ValueError`` where the task does not say so.
        """
        raise ValueError(f"{type(self).__name__} does not say what its decoder reads")

    def search_config(
        self, config: Search.Config, kind: str | None = None, **fields: object
    ) -> Search.Config:
        """A run's search with other fields, or of another kind.

        Raises ``ConfigError`` naming the nearest valid kind or key.
        """
        return another(config, kind, fields)

    def prefix_ids(self, text: str) -> list[int]:
        """The ids of the beginning of an output.

        Raises `UserError` for what no output can hold.
        """
        return self.output_tokenizer.encode_ids([text.rstrip()])[0]

    def token_text(self, ids: Sequence[int], token: int) -> str:
        """What a token adds to the ids before it, the space before it included."""
        if token < len(SPECIALS):
            return SPECIALS[token]
        near = [*ids[-NEAR:], token]
        start, end = self.output_tokenizer.spans(near)[-1]
        return self.output_tokenizer.decode(near)[start:end]

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of an output."""
        return self.output_tokenizer.decode(list(ids))

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        """What each token adds to the text of all; together they are that text.

        A character that several tokens make stands with the first of them.
        """
        text = self.output_tokenizer.decode(list(ids))
        spans = self.output_tokenizer.spans(list(ids))
        starts = [start for start, _ in spans] + [len(text)]
        return [text[a:b] for a, b in pairwise(starts)]


class Scores(ABC):
    """Gives log p(target | source) of any pair of texts."""

    @property
    @abstractmethod
    def source_tokenizer(self) -> Tokenizer:
        """The tokenizer of sources."""

    @property
    @abstractmethod
    def target_tokenizer(self) -> Tokenizer:
        """The tokenizer of targets."""

    def tokenizers_of(self, source: str) -> tuple[Tokenizer, Tokenizer]:
        """The tokenizers of one source and of its targets."""
        return self.source_tokenizer, self.target_tokenizer

    def encode_pairs(
        self, pairs: Sequence[tuple[str, str]]
    ) -> tuple[list[list[int]], list[list[int]]]:
        """The ids of sources and of their targets."""
        sources = self.source_tokenizer.encode_ids([source for source, _ in pairs])
        return sources, self.target_tokenizer.encode_ids([target for _, target in pairs])

    @abstractmethod
    def force(
        self, model: Module, pairs: Sequence[tuple[list[int], list[int]]]
    ) -> list[list[float]]:
        """Log p of each token of each target, its end included."""


class Aligns(ABC):
    """Links the words of pairs by the attention of its model."""

    folder: Path  # of the run, which may have saved a head

    @property
    @abstractmethod
    def head(self) -> Head:
        """The head that links are read from unless the run has saved another."""

    @abstractmethod
    def word_maps(
        self,
        model: Module,
        pairs: Sequence[tuple[str, str | list[int]]],
        rows: Rows = "produced",
        cut: Cut = split_words,
    ) -> Iterator[WordMaps]:
        """For each pair the maps by layer: T target words, S source words and the end."""

    def links(
        self, model: Module, pairs: Sequence[tuple[str, str | list[int]]], head: Head | None = None
    ) -> list[Links]:
        """Word links of pairs by a head, else the one that the run has saved, else its own."""
        chosen = head or Head.load(self.folder, self.head)
        word_maps = self.word_maps(model, pairs, chosen.rows)
        return [chosen.links(maps) if maps else set() for maps in word_maps]


class Classifies:
    """Gives one of a fixed set of labels."""

    label_names: tuple[str, ...] = ()  # in the order of the model's outputs
