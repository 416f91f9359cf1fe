"""Encoder-only families: BERT and RoBERTa. What is read is the encoder; its heads are left out."""

from __future__ import annotations

from dataclasses import replace

from foveate.export.huggingface_decoders import ACTIVATIONS
from foveate.export.huggingface_rules import AfterTwo, Family, Key, Rule, layers
from foveate.models.transformer import TransformerEncoder
from foveate.nn.feed_forward import GELU
from foveate.nn.norm import LayerNorm
from foveate.nn.position import Learned
from foveate.nn.stem import SegmentStem

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

BERT = Family(
    name="bert",
    architecture="BertModel",
    inputs=1,
    config=TransformerEncoder.Config(
        norm_order="post",
        stem=SegmentStem.Config(),
        position=Learned.Config(),
        embedding_norm=LayerNorm.Config(),
        feed_forward=GELU.Config(),
    ),
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
    config=BERT.config.model_copy(update={"stem": SegmentStem.Config(num_segments=1)}),
    keys=(
        *(replace(key, default=50265) if key.theirs == "vocab_size" else key for key in KEYS),
        replace(PLACES, shift=2),
    ),
    only={**BERT.only, "pad_token_id": 1},
    prefix="roberta.",
    rules=(*RULES, Rule(*TABLE, AfterTwo())),
    heads=("roberta.pooler.", "pooler.", "lm_head.", "classifier.", "qa_outputs."),
)
