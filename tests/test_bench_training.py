"""Training is measured on the trainer itself, and products are counted exactly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import bench_tiny
from foveate.bench import training
from foveate.bench.machine import counting, group_of, shares
from foveate.bench.training import SHAPES, workload
from foveate.config import ConfigError, kinds
from foveate.kinds import load_kinds
from foveate.train.config import resolve


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ceilings take seconds; here they are numbers."""
    monkeypatch.setattr(training, "ceilings", lambda *a: {"fp32": 100.0, "bf16": 200.0})
    monkeypatch.setattr(training, "COUNTED", 2)


def test_measure(tmp_path: Path) -> None:
    messages: list[str] = []
    with workload(str(bench_tiny.write(tmp_path))) as work:
        result = training.measure(work, 0.2, say=messages.append)
    assert any("a step takes" in message for message in messages)
    assert result["target_tokens_per_second"] > 0
    assert result["steps"] >= training.LEAST
    assert result["precision"] == "fp32" and result["peak_memory_mib"] > 50
    done = result["target_tokens_per_second"] * result["flops_per_target_token"] / 1e9
    assert result["product_gflops"] == pytest.approx(done, abs=0.06)
    assert result["utilisation"]["fp32"] == pytest.approx(done / 100, abs=1e-3)  # of three digits
    assert sum(result["time_shares"].values()) == pytest.approx(1, abs=0.02)
    assert result["machine"]["torch"] == torch.__version__


def test_the_steps_are_those_of_training_and_the_tokens_those_of_the_task(tmp_path: Path) -> None:
    with workload(str(bench_tiny.write(tmp_path))) as work:
        lengths = work.task.lengths("train")
        steps = training.train(work, work.model(), resolve("fp32"), steps=3)
        plan = work.task.plan(lengths, work.config.train.batch_tokens, work.config.seed)
        counts = [int(lengths[batch][:, 1].sum()) for batch in plan.epoch(0)[:3]]
    assert [line["step"] for line in steps] == [1, 2, 3]
    assert steps[-1]["target_tokens"] == sum(counts)


def test_rates_leave_the_warm_up_out() -> None:
    steps = [
        {"seconds": s, "target_tokens": t, "tokens_per_second": 1.0}
        for s, t in ((9.0, 10), (9.5, 20), (10.0, 30), (11.0, 130), (12.0, 230))
    ]
    result = training.rates(steps)
    assert result["target_tokens_per_second"] == 100 and result["steps"] == 2


def test_products_count_twice_m_k_n() -> None:
    layer = torch.nn.Linear(5, 7, bias=False)
    x = torch.randn(3, 5, requires_grad=True)
    with counting() as counted:
        layer(x).sum().backward()
    assert counted.total == 3 * 2 * 3 * 5 * 7  # forward, gradient of the input, of the weights


def test_an_lstm_layer_is_counted() -> None:
    layer = torch.nn.LSTM(5, 7, batch_first=True)
    with counting() as counted, torch.no_grad():
        layer(torch.randn(3, 4, 5))
    assert counted.total == 2 * 3 * 4 * 4 * 7 * (5 + 7)


def test_shares_name_the_products() -> None:
    a = torch.randn(200, 200)
    with shares() as result:
        for _ in range(20):
            a @ a
    assert max(result, key=result.__getitem__) == "products"
    assert group_of("aten::bmm") == "products in batches"
    assert group_of("_MapBackward") == "products"  # what it does by itself is the native one
    assert group_of("aten::_softmax") == "softmax, loss"
    assert group_of("aten::add") == "other"


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


def test_without_multi30k_the_embedded_corpus_is_taken(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("FOVEATE_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-cache"))
    monkeypatch.setattr(training, "SYNTHETIC", {"train": 30, "valid": 2, "test": 2})
    chosen = ['task.tokenizer="word"', "model.tie=none"]
    with workload("transformer-tiny", chosen) as work:
        assert work.data.startswith("synthetic")
        assert len(work.task.lengths("train")) == 30


def test_a_name_that_is_nothing_is_an_error() -> None:
    with pytest.raises(ConfigError, match="transformer-smal"), workload("transformer-smal"):
        pass
