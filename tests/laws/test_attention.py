"""Laws of attention, over every score and every normaliser."""

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from foveate.config import Config
from foveate.measure.laws.layers import check_weights
from foveate.nn.attention import Attention, split_heads
from foveate.nn.context import DecoderState, Mask
from foveate.nn.positions import Rotary
from foveate.nn.scores import Dot, Location, Score, Softmax
from laws.conftest import KEYS, SIZE, each, each_mask, keeps_laws, weights_of
from tolerances import close, differ

Road = Callable[[bool], list[int]]


def roads(attention: Attention, fused: Road) -> Iterator[bool]:
    """Take the explicit road, and then the fused one where the score has it."""
    fused(False)
    yield False
    if attention.score.scale is not None and attention.normalizer.fusable:
        fused(True)
        yield True


def values_of(attention: Attention, memory: Tensor) -> Tensor:
    """(B, H, S, K): what each head may mix."""
    values = split_heads(attention.value(memory), attention.key_heads)
    return values.repeat_interleave(attention.num_heads // attention.key_heads, dim=1)


def joined(mixed: Tensor) -> Tensor:
    """(B, H, T, K) -> (B, T, H·K)."""
    return mixed.transpose(1, 2).flatten(2)


@each("score")
def test_laws_of_scores(config: Config) -> None:
    keeps_laws(config)


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


@each("normalizer")
def test_laws_of_normalizers(config: Config) -> None:
    keeps_laws(config)


@each("attention")
def test_laws_of_attention(config: Config) -> None:
    keeps_laws(config)


@each_mask
def test_fused_equals_explicit(attention: Attention, mask: Callable[[], Mask], fused: Road) -> None:
    query, memory = torch.randn(2, 5, SIZE, requires_grad=True), torch.randn(2, 5, SIZE)
    for read in (None, memory):
        result = []
        for expected in (False, True):
            calls = fused(expected)
            output = attention(query, read, mask())
            possible = attention.score.scale is not None and attention.normalizer.fusable
            assert bool(calls) == (expected and possible), "not the road that was asked for"
            (gradient,) = torch.autograd.grad(output.square().sum(), query)
            result.append((output, gradient))
        for explicit, other in zip(*result, strict=True):
            close(other, explicit)


def test_fused_attention_never_asks_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed, kernel = [], F.scaled_dot_product_attention

    def asked(*inputs: Tensor, **options: object) -> Tensor:
        allowed.append(torch.backends.cuda.cudnn_sdp_enabled())
        return kernel(*inputs, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(F, "scaled_dot_product_attention", asked)
    Attention.Config(num_heads=2).build(SIZE)(torch.randn(1, 200, SIZE))
    assert allowed == [False]


def test_a_tap_chooses_the_explicit_road(attention: Attention, fused: Road) -> None:
    calls = fused(True)
    attention.tap = lambda weights: None
    attention(torch.randn(2, 5, SIZE))
    assert not calls


def test_rotated_fused_equals_rotated_explicit(attention: Attention, fused: Road) -> None:
    x, position = torch.randn(2, 6, SIZE), Rotary.Config().build(SIZE, attention.num_heads)
    both = roads(attention, fused)
    result = [attention(x, mask=Mask(causal=True), position=position) for _ in both]
    close(result[-1], result[0])


@each_mask
def test_rows_sum_to_one_and_are_zero_where_masked(attention, mask) -> None:
    weights = weights_of(attention, torch.randn(2, 5, SIZE), None, mask())
    assert weights.shape == (2, attention.num_heads, 5, 5)
    check_weights(weights, {}, mask().dense(range(5), range(5)))


def test_the_output_is_the_mixture_by_the_weights(attention: Attention) -> None:
    x = torch.randn(2, 5, SIZE)
    mixed = weights_of(attention, x) @ values_of(attention, x)
    close(attention(x), attention.output(joined(mixed)))


def test_a_silenced_head_takes_its_share_away(attention: Attention) -> None:
    x, silenced = torch.randn(2, 5, SIZE), attention.num_heads - 1
    size = SIZE // attention.num_heads

    def silence(weights: Tensor) -> Tensor:
        saved = torch.ones(attention.num_heads, 1, 1)
        saved[silenced] = 0
        return weights * saved

    whole, mixed = attention(x), weights_of(attention, x) @ values_of(attention, x)
    columns = attention.output.weight[:, silenced * size : (silenced + 1) * size]
    attention.tap = silence
    close(attention(x), whole - mixed[:, silenced] @ columns.T)


def test_a_tap_can_force_where_to_look(attention: Attention) -> None:
    x = torch.randn(2, 5, SIZE)
    attention.tap = lambda weights: torch.eye(5).expand_as(weights)
    close(attention(x), attention.output(joined(values_of(attention, x))))


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


def test_a_query_that_sees_nothing_gets_zeros(attention: Attention, fused: Road) -> None:
    keys = torch.tensor([[False] * 5, [True] * 5])
    x = torch.randn(2, 5, SIZE)
    for _ in roads(attention, fused):
        output = attention(x, mask=Mask(keys))
        assert torch.equal(output[0], attention.output.bias.expand(5, -1))
        close(output[1], attention(x[1:])[0])
    assert bool((weights_of(attention, x, None, Mask(keys))[0] == 0).all())


def test_gradients_of_blind_queries_are_numbers(attention: Attention, fused: Road) -> None:
    keys = torch.tensor([[False] * 5, [True] * 5])
    for _ in roads(attention, fused):
        attention.zero_grad()
        x = torch.randn(2, 5, SIZE, requires_grad=True)
        attention(x, mask=Mask(keys)).square().sum().backward()
        for tensor in (x, *attention.parameters()):
            assert tensor.grad is not None
            assert bool(tensor.grad.isfinite().all())
        assert bool((x.grad[0] == 0).all())  # type: ignore[index]


def test_attention_without_position_is_equivariant_to_permutation(attention: Attention) -> None:
    if not attention.score.reads_keys:
        pytest.skip("this score looks at places, whatever stands there")
    x, order = torch.randn(2, 6, SIZE), torch.randperm(6)
    close(attention(x[:, order]), attention(x)[:, order])


def test_the_future_leaves_the_past_bit_equal(attention: Attention, fused: Road) -> None:
    x = torch.randn(2, 6, SIZE)
    other = x.clone()
    other[:, 4:] = 1e3 * torch.randn(2, 2, SIZE)
    for _ in roads(attention, fused):
        before, after = (attention(item, mask=Mask(causal=True)) for item in (x, other))
        assert torch.equal(before[:, :4], after[:, :4])
        assert differ(before[:, 4:], after[:, 4:])


def test_what_stands_in_padding_changes_no_bit(attention: Attention, fused: Road) -> None:
    memory, query = torch.randn(2, 5, SIZE), torch.randn(2, 3, SIZE)
    other = memory.clone()
    other[~KEYS] = 1e3
    for _ in roads(attention, fused):
        assert torch.equal(*(attention(query, m, Mask(KEYS)) for m in (memory, other)))
        close(attention(query[1:], memory[1:, :3]), attention(query, memory, Mask(KEYS))[1:])


def test_grouped_queries_equal_repeated_keys(attention: Attention) -> None:
    heads, groups = attention.num_heads, attention.key_heads
    full = attention.config.model_copy(update={"key_heads": None}).build(SIZE).eval()
    full.load_state_dict(
        {
            name: value.unflatten(0, (groups, -1))
            .repeat_interleave(heads // groups, 0)
            .flatten(0, 1)
            if name.partition(".")[0] in ("key", "value")
            else value
            for name, value in attention.state_dict().items()
        }
    )
    x = torch.randn(2, 5, SIZE)
    close(attention(x, mask=Mask(KEYS)), full(x, mask=Mask(KEYS)))


@each_mask
def test_hypotheses_share_the_keys_of_their_source(attention, mask, fused) -> None:
    memory, seen = torch.randn(2, 5, SIZE), mask()
    keys = None if seen.key_mask is None else seen.key_mask.repeat_interleave(3, 0)
    for _ in roads(attention, fused):
        for steps in (1, 3):
            query, own = torch.randn(6, steps, SIZE), Mask(keys, seen.causal, seen.window)
            expanded = attention(query, memory.repeat_interleave(3, 0), own)
            close(attention(query, memory, mask()), expanded)


@pytest.mark.parametrize("window", [None, 2])
def test_whole_equals_chunk_by_chunk(attention: Attention, window: int | None) -> None:
    x = torch.randn(2, 5, SIZE)
    whole = attention(x, mask=Mask(causal=True, window=window))
    for chunks in ([1] * 5, [3, 2], [1, 4], [3, 1, 1], [2, 1, 2]):
        state, result = DecoderState(), []
        for part in x.split(chunks, dim=1):
            result.append(attention(part, None, Mask(causal=True, window=window), state))
            state.position += part.shape[1]
        close(torch.cat(result, dim=1), whole)


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


def test_colder_softmax_looks_at_one_place() -> None:
    def weights(temperature: float) -> Tensor:
        torch.manual_seed(0)
        normalizer = Softmax.Config(temperature=temperature)
        attention = Attention.Config(normalizer=normalizer, num_heads=4).build(SIZE)
        return weights_of(attention, torch.randn(2, 5, SIZE))

    hard = torch.nn.functional.one_hot(weights(1.0).argmax(dim=-1), 5).float()
    close(weights(1e-6), hard)


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match=r"num_heads = 3 .* 16"):
        Attention.Config(num_heads=3).build(SIZE)
    with pytest.raises(ValueError, match="key_heads = 3"):
        Attention.Config(num_heads=4, key_heads=3).build(SIZE)


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


def test_location_refuses_a_source_past_its_limit() -> None:
    attention = Attention.Config(score=Location.Config(max_length=7)).build(SIZE)
    assert attention(torch.randn(1, 7, SIZE)).shape == (1, 7, SIZE)
    with pytest.raises(ValueError, match=r"8 tokens .* max_length = 7"):
        attention(torch.randn(1, 8, SIZE))


def test_nothing_projected_is_the_equation_alone() -> None:
    attention = Attention.Config(score=Dot.Config(), project=()).build(SIZE)
    query, memory = torch.randn(2, 3, SIZE), torch.randn(2, 5, SIZE)
    assert not list(attention.parameters())
    close(attention(query, memory), (query @ memory.mT).softmax(dim=-1) @ memory)
