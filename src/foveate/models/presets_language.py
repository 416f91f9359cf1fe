"""Language models of the literature by name: ``model = "gpt-2"`` is what the report describes.

A preset is a kind of model with other defaults; any field can still be changed beside its name.
"""

from __future__ import annotations

from foveate.models.decoder import Decoder
from foveate.models.language_model import LanguageModel
from foveate.models.recurrent import RecurrentDecoder
from foveate.models.transformer import TransformerDecoder
from foveate.models.window import WindowDecoder
from foveate.nn.attention import Attention
from foveate.nn.feed_forward import GELU, SwiGLU
from foveate.nn.norm import RMSNorm
from foveate.nn.position import Learned, Rotary
from foveate.nn.recurrent import ElmanCell, LSTMCell
from foveate.nn.stem import TokenStem


class Bengio2003(LanguageModel.Config, kind="bengio-2003"):
    """The four words before, their embeddings, one hidden layer (Bengio et al., 2003)."""

    decoder: Decoder.Config = WindowDecoder.Config()


class Mikolov2010(LanguageModel.Config, kind="mikolov-2010"):
    """One layer of Elman's network over words (Mikolov et al., 2010), D = 256."""

    decoder: Decoder.Config = RecurrentDecoder.Config(cell=ElmanCell.Config(), readout="state")


class LSTMZaremba(LanguageModel.Config, kind="lstm-zaremba"):
    """Two LSTM layers of 650 with dropout 0.5 between layers, not between steps (Zaremba et al.,
    2014, "medium"), here with one table for input and output (Press & Wolf, 2017).
    """

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
