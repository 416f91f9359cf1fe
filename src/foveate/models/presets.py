"""Models of the literature by name: ``model = "vaswani-base"`` is what the paper describes.

A preset is a kind of model with other defaults; any field can still be changed beside its name.
"""

from __future__ import annotations

from typing import Literal

from foveate.models.decoder import Decoder
from foveate.models.encoder import Encoder
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.recurrent import RecurrentAttention, RecurrentDecoder, RecurrentEncoder
from foveate.models.ssru import SSRUDecoder
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.recurrent import GRUCell, LSTMCell
from foveate.nn.score import Additive, General

Tie = Literal["none", "target", "all"]


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

    encoder: Encoder.Config = RecurrentEncoder.Config(cell=GRUCell.Config(), bidirectional=True)
    decoder: Decoder.Config = RecurrentDecoder.Config(
        cell=GRUCell.Config(),
        attention=RecurrentAttention(query="previous", score=Additive.Config()),
    )


class Luong2015(EncoderDecoder.Config, kind="luong-2015"):
    """Two LSTM layers on each side, the general score asked with s_t, input feeding
    (Luong, Pham & Manning, 2015), D = 256 in place of 1,000.
    """

    encoder: Encoder.Config = RecurrentEncoder.Config(cell=LSTMCell.Config(), num_layers=2)
    decoder: Decoder.Config = RecurrentDecoder.Config(
        cell=LSTMCell.Config(),
        num_layers=2,
        attention=RecurrentAttention(query="current", score=General.Config(), project=()),
    )


class Sutskever2014(EncoderDecoder.Config, kind="sutskever-2014"):
    """Two LSTM layers on each side, joined by the last state alone (Sutskever, Vinyals & Le, 2014),
    D = 256 in place of 1,000.
    """

    encoder: Encoder.Config = RecurrentEncoder.Config(cell=LSTMCell.Config(), num_layers=2)
    decoder: Decoder.Config = RecurrentDecoder.Config(cell=LSTMCell.Config(), num_layers=2)
