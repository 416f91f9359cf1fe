"""Families of pictures: the Vision Transformer, alone or with the head that says labels."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from foveate.export.huggingface_decoders import ACTIVATIONS
from foveate.export.huggingface_ends import Pictures, Settings, sides
from foveate.export.huggingface_rules import (
    ExchangeError,
    Family,
    Form,
    Key,
    Row,
    Rule,
    Tensors,
    headed,
    layers,
)
from foveate.models.classifier import Classifier, First
from foveate.models.transformer import TransformerEncoder
from foveate.nn.feed_forward import GELU
from foveate.nn.position import Learned
from foveate.nn.stem_pixels import PatchStem


class Only(Form):
    """A vector stored as the only row of the only matrix."""

    def read(self, theirs: Tensor, settings: Settings) -> Tensor:
        return theirs.flatten()

    def write(self, ours: Tensor, there: Tensor | None, settings: Settings) -> Tensor:
        return ours.view(1, 1, -1)


def _places(settings: Settings) -> int:
    """The patches of a picture and the class token."""
    height, width = sides(settings.get("image_size", 224))
    patch: Any = settings.get("patch_size", 16)
    if not isinstance(patch, int):
        raise ExchangeError(f"patch_size = {patch!r}: we have square patches, given by one number")
    return (height // patch) * (width // patch) + 1


def _complete(settings: Settings, tensors: Tensors) -> Settings:
    """Labels without names have numbers."""
    numbered = {n: f"LABEL_{n}" for n in range(settings.get("num_labels", 2))}
    return {"id2label": numbered} | settings | {"places": _places(settings)}


def _finish(settings: Settings) -> Settings:
    """Places are not said but follow from the picture."""
    places, needed = settings["places"], _places(settings)
    if places != needed:
        raise ExchangeError(
            f"vit has no place for encoder.position.max_length = {places}: a picture of "
            f"{settings['image_size']} has {needed} places, the class token included"
        )
    return {name: value for name, value in settings.items() if name != "places"}


ENCODER = TransformerEncoder.Config(
    stem=PatchStem.Config(class_token=True),
    position=Learned.Config(),
    feed_forward=GELU.Config(),
)

VIT = Family(
    name="vit",
    architecture="ViTModel",
    ends=Pictures(labels=False),
    config=ENCODER,
    keys=(
        Key("image_size", 224, ()),
        Key("num_channels", 3, ()),
        Key("patch_size", 16, ("stem.patch_size",)),
        Key("places", None, ("position.max_length",)),
        Key("hidden_size", 768, ("hidden_size",)),
        Key("num_hidden_layers", 12, ("num_layers",)),
        Key("num_attention_heads", 12, ("num_heads",)),
        Key("intermediate_size", 3072, ("ffn_size",)),
        Key("layer_norm_eps", 1e-12, ("norm.eps",)),
        Key("hidden_act", "gelu", ("feed_forward.kind",), ACTIVATIONS),
        Key("hidden_dropout_prob", 0.0, ("dropout",)),
        Key("attention_probs_dropout_prob", 0.0, ("attention.dropout",)),
    ),
    only={"qkv_bias": True},
    prefix="vit.",
    rules=(
        Rule("stem.class_token", "embeddings.cls_token", Only()),
        Rule("stem.patches", "embeddings.patch_embeddings.projection"),
        Rule("position.table.weight", "embeddings.position_embeddings", Row()),
        Rule("norm.norm", "layernorm"),
        *layers(
            "layers.*",
            "encoder.layer.*",
            {
                "self_attention.query": "attention.attention.query",
                "self_attention.key": "attention.attention.key",
                "self_attention.value": "attention.attention.value",
                "self_attention.output": "attention.output.dense",
                "feed_forward.inner": "intermediate.dense",
                "feed_forward.outer": "output.dense",
                "blocks.0.norm.norm": "layernorm_before",
                "blocks.1.norm.norm": "layernorm_after",
            },
        ),
    ),
    heads=("pooler.", "vit.pooler.", "vit.embeddings.mask_token", "decoder."),
    complete=_complete,
    finish=_finish,
)

VIT_LABELS = headed(
    VIT,
    keys=(Key("id2label", {0: "LABEL_0", 1: "LABEL_1"}, ()),),
    rules=(Rule("output", "classifier"),),
    also={},
    architecture="ViTForImageClassification",
    ends=Pictures(labels=True),
    config=Classifier.Config(encoder=ENCODER, pooling=First.Config(), dropout=0.0),
    head="classifier.weight",
    heads=("vit.pooler.",),
)
