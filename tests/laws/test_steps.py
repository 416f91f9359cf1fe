"""Every stage of every attention and cell: captured bit for bit, derived ones within 1e-6."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from foveate.look.stages import attention_stages, capture_stages, cell_stages
from foveate.nn.attention import Attention, BaseAttention
from foveate.nn.context import Mask
from foveate.nn.recurrent import Cell
from laws.conftest import defaults

SIZE, HEADS, LENGTH = 16, 2, 5
CLOSE = 1e-6
SCORES, NORMALIZERS, POSITIONS = map(defaults, ("score", "normalizer", "position"))
EVERY = [(s, n, p) for s in SCORES for n in NORMALIZERS for p in POSITIONS]


def stages_of(
    attention: BaseAttention, head: int, position: Any = None, mask: Mask | None = None
) -> tuple[Tensor, Tensor, list[Any]]:
    """What an attention gives without and with a probe, and the stages of a head."""
    attention.eval()
    x = torch.randn(1, LENGTH, SIZE)
    with torch.no_grad():
        before = _explicit(attention, x, mask, position)
        with capture_stages(attention) as calls:
            after = attention(x, mask=mask, position=position)
    return before, after, attention_stages(attention, calls, head)


def _explicit(attention: BaseAttention, x: Tensor, mask: Mask | None, position: Any) -> Tensor:
    attention.tap = lambda weights: None  # by the equation, as with a probe
    output: Tensor = attention(x, mask=mask, position=position)
    attention.tap = None
    return output


def error(result: np.ndarray, captured: np.ndarray) -> float:
    """The largest difference, relative to the largest number captured (at least 1)."""
    return float(np.abs(result - captured).max() / max(1.0, np.abs(captured).max()))


def check(module: BaseAttention, before: Tensor, after: Tensor, stages: list[Any]) -> None:
    assert torch.equal(before, after)
    by_name = {stage.name: stage for stage in stages}
    assert np.array_equal(by_name["output"].values, after[0].numpy())
    if "masked score" in by_name:  # derived: it must lead to the weights
        score, captured = by_name["masked score"].values, by_name["weights"].values
        blind = captured.astype(np.float64).max(axis=-1, keepdims=True) == 0
        weights = module.normalizer(torch.from_numpy(score).float()).detach().numpy()
        assert error(np.where(blind, 0, weights), captured) <= CLOSE
    for stage in stages:
        assert np.isfinite(stage.values).all() or stage.name in ("mask", "masked score")
    assert {"query", "value", "weights", "context"} <= by_name.keys()


@pytest.mark.parametrize(("score", "normalizer", "position"), EVERY)
def test_stages_of_every_score_normalizer_and_position(score, normalizer, position) -> None:
    config = {"num_heads": HEADS, "score": SCORES[score], "normalizer": NORMALIZERS[normalizer]}
    attention = Attention.Config.parse(config).build(SIZE)
    encoding = POSITIONS[position].build(SIZE, HEADS)
    before, after, stages = stages_of(attention, 1, encoding, Mask(causal=True))
    check(attention, before, after, stages)
    names = [stage.name for stage in stages]
    assert {"score", "mask", "masked score"} <= set(names)
    assert ("bias" in names) == encoding.biases
    assert ("rotated query" in names) == encoding.rotates


@pytest.mark.parametrize("kind", defaults("attention"))
@pytest.mark.parametrize("key_heads", [1, 2])
def test_stages_of_every_attention(kind: str, key_heads: int) -> None:
    tree = {"kind": kind, "num_heads": HEADS, "key_heads": key_heads, "head_size": 4}
    config = BaseAttention.Config.parse(tree)
    attention = config.build(SIZE)
    mask = Mask(causal=True) if attention.causal else None
    check(attention, *stages_of(attention, 1, None, mask))


def test_a_query_without_a_key_has_weights_of_0() -> None:
    hidden = Mask(key_mask=torch.zeros(1, LENGTH, dtype=torch.bool))
    attention = Attention.Config().build(SIZE)
    before, after, stages = stages_of(attention, 0, None, hidden)
    check(attention, before, after, stages)
    assert not {s.name: s for s in stages}["weights"].values.any()


@pytest.mark.parametrize("kind", defaults("cell"))
def test_stages_of_every_cell(kind: str) -> None:
    cell: Cell = Cell.Config.parse({"kind": kind}).build(SIZE, SIZE)
    x = torch.randn(1, LENGTH, SIZE)
    with torch.no_grad():
        plain, _ = Cell.run(cell, x, cell.start(x[:, 0]))
        with capture_stages(cell) as calls:
            outputs, _ = cell.run(x, cell.start(x[:, 0]))
    assert torch.equal(outputs, plain)
    stages = cell_stages(cell, calls)
    by_name = {stage.name: stage for stage in stages}
    assert np.array_equal(by_name["state"].values, outputs[0].numpy())
    assert np.array_equal(by_name["before"].values[1:], outputs[0, :-1].numpy())
    if "kept" in by_name:  # derived: both parts are the new cell, or the new state
        whole = by_name["kept"].values + by_name["added"].values
        assert error(whole, by_name["cell" if "cell" in by_name else "state"].values) <= CLOSE
    assert cell.probe is None
