"""Presets of published models: what their config.json says, and as many parameters as they have."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from foveate.export.huggingface import FAMILIES
from foveate.models.presets_huggingface import BartBase, BertBase, RobertaBase, T5Small
from foveate.spec import Tokens

# preset, its family, where it differs from what config.json says where it says nothing
BART_SIZES = {"d_model": 768}
for _side in ("encoder", "decoder"):
    BART_SIZES |= {f"{_side}_layers": 6, f"{_side}_attention_heads": 12, f"{_side}_ffn_dim": 3072}
ROBERTA = {"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
PRESETS: dict[str, tuple[Any, dict[str, Any]]] = {
    "bert": (BertBase(), {}),
    "roberta": (RobertaBase(), ROBERTA),
    "t5": (T5Small(), {}),
    "bart": (BartBase(), BART_SIZES),
}
# of the published files, without the pooler of BERT and RoBERTa (D² + D) and the rows of places
# that stand for nothing (2 in RoBERTa, 2 + 2 in BART); b of BART is no parameter there
PUBLISHED = {
    "bert": 109_482_240 - 768 * 769,
    "roberta": 124_645_632 - 768 * 769 - 2 * 768,
    "t5": 60_506_624,
    "bart": 139_420_416 - 4 * 768 + 50_265,
}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_what_config_json_says(name: str) -> None:
    preset, changes = PRESETS[name]
    family = FAMILIES[name]
    wanted = family.complete({key.theirs: key.default for key in family.keys} | changes, {})
    for key, value in family.write_config(preset).items():
        assert value == wanted.get(key, value), key
    assert wanted["vocab_size"] > 30_000


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_the_published_number_of_parameters(name: str) -> None:
    family = FAMILIES[name]
    vocabulary = Tokens(next(k.default for k in family.keys if k.theirs == "vocab_size"))
    with torch.device("meta"):
        model = PRESETS[name][0].build(*[vocabulary] * family.inputs)
    assert sum(parameter.numel() for parameter in model.parameters()) == PUBLISHED[name]
