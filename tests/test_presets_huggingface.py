"""Presets of published models: what their config.json says, and as many parameters as they have."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from foveate.export.huggingface_families import BART, BERT, BERT_MASKED, ROBERTA, T5, VIT_LABELS
from foveate.models.language_model import MaskedLanguageModel
from foveate.models.presets import BERT_NORM, BartBase, BertBase, RobertaBase, T5Small, ViTBase

# preset, its family, where it differs from what config.json says where it says nothing
BART_SIZES = {"d_model": 768}
for _side in ("encoder", "decoder"):
    BART_SIZES |= {f"{_side}_layers": 6, f"{_side}_attention_heads": 12, f"{_side}_ffn_dim": 3072}
ROBERTA_SAID = {"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
MASKED = MaskedLanguageModel.Config(encoder=BertBase(), norm=BERT_NORM)
IMAGENET = {n: f"LABEL_{n}" for n in range(1000)}
PRESETS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "bert": (BertBase(), BERT, {}),
    "bert masked": (MASKED, BERT_MASKED, {}),
    "roberta": (RobertaBase(), ROBERTA, ROBERTA_SAID),
    "t5": (T5Small(), T5, {}),
    "bart": (BartBase(), BART, BART_SIZES),
    "vit": (ViTBase(), VIT_LABELS, {"id2label": IMAGENET, "layer_norm_eps": 1e-5}),
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


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_what_config_json_says(name: str) -> None:
    preset, family, changes = PRESETS[name]
    expected = family.completed(changes, {})
    decided = {"id2label"}  # by what a model is built with, not by its config
    for key, value in family.write_config(preset.plain()).items():
        assert key in decided or value == expected.get(key, value), key
    assert expected.get("vocab_size", 30_522) > 30_000


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_the_published_number_of_parameters(name: str) -> None:
    preset, family, changes = PRESETS[name]
    with torch.device("meta"):
        model = preset.build(*family.ends.read(family.completed(changes, {})))
    assert sum(parameter.numel() for parameter in model.parameters()) == PUBLISHED[name]
