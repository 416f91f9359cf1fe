"""The peak of memory and its parts."""

from __future__ import annotations

from pathlib import Path

import pytest

import bench_tiny
from foveate.bench import growth
from foveate.bench.training import workload
from foveate.train.config import resolve


def test_training_holds_weights_gradients_and_twice_that_for_adam(tmp_path: Path) -> None:
    said, parts = growth.of_training(str(bench_tiny.write(tmp_path)), [])
    assert parts is not None and said["precision"] == "fp32"
    assert parts["gradients MiB"] == parts["weights MiB"] > 0
    assert parts["optimiser MiB"] == pytest.approx(2 * parts["weights MiB"], abs=0.11)
    assert parts["kept activations MiB"] > 0
    assert sum(v for k, v in parts.items() if k != "peak MiB") == pytest.approx(
        parts["peak MiB"], abs=0.5
    )


def test_what_is_kept_grows_with_the_batch(tmp_path: Path) -> None:
    path = str(bench_tiny.write(tmp_path))
    found = []
    for tokens in (64, 512):
        with workload(path, [f"train.batch_tokens={tokens}"]) as work:
            found.append(growth.saved(work, work.model(), resolve("fp32")))
    assert found[1] > 3 * found[0]


def test_decoding_keeps_no_gradients(tmp_path: Path) -> None:
    _, parts = growth.of_decoding(str(bench_tiny.write(tmp_path)), [])
    assert parts is not None and list(parts) == [
        "program and data MiB", "weights MiB", "temporaries and allocator MiB", "peak MiB",
    ]  # fmt: skip
