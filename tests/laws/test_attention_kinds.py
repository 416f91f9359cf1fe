"""The cheaper kinds of attention against full attention and against their own definitions.

What holds for every kind in a model (steps, causality, padding, rows, gradients, looking) is in
test_families.py, where each kind stands in an encoder and in a decoder.
"""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.look.hooks import capture
from foveate.models.classifier import Classifier
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn import efficient_attention
from foveate.nn.attention import Attention, BaseAttention, split_heads
from foveate.nn.context import DecoderState, Mask
from foveate.nn.efficient_attention import (
    BlockSparseAttention,
    LinearAttention,
    LocalAttention,
    LowRankAttention,
    RandomFeatureAttention,
    SparseAttention,
)
from foveate.nn.more_positions import ALiBi
from foveate.nn.positions import Rotary
from foveate.nn.spec import Labels, Tokens
from laws.conftest import (
    MODELS,
    REFUSED,
    SIZE,
    TRANSFORMER,
    changed,
    defaults,
    each,
    ids,
    real,
    weights_of,
)
from tolerances import ROW, close

HEADS = 4
KINDS = {
    name: changed(config, num_heads=heads, key_heads=shared)
    for name, config in defaults("attention").items()
    for heads, shared in ((HEADS, 2),)
}
each_kind = pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
SPARSE = {n: c for n, c in KINDS.items() if issubclass(c.owner, SparseAttention)}
KERNELS = {
    n: c for n, c in KINDS.items() if issubclass(c.owner, efficient_attention.KernelAttention)
}
each_sparse = pytest.mark.parametrize("config", SPARSE.values(), ids=SPARSE)
each_kernel = pytest.mark.parametrize("config", KERNELS.values(), ids=KERNELS)


def built(config: BaseAttention.Config, size: int = SIZE) -> Any:
    torch.manual_seed(0)
    return config.build(size).eval()


def full_like(attention: BaseAttention) -> Attention:
    """Full attention with the same projections."""
    heads, shared = attention.num_heads, attention.key_heads
    full = Attention.Config(num_heads=heads, key_heads=shared).build(SIZE).eval()
    expected = set(full.state_dict())
    full.load_state_dict({n: t for n, t in attention.state_dict().items() if n in expected})
    return full  # type: ignore[no-any-return]


@each_kind
def test_a_mixture_by_the_weights_shown_is_the_output(config: BaseAttention.Config) -> None:
    """Also where no weights are formed unless somebody looks."""
    attention, x = built(config), torch.randn(2, 9, SIZE)
    for mask in (Mask(), Mask(real(9, 6)), Mask(causal=True), Mask(real(9, 6), causal=True)):
        if mask.causal and not config.owner.causal:  # type: ignore[union-attr]
            continue
        plain = attention(x, None, mask)
        weights = weights_of(attention, x, None, mask)
        assert weights.shape == (2, HEADS, 9, 9)
        attention.tap = lambda seen, weights=weights: weights.to(seen.dtype)  # force what was seen
        close(attention(x, None, mask), plain)
        attention.tap = None
        if mask.key_mask is not None:
            assert bool((weights.transpose(1, 3)[~mask.key_mask] == 0).all())
        if mask.causal:
            assert bool((weights.triu(1) == 0).all())


@each_kind
def test_a_query_that_sees_nothing_gets_zeros(config: BaseAttention.Config) -> None:
    attention, keys = built(config), torch.tensor([[False] * 5, [True] * 5])
    x = torch.randn(2, 5, SIZE, requires_grad=True)
    output = attention(x, None, Mask(keys))
    close(output[0], attention.output.bias.expand(5, -1), terms=ROW)
    output.square().sum().backward()
    assert bool(x.grad.isfinite().all())  # type: ignore[union-attr]


@each_kind
def test_long_inputs_step_by_step(config: BaseAttention.Config) -> None:
    """Longer than any block, chunk and window."""
    attention, x = built(config), torch.randn(1, 150, SIZE)
    if not attention.causal:
        with pytest.raises(ValueError, match="future"):
            attention(x, None, Mask(causal=True))
        return
    whole = attention(x, None, Mask(causal=True))
    state, result = DecoderState(), []
    for part in x.split([70, 1, 40, 1, 1, 37], dim=1):
        result.append(attention(part, None, Mask(causal=True), state))
        state.position += part.shape[1]
    close(torch.cat(result, dim=1), whole)


@each_kind
def test_no_queries_give_no_answers(config: BaseAttention.Config) -> None:
    attention = built(config)
    mask = Mask(causal=attention.causal)
    assert attention(torch.randn(2, 0, SIZE), None, mask).shape == (2, 0, SIZE)


@each("attention")
def test_a_table_without_a_kind_is_full_attention(config: BaseAttention.Config) -> None:
    tree = {"attention": {"kind": config.kind}, "cross_attention": {"score": "additive"}}
    decoder = TransformerDecoder.Config.parse(tree)
    assert decoder.attention.kind == config.kind
    assert isinstance(decoder.cross_attention, Attention.Config)
    plain = TransformerEncoder.Config.parse({"attention": {"score": "dot"}})
    assert type(plain.attention) is Attention.Config


@pytest.mark.parametrize("causal", [False, True])
def test_local_attention_with_a_wide_window_is_full(causal: bool) -> None:
    x = torch.randn(2, 9, SIZE)
    local = built(LocalAttention.Config(num_heads=4, window=9))
    mask = Mask(real(9, 5), causal)
    assert torch.equal(local(x, None, mask), full_like(local)(x, None, mask))


@pytest.mark.parametrize("window", range(1, 11))
@pytest.mark.parametrize("causal", [False, True])
def test_local_attention_is_full_attention_under_a_window(window: int, causal: bool) -> None:
    x, position = torch.randn(2, 9, SIZE), Rotary.Config().build(SIZE, 4)
    local = built(LocalAttention.Config(num_heads=4, window=window))
    expected = full_like(local)(x, None, Mask(real(9, 5), causal, window), None, position)
    close(local(x, None, Mask(real(9, 5), causal), None, position), expected)


def pattern(size: int, near: int, first: int, length: int, causal: bool) -> Tensor:
    """(T, S) place by place, from the definition."""
    seen = torch.zeros(length, length, dtype=torch.bool)
    for t in range(length):
        for s in range(length):
            distance = abs(t // size - s // size)
            seen[t, s] = (distance <= near or s // size < first) and (s <= t or not causal)
    return seen


@pytest.mark.parametrize(("size", "near", "first"), [(2, 1, 1), (3, 0, 1), (2, 0, 0), (1, 2, 3)])
@pytest.mark.parametrize("causal", [False, True])
def test_block_sparse_attention_sees_its_pattern(size, near, first, causal) -> None:
    config = BlockSparseAttention.Config(num_heads=4, block_size=size, near=near, first=first)
    sparse, x = built(config), torch.randn(1, 11, SIZE)
    seen = pattern(size, near, first, 11, causal)
    weights = weights_of(sparse, x, None, Mask(causal=causal))
    assert torch.equal(weights[0, 0] > 0, seen)
    full = full_like(sparse)
    scores = full.score(split_heads(full.query(x), 4), split_heads(full.key(x), 4)).masked_fill(
        ~seen, -torch.inf
    )
    close(weights, scores.softmax(dim=-1).detach())


@each_sparse
def test_sparse_attention_adds_positions_and_takes_the_fused_road(config, fused) -> None:
    attention, x = built(config), torch.randn(2, 9, SIZE)
    position = ALiBi.Config().build(SIZE, HEADS)
    result = []
    for expected in (False, True):
        calls = fused(expected)
        result.append(attention(x, None, Mask(real(9, 7), causal=True), None, position))
        assert bool(calls) == expected
    close(*result)


@each_sparse
def test_sparse_attention_computes_less(config: SparseAttention.Config) -> None:
    """Products of queries with keys grow with the length, not with its square."""
    attention = built(config)
    computed = []
    score = attention.score.forward
    attention.score.forward = lambda q, k: computed.append(q.shape[2] * k.shape[2]) or score(q, k)
    for length in (20, 40, 80):
        attention(torch.randn(1, length, SIZE), None, Mask(causal=True))
        computed.append(0)
    text = "".join("," if n == 0 else f" {n}" for n in computed)
    short, middle, long = (sum(map(int, part.split())) for part in text.split(",")[:3])
    assert middle < 2.2 * short
    assert long < 2.2 * middle


@each_sparse
def test_sparse_attention_is_not_for_a_memory(config: SparseAttention.Config) -> None:
    decoder = changed(TRANSFORMER[1], attention=config).build(Tokens(30), SIZE)
    assert type(decoder.layers[0].self_attention) is config.owner
    assert type(decoder.layers[0].cross_attention) is Attention
    with pytest.raises(ValueError, match=r'cross_attention = ".*full"'):
        changed(TRANSFORMER[1], cross_attention=config).build(Tokens(30), SIZE)


@pytest.mark.parametrize("causal", [False, True])
def test_linear_attention_is_its_equation(causal: bool) -> None:
    attention, x = built(LinearAttention.Config(num_heads=1)), torch.randn(1, 7, SIZE)
    q, k, v = (part(x)[0] for part in (attention.query, attention.key, attention.value))
    rows = []
    for t in range(7):
        upto = t + 1 if causal else 7
        weights = torch.stack([(F.elu(q[t]) + 1) @ (F.elu(k[i]) + 1) for i in range(upto)])
        rows.append((weights[:, None] * v[:upto]).sum(dim=0) / weights.sum())
    close(attention(x, None, Mask(causal=causal))[0], attention.output(torch.stack(rows)))


@each_kernel
def test_what_a_kernel_remembers_does_not_grow(config: BaseAttention.Config) -> None:
    def remembered(steps: int) -> int:
        attention, state = built(config), DecoderState()
        attention(torch.randn(1, steps, SIZE), None, Mask(causal=True), state)
        assert not state._grown
        return sum(t.numel() for parts in state._current.values() for t in parts)

    assert remembered(3) == remembered(200) > 0


@each_kernel
def test_kernels_refuse_what_needs_scores(config: BaseAttention.Config) -> None:
    attention, x, state = built(config), torch.randn(1, 5, SIZE), DecoderState()
    with pytest.raises(ValueError, match=r'position = "alibi" .* another position'):
        attention(x, position=ALiBi.Config().build(SIZE, HEADS))
    with pytest.raises(ValueError, match="no window"):
        attention(x, None, Mask(window=2))
    attention(x, None, Mask(causal=True), state)
    state.position += 5
    with pytest.raises(ValueError, match="state=None"), capture(attention):
        attention(x, None, Mask(causal=True), state)


@torch.no_grad()
def test_more_random_features_come_nearer_to_softmax() -> None:
    x = 0.5 * torch.randn(4, 20, SIZE)
    errors = []
    for features in (8, 64, 512, 4096):
        performer = built(RandomFeatureAttention.Config(num_heads=2, features=features))
        expected = full_like(performer)(x, None, Mask(causal=True))
        errors.append(float((performer(x, None, Mask(causal=True)) - expected).abs().mean()))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.1 * errors[0]


def test_random_features_are_right_on_average() -> None:
    attention = built(RandomFeatureAttention.Config(features=20_000))
    q, k = (0.3 * torch.randn(1, 1, 6, SIZE) for _ in range(2))
    factor = attention._exponents(q).amax(dim=-1, keepdim=True).exp()
    result = attention.of_queries(q) * factor @ attention.of_keys(k).mT / 20_000
    torch.testing.assert_close(result, (q @ k.mT / SIZE**0.5).exp(), atol=0, rtol=0.05)


def test_directions_are_orthogonal_in_groups() -> None:
    directions = built(RandomFeatureAttention.Config(features=40)).directions
    for group in directions.split(SIZE):
        products = F.normalize(group) @ F.normalize(group).T
        close(products, torch.eye(len(group)))


def test_linformer_is_its_equation() -> None:
    attention = built(LowRankAttention.Config(rank=3, max_length=12))
    x, keys = torch.randn(2, 9, SIZE), real(9, 6)
    mixed = []
    for row, length in enumerate((9, 6)):
        q, k, v = (part(x[row]) for part in (attention.query, attention.key, attention.value))
        short_keys = attention.key_places[:, :length] @ k[:length]
        short_values = attention.value_places[:, :length] @ v[:length]
        mixed.append((q @ short_keys.T / SIZE**0.5).softmax(dim=-1) @ short_values)
    close(attention(x, None, Mask(keys)), attention.output(torch.stack(mixed)))


def test_linformer_refuses_what_it_cannot_do() -> None:
    attention = built(LowRankAttention.Config(max_length=8))
    with pytest.raises(ValueError, match=r"9 positions .* max_length = 8"):
        attention(torch.randn(1, 9, SIZE))
    with pytest.raises(ValueError, match="another position"):
        attention(torch.randn(1, 5, SIZE), position=ALiBi.Config().build(SIZE, 1))
    with pytest.raises(ValueError, match="including future ones"):
        attention(torch.randn(1, 5, SIZE), mask=Mask(causal=True))


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_in_a_decoder(name: str) -> None:
    assert name not in MODELS
    config = changed(TRANSFORMER[1], attention=KINDS[name.rpartition(".")[2]])
    with pytest.raises(ValueError, match=r"decoder\.attention .* including future ones"):
        config.build(Tokens(30), SIZE)


@each_kind
def test_every_kind_serves_a_classifier(config: BaseAttention.Config) -> None:
    encoder = changed(TRANSFORMER[0], attention=config)
    model = Classifier.Config(encoder=encoder, dropout=0.0).build(Tokens(30), Labels(("a", "b")))
    source, keys = ids(2, 9), real(9, 5)
    close(model(source, keys)[1:], model(source[1:, :5], keys[1:, :5]))
