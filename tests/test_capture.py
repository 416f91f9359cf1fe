"""Seeing what attention does without changing it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from foveate.look.capture import capture
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.recurrent import RecurrentAttention, RecurrentDecoder, RecurrentEncoder
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.attention import Attention
from foveate.spec import Tokens

SOURCE, TARGET = torch.randint(4, 20, (2, 5)), torch.randint(4, 20, (2, 3))


def transformer() -> EncoderDecoder:
    sizes = {"hidden_size": 16, "num_heads": 2, "num_layers": 2, "ffn_size": 8}
    config = EncoderDecoder.Config(
        encoder=TransformerEncoder.Config(**sizes),  # type: ignore[arg-type]
        decoder=TransformerDecoder.Config(**sizes),  # type: ignore[arg-type]
    )
    model: EncoderDecoder = config.build(Tokens(20), Tokens(20)).eval()
    return model


def recurrent() -> EncoderDecoder:
    config = EncoderDecoder.Config(
        encoder=RecurrentEncoder.Config(embedding_size=8, hidden_size=8),
        decoder=RecurrentDecoder.Config(
            embedding_size=8, hidden_size=8, attention=RecurrentAttention()
        ),
    )
    model: EncoderDecoder = config.build(Tokens(20), Tokens(20)).eval()
    return model


def taps(model: torch.nn.Module) -> list[object]:
    return [m.tap for m in model.modules() if isinstance(m, Attention)]


def test_every_attention_is_named_with_its_place() -> None:
    model = transformer()
    with capture(model) as maps:
        model(SOURCE, TARGET)
    shapes = {name: tuple(weights.shape) for name, weights in maps.items()}
    assert shapes == {
        f"{side}.layers.{layer}.{block}": shape
        for layer in range(2)
        for side, block, shape in (
            ("encoder", "self_attention", (2, 2, 5, 5)),
            ("decoder", "self_attention", (2, 2, 3, 3)),
            ("decoder", "cross_attention", (2, 2, 3, 5)),
        )
    }


def test_calls_of_a_recurrent_decoder_are_joined() -> None:
    model = recurrent()
    with capture(model) as maps:
        model(SOURCE, TARGET)
    weights = maps["decoder.cross_attention"]
    assert weights.shape == (2, 1, 3, 5)
    with capture(model) as first:
        model(SOURCE, TARGET[:, :2])
    assert torch.equal(first["decoder.cross_attention"], weights[:, :, :2])


def test_some_can_be_chosen() -> None:
    model = transformer()
    with capture(model, lambda name: name.endswith("1.cross_attention")) as maps:
        assert sum(tap is not None for tap in taps(model)) == 1
        model(SOURCE, TARGET)
    assert list(maps) == ["decoder.layers.1.cross_attention"]


@pytest.mark.parametrize("build", [transformer, recurrent])
def test_nothing_is_changed_and_nothing_stays(build) -> None:  # type: ignore[no-untyped-def]
    model = build()
    plain = model(SOURCE, TARGET)
    with capture(model) as maps:
        seen = model(SOURCE, TARGET)
    assert torch.equal(seen, plain)
    assert set(taps(model)) == {None}
    before = {name: weights.clone() for name, weights in maps.items()}
    model(TARGET, SOURCE)
    assert all(torch.equal(maps[name], weights) for name, weights in before.items())


def test_taps_come_off_after_an_error() -> None:
    model = transformer()
    with pytest.raises(RuntimeError, match="as wanted"), capture(model):
        raise RuntimeError("as wanted")
    assert set(taps(model)) == {None}


def test_a_tap_that_was_there_comes_back() -> None:
    model = transformer()

    def silence(weights: Tensor) -> Tensor:
        return weights * 0

    attention = model.decoder.layers[0].cross_attention  # type: ignore[union-attr,index]
    attention.tap = silence
    with capture(model) as maps:
        model(SOURCE, TARGET)
    assert attention.tap is silence
    assert len(maps) == 6


def test_gradients_flow_while_looking() -> None:
    model = transformer()
    with capture(model) as maps:
        model(SOURCE, TARGET).sum().backward()
    assert not any(weights.requires_grad for weights in maps.values())
    assert all(p.grad is not None for p in model.parameters())


def test_a_model_without_attention_has_no_maps() -> None:
    with capture(torch.nn.Linear(2, 2)) as maps:
        pass
    assert maps == {}
