"""Encoder-only families: BERT and RoBERTa, alone or with the head that guesses hidden words.

Other heads are left out.
"""

from __future__ import annotations

from dataclasses import replace

from foveate.export.huggingface_decoders import ACTIVATIONS
from foveate.export.huggingface_ends import Words
from foveate.export.huggingface_rules import AfterTwo, Family, Key, Rule, headed, layers
from foveate.models.masked_language_model import MaskedLanguageModel
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

TIED = Key("tie_word_embeddings", True, ("tie",), {True: "source"})

BERT_MASKED = headed(
    BERT,
    keys=(TIED,),
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
    keys=(TIED,),
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
