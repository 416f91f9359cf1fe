"""Parts of models by their equations: stems, positions of T5, decoders of fixed length."""

import pytest
import torch

from foveate.look.hooks import capture
from foveate.models.encoder_decoder import EncoderDecoder, Memory
from foveate.models.recurrent import LocationDecoder
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.attention import Attention
from foveate.nn.embedding import SegmentStem
from foveate.nn.linear import GEGLU, GELU, GELUTanh, LayerNorm, SiLU
from foveate.nn.more_positions import T5Bias, T5CausalBias
from foveate.nn.positions import SinusoidalHalves
from foveate.nn.spec import Tokens
from foveate.tasks.objectives import CrossEntropy
from tolerances import MODEL, close

# ---- Parts that published models need: segments, a norm of embeddings, head sizes, an output bias
SIZES = {"hidden_size": 16, "num_heads": 4, "num_layers": 1, "ffn_size": 20, "dropout": 0.0}


def model(**fields: object) -> EncoderDecoder:
    encoder = TransformerEncoder.Config(**SIZES)  # type: ignore[arg-type]
    decoder = TransformerDecoder.Config(**SIZES)  # type: ignore[arg-type]
    config = EncoderDecoder.Config.parse({"encoder": encoder, "decoder": decoder, **fields})
    built: EncoderDecoder = config.build(Tokens(30), Tokens(30))
    return built


def test_segments_add_a_vector_for_each_text() -> None:
    stem = SegmentStem.Config(num_segments=3).build(Tokens(30), 16)
    ids, segments = torch.tensor([[4, 5, 4]]), torch.tensor([[0, 2, 1]])
    joined = stem(torch.stack((ids, segments), dim=-1))
    summed = stem.embedding.weight[ids] + stem.segment.weight[segments]
    torch.testing.assert_close(joined, summed, atol=0, rtol=0)
    assert torch.equal(stem(ids), stem.embedding.weight[ids] + stem.segment.weight[0])


def test_the_embedding_norm_is_before_the_first_layer() -> None:
    encoder = TransformerEncoder.Config.parse({**SIZES, "embedding_norm": LayerNorm.Config()})
    built = encoder.build(Tokens(30)).eval()
    seen = []
    built.layers[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    built(torch.tensor([[4, 5, 6]]))
    close(seen[0].mean(-1), torch.zeros(1, 3))
    close(seen[0].var(-1, correction=0), torch.ones(1, 3), terms=MODEL)


def test_a_model_without_it_has_no_more_parameters_than_before() -> None:
    names = {name for name, _ in TransformerEncoder.Config().build(Tokens(30)).named_parameters()}
    assert not [name for name in names if "embedding_norm" in name]
    assert "norm.norm.weight" in names


def test_heads_of_another_size_are_projected_back() -> None:
    attention = Attention.Config(num_heads=4, head_size=6, key_heads=2).build(16)
    assert attention.query.weight.shape == (24, 16)
    assert attention.key.weight.shape == (12, 16)
    assert attention.output.weight.shape == (16, 24)
    assert attention(torch.randn(2, 3, 16)).shape == (2, 3, 16)
    assert Attention.Config(num_heads=3, head_size=4).build(16).query.weight.shape == (12, 16)
    with pytest.raises(ValueError, match=r'the query has size 16 and its heads 24: add "query"'):
        Attention.Config(num_heads=4, head_size=6, project=("key", "value")).build(16)


def test_paired_of_both_inputs_leaves_the_output_its_own() -> None:
    built = model(tie="inputs")
    assert built.encoder.embedding is not None
    assert built.decoder.embedding is not None
    assert built.encoder.embedding.weight is built.decoder.embedding.weight
    assert built.output.weight is not built.decoder.embedding.weight


def test_the_output_bias_is_in_the_logits_and_in_the_loss() -> None:
    assert model().output.bias is None
    built = model(output_bias=True)
    hidden, expected = torch.randn(7, 16, requires_grad=True), torch.randint(30, (7,))
    torch.nn.init.normal_(built.output.bias)
    objective = CrossEntropy.Config(label_smoothing=0.1).build()
    loss = objective(hidden, built.output.weight, expected, built.output.bias).total
    how = {"label_smoothing": 0.1, "reduction": "sum"}
    plain = torch.nn.functional.cross_entropy(built.logits(hidden), expected, **how)
    close(loss, plain)
    inputs = [hidden, built.output.weight, built.output.bias]
    pairs = zip(torch.autograd.grad(loss, inputs), torch.autograd.grad(plain, inputs), strict=True)
    for ours, theirs in pairs:
        close(ours, theirs, terms=MODEL)


def test_feed_forwards_are_their_equations() -> None:
    x = torch.linspace(-3, 3, 13)
    silu, tanh = SiLU.Config().build(4, 8), GELUTanh.Config().build(4, 8)
    close(silu.activate(x), x * torch.sigmoid(x))
    inner = (2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)
    close(tanh.activate(x), x / 2 * (1 + torch.tanh(inner)))
    apart = (tanh.activate(x) - GELU.Config().build(4, 8).activate(x)).abs().max()
    assert 1e-5 < float(apart) < 1e-2
    gated, y = GEGLU.Config.parse({"bias": False}).build(4, 8), torch.randn(3, 4)
    inner = tanh.activate(y @ gated.inner.weight.T) * (y @ gated.gate.weight.T)
    expected = inner @ gated.outer.weight.T
    close(gated(y), expected)
    assert not [name for name, _ in gated.named_parameters() if "bias" in name]


def test_halves_hold_the_same_waves_in_another_order() -> None:
    at = torch.arange(5)
    halves = SinusoidalHalves.Config().build(8, 1).encode(at, 8)
    turns = at[:, None] / 10_000 ** (torch.arange(4) / 4)
    close(halves, torch.cat((turns.sin(), turns.cos()), dim=1))


# ------------------------------ T5's relative positions: which distances share a bucket
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


# ------------------------------ The fixed-length decoder against its equations, and its limit
CONFIG = LocationDecoder.Config(embedding_size=6, hidden_size=10, max_length=7, dropout=0.0)


def built(memory_size: int | None = 8) -> LocationDecoder:
    decoder: LocationDecoder = CONFIG.build(Tokens(20), memory_size)
    return decoder.eval()


@torch.no_grad()
def test_each_step_is_the_equation() -> None:
    decoder, memory = built(), Memory(torch.randn(1, 5, 8))
    ids = torch.tensor([[4, 7, 9]])
    score = decoder.cross_attention.score
    score.bias.normal_()  # type: ignore[union-attr,operator]
    with capture(decoder) as maps:
        result = decoder(ids, memory)[0]
    h = torch.tanh(decoder.bridge(memory.values.mean(dim=1)[0]))
    for t, x in enumerate(decoder.stem(ids)[0]):
        scores = score.weight[0] @ torch.cat((h, x)) + score.bias[0]  # type: ignore[operator,index]
        alpha = scores[:5].softmax(dim=-1)
        close(maps["cross_attention"][0, 0, t], alpha)
        z = torch.relu(decoder.mix(torch.cat((x, alpha @ memory.values[0]))))
        (h,) = (part[0] for part in decoder.cell(decoder.cell.project(z[None]), (h[None],)))
        close(result[t], torch.tanh(decoder.readout(h)))


def test_a_source_past_the_limit_is_refused() -> None:
    decoder, ids = built(), torch.tensor([[4]])
    assert decoder(ids, Memory(torch.randn(1, 7, 8))).shape == (1, 1, 6)
    with pytest.raises(ValueError, match=r"8 tokens .* max_length = 7.* cut the source"):
        decoder(ids, Memory(torch.randn(1, 8, 8)))


def test_it_needs_a_source() -> None:
    with pytest.raises(ValueError, match='language model lacks; use "recurrent"'):
        built(memory_size=None)
