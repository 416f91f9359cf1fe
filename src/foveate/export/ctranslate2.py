"""Export to CTranslate2, and translating by it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from foveate.data.tokenizer import BOS, EOS, SPECIALS, UNK
from foveate.decode.beam import Beam, Greedy
from foveate.decode.search import Hypothesis, Search
from foveate.export.base import (
    Checked,
    CheckSample,
    Export,
    Pieces,
    by_length,
    compare,
    searches,
    translator,
)
from foveate.export.huggingface_rules import ExchangeError
from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.transformer import (
    DecoderLayer,
    EncoderLayer,
    TransformerDecoder,
    TransformerEncoder,
)
from foveate.nn.attention import Attention
from foveate.nn.feed_forward import GatedFeedForward
from foveate.nn.linear import RMSNorm
from foveate.nn.positions import Rotary
from foveate.run import Run
from foveate.tasks.translation import Translation

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
    "value_size": (None,),
    "feed_forward": ("relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu"),
}


@dataclass(frozen=True)
class Part:
    """One choice of a config: what it is about, its key, its value."""

    what: str
    key: str
    value: object


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
        yield from _parts_of(name, side.config)
    equal = sides["encoder"].config.norm == sides["decoder"].config.norm
    yield Part("equal", "encoder.norm = decoder.norm", equal)


def _parts_of(name: str, config: Any) -> Iterator[Part]:
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
        yield Part("value_size", f"{name}.value_size", config.value_size)


# ------------------------------------------------------------------------------------- ctranslate2
# A translator or language model of Transformer layers as a model of CTranslate2.

ACTIVATIONS = {  # our feed-forward networks and CTranslate2's names of what is in them
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
    "silu": "SWISH",
    "swiglu": "SWISH",
    "geglu": "GELUTanh",
}
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
                f"{self.run.config.task.kind}{self.instead()}"
            )
        part = first_misfit(self.run.model)
        if part is not None:
            raise ExchangeError(f"ctranslate2 has no {part.key} = {part.value!r}{self.instead()}")
        Pieces.of(self.run)

    def write(self, place: Path, pointer: dict[str, object]) -> None:
        place.mkdir()
        spec = specification(self.run)
        spec.validate()
        spec.optimize(None if self.quantization == "float32" else self.quantization)
        spec.save(str(place))

    def check(self, place: Path, sample: CheckSample) -> Checked:
        engine = Engine(self.run, place)

        def theirs(ids: list[list[int]], search: Search) -> list[list[int]]:
            answers = engine.search(self.run.model, ids, search)
            return [hypotheses[0].ids if hypotheses else [] for hypotheses in answers]

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
    longest, search = run.task.data.max_length, run.config.decode
    # places of a table of positions for the longest source and output
    places = max(PLACES, longest + 1, int(search.max_ratio * longest) + search.max_extra + 1)
    _fill_side(spec.encoder, encoder, places)
    _fill_side(spec.decoder, decoder, places)
    _linear(spec.decoder.projection, model.output)
    pieces = named or Pieces.of(run)
    spec.register_source_vocabulary(pieces.source)
    spec.register_target_vocabulary(pieces.target)
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
    return spec


def _sizes(part: TransformerEncoder | TransformerDecoder) -> dict[str, object]:
    """What a specification is made with."""
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


def _table(part: TransformerEncoder | TransformerDecoder, places: int) -> object:
    """What a position adds at each place (T, D): learned, waves, or nothing."""
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
    """A copy: what rounds weights does so in place."""
    return tensor.detach().float().cpu().numpy().copy()


def _norm(spec: Any, module: nn.Module) -> None:
    norm = cast(Any, module).norm
    spec.gamma = _array(norm.weight)
    if getattr(norm, "bias", None) is not None:
        spec.beta = _array(norm.bias)


def _linear(spec: Any, *modules: Any) -> None:
    """Linear maps of one vector, their rows one after the other."""

    def rows(name: str) -> Tensor:
        return torch.cat([getattr(module, name).detach() for module in modules])

    spec.weight = _array(rows("weight"))
    if modules[0].bias is not None:
        spec.bias = _array(rows("bias"))


# ------------------------------------------------------------------------------------------ engine
# A run that translates through CTranslate2: the same answers, found by another program.
#
#     run = through_ctranslate2(foveate.load("runs/en-fr"), Path("runs/en-fr.ct2"))
#     run.translate(["A black dog runs."])
#
# CTranslate2 divides log p by |y|^α, we by lp(y) of Wu et al. (2016). It is asked for as many
# outputs
# as its beam is wide, and these are ranked by our score: since neither score says which
# beginnings a
# beam keeps, it is the same search. Where in the end there are more outputs than the beam is wide,
# the last ones of an n-best list may be others.

Ids = list[int]


def through_ctranslate2(run: Run, folder: Path, compute_type: str = "default") -> Run:
    """The run with its searches carried out on an export of it; all else is the run's own.

    Raises `ExchangeError` where the folder is no export, or one of other pieces.
    """
    if not (folder / "model.bin").is_file():
        raise ExchangeError(
            f"{folder} is no model of CTranslate2: foveate export RUN {folder} --to ctranslate2"
        )
    engine = Engine(run, folder, compute_type)
    task = copy.copy(translator(run))
    task.search = engine.search  # type: ignore[method-assign]
    return Run(run.path, run.config, task, run.model, run.checkpoint)


class Engine:
    """Searches of a run that CTranslate2 carries out, on a folder that `foveate export` wrote.

    ``compute_type`` is one of CTranslate2's; without it, that of the weights.
    """

    def __init__(self, run: Run, folder: Path, compute_type: str = "default") -> None:
        import ctranslate2  # type: ignore[import-untyped]

        self.run, threads = run, torch.get_num_threads()
        self.translator = ctranslate2.Translator(
            str(folder), device="cpu", compute_type=compute_type, intra_threads=threads
        )
        task = translator(run)
        self.source, self.target = task.source_tokenizer.pieces, task.target_tokenizer.pieces
        self.ids = {piece: i for i, piece in enumerate(self.target)}

    def search(
        self,
        model: Any,
        sources: Sequence[Ids],
        search: Search,
        batch_tokens: int = 4096,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """What `foveate.tasks.translation.Translation.search` gives: the best outputs, in order.

        Raises `ExchangeError` for a search that CTranslate2 does not have.
        """
        _refuse(search)
        hypotheses: list[list[Hypothesis]] = [[] for _ in sources]
        for length, numbers in by_length(sources).items():
            limit = search.limits([length])[0]
            lines = [[self.source[i] for i in sources[n]] for n in numbers]
            for number, best in zip(
                numbers, self._translated(lines, limit, search, batch_tokens), strict=True
            ):
                hypotheses[number] = best
            if progress is not None:
                progress(len(numbers))
        return hypotheses

    def _translated(
        self, lines: list[list[str]], limit: int, search: Search, batch_tokens: int
    ) -> list[list[Hypothesis]]:
        answers = self.translator.translate_batch(
            lines,
            beam_size=search.width,
            num_hypotheses=search.width,
            length_penalty=_exponent(search, limit),
            return_scores=True,
            return_end_token=True,
            min_decoding_length=0,
            max_decoding_length=limit,
            max_input_length=0,
            max_batch_size=max(batch_tokens, *(search.width * (len(line) + 1) for line in lines)),
            batch_type="tokens",
        )
        return [self._ranked(answer, search, _exponent(search, limit)) for answer in answers]

    def _ranked(self, answer: Any, search: Search, exponent: float) -> list[Hypothesis]:
        hypotheses = []
        for tokens, mean in zip(answer.hypotheses, answer.scores, strict=True):
            ids = [self.ids[token] for token in tokens]
            log_p = mean * len(ids) ** exponent
            ended = bool(ids) and ids[-1] == EOS
            score = log_p / search.penalty(len(ids)) if isinstance(search, Beam) else log_p
            hypotheses.append(Hypothesis(ids[:-1] if ended else ids, log_p, score, ended))
        return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)


def _exponent(search: Search, limit: int) -> float:
    """The α of |y|^α that is our lp(y) for the shortest output and for one of the limit.

    Where more outputs end than the beam is wide, CTranslate2 keeps the best by its own score. Not
    0: there it would stop at the first output.
    """
    if not isinstance(search, Beam):
        return 0.0
    return max(math.log(search.penalty(limit)) / math.log(max(limit, 2)), 1e-3)


def _refuse(search: Search) -> None:
    known = type(search) in (Beam, Greedy)
    if not known or search.config.rules or search.prefixes or search.listener is not None:
        raise ExchangeError(
            "CTranslate2 has the searches greedy and beam here, without rules and beginnings; "
            "leave out --engine for others"
        )
