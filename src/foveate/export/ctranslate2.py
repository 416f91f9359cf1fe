"""A translator or language model of Transformer layers as a model of CTranslate2.

Lives here: which of our parts it has, and where their weights go. Does not live here: asking it
(`foveate.export.engine`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from foveate.data.tokenizer import BOS, EOS, SPECIALS, UNK
from foveate.export.base import Export, Pieces
from foveate.export.compare import Checked, Sample, compare, searches
from foveate.export.huggingface_rules import ExchangeError
from foveate.export.parts import WAYS, Part, transformer_parts
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.transformer import (
    DecoderLayer,
    EncoderLayer,
    TransformerDecoder,
    TransformerEncoder,
)
from foveate.nn.attention import Attention
from foveate.nn.feed_forward import FeedForward, GatedFeedForward
from foveate.nn.norm import RMSNorm
from foveate.nn.position import Rotary
from foveate.run import Run
from foveate.tasks.translation import Translation

ACTIVATIONS = {  # our feed-forward networks and CTranslate2's names of what is in them
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
    "silu": "SWISH",
    "swiglu": "SWISH",
    "geglu": "GELUTanh",
}
INSTEAD = "; it can be exported to onnx or safetensors (foveate export --to …)"
PLACES = 2048  # rows of the table of positions, at least


class CTranslate2(Export):
    """A folder that ``ctranslate2.Translator`` loads."""

    to = "ctranslate2"
    packages = ("ctranslate2",)
    precisions = ("float32", "bfloat16", "float16", "int16", "int8")

    def refuse(self) -> None:
        if not isinstance(self.run.task, Translation):
            raise ExchangeError(
                f"ctranslate2 takes translations, and this run is of the task "
                f"{self.run.config.task.kind}{INSTEAD}"
            )
        part = first_misfit(self.run.model)
        if part is not None:
            raise ExchangeError(f"ctranslate2 has no {part.key} = {part.value!r}{INSTEAD}")
        Pieces.of(self.run)

    def write(self, place: Path, pointer: dict[str, Any]) -> None:
        place.mkdir()
        spec = specification(self.run)
        spec.validate()
        spec.optimize(None if self.quantization == "float32" else self.quantization)
        spec.save(str(place))

    def check(self, place: Path, sample: Sample) -> Checked:
        from foveate.export.engine import Engine

        engine = Engine(self.run, place)

        def theirs(ids: list[list[int]], search: Any) -> list[list[int]]:
            found = engine.search(self.run.model, ids, search)
            return [one[0].ids if one else [] for one in found]

        exact = self.quantization == "float32"
        return compare(self.run, sample, searches(self.run), theirs, exact)


def first_misfit(model: nn.Module) -> Part | None:
    """The first part of a model that CTranslate2 does not have; None where it has them all."""
    return next((p for p in transformer_parts(model) if p.value not in WAYS.get(p.what, ())), None)


# ------------------------------------------------------------------------------ the weights


def specification(run: Run, named: Pieces | None = None) -> Any:
    """Our weights in CTranslate2's layout; ``named`` are other names of the pieces."""
    from ctranslate2.specs import transformer_spec  # type: ignore[import-untyped]

    model = cast(EncoderDecoder, run.model)
    encoder = cast(TransformerEncoder, model.encoder)
    decoder = cast(TransformerDecoder, model.decoder)
    spec = transformer_spec.TransformerSpec(
        transformer_spec.TransformerEncoderSpec(**_sizes(encoder)),
        transformer_spec.TransformerDecoderSpec(**_sizes(decoder)),
    )
    places = _places(run)
    _side(spec.encoder, encoder, places)
    _side(spec.decoder, decoder, places)
    _linear(spec.decoder.projection, model.output)
    pieces = named or Pieces.of(run)
    spec.register_source_vocabulary(pieces.source)
    spec.register_target_vocabulary(pieces.target)
    said: dict[str, Any] = {"layer_norm_epsilon": encoder.config.norm.eps, "add_source_eos": True}
    said |= {"bos_token": SPECIALS[BOS], "eos_token": SPECIALS[EOS], "unk_token": SPECIALS[UNK]}
    for key, value in (said | {"decoder_start_token": SPECIALS[BOS]}).items():
        spec.config.add_attribute(key, value)
    return spec


def _places(run: Run) -> int:
    """How many places a table of positions needs for the longest source and output."""
    longest, search = run.task.data.max_length, run.config.decode
    return max(PLACES, longest + 1, int(search.max_ratio * longest) + search.max_extra + 1)


def _sizes(part: TransformerEncoder | TransformerDecoder) -> dict[str, Any]:
    """What a specification is made with."""
    from ctranslate2.specs import common_spec

    config = part.config
    attention = cast(Attention, cast(Any, part.layers[0]).self_attention)
    size = config.hidden_size // config.num_heads
    said: dict[str, Any] = {
        "num_layers": config.num_layers,
        "num_heads": config.num_heads,
        "pre_norm": config.norm_order == "pre",
        "activation": getattr(common_spec.Activation, ACTIVATIONS[str(config.feed_forward.kind)]),
        "layernorm_embedding": config.embedding_norm is not None,
        "rms_norm": isinstance(config.norm, RMSNorm.Config),
        "ffn_glu": isinstance(cast(Any, part.layers[0]).feed_forward, GatedFeedForward),
    }
    if attention.key_heads != attention.num_heads:
        said["num_heads_kv"] = attention.key_heads
    if attention.config.head_size is not None:
        said["head_dim"] = size = attention.config.head_size
    if isinstance(config.position, Rotary.Config):
        turned = {"rotary_interleave": False, "rotary_base": config.position.base}
        said |= {"rotary_dim": size} | turned
    return said


def _side(spec: Any, part: TransformerEncoder | TransformerDecoder, places: int) -> None:
    """An encoder or a decoder, all but the projection to the vocabulary."""
    stem = cast(Any, part.stem)
    tables = spec.embeddings if isinstance(spec.embeddings, list) else [spec.embeddings]
    tables[0].weight = _array(stem.embedding.weight)
    spec.scale_embeddings = stem.scale != 1.0
    if hasattr(spec, "position_encodings"):
        spec.position_encodings.encodings = _table(part, places)
    if part.config.embedding_norm is not None:
        _norm(spec.layernorm_embedding, part.embedding_norm)
    if part.config.norm_order == "pre":
        _norm(spec.layer_norm, part.norm)
    for theirs, ours in zip(spec.layer, part.layers, strict=True):
        _layer(theirs, cast(Any, ours))


def _table(part: TransformerEncoder | TransformerDecoder, places: int) -> Any:
    """What a position adds at each place (T, D): learned, waves, or nothing."""
    places = getattr(part.config.position, "max_length", places)
    with torch.no_grad():
        nothing = torch.zeros(1, places, part.config.hidden_size)
        return _array(part.position.embed(nothing, torch.arange(places))[0])


def _layer(spec: Any, layer: EncoderLayer | DecoderLayer) -> None:
    own, *cross, feed = [cast(Any, block).norm for block in layer.blocks]
    _norm(spec.self_attention.layer_norm, own)
    attention = cast(Attention, layer.self_attention)
    _joined(spec.self_attention.linear[0], attention.query, attention.key, attention.value)
    _linear(spec.self_attention.linear[1], attention.output)
    spec.self_attention.queries_scale = _scale(attention)
    across = getattr(layer, "cross_attention", None)
    if across is not None:
        _norm(spec.attention.layer_norm, cross[0])
        _linear(spec.attention.linear[0], across.query)
        _joined(spec.attention.linear[1], across.key, across.value)
        _linear(spec.attention.linear[2], across.output)
        spec.attention.queries_scale = _scale(across)
    _norm(spec.ffn.layer_norm, feed)
    _feed_forward(spec.ffn, layer.feed_forward)


def _feed_forward(spec: Any, network: FeedForward) -> None:
    _linear(spec.linear_0, network.inner)
    _linear(spec.linear_1, network.outer)
    if isinstance(network, GatedFeedForward):
        _linear(spec.linear_0_noact, network.gate)


def _array(tensor: Tensor) -> Any:
    """A copy: what rounds weights does so in place."""
    return tensor.detach().float().cpu().numpy().copy()


def _scale(attention: Attention) -> Any:
    import numpy as np

    return np.float32(attention.score.scale)


def _norm(spec: Any, module: nn.Module) -> None:
    norm = cast(Any, module).norm
    spec.gamma = _array(norm.weight)
    if getattr(norm, "bias", None) is not None:
        spec.beta = _array(norm.bias)


def _linear(spec: Any, module: Any) -> None:
    _joined(spec, module)


def _joined(spec: Any, *modules: Any) -> None:
    """Several linear maps of one vector, their rows one after the other."""

    def rows(name: str) -> Tensor:
        return torch.cat([getattr(module, name).detach() for module in modules])

    spec.weight = _array(rows("weight"))
    if modules[0].bias is not None:
        spec.bias = _array(rows("bias"))
