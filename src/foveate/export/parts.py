"""The parts of a Transformer by which other programs say whether they have it.

Lives here: what a model is made of, as one flat list; which parts CTranslate2 has. Does not live
here: weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.attention import Attention

WAYS: dict[str, tuple[Any, ...]] = {  # what CTranslate2 has of each part
    "kind": ("transformer",),
    "norm_order": ("pre", "post"),
    "norm": ("layer_norm", "rms_norm"),
    "equal": (True,),
    "position": ("none", "sinusoidal", "sinusoidal_halves", "learned", "rope"),
    "stem": ("tokens",),
    "attention": ("full",),
    "score": ("scaled_dot", "dot"),
    "normalizer": ("softmax",),
    "temperature": (1.0,),
    "project": (("key", "output", "query", "value"),),
    "feed_forward": ("relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu"),
}


@dataclass(frozen=True)
class Part:
    """One choice of a config: what it is about, its key, its value."""

    what: str
    key: str
    value: Any


def transformer_parts(model: nn.Module) -> Iterator[Part]:
    """The choices that another Transformer must have made too; the first ones matter most."""
    if not isinstance(model, EncoderDecoder):
        yield Part("kind", "model", type(model).__name__)
        return
    sides: dict[str, Any] = {"encoder": model.encoder, "decoder": model.decoder}
    classes = {"encoder": TransformerEncoder, "decoder": TransformerDecoder}
    for name, side in sides.items():
        fits = type(side) is classes[name]
        yield Part("kind", f"{name}.kind", "transformer" if fits else side.config.kind)
    for name, side in sides.items():
        yield from _side(name, side.config)
    equal = sides["encoder"].config.norm == sides["decoder"].config.norm
    yield Part("equal", "encoder.norm = decoder.norm", equal)


def _side(name: str, config: Any) -> Iterator[Part]:
    yield Part("norm_order", f"{name}.norm_order", config.norm_order)
    yield Part("norm", f"{name}.norm", config.norm.kind)
    first = config.embedding_norm
    yield Part("equal", f"{name}.norm = embedding_norm", first is None or first == config.norm)
    yield Part("position", f"{name}.position", config.position.kind)
    yield Part("stem", f"{name}.stem", config.stem.kind)
    yield Part("feed_forward", f"{name}.feed_forward", config.feed_forward.kind)
    yield from _attention(f"{name}.attention", config.attention)
    if getattr(config, "cross_attention", None) is not None:
        yield from _attention(f"{name}.cross_attention", config.cross_attention)


def _attention(name: str, config: Any) -> Iterator[Part]:
    full = type(config) is Attention.Config
    yield Part("attention", name, "full" if full else config.kind)
    if full:
        yield Part("score", f"{name}.score", config.score.kind)
        yield Part("normalizer", f"{name}.normalizer", config.normalizer.kind)
        heat = getattr(config.normalizer, "temperature", 1.0)
        yield Part("temperature", f"{name}.normalizer.temperature", heat)
        yield Part("project", f"{name}.project", tuple(sorted(config.project)))
