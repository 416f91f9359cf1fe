"""Decoder-only families: GPT-2 and Llama."""

from __future__ import annotations

from foveate.export.huggingface_ends import Settings, Words
from foveate.export.huggingface_rules import (
    ExchangeError,
    Family,
    Key,
    Rule,
    Tensors,
    Third,
    Transposed,
    layers,
)
from foveate.models.language_model import LanguageModel
from foveate.models.transformer import TransformerDecoder
from foveate.nn.attention import Attention
from foveate.nn.feed_forward import GELUTanh, SwiGLU
from foveate.nn.norm import RMSNorm
from foveate.nn.position import Learned, Rotary
from foveate.nn.stem import TokenStem

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


def _rope_table(settings: Settings) -> Settings:
    table = {"rope_type": "default", "rope_theta": settings["rope_theta"]}
    return settings | {"rope_parameters": table}


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
    finish=_rope_table,
)
