"""What training refuses before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from foveate.config import ConfigError, parse_tree
from foveate.kinds import load_kinds
from foveate.run import RunConfig
from foveate.training import train

load_kinds()


def test_a_task_that_reads_true_tokens_only_refuses_scheduled_sampling(tmp_path: Path) -> None:
    tree = {
        "task": {"kind": "language", "text": "a.txt"},
        "model": {"kind": "language_model"},
        "objective": {"teacher_forcing": {"kind": "scheduled"}},
    }
    with pytest.raises(ConfigError, match=r"objective\.teacher_forcing.*language always reads"):
        train(parse_tree(RunConfig, tree), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_warm_up_longer_than_the_training_is_refused_before_data_is_read(tmp_path: Path) -> None:
    tree = {
        "task": {"kind": "language", "text": str(tmp_path / "missing.txt")},
        "model": {"kind": "language_model"},
        "train": {"max_steps": 2, "schedule": {"kind": "cosine", "warmup_steps": 50}},
    }
    with pytest.raises(ConfigError, match=r"warmup_steps = 50 leaves nothing of 2"):
        train(parse_tree(RunConfig, tree), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
