"""Published models of 2018 to 2020 by name, with the sizes of their first release.

An encoder (``encoder = "bert-base"``) or a whole model (``model = "t5-small"``); weights come with
`foveate.export.huggingface`. Does not live here: what the parts are (`foveate.models.transformer`).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from foveate.models.decoder import Decoder
from foveate.models.encoder import Encoder
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.attention import Attention
from foveate.nn.feed_forward import GELU, FeedForward, ReLU
from foveate.nn.norm import LayerNorm, Norm, RMSNorm
from foveate.nn.position import Learned, Position
from foveate.nn.position_t5 import T5Bias, T5CausalBias
from foveate.nn.stem import SegmentStem, Stem, TokenStem

BERT_NORM = LayerNorm.Config.parse({"eps": 1e-12})


class BertBase(TransformerEncoder.Config, kind="bert-base"):
    """12 layers, D = 768, 12 heads, norm after, segments, learned places (Devlin et al., 2019)."""

    hidden_size: int = Field(768, gt=0)
    num_heads: int = Field(12, gt=0)
    num_layers: int = Field(12, gt=0)
    ffn_size: int = Field(3072, gt=0)
    norm: Norm.Config = BERT_NORM
    norm_order: Literal["pre", "post"] = "post"
    stem: Stem.Config = SegmentStem.Config()
    position: Position.Config = Learned.Config(max_length=512)
    embedding_norm: Norm.Config | None = BERT_NORM
    attention: Attention.Config = Attention.Config.parse({"dropout": 0.1})
    feed_forward: FeedForward.Config = GELU.Config()


class RobertaBase(BertBase, kind="roberta-base"):
    """BERT trained longer, on more, without pairs: one segment (Liu et al., 2019)."""

    norm: Norm.Config = LayerNorm.Config()
    stem: Stem.Config = SegmentStem.Config(num_segments=1)
    embedding_norm: Norm.Config | None = LayerNorm.Config()


_T5: dict[str, Any] = {
    "hidden_size": 512,
    "num_heads": 8,
    "num_layers": 6,
    "ffn_size": 2048,
    "norm": RMSNorm.Config.parse({"eps": 1e-6}),
    "stem": TokenStem.Config(),
    "attention": Attention.Config.parse({"score": "dot", "dropout": 0.1, "bias": False}),
    "feed_forward": ReLU.Config.parse({"dropout": 0.1, "bias": False}),
}


class T5Small(EncoderDecoder.Config, kind="t5-small"):
    """6 + 6 layers, D = 512, 8 heads, norm before, no biases, relative places (Raffel, 2020)."""

    encoder: Encoder.Config = TransformerEncoder.Config(position=T5Bias.Config(), **_T5)
    decoder: Decoder.Config = TransformerDecoder.Config(position=T5CausalBias.Config(), **_T5)
    tie: Literal["none", "target", "all", "inputs"] = "all"


_BART: dict[str, Any] = {
    "hidden_size": 768,
    "num_heads": 12,
    "num_layers": 6,
    "ffn_size": 3072,
    "norm_order": "post",
    "stem": TokenStem.Config(),
    "position": Learned.Config(max_length=1024),
    "embedding_norm": LayerNorm.Config(),
    "feed_forward": GELU.Config(),
}


class BartBase(EncoderDecoder.Config, kind="bart-base"):
    """6 + 6 layers, D = 768, 12 heads, norm after, learned places (Lewis et al., 2020)."""

    encoder: Encoder.Config = TransformerEncoder.Config(**_BART)
    decoder: Decoder.Config = TransformerDecoder.Config(**_BART)
    tie: Literal["none", "target", "all", "inputs"] = "all"
    output_bias: bool = True
