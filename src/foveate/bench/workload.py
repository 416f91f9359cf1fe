"""What is measured: a named shape of model or a config, and data to feed it with.

Shapes: ``small`` (3 + 3 layers, D = 256, 4 heads, feed-forward 1,024), ``base`` (6 + 6 layers,
D = 512, 8 heads, feed-forward 2,048), ``rnnsearch`` (GRU 256 with the additive score), any preset
or CONFIG.toml. Shapes and presets read Multi30k en–fr where `foveate.data.download.find` finds it,
else the embedded synthetic corpus, in 8,000 joint BPE pieces, 4,096 padded tokens a batch.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foveate.config import parse_tree, with_overrides
from foveate.data import synthetic
from foveate.data.catalogue import DataError
from foveate.data.download import find
from foveate.run import RunConfig, device
from foveate.tree import Tree, load_tree

SHAPES = {"small": "transformer-small", "base": "vaswani-base", "rnnsearch": "bahdanau-2015"}
SYNTHETIC = {"train": 20_000, "valid": 500, "test": 1000}  # pairs
VOCABULARY, BATCH_TOKENS = 8000, 4096


@dataclass(frozen=True)
class Workload:
    """A config with its task made ready, and in words which model and data they are."""

    name: str
    data: str
    config: RunConfig
    task: Any

    def model(self) -> torch.nn.Module:
        """The model with its first weights, on the device of training."""
        torch.manual_seed(self.config.seed)
        built: torch.nn.Module = self.task.build(self.config.model)
        return built.to(device())

    def said(self) -> dict[str, Any]:
        """Name, data, sizes: what belongs to every figure."""
        said: dict[str, Any] = {"shape": self.name, "data": self.data}
        tokenizer = getattr(self.task, "tokenizers", None)
        if tokenizer is not None:
            said["vocabulary"] = tokenizer[-1].vocab_size
        return said | {"batch_tokens": self.config.train.batch_tokens}

    def padding(self) -> float:
        """The share of padding in the batches of the first epoch, all sides together."""
        lengths = self.task.lengths("train")
        lengths = lengths.reshape(len(lengths), -1)
        config = self.config
        plan = self.task.plan(lengths, config.train.batch_tokens, config.seed)
        places = sum(int(np.sum(lengths[b].max(axis=0))) * len(b) for b in plan.epoch(0) if len(b))
        return 1 - int(lengths.sum()) / max(places, 1)


@contextlib.contextmanager
def workload(shape: str, overrides: Sequence[str] = ()) -> Iterator[Workload]:
    """The workload of a shape, a preset or a config file; its tokenizers are learnt here.

    Raises ``ConfigError`` for a name that is none of these.
    """
    with tempfile.TemporaryDirectory(prefix="foveate-bench-") as place:
        folder, path = Path(place), Path(shape)
        if path.suffix == ".toml":
            tree, data = load_tree(path), f"that of {path.name}"
        else:
            tree, data = _tree(SHAPES.get(shape, shape), folder)
        tree = with_overrides(RunConfig, tree, overrides)
        config = parse_tree(RunConfig, tree, path if path.suffix == ".toml" else None)
        task: Any = config.task.build(config.data)
        task.prepare(folder, config.seed)
        yield Workload(path.stem if path.suffix == ".toml" else shape, data, config, task)


def _tree(model: str, folder: Path) -> tuple[Tree, str]:
    """The config of a preset on the data that are there, and what data these are."""
    task = {"kind": "translation", "tokenizer": {"kind": "bpe", "vocab_size": VOCABULARY}}
    try:
        find("multi30k/train.en"), find("multi30k/train.fr")
        places = {"source": "multi30k/{split}.en", "target": "multi30k/{split}.fr"}
        splits, data = {"valid": "val", "test": "test_2016_flickr"}, "Multi30k en-fr"
    except DataError:
        synthetic.write(folder, SYNTHETIC)
        places = {side: f"{folder}/{{split}}.{end}" for side, end in _SIDES.items()}
        splits, data = {}, "synthetic en-fr (Multi30k is not there: set FOVEATE_DATA)"
    return {
        "task": task | places,
        "data": {"splits": splits},
        "model": model,
        "train": {"batch_tokens": BATCH_TOKENS, "max_steps": 1},
    }, data


_SIDES = {"source": "en", "target": "fr"}
