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
from foveate.look.stages import capture_stages
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
from foveate.nn.more_positions import Appended
from foveate.nn.positions import Sinusoidal
from foveate.nn.recurrent import ChoGRUCell, ElmanCell, GRUCell
from foveate.nn.scores import Additive
from foveate.nn.spec import Labels, Tokens
from foveate.run import RunConfig
from foveate.tasks.language import Language
from foveate.tasks.objectives import CrossEntropy
from laws.conftest import gradients_reach
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


def steps(count: int, model: LanguageModel, batch: Tensor) -> float:
    """The loss of a batch after some steps on it."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loss = torch.zeros(())
    for _ in range(count):
        logits = model(batch[:, :-1]).flatten(0, 1)
        loss = F.cross_entropy(logits, batch[:, 1:].flatten())
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


@torch.no_grad()
def test_a_batch_of_one_position_trains() -> None:
    norm = BatchNorm.Config().build(16)
    assert normalize(norm, torch.randn(1, 1, 16), None).isfinite().all()


def test_without_a_causal_mask_a_language_model_cheats(capsys: pytest.CaptureFixture[str]) -> None:
    honest, cheat = language_model(), language_model(causal=False)
    assert "what the model generates is meaningless" in capsys.readouterr().err
    language_model(causal=False)
    assert capsys.readouterr().err == ""  # said once
    other = IDS.clone()
    other[:, 5] = 4 + (other[:, 5] - 3) % 26
    assert torch.equal(honest(IDS)[:, :5], honest(other)[:, :5])
    assert not torch.equal(cheat(IDS)[:, :5], cheat(other)[:, :5])
    chance = [torch.randint(4, 30, (16, 9)) for _ in range(40)]  # no token can be foretold

    def after(model: LanguageModel) -> float:
        return [steps(1, model.train(), batch) for _ in range(6) for batch in chance][-1]

    assert after(cheat) < 1.0 < 3.0 < after(honest)  # log 26 = 3.26


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
    explicit = {}
    with capture(attention):  # a tap: no fused kernel
        explicit["whole"] = attention(x, mask=mask)
    close(attention(x, mask=mask), explicit["whole"], terms=MODEL)  # in training by native kernels
    monkeypatch.setattr("foveate.nn.native.kernels.SHORT", -1)
    close(attention(x, mask=mask), explicit["whole"], terms=MODEL)  # by PyTorch's fused kernel
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
    assert (weights.sum(-1) < 0.999).all() or length >= 5


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


def bahdanau(*overrides: str) -> EncoderDecoder:
    """RNNsearch with overrides as a user writes them, at the sizes of the preset."""
    tree = with_overrides(Model.Config, {"kind": "bahdanau-2015"}, overrides)
    torch.manual_seed(0)
    model: EncoderDecoder = Model.Config.parse(tree).build(Tokens(30), Tokens(30)).eval()
    return model


@torch.no_grad()
@pytest.mark.parametrize("score", ["dot", "cosine", "general", "additive"])
def test_scores_of_states_that_are_not_projected(score: str) -> None:
    level = ["encoder.hidden_size=128"] if score in ("dot", "cosine") else []  # 2 · 128 = 256
    own = ["decoder.attention.score.own_matrix=true"] if score == "additive" else []
    choices = (f"decoder.attention.score={score}", "decoder.attention.project=[]")
    model = bahdanau(*choices, *level, *own)
    attention = model.decoder.cross_attention
    assert not [name for name, _ in attention.named_parameters() if not name.startswith("score.")]
    size = 256 if level else 512
    s, h = torch.randn(1, 2, 256), torch.randn(1, 5, size)
    with capture(attention) as maps:
        attention(s, h)
    q, k, w = s[0], h[0], attention.score
    if score == "additive":
        w_a = torch.cat((w.of_query[0], w.of_key[0]), dim=1)  # (256, 256 + 512)
        pairs = torch.cat((q[:, None].expand(2, 5, 256), k[None].expand(2, 5, size)), dim=-1)
        expected = torch.tanh(pairs @ w_a.T) @ w.weight[0]
    else:
        expected = {
            "dot": lambda: q @ k.T,
            "cosine": lambda: 10 * F.cosine_similarity(q[:, None], k[None], dim=-1),
            "general": lambda: q @ w.weight[0] @ k.T,
        }[score]()
    close(maps[""][0, 0], expected.softmax(dim=-1), terms=MODEL)
    assert model(IDS, IDS, KEYS).isfinite().all()


def test_a_dot_product_of_two_sizes_is_refused() -> None:
    with pytest.raises(ValueError, match=r'add "key" to attention.project, or make the sizes eq'):
        bahdanau("decoder.attention.score=dot", "decoder.attention.project=[]")


def test_additive_without_its_own_matrix_is_as_it_was() -> None:
    names = [name for name, _ in Additive.Config().build(1, 8).named_parameters()]
    assert names == ["weight"]
    score = Additive.Config(own_matrix=True).build(2, 8)
    score(torch.randn(3, 2, 4, 8), torch.randn(3, 2, 5, 8)).sum().backward()
    gradients_reach(score)


@torch.no_grad()
def test_appended_positions_are_the_last_features() -> None:
    choices = SIZES | {"position": {"kind": "appended", "features": 6}}
    encoder = TransformerEncoder.Config.parse(choices).build(Tokens(30)).eval()
    assert encoder.stem.embedding.weight.shape == (30, 10)
    x = encoder.embed(IDS)
    assert torch.equal(x[..., :10], encoder.stem(IDS))
    sinusoids = Sinusoidal.Config().build(6, 1).encode(torch.arange(6), 6)
    assert torch.equal(x[..., 10:], sinusoids.expand(3, 6, 6))
    assert type(encoder.position) is Appended and not list(encoder.position.parameters())
    with pytest.raises(ValueError, match=r"position.features = 16 leaves nothing .* lower it"):
        TransformerEncoder.Config.parse(
            SIZES | {"position": choices["position"] | {"features": 16}}
        ).build(Tokens(30))
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
def test_cells_as_printed() -> None:
    x, h = torch.randn(4, 5), torch.randn(4, 8)
    cell = ElmanCell.Config(activation="sigmoid").build(5, 8)
    total = x @ cell.weight_ih.T + cell.bias_ih + h @ cell.weight_hh.T + cell.bias_hh
    close(cell(cell.project(x), (h,))[0], total.sigmoid())

    cell = ChoGRUCell.Config().build(5, 8)
    wr, wz, w = (m for m in cell.weight_ih.chunk(3))
    ur, uz, u = (m for m in cell.weight_hh.chunk(3))
    br, bz, b = cell.bias_ih.chunk(3)
    cr, cz, c = cell.bias_hh.chunk(3)
    r = (x @ wr.T + br + h @ ur.T + cr).sigmoid()
    z = (x @ wz.T + bz + h @ uz.T + cz).sigmoid()
    n = (x @ w.T + b + (r * h) @ u.T + c).tanh()
    close(cell(cell.project(x), (h,))[0], (1 - z) * n + z * h)
    with capture_stages(cell) as stages:
        cell(cell.project(x), (h,))
    close(stages["reset gate"].values[0], r)
    torch_form = GRUCell.Config().build(5, 8)
    torch_form.load_state_dict(cell.state_dict())
    assert not torch.allclose(torch_form(cell.project(x), (h,))[0], (1 - z) * n + z * h)


@torch.no_grad()
def test_cbow_guesses_the_centre_from_its_neighbours() -> None:
    encoder = {"kind": "cbow_window", "window": 2, "embedding_size": 16, "dropout": 0.0}
    tree = {"encoder": encoder, "transform": False, "output_bias": False}
    config = MaskedLanguageModel.Config.parse(tree)
    model = config.build(Tokens(30)).eval()
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
    loss = task.loss(model, IDS, CrossEntropy.Config(label_smoothing=0.0).build())
    logits = model(IDS[:, :-1]).flatten(0, 1)
    expected = F.cross_entropy(logits, IDS[:, 1:].flatten(), reduction="sum")
    close(loss.total, expected, terms=MODEL)
    loss.total.backward()
    assert model.output.bias.grad.abs().sum() > 0
    labels = Labels(("good", "bad"))
    assert Classifier.Config(output_bias=False).build(Tokens(30), labels).output.bias is None


CHANGES: dict[str, dict[str, Any]] = {
    "no feed-forward": {"feed_forward": "none"},
    "no norm": {"norm": "none"},
    "batch norm": {"norm": "batch_norm"},
    "norms of embeddings": {"embedding_norm": {"kind": "batch_norm"}},
    "value size": {"attention": {"value_size": 6}},
    "appended positions": {"position": {"kind": "appended", "features": 6}, "tie": "none"},
    "dense stem": {"stem": "dense"},
    "location as printed": {
        "attention": {"score": {"kind": "location", "softmax_over": "max_length"}}
    },
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


CONFIGS = Path(__file__).parent.parent / "configs"


def test_the_recipe_of_2017_is_that_of_the_paper() -> None:
    config = read(RunConfig, CONFIGS / "translation" / "vaswani-2017-recipe.toml")
    tree = config.tree()
    assert {tree["model"][side]["norm_order"] for side in ("encoder", "decoder")} == {"post"}
    optimizer = tree["train"]["optimizer"]
    assert optimizer | {"betas": [0.9, 0.98], "eps": 1e-9} == optimizer
    assert tree["train"]["schedule"]["kind"] == "noam" and tree["train"]["average"] == 5
    assert tree["objective"]["label_smoothing"] == 0.1 and tree["decode"]["beam_size"] == 4


@pytest.mark.parametrize(
    ("name", "task", "model"),
    [
        ("translation/multi30k-fr-en-rnn", "translation", "encoder_decoder"),
        ("forecasting/temperatures-rnn", "forecasting", "rnn_forecaster"),
        ("classification/sst2-language-model", "prefix_translation", "language_model"),
    ],
)
def test_configs_that_the_lectures_name(name: str, task: str, model: str) -> None:
    config = read(RunConfig, CONFIGS / f"{name}.toml")
    assert (config.task.kind, config.model.kind) == (task, model)
    if task == "forecasting":
        assert config.task.calendar == ("day", "month", "year")  # and the value: four columns
