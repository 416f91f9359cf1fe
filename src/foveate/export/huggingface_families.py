"""The families of Hugging Face models: decoders, encoders, encoder–decoders, vision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from foveate.export.huggingface_rules import (
    AfterTwo,
    ExchangeError,
    Family,
    Form,
    Key,
    Pictures,
    Row,
    Rule,
    Settings,
    Tensors,
    Third,
    Transposed,
    Words,
    headed,
    layers,
    sides,
)
from foveate.models.classifier import Classifier, First
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.language_model import LanguageModel, MaskedLanguageModel
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.attention import Attention
from foveate.nn.embedding import PatchStem, SegmentStem, TokenStem
from foveate.nn.feed_forward import GELU, GELUTanh, ReLU, SwiGLU
from foveate.nn.linear import LayerNorm, RMSNorm
from foveate.nn.positions import Learned, Rotary, SinusoidalHalves, T5Bias, T5CausalBias

ACTIVATIONS = {  # of several names for one, the first is written
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
TIED = {True: "target", False: "none"}


def _inner_size(settings: Settings, tensors: Tensors) -> Settings:
    """The size of the feed-forward network is four times D where it is not said."""
    return settings | {"n_inner": settings.get("n_inner") or 4 * settings.get("n_embd", 768)}


GPT2 = Family(
    name="gpt2",
    architecture="GPT2LMHeadModel",
    ends=Words(1),
    config=LanguageModel.Config(
        decoder=TransformerDecoder.Config(
            stem=TokenStem.Config(), position=Learned.Config(), feed_forward=GELUTanh.Config()
        )
    ),
    keys=(
        Key("vocab_size", 50257, ()),
        Key("n_embd", 768, ("decoder.hidden_size",)),
        Key("n_head", 12, ("decoder.num_heads",)),
        Key("n_layer", 12, ("decoder.num_layers",)),
        Key("n_inner", None, ("decoder.ffn_size",)),
        Key("n_positions", 1024, ("decoder.position.max_length",)),
        Key("layer_norm_epsilon", 1e-5, ("decoder.norm.eps",)),
        Key("activation_function", "gelu_new", ("decoder.feed_forward.kind",), ACTIVATIONS),
        Key("embd_pdrop", 0.1, ("decoder.dropout",)),
        Key("resid_pdrop", 0.1, ("decoder.dropout",)),
        Key("attn_pdrop", 0.1, ("decoder.attention.dropout",)),
        Key("tie_word_embeddings", True, ("tie",), TIED),
    ),
    only={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
    prefix="transformer.",
    rules=(
        Rule("decoder.stem.embedding", "transformer.wte"),
        Rule("decoder.position.table", "transformer.wpe"),
        Rule("decoder.norm.norm", "transformer.ln_f"),
        Rule("output", "lm_head"),
        *layers(
            "decoder.layers.*",
            "transformer.h.*",
            {
                "self_attention.query": ("attn.c_attn", Third(0)),
                "self_attention.key": ("attn.c_attn", Third(1)),
                "self_attention.value": ("attn.c_attn", Third(2)),
                "self_attention.output": ("attn.c_proj", Transposed()),
                "feed_forward.inner": ("mlp.c_fc", Transposed()),
                "feed_forward.outer": ("mlp.c_proj", Transposed()),
                "blocks.0.norm.norm": "ln_1",
                "blocks.1.norm.norm": "ln_2",
            },
        ),
    ),
    copies={"lm_head.weight": "transformer.wte.weight"},
    computed=(".attn.bias", ".attn.masked_bias"),  # the causal mask
    complete=_inner_size,
)


def _rope_and_heads(settings: Settings, tensors: Tensors) -> Settings:
    """Older files say the base of the rotation beside, newer ones inside a table."""
    rope = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise ExchangeError(f"rope_type = {kind!r}: we have the default rotation alone")
    heads = settings.get("num_attention_heads", 32)
    return settings | {
        "rope_theta": rope.get("rope_theta", settings.get("rope_theta", 10_000.0)),
        "num_key_value_heads": settings.get("num_key_value_heads") or heads,
        "head_dim": settings.get("head_dim") or settings.get("hidden_size", 4096) // heads,
    }


LLAMA = Family(
    name="llama",
    architecture="LlamaForCausalLM",
    ends=Words(1),
    config=LanguageModel.Config(
        decoder=TransformerDecoder.Config(
            dropout=0.0,
            norm=RMSNorm.Config(),
            stem=TokenStem.Config(),
            position=Rotary.Config(),
            attention=Attention.Config.parse({"bias": False}),
            feed_forward=SwiGLU.Config.parse({"bias": False}),
        )
    ),
    keys=(
        Key("vocab_size", 32000, ()),
        Key("hidden_size", 4096, ("decoder.hidden_size",)),
        Key("intermediate_size", 11008, ("decoder.ffn_size",)),
        Key("num_hidden_layers", 32, ("decoder.num_layers",)),
        Key("num_attention_heads", 32, ("decoder.num_heads",)),
        Key("num_key_value_heads", None, ("decoder.attention.key_heads",)),
        Key("head_dim", None, ("decoder.attention.head_size",)),
        Key("rms_norm_eps", 1e-6, ("decoder.norm.eps",)),
        Key("rope_theta", None, ("decoder.position.base",)),
        Key("attention_bias", False, ("decoder.attention.bias",)),
        Key("mlp_bias", False, ("decoder.feed_forward.bias",)),
        Key("attention_dropout", 0.0, ("decoder.attention.dropout",)),
        Key("tie_word_embeddings", False, ("tie",), TIED),
    ),
    only={"hidden_act": "silu"},
    prefix="model.",
    rules=(
        Rule("decoder.stem.embedding", "model.embed_tokens"),
        Rule("decoder.norm.norm", "model.norm"),
        Rule("output", "lm_head"),
        *layers(
            "decoder.layers.*",
            "model.layers.*",
            {
                "self_attention.query": "self_attn.q_proj",
                "self_attention.key": "self_attn.k_proj",
                "self_attention.value": "self_attn.v_proj",
                "self_attention.output": "self_attn.o_proj",
                "feed_forward.inner": "mlp.gate_proj",
                "feed_forward.gate": "mlp.up_proj",
                "feed_forward.outer": "mlp.down_proj",
                "blocks.0.norm.norm": "input_layernorm",
                "blocks.1.norm.norm": "post_attention_layernorm",
            },
        ),
    ),
    copies={"lm_head.weight": "model.embed_tokens.weight"},
    computed=(".rotary_emb.inv_freq",),
    complete=_rope_and_heads,
    finish=lambda settings: (
        settings
        | {"rope_parameters": {"rope_type": "default", "rope_theta": settings["rope_theta"]}}
    ),
)


# ---------------------------------------------------------------------------- huggingface encoders
# Encoder-only families: BERT and RoBERTa, alone or with the head that guesses hidden words.
#
# Other heads are left out.

KEYS = (
    Key("vocab_size", 30522, ()),
    Key("hidden_size", 768, ("hidden_size",)),
    Key("num_hidden_layers", 12, ("num_layers",)),
    Key("num_attention_heads", 12, ("num_heads",)),
    Key("intermediate_size", 3072, ("ffn_size",)),
    Key("type_vocab_size", 2, ("stem.num_segments",)),
    Key("layer_norm_eps", 1e-12, ("norm.eps", "embedding_norm.eps")),
    Key("hidden_act", "gelu", ("feed_forward.kind",), ACTIVATIONS),
    Key("hidden_dropout_prob", 0.1, ("dropout",)),
    Key("attention_probs_dropout_prob", 0.1, ("attention.dropout",)),
)
RULES = (
    Rule("stem.embedding", "embeddings.word_embeddings"),
    Rule("stem.segment", "embeddings.token_type_embeddings"),
    Rule("embedding_norm.norm", "embeddings.LayerNorm"),
    *layers(
        "layers.*",
        "encoder.layer.*",
        {
            "self_attention.query": "attention.self.query",
            "self_attention.key": "attention.self.key",
            "self_attention.value": "attention.self.value",
            "self_attention.output": "attention.output.dense",
            "feed_forward.inner": "intermediate.dense",
            "feed_forward.outer": "output.dense",
            "blocks.0.norm.norm": "attention.output.LayerNorm",
            "blocks.1.norm.norm": "output.LayerNorm",
        },
    ),
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
    ends=Words(1),
    config=BERT_ENCODER,
    keys=(*KEYS, PLACES),
    only={"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False},
    prefix="bert.",
    rules=(*RULES, Rule(*TABLE)),
    heads=("bert.pooler.", "pooler.", "cls.", "classifier.", "qa_outputs."),
    computed=("embeddings.position_ids",),
)

# RoBERTa counts places from the id of the padding + 1, which is 2: the rows before are unused.
ROBERTA = replace(
    BERT,
    name="roberta",
    architecture="RobertaModel",
    config=ROBERTA_ENCODER,
    keys=(
        *(replace(key, default=50265) if key.theirs == "vocab_size" else key for key in KEYS),
        replace(PLACES, shift=2),
    ),
    only={**BERT.only, "pad_token_id": 1},
    prefix="roberta.",
    rules=(*RULES, Rule(*TABLE, AfterTwo())),
    heads=("roberta.pooler.", "pooler.", "lm_head.", "classifier.", "qa_outputs."),
)

# ------------------------------------------------------------------------------ hidden words

TIED_SOURCE = Key("tie_word_embeddings", True, ("tie",), {True: "source"})

BERT_MASKED = headed(
    BERT,
    keys=(TIED_SOURCE,),
    rules=(
        Rule("transform", "cls.predictions.transform.dense"),
        Rule("norm.norm", "cls.predictions.transform.LayerNorm"),
        Rule("output.bias", "cls.predictions.bias"),
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

# RoBERTa's head is the same, but has GELU whatever the encoder has.
ROBERTA_MASKED = headed(
    ROBERTA,
    keys=(TIED_SOURCE,),
    rules=(
        Rule("transform", "lm_head.dense"),
        Rule("norm.norm", "lm_head.layer_norm"),
        Rule("output.bias", "lm_head.bias"),
    ),
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


# ------------------------------------------------------------------------------- huggingface pairs
# Encoder–decoder families: T5, BART, Marian and Pegasus.


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
    finish=lambda settings: settings | {"scale_decoder_outputs": settings["tie_word_embeddings"]},
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


BART_PARTS: dict[str, Any] = {
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
        encoder=TransformerEncoder.Config(**BART_PARTS),
        decoder=TransformerDecoder.Config(**BART_PARTS),
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


MARIAN_PARTS = BART_PARTS | {"position": SinusoidalHalves.Config(), "embedding_norm": None}

MARIAN = Family(
    name="marian",
    architecture="MarianMTModel",
    ends=Words(2),
    config=EncoderDecoder.Config(
        encoder=TransformerEncoder.Config(**MARIAN_PARTS),
        decoder=TransformerDecoder.Config(**MARIAN_PARTS),
        output_bias=True,
    ),
    keys=(Key("vocab_size", 58101, ()), *_KEYS),
    only={"share_encoder_decoder_embeddings": True},
    prefix="model.",
    rules=_SIDES,
    copies=_COPIES,
    computed=("embed_positions.weight",),
    optional=("final_logits_bias",),
    finish=lambda settings: settings | {"decoder_vocab_size": settings["vocab_size"]},
)

# Marian with the norm before each sub-layer, and so one more at the end of each side.
PEGASUS = replace(
    MARIAN,
    name="pegasus",
    architecture="PegasusForConditionalGeneration",
    config=EncoderDecoder.Config(
        encoder=TransformerEncoder.Config(**MARIAN_PARTS | {"norm_order": "pre"}),
        decoder=TransformerDecoder.Config(**MARIAN_PARTS | {"norm_order": "pre"}),
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


# ---------------------------------------------------------------------------- huggingface pictures
# Families of pictures: the Vision Transformer, alone or with the head that says labels.


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
