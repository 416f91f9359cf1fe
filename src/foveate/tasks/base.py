"""A task is a problem: data, batches, a model, a loss, and the figures of a validation.

What other parts of foveate can do with a task is registered there for its class:
`foveate.run.answering.answer`, `foveate.run.evaluation.evaluate` and
`foveate.run.passes.forced_pass`. What only some tasks can do is in `foveate.tasks.abilities`.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.config import BaseConfig, ConfigError, Configurable
from foveate.data.batches import BatchPlan, Mixture
from foveate.errors import checked

if TYPE_CHECKING:
    from foveate.data.text import TextData
    from foveate.data.tokenizer import Tokenizer
    from foveate.decode.search import Search
    from foveate.models.encoder_decoder import Memory

Module = Any  # a module of PyTorch, of whatever family a task builds
Batch = TypeVar("Batch")
S = TypeVar("S")
T = TypeVar("T")
Reads = Literal["text", "picture", "series"]
Gives = Literal["text", "label", "words", "forecast"]
LOWER_IS_BETTER = {  # of all figures
    *("loss", "perplexity", "bits_per_character", "ter", "wer", "per"),
    *("mse", "mae", "mase", "original_mse", "original_mae", "crps"),
}


@dataclass(frozen=True)
class TensorBatch:
    """Tensors of some examples, by their names; those that are not needed are None."""

    def to(self, device: torch.device) -> Self:
        """The same on a device, which copies while the host goes on."""
        tensors = {name: t for name, t in vars(self).items() if t is not None}
        return replace(self, **{k: t.to(device, non_blocking=True) for k, t in tensors.items()})


@dataclass(frozen=True)
class DecoderBatch(TensorBatch):
    """The ``inputs`` (B, T) that a decoder reads, and the ``targets`` (B, T): the next tokens.

    ``counted`` are the flat positions that count, all where None; ``memory`` is that of the source,
    and the first ``prompt`` positions, of all or of each row (B, 1), are never predicted.
    """

    inputs: Tensor
    targets: Tensor
    counted: Tensor | None = None
    memory: Memory | None = None
    prompt: int | Tensor = 1


def spread(count: int, most: int) -> range:
    """Return at most ``most`` numbers below ``count``, from 0, evenly spaced."""
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


def by_split(method: Callable[[S, str], T]) -> Callable[[S, str], T]:
    """Let a task keep what a method gives for each split: it is read or computed once."""

    @wraps(method)
    def of_split(task: S, split: str) -> T:
        known: dict[object, T] = vars(task).setdefault("_by_split", {})
        if (method, split) not in known:
            known[method, split] = method(task, split)
        return known[method, split]

    return of_split


class Task(Configurable, ABC, Generic[Batch]):
    """A problem: data in, batches and losses out, and words for what the model did."""

    class Config(BaseConfig, family="task"):
        """The problem, and its data."""

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
    reads: ClassVar[Reads] = "text"
    gives: ClassVar[Gives] = "text"

    def __init_subclass__(cls, kind: str | None = None, **kwargs: object) -> None:
        super().__init_subclass__(kind, **kwargs)
        for name in CHECKED.keys() & vars(cls).keys():
            setattr(cls, name, checked(vars(cls)[name], CHECKED[name]))

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
        """Return the plan of batches: which examples go together in which epoch."""
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

    def better(self, name: str) -> int:
        """+1 where a larger figure is better, -1 where a smaller one is."""
        return -1 if name in LOWER_IS_BETTER else 1


CHECKED = {"lengths": np.ndarray, "batch": object, "build": nn.Module}  # what methods return
CHECKED |= {"loss": Loss, "measure": Measures}
AnyTask = Task[Any]
