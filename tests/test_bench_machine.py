"""What figures are measured on."""

from __future__ import annotations

import torch

from foveate.bench import machine


def test_ceilings_are_rates_of_both_precisions() -> None:
    assert machine.product_rate(torch.float32, 0.01, size=64) > 0
    assert set(machine.DTYPES) == {"fp32", "bf16"}


def test_a_machine_is_described() -> None:
    result = machine.describe()
    assert result["torch"] == torch.__version__ and result["cpu"]
    assert result["commit"] is None or result["commit"]


def test_memory_now_is_no_more_than_the_peak() -> None:
    now, most = machine.resident(), machine.peak()
    assert now is None or most is None or 0 < now <= most + 1
