"""Decoding is measured with outputs of equal length."""

from __future__ import annotations

from pathlib import Path

import pytest

import bench_tiny
from foveate.bench import decoding
from foveate.bench.decoding import Case, batches_of, forced
from foveate.bench.training import workload
from foveate.config import ConfigError
from foveate.engine.base import SearchRequest


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "ceilings", lambda *a: {"fp32": 100.0, "bf16": 200.0})


def test_every_case_is_measured(tmp_path: Path) -> None:
    with workload(str(bench_tiny.write(tmp_path))) as work:
        result = decoding.measure(work, 0.01, sentences=6, precision="fp32")
    assert list(result["sentences_per_second"]) == [
        "beam 5, batch 32", "greedy, batch 32", "beam 5, one by one", "greedy, one by one",
        "beam 5, whole corpus",
    ]  # fmt: skip
    assert all(speed > 0 for speed in result["sentences_per_second"].values())
    assert result["sentences"] == 6


def test_int8_is_a_precision_of_decoding(tmp_path: Path) -> None:
    with workload(str(bench_tiny.write(tmp_path))) as work:
        result = decoding.measure(work, 0.01, sentences=3, precision="int8")
        assert result["precision"] == "int8" and min(result["sentences_per_second"].values()) > 0
        with pytest.raises(ConfigError, match=r"no precision 'int4'; there are: auto.*, int8"):
            decoding.measure(work, 0.01, sentences=3, precision="int4")


@pytest.mark.parametrize("beam_size", [1, 3])
def test_outputs_are_as_long_as_they_are_forced_to_be(tmp_path: Path, beam_size: int) -> None:
    with workload(str(bench_tiny.write(tmp_path))) as work:
        sources = [[5, 6, 7], [8]]
        result = work.task.engine(work.model().eval()).outputs(
            sources, SearchRequest(forced(beam_size, 7))
        )
    assert [len(outputs[0].ids) for outputs in result] == [7, 7]


def test_batches_hold_every_sentence_once() -> None:
    sources = [[1] * (n % 7 + 1) for n in range(20)]
    batches = batches_of(sources, 6)
    assert sorted(map(len, batches)) == [2, 6, 6, 6]
    assert sorted(len(ids) for batch in batches for ids in batch) == sorted(map(len, sources))
    assert batches == batches_of(sources, 6) and batches_of(sources, None) == [sources]


def test_names() -> None:
    assert Case(1, 32).name() == "greedy, batch 32"
    assert decoding.named("bf16") == "bf16"
    with pytest.raises(ConfigError, match="fp32"):
        decoding.named("fp8")


def test_levers_are_measured_in_turn(tmp_path: Path) -> None:
    with workload(str(bench_tiny.write(tmp_path))) as work:
        result = decoding.levers(work, 0.01, sentences=4, rounds=1)
    for case in decoding.CASES:
        row = result["sentences_per_processor_second"][case.name()]
        assert set(row) == {"plain", "native", "native int8"} and min(row.values()) > 0
        assert result["ratios_to_plain"][case.name()]["plain"] == 1
