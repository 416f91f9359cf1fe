"""The families of Hugging Face models: encoders, encoder–decoders, vision, and all of them.

Of encoders there are the plain one, and those with the head that predicts masked words (BERT and
RoBERTa) or labels (the Vision Transformer); other heads are left out.
"""

from dataclasses import replace
from typing import Any

import torch

from foveate.exchange.base import ExchangeError
from foveate.exchange.huggingface_decoders import ACTIVATIONS, DECODERS, TIED
from foveate.exchange.huggingface_rules import (
    AFTER_TWO,
    Family,
    Form,
    Key,
    Rule,
    Settings,
    Tensors,
    changed,
    headed,
    inside,
    rules,
    scaled,
    sides,
    without,
)
from foveate.models.classifier import Classifier, First
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.language_model import MaskedLanguageModel
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.attention import Attention
from foveate.nn.embedding import PatchStem, SegmentStem, TokenStem
from foveate.nn.linear import GELU, LayerNorm, ReLU, RMSNorm
from foveate.nn.more_positions import LaterHalves, T5Bias, T5CausalBias
from foveate.nn.positions import Learned, SinusoidalHalves

SIZES = (
    Key("hidden_size", 768, ("hidden_size",)),
    Key("num_hidden_layers", 12, ("num_layers",)),
    Key("num_attention_heads", 12, ("num_heads",)),
    Key("intermediate_size", 3072, ("ffn_size",)),
    Key("hidden_act", "gelu", ("feed_forward.kind",), ACTIVATIONS),
    Key("hidden_dropout_prob", 0.0, ("dropout",)),
    Key("attention_probs_dropout_prob", 0.0, ("attention.dropout",)),
)
KEYS = (
    *changed(SIZES, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1),
    Key("vocab_size", 30522, ()),
    Key("type_vocab_size", 2, ("stem.num_segments",)),
    Key("layer_norm_eps", 1e-12, ("norm.eps", "embedding_norm.eps")),
)


def _encoder_layers(attention: str, norms: str) -> tuple[Rule, ...]:
    """Return the rules of layers with theirs of projections and of the norms."""
    names: dict[str, str | tuple[str, Form]] = {
        "self_attention.{query,key,value}": f"attention.{attention}.{{query,key,value}}",
        "self_attention.output": "attention.output.dense",
        "feed_forward.{inner,outer}": "{intermediate,output}.dense",
        "blocks.{0,1}.norm.norm": norms,
    }
    return rules(names, "layers.*.", "encoder.layer.*.")


RULES = (
    *rules({"stem.{embedding,segment}": "embeddings.{word,token_type}_embeddings"}),
    Rule("embedding_norm.norm", "embeddings.LayerNorm"),
    *_encoder_layers("self", "{attention.output,output}.LayerNorm"),
)
TABLE = "position.table", "embeddings.position_embeddings"
PLACES = Key("max_position_embeddings", 512, ("position.max_length",))

BERT_ENCODER = TransformerEncoder.Config(
    norm_order="post",
    stem=SegmentStem.Config(),
    position=Learned.Config(),
    embedding_norm=LayerNorm.Config(),
    feed_forward=GELU.Config(),
)
ROBERTA_ENCODER = BERT_ENCODER.model_copy(update={"stem": SegmentStem.Config(num_segments=1)})

BERT = Family(
    name="bert",
    architecture="BertModel",
    config=BERT_ENCODER,
    keys=(*KEYS, PLACES),
    only={"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False},
    prefix="bert.",
    rules=(*RULES, Rule(*TABLE)),
    heads=("bert.pooler.", "pooler.", "cls.", "classifier.", "qa_outputs."),
    computed=("embeddings.position_ids",),
)

# RoBERTa counts positions from the id of the padding + 1, which is 2: earlier rows are unused.
ROBERTA = replace(
    BERT,
    name="roberta",
    architecture="RobertaModel",
    config=ROBERTA_ENCODER,
    keys=changed(KEYS, replace(PLACES, shift=2), vocab_size=50265),
    only={**BERT.only, "pad_token_id": 1},
    prefix="roberta.",
    rules=(*RULES, Rule(*TABLE, AFTER_TWO)),
    heads=("roberta.pooler.", "pooler.", "lm_head.", "classifier.", "qa_outputs."),
)


TIED_SOURCE = Key("tie_word_embeddings", True, ("tie",), {True: "source"})

BERT_MASKED = headed(
    BERT,
    keys=(TIED_SOURCE,),
    rules=rules(
        {"{transform,norm.norm}": "transform.{dense,LayerNorm}", "output.bias": "bias"},
        theirs="cls.predictions.",
    ),
    also={"layer_norm_eps": ("norm.eps",), "hidden_act": ("activation",)},
    architecture="BertForMaskedLM",
    config=MaskedLanguageModel.Config(encoder=BERT_ENCODER),
    head="cls.predictions.transform.dense.weight",
    heads=("bert.pooler.", "cls.seq_relationship."),
    copies={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
)

# RoBERTa's head is the same, but always has GELU, whatever the encoder has.
ROBERTA_MASKED = headed(
    ROBERTA,
    keys=(TIED_SOURCE,),
    rules=rules({"{transform,norm.norm,output.bias}": "lm_head.{dense,layer_norm,bias}"}),
    also={"layer_norm_eps": ("norm.eps",)},
    architecture="RobertaForMaskedLM",
    config=MaskedLanguageModel.Config(encoder=ROBERTA_ENCODER),
    head="lm_head.dense.weight",
    heads=("roberta.pooler.",),
    copies={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
)


def both(*fields: str) -> tuple[str, ...]:
    """Return the paths of fields in the encoder and in the decoder."""
    return tuple(f"{side}.{field}" for field in fields for side in ("encoder", "decoder"))


def _alike(parts: Settings, output_bias: bool = True) -> EncoderDecoder.Config:
    """Return the config of an encoder and a decoder of the same parts."""
    encoder, decoder = TransformerEncoder.Config(**parts), TransformerDecoder.Config(**parts)
    return EncoderDecoder.Config(encoder=encoder, decoder=decoder, output_bias=output_bias)


def _t5_complete(settings: Settings, tensors: Tensors) -> Settings:
    """Return settings with defaults filled in; T5 1.1 has its own, unscaled output table."""
    proj = str(settings["feed_forward_proj"])
    act = "gelu_new" if proj == "gated-gelu" else proj.removeprefix("gated-")
    for key, value in {"dense_act_fn": act, "is_gated_act": proj.startswith("gated-")}.items():
        if settings.get(key, value) != value:
            raise ExchangeError(f"{key} = {settings[key]!r} contradicts feed_forward_proj = {proj}")
    own = tensors.get("lm_head.weight")
    tied = own is None or torch.equal(own, tensors.get("shared.weight", own))
    return (
        {"scale_decoder_outputs": settings["tie_word_embeddings"]}
        | settings
        | {
            "tie_word_embeddings": tied,
            "num_decoder_layers": settings["num_decoder_layers"] or settings["num_layers"],
        }
    )


PROJECTIONS = {"relu": "relu", "gated-gelu": "geglu", "gated-silu": "swiglu"}
T5_PARTS: Settings = {
    "norm": RMSNorm.Config(),
    "stem": TokenStem.Config(),
    "attention": Attention.Config.parse({"score": "dot", "bias": False}),
    "feed_forward": ReLU.Config.parse({"bias": False}),
}


def _t5_feed_forward(settings: Settings) -> tuple[Rule, ...]:
    """Return the rules for feed-forward layers: a gate is wi_1, and what it gates is then wi_0."""
    inner = "wi_0" if str(settings["feed_forward_proj"]).startswith("gated") else "wi"
    names: dict[str, str | tuple[str, Form]] = {"{inner,gate,outer}": f"{{{inner},wi_1,wo}}"}
    return (
        *rules(names, "encoder.layers.*.feed_forward.", "encoder.block.*.layer.1.DenseReluDense."),
        *rules(names, "decoder.layers.*.feed_forward.", "decoder.block.*.layer.2.DenseReluDense."),
    )


_BIAS = "block.0.layer.0.SelfAttention.relative_attention_bias"

T5 = Family(
    name="t5",
    architecture="T5ForConditionalGeneration",
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
        Key("feed_forward_proj", "relu", both("feed_forward.kind"), PROJECTIONS),
        Key("dropout_rate", 0.1, both("dropout", "attention.dropout", "feed_forward.dropout")),
        Key("tie_word_embeddings", True, ("tie",), {True: "all", False: "inputs"}),
    ),
    rules=(
        *rules(
            {
                "encoder.stem.embedding": "shared",
                "output.weight": "lm_head.weight",
                "{encoder,decoder}.position.table": f"{{encoder,decoder}}.{_BIAS}",
                "encoder.norm.norm": "encoder.final_layer_norm",
                "decoder.norm.norm": (
                    "decoder.final_layer_norm",  # logits are W (h / √D): γ / √D has the factor
                    scaled(lambda s: s["d_model"] ** (-0.5 if s["scale_decoder_outputs"] else 0.0)),
                ),
            }
        ),
        *rules(
            {
                "self_attention.{query,key,value,output}": "0.SelfAttention.{q,k,v,o}",
                "cross_attention.{query,key,value,output}": "1.EncDecAttention.{q,k,v,o}",
                "blocks.{0,1,2}.norm.norm": "{0,1,2}.layer_norm",
            },
            "{encoder,decoder}.layers.*.",
            "{encoder,decoder}.block.*.layer.",
        ),
    ),
    rules_of=_t5_feed_forward,
    only={"is_encoder_decoder": True},
    copies=dict.fromkeys(
        ("lm_head.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
        "shared.weight",
    ),
    computed=("layer.1.EncDecAttention.relative_attention_bias.weight",),  # never read
    complete=_t5_complete,
    finish=lambda settings: settings | {"scale_decoder_outputs": settings["tie_word_embeddings"]},
)


_EACH = "{encoder,decoder}.", "model.{encoder,decoder}."
_SIDES = (
    Rule("encoder.stem.embedding", "model.shared"),
    Rule("output.bias", "final_logits_bias", inside(1)),
    Rule("encoder.layers.*.blocks.1.norm.norm", "model.encoder.layers.*.final_layer_norm"),
    *rules(
        {
            "self_attention.{query,key,value,output}": "self_attn.{q,k,v,out}_proj",
            "cross_attention.{query,key,value,output}": "encoder_attn.{q,k,v,out}_proj",
            "feed_forward.{inner,outer}": "{fc1,fc2}",
            "blocks.{0,1,2}.norm.norm": "{self_attn,encoder_attn,final}_layer_norm",
        },
        "{encoder,decoder}.layers.*.",
        "model.{encoder,decoder}.layers.*.",
    ),
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
_OLDER = {
    "normalize_before": False, "add_final_layer_norm": False, "add_bias_logits": False,
    "static_position_embeddings": False,
}  # fmt: skip


BART_PARTS: Settings = {
    "norm_order": "post",
    "stem": TokenStem.Config(),
    "position": Learned.Config(),
    "embedding_norm": LayerNorm.Config(),
    "feed_forward": GELU.Config(),
}

BART = Family(
    name="bart",
    architecture="BartForConditionalGeneration",
    config=_alike(BART_PARTS),
    keys=(
        Key("vocab_size", 50265, ()),
        *_KEYS,
        Key("max_position_embeddings", 1024, both("position.max_length")),
    ),
    only={"is_encoder_decoder": True},
    older={"normalize_embedding": True} | _OLDER,
    prefix="model.",
    rules=(
        *_SIDES,
        *rules({"position.table": ("embed_positions", AFTER_TWO)}, *_EACH),
        *rules({"embedding_norm.norm": "layernorm_embedding"}, *_EACH),
    ),
    copies=_COPIES,
    optional=("final_logits_bias",),
)


MARIAN_PARTS = BART_PARTS | {"position": SinusoidalHalves.Config(), "embedding_norm": None}

MARIAN = Family(
    name="marian",
    architecture="MarianMTModel",
    config=_alike(MARIAN_PARTS),
    keys=(Key("vocab_size", 58101, ()), *_KEYS),
    only={"share_encoder_decoder_embeddings": True, "is_encoder_decoder": True},
    older=_OLDER | {"normalize_embedding": False, "static_position_embeddings": True},
    prefix="model.",
    rules=_SIDES,
    copies=_COPIES,
    computed=("embed_positions.weight",),
    optional=("final_logits_bias",),
    finish=lambda settings: {"decoder_vocab_size": settings["vocab_size"]} | settings,
)

# Marian with a table for each side; the output's is the decoder's, or a third one.
APART = {"decoder.stem.embedding": "model.decoder.embed_tokens", "output.weight": "lm_head.weight"}
MARIAN_APART = replace(
    MARIAN,
    when=lambda settings: settings.get("share_encoder_decoder_embeddings") is False,
    keys=changed(MARIAN.keys, Key("tie_word_embeddings", True, ("tie",), TIED)),
    only={"share_encoder_decoder_embeddings": False, "is_encoder_decoder": True},
    rules=(*rules({"encoder.stem.embedding": "model.encoder.embed_tokens"} | APART), *_SIDES[1:]),
    copies={"lm_head.weight": "model.decoder.embed_tokens.weight"},
)

# Marian with the norm before each sub-layer, and so another norm at the end of each side.
PEGASUS = replace(
    MARIAN,
    name="pegasus",
    architecture="PegasusForConditionalGeneration",
    config=_alike(MARIAN_PARTS | {"norm_order": "pre"}),
    keys=(Key("vocab_size", 50265, ()), Key("max_position_embeddings", 1024, ()), *_KEYS),
    waves=("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"),
    only={"is_encoder_decoder": True},
    older={**MARIAN.older, "normalize_before": True, "add_final_layer_norm": True},
    rules=(*_SIDES, *rules({"norm.norm": "layer_norm"}, *_EACH)),
    finish=dict,
)


def _waves(settings: Settings, tensors: Tensors) -> Settings:
    """Return settings with the base of θ_j = 10,000^(−j / (D/2 − 1))."""
    size = settings["d_model"]
    return settings | {"wave_base": 10_000.0 ** (size / (size - 2))}


def _without_waves(settings: Settings) -> Settings:
    """Return settings without that base, which their code computes."""
    base, needed = settings["wave_base"], _waves(settings, {})["wave_base"]
    if base != needed:
        raise ExchangeError(f"m2m_100 does not support position.base = {base}: only {needed} fits")
    return without(settings, "wave_base")


# M2M100 and NLLB-200: languages are tokens, positions count from 2.
M2M100 = replace(
    PEGASUS,
    name="m2m_100",
    architecture="M2M100ForConditionalGeneration",
    config=_alike(
        MARIAN_PARTS | {"norm_order": "pre", "position": LaterHalves.Config()}, output_bias=False
    ),
    keys=(
        Key("vocab_size", 128112, ()),
        *changed(_KEYS, activation_function="relu", scale_embedding=True, attention_dropout=0.1),
        Key("wave_base", None, both("position.base")),
        Key("pad_token_id", 1, both("position.first"), shift=-1),
    ),
    waves=(),
    older={},
    optional=(),
    complete=_waves,
    finish=_without_waves,
)

# mBART: BART with the norm before each sub-layer.
MBART = replace(
    BART,
    name="mbart",
    architecture="MBartForConditionalGeneration",
    config=_alike(BART_PARTS | {"norm_order": "pre"}),
    rules=(*BART.rules, PEGASUS.rules[-2], PEGASUS.rules[-1]),
    older={**BART.older, "normalize_before": True, "add_final_layer_norm": True},
)

MT5 = replace(
    T5,
    name="mt5",
    architecture="MT5ForConditionalGeneration",
    keys=changed(
        T5.keys, vocab_size=250112, d_ff=1024, num_layers=8, num_heads=6,
        feed_forward_proj="gated-gelu", tie_word_embeddings=False,
    ),
    complete=lambda settings, tensors: _t5_complete(
        settings | {"scale_decoder_outputs": False}, tensors
    ),
    finish=lambda settings: settings | {"scale_decoder_outputs": False},
)  # fmt: skip


def _places(settings: Settings) -> int:
    """Return the number of positions: the patches of a picture and the class token."""
    height, width = sides(settings["image_size"])
    patch: Any = settings["patch_size"]
    if not isinstance(patch, int):
        raise ExchangeError(f"patch_size = {patch!r}: only square patches (one number) fit")
    return (height // patch) * (width // patch) + 1


def _complete(settings: Settings, tensors: Tensors) -> Settings:
    """Return settings in which unnamed labels have numbers."""
    numbered = {n: f"LABEL_{n}" for n in range(settings.get("num_labels", 2))}
    named = {"id2label": settings.get("id2label") or numbered}
    return settings | named | {"places": _places(settings)}


def _finish(settings: Settings) -> Settings:
    """Return settings without the number of positions, which follows from the picture."""
    places, needed = settings["places"], _places(settings)
    if places != needed:
        raise ExchangeError(
            f"vit has no place for encoder.position.max_length = {places}: a picture of "
            f"{settings['image_size']} has {needed} places, the class token included"
        )
    return without(settings, "places")


ENCODER = TransformerEncoder.Config(
    stem=PatchStem.Config(class_token=True), position=Learned.Config(), feed_forward=GELU.Config()
)

VIT = Family(
    name="vit",
    architecture="ViTModel",
    config=ENCODER,
    keys=(
        Key("image_size", 224, ()),
        Key("num_channels", 3, ()),
        Key("patch_size", 16, ("stem.patch_size",)),
        Key("places", None, ("position.max_length",)),
        *SIZES,
        Key("layer_norm_eps", 1e-12, ("norm.eps",)),
    ),
    only={"qkv_bias": True},
    prefix="vit.",
    rules=(
        Rule("stem.class_token", "embeddings.cls_token", inside(2)),
        Rule("stem.patches", "embeddings.patch_embeddings.projection"),
        Rule("position.table.weight", "embeddings.position_embeddings", inside(1)),
        Rule("norm.norm", "layernorm"),
        *_encoder_layers("attention", "layernorm_{before,after}"),
    ),
    heads=("pooler.", "vit.pooler.", "vit.embeddings.mask_token", "decoder."),
    complete=_complete,
    finish=_finish,
)

VIT_LABELS = headed(
    VIT,
    keys=(Key("id2label", None, ()),),
    rules=(Rule("output", "classifier"),),
    also={},
    architecture="ViTForImageClassification",
    config=Classifier.Config(encoder=ENCODER, pooling=First.Config(), dropout=0.0),
    head="classifier.weight",
    heads=("vit.pooler.",),
)

FAMILIES = (  # for one model_type those with a head come first
    *DECODERS,
    *(BERT_MASKED, BERT, ROBERTA_MASKED, ROBERTA),
    *(T5, BART, MARIAN_APART, MARIAN, PEGASUS, M2M100, MBART, MT5, VIT_LABELS, VIT),
)
