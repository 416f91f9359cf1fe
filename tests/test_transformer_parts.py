"""Parts that published models need: segments, a norm of embeddings, head sizes, an output bias."""

from __future__ import annotations

import pytest
import torch

from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.attention import Attention
from foveate.nn.embedding import SegmentStem
from foveate.nn.feed_forward import GEGLU, GELU, GELUTanh, SiLU
from foveate.nn.linear import LayerNorm
from foveate.nn.positions import SinusoidalHalves
from foveate.spec import Tokens
from foveate.tasks.objectives import CrossEntropy
from tolerances import MODEL, close

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
    torch.testing.assert_close(
        joined, stem.embedding.weight[ids] + stem.segment.weight[segments], atol=0, rtol=0
    )
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


def test_one_table_of_both_inputs_leaves_the_output_its_own() -> None:
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
    plain = torch.nn.functional.cross_entropy(
        built.logits(hidden), expected, label_smoothing=0.1, reduction="sum"
    )
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
    expected = (tanh.activate(y @ gated.inner.weight.T) * (y @ gated.gate.weight.T)) @ (
        gated.outer.weight.T
    )
    close(gated(y), expected)
    assert not [name for name, _ in gated.named_parameters() if "bias" in name]


def test_halves_hold_the_same_waves_in_another_order() -> None:
    at = torch.arange(5)
    halves = SinusoidalHalves.Config().build(8, 1).encode(at, 8)
    turns = at[:, None] / 10_000 ** (torch.arange(4) / 4)
    close(halves, torch.cat((turns.sin(), turns.cos()), dim=1))
