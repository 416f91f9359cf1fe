"""Published architectures by name, as configs."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from foveate.models.classic import WindowDecoder
from foveate.models.classifier import Classifier, First, Pooling
from foveate.models.encoder_decoder import Decoder, Encoder, EncoderDecoder
from foveate.models.language_model import LanguageModel
from foveate.models.pointer import PointerGenerator
from foveate.models.recurrent import (
    RecurrentAttention,
    RecurrentDecoder,
    RecurrentEncoder,
    StatesBridge,
    SummaryBridge,
)
from foveate.models.transformer import SSRUDecoder, TransformerDecoder, TransformerEncoder
from foveate.models.vision import ConvolutionalEncoder
from foveate.nn.attention import Attention
from foveate.nn.embedding import PatchStem, SegmentStem, Stem, TokenStem
from foveate.nn.feed_forward import GELU, FeedForward, ReLU, SwiGLU
from foveate.nn.linear import LayerNorm, Norm, RMSNorm
from foveate.nn.positions import Learned, Position, Rotary, T5Bias, T5CausalBias
from foveate.nn.recurrent import ElmanCell, GRUCell, LSTMCell
from foveate.nn.scores import Additive, General

Tie = Literal["none", "target", "all"]
_TIED = 'input embeddings and output projection are tied (tie = "none" unties them)'


class VaswaniBase(EncoderDecoder.Config, kind="vaswani-base"):
    """6 + 6 layers, D = 512, 8 heads, feed-forward 2,048, norm after (Vaswani et al., 2017)."""

    encoder: Encoder.Config = TransformerEncoder.Config(
        hidden_size=512, num_heads=8, num_layers=6, ffn_size=2048, norm_order="post"
    )
    decoder: Decoder.Config = TransformerDecoder.Config(
        hidden_size=512, num_heads=8, num_layers=6, ffn_size=2048, norm_order="post"
    )
    tie: Tie = "all"


class TransformerSmall(EncoderDecoder.Config, kind="transformer-small"):
    """3 + 3 layers, D = 256, 4 heads, feed-forward 1,024, norm before: for a laptop."""

    encoder: Encoder.Config = TransformerEncoder.Config()
    decoder: Decoder.Config = TransformerDecoder.Config()
    tie: Tie = "all"


class TransformerTiny(EncoderDecoder.Config, kind="transformer-tiny"):
    """4 + 4 layers, D = 128, 4 heads, feed-forward 256: for 30,000 sentences (Wu et al., 2021)."""

    encoder: Encoder.Config = TransformerEncoder.Config(
        hidden_size=128, num_layers=4, ffn_size=256, dropout=0.2
    )
    decoder: Decoder.Config = TransformerDecoder.Config(
        hidden_size=128, num_layers=4, ffn_size=256, dropout=0.2
    )
    tie: Tie = "all"


class TransformerShallow(EncoderDecoder.Config, kind="transformer-shallow"):
    """6 + 1 layers, D = 256: a deep encoder reads once, a shallow decoder writes each word
    (Kasai et al., 2021). For serving.
    """

    encoder: Encoder.Config = TransformerEncoder.Config(num_layers=6)
    decoder: Decoder.Config = TransformerDecoder.Config(num_layers=1)
    tie: Tie = "all"


class TransformerSSRU(EncoderDecoder.Config, kind="transformer-ssru"):
    """6 + 1 layers, D = 256, a recurrence in place of the decoder's self-attention
    (Kim et al., 2019). For serving.
    """

    encoder: Encoder.Config = TransformerEncoder.Config(num_layers=6)
    decoder: Decoder.Config = SSRUDecoder.Config(num_layers=1)
    tie: Tie = "all"


class Bahdanau2015(EncoderDecoder.Config, kind="bahdanau-2015"):
    """RNNsearch: a bidirectional GRU, a GRU that asks with s_{t−1} by the additive score
    (Bahdanau, Cho & Bengio, 2015), D = 256 in place of 1,000.
    """

    differs: ClassVar[str] = (
        "a tanh read-out instead of maxout; PyTorch's GRU instead of that of Cho et al. (cell = "
        f'"gru_cho"); biases in the score; D = 256; {_TIED}'
    )

    encoder: Encoder.Config = RecurrentEncoder.Config(cell=GRUCell.Config(), bidirectional=True)
    decoder: Decoder.Config = RecurrentDecoder.Config(
        cell=GRUCell.Config(),
        attention=RecurrentAttention(query="previous", score=Additive.Config()),
    )


class Luong2015(EncoderDecoder.Config, kind="luong-2015"):
    """Two LSTM layers on each side, the general score asked with s_t, input feeding
    (Luong, Pham & Manning, 2015), D = 256 in place of 1,000.
    """

    differs: ClassVar[str] = (
        "two layers of 256 units instead of four of 1,000; the source is not reversed; the "
        f"read-out also depends on the token; {_TIED}"
    )

    encoder: Encoder.Config = RecurrentEncoder.Config(cell=LSTMCell.Config(), num_layers=2)
    decoder: Decoder.Config = RecurrentDecoder.Config(
        cell=LSTMCell.Config(),
        num_layers=2,
        attention=RecurrentAttention(query="current", score=General.Config(), project=()),
    )


class See2017(PointerGenerator.Config, kind="see-2017"):
    """A bidirectional LSTM, an LSTM decoder, and one attention, whose weights are the copy
    distribution (See, Liu & Manning, 2017); D = 256 and embeddings of 128, as published.
    """

    differs: ClassVar[str] = (
        "the context is not fed into the decoder; p_gen is computed from the read-out, which "
        f"already contains the token; {_TIED}"
    )

    encoder: Encoder.Config = RecurrentEncoder.Config(
        cell=LSTMCell.Config(), bidirectional=True, embedding_size=128
    )
    decoder: Decoder.Config = RecurrentDecoder.Config(cell=LSTMCell.Config(), embedding_size=128)
    tie: Literal["none", "target", "all", "inputs"] = "all"


class Sutskever2014(EncoderDecoder.Config, kind="sutskever-2014"):
    """Two LSTM layers on each side; every layer of the decoder begins with the last h and c of that
    of the encoder (Sutskever, Vinyals & Le, 2014: four layers of 1,000). D = 256.
    """

    differs: ClassVar[str] = (
        "two layers of 256 units instead of four of 1,000; the source is not reversed; a tanh "
        f'read-out of state and token, not of the state only (decoder.readout = "state"); {_TIED}'
    )

    encoder: Encoder.Config = RecurrentEncoder.Config(cell=LSTMCell.Config(), num_layers=2)
    decoder: Decoder.Config = RecurrentDecoder.Config(
        cell=LSTMCell.Config(), num_layers=2, bridge=StatesBridge.Config()
    )


class Cho2014(EncoderDecoder.Config, kind="cho-2014"):
    """A GRU on each side; the decoder reads the vector of the source at every step
    (Cho et al., 2014), D = 256 in place of 1,000.
    """

    encoder: Encoder.Config = RecurrentEncoder.Config(cell=GRUCell.Config())
    decoder: Decoder.Config = RecurrentDecoder.Config(
        cell=GRUCell.Config(), bridge=SummaryBridge.Config()
    )


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


class Bengio2003(LanguageModel.Config, kind="bengio-2003"):
    """The four words before, their embeddings, one hidden layer (Bengio et al., 2003)."""

    differs: ClassVar[str] = _TIED

    decoder: Decoder.Config = WindowDecoder.Config()


class Mikolov2010(LanguageModel.Config, kind="mikolov-2010"):
    """One layer of Elman's network over words (Mikolov et al., 2010), D = 256."""

    differs: ClassVar[str] = (
        'tanh instead of the logistic function (cell.activation = "sigmoid"); backpropagation '
        f"through a whole block; dropout; {_TIED}"
    )

    decoder: Decoder.Config = RecurrentDecoder.Config(cell=ElmanCell.Config(), readout="state")


class LSTMZaremba(LanguageModel.Config, kind="lstm-zaremba"):
    """Two LSTM layers of 650 with dropout 0.5 between layers, not between steps (Zaremba et al.,
    2014, "medium"), here with one table for input and output (Press & Wolf, 2017).
    """

    differs: ClassVar[str] = _TIED

    decoder: Decoder.Config = RecurrentDecoder.Config(
        cell=LSTMCell.Config(),
        embedding_size=650,
        hidden_size=650,
        num_layers=2,
        dropout=0.5,
        readout="state",
    )


class GPT2(LanguageModel.Config, kind="gpt-2"):
    """12 layers, D = 768, 12 heads, GELU, norm before, learned places (Radford et al., 2019)."""

    differs: ClassVar[str] = (
        'exact GELU; for the tanh approximation of the original, set feed_forward = "gelu_tanh"'
    )

    decoder: Decoder.Config = TransformerDecoder.Config(
        hidden_size=768,
        num_heads=12,
        num_layers=12,
        ffn_size=3072,
        stem=TokenStem.Config(),
        position=Learned.Config(max_length=1024),
        feed_forward=GELU.Config(),
    )


class GPTTiny(LanguageModel.Config, kind="gpt-tiny"):
    """GPT-2 with 4 layers, D = 256, 4 heads and 256 places: for a laptop."""

    decoder: Decoder.Config = TransformerDecoder.Config(
        hidden_size=256,
        num_heads=4,
        num_layers=4,
        ffn_size=1024,
        stem=TokenStem.Config(),
        position=Learned.Config(max_length=256),
        feed_forward=GELU.Config(),
    )


class LlamaTiny(LanguageModel.Config, kind="llama-tiny"):
    """Llama's block (Touvron et al., 2023) for a laptop: RMSNorm, SwiGLU, rotary places, heads
    that share keys in pairs (Ainslie et al., 2023); 4 layers, D = 256.
    """

    decoder: Decoder.Config = TransformerDecoder.Config(
        hidden_size=256,
        num_heads=4,
        num_layers=4,
        ffn_size=688,
        norm=RMSNorm.Config(),
        stem=TokenStem.Config(),
        position=Rotary.Config(),
        attention=Attention.Config.parse({"key_heads": 2, "bias": False}),
        feed_forward=SwiGLU.Config(),
    )


def vit(
    patch_size: int, places: int, sizes: tuple[int, int, int, int]
) -> TransformerEncoder.Config:
    """The encoder of a Vision Transformer; ``sizes`` are D, heads, layers, feed-forward."""
    hidden, heads, layers, ffn = sizes
    return TransformerEncoder.Config(
        stem=PatchStem.Config(patch_size=patch_size, class_token=True),
        position=Learned.Config(max_length=places),
        hidden_size=hidden,
        num_heads=heads,
        num_layers=layers,
        ffn_size=ffn,
        dropout=0.0,
        feed_forward=GELU.Config(),
    )


class ViTTiny(Classifier.Config, kind="vit-tiny"):
    """4×4 patches, D = 64, 4 heads, 6 layers: a Vision Transformer for digits of 28×28."""

    encoder: Encoder.Config = vit(4, 50, (64, 4, 6, 128))
    pooling: Pooling.Config = First.Config()
    dropout: float = Field(0.0, ge=0, lt=1)


class ViTBase(Classifier.Config, kind="vit-base"):
    """16×16 patches of 224×224, D = 768, 12 heads, 12 layers, feed-forward 3,072
    (Dosovitskiy et al., 2020).
    """

    encoder: Encoder.Config = vit(16, 197, (768, 12, 12, 3072))
    pooling: Pooling.Config = First.Config()
    dropout: float = Field(0.0, ge=0, lt=1)


class ShowAttendTell(EncoderDecoder.Config, kind="show-attend-tell"):
    """A grid of convolutional features, an LSTM that looks at it before each word (Xu et al.,
    2015); small and trained from nothing, where the paper takes a VGG network trained on ImageNet.
    """

    differs: ClassVar[str] = (
        "a small CNN trained from scratch instead of VGG; no gate on the context; a tanh in the "
        "read-out"
    )

    encoder: Encoder.Config = ConvolutionalEncoder.Config(dropout=0.3)
    decoder: Decoder.Config = RecurrentDecoder.Config(
        cell=LSTMCell.Config(), dropout=0.4, attention=RecurrentAttention(query="previous")
    )
