"""Models of pictures by name: ``model = "vit-tiny"``. A preset is a kind with other defaults."""

from __future__ import annotations

from pydantic import Field

from foveate.models.classifier import Classifier, First, Pooling
from foveate.models.convolutional import ConvolutionalEncoder
from foveate.models.decoder import Decoder
from foveate.models.encoder import Encoder
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.recurrent import RecurrentAttention, RecurrentDecoder
from foveate.models.transformer import TransformerEncoder
from foveate.nn.feed_forward import GELU
from foveate.nn.position import Learned
from foveate.nn.recurrent import LSTMCell
from foveate.nn.stem_pixels import PatchStem


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

    encoder: Encoder.Config = ConvolutionalEncoder.Config(dropout=0.3)
    decoder: Decoder.Config = RecurrentDecoder.Config(
        cell=LSTMCell.Config(), dropout=0.4, attention=RecurrentAttention(query="previous")
    )
