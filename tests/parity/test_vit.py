"""Our Vision Transformer against that of the `transformers` library, with the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from foveate.models.classifier import Classifier, First
from foveate.models.presets_vision import vit
from foveate.spec import Labels, Pixels

pytest.importorskip("transformers", reason="parity needs the transformers library (extra: dev)")

LAYERS, NAMES = 2, ("a", "b", "c", "d", "e")


def ours() -> Classifier:
    encoder = vit(4, 13, (32, 4, LAYERS, 48))
    config = Classifier.Config(encoder=encoder, pooling=First.Config(), dropout=0.0)
    torch.manual_seed(0)
    model: Classifier = config.build(Pixels(3, 12, 16), Labels(NAMES)).eval()
    with torch.no_grad():  # so that biases, norms and the class token count as well
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def theirs(eps: float) -> Any:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=48,
        hidden_act="gelu",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        layer_norm_eps=eps,
        image_size=(12, 16),
        patch_size=4,
        num_channels=3,
        num_labels=len(NAMES),
    )
    return ViTForImageClassification(config).eval()


def test_vit_equals_transformers() -> None:
    model = ours()
    other = theirs(model.config.encoder.norm.eps)  # type: ignore[attr-defined]
    weights = dict(model.state_dict())
    weights["encoder.stem.class_token"] = weights["encoder.stem.class_token"].view(1, 1, -1)
    table = weights["encoder.position.table.weight"]
    weights["encoder.position.table.weight"] = table[None]
    left = dict(weights)
    state = other.state_dict()
    for name, value in state.items():
        state[name] = left.pop(NAMED.get(name) or layer_name(name))
        assert state[name].shape == value.shape, name
    assert not left, "every weight of ours has a place in theirs"
    other.load_state_dict(state)
    pixels = torch.randn(4, 3, 12, 16, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        found, wanted = model(pixels), other(pixels).logits
    assert float((found - wanted).abs().max()) < 1e-4
    assert float(wanted.std()) > 0.1, "a comparison of zeros says nothing"


NAMED = {
    "vit.embeddings.cls_token": "encoder.stem.class_token",
    "vit.embeddings.position_embeddings": "encoder.position.table.weight",
    "vit.embeddings.patch_embeddings.projection.weight": "encoder.stem.patches.weight",
    "vit.embeddings.patch_embeddings.projection.bias": "encoder.stem.patches.bias",
    "vit.layernorm.weight": "encoder.norm.norm.weight",
    "vit.layernorm.bias": "encoder.norm.norm.bias",
    "classifier.weight": "output.weight",
    "classifier.bias": "output.bias",
}
PARTS = {  # theirs, in the names of several versions of the library
    "attention.attention.query": "self_attention.query",
    "attention.attention.key": "self_attention.key",
    "attention.attention.value": "self_attention.value",
    "attention.output.dense": "self_attention.output",
    "attention.q_proj": "self_attention.query",
    "attention.k_proj": "self_attention.key",
    "attention.v_proj": "self_attention.value",
    "attention.o_proj": "self_attention.output",
    "mlp.fc1": "feed_forward.inner",
    "mlp.fc2": "feed_forward.outer",
    "intermediate.dense": "feed_forward.inner",
    "output.dense": "feed_forward.outer",
    "layernorm_before": "blocks.0.norm.norm",
    "layernorm_after": "blocks.1.norm.norm",
}


def layer_name(name: str) -> str:
    """Our name of a weight of one of their layers."""
    parts = name.split(".")
    number = next(part for part in parts if part.isdecimal())
    inner = ".".join(parts[parts.index(number) + 1 : -1])
    return f"encoder.layers.{number}.{PARTS[inner]}.{parts[-1]}"
