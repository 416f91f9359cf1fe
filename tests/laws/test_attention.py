"""Laws of attention, over every score, normaliser and kind, against the definitions of the kinds.

Others are in test_model_kinds.py and test_equations.py; those of models are in test_families.py.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from foveate.config import Config
from foveate.look.hooks import capture
from foveate.measure.laws.layers import check_weights
from foveate.models.transformer import TransformerDecoder
from foveate.nn.attention import Attention, BaseAttention, split_heads
from foveate.nn.context import DecoderState, Mask
from foveate.nn.efficient_attention import (
    KernelAttention,
    LocalAttention,
    LowRankAttention,
    RandomFeatureAttention,
    SparseAttention,
)
from foveate.nn.more_positions import ALiBi
from foveate.nn.positions import Rotary
from foveate.nn.scores import Score
from foveate.nn.spec import Tokens
from laws.conftest import SIZE, TRANSFORMER, changed, defaults, each, each_mask, real, weights_of
from tolerances import close, differ

Road = Callable[[bool], list[int]]


def values_of(attention: Attention, memory: Tensor) -> Tensor:
    """(B, H, S, K): what each head may mix."""
    values = split_heads(attention.value(memory), attention.key_heads)
    return values.repeat_interleave(attention.num_heads // attention.key_heads, dim=1)


def joined(mixed: Tensor) -> Tensor:
    """(B, H, T, K) -> (B, T, H·K)."""
    return mixed.transpose(1, 2).flatten(2)


@each("score")
def test_a_score_copies_no_matrix_for_each_sequence(config: Config) -> None:
    """Nothing that a score of one query makes, or its gradient, is larger than the keys."""
    rows, length, size = 64, 2, 16
    score = config.build(1, size)
    with _Largest() as seen:
        scores = score(torch.randn(rows, 1, 1, size), torch.randn(rows, 1, length, size))
        if scores.requires_grad:
            scores.sum().backward()
    assert seen.numel <= rows * length * size


class _Largest(TorchDispatchMode):
    """The size of the largest tensor that is written."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **kwargs or {})
        if isinstance(result, Tensor) and 0 not in result.stride():
            self.numel = max(self.numel, result.numel())
        return result


@each_mask
def test_fused_equals_explicit(attention: Attention, mask: Callable[[], Mask], fused: Road) -> None:
    """The outputs, and the mixture by weights that sum to one and are 0 where masked."""
    query, memory = torch.randn(2, 5, SIZE, requires_grad=True), torch.randn(2, 5, SIZE)
    rotation = Rotary.Config().build(SIZE, attention.num_heads)
    possible = attention.score.scale is not None and attention.normalizer.fusable
    for read, position in ((None, None), (memory, None), (None, rotation)):
        inputs, result = (query, read, mask(), None, position), []
        for expected in (False, True):
            calls = fused(expected)
            output = attention(*inputs)
            assert bool(calls) == (expected and possible), "not the road that was asked for"
            (gradient,) = torch.autograd.grad(output.square().sum(), query)
            result.append((output, gradient))
        for explicit, other in zip(*result, strict=True):
            close(other, explicit)
        calls.clear()
        weights = weights_of(attention, *inputs)
        assert not calls, "who looks takes the explicit road"
        check_weights(weights, {}, mask().dense(range(5), range(5)))
        values = values_of(attention, query if read is None else read)
        close(attention.output(joined(weights @ values)), output)


def test_fused_attention_never_asks_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed, kernel = [], F.scaled_dot_product_attention

    def asked(*inputs: Tensor, **options: object) -> Tensor:
        allowed.append(torch.backends.cuda.cudnn_sdp_enabled())
        return kernel(*inputs, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(F, "scaled_dot_product_attention", asked)
    Attention.Config(num_heads=2).build(SIZE)(torch.randn(1, 200, SIZE))
    assert allowed == [False]


def test_a_tap_replaces_weights_of_hypotheses_that_share_keys(attention: Attention) -> None:
    memory, query, shapes = torch.randn(2, 5, SIZE), torch.randn(6, 4, SIZE), []

    def last(weights: Tensor) -> Tensor:
        shapes.append(weights.shape)
        forced = torch.zeros_like(weights)
        forced[3, :, :, -1] = 1  # hypothesis 3 is the first of the second source
        return forced

    attention.tap = last
    output = attention(query, memory)
    assert shapes == [(6, attention.num_heads, 4, 5)]
    expected = attention.output(joined(values_of(attention, memory)[1:, :, -1:])).expand(-1, 4, -1)
    close(output[3:4], expected)
    close(output[4], attention.output.bias.expand(4, -1))


def test_keys_of_a_memory_are_made_once(attention: Attention) -> None:
    memory, query, state = torch.randn(2, 5, SIZE), torch.randn(2, 3, SIZE), DecoderState()
    first = attention(query, memory, state=state)
    assert torch.equal(attention(query, torch.full_like(memory, torch.nan), state=state), first)


def test_dropped_weights_keep_their_mean() -> None:
    attention = Attention.Config(dropout=0.25, project=("query", "key")).build(SIZE)
    x = torch.randn(1, 5, SIZE).repeat(4000, 1, 1)
    dropped = attention(x)
    expected = attention.eval()(x[:1])[0]
    torch.testing.assert_close(dropped.mean(dim=0), expected, atol=0.1, rtol=0.1)
    assert differ(dropped[0], dropped[1])


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match=r"num_heads = 3 .* 16"):
        Attention.Config(num_heads=3).build(SIZE)
    with pytest.raises(ValueError, match="key_heads = 3"):
        Attention.Config(num_heads=4, key_heads=3).build(SIZE)
    with pytest.raises(ValueError, match=r'the query has size 16 and its heads 24: add "query"'):
        Attention.Config(num_heads=4, head_size=6, project=("key", "value")).build(SIZE)


@each("score")
def test_keys_of_another_size_need_a_projection(config: Score.Config) -> None:
    unprojected = Attention.Config(score=config, project=())
    if not config.owner.reads_keys or config.joins_sizes:  # type: ignore[union-attr]
        assert unprojected.build(SIZE, 10)(torch.randn(1, 2, SIZE), torch.randn(1, 3, 10)).shape
        return
    with pytest.raises(ValueError, match=r"10 .* 16.*attention\.project"):
        unprojected.build(SIZE, 10)


@pytest.mark.parametrize("project", [("query", "key"), ("query", "key", "output")], ids=str)
@pytest.mark.parametrize("memory_size", [SIZE, 10, 12])
@pytest.mark.parametrize(("heads", "groups"), [(1, 1), (4, 4), (4, 2)])
def test_unprojected_values_fit_or_are_refused(project, memory_size, heads, groups) -> None:
    config = Attention.Config(num_heads=heads, key_heads=groups, project=project)  # type: ignore[arg-type]
    memory, query = torch.randn(2, 5, memory_size), torch.randn(2, 3, SIZE)
    try:
        attention = config.build(SIZE, memory_size)
    except ValueError as refusal:
        assert "value" in str(refusal), refusal
        assert memory_size % groups or heads != groups
        return
    assert attention(query, memory).shape == (2, 3, attention.output_size)


HEADS = 4
KINDS = {n: changed(c, num_heads=HEADS, key_heads=2) for n, c in defaults("attention").items()}
each_kind = pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
SPARSE = {n: c for n, c in KINDS.items() if issubclass(c.owner, SparseAttention)}
KERNELS = {n: c for n, c in KINDS.items() if issubclass(c.owner, KernelAttention)}
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
    attention, x = built(config), torch.randn(2, 9, SIZE, requires_grad=True)
    padded, blind = real(9, 6), real(9, 0)
    for mask in (Mask(), Mask(padded), Mask(causal=True), Mask(padded, causal=True), Mask(blind)):
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
    plain.square().sum().backward()
    assert bool(x.grad.isfinite().all())


@each_kind
def test_long_inputs_step_by_step(config: BaseAttention.Config) -> None:
    """Longer than any block, chunk and window."""
    attention, x = built(config), torch.randn(1, 150, SIZE)
    assert attention(x[:, :0], None, Mask(causal=attention.causal)).shape == (1, 0, SIZE)
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


def test_a_table_without_a_kind_is_full_attention() -> None:
    tree = {"attention": {"kind": "local"}, "cross_attention": {"score": "additive"}}
    decoder = TransformerDecoder.Config.parse(tree)
    assert type(decoder.attention) is LocalAttention.Config
    assert type(decoder.cross_attention) is Attention.Config


@pytest.mark.parametrize("window", range(1, 11))
@pytest.mark.parametrize("causal", [False, True])
def test_local_attention_is_full_attention_under_a_window(window: int, causal: bool) -> None:
    x, position = torch.randn(2, 9, SIZE), Rotary.Config().build(SIZE, 4)
    local = built(LocalAttention.Config(num_heads=4, window=window))
    expected = full_like(local)(x, None, Mask(real(9, 5), causal, window), None, position)
    close(local(x, None, Mask(real(9, 5), causal), None, position), expected)


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
    score, computed = attention.score.forward, [0]

    def counted(q: Tensor, k: Tensor) -> Tensor:
        computed[-1] += q.shape[2] * k.shape[2]
        return score(q, k)

    attention.score.forward = counted
    for length in (20, 40, 80):
        attention(torch.randn(1, length, SIZE), None, Mask(causal=True))
        computed.append(0)
    assert computed[1] < 2.2 * computed[0] and computed[2] < 2.2 * computed[1]


@each_sparse
def test_sparse_attention_is_not_for_a_memory(config: SparseAttention.Config) -> None:
    decoder = changed(TRANSFORMER[1], attention=config).build(Tokens(30), SIZE)
    assert type(decoder.layers[0].self_attention) is config.owner
    assert type(decoder.layers[0].cross_attention) is Attention
    with pytest.raises(ValueError, match=r'cross_attention = ".*full"'):
        changed(TRANSFORMER[1], cross_attention=config).build(Tokens(30), SIZE)


@each_kernel
def test_what_a_kernel_remembers_does_not_grow(config: BaseAttention.Config) -> None:
    def remembered(steps: int) -> int:
        attention, state = built(config), DecoderState()
        attention(torch.randn(1, steps, SIZE), None, Mask(causal=True), state)
        return state.numbers

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


def test_linformer_refuses_what_it_cannot_do() -> None:
    attention = built(LowRankAttention.Config(max_length=8))
    with pytest.raises(ValueError, match=r"9 positions .* max_length = 8"):
        attention(torch.randn(1, 9, SIZE))
    with pytest.raises(ValueError, match="another position"):
        attention(torch.randn(1, 5, SIZE), position=ALiBi.Config().build(SIZE, 1))
    with pytest.raises(ValueError, match="including future ones"):
        attention(torch.randn(1, 5, SIZE), mask=Mask(causal=True))

    decoder = changed(TRANSFORMER[1], attention=KINDS["linformer"])
    with pytest.raises(ValueError, match=r"decoder\.attention .* including future ones"):
        decoder.build(Tokens(30), SIZE)
