"""T5's relative positions: which distances share a bucket."""

from __future__ import annotations

import pytest
import torch

from foveate.nn.positions import T5Bias, T5CausalBias


def buckets(config: T5Bias.Config, *ahead: int) -> list[int]:
    position = config.build(8, 2)
    result: list[int] = position.buckets(torch.tensor([ahead]))[0].tolist()
    return result


def test_small_distances_have_buckets_of_their_own_on_each_side() -> None:
    assert buckets(T5Bias.Config(), 0, -1, -2, -7) == [0, 1, 2, 7]
    assert buckets(T5Bias.Config(), 1, 2, 7) == [17, 18, 23]


def test_large_distances_share_buckets_that_grow() -> None:
    # 8 + 8 · log(d / 8) / log(128 / 8), rounded down: 2 log₂(d / 8) more
    assert buckets(T5Bias.Config(), -8, -11, -12, -16, -31, -32, -64) == [8, 8, 9, 10, 11, 12, 14]
    assert buckets(T5Bias.Config(), -128, -10_000, 128, 10_000) == [15, 15, 31, 31]


def test_a_decoder_spends_all_buckets_on_what_is_behind() -> None:
    config = T5CausalBias.Config()
    assert buckets(config, 0, -1, -15, -16, -128, -500) == [0, 1, 15, 16, 31, 31]
    assert buckets(config, 1, 9, 100) == [0, 0, 0]


def test_the_bias_is_that_of_the_bucket_and_of_the_head() -> None:
    position = T5Bias.Config(num_buckets=4, max_distance=3).build(8, 2)
    with torch.no_grad():
        position.table.weight.copy_(torch.arange(8.0).view(4, 2))  # bucket b, head h: 2 b + h
    bias = position.bias(torch.tensor([5, 6]), torch.tensor([5, 6, 9]))
    #                 same, one after, four after;  one before, same, three after
    assert bias[0].tolist() == [[0, 6, 6], [2, 0, 6]]
    assert bias[1].tolist() == [[1, 7, 7], [3, 1, 7]]


def test_buckets_without_distances_are_refused() -> None:
    with pytest.raises(ValueError, match=r"max_distance = 8 must be more than the 8 .* raise it"):
        T5Bias.Config(max_distance=8).build(8, 2)
