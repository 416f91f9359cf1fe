"""A task small enough to train in milliseconds, for the tests of training; also a program.

python -m train_toy RUN STEPS [PAUSE]     trains in RUN; sleeps PAUSE seconds in each batch
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.data.batches import BatchPlan
from foveate.run.training import Snapshots
from foveate.tasks.base import Loss, Measures, Task, ValidationSample
from foveate.tasks.objectives import CrossEntropy
from foveate.train import checkpoint
from foveate.train.config import TrainConfig
from foveate.train.distributed import Ranks
from foveate.train.fit import Outcome, fit
from foveate.train.stored import sha256
from foveate.train.trainer import Job

VOCABULARY, PAD = 12, 0
BEFORE = Callable[[str, int], None]  # called with "batch", "loss" or "measure", and its number


class ToyModel(nn.Module):
    """Embedding → dropout → GRU → norm → the embedding again: ties, buffers, randomness."""

    def __init__(self, dropout: float = 0.2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.dropout = nn.Dropout(dropout)
        self.gru = nn.GRU(8, 8, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.output = nn.Linear(8, VOCABULARY)
        self.output.weight = self.embedding.weight
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, tokens: Tensor) -> Tensor:
        if self.training:
            self.seen += 1
        hidden, _ = self.gru(self.dropout(self.embedding(tokens)))
        return self.output(self.norm(hidden))


@dataclass(frozen=True)
class ToyBatch:
    tokens: Tensor
    reference: Tensor


class ToyCopy(Task[ToyBatch]):
    """Say again the token of two places before; a bit of noise replaces tokens."""

    class Config(Task.Config, kind="toy-copy"):
        examples: int = 60
        noise: float = 0.1

    config: Config

    def __init__(self, config: Config, before: BEFORE | None = None) -> None:
        self.config, self.before = config, before or (lambda what, number: None)
        self.calls = {"batch": 0, "loss": 0, "measure": 0}
        random = np.random.default_rng(5)
        sizes = random.integers(3, 9, config.examples)
        self.data = [random.integers(1, VOCABULARY, size) for size in sizes]

    def _call(self, what: str) -> None:
        self.calls[what] += 1
        self.before(what, self.calls[what])

    def prepare(self, folder: Path, seed: int) -> None: ...

    def restore(self, folder: Path) -> None: ...

    def build(self, model: Any) -> nn.Module:
        raise NotImplementedError

    def lengths(self, split: str) -> NDArray[np.int32]:
        return np.array([[len(row)] for row in self.data], dtype=np.int32)

    def batch(self, split: str, indices: Sequence[int], noise: int = 0) -> ToyBatch:
        self._call("batch")
        rows = [self.data[i] for i in indices]
        tokens = torch.full((len(rows), max(map(len, rows))), PAD)
        expected = tokens.clone()
        for i, (index, row) in enumerate(zip(indices, rows, strict=True)):
            expected[i, 2 : len(row)] = torch.from_numpy(row[:-2])
            row = row.copy()
            random = np.random.default_rng((noise, index))
            if noise:
                row[random.random(len(row)) < self.config.noise] = 1
            tokens[i, : len(row)] = torch.from_numpy(row)
        return ToyBatch(tokens, expected)

    def loss(self, model: nn.Module, batch: ToyBatch, objective: Any) -> Loss:
        self._call("loss")
        logits = model(batch.tokens).flatten(0, 1).float()
        expected = batch.reference.flatten()
        total = F.cross_entropy(logits, expected, ignore_index=PAD, reduction="sum")
        return Loss(total, int((expected != PAD).sum()), {"nll": total.detach()})

    def measure(self, model: nn.Module, split: str, search: Any, samples: int = 3) -> Measures:
        self._call("measure")
        torch.rand(7)  # whatever a validation draws must not disturb training
        batch = self.batch(split, range(16))
        logits = model(batch.tokens)
        real = batch.reference != PAD
        loss = F.cross_entropy(logits[real].float(), batch.reference[real])
        right = (logits.argmax(-1) == batch.reference)[real].float().mean()
        figures = {"loss": float(loss), "accuracy": float(right)}
        return Measures(figures, [ValidationSample("1 2", "1", "é")] * samples)


@dataclass
class Toy:
    """A run of the toy: `train` builds all anew, as a new process does."""

    folder: Path
    config: TrainConfig
    before: BEFORE | None = None
    dropout: float = 0.2
    plan: Callable[..., Any] = BatchPlan
    seed: int = 3
    model: nn.Module = field(init=False)

    def train(self, before: BEFORE | None = None, ranks: Ranks | None = None) -> Outcome:
        torch.manual_seed(11)
        self.model = ToyModel(self.dropout)
        task = ToyCopy(ToyCopy.Config(), before or self.before)
        task.plan = self.plan
        snapshots, objective = partial(Snapshots, task, self.model), CrossEntropy.Config().build()
        job = Job(task, self.model, objective, None, self.seed, "seed = 3\n", snapshots)
        return fit(job, self.config, self.folder, ranks)


def toy_config(**changes: Any) -> TrainConfig:
    """Twelve steps with a checkpoint every 3 and a validation every 4, in fp32."""
    plain = {
        "batch_tokens": 40,
        "max_steps": 12,
        "schedule": {"kind": "constant", "warmup_steps": 3},
        "optimizer": {"kind": "adamw", "lr": 0.02, "weight_decay": 0.1},
        "save": {"every": 3, "keep": 2},
        "validation": {"every": 4, "samples": 1},
        "precision": "fp32",
        "log_every": 2,
        "threads": 1,
    }
    return TrainConfig.parse(plain | changes)


def content(folder: Path) -> dict[str, str]:
    """The sha256 of the tensors of a checkpoint, by file."""
    return {file.name: sha256(file) for file in folder.glob("*.safetensors")}


def final(run: Path) -> dict[str, str]:
    """The sha256 of the tensors of the newest checkpoint."""
    return content(checkpoint.path_of(run, checkpoint.steps(run)[-1]))


if __name__ == "__main__":
    pause = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
    config = toy_config(max_steps=int(sys.argv[2]))

    def wait(what: str, number: int) -> None:
        time.sleep(pause if what == "loss" else 0)

    sys.exit(Toy(Path(sys.argv[1]), config, before=wait).train().exit_code)
