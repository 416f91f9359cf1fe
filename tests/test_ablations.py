"""One thing changed at a time: parts left out, or put as a paper prints them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from foveate.export.ctranslate2 import first_misfit
from foveate.export.huggingface import fitting
from foveate.export.huggingface_rules import ExchangeError
from foveate.models.encoder_decoder import Decoder, Encoder, EncoderDecoder
from foveate.models.language_model import LanguageModel
from foveate.models.native import decoder_steps, native_memory, native_steps
from foveate.models.presets import GPTTiny, TransformerSmall
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.linear import BatchNorm, LayerNorm, normalize
from foveate.spec import Tokens
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
    config = TransformerSmall.parse({"encoder": encoder, "decoder": decoder, "tie": tie})
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
        loss = torch.nn.functional.cross_entropy(logits, batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


# ------------------------------------------------------------------------------ no feed-forward


@torch.no_grad()
def test_without_feed_forward_and_norm_a_decoder_of_fixed_weights_is_linear() -> None:
    model = language_model(
        feed_forward="none", norm="none", position="none", attention={"score": "location"}
    )
    layer = model.decoder.layers[0]
    assert len(layer.blocks) == 1 and not list(layer.feed_forward.parameters())
    attention = layer.self_attention
    attention.query.weight.zero_()  # weights that do not depend on the input
    x, y = torch.randn(2, 1, 5, 16)
    zero = attention(torch.zeros(1, 5, 16))
    close(attention(x + y) - zero, attention(x) - zero + attention(y) - zero, terms=MODEL)


# ------------------------------------------------------------------------------ norms


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
    longer = torch.nn.functional.pad(IDS, (0, 3), value=Tokens.padding)
    keys = torch.nn.functional.pad(torch.ones_like(IDS, dtype=torch.bool), (0, 3))
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


# ------------------------------------------------------------------------------ no causal mask


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


# ------------------------------------------------------------------------------ kernels, exports

CHANGES: dict[str, dict[str, Any]] = {
    "no feed-forward": {"feed_forward": "none"},
    "no norm": {"norm": "none"},
    "batch norm": {"norm": "batch_norm"},
    "norms of embeddings": {"embedding_norm": {"kind": "batch_norm"}},
}


@pytest.mark.parametrize("name", CHANGES)
@torch.no_grad()
def test_the_kernels_give_way_and_exports_refuse(name: str) -> None:
    model = translator(**CHANGES[name])
    memory = model.encode(IDS, KEYS)
    assert native_steps(model, memory) is None
    if name != "norms of embeddings":  # which PyTorch computes
        assert native_memory(model.encoder, IDS, KEYS) is None
    ids = IDS[:, 0]
    close(decoder_steps(model, memory).step(ids), model(IDS, ids[:, None], KEYS)[:, -1])
    assert first_misfit(model) is not None
    with pytest.raises(ExchangeError):
        fitting(model.config.plain())
    one = language_model(**CHANGES[name])
    with pytest.raises(ExchangeError):
        fitting(one.config.plain())


def test_a_model_that_cheats_is_not_exported() -> None:
    decoder = GPTTiny().decoder.model_copy(update={"causal": False})
    fitting(GPTTiny().plain(), "gpt2")
    with pytest.raises(ExchangeError, match="causal"):
        fitting(GPTTiny(decoder=decoder).plain(), "gpt2")


# ------------------------------------------------------------------------------ what was, is


def test_a_config_written_before_these_fields_gives_the_same_model() -> None:
    for config in (TransformerEncoder.Config(), TransformerDecoder.Config()):
        tree = {k: v for k, v in config.tree().items() if k != "causal"}
        family: type[Config] = (
            Encoder.Config if "encoder" in type(config).family else Decoder.Config
        )
        assert family.parse(tree) == config
    assert isinstance(translator().encoder.layers[0].blocks[0].norm, LayerNorm)
