"""Abilities of some tasks: abstract classes that they inherit beside `foveate.tasks.base.Task`.

`foveate.run.Run.need` asks a run for one; ``issubclass`` asks the class of a config, so that lists
of runs need not load them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from foveate.data.tokenizer import BOS, EOS, PAD, SPECIALS, TextSides, Tokenizer
from foveate.decode.beam import another
from foveate.decode.constraints import DecodingBatch
from foveate.decode.engine import Module, SearchRequest, Source
from foveate.decode.search import Search
from foveate.errors import UserError
from foveate.tasks.base import AnyTask, Batch, DecoderBatch, Task

Input = TypeVar("Input")  # of one example: a line, a picture, a date

NO_PIECES = "supports neither another vocabulary nor ensembles"
NEAR = 8  # tokens before one that decide how it is written


class Generates(ABC, Generic[Input]):
    """Writes text token by token; ``silent`` tokens leave no trace in it."""

    continues: ClassVar[bool] = False  # outputs continue their sources
    silent: ClassVar[frozenset[int]] = frozenset((PAD, BOS, EOS))
    start: int = BOS
    end: int = EOS

    @property
    @abstractmethod
    def output_tokenizer(self) -> Tokenizer:
        """The tokenizer of what is written."""

    @abstractmethod
    def target_counts(self, split: str) -> NDArray[np.int32]:
        """Return how many tokens of each example of a split the loss counts, (N,)."""

    @abstractmethod
    def encode(self, inputs: Sequence[Input]) -> Sequence[Source]:
        """Return what an engine reads of each input: ids, or pixels; nothing for an empty one."""

    @abstractmethod
    def decoding_batches(
        self, model: Module, sources: Sequence[Source], request: SearchRequest
    ) -> Iterator[DecodingBatch]:
        """The sources that are not empty, in batches that are decoded together."""

    @abstractmethod
    def decoder_batch(self, model: Module, batch: Any) -> DecoderBatch:
        """Encode the source; return what the decoder reads and predicts in a batch of the task."""

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
        return self.output_tokenizer.beginnings(text, 1)[0]

    def token_text(self, ids: Sequence[int], token: int) -> str:
        """Return the text that a token adds to the ids before it, including the space before it."""
        if token < len(SPECIALS):
            return self.output_tokenizer.name(token)
        near = [*ids[-NEAR:], token]
        start, end = self.output_tokenizer.spans(near)[-1]
        return self.output_tokenizer.decode(near)[start:end]

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of an output."""
        return self.output_tokenizer.decode(list(ids))

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        """Return the text that each token adds; together they are the text of all.

        A character that several tokens make stands with the first of them.
        """
        text = self.output_tokenizer.decode(list(ids))
        starts = [start for start, _ in self.output_tokenizer.spans(list(ids))] + [len(text)]
        return [text[a:b] for a, b in pairwise(starts)]


class Scores(ABC):
    """Gives log p(target | source) of any pair of texts."""

    @property
    @abstractmethod
    def sides(self) -> TextSides:
        """The texts: tokenizers, layout and length."""

    @abstractmethod
    def force(
        self, model: Module, pairs: Sequence[tuple[list[int], list[int]]]
    ) -> list[list[float]]:
        """Log p of each token of each target, its end included."""


HeadChoice = tuple[int, int | None, Literal["produced", "read"]]  # layer, head, rows


class Aligns:
    """Attends from the words of a target to those of its source, so that they can be linked.

    ``head`` is the attention that links are read from unless the run has saved another
    (`foveate.engine.links.Head`); ``folder`` is that of the run.
    """

    folder: Path
    head: HeadChoice = (-1, None, "produced")  # the mean of the heads of the last layer


class Vocabulary(Task[Batch]):
    """Has tables of tokens, which another run can share or begin with."""

    def inherit(self, run: Path) -> None:
        """Take the tokenizers of another run; `prepare` then writes these and trains none.

        Raises `UserError` if the run has none that fit.
        """
        raise UserError(f"the task {self.config.kind} cannot start from another run: {run}")

    def extend(self) -> None:
        """Add tokens of the training data to the tokenizers that were inherited."""
        raise UserError(f"the task {self.config.kind} cannot extend a vocabulary; take the same")

    def pieces(self) -> dict[str, list[str]]:
        """Return the tokens of each part of the model that has a table of them, by their ids."""
        raise UserError(f"the task {self.config.kind} {NO_PIECES}")


def vocabulary_of(task: AnyTask) -> Vocabulary[Any]:
    """Return a task as one that has a vocabulary. Raises `UserError` if it has none."""
    if isinstance(task, Vocabulary):
        return task
    raise UserError(f"the task {task.config.kind} {NO_PIECES}")


class Classifies:
    """Gives one of a fixed set of labels."""

    label_names: tuple[str, ...] = ()  # in the order of the model's outputs
