"""What training refuses before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from foveate.config import ConfigError, parse_tree
from foveate.data.catalogue import DataError
from foveate.kinds import load_kinds
from foveate.run import RunConfig
from foveate.training import train
from foveate.tree import Tree

load_kinds()


def refuses(tmp_path: Path, tree: Tree, error: type[Exception], said: str) -> None:
    """Training a config ends with an error that says so, before there is a run."""
    with pytest.raises(error, match=said):
        train(parse_tree(RunConfig, tree), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_task_that_reads_true_tokens_only_refuses_scheduled_sampling(tmp_path: Path) -> None:
    tree = {
        "task": {"kind": "language", "text": "a.txt"},
        "model": {"kind": "language_model"},
        "objective": {"teacher_forcing": {"kind": "scheduled"}},
    }
    refuses(tmp_path, tree, ConfigError, r"objective\.teacher_forcing.*language always reads")


def test_a_warm_up_longer_than_the_training_is_refused_before_data_is_read(tmp_path: Path) -> None:
    tree = {
        "task": {"kind": "language", "text": str(tmp_path / "missing.txt")},
        "model": {"kind": "language_model"},
        "train": {"max_steps": 2, "schedule": {"kind": "cosine", "warmup_steps": 50}},
    }
    refuses(tmp_path, tree, ConfigError, r"warmup_steps = 50 leaves nothing of 2")


@pytest.mark.parametrize("empty", ["train", "valid"])
def test_a_split_without_examples_is_refused_by_name(tmp_path: Path, empty: str) -> None:
    for split in ("train", "valid"):
        lines = "" if split == empty else "a dog runs\ta cat sleeps\n"
        (tmp_path / f"{split}.tsv").write_text(lines, encoding="utf-8")
    tree = {
        "task": {"kind": "translation", "source": str(tmp_path / "{split}.tsv")},
        "model": {"kind": "transformer-tiny"},
        "train": {"max_steps": 9, "schedule": {"kind": "cosine", "warmup_steps": 1}},
    }
    refuses(tmp_path, tree, DataError, f"{empty} has no example: its files are empty")
