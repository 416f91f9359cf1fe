"""The program of a packed file: a PyTorch model as numbers and tensors that the engine reads.

A part is written as `LAYOUTS` lists it, or by the function that `write` has for its class, in the
order in which the functions ``read_…`` of ``model.h`` read it.
"""

import re
from functools import singledispatch
from operator import attrgetter
from typing import TypeVar

import numpy as np
from torch import Tensor, nn

from foveate.engine.codes import (
    Activation,
    AttendsWhen,
    BlockKind,
    BridgeKind,
    CellKind,
    NormalizerKind,
    NormKind,
    Order,
    PoolingKind,
    PositionKind,
    ScoreKind,
)
from foveate.engine.compiled import CompiledModel
from foveate.errors import UserError
from foveate.models import classifier, mamba, recurrent, transformer
from foveate.models.classic import BagEncoder
from foveate.models.encoder_decoder import Decoder, EncoderDecoder
from foveate.models.language_model import LanguageModel
from foveate.nn import linear, more_positions, positions, scores
from foveate.nn.attention import Attention
from foveate.nn.embedding import DenseStem, SegmentStem, Stem, TokenStem
from foveate.nn.linear import BatchNorm, LayerNorm, Linear, NoNorm, ResidualBlock, RMSNorm
from foveate.nn.native.kernels import as_written
from foveate.nn.normalizers import Entmax15, Hardmax, Sampled, Sparsemax
from foveate.nn.recurrent import ChoGRUCell, ElmanCell, GRUCell, LSTMCell, Recurrence
from foveate.nn.ssm import SSRU, SelectiveStateSpace

# A number as it is; or an attribute, with the name of its tensors if it is another: a number, a
# tensor (* before a matrix that may be int8), or a part.
Layout = tuple[float | str | tuple[str, str], ...]
BUCKETS: Layout = ("config.num_buckets", "config.max_distance", ("table.weight", "table"))
PLAIN: Layout = ("inner.out_features", "inner", False, "outer")
GATED: Layout = ("inner.out_features", "inner", True, "gate", "outer")
INPUTS: Layout = ("hidden_size", "*weight_ih", "bias_ih")
STATES: Layout = ("*weight_hh", "bias_hh")
LAYOUTS: dict[type, Layout] = {
    EncoderDecoder: (True, True, "encoder", "decoder", "output"),  # reads a source, and writes
    LanguageModel: (False, True, "decoder", "output"),
    classifier.Classifier: (True, False, "encoder", "pooling", "output.out_features", "output"),
    classifier.Mean: (PoolingKind.POOL_MEAN,),
    classifier.Summary: (PoolingKind.POOL_SUMMARY,),
    classifier.First: (PoolingKind.POOL_FIRST,),
    classifier.Max: (PoolingKind.POOL_MAX,),
    classifier.Attentive: (PoolingKind.POOL_ATTENTION, "query", "attention"),
    nn.Identity: (NormKind.NO_NORM,),
    NoNorm: (NormKind.NO_NORM,),
    LayerNorm: (NormKind.LAYER_NORM, ("norm.weight", "gain"), ("norm.bias", "shift"), "norm.eps"),
    RMSNorm: (NormKind.RMS_NORM, ("norm.weight", "gain"), -1, "config.eps"),
    positions.NoPosition: (PositionKind.NO_POSITION,),
    positions.Learned: (PositionKind.TABLE, "config.max_length", ("table.weight", "table")),
    positions.Sinusoidal: (PositionKind.SINUSOIDAL, "config.base"),
    positions.SinusoidalHalves: (PositionKind.HALVES, "config.base"),
    more_positions.LaterHalves: (PositionKind.LATER_HALVES, "config.base", "config.first"),
    more_positions.Concatenated: (PositionKind.CONCATENATED, "config.base", "config.size", "join"),
    more_positions.Appended: (PositionKind.APPENDED, "config.base", "config.features"),
    positions.Rotary: (PositionKind.ROTARY, "config.base"),
    more_positions.ALiBi: (PositionKind.ALIBI, "slopes"),
    more_positions.T5Bias: (PositionKind.T5, *BUCKETS),
    more_positions.T5CausalBias: (PositionKind.T5_CAUSAL, *BUCKETS),
    scores.ScaledDot: (ScoreKind.SCALED, "scale"),
    scores.Dot: (ScoreKind.SCALED, "scale"),
    scores.General: (ScoreKind.GENERAL, 1.0, "weight"),
    scores.CosineScore: (ScoreKind.COSINE, "config.sharpness"),
    scores.Softmax: (NormalizerKind.SOFTMAX, "config.temperature"),
    Sampled: (NormalizerKind.SOFTMAX, 1.0),
    Hardmax: (NormalizerKind.HARDMAX, 1.0),
    Sparsemax: (NormalizerKind.SPARSEMAX, 1.0),
    Entmax15: (NormalizerKind.ENTMAX15, 1.0),
    linear.ReLU: (Activation.RELU, *PLAIN),
    linear.GELU: (Activation.GELU, *PLAIN),
    linear.GELUTanh: (Activation.GELU_TANH, *PLAIN),
    linear.SiLU: (Activation.SILU, *PLAIN),
    linear.SwiGLU: (Activation.SILU, *GATED),
    linear.GEGLU: (Activation.GELU_TANH, *GATED),
    nn.Linear: ("*weight", "bias"),
    Linear: ("*weight", "bias"),
    SSRU: (("forget", ""), ("value", "")),
    GRUCell: (CellKind.GRU, *INPUTS, *STATES),
    LSTMCell: (CellKind.LSTM, *INPUTS, *STATES),
    recurrent.SummaryBridge: (("summary", ""), ("first", "")),
}
BRIDGES = {
    type(None): BridgeKind.NO_BRIDGE, nn.Linear: BridgeKind.FIRST_STATES,
    recurrent.StatesBridge: BridgeKind.HAND_OVER, recurrent.SummaryBridge: BridgeKind.SUMMARY,
}  # fmt: skip
ATTENDS = {
    None: AttendsWhen.NEVER, "previous": AttendsWhen.BEFORE_STEP, "current": AttendsWhen.AFTER_STEP
}  # fmt: skip
Stack = transformer.TransformerStack | mamba.MambaEncoder | mamba.MambaDecoder
Part = TypeVar("Part", bound=nn.Module)


class CannotPack(UserError):
    """A model with a part that the engine does not support."""


def cannot(part: object) -> CannotPack:
    """Return the error for an unsupported part."""
    return CannotPack(f"the engine lacks {type(part).__name__}; this model runs in PyTorch")


def exact(part: nn.Module, kind: type[Part], *others: type[Part]) -> Part:
    """Return a part of one of these classes. Raises `CannotPack` for another, and a subclass."""
    if type(part) not in (kind, *others):
        raise cannot(part)
    assert isinstance(part, kind)
    return part


class Program:
    """The numbers and tensors of a model. Raises `CannotPack` for a part the engine lacks."""

    def __init__(self, model: nn.Module) -> None:
        self.numbers: list[float] = []
        self.tensors: dict[str, Tensor] = {}  # by name in the model
        self._indices: dict[tuple[int, tuple[int, ...]], int] = {}
        self.maps: set[str] = set()  # names of the tensors that may be int8
        self.attentions: list[str] = []  # in the order of their numbers
        self.equations: list[dict[str, str]] = []  # equations of each attention's stages
        self.bias = ""  # the equation of the position bias of scores
        self.part(model, "")
        for part in model.modules():
            if not as_written(part):
                raise cannot(part)

    def put(self, *numbers: float) -> None:
        """Write numbers as they are."""
        self.numbers += [int(n) if isinstance(n, (bool, int)) else float(n) for n in numbers]

    def tensor(self, tensor: Tensor | None, name: str, is_map: bool = False) -> None:
        """Write the index of a tensor; -1 for None. A shared one is stored only once."""
        if tensor is None:
            return self.put(-1)
        own = tensor.detach()
        key = own.data_ptr(), tuple(own.shape)
        if key not in self._indices:
            self._indices[key] = len(self.tensors)
            self.tensors[f"{len(self.tensors):03}.{name}"] = own.float().contiguous()
        if is_map:
            self.maps.add(list(self.tensors)[self._indices[key]])
        self.put(self._indices[key])

    def part(self, part: nn.Module, name: str) -> None:
        """Write a part, whose class must be a known one, no subclass of it."""
        if type(part) in write.registry:
            return write(part, self, name)
        if type(part) not in LAYOUTS:
            raise cannot(part)
        self.fields(part, name, *LAYOUTS[type(part)])

    def fields(self, part: nn.Module, name: str, *layout: float | str | tuple[str, str]) -> None:
        """Write fields of a part."""
        for field in layout:
            if isinstance(field, float | int):
                self.put(field)
                continue
            path, own = (field, field) if isinstance(field, str) else field
            value: object = attrgetter(path.lstrip("*"))(part)
            below = ".".join(filter(None, (name, own.lstrip("*"))))
            if isinstance(value, nn.Module):
                self.part(value, below)
            elif isinstance(value, float | int):
                self.put(value)
            else:
                assert isinstance(value, Tensor | None)
                self.tensor(value, below, is_map=own.startswith("*"))

    def optional(self, part: nn.Module | None, name: str) -> None:
        """Write whether there is a part, and the part."""
        self.put(part is not None)
        if part is not None:
            self.part(part, name)

    def embedding(
        self,
        stem: Stem,
        size: int,
        name: str,
        heads: int = 1,
        position: positions.Position | None = None,
        norm: nn.Module | None = None,
    ) -> None:
        """Write embeddings with positions for attentions of so many heads, and their norm."""
        token = exact(stem, TokenStem, DenseStem, SegmentStem)
        table = token.embedding.weight
        self.put(len(table), size, table.shape[1])
        self.tensor(table, f"{name}.table", is_map=True)
        self.put(token.scale)
        segment = token.segment.weight[0] if isinstance(token, SegmentStem) else None
        self.tensor(segment, f"{name}.segment")
        self.optional(token.dense if isinstance(token, DenseStem) else None, f"{name}.dense")
        self.put(heads)
        position = position or positions.NoPosition.Config().build(size, heads)
        self.bias = position.equation
        self.part(position, f"{name}.position")
        self.part(norm or nn.Identity(), f"{name}.norm")

    def block(
        self, kind: BlockKind, block: nn.Module, part: nn.Module, name: str, *numbers: float
    ) -> None:
        """Write a residual block around a part, which some numbers precede."""
        own = exact(block, ResidualBlock)
        if own.after is not None:
            raise CannotPack("the engine lacks norms behind a sub-layer; this runs in PyTorch")
        self.put(kind, Order[own.order.upper()])
        self.part(own.norm, f"{name}.norm")
        self.put(*numbers)
        self.part(part, name)


@singledispatch
def write(part: nn.Module, program: Program, name: str) -> None:
    """Write a part that `LAYOUTS` does not list."""
    raise cannot(part)


@write.register
def _batch_norm(norm: BatchNorm, program: Program, name: str) -> None:
    scale = norm.weight / (norm.variance + norm.config.eps).sqrt()  # what it is in inference
    program.put(NormKind.AFFINE)
    program.tensor(scale, f"{name}.gain")
    program.tensor(norm.bias - norm.mean * scale, f"{name}.shift")
    program.put(0.0)


@write.register
def _attention(attention: Attention, program: Program, name: str) -> None:
    if attention.config.head_norm is not None:
        raise CannotPack("the engine lacks head_norm; this model runs in PyTorch")
    program.attentions.append(re.sub(r"\.(\d+)\.", r".layers.\1.", name))  # like the module's
    program.equations.append(attention.equations() | {"bias": program.bias})
    keys = attention.key_size if attention.reads_keys else 0
    program.put(attention.num_heads, attention.key_heads)
    program.put(_query_size(attention), keys, attention.value_size)
    maps = ("query", "key", "value", "output")
    there = [map_ for map_ in maps if not isinstance(getattr(attention, map_), nn.Identity)]
    program.put(*(map_ in there for map_ in maps))
    program.fields(attention, name, *there, "score", "normalizer")


def _query_size(attention: Attention) -> int:
    score = attention.score
    if isinstance(attention.query, nn.Linear):
        return attention.query.out_features // attention.num_heads
    if isinstance(score, scores.Location):
        return score.weight.shape[-1]
    if isinstance(score, scores.General | scores.Additive):
        return score.weight.shape[1]
    return attention.key_size


@write.register
def _additive(score: scores.Additive, program: Program, name: str) -> None:
    maps = ("of_query", "of_key") if score.config.own_matrix else (-1, -1)
    program.fields(score, name, ScoreKind.ADDITIVE, 1.0, "weight", *maps)


@write.register(scores.AffineLocation)
@write.register
def _location(score: scores.Location, program: Program, name: str) -> None:
    kind = ScoreKind.LOCATION_CUT if score.gives_weights else ScoreKind.LOCATION
    bias = "bias" if isinstance(score, scores.AffineLocation) else -1
    program.fields(score, name, kind, 1.0, "config.max_length", "weight", bias)


@write.register
def _state_space(space: SelectiveStateSpace, program: Program, name: str) -> None:
    config, channels = space.config, len(space.log_a)
    program.put(channels, config.state_size, config.window, space.sizes[0])
    program.fields(space, name, "input", "kernel", "kernel_bias", "select", ("step", "select"))
    program.tensor(-space.log_a.exp(), f"{name}.decay")
    program.fields(space, name, "skip", "output")


@write.register
def _elman_cell(cell: ElmanCell, program: Program, name: str) -> None:
    kind = CellKind[f"ELMAN_{cell.config.activation.upper()}"]
    program.fields(cell, name, kind, *INPUTS, *STATES)


@write.register
def _cho_gru_cell(cell: ChoGRUCell, program: Program, name: str) -> None:
    program.fields(cell, name, CellKind.CHO_GRU, *INPUTS)
    gates = 2 * cell.hidden_size
    for part, rows in (("gates", slice(gates)), ("candidate", slice(gates, None))):
        program.tensor(cell.weight_hh[rows].clone(), f"{name}.{part}", is_map=True)
        program.tensor(cell.bias_hh[rows].clone(), f"{name}.{part}_bias")


@write.register
def _encoder_layer(layer: transformer.EncoderLayer, program: Program, name: str) -> None:
    first, *last = layer.blocks
    attention, wide = layer.self_attention, layer.feed_forward
    program.block(BlockKind.ATTENTION, first, attention, f"{name}.self_attention", 0)
    for block in last:
        program.block(BlockKind.FEED_FORWARD, block, wide, f"{name}.feed_forward")


@write.register(mamba.SSRULayer)
@write.register
def _decoder_layer(layer: transformer.DecoderLayer, program: Program, name: str) -> None:
    first, *rest = layer.blocks
    if isinstance(layer, mamba.SSRULayer):
        program.block(BlockKind.SSRU, first, layer.unit, f"{name}.ssru")
    else:
        attention = layer.self_attention
        program.block(BlockKind.ATTENTION, first, attention, f"{name}.self_attention", 0)
    if (cross := layer.cross_attention) is not None:
        second, *rest = rest
        program.block(BlockKind.ATTENTION, second, cross, f"{name}.cross_attention", 1)
    for block in rest:
        program.block(BlockKind.FEED_FORWARD, block, layer.feed_forward, f"{name}.feed_forward")


@write.register
def _mamba_encoder_layer(layer: mamba.MambaEncoderLayer, program: Program, name: str) -> None:
    program.block(BlockKind.STATE_SPACE, layer.block, layer.forwards, f"{name}.state_space")
    program.optional(layer.backwards, f"{name}.backwards")


@write.register
def _mamba_decoder_layer(layer: mamba.MambaDecoderLayer, program: Program, name: str) -> None:
    first, *rest = layer.blocks
    program.block(BlockKind.STATE_SPACE, first, layer.state_space, f"{name}.state_space")
    program.optional(None, name)
    for block in rest:
        assert layer.cross_attention is not None
        cross = layer.cross_attention
        program.block(BlockKind.ATTENTION, block, cross, f"{name}.cross_attention", 1)


@write.register(transformer.TransformerEncoder)
@write.register(transformer.TransformerDecoder)
@write.register(mamba.SSRUDecoder)
@write.register(mamba.MambaEncoder)
@write.register(mamba.MambaDecoder)
def _stack(stack: Stack, program: Program, name: str) -> None:
    if isinstance(stack, transformer.TransformerDecoder) and not stack.config.causal:
        raise cannot(stack)
    if isinstance(stack, Decoder):
        program.put(BridgeKind.NO_BRIDGE)
    if isinstance(stack, transformer.TransformerStack):
        assert isinstance(stack.config, transformer.TransformerConfig)
        places = stack.config.num_heads, stack.position, stack.embedding_norm
        program.embedding(stack.stem, stack.output_size, name, *places)
    else:
        program.embedding(stack.stem, stack.output_size, name)
    program.put(sum(isinstance(module, ResidualBlock) for module in stack.layers.modules()))
    for n, layer in enumerate(stack.layers):
        program.part(layer, f"{name}.{n}")
    program.part(stack.norm, f"{name}.norm")
    program.put(0, 1)  # no recurrence follows


@write.register
def _recurrent_encoder(encoder: recurrent.RecurrentEncoder, program: Program, name: str) -> None:
    program.embedding(encoder.stem, encoder.config.embedding_size, name)
    layers = [list(each.children()) for each in encoder.stack.layers]
    program.put(0, 0, len(layers), len(layers[0]))
    for n, pair in enumerate(layers):
        for run, direction in zip(pair, ("forwards", "backwards"), strict=False):
            program.part(exact(run, Recurrence).cell, f"{name}.{n}.{direction}")


@write.register
def _bag_encoder(encoder: BagEncoder, program: Program, name: str) -> None:
    program.embedding(encoder.stem, encoder.output_size, name)
    program.put(0, 0, 0, 1)


@write.register
def _recurrent_decoder(decoder: recurrent.RecurrentDecoder, program: Program, name: str) -> None:
    config, bridge = decoder.config, decoder._modules.get("bridge")
    if type(bridge) not in BRIDGES:
        raise cannot(bridge)
    program.put(BRIDGES[type(bridge)])
    if isinstance(bridge, recurrent.SummaryBridge):
        program.put(bridge.context_size)
    program.embedding(decoder.stem, config.embedding_size, name)
    program.put(0, 0, len(decoder.cells), 1)
    for n, cell in enumerate(decoder.cells):
        program.part(cell, f"{name}.{n}.cell")
    when = None if config.attention is None else config.attention.query
    program.put(ATTENDS[when], config.readout == "mixed")
    if when is not None:
        program.fields(decoder, name, "cross_attention.output_size", "cross_attention", "feed")
    if config.readout == "mixed":
        program.part(decoder.readout, f"{name}.readout")
    if bridge is not None:
        program.part(bridge, f"{name}.bridge")


@write.register
def _states_bridge(bridge: recurrent.StatesBridge, program: Program, name: str) -> None:
    for to_start in bridge.maps:
        program.optional(to_start if isinstance(to_start, nn.Linear) else None, name)


def compile_model(model: nn.Module, int8: bool = False) -> CompiledModel:
    """A model for the engine in C; ``int8`` rounds its matrices. Raises `UserError`."""
    program = Program(model)
    tensors = {name: tensor.numpy() for name, tensor in program.tensors.items()}
    if not all(np.isfinite(array).all() for array in tensors.values()):
        raise UserError("the model holds numbers that are not finite")
    return CompiledModel(program.numbers, tensors, frozenset(program.maps if int8 else ()))
