"""Attention and positions against their definitions, written out number by number."""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from foveate.nn.attention import Attention
from foveate.nn.context import Mask
from foveate.nn.positions import Sinusoidal
from foveate.nn.scores import Additive, CosineScore, Dot, General, Location, ScaledDot, Score
from tolerances import MODEL, close

Array = NDArray[np.float64]
Formula = Callable[[Array, Array, int, Array | None], float]  # s, h_i, i and W or v of the head


def dot(s: Array, h: Array) -> float:
    return sum(float(a) * float(b) for a, b in zip(s, h, strict=True))


def norm(x: Array) -> float:
    return math.sqrt(dot(x, x))


def needed(weight: Array | None) -> Array:
    assert weight is not None
    return weight


SCORES: dict[str, tuple[Score.Config, Formula]] = {
    "cosine": (
        CosineScore.Config(sharpness=3.0),
        lambda s, h, i, _: 3 * dot(s, h) / norm(s) / norm(h),
    ),
    "additive": (Additive.Config(), lambda s, h, i, v: dot(needed(v), np.tanh(s + h))),
    "location": (Location.Config(max_length=9), lambda s, h, i, w: dot(needed(w)[i], s)),
    "general": (
        General.Config(),
        lambda s, h, i, w: sum(
            s[a] * needed(w)[a, b] * h[b] for a, b in product(range(len(s)), range(len(h)))
        ),
    ),
    "dot": (Dot.Config(), lambda s, h, i, _: dot(s, h)),
    "scaled_dot": (ScaledDot.Config(), lambda s, h, i, _: dot(s, h) / math.sqrt(len(s))),
}


def loops(
    query: Array, key: Array, value: Array, formula: Formula, weight: Array | None, seen: Array
) -> Array:
    """A(q_t, K, V) = Σ_i softmax_i(e(q_t, k_i)) v_i for each t, over (T, K), (S, K), (S, V)."""
    result = np.zeros((len(query), value.shape[1]))
    for t in range(len(query)):
        places = [i for i in range(len(key)) if seen[t, i]]
        scores = [formula(query[t], key[i], i, weight) for i in places]
        total = sum(math.exp(score) for score in scores)
        for i, score in zip(places, scores, strict=True):
            for c in range(value.shape[1]):
                result[t, c] += math.exp(score) / total * value[i, c]
    return result


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize(("config", "formula"), SCORES.values(), ids=SCORES)
def test_attention_is_its_definition(config, formula, heads, masked) -> None:
    size = 4
    attention = Attention.Config(score=config, num_heads=heads).build(heads * size).double()
    x = torch.randn(2, 5, heads * size, dtype=torch.float64)
    keys = torch.tensor([[True] * 5, [True, True, True, False, False]])
    output = attention(x, mask=Mask(keys, causal=True) if masked else None)

    parts = [part(x).detach().numpy() for part in (attention.query, attention.key, attention.value)]
    if attention.score.reads_keys is False:
        parts[1] = np.zeros_like(parts[2])
    weights = next(iter(attention.score.parameters()), None)
    mixed = np.zeros((2, 5, heads * size))
    for row, head in product(range(2), range(heads)):
        columns = slice(head * size, (head + 1) * size)
        seen = np.ones((5, 5))
        if masked:
            seen = np.tril(seen) * keys[row].numpy()
        own = None if weights is None else weights[head].detach().numpy()
        query, key, value = (part[row][:, columns] for part in parts)
        mixed[row][:, columns] = loops(query, key, value, formula, own, seen)
    expected = attention.output(torch.from_numpy(mixed))
    close(output, expected)


def test_sinusoids_are_their_definition() -> None:
    size, places = 10, np.array([0, 1, 2, 17, 300])
    expected = np.zeros((len(places), size))
    for row, t in enumerate(places):
        for i in range(size // 2):
            angle = t / 10_000 ** (2 * i / size)
            expected[row, 2 * i], expected[row, 2 * i + 1] = math.sin(angle), math.cos(angle)
    result = Sinusoidal.Config().build(size, 1).encode(torch.from_numpy(places), size)
    close(result.numpy(), expected, terms=MODEL)
    x = torch.randn(2, 5, size)
    position = Sinusoidal.Config().build(size, 1)
    close(position.embed(x, torch.from_numpy(places)), x + result)
