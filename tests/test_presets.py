"""Presets build the models of their papers, and those of transformers."""

from typing import Any

import pytest
import torch

from foveate.config import Config, assigned
from foveate.exchange.huggingface_families import BART, BERT, BERT_MASKED, ROBERTA, T5, VIT_LABELS
from foveate.models.encoder_decoder import EncoderDecoder, Model
from foveate.models.language_model import MaskedLanguageModel
from foveate.models.presets import PRESETS
from foveate.models.recurrent import RecurrentEncoder
from foveate.nn.attention import Attention
from foveate.nn.linear import RMSNorm
from foveate.nn.spec import Tokens

# ------------------------------ Models of the literature by name
PAIRS = [name for name, config in PRESETS.items() if issubclass(config, EncoderDecoder.Config)]
TRANSLATORS = [name for name in PAIRS if name != "show-attend-tell"]
read = Model.Config.parse


def built(config: EncoderDecoder.Config) -> EncoderDecoder:
    with torch.device("meta"):
        return config.build(Tokens(37_000), Tokens(37_000))


def attentions(config: EncoderDecoder.Config) -> list[Attention]:
    return [part for part in built(config).modules() if isinstance(part, Attention)]


def test_vaswani_base_is_the_papers_with_its_65_million_parameters() -> None:
    config = PRESETS["vaswani-base"]()
    count = sum(parameter.numel() for parameter in built(config).parameters())
    assert 63_000_000 <= count <= 65_000_000
    # by hand: one table, and per layer 4 D² + 4 D an attention, 2·D·F + D + F, 2 D a norm
    size, ffn, attention, norm = 512, 2048, 4 * 512**2 + 4 * 512, 2 * 512
    feed_forward = 2 * size * ffn + size + ffn
    encoder = 6 * (attention + feed_forward + 2 * norm)
    decoder = 6 * (2 * attention + feed_forward + 3 * norm)
    assert count == 37_000 * size + encoder + decoder
    for part in (config.encoder, config.decoder):
        assert (part.norm_order, part.dropout) == ("post", 0.1)
        assert (part.position.kind, part.feed_forward.kind) == ("sinusoidal", "relu")
    result = attentions(config)
    assert len(result) == 18 and {a.num_heads for a in result} == {8}


@pytest.mark.parametrize(
    ("name", "cell", "layers", "bidirectional", "query", "score"),
    [
        ("bahdanau-2015", "gru", 1, True, "previous", "additive"),
        ("luong-2015", "lstm", 2, False, "current", "general"),
        ("sutskever-2014", "lstm", 2, False, None, None),
    ],
)
def test_recurrent_presets_match_papers(name, cell, layers, bidirectional, query, score) -> None:
    config = read(name)
    assert config.encoder.cell.kind == config.decoder.cell.kind == cell
    assert config.encoder.num_layers == config.decoder.num_layers == layers
    assert config.encoder.bidirectional is bidirectional
    attention = config.decoder.attention
    assert (attention and attention.query) == query
    assert (attention and attention.score.kind) == score
    assert len(attentions(config)) == (0 if query is None else 1)


def flat(config: Config, where: str = "") -> dict[str, Any]:
    """Every value of a config by its dotted key."""
    result: dict[str, Any] = {where + "kind": config.kind}
    for name in type(config).model_fields:
        value = getattr(config, name)
        nested = isinstance(value, Config)
        result |= flat(value, f"{where}{name}.") if nested else {where + name: value}
    return result


@pytest.mark.parametrize("name", TRANSLATORS)
@pytest.mark.parametrize(
    ("key", "value"), [("encoder.dropout", 0.3), ("decoder.dropout", 0.25), ("tie", "none")]
)
def test_an_override_changes_one_field(name: str, key: str, value: Any) -> None:
    before = flat(PRESETS[name]())
    after = flat(read({"kind": name} | assigned(f"{key}={value}")))
    assert before[key] != value
    assert after == before | {key: value}


def test_a_part_deep_inside_is_changed_alone_and_another_kind_replaces_the_whole_part() -> None:
    after = read({"kind": "bahdanau-2015", "decoder": {"attention": {"score": "dot"}}})
    before = flat(PRESETS["bahdanau-2015"]())
    del before["decoder.attention.score.own_matrix"]  # a field of the additive score alone
    assert flat(after) == before | {"decoder.attention.score.kind": "dot"}
    config = read({"kind": "transformer-small", "encoder": {"kind": "recurrent"}, "tie": "target"})
    assert config.encoder == RecurrentEncoder.Config()
    assert config.decoder == PRESETS["transformer-small"]().decoder
    both = {"encoder": {"dropout": 0.3, "norm": "rms_norm"}, "decoder": {"position": "rope"}}
    config = read({"kind": "transformer-small"} | both)
    assert isinstance(config, PRESETS["transformer-small"])
    assert (config.encoder.norm, config.decoder.position.kind) == (RMSNorm.Config(), "rope")
    assert config.encoder.position == PRESETS["transformer-small"]().encoder.position


# ---- Presets of published models: what their config.json says, and as many parameters as they have
# preset, its family, where it differs from what config.json says where it says nothing
BART_SIZES = {"d_model": 768}
for _side in ("encoder", "decoder"):
    BART_SIZES |= {f"{_side}_layers": 6, f"{_side}_attention_heads": 12, f"{_side}_ffn_dim": 3072}
ROBERTA_SAID = {"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
BERT_BASE: Any = PRESETS["bert-base"]()
MASKED = MaskedLanguageModel.Config(encoder=BERT_BASE, norm=BERT_BASE.norm)
IMAGENET = {n: f"LABEL_{n}" for n in range(1000)}
THEIRS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "bert": (BERT_BASE, BERT, {}),
    "bert masked": (MASKED, BERT_MASKED, {}),
    "roberta": (PRESETS["roberta-base"](), ROBERTA, ROBERTA_SAID),
    "t5": (PRESETS["t5-small"](), T5, {}),
    "bart": (PRESETS["bart-base"](), BART, BART_SIZES),
    "vit": (PRESETS["vit-base"](), VIT_LABELS, {"id2label": IMAGENET, "layer_norm_eps": 1e-5}),
}
# of the published files, without the pooler of BERT and RoBERTa (D² + D) and the rows of places
# that stand for nothing (2 in RoBERTa, 2 + 2 in BART); b of BART is no parameter there
PUBLISHED = {
    "bert": 109_482_240 - 768 * 769,
    "bert masked": 109_514_298,
    "roberta": 124_645_632 - 768 * 769 - 2 * 768,
    "t5": 60_506_624,
    "bart": 139_420_416 - 4 * 768 + 50_265,
    "vit": 86_567_656,
}


@pytest.mark.parametrize("name", THEIRS)
def test_a_preset_is_what_config_json_says_with_the_published_parameters(name: str) -> None:
    preset, family, changes = THEIRS[name]
    expected = family.completed(changes, {})
    decided = {"id2label"}  # by what a model is built with, not by its config
    for key, value in family.write_config(preset.plain()).items():
        assert key in decided or value == expected.get(key, value), key
    assert expected.get("vocab_size", 30_522) > 30_000
    with torch.device("meta"):
        model = preset.build(*family.ends(family.completed(changes, {})))
    assert sum(parameter.numel() for parameter in model.parameters()) == PUBLISHED[name]
