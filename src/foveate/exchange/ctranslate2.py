"""Export a translator of Transformer layers to CTranslate2."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from foveate.data.tokenizer import BOS, EOS, SPECIALS, UNK
from foveate.decode.beam import Beam
from foveate.decode.engine import Hypothesis, Ids, best
from foveate.decode.search import Search
from foveate.exchange.base import (
    Checked,
    CheckSample,
    ExchangeError,
    Export,
    compare,
    once,
    searches,
    translator,
)
from foveate.exchange.huggingface_rules import look_up
from foveate.exchange.tokenizers import write_example
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.transformer import (
    DecoderLayer,
    EncoderLayer,
    TransformerDecoder,
    TransformerEncoder,
)
from foveate.nn.attention import Attention
from foveate.nn.linear import GatedFeedForward, RMSNorm
from foveate.nn.positions import Rotary
from foveate.run import Run
from foveate.tasks.translation import Translation

ATTENTION: dict[str, tuple[object, ...]] = {  # what CTranslate2 supports for its fields
    "kind": ("full",),
    "head_norm.kind": (None,),
    "score.kind": ("scaled_dot", "dot"),
    "normalizer.kind": ("softmax",),
    "normalizer.temperature": (1.0, None),
    "project": (("key", "output", "query", "value"),),
    "value_size": (None,),
}
SIDE: dict[str, tuple[object, ...]] = {  # and for those of an encoder or a decoder
    "norm_order": ("pre", "post"),
    "norm.kind": ("layer_norm", "rms_norm"),
    "position.kind": ("none", "sinusoidal", "sinusoidal_halves", "learned", "rope"),
    "stem.kind": ("tokens",),
    "feed_forward.kind": ("relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu"),
    **{f"attention.{field}": able for field, able in ATTENTION.items()},
    **{f"cross_attention.{field}": able for field, able in ATTENTION.items()},
}


def first_misfit(model: nn.Module) -> str | None:
    """Return the most important choice of a model that CTranslate2 lacks, None if it has all."""
    if not isinstance(model, EncoderDecoder):
        return f"model = {type(model).__name__!r}"
    sides: dict[str, Any] = {"encoder": model.encoder, "decoder": model.decoder}
    for name, side in sides.items():
        if type(side) not in (TransformerEncoder, TransformerDecoder):
            return f"{name}.kind = {side.config.kind!r}"
    for name, side in sides.items():
        tree = side.config.tree()
        for field, able in SIDE.items():
            value = look_up(tree, field)
            value = tuple(sorted(value)) if isinstance(value, list) else value
            if field.split(".")[0] in tree and value not in able:
                return f"{name}.{field.removesuffix('.kind')} = {value!r}"
        if side.config.embedding_norm not in (None, side.config.norm):
            return f"{name}.norm = embedding_norm = False"
    if sides["encoder"].config.norm != sides["decoder"].config.norm:
        return "encoder.norm = decoder.norm = False"
    return None


ACTIVATIONS = {  # our feed-forward networks and CTranslate2's names of their activations
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
    "silu": "SWISH",
    "swiglu": "SWISH",
    "geglu": "GELUTanh",
}
PLACES = 2048  # minimum number of rows in the position table


EXAMPLE = """\
# In this folder: python example.py "A black dog runs."
import sys, ctranslate2, tokenizers
source, target = map(tokenizers.Tokenizer.from_file, ("{source}", "{target}"))
pieces = source.encode(sys.argv[1], add_special_tokens=False).tokens
[result] = ctranslate2.Translator(".").translate_batch([pieces], beam_size=1, min_decoding_length=0)
print(target.decode([target.token_to_id(piece) for piece in result.hypotheses[0]]))
"""


class CTranslate2(Export):
    """A folder that ``ctranslate2.Translator`` loads."""

    to = "ctranslate2"
    packages = ("ctranslate2",)
    precisions = ("float32", "bfloat16", "float16", "int16", "int8")

    def refuse(self) -> None:
        if not isinstance(self.run.task, Translation):
            raise ExchangeError(
                f"ctranslate2 takes translations, but this run has the task "
                f"{self.run.config.task.kind}{self.instead()}"
            )
        if (misfit := first_misfit(self.run.model)) is not None:
            raise ExchangeError(f"ctranslate2 has no {misfit}{self.instead()}")
        for tokenizer in translator(self.run).tokenizers_by_name().values():
            once(tokenizer.pieces)

    def write(self, place: Path, pointer: dict[str, object]) -> None:
        place.mkdir()
        task = translator(self.run)
        pieces = once(task.source_tokenizer.pieces), once(task.target_tokenizer.pieces)
        specification(self.run, self.quantization, *pieces).save(str(place))
        write_example(self.run, place, pointer, EXAMPLE)

    def check(self, place: Path, sample: CheckSample) -> Checked:
        import ctranslate2  # type: ignore[import-untyped]

        threads = torch.get_num_threads()
        model = ctranslate2.Translator(str(place), device="cpu", intra_threads=threads)

        def theirs(ids: list[list[int]], search: Search) -> list[list[int]]:
            return [best(ranked).ids for ranked in searched(model, self.run, ids, search)]

        exact = self.quantization == "float32"
        return compare(self.run, sample, searches(self.run), theirs, exact)


def searched(
    model: Any, run: Run, sources: Sequence[Ids], search: Search
) -> list[list[Hypothesis]]:
    """Return the hypotheses of ``ctranslate2.Translator`` for sources of one length, by our rank.

    CTranslate2 divides log p by |y|^α, we by lp(y) of Wu et al. (2016). It returns as many outputs
    as its beam is wide. Since neither score decides which hypotheses a beam retains, the search is
    the same; if more outputs end than the beam is wide, the last ones of a list may differ.
    """
    task = translator(run)
    pieces, own = task.source_tokenizer.pieces, task.target_tokenizer.pieces
    ids_of = {piece: i for i, piece in enumerate(own)}
    limit = search.limits([len(sources[0])])[0]
    exponent = _exponent(search, limit)
    answers = model.translate_batch(
        [[pieces[i] for i in source] for source in sources],
        beam_size=search.width,
        num_hypotheses=search.width,
        length_penalty=exponent,
        return_scores=True,
        return_end_token=True,
        min_decoding_length=0,
        max_decoding_length=limit,
        max_input_length=0,
        max_batch_size=32,
    )
    results: list[list[Hypothesis]] = []
    for answer in answers:
        results.append([])
        for tokens, mean in zip(answer.hypotheses, answer.scores, strict=True):
            ids = [ids_of[token] for token in tokens]
            log_p, ended = mean * len(ids) ** exponent, bool(ids) and ids[-1] == EOS
            score = log_p / search.penalty(len(ids)) if isinstance(search, Beam) else log_p
            results[-1].append(Hypothesis(ids[:-1] if ended else ids, log_p, score, ended))
        results[-1].sort(key=lambda hypothesis: -hypothesis.score)
    return results


def _exponent(search: Search, limit: int) -> float:
    """Return the α for which |y|^α is our lp(y), at the shortest output and at the limit.

    α is not 0: then CTranslate2 would stop at the first output.
    """
    if not isinstance(search, Beam):
        return 0.0
    return max(math.log(search.penalty(limit)) / math.log(max(limit, 2)), 1e-3)


def specification(run: Run, quantization: str, source: list[str], target: list[str]) -> Any:
    """Return our weights in CTranslate2's layout, and the names of the pieces of both sides."""
    from ctranslate2.specs import transformer_spec  # type: ignore[import-untyped]

    model: EncoderDecoder = run.model
    encoder = cast(TransformerEncoder, model.encoder)
    decoder = cast(TransformerDecoder, model.decoder)
    spec = transformer_spec.TransformerSpec(
        transformer_spec.TransformerEncoderSpec(**_sizes(encoder)),
        transformer_spec.TransformerDecoderSpec(**_sizes(decoder)),
    )
    longest, search = run.task.data.max_length, run.config.decode
    # rows of a position table for the longest source and output
    places = max(PLACES, longest + 1, int(search.max_ratio * longest) + search.max_extra + 1)
    _fill_side(spec.encoder, encoder, places)
    _fill_side(spec.decoder, decoder, places)
    _linear(spec.decoder.projection, model.output)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    attributes: dict[str, object] = {
        "layer_norm_epsilon": encoder.config.norm.eps,
        "add_source_eos": True,
        "bos_token": SPECIALS[BOS],
        "eos_token": SPECIALS[EOS],
        "unk_token": SPECIALS[UNK],
        "decoder_start_token": SPECIALS[BOS],
    }
    for key, value in attributes.items():
        spec.config.add_attribute(key, value)
    spec.validate()
    spec.optimize(None if quantization == "float32" else quantization)
    return spec


def _sizes(part: TransformerEncoder | TransformerDecoder) -> dict[str, object]:
    """Return the arguments of a specification."""
    from ctranslate2.specs import common_spec

    config = part.config
    attention = cast(Attention, cast(Any, part.layers[0]).self_attention)
    size = config.hidden_size // config.num_heads
    sizes: dict[str, Any] = {
        "num_layers": config.num_layers,
        "num_heads": config.num_heads,
        "pre_norm": config.norm_order == "pre",
        "activation": getattr(common_spec.Activation, ACTIVATIONS[str(config.feed_forward.kind)]),
        "layernorm_embedding": config.embedding_norm is not None,
        "rms_norm": isinstance(config.norm, RMSNorm.Config),
        "ffn_glu": isinstance(cast(Any, part.layers[0]).feed_forward, GatedFeedForward),
    }
    if attention.key_heads != attention.num_heads:
        sizes["num_heads_kv"] = attention.key_heads
    if attention.config.head_size is not None:
        sizes["head_dim"] = size = attention.config.head_size
    if isinstance(config.position, Rotary.Config):
        turned = {"rotary_interleave": False, "rotary_base": config.position.base}
        sizes |= {"rotary_dim": size} | turned
    return sizes


def _fill_side(spec: Any, part: TransformerEncoder | TransformerDecoder, places: int) -> None:
    """Fill an encoder or a decoder, all but the projection to the vocabulary."""
    stem: Any = part.stem
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


def _table(part: TransformerEncoder | TransformerDecoder, places: int) -> object:
    """Return the encoding of each position (T, D): learned, sinusoidal, or zeros."""
    places = getattr(part.config.position, "max_length", places)
    with torch.no_grad():
        nothing = torch.zeros(1, places, part.config.hidden_size)
        return _array(part.position.embed(nothing, torch.arange(places))[0])


def _layer(spec: Any, layer: EncoderLayer | DecoderLayer) -> None:
    own, *cross, feed = [cast(Any, block).norm for block in layer.blocks]
    _norm(spec.self_attention.layer_norm, own)
    attention = cast(Attention, layer.self_attention)
    _linear(spec.self_attention.linear[0], attention.query, attention.key, attention.value)
    _linear(spec.self_attention.linear[1], attention.output)
    spec.self_attention.queries_scale = np.float32(attention.score.scale)
    across = getattr(layer, "cross_attention", None)
    if across is not None:
        _norm(spec.attention.layer_norm, cross[0])
        _linear(spec.attention.linear[0], across.query)
        _linear(spec.attention.linear[1], across.key, across.value)
        _linear(spec.attention.linear[2], across.output)
        spec.attention.queries_scale = np.float32(across.score.scale)
    _norm(spec.ffn.layer_norm, feed)
    _linear(spec.ffn.linear_0, layer.feed_forward.inner)
    _linear(spec.ffn.linear_1, layer.feed_forward.outer)
    if isinstance(layer.feed_forward, GatedFeedForward):
        _linear(spec.ffn.linear_0_noact, layer.feed_forward.gate)


def _array(tensor: Tensor) -> object:
    """Return a copy, because rounding of weights is done in place."""
    return tensor.detach().float().cpu().numpy().copy()


def _norm(spec: Any, module: nn.Module) -> None:
    norm = cast(Any, module).norm
    spec.gamma = _array(norm.weight)
    if getattr(norm, "bias", None) is not None:
        spec.beta = _array(norm.bias)


def _linear(spec: Any, *modules: Any) -> None:
    """Fill one map with linear maps of the same vector, their rows concatenated."""

    def rows(name: str) -> Tensor:
        return torch.cat([getattr(module, name).detach() for module in modules])

    spec.weight = _array(rows("weight"))
    if modules[0].bias is not None:
        spec.bias = _array(rows("bias"))
