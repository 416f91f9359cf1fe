"""The families of Hugging Face decoders without an encoder: GPT-2, Llama and what came from it."""

import math
from dataclasses import replace
from typing import Any

from foveate.exchange.base import ExchangeError
from foveate.exchange.huggingface_rules import (
    TRANSPOSED,
    Family,
    Form,
    Key,
    Layers,
    Rope,
    Rule,
    Settings,
    Tensors,
    changed,
    rules,
    scaled,
    third,
    without,
)
from foveate.models.interleaved import InterleavedDecoder
from foveate.models.language_model import LanguageModel
from foveate.models.transformer import TransformerDecoder
from foveate.nn.attention import Attention
from foveate.nn.efficient_attention import LocalAttention
from foveate.nn.embedding import TokenStem
from foveate.nn.linear import GEGLU, GELUTanh, RMSNorm, SwiGLU
from foveate.nn.positions import Learned, Rotary

ACTIVATIONS = {  # of several names for one activation, the first is written
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
TIED = {True: "target", False: "none"}


GPT2 = Family(
    name="gpt2",
    architecture="GPT2LMHeadModel",
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
    rules=rules(
        {
            "decoder.stem.embedding": "transformer.wte",
            "decoder.position.table": "transformer.wpe",
            "decoder.norm.norm": "transformer.ln_f",
            "output": "lm_head",
            "decoder.layers.*.self_attention.query": ("transformer.h.*.attn.c_attn", third(0)),
            "decoder.layers.*.self_attention.key": ("transformer.h.*.attn.c_attn", third(1)),
            "decoder.layers.*.self_attention.value": ("transformer.h.*.attn.c_attn", third(2)),
            "decoder.layers.*.self_attention.output": ("transformer.h.*.attn.c_proj", TRANSPOSED),
            "decoder.layers.*.feed_forward.{inner,outer}": (
                "transformer.h.*.mlp.{c_fc,c_proj}",
                TRANSPOSED,
            ),
            "decoder.layers.*.blocks.{0,1}.norm.norm": "transformer.h.*.{ln_1,ln_2}",
        }
    ),
    copies={"lm_head.weight": "transformer.wte.weight"},
    computed=(".attn.bias", ".attn.masked_bias"),  # the causal mask
    complete=lambda settings, tensors: (
        settings | {"n_inner": settings["n_inner"] or 4 * settings["n_embd"]}
    ),
)


def _rotation(settings: Settings, own: Settings, theta: float) -> Settings:
    """Return a table of a rotation in which all that is open is filled in."""
    table = {"rope_type": own.get("type", "default"), "rope_theta": theta} | own
    if table["rope_type"] == "llama3":
        longest = settings.get("max_position_embeddings", 2048)
        table = {"original_max_position_embeddings": longest} | table
    return without(table, "type")


def _with_heads(settings: Settings) -> Settings:
    """Return settings with the number of key heads and the size of heads."""
    heads = settings["num_attention_heads"]
    return settings | {
        "num_key_value_heads": settings["num_key_value_heads"] or heads,
        "head_dim": settings["head_dim"] or settings["hidden_size"] // heads,
    }


def _complete(settings: Settings, tensors: Tensors) -> Settings:
    """Return settings with the rotation in a table, as in newer files, and the sizes of heads."""
    own = settings.get("rope_scaling") or settings["rope_parameters"] or {}
    table = _rotation(settings, own, settings.get("rope_theta", 10_000.0))
    return _with_heads(settings) | {"rope_parameters": table}


def _for_older(settings: Settings) -> Settings:
    """Return settings that versions before 5 of transformers read as well."""
    rope = settings["rope_parameters"]
    stretched = {} if rope["rope_type"] == "default" else {"rope_scaling": rope}
    return settings | {"rope_theta": rope["rope_theta"]} | stretched


def _decoder(
    kind: type[TransformerDecoder.Config] = TransformerDecoder.Config, **parts: Any
) -> LanguageModel.Config:
    """Return the config of a decoder with the parts of Llama, apart from some."""
    llama: Settings = {
        "dropout": 0.0,
        "norm": RMSNorm.Config(),
        "stem": TokenStem.Config(),
        "position": Rotary.Config(),
        "attention": Attention.Config.parse({"bias": False}),
        "feed_forward": SwiGLU.Config.parse({"bias": False}),
    }
    return LanguageModel.Config(decoder=kind(**llama | parts))


def _in_layers(names: dict[str, str | tuple[str, Form]]) -> tuple[Rule, ...]:
    return rules(names, "decoder.layers.*.", "model.layers.*.")


LLAMA = Family(
    name="llama",
    architecture="LlamaForCausalLM",
    config=_decoder(),
    keys=(
        Key("vocab_size", 32000, ()),
        Key("hidden_size", 4096, ("decoder.hidden_size",)),
        Key("intermediate_size", 11008, ("decoder.ffn_size",)),
        Key("num_hidden_layers", 32, ("decoder.num_layers",)),
        Key("num_attention_heads", 32, ("decoder.num_heads",)),
        Key("num_key_value_heads", None, ("decoder.attention.key_heads",)),
        Key("head_dim", None, ("decoder.attention.head_size",)),
        Key("rms_norm_eps", 1e-6, ("decoder.norm.eps",)),
        Key("attention_bias", False, ("decoder.attention.bias",)),
        Key("mlp_bias", False, ("decoder.feed_forward.bias",)),
        Key("attention_dropout", 0.0, ("decoder.attention.dropout",)),
        Key("tie_word_embeddings", False, ("tie",), TIED),
        Rope("rope_parameters", None, ("decoder.position",)),
    ),
    only={"hidden_act": "silu"},
    prefix="model.",
    rules=(
        Rule("output", "lm_head"),
        *rules({"stem.embedding": "embed_tokens", "norm.norm": "norm"}, "decoder.", "model."),
        *_in_layers(
            {
                "self_attention.{query,key,value,output}": "self_attn.{q,k,v,o}_proj",
                "feed_forward.{inner,gate,outer}": "mlp.{gate,up,down}_proj",
                "blocks.{0,1}.norm.norm": "{input,post_attention}_layernorm",
            }
        ),
    ),
    copies={"lm_head.weight": "model.embed_tokens.weight"},
    computed=(".rotary_emb.inv_freq",),
    complete=_complete,
    finish=_for_older,
)

BIASES = "attention_bias", "mlp_bias"

# Mistral: Llama, with a window in the first version; a family for each.
MISTRAL = replace(
    LLAMA,
    name="mistral",
    architecture="MistralForCausalLM",
    when=lambda settings: settings.get("sliding_window", 4096) is None,
    keys=changed(
        LLAMA.keys, Key("sliding_window", 4096, (), {None: None}), gone=BIASES,
        intermediate_size=14336, num_key_value_heads=8,
    ),
)  # fmt: skip
MISTRAL_LOCAL = replace(
    MISTRAL,
    when=lambda settings: True,
    config=_decoder(attention=LocalAttention.Config.parse({"bias": False})),
    keys=changed(MISTRAL.keys, Key("sliding_window", 4096, ("decoder.attention.window",))),
)


def _unwindowed(settings: Settings, tensors: Tensors) -> Settings:
    """Return settings without those of windows, which no layer has."""
    if not {*(settings.get("layer_types") or ())} <= {"full_attention"}:
        raise ExchangeError(f"layer_types = {settings['layer_types']}: only full_attention fits")
    own = without(settings, "layer_types", "max_window_layers", "sliding_window")
    return _complete(own, tensors)


# Qwen2: Llama, with biases of queries, keys and values.
QWEN2 = replace(
    LLAMA,
    name="qwen2",
    architecture="Qwen2ForCausalLM",
    config=_decoder(attention=Attention.Config()),
    keys=changed(
        LLAMA.keys, gone=BIASES,
        vocab_size=151936, intermediate_size=22016, num_key_value_heads=32,
    ),
    only={"hidden_act": "silu", "use_sliding_window": False},
    zeros=(".self_attn.o_proj.bias",),
    complete=_unwindowed,
)  # fmt: skip

NORMED = Attention.Config.parse({"bias": False, "head_norm": {"kind": "rms_norm"}})
EPS = Key("rms_norm_eps", 1e-6, ("decoder.norm.eps", "decoder.attention.head_norm.eps"))

# Qwen3: Llama, with norms of queries and keys in each head.
QWEN3 = replace(
    QWEN2,
    name="qwen3",
    architecture="Qwen3ForCausalLM",
    config=_decoder(attention=NORMED),
    keys=changed(
        QWEN2.keys, EPS, Key("attention_bias", False, ("decoder.attention.bias",)), head_dim=128
    ),
    rules=(
        *_in_layers({"self_attention.{query,key}_norm.norm": "self_attn.{q,k}_norm"}),
        *LLAMA.rules,
    ),
    zeros=(),
)


# Gemma: γ is stored as γ − 1, and scores are qᵀk / √s with s = query_pre_attn_scalar. Ours are
# qᵀk / √K: √(K / s) is a factor of queries, or of the γ of their norm.


def _stretch(settings: Settings) -> float:
    return math.sqrt(settings["head_dim"] / settings["query_pre_attn_scalar"])


OFFSET = scaled(lambda settings: 1.0, less=1.0)
GEMMA_PARTS: Settings = {
    "stem": TokenStem.Config(scale="sqrt"),
    "feed_forward": GEGLU.Config.parse({"bias": False}),
}
GEMMA = replace(
    LLAMA,
    name="gemma",
    architecture="GemmaForCausalLM",
    config=_decoder(**GEMMA_PARTS),
    keys=changed(
        LLAMA.keys,
        Key("hidden_act", "gelu_pytorch_tanh", (), dict.fromkeys(("gelu_pytorch_tanh", "gelu"))),
        gone=("mlp_bias",), vocab_size=256000, hidden_size=3072, intermediate_size=24576,
        num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=16, head_dim=256,
        tie_word_embeddings=True,
    ),
    only={},
    rules=tuple(replace(r, form=OFFSET) if "norm" in r.ours else r for r in LLAMA.rules),
)  # fmt: skip

SANDWICH: dict[str, str | tuple[str, Form]] = {
    "blocks.0.{norm,after}.norm": ("{input,post_attention}_layernorm", OFFSET),
    "blocks.1.{norm,after}.norm": ("{pre,post}_feedforward_layernorm", OFFSET),
}
SANDWICHED = GEMMA_PARTS | {"norm_order": "sandwich"}

GEMMA2 = replace(
    GEMMA,
    name="gemma2",
    architecture="Gemma2ForCausalLM",
    config=_decoder(
        InterleavedDecoder.Config,
        **SANDWICHED,
        attention=Attention.Config.parse({"bias": False, "score": "soft_capped"}),
    ),
    keys=changed(
        GEMMA.keys,
        Key("sliding_window", 4096, ("decoder.window",)),
        Layers("layer_types", 2, ("decoder.layers",)),
        Key("query_pre_attn_scalar", 256, ()),
        Key("attn_logit_softcapping", 50.0, ("decoder.attention.score.cap",)),
        Key("final_logit_softcapping", 30.0, ("logit_cap",)),
        gone=("hidden_act",), hidden_size=2304, intermediate_size=9216, num_hidden_layers=26,
        num_attention_heads=8, num_key_value_heads=4,
    ),
    only={"hidden_activation": "gelu_pytorch_tanh"},
    older={"hidden_act": "gelu_pytorch_tanh"},
    rules=(
        *_in_layers(SANDWICH | {"self_attention.query": ("self_attn.q_proj", scaled(_stretch))}),
        *GEMMA.rules,
    ),
)  # fmt: skip


def _two_rotations(settings: Settings, tensors: Tensors) -> Settings:
    """Return settings with the rotations of full and of local layers in a table each."""
    own = settings.get("rope_parameters") or {"full_attention": settings.get("rope_scaling")}
    full, local = settings.get("rope_theta", 1e6), settings.get("rope_local_base_freq", 1e4)
    bases = {"full_attention": full, "sliding_attention": local}
    tables = {kind: _rotation(settings, own.get(kind) or {}, b) for kind, b in bases.items()}
    return _with_heads(settings) | {"rope_parameters": tables}


GEMMA3 = replace(
    GEMMA2,
    name="gemma3_text",
    architecture="Gemma3ForCausalLM",
    config=_decoder(
        InterleavedDecoder.Config, **SANDWICHED, attention=NORMED, local_position=Rotary.Config()
    ),
    keys=changed(
        GEMMA2.keys,
        Key("attn_logit_softcapping", None, (), {None: None}),
        Rope("rope_parameters.full_attention", None, ("decoder.position",)),
        Rope("rope_parameters.sliding_attention", None, ("decoder.local_position",)),
        EPS,
        gone=("rope_parameters",), vocab_size=262208, final_logit_softcapping=None, layer_types=6,
    ),
    rules=(
        *_in_layers(
            SANDWICH
            | {
                "self_attention.query_norm.norm": ("self_attn.q_norm", scaled(_stretch, less=1.0)),
                "self_attention.key_norm.norm": ("self_attn.k_norm", OFFSET),
            }
        ),
        *GEMMA.rules,
    ),
    complete=_two_rotations,
    finish=dict,
)  # fmt: skip

# For one model_type those of special settings come first.
DECODERS = GPT2, LLAMA, MISTRAL, MISTRAL_LOCAL, QWEN2, QWEN3, GEMMA, GEMMA2, GEMMA3
