"""Precision: said aloud, chosen by the machine, and real inside its context."""

from __future__ import annotations

import pytest
import torch

from foveate.train.config import resolve


@pytest.mark.parametrize(("name", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_matrix_products_run_in_it(name: str, dtype: torch.dtype) -> None:
    precision = resolve(name)
    with precision.context():
        assert torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype == dtype
    assert torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype == torch.float32
    assert precision.why == f"precision {name}, as the config says"


def test_auto_is_bf16_only_where_the_machine_has_it_and_says_why() -> None:
    able = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    precision = resolve("auto")
    assert precision.name in ({"fp32", "bf16"} if able else {"fp32"})
    assert "\n" not in precision.why and f"{precision.name} (auto): " in precision.why


def test_auto_is_fp32_on_a_device_that_is_not_known() -> None:
    assert resolve("auto", "meta").name == "fp32"
