"""Named shapes, presets and configs become something to measure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bench_tiny
from foveate.bench import training as workloads
from foveate.bench.training import SHAPES, workload
from foveate.config import ConfigError, kinds
from foveate.kinds import load_kinds


def test_the_shapes_are_presets_of_the_sizes_that_they_name() -> None:
    load_kinds()
    presets = kinds("model")["model"]
    small, base = (presets[SHAPES[name]]() for name in ("small", "base"))
    for config, sizes in ((small, (256, 4, 1024, 3)), (base, (512, 8, 2048, 6))):
        for half in (config.encoder, config.decoder):
            assert (half.hidden_size, half.num_heads, half.ffn_size, half.num_layers) == sizes
    assert presets[SHAPES["rnnsearch"]]().decoder.hidden_size == 256


def test_a_config_is_measured_as_it_is(tmp_path: Path) -> None:
    path = bench_tiny.write(tmp_path)
    with workload(str(path), ["train.batch_tokens=64"]) as work:
        assert work.name == "tiny" and work.config.train.batch_tokens == 64
        assert sum(p.numel() for p in work.model().parameters()) > 1000
        assert work.summary()["batch_tokens"] == 64
        assert 0 <= work.padding() < 0.5


def test_padding_is_what_the_batches_hold_beyond_the_tokens(tmp_path: Path) -> None:
    with workload(str(bench_tiny.write(tmp_path))) as work:
        lengths = work.task.lengths("train")
        plan = work.task.plan(lengths, work.config.train.batch_tokens, work.config.seed)
        places = sum(len(b) * int(np.sum(lengths[b].max(axis=0))) for b in plan.epoch(0))
        assert work.padding() == pytest.approx(1 - lengths.sum() / places)


def test_without_multi30k_the_embedded_corpus_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOVEATE_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-cache"))
    monkeypatch.setattr(workloads, "SYNTHETIC", {"train": 30, "valid": 2, "test": 2})
    chosen = ['task.tokenizer="word"', "model.tie=none"]
    with workload("transformer-tiny", chosen) as work:
        assert work.data.startswith("synthetic")
        assert len(work.task.lengths("train")) == 30


def test_a_name_that_is_nothing_is_an_error() -> None:
    with pytest.raises(ConfigError, match="transformer-smal"), workload("transformer-smal"):
        pass
