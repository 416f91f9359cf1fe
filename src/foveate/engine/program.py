"""The program of a packed file: a PyTorch model as numbers and tensors that the engine reads.

Each method writes what the function ``read_…`` of the same name in ``model.h`` reads.
"""

from __future__ import annotations

import re
from typing import TypeVar, cast

import numpy as np
from torch import Tensor, nn

from foveate.engine.compiled import CompiledModel
from foveate.errors import UserError
from foveate.models.classic import BagEncoder
from foveate.models.classifier import Attentive, Classifier, First, Max, Mean, Summary
from foveate.models.encoder_decoder import Decoder, Encoder, EncoderDecoder
from foveate.models.language_model import LanguageModel
from foveate.models.mamba import (
    MambaDecoder,
    MambaDecoderLayer,
    MambaEncoder,
    MambaEncoderLayer,
    SSRUDecoder,
    SSRULayer,
)
from foveate.models.recurrent import (
    RecurrentDecoder,
    RecurrentEncoder,
    StatesBridge,
    SummaryBridge,
)
from foveate.models.transformer import (
    DecoderLayer,
    EncoderLayer,
    TransformerConfig,
    TransformerDecoder,
    TransformerEncoder,
    TransformerStack,
)
from foveate.nn import feed_forward, positions, scores
from foveate.nn.attention import Attention, BaseAttention
from foveate.nn.context import as_written
from foveate.nn.embedding import DenseStem, SegmentStem, Stem, TokenStem
from foveate.nn.linear import BatchNorm, LayerNorm, Linear, NoNorm, ResidualBlock, RMSNorm
from foveate.nn.more_positions import Appended, Concatenated, T5Bias, T5CausalBias
from foveate.nn.normalizers import Entmax15, Hardmax, Sampled, Sparsemax
from foveate.nn.recurrent import Cell, ChoGRUCell, ElmanCell, GRUCell, LSTMCell, Recurrence
from foveate.nn.ssm import SelectiveStateSpace

SCORES = (scores.ScaledDot, scores.General, scores.Additive, scores.CosineScore)
NORMALIZERS = (scores.Softmax, Hardmax, Sparsemax, Entmax15)
POSITIONS = (
    positions.NoPosition, positions.Learned, positions.Sinusoidal, positions.SinusoidalHalves,
    Concatenated, Appended, positions.Rotary, positions.ALiBi, T5Bias,
    T5CausalBias,
)  # fmt: skip
POOLINGS = (Mean, Summary, First, Max, Attentive)
ORDERS = ("pre", "post", "plain")
ACTIVATIONS = {
    feed_forward.ReLU: 1, feed_forward.GELU: 2, feed_forward.GELUTanh: 3, feed_forward.SiLU: 4,
    feed_forward.SwiGLU: 4, feed_forward.GEGLU: 3,
}  # fmt: skip
CELLS = {"tanh": 0, "relu": 1, "sigmoid": 2}
ATTENTION, SSRU, FEED_FORWARD, STATE_SPACE = range(4)


Part = TypeVar("Part", bound=nn.Module)


def parts(modules: nn.Module, kind: type[Part], *others: type[Part]) -> list[Part]:
    """Return the modules of a list, all of one class. Raises `CannotPack` for a subclass."""
    for module in modules.children():
        if type(module) not in (kind, *others):
            raise cannot(module)
    return cast("list[Part]", list(modules.children()))


class CannotPack(UserError):
    """A model with a part that the engine does not support."""


def cannot(part: object) -> CannotPack:
    """Return the error for an unsupported part."""
    return CannotPack(f"the engine lacks {type(part).__name__}; this model runs in PyTorch")


class Program:
    """The numbers and tensors of a model. Raises `CannotPack` for a part the engine lacks."""

    def __init__(self, model: nn.Module) -> None:
        self.numbers: list[float] = []
        self.tensors: dict[str, Tensor] = {}  # by name in the model
        self._indices: dict[tuple[int, tuple[int, ...]], int] = {}
        self.maps: set[str] = set()  # names of the tensors that may be int8
        self.attentions: list[str] = []  # in the order of their numbers
        self.equations: list[dict[str, str]] = []  # equations of each attention's stages
        self._bias = ""  # the equation of the position bias of scores
        self._over_memory = False  # whether the attention being written reads the memory
        self._model(model)
        for part in model.modules():
            if not as_written(part):
                raise cannot(part)

    def _write(self, *numbers: float) -> None:
        self.numbers += [int(n) if isinstance(n, (bool, int)) else float(n) for n in numbers]

    def _tensor(self, tensor: Tensor | None, name: str, is_map: bool = False) -> None:
        """Write the index of a tensor; -1 for None. A shared one is stored only once."""
        if tensor is None:
            return self._write(-1)
        own = tensor.detach()
        key = own.data_ptr(), tuple(own.shape)
        if key not in self._indices:
            self._indices[key] = len(self.tensors)
            self.tensors[f"{len(self.tensors):03}.{name}"] = own.float().contiguous()
        if is_map:
            self.maps.add(list(self.tensors)[self._indices[key]])
        self._write(self._indices[key])

    def _linear(self, *maps: nn.Module, name: str) -> None:
        for linear in maps:
            if type(linear) not in (nn.Linear, Linear):
                raise cannot(linear)
            assert isinstance(linear, nn.Linear)
            self._tensor(linear.weight, f"{name}.weight", is_map=True)
            self._tensor(linear.bias, f"{name}.bias")

    def _norm(self, norm: nn.Module | None, name: str) -> None:
        if norm is None or type(norm) in (nn.Identity, NoNorm):
            return self._write(0)
        if type(norm) is LayerNorm:
            self._write(1)
            self._tensor(norm.norm.weight, f"{name}.gain")
            self._tensor(norm.norm.bias, f"{name}.shift")
            return self._write(norm.norm.eps)
        if type(norm) is RMSNorm:
            self._write(2)
            self._tensor(norm.norm.weight, f"{name}.gain")
            return self._write(-1, norm.config.eps)
        if type(norm) is BatchNorm:  # in inference, a scale and a shift
            scale = norm.weight / (norm.variance + norm.config.eps).sqrt()
            self._write(3)
            self._tensor(scale, f"{name}.gain")
            self._tensor(norm.bias - norm.mean * scale, f"{name}.shift")
            return self._write(0.0)
        raise cannot(norm)

    def _position(self, position: positions.Position, name: str) -> None:
        if type(position) not in POSITIONS:
            raise cannot(position)
        self._bias = position.equation
        self._write(POSITIONS.index(type(position)))
        if isinstance(position, (positions.Sinusoidal, positions.Rotary)):
            self._write(position.config.base)
        if isinstance(position, Concatenated):
            self._write(position.config.size)
            self._linear(position.join, name=f"{name}.join")
        if isinstance(position, Appended):
            self._write(position.config.features)
        if isinstance(position, positions.Learned):
            self._write(position.config.max_length)
            self._tensor(position.table.weight, f"{name}.table")
        if isinstance(position, positions.ALiBi):
            self._tensor(position.slopes, f"{name}.slopes")
        if isinstance(position, T5Bias):
            self._write(position.config.num_buckets, position.config.max_distance)
            self._tensor(position.table.weight, f"{name}.table")

    def _embedding(
        self,
        stem: Stem,
        size: int,
        heads: int,
        position: positions.Position,
        norm: nn.Module | None,
        name: str,
    ) -> None:
        if type(stem) not in (TokenStem, DenseStem, SegmentStem):
            raise cannot(stem)
        assert isinstance(stem, TokenStem)
        token = stem
        table = token.embedding.weight
        self._write(len(table), size, table.shape[1])
        self._tensor(table, f"{name}.table", is_map=True)
        self._write(token.scale)
        self._tensor(
            stem.segment.weight[0] if isinstance(stem, SegmentStem) else None, f"{name}.segment"
        )
        self._write(isinstance(stem, DenseStem))
        if isinstance(stem, DenseStem):
            self._linear(stem.dense, name=f"{name}.dense")
        self._write(heads)
        self._position(position, f"{name}.position")
        self._norm(norm, f"{name}.norm")

    def _attention(self, attention: BaseAttention, name: str) -> None:
        if type(attention) is not Attention:
            raise cannot(attention)
        self.attentions.append(re.sub(r"\.(\d+)\.", r".layers.\1.", name))  # like the module's
        self.equations.append(attention.equations() | {"bias": self._bias})
        score, normalizer = attention.score, attention.normalizer
        reads = attention.reads_keys
        self._write(attention.num_heads, attention.key_heads)
        every = attention.query, attention.key, attention.value, attention.output
        projected = [not isinstance(part, nn.Identity) for part in every]
        query_size = self._query_size(attention)
        self._write(query_size, attention.key_size if reads else 0, attention.value_size)
        self._write(*projected)
        over_memory = self._over_memory
        parts = [attention.query, attention.key, attention.value]
        if over_memory and projected[0]:
            self._linear(attention.query, name=f"{name}.query")
        for number, part in enumerate(parts):
            if projected[number] and not (over_memory and number == 0):
                self._linear(part, name=f"{name}.{('query', 'key', 'value')[number]}")
        if projected[3]:
            self._linear(attention.output, name=f"{name}.output")
        self._score(score, f"{name}.score")
        kind = scores.Softmax if type(normalizer) is Sampled else type(normalizer)
        if kind not in NORMALIZERS:
            raise cannot(normalizer)
        self._write(
            NORMALIZERS.index(kind),
            normalizer.config.temperature if isinstance(normalizer, scores.Softmax) else 1.0,
        )

    @staticmethod
    def _query_size(attention: Attention) -> int:
        if isinstance(attention.query, nn.Linear):
            return attention.query.out_features // attention.num_heads
        score = attention.score
        if isinstance(score, (scores.Location,)):
            return score.weight.shape[-1]
        if isinstance(score, scores.General):
            return score.weight.shape[1]
        if isinstance(score, scores.Additive):
            return score.weight.shape[1]
        return attention.key_size

    def _score(self, score: scores.Score, name: str) -> None:
        scale = 1.0
        if type(score) in (scores.ScaledDot, scores.Dot):
            kind, scale = 0, score.scale or 1.0
        elif type(score) is scores.General:
            kind = 1
        elif type(score) is scores.Additive:
            kind = 2
        elif type(score) is scores.CosineScore:
            kind, scale = 3, score.config.sharpness
        elif type(score) in (scores.Location, scores.AffineLocation):
            kind = 5 if score.gives_weights else 4
        else:
            raise cannot(score)
        self._write(kind, scale)
        if isinstance(score, scores.General):
            self._tensor(score.weight, f"{name}.weight")
        if isinstance(score, scores.Additive):
            self._tensor(score.weight, f"{name}.weight")
            own = score.config.own_matrix
            self._tensor(score.of_query if own else None, f"{name}.of_query")
            self._tensor(score.of_key if own else None, f"{name}.of_key")
        if isinstance(score, scores.Location):
            self._write(score.config.max_length)
            self._tensor(score.weight, f"{name}.weight")
            bias = score.bias if isinstance(score, scores.AffineLocation) else None
            self._tensor(bias, f"{name}.bias")

    def _memory_attention(self, attention: BaseAttention, name: str) -> None:
        self._over_memory = True
        self._attention(attention, name)
        self._over_memory = False

    def _block(self, kind: int, block: ResidualBlock, name: str) -> None:
        self._write(kind, ORDERS.index(block.order))
        self._norm(block.norm, f"{name}.norm")

    def _feed_forward(
        self, layer: feed_forward.FeedForward, block: ResidualBlock, name: str
    ) -> None:
        if type(layer) not in ACTIVATIONS:
            raise cannot(layer)
        self._block(FEED_FORWARD, block, name)
        self._write(ACTIVATIONS[type(layer)], layer.inner.out_features)
        self._linear(layer.inner, name=f"{name}.inner")
        self._write(isinstance(layer, feed_forward.GatedFeedForward))
        if isinstance(layer, feed_forward.GatedFeedForward):
            self._linear(layer.gate, name=f"{name}.gate")
        self._linear(layer.outer, name=f"{name}.outer")

    def _state_space(self, space: SelectiveStateSpace, name: str) -> None:
        config, channels = space.config, len(space.log_a)
        self._write(channels, config.state_size, config.window, space.sizes[0])
        self._linear(space.input, name=f"{name}.input")
        self._tensor(space.kernel, f"{name}.kernel")
        self._tensor(space.kernel_bias, f"{name}.kernel_bias")
        self._linear(space.select, space.step, name=f"{name}.select")
        self._tensor(-space.log_a.exp(), f"{name}.decay")
        self._tensor(space.skip, f"{name}.skip")
        self._linear(space.output, name=f"{name}.output")

    def _cell(self, cell: Cell, name: str) -> None:
        size, back = cell.hidden_size, cell.weight_hh
        if type(cell) is ElmanCell:
            kind = CELLS[cell.config.activation]
        else:
            kinds = {GRUCell: 3, ChoGRUCell: 4, LSTMCell: 5}
            if type(cell) not in kinds:
                raise cannot(cell)
            kind = kinds[type(cell)]
        self._write(kind, size)
        self._tensor(cell.weight_ih, f"{name}.weight_ih", is_map=True)
        self._tensor(cell.bias_ih, f"{name}.bias_ih")
        if type(cell) is not ChoGRUCell:
            self._tensor(back, f"{name}.weight_hh", is_map=True)
            return self._tensor(cell.bias_hh, f"{name}.bias_hh")
        for part, rows in (("gates", slice(2 * size)), ("candidate", slice(2 * size, None))):
            self._tensor(back[rows].clone(), f"{name}.{part}", is_map=True)
            self._tensor(cell.bias_hh[rows].clone(), f"{name}.{part}_bias")

    def _token_embedding(self, stem: Stem, size: int, name: str) -> None:
        """Write embeddings without positions."""
        none = positions.NoPosition.Config().build(size, 1)
        self._embedding(stem, size, 1, none, None, name)

    def _end(self, norm: nn.Module, name: str) -> None:
        """Write the norm after a stack of blocks, which no recurrence follows."""
        self._norm(norm, f"{name}.norm")
        self._write(0, 1)

    def _self_attention(self, attention: BaseAttention, block: ResidualBlock, name: str) -> None:
        self._block(ATTENTION, block, name)
        self._write(0)
        self._attention(attention, name)

    def _cross_attention(self, attention: BaseAttention, block: ResidualBlock, name: str) -> None:
        self._block(ATTENTION, block, name)
        self._write(1)
        self._memory_attention(attention, name)

    def _encoder(self, encoder: Encoder) -> None:
        name = "encoder"
        if type(encoder) is TransformerEncoder:
            self._stem(encoder, name)
            for n, layer in enumerate(parts(encoder.layers, EncoderLayer)):
                first, *last = parts(layer.blocks, ResidualBlock)
                self._self_attention(layer.self_attention, first, f"{name}.{n}.self_attention")
                for block in last:
                    self._feed_forward(layer.feed_forward, block, f"{name}.{n}.feed_forward")
            self._end(encoder.norm, name)
        elif type(encoder) is MambaEncoder:
            self._token_embedding(encoder.stem, encoder.output_size, name)
            layers = parts(encoder.layers, MambaEncoderLayer)
            self._write(len(layers))
            for n, each in enumerate(layers):
                self._block(STATE_SPACE, each.block, f"{name}.{n}.state_space")
                self._state_space(each.forwards, f"{name}.{n}.state_space")
                self._write(each.backwards is not None)
                if each.backwards is not None:
                    self._state_space(each.backwards, f"{name}.{n}.backwards")
            self._end(encoder.norm, name)
        elif type(encoder) is RecurrentEncoder:
            self._token_embedding(encoder.stem, encoder.config.embedding_size, name)
            directions = [parts(each, Recurrence) for each in encoder.stack.layers]
            self._write(0, 0, len(directions), len(directions[0]))
            for n, pair in enumerate(directions):
                for run, direction in zip(pair, ("forwards", "backwards"), strict=False):
                    self._cell(run.cell, f"{name}.{n}.{direction}")
        elif type(encoder) is BagEncoder:
            self._token_embedding(encoder.stem, encoder.output_size, name)
            self._write(0, 0, 0, 1)
        else:
            raise cannot(encoder)

    def _stem(self, stack: TransformerStack, name: str) -> None:
        """Write embeddings and positions of a Transformer, and how many blocks its layers have."""
        config = stack.config
        assert isinstance(config, TransformerConfig)
        size, position = stack.output_size, stack.position
        self._embedding(stack.stem, size, config.num_heads, position, stack.embedding_norm, name)
        self._write(sum(isinstance(module, ResidualBlock) for module in stack.layers.modules()))

    def _decoder(self, decoder: Decoder) -> None:
        if type(decoder) in (TransformerDecoder, SSRUDecoder):
            assert isinstance(decoder, TransformerDecoder)
            self._transformer_decoder(decoder, "decoder")
        elif type(decoder) is MambaDecoder:
            self._mamba_decoder(decoder, "decoder")
        elif type(decoder) is RecurrentDecoder:
            self._recurrent_decoder(decoder, "decoder")
        else:
            raise cannot(decoder)

    def _transformer_decoder(self, decoder: TransformerDecoder, name: str) -> None:
        if not decoder.config.causal:
            raise cannot(decoder)
        self._write(0)
        self._stem(decoder, name)
        for n, layer in enumerate(parts(decoder.layers, DecoderLayer, SSRULayer)):
            first, *rest = parts(layer.blocks, ResidualBlock)
            if isinstance(layer, SSRULayer):
                self._block(SSRU, first, f"{name}.{n}.ssru")
                self._linear(layer.unit.forget, layer.unit.value, name=f"{name}.{n}.ssru")
            else:
                self._self_attention(layer.self_attention, first, f"{name}.{n}.self_attention")
            if layer.cross_attention is not None:
                second, *rest = rest
                self._cross_attention(layer.cross_attention, second, f"{name}.{n}.cross_attention")
            for block in rest:
                self._feed_forward(layer.feed_forward, block, f"{name}.{n}.feed_forward")
        self._end(decoder.norm, name)

    def _mamba_decoder(self, decoder: MambaDecoder, name: str) -> None:
        self._write(0)
        self._token_embedding(decoder.stem, decoder.output_size, name)
        layers = parts(decoder.layers, MambaDecoderLayer)
        self._write(sum(len(layer.blocks) for layer in layers))
        for n, layer in enumerate(layers):
            first, *rest = parts(layer.blocks, ResidualBlock)
            self._block(STATE_SPACE, first, f"{name}.{n}.state_space")
            self._state_space(layer.state_space, f"{name}.{n}.state_space")
            self._write(0)
            for block in rest:
                assert layer.cross_attention is not None
                self._cross_attention(layer.cross_attention, block, f"{name}.{n}.cross_attention")
        self._end(decoder.norm, name)

    def _recurrent_decoder(self, decoder: RecurrentDecoder, name: str) -> None:
        config, bridge = decoder.config, decoder._modules.get("bridge")
        kinds = {type(None): 0, nn.Linear: 1, StatesBridge: 2, SummaryBridge: 3}
        if type(bridge) not in kinds:
            raise cannot(bridge)
        self._write(kinds[type(bridge)])
        if isinstance(bridge, SummaryBridge):
            self._write(bridge.context_size)
        self._token_embedding(decoder.stem, config.embedding_size, name)
        self._write(0, 0, len(decoder.cells), 1)
        for n, cell in enumerate(parts(decoder.cells, ElmanCell, GRUCell, ChoGRUCell, LSTMCell)):
            self._cell(cell, f"{name}.{n}.cell")
        attention = config.attention
        when = None if attention is None else attention.query
        self._write({None: 0, "previous": 1, "current": 2}[when])
        self._write(config.readout == "mixed")
        if attention is not None:
            self._write(decoder.cross_attention.output_size)
            self._memory_attention(decoder.cross_attention, f"{name}.cross_attention")
            self._linear(decoder.feed, name=f"{name}.feed")
        if config.readout == "mixed":
            self._linear(decoder.readout, name=f"{name}.readout")
        if isinstance(bridge, nn.Linear):
            self._linear(bridge, name=f"{name}.bridge")
        elif isinstance(bridge, StatesBridge):
            for linear in bridge.maps:
                self._write(isinstance(linear, nn.Linear))
                if isinstance(linear, nn.Linear):
                    self._linear(linear, name=f"{name}.bridge")
        elif isinstance(bridge, SummaryBridge):
            self._linear(bridge.summary, bridge.first, name=f"{name}.bridge")

    def _model(self, model: nn.Module) -> None:
        if type(model) not in (EncoderDecoder, LanguageModel, Classifier):
            raise cannot(model)
        assert isinstance(model, EncoderDecoder | LanguageModel | Classifier)
        reads, writes = type(model) is not LanguageModel, type(model) is not Classifier
        self._write(reads, writes)
        if not isinstance(model, LanguageModel):
            self._encoder(model.encoder)
        if not isinstance(model, Classifier):
            self._decoder(model.decoder)
        else:
            pooling = model.pooling
            if type(pooling) not in POOLINGS:
                raise cannot(pooling)
            self._write(POOLINGS.index(type(pooling)))
            if isinstance(pooling, Attentive):
                self._tensor(pooling.query, "pooling.query")
                self._memory_attention(pooling.attention, "pooling.attention")
            self._write(len(model.output.weight))
        self._linear(model.output, name="output")


def compile_model(model: nn.Module, int8: bool = False) -> CompiledModel:
    """A model for the engine in C; ``int8`` rounds its matrices. Raises `UserError`."""
    program = Program(model)
    tensors = {name: tensor.numpy() for name, tensor in program.tensors.items()}
    if not all(np.isfinite(array).all() for array in tensors.values()):
        raise UserError("the model holds numbers that are not finite")
    return CompiledModel(program.numbers, tensors, frozenset(program.maps if int8 else ()))
