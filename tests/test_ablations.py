"""One thing changed at a time: parts left out, or put as a paper prints them."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.config import read, with_overrides
from foveate.data.text import TextData
from foveate.exchange.base import ExchangeError
from foveate.exchange.ctranslate2 import first_misfit
from foveate.exchange.huggingface import fitting
from foveate.look.hooks import capture
from foveate.models.classifier import Classifier
from foveate.models.encoder_decoder import (
    Decoder,
    DecoderSteps,
    Encoder,
    EncoderDecoder,
    Memory,
    Model,
)
from foveate.models.language_model import LanguageModel, MaskedLanguageModel
from foveate.models.presets import PRESETS
from foveate.models.recurrent import LocationDecoder
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.attention import Attention
from foveate.nn.context import Mask
from foveate.nn.linear import BatchNorm, normalize
from foveate.nn.positions import Sinusoidal
from foveate.nn.spec import Labels, Tokens
from foveate.run import RunConfig
from foveate.tasks.language import Language
from foveate.tasks.objectives import CrossEntropy
from tolerances import MODEL, close

SIZES: dict[str, Any] = {
    "hidden_size": 16, "num_heads": 4, "num_layers": 2, "ffn_size": 20, "dropout": 0.0
}  # fmt: skip
IDS = torch.randint(4, 30, (3, 6), generator=torch.Generator().manual_seed(1))
KEYS = torch.arange(6) < torch.tensor([6, 4, 5])[:, None]


def translator(tie: str = "target", **choices: Any) -> EncoderDecoder:
    torch.manual_seed(0)
    encoder = Encoder.Config.parse({"kind": "transformer"} | SIZES | choices)
    decoder = Decoder.Config.parse({"kind": "transformer"} | SIZES | choices)
    tree = {"encoder": encoder, "decoder": decoder, "tie": tie}
    config = PRESETS["transformer-small"].parse(tree)
    model: EncoderDecoder = config.build(Tokens(30), Tokens(30)).eval()
    return model


def language_model(**choices: Any) -> LanguageModel:
    torch.manual_seed(0)
    decoder = Decoder.Config.parse({"kind": "transformer"} | SIZES | choices)
    model: LanguageModel = LanguageModel.Config(decoder=decoder).build(Tokens(30)).eval()
    return model


def loss_after(model: LanguageModel, batches: list[Tensor]) -> float:
    optimizer = torch.optim.Adam(model.train().parameters(), lr=0.01)
    for batch in batches:
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def test_without_feed_forward_and_norm_a_decoder_of_fixed_weights_is_linear() -> None:
    parts = dict.fromkeys(("feed_forward", "norm", "position"), "none")
    model = language_model(**parts, attention={"score": "location"})
    layer = model.decoder.layers[0]
    assert len(layer.blocks) == 1 and not list(layer.feed_forward.parameters())
    attention = layer.self_attention
    attention.query.weight.zero_()  # weights that do not depend on the input
    x, y = torch.randn(2, 1, 5, 16)
    zero = attention(torch.zeros(1, 5, 16))
    close(attention(x + y) - zero, attention(x) - zero + attention(y) - zero, terms=MODEL)


def test_batch_norm_counts_the_real_positions_alone() -> None:
    torch.manual_seed(0)
    norm = BatchNorm.Config(momentum=1.0).build(16)
    with torch.no_grad():
        assert normalize(norm, torch.randn(1, 1, 16), None).isfinite().all()  # of one position
    x = torch.randn(3, 6, 16)
    y = normalize(norm, x, KEYS)
    rows = x[KEYS]
    expected = (rows - rows.mean(0)) / (rows.var(0, correction=0) + 1e-5).sqrt()
    close(y[KEYS], expected, terms=MODEL)
    assert not y[~KEYS].any()
    close(norm.mean, rows.mean(0), terms=MODEL)
    other = x.masked_fill(~KEYS[..., None], 1e6)  # what stands in padding counts nowhere
    assert torch.equal(normalize(norm, other, KEYS), y)
    norm.eval()
    in_use = (x - rows.mean(0)) / (rows.var(0) + 1e-5).sqrt()
    close(normalize(norm, x, KEYS), in_use, terms=MODEL)


def test_padding_does_not_change_what_batch_norm_learns_in_both_sides() -> None:
    models = [translator(norm="batch_norm", tie="none").train() for _ in range(2)]
    longer = F.pad(IDS, (0, 3), value=Tokens.padding)
    keys = F.pad(torch.ones_like(IDS, dtype=torch.bool), (0, 3))
    for model, source, real in zip(models, (IDS, longer), (None, keys), strict=True):
        model(source, source, real)
    names = [name for name, _ in models[0].named_buffers()]
    assert names and all("norm" in name for name in names)
    for name, buffer in models[0].named_buffers():
        close(models[1].get_buffer(name), buffer, terms=MODEL)


def test_without_a_causal_mask_a_language_model_cheats(capsys: pytest.CaptureFixture[str]) -> None:
    honest, cheat = language_model(), language_model(causal=False)
    assert "what the model generates is meaningless" in capsys.readouterr().err
    language_model(causal=False)
    assert capsys.readouterr().err == ""  # said once
    other = IDS.clone()
    other[:, 5] = 4 + (other[:, 5] - 3) % 26
    assert torch.equal(honest(IDS)[:, :5], honest(other)[:, :5])
    assert not torch.equal(cheat(IDS)[:, :5], cheat(other)[:, :5])
    chance = [torch.randint(4, 30, (16, 9)) for _ in range(40)] * 6  # no token can be foretold
    assert loss_after(cheat, chance) < 1.0 < 3.0 < loss_after(honest, chance)  # log 26 = 3.26


@pytest.mark.parametrize("kind", ["transformer", "ssru"])
def test_only_a_language_model_of_attention_may_cheat(kind: str) -> None:
    decoder = Decoder.Config.parse({"kind": kind, "causal": False} | SIZES)
    with pytest.raises(ValueError, match=r"causal = false .* leave it out"):
        decoder.build(Tokens(30), 16)
    if kind == "ssru":
        with pytest.raises(ValueError, match="causal"):
            decoder.build(Tokens(30), None)


def test_values_may_have_another_size_than_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    attention = Attention.Config(num_heads=4, key_heads=2, value_size=6).build(16)
    assert attention.key.weight.shape == (8, 16) and attention.value.weight.shape == (12, 16)
    assert attention.output.weight.shape == (16, 24)
    x, mask = torch.randn(3, 6, 16), Mask(KEYS, causal=True)
    with capture(attention):  # a tap: no fused kernel
        explicit = attention(x, mask=mask)
    close(attention(x, mask=mask), explicit, terms=MODEL)  # in training by native kernels
    monkeypatch.setattr("foveate.nn.native.kernels.SHORT", -1)
    close(attention(x, mask=mask), explicit, terms=MODEL)  # by PyTorch's fused kernel
    with pytest.raises(ValueError, match=r'value_size = 6 .* add "value" to attention.project'):
        Attention.Config(value_size=6, project=("query", "key")).build(16)


@torch.no_grad()
@pytest.mark.parametrize("length", [3, 5, 7])
def test_location_as_printed_is_a_softmax_over_all_positions_cut(length: int) -> None:
    score = {"kind": "location", "max_length": 5, "softmax_over": "max_length"}
    attention = Attention.Config.parse({"score": score, "project": []}).build(16)
    x, memory = torch.randn(2, 1, 16), torch.randn(2, length, 16)
    keys = torch.arange(length) < torch.tensor([length, 2])[:, None]
    with capture(attention) as maps:
        context = attention(x, memory, Mask(keys))
    weights = maps[""][:, 0, 0]
    printed = (x[:, 0] @ attention.score.weight[0].T).softmax(dim=-1)  # over L_max = 5
    expected = torch.zeros(2, length)
    expected[0, : min(length, 5)] = printed[0, :length]
    expected[1, :2] = printed[1, :2]
    close(weights, expected)
    close(context[:, 0], (expected[..., None] * memory).sum(1))


@torch.no_grad()
def test_the_location_decoder_takes_longer_sources_as_printed() -> None:
    sizes = {"embedding_size": 6, "hidden_size": 10, "max_length": 4}
    config = LocationDecoder.Config(**sizes, softmax_over="max_length")
    decoder = config.build(Tokens(30), 8).eval()
    memory = torch.randn(3, 6, 8)
    other = memory.clone()
    other[:, 4:] = 9.0  # past L_max no word counts, but in the mean that starts the decoder
    decoder.bridge.weight.zero_()
    assert torch.equal(decoder(IDS, Memory(memory)), decoder(IDS, Memory(other)))


@torch.no_grad()
def test_an_additive_score_of_states_of_two_sizes_that_are_not_projected() -> None:
    """RNNsearch with overrides as a user writes them, at the sizes of the preset."""
    score = "decoder.attention.score={kind=additive, own_matrix=true}"
    choices = [score, "decoder.attention.project=[]"]
    tree = with_overrides(Model.Config, {"kind": "bahdanau-2015"}, choices)
    model: EncoderDecoder = Model.Config.parse(tree).build(Tokens(30), Tokens(30)).eval()
    attention = model.decoder.cross_attention
    assert not [name for name, _ in attention.named_parameters() if not name.startswith("score.")]
    s, h, w = torch.randn(1, 2, 256), torch.randn(1, 5, 512), attention.score
    with capture(attention) as maps:
        attention(s, h)
    w_a = torch.cat((w.of_query[0], w.of_key[0]), dim=1)  # (256, 256 + 512)
    pairs = torch.cat((s[0][:, None].expand(2, 5, 256), h.expand(2, 5, 512)), dim=-1)
    expected = torch.tanh(pairs @ w_a.T) @ w.weight[0]
    close(maps[""][0, 0], expected.softmax(dim=-1), terms=MODEL)
    assert model(IDS, IDS, KEYS).isfinite().all()


@torch.no_grad()
def test_appended_positions_are_the_last_features() -> None:
    choices = SIZES | {"position": {"kind": "appended", "features": 6}}
    encoder = TransformerEncoder.Config.parse(choices).build(Tokens(30)).eval()
    assert encoder.stem.embedding.weight.shape == (30, 10)
    x = encoder.embed(IDS)
    assert torch.equal(x[..., :10], encoder.stem(IDS))
    sinusoids = Sinusoidal.Config().build(6, 1).encode(torch.arange(6), 6)
    assert torch.equal(x[..., 10:], sinusoids.expand(3, 6, 6))
    with pytest.raises(ValueError, match=r"position.features = 16 leaves nothing .* lower it"):
        language_model(position={"kind": "appended", "features": 16})
    with pytest.raises(ValueError, match=r"set model.tie = "):
        language_model(position=choices["position"])


@torch.no_grad()
def test_a_dense_stem_is_a_hidden_layer_at_each_position() -> None:
    encoder = Encoder.Config.parse({"kind": "cbow", "stem": "dense", "dropout": 0.0})
    built = encoder.build(Tokens(30)).eval()
    stem = built.stem
    x = stem.embedding.weight[IDS]
    close(built(IDS).values, 1 / (1 + (-(x @ stem.dense.weight.T + stem.dense.bias)).exp()))


@torch.no_grad()
def test_cbow_guesses_the_centre_from_its_neighbours() -> None:
    encoder = {"kind": "cbow_window", "window": 2, "embedding_size": 16, "dropout": 0.0}
    tree = {"encoder": encoder, "transform": False, "output_bias": False}
    model = MaskedLanguageModel.Config.parse(tree).build(Tokens(30)).eval()
    table = model.encoder.stem.embedding.weight
    assert [name for name, _ in model.named_parameters()] == ["encoder.stem.embedding.weight"]
    logits = model(IDS, KEYS)
    for row, length in enumerate(KEYS.sum(1).tolist()):
        for t in range(length):
            near = [i for i in range(max(0, t - 2), min(length, t + 3)) if i != t]
            h = table[IDS[row, near]].mean(0)
            close(logits[row, t], table @ h, terms=MODEL)


def test_the_output_bias_of_a_language_model_learns() -> None:
    config = LanguageModel.Config(decoder=TransformerDecoder.Config(**SIZES), output_bias=True)
    model = config.build(Tokens(30)).eval()
    with torch.no_grad():
        model.output.bias.normal_()
    task = Language(Language.Config(text="text.txt"), TextData())
    loss = task.loss(model, IDS, CrossEntropy.Config(label_smoothing=0.0).build()).total
    logits = model(IDS[:, :-1]).flatten(0, 1)
    close(loss, F.cross_entropy(logits, IDS[:, 1:].flatten(), reduction="sum"), terms=MODEL)
    loss.backward()
    assert model.output.bias.grad.abs().sum() > 0
    labels = Labels(("good", "bad"))
    assert Classifier.Config(output_bias=False).build(Tokens(30), labels).output.bias is None


CHANGES: dict[str, dict[str, Any]] = {
    "norms of embeddings": {"embedding_norm": {"kind": "batch_norm"}},
    "value size": {"attention": {"value_size": 6}},
    "location": {"attention": {"score": {"kind": "location", "softmax_over": "max_length"}}},
}


@pytest.mark.parametrize("name", CHANGES)
@torch.no_grad()
def test_steps_compute_what_the_model_does_and_exports_refuse(name: str) -> None:
    model, ids = translator(**CHANGES[name]), IDS[:, 0]
    steps = DecoderSteps(model, model.encode(IDS, KEYS))
    close(steps.step(ids), model(IDS, ids[:, None], KEYS)[:, -1])
    assert first_misfit(model) is not None
    with pytest.raises(ExchangeError):
        fitting(model.config.plain())


def test_a_model_that_cheats_is_not_exported() -> None:
    decoder = PRESETS["gpt-tiny"]().decoder.model_copy(update={"causal": False})
    fitting(PRESETS["gpt-tiny"]().plain(), "gpt2")
    with pytest.raises(ExchangeError, match="causal"):
        fitting(PRESETS["gpt-tiny"](decoder=decoder).plain(), "gpt2")


def test_the_recipe_of_2017_is_that_of_the_paper() -> None:
    configs = Path(__file__).parent.parent / "configs"
    tree = read(RunConfig, configs / "translation" / "vaswani-2017-recipe.toml").tree()
    assert {tree["model"][side]["norm_order"] for side in ("encoder", "decoder")} == {"post"}
    optimizer = tree["train"]["optimizer"]
    assert optimizer | {"betas": [0.9, 0.98], "eps": 1e-9} == optimizer
    assert tree["train"]["schedule"]["kind"] == "noam" and tree["train"]["average"] == 5
    assert tree["objective"]["label_smoothing"] == 0.1 and tree["decode"]["beam_size"] == 4
