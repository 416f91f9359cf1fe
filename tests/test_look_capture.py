"""Seeing what attention does without changing it."""

import pytest
import torch
from torch import Tensor

from foveate.config import ConfigError
from foveate.look.hooks import capture, chosen, hook_points
from foveate.models.encoder_decoder import DecoderSteps, EncoderDecoder
from foveate.models.recurrent import RecurrentAttention, RecurrentDecoder, RecurrentEncoder
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.attention import Attention
from foveate.nn.spec import Tokens
from tolerances import ROW, close, differ

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


def test_capture_takes_some_attentions() -> None:
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


def test_a_model_of_foveate_without_attention_has_no_maps() -> None:
    model = RecurrentEncoder.Config(embedding_size=8, hidden_size=8).build(Tokens(20))
    with capture(model) as maps:
        model(SOURCE)
    assert maps == {}


def test_blocks_layers_and_patterns_can_be_named() -> None:
    model = transformer()
    expected = {
        "cross_attention": ["decoder.layers.0.cross_attention", "decoder.layers.1.cross_attention"],
        "layers.1": [n for n in hook_points(model) if ".1." in n],
        "encoder": ["encoder.layers.0.self_attention", "encoder.layers.1.self_attention"],
        "decoder.self_attention": [f"decoder.layers.{layer}.self_attention" for layer in range(2)],
        "decoder.layers.?.cross*": [
            f"decoder.layers.{layer}.cross_attention" for layer in range(2)
        ],
    }
    for where, names in expected.items():
        assert list(chosen(model, where)) == names
    several = ["encoder.layers.0.self_attention", *expected["cross_attention"]]
    assert list(chosen(model, ["encoder.layers.0", "cross_attention"])) == several


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
    attention.tap = lambda weights: weights * 0
    silent = model(SOURCE, TARGET)
    with capture(model, "cross_attention") as maps:
        seen = model(SOURCE, TARGET)
    assert torch.equal(seen, silent)
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
