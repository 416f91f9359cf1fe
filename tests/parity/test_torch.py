"""Our cells and our attention against PyTorch's own, with the same weights."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.models.encoder_decoder import EncoderDecoder
from foveate.models.recurrent import RecurrentDecoder, RecurrentEncoder, StatesBridge, SummaryBridge
from foveate.nn.attention import Attention
from foveate.nn.context import Mask
from foveate.nn.recurrent import Cell, ElmanCell, GRUCell, LSTMCell, RecurrentStack
from foveate.nn.spec import Tokens
from laws.conftest import weights_of
from tolerances import close

CELLS: dict[str, tuple[Cell.Config, Callable[..., nn.RNNBase]]] = {
    "rnn": (ElmanCell.Config(), nn.RNN),
    "rnn, relu": (ElmanCell.Config(activation="relu"), partial(nn.RNN, nonlinearity="relu")),
    "lstm": (LSTMCell.Config(), nn.LSTM),
    "gru": (GRUCell.Config(), nn.GRU),
}
INPUT, HIDDEN, LENGTHS = 5, 8, (7, 4, 1)
KEYS = torch.arange(7)[None] < torch.tensor(LENGTHS)[:, None]


def pair(config: Cell.Config, module: Any, layers: int, directions: int) -> tuple[Any, Any]:
    """Our stack and PyTorch's, with the same weights."""
    ours = RecurrentStack(config, INPUT, HIDDEN, layers, directions)
    theirs = module(INPUT, HIDDEN, layers, batch_first=True, bidirectional=directions == 2)
    copy_into(theirs, ours)
    return ours, theirs


def copy_cells(writer: nn.RNNBase, cells: Iterable[nn.Module]) -> None:
    """Give PyTorch's module the weights of a decoder."""
    with torch.no_grad():
        for number, cell in enumerate(cells):
            for name, weight in cell.named_parameters():
                getattr(writer, f"{name}_l{number}").copy_(weight)


def copy_into(theirs: nn.RNNBase, ours: RecurrentStack) -> None:
    """Give PyTorch's module our weights; the names differ only in layer and direction."""
    with torch.no_grad():
        for number, layer in enumerate(ours.layers):
            for direction, recurrence in enumerate(layer):  # type: ignore[arg-type]
                for name, weight in recurrence.cell.named_parameters():
                    suffix = f"_l{number}" + "_reverse" * direction
                    getattr(theirs, name + suffix).copy_(weight)


def _states(last: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    return last if isinstance(last, tuple) else (last,)


each_cell = pytest.mark.parametrize(("config", "module"), CELLS.values(), ids=CELLS)


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("layers", [1, 3])
@each_cell
def test_recurrent_stacks_of_whole_and_of_padded_sequences(
    config, module, layers, directions
) -> None:
    ours, theirs = pair(config, module, layers, directions)
    x = torch.randn(3, 7, INPUT, requires_grad=True)
    outputs, final = ours(x)
    expected, last = theirs(x)
    close(outputs, expected)
    for ours_part, theirs_part in zip(zip(*final, strict=True), _states(last), strict=True):
        for layer, hidden in enumerate(ours_part):
            both = theirs_part[layer * directions : (layer + 1) * directions]
            close(hidden, torch.cat(list(both), dim=-1))
    (gradient,) = torch.autograd.grad(outputs.square().sum(), x)
    close(gradient, torch.autograd.grad(expected.square().sum(), x)[0])
    outputs, final = ours(x, KEYS)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=True)
    expected, last = theirs(packed)
    unpacked, _ = nn.utils.rnn.pad_packed_sequence(expected, batch_first=True)
    close(outputs[KEYS], unpacked[KEYS])
    top = torch.cat(list(_states(last)[0][-directions:]), dim=-1)
    close(final[-1][0], top)


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("layers", [1, 3])
@each_cell
def test_a_decoder_handed_all_states(config, module, layers, directions) -> None:
    sizes = {"cell": config, "num_layers": layers, "embedding_size": INPUT, "dropout": 0.0}
    own, both = HIDDEN // directions, directions == 2
    encoder = RecurrentEncoder.Config(**sizes, hidden_size=own, bidirectional=both)
    how = sizes | {"hidden_size": HIDDEN, "readout": "state", "bridge": StatesBridge.Config()}
    decoder = RecurrentDecoder.Config(**how)
    config = EncoderDecoder.Config(encoder=encoder, decoder=decoder, tie="none")
    model = config.build(Tokens(20), Tokens(20))
    reader = module(INPUT, own, layers, batch_first=True, bidirectional=both)
    copy_into(reader, model.encoder.stack)
    writer = module(INPUT, HIDDEN, layers, batch_first=True)
    copy_cells(writer, model.decoder.cells)
    source, target = torch.randint(4, 20, (2, 3, 7))
    last = [
        part.view(layers, directions, 3, -1).transpose(1, 2).flatten(2)
        for part in _states(reader(model.encoder.stem(source))[1])
    ]
    expected, _ = writer(model.decoder.stem(target), tuple(last) if len(last) > 1 else last[0])
    outputs = model.decode(target, model.encode(source))
    close(outputs, expected)
    weight = model.encoder.embedding.weight
    (gradient,) = torch.autograd.grad(outputs.square().sum(), weight, retain_graph=True)
    close(gradient, torch.autograd.grad(expected.square().sum(), weight)[0])


def test_a_decoder_that_reads_one_vector_at_every_step() -> None:
    sizes = {"embedding_size": INPUT, "hidden_size": HIDDEN, "dropout": 0.0}
    encoder = RecurrentEncoder.Config(**sizes)
    decoder = RecurrentDecoder.Config(**sizes, readout="state", bridge=SummaryBridge.Config())
    config = EncoderDecoder.Config(encoder=encoder, decoder=decoder, tie="none")
    model = config.build(Tokens(20), Tokens(20))
    writer = nn.GRU(INPUT + HIDDEN, HIDDEN, batch_first=True)
    copy_cells(writer, model.decoder.cells)
    source, target = torch.randint(4, 20, (2, 3, 7))
    memory, own = model.encode(source), model.decoder.bridge
    context = torch.tanh(own.summary(memory.values[:, -1]))
    read = torch.cat((model.decoder.stem(target), context[:, None].expand(-1, 7, -1)), dim=-1)
    expected, _ = writer(read, torch.tanh(own.first(context))[None])
    close(model.decode(target, memory), expected)


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_multi_head_attention(heads: int, causal: bool, padded: bool) -> None:
    size = 16
    attention = Attention.Config(num_heads=heads).build(size)
    for part in (attention.query, attention.key, attention.value, attention.output):
        nn.init.normal_(part.bias)
    query = torch.randn(3, 7, size)
    memory = query if causal else torch.randn(3, 7, size)
    projections = (attention.query, attention.key, attention.value)
    expected, weights = F.multi_head_attention_forward(
        *(x.transpose(0, 1) for x in (query, memory, memory)),
        size,
        heads,
        torch.cat([part.weight for part in projections]),
        torch.cat([part.bias for part in projections]),
        *(None, None, False, 0.0),
        attention.output.weight,
        attention.output.bias,
        key_padding_mask=~KEYS if padded else None,
        attn_mask=torch.ones(7, 7).triu(1).bool() if causal else None,
        average_attn_weights=False,
    )
    mask = Mask(KEYS if padded else None, causal=causal)
    close(attention(query, memory, mask), expected.transpose(0, 1))
    close(weights_of(attention, query, memory, mask), weights)
