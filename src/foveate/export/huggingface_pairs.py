"""Encoder–decoder families: T5, BART, Marian and Pegasus."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from foveate.export.huggingface_decoders import ACTIVATIONS
from foveate.export.huggingface_ends import Settings, Words
from foveate.export.huggingface_rules import (
    AfterTwo,
    Family,
    Form,
    Key,
    Row,
    Rule,
    Tensors,
    layers,
)
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.attention import Attention
from foveate.nn.feed_forward import GELU, ReLU
from foveate.nn.norm import LayerNorm, RMSNorm
from foveate.nn.position import Learned, SinusoidalHalves
from foveate.nn.position_t5 import T5Bias, T5CausalBias
from foveate.nn.stem import TokenStem


def both(field: str) -> tuple[str, ...]:
    """A field of the encoder and of the decoder."""
    return f"encoder.{field}", f"decoder.{field}"


# ------------------------------------------------------------------------------ T5


class Scaled(Form):
    """The last norm of a T5 whose logits are W (h / √D): γ / √D says the same without a factor."""

    def read(self, theirs: Tensor, settings: Settings) -> Tensor:
        return theirs * settings["d_model"] ** -0.5 if settings["scale_decoder_outputs"] else theirs

    def write(self, ours: Tensor, there: Tensor | None, settings: Settings) -> Tensor:
        return ours / settings["d_model"] ** -0.5 if settings["scale_decoder_outputs"] else ours


def _t5_complete(settings: Settings, tensors: Tensors) -> Settings:
    """T5 1.1 has an output table of its own, and does not scale what it is compared with."""
    own = tensors.get("lm_head.weight")
    tied = own is None or torch.equal(own, tensors.get("shared.weight", own))
    scaled = settings.get("scale_decoder_outputs", settings.get("tie_word_embeddings", True))
    return settings | {
        "tie_word_embeddings": tied,
        "scale_decoder_outputs": scaled,
        "num_decoder_layers": settings.get("num_decoder_layers") or settings.get("num_layers", 6),
    }


def _t5_finish(settings: Settings) -> Settings:
    return settings | {"scale_decoder_outputs": settings["tie_word_embeddings"]}


T5_PARTS: dict[str, Any] = {
    "norm": RMSNorm.Config(),
    "stem": TokenStem.Config(),
    "attention": Attention.Config.parse({"score": "dot", "bias": False}),
    "feed_forward": ReLU.Config.parse({"bias": False}),
}


def _t5_attention(ours: str, theirs: str) -> dict[str, str]:
    names = {"query": "q", "key": "k", "value": "v", "output": "o"}
    return {f"{ours}.{own}": f"{theirs}.{other}" for own, other in names.items()}


def _t5_feed_forward(settings: Settings) -> tuple[Rule, ...]:
    """A gate takes the name wi_1, and what it gates then wi_0."""
    inner = "wi_0" if str(settings["feed_forward_proj"]).startswith("gated") else "wi"
    names = {"inner": inner, "gate": "wi_1", "outer": "wo"}
    return tuple(
        Rule(f"{side}.layers.*.feed_forward.{own}", f"{side}.block.*.{number}.{theirs}")
        for side, number in (
            ("encoder", "layer.1.DenseReluDense"),
            ("decoder", "layer.2.DenseReluDense"),
        )
        for own, theirs in names.items()
    )


_BIAS = "block.0.layer.0.SelfAttention.relative_attention_bias"

T5 = Family(
    name="t5",
    architecture="T5ForConditionalGeneration",
    ends=Words(2),
    config=EncoderDecoder.Config(
        encoder=TransformerEncoder.Config(position=T5Bias.Config(), **T5_PARTS),
        decoder=TransformerDecoder.Config(position=T5CausalBias.Config(), **T5_PARTS),
    ),
    keys=(
        Key("vocab_size", 32128, ()),
        Key("d_model", 512, both("hidden_size")),
        Key("d_kv", 64, both("attention.head_size")),
        Key("d_ff", 2048, both("ffn_size")),
        Key("num_layers", 6, ("encoder.num_layers",)),
        Key("num_decoder_layers", None, ("decoder.num_layers",)),
        Key("num_heads", 8, both("num_heads")),
        Key("relative_attention_num_buckets", 32, both("position.num_buckets")),
        Key("relative_attention_max_distance", 128, both("position.max_distance")),
        Key("layer_norm_epsilon", 1e-6, both("norm.eps")),
        Key(
            "feed_forward_proj",
            "relu",
            both("feed_forward.kind"),
            {"relu": "relu", "gated-gelu": "geglu", "gated-silu": "swiglu"},
        ),
        Key(
            "dropout_rate",
            0.1,
            (*both("dropout"), *both("attention.dropout"), *both("feed_forward.dropout")),
        ),
        Key("tie_word_embeddings", True, ("tie",), {True: "all", False: "inputs"}),
    ),
    rules=(
        Rule("encoder.stem.embedding", "shared"),
        Rule("encoder.position.table", f"encoder.{_BIAS}"),
        Rule("decoder.position.table", f"decoder.{_BIAS}"),
        Rule("encoder.norm.norm", "encoder.final_layer_norm"),
        Rule("decoder.norm.norm", "decoder.final_layer_norm", Scaled()),
        Rule("output.weight", "lm_head.weight"),
        *layers(
            "encoder.layers.*",
            "encoder.block.*",
            {
                **_t5_attention("self_attention", "layer.0.SelfAttention"),
                "blocks.0.norm.norm": "layer.0.layer_norm",
                "blocks.1.norm.norm": "layer.1.layer_norm",
            },
        ),
        *layers(
            "decoder.layers.*",
            "decoder.block.*",
            {
                **_t5_attention("self_attention", "layer.0.SelfAttention"),
                **_t5_attention("cross_attention", "layer.1.EncDecAttention"),
                "blocks.0.norm.norm": "layer.0.layer_norm",
                "blocks.1.norm.norm": "layer.1.layer_norm",
                "blocks.2.norm.norm": "layer.2.layer_norm",
            },
        ),
    ),
    rules_of=_t5_feed_forward,
    copies=dict.fromkeys(
        ("lm_head.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
        "shared.weight",
    ),
    computed=("layer.1.EncDecAttention.relative_attention_bias.weight",),  # never read
    complete=_t5_complete,
    finish=_t5_finish,
)


# ------------------------------------------------------------------------------ BART, Marian


def _side(side: str, norms: tuple[str, ...]) -> tuple[Rule, ...]:
    """The layers of the encoder or of the decoder."""
    attentions = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
    parts = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
    names: dict[str, str | tuple[str, Form]] = {
        f"{ours}.{part}": f"{theirs}.{name}"
        for ours, theirs in attentions.items()
        for part, name in parts.items()
    }
    names |= {"feed_forward.inner": "fc1", "feed_forward.outer": "fc2"}
    names |= {f"blocks.{number}.norm.norm": name for number, name in enumerate(norms)}
    return layers(f"{side}.layers.*", f"model.{side}.layers.*", names)


_SIDES = (
    Rule("encoder.stem.embedding", "model.shared"),
    Rule("output.bias", "final_logits_bias", Row()),
    *_side("encoder", ("self_attn_layer_norm", "final_layer_norm")),
    *_side("decoder", ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm")),
)
_KEYS = (
    Key("d_model", 1024, both("hidden_size")),
    Key("encoder_layers", 12, ("encoder.num_layers",)),
    Key("decoder_layers", 12, ("decoder.num_layers",)),
    Key("encoder_attention_heads", 16, ("encoder.num_heads",)),
    Key("decoder_attention_heads", 16, ("decoder.num_heads",)),
    Key("encoder_ffn_dim", 4096, ("encoder.ffn_size",)),
    Key("decoder_ffn_dim", 4096, ("decoder.ffn_size",)),
    Key("activation_function", "gelu", both("feed_forward.kind"), ACTIVATIONS),
    Key("scale_embedding", False, both("stem.scale"), {True: "sqrt", False: "none"}),
    Key("dropout", 0.1, both("dropout")),
    Key("attention_dropout", 0.0, both("attention.dropout")),
    Key("activation_dropout", 0.0, both("feed_forward.dropout")),
    Key("tie_word_embeddings", True, ("tie",), {True: "all"}),
)
_COPIES = {
    "lm_head.weight": "model.shared.weight",
    "model.encoder.embed_tokens.weight": "model.shared.weight",
    "model.decoder.embed_tokens.weight": "model.shared.weight",
}


def _bart_parts() -> dict[str, Any]:
    return {
        "norm_order": "post",
        "stem": TokenStem.Config(),
        "position": Learned.Config(),
        "embedding_norm": LayerNorm.Config(),
        "feed_forward": GELU.Config(),
    }


BART = Family(
    name="bart",
    architecture="BartForConditionalGeneration",
    ends=Words(2),
    config=EncoderDecoder.Config(
        encoder=TransformerEncoder.Config(**_bart_parts()),
        decoder=TransformerDecoder.Config(**_bart_parts()),
        output_bias=True,
    ),
    keys=(
        Key("vocab_size", 50265, ()),
        *_KEYS,
        Key("max_position_embeddings", 1024, both("position.max_length")),
    ),
    prefix="model.",
    rules=(
        *_SIDES,
        Rule("encoder.position.table", "model.encoder.embed_positions", AfterTwo()),
        Rule("decoder.position.table", "model.decoder.embed_positions", AfterTwo()),
        Rule("encoder.embedding_norm.norm", "model.encoder.layernorm_embedding"),
        Rule("decoder.embedding_norm.norm", "model.decoder.layernorm_embedding"),
    ),
    copies=_COPIES,
    optional=("final_logits_bias",),
)


def _marian_finish(settings: Settings) -> Settings:
    return settings | {"decoder_vocab_size": settings["vocab_size"]}


def _marian_parts() -> dict[str, Any]:
    return _bart_parts() | {"position": SinusoidalHalves.Config(), "embedding_norm": None}


MARIAN = Family(
    name="marian",
    architecture="MarianMTModel",
    ends=Words(2),
    config=EncoderDecoder.Config(
        encoder=TransformerEncoder.Config(**_marian_parts()),
        decoder=TransformerDecoder.Config(**_marian_parts()),
        output_bias=True,
    ),
    keys=(Key("vocab_size", 58101, ()), *_KEYS),
    only={"share_encoder_decoder_embeddings": True},
    prefix="model.",
    rules=_SIDES,
    copies=_COPIES,
    computed=("embed_positions.weight",),
    optional=("final_logits_bias",),
    finish=_marian_finish,
)

# Marian with the norm before each sub-layer, and so one more at the end of each side.
PEGASUS = replace(
    MARIAN,
    name="pegasus",
    architecture="PegasusForConditionalGeneration",
    config=EncoderDecoder.Config(
        encoder=TransformerEncoder.Config(**_marian_parts() | {"norm_order": "pre"}),
        decoder=TransformerDecoder.Config(**_marian_parts() | {"norm_order": "pre"}),
        output_bias=True,
    ),
    keys=(Key("vocab_size", 50265, ()), Key("max_position_embeddings", 1024, ()), *_KEYS),
    waves=("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"),
    only={},
    rules=(
        *_SIDES,
        Rule("encoder.norm.norm", "model.encoder.layer_norm"),
        Rule("decoder.norm.norm", "model.decoder.layer_norm"),
    ),
    finish=dict,
)
