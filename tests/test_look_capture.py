"""Seeing what attention does without changing it."""

from typing import Any

import pytest
import torch

from foveate.config import ConfigError
from foveate.look.hooks import capture, chosen, hook_points
from foveate.models.encoder_decoder import DecoderSteps, EncoderDecoder
from foveate.models.recurrent import RecurrentAttention, RecurrentDecoder, RecurrentEncoder
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.attention import Attention
from foveate.nn.spec import Tokens
from tolerances import ROW, close, differ

SOURCE, TARGET = torch.randint(4, 20, (2, 5)), torch.randint(4, 20, (2, 3))


def built(encoder: Any, decoder: Any) -> EncoderDecoder:
    config = EncoderDecoder.Config(encoder=encoder, decoder=decoder)
    return config.build(Tokens(20), Tokens(20)).eval()


def transformer(**encoder: Any) -> EncoderDecoder:
    sizes: dict[str, Any] = {"hidden_size": 16, "num_heads": 2, "num_layers": 2, "ffn_size": 8}
    own = TransformerEncoder.Config(**sizes | encoder)
    return built(own, TransformerDecoder.Config(**sizes))


def recurrent(**encoder: Any) -> EncoderDecoder:
    sizes: dict[str, Any] = {"embedding_size": 8, "hidden_size": 8}
    decoder = RecurrentDecoder.Config(**sizes, attention=RecurrentAttention())
    return built(RecurrentEncoder.Config(**sizes | encoder), decoder)


def taps(model: torch.nn.Module) -> list[object]:
    return [m.tap for m in model.modules() if isinstance(m, Attention)]


@pytest.mark.parametrize("build", [transformer, recurrent])
def test_nothing_is_changed_and_nothing_stays(build) -> None:  # type: ignore[no-untyped-def]
    model = build()
    plain = model(SOURCE, TARGET)
    with capture(model) as maps:
        seen = model(SOURCE, TARGET)
    assert torch.equal(seen, plain) and set(taps(model)) == {None}
    before = {name: weights.clone() for name, weights in maps.items()}
    model(TARGET, SOURCE)
    assert all(torch.equal(maps[name], weights) for name, weights in before.items())
    seen.sum().backward()  # gradients flow while it is looked at
    assert not any(weights.requires_grad for weights in maps.values())
    assert all(p.grad is not None for p in model.parameters())
    rnn = RecurrentEncoder.Config(embedding_size=8, hidden_size=8).build(Tokens(20))
    with capture(rnn) as maps:  # which has no attention
        rnn(SOURCE)
    assert maps == {}


def test_blocks_layers_and_patterns_can_be_named() -> None:
    model = transformer()
    encoder, own, cross = (
        [f"{block}.layers.{layer}.{kind}_attention" for layer in range(2)]
        for block, kind in (("encoder", "self"), ("decoder", "self"), ("decoder", "cross"))
    )
    for where, names in (
        ("cross_attention", cross),
        ("layers.1", [n for n in hook_points(model) if ".1." in n]),
        ("encoder", encoder),
        ("decoder.self_attention", own),
        ("decoder.layers.?.cross*", cross),
        (["encoder.layers.0", "cross_attention"], [encoder[0], *cross]),
    ):
        assert list(chosen(model, where)) == names


@pytest.mark.parametrize("where", ["cross", "layers.2", ["encoder", "pooling"]])
def test_a_name_that_fits_nothing_is_told(where: object) -> None:
    with pytest.raises(ConfigError, match=r"no attention is called '.*'; there are: encoder"):
        chosen(transformer(), where)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="this model has no attention"):
        chosen(torch.nn.Linear(2, 2), "encoder")


def test_what_would_not_fit_is_refused_before_the_second_layer() -> None:
    model = transformer()
    some = 4 * 2 * 2 * (5 * 5 + 5 * 5)  # bytes of the encoder's maps
    with capture(model, "encoder", limit=some) as maps:
        model(SOURCE, TARGET)
    with (
        pytest.raises(ConfigError, match=r"2 maps of 2 × 2 heads × 5 queries × 5 keys.*capture\("),
        capture(model, "encoder", limit=some - 1) as maps,
    ):
        model(SOURCE, TARGET)
    assert maps == {}
    assert set(taps(model)) == {None}


def test_what_is_seen_is_what_was_mixed_in_the_end() -> None:
    model = transformer()
    attention = model.decoder.layers[0].cross_attention  # type: ignore[union-attr,index]
    plain = model(SOURCE, TARGET)
    silence = attention.tap = lambda weights: weights * 0
    silent = model(SOURCE, TARGET)
    with capture(model, "cross_attention") as maps:
        seen = model(SOURCE, TARGET)
    assert torch.equal(seen, silent) and attention.tap is silence
    assert differ(seen, plain)
    assert not maps["decoder.layers.0.cross_attention"].any()


def test_steps_of_a_search_are_joined_and_keys_that_are_not_there_yet_are_zero() -> None:
    model = transformer()
    with capture(model) as whole, torch.no_grad():
        model(SOURCE, TARGET)
    with capture(model) as steps, torch.no_grad():
        search = DecoderSteps(model, model.encode(SOURCE))
        for ids in TARGET.unbind(1):
            search.step(ids)
    assert steps.keys() == whole.keys()
    for name, weights in whole.items():
        close(steps[name], weights, terms=ROW, why=name)


def test_steps_of_other_rows_are_refused_and_other_calls_kept_apart() -> None:
    model = transformer()
    with capture(model, "encoder") as maps:
        model(SOURCE, TARGET)
        model(SOURCE[:1], TARGET[:1])
    assert [len(weights) for weights in maps.values()] == [2, 2, 1, 1]
    assert list(maps)[2] == "encoder.layers.0.self_attention#2"
    with pytest.raises(ConfigError, match="called for 2 rows and then for 1"), capture(model):
        model(SOURCE, TARGET[:, :1])
        model(SOURCE[:1], TARGET[:1, :1])
