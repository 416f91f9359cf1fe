"""Export a translator as two ONNX graphs: the encoder, and one decoder step with its state.

    encoder.onnx    ids (B, S), keys (B, S) -> memory (B, S, D)
    step.onnx       ids (B,), at (), memory, keys, state.0, state.1, … -> logits (B, V), new.0, …

The decoder's state (keys and values of self-attention, layer by layer) is passed in and out as
tensors (B, H, T, K), one row for each hypothesis: graphs.json has H and K of each. ``at`` is the
number of tokens read before; at 0 the state has no positions yet, T = 0.

The searches of `foveate.decode` run on the graphs with onnxruntime as on any other model.
"""

import json
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from foveate.data.batches import source_batch
from foveate.data.tokenizer import BOS, EOS
from foveate.decode.constraints import DecodingBatch
from foveate.decode.search import Search
from foveate.exchange.base import (
    Checked,
    CheckSample,
    ExchangeError,
    Export,
    Ids,
    compare,
    searches,
    translator,
)
from foveate.exchange.tokenizers import write_example
from foveate.files import replace_file
from foveate.models.encoder_decoder import EncoderDecoder, Memory
from foveate.models.transformer import TransformerDecoder, TransformerEncoder
from foveate.nn.attention import Attention, BaseAttention
from foveate.nn.context import DecoderState, Tensors
from foveate.nn.more_positions import Appended, Concatenated
from foveate.nn.positions import Position
from foveate.nn.scores import Score
from foveate.tasks.translation import Translation

ENCODER, STEP, GRAPHS = "encoder.onnx", "step.onnx", "graphs.json"
OPSET = 17


EXAMPLE = """\
# In this folder: python example.py "A black dog runs."
import json, sys, numpy, onnxruntime, tokenizers
source, target = map(tokenizers.Tokenizer.from_file, ("{source}", "{target}"))
encoder, step = (onnxruntime.InferenceSession(name + ".onnx") for name in ("encoder", "step"))
graphs, used = json.load(open("graphs.json")), {{node.name for node in step.get_inputs()}}
ids = numpy.array([source.encode(sys.argv[1]).ids])
keys, written = numpy.ones(ids.shape, bool), [graphs["start"]]
memory = encoder.run(None, {{"ids": ids, "keys": keys}})[0]
state = [numpy.zeros((1, heads, 0, size), numpy.float32) for heads, size in graphs["state"]]
while len(written) < 2 * ids.size + 20 and written[-1] != graphs["end"]:
    inputs = [numpy.array(written[-1:]), numpy.array(len(written) - 1), memory, keys, *state]
    named = dict(zip(graphs["step"]["inputs"], inputs))
    logits, *state = step.run(None, {{name: named[name] for name in used}})
    written.append(int(logits[0].argmax()))
print(target.decode([i for i in written[1:] if i != graphs["end"]]))
"""


class Onnx(Export):
    """A folder of two graphs, the tokenizers, a description and an example."""

    to = "onnx"
    packages = ("onnx", "onnxruntime")

    def rewritten(self) -> Iterable[object]:
        kinds = TransformerEncoder | TransformerDecoder | BaseAttention
        yield from self.texts()  # graphs record what a model computes, and the state of these parts
        yield from (part for part in self.run.model.modules() if isinstance(part, kinds))

    def refuse(self) -> None:
        if not isinstance(self.run.task, Translation):
            raise ExchangeError(
                f"onnx takes translations here, but this run has the task "
                f"{self.run.config.task.kind}"
            )
        model: EncoderDecoder = self.run.model
        for side, kind in (
            (model.encoder, TransformerEncoder),
            (model.decoder, TransformerDecoder),
        ):
            if type(side) is not kind:
                raise ExchangeError(
                    f"a graph has no loop over the words of a sentence, which {side.config.kind} "
                    "needs: onnx takes transformer on both sides"
                )
            if isinstance(side.position, Concatenated | Appended):
                raise ExchangeError("onnx does not support joined positions; use sinusoidal")
            for name, part in side.named_modules():
                if isinstance(part, Score) and part.gives_weights:
                    raise ExchangeError(f'onnx takes no {name}.softmax_over = "max_length"')
                if isinstance(part, BaseAttention) and type(part) is not Attention:
                    raise ExchangeError(
                        f"{name} has the kind {part.config.kind}, whose shape depends on the "
                        "length: onnx takes full attention"
                    )

    def write(self, place: Path, pointer: dict[str, object]) -> None:
        place.mkdir()
        model: EncoderDecoder = self.run.model
        names = _write_graphs(model, place)
        for side, tokenizer in translator(self.run).tokenizers_by_name().items():
            tokenizer.save(place / f"{side}.tokenizer.json")
        write_example(self.run, place, pointer, EXAMPLE)
        replace_file(place / GRAPHS, json.dumps(names, indent=2) + "\n")

    def check(self, place: Path, sample: CheckSample) -> Checked:
        graphs = Graphs(place)

        def theirs(sources: list[Ids], search: Search) -> list[Ids]:
            ids, _ = source_batch(sources)
            lengths = [len(sources[0])] * len(sources)
            batch = DecodingBatch(range(len(ids)), GraphSteps(graphs, ids), lengths)
            return [best.ids for best, *_ in search(batch, BOS, EOS)]

        return compare(self.run, sample, searches(self.run), theirs, exact=True)


class Growing(DecoderState):
    """A state whose tensors are passed in and out, without preallocated memory."""

    def grow(self, module: nn.Module, *parts: Tensor) -> Tensors:
        old = self._grown.get(module)
        grown = parts
        if old is not None:
            grown = tuple(torch.cat(both, dim=2) for both in zip(old[0], parts, strict=True))
        self._grown[module] = (grown, 0)
        return grown


class At(Position):
    """A position encoding whose positions are computed in the graph from a tensor."""

    def __init__(self, position: Position, start: Tensor | int = 0) -> None:
        nn.Module.__init__(self)
        self.config, self.position, self.start = position.config, position, start
        self.rotates, self.biases = position.rotates, position.biases
        self.last = torch.zeros(1, dtype=torch.long)

    def embed(self, x: Tensor, at: Tensor) -> Tensor:
        self.last = self.start + torch.arange(x.shape[1])
        return self.position.embed(x, self.last)

    def rotate(self, x: Tensor, at: Tensor) -> Tensor:
        return self.position.rotate(x, self.last)

    def bias(self, query_at: Tensor, key_at: Tensor) -> Tensor | None:
        end: Any = self.last[-1] + 1  # a number of the graph
        return self.position.bias(self.last, torch.arange(end))


@contextmanager
def _placed(side: Any, start: Tensor | int = 0) -> Iterator[None]:
    """Within the block, compute the positions of a side in the graph."""
    before = side.position
    side.position = At(before, start)
    try:
        yield
    finally:
        side.position = before


class Encoding(nn.Module):
    """The encoder as a function of tensors."""

    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, keys: Tensor) -> Tensor:
        with _placed(self.model.encoder):
            return self.model.encode(ids, keys).values


class Stepping(nn.Module):
    """One step of the decoder as a function of tensors."""

    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, ids: Tensor, at: Tensor, values: Tensor, keys: Tensor, *old: Tensor
    ) -> object:
        memory, state = Memory(values, keys), Growing()
        layers = [cast(Any, layer).self_attention for layer in cast(Any, self.model.decoder).layers]
        for number, attention in enumerate(layers):
            state._grown[attention] = (old[2 * number : 2 * number + 2], 0)
        state.position = old[0].shape[2]
        with _placed(self.model.decoder, at):
            hidden = self.model.decode(ids[:, None], memory, state)
        logits = self.model.logits(hidden[:, -1])
        return logits, *(part for attention in layers for part in state._grown[attention][0])


def _write_graphs(model: EncoderDecoder, place: Path) -> dict[str, object]:
    """Write both graphs; return their names and shapes."""
    ids, keys = torch.full((2, 5), 4), torch.ones(2, 5, dtype=torch.bool)
    keys[1, 3:] = False
    with torch.no_grad():
        values = model.encode(ids, keys).values
    state = []  # of three positions, in the shapes of each layer's self-attention
    for layer in cast(Any, model.decoder).layers:
        attention = cast(Attention, layer.self_attention)
        sizes = attention.key_size, attention.value_size
        state += [torch.zeros(2, attention.key_heads, 3, size) for size in sizes]
    old = [f"state.{n}" for n in range(len(state))]
    new = [f"new.{n}" for n in range(len(state))]
    source, rows = {0: "rows", 1: "source"}, {0: "rows"}
    memory = {"memory": source, "keys": source}
    write_graph(
        Encoding(model), (ids, keys), place / ENCODER,
        {"ids": source, "keys": source}, {"memory": source},
    )  # fmt: skip
    read = (ids[:, 0], torch.tensor(3), values, keys, *state)
    into = {"ids": rows, "at": {}, **memory} | {n: {0: "rows", 2: "written"} for n in old}
    out = {"logits": rows} | {n: {0: "rows", 2: "grown"} for n in new}
    write_graph(Stepping(model), read, place / STEP, into, out)
    return {
        "encoder": {"inputs": ["ids", "keys"], "outputs": ["memory"]},
        "step": {"inputs": list(into), "outputs": list(out)},
        "state": [[int(size) for size in part.shape[1::2]] for part in state],  # (heads, head size)
        "start": BOS,
        "end": EOS,
    }


def write_graph(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    path: Path,
    into: dict[str, dict[int, str]],
    out: dict[str, dict[int, str]],
) -> None:
    """Trace a module with the exporter that needs only PyTorch."""
    register: Any = getattr(torch.onnx, "register_custom_op_symbolic")  # noqa: B009
    for name, symbolic in LACKING.items():
        register(name, symbolic, OPSET)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # sizes that the trace treats as constant are constant
        torch.onnx.export(
            module.eval(), inputs, str(path), dynamo=False, opset_version=OPSET,
            input_names=list(into), output_names=list(out), dynamic_axes=into | out,
        )  # fmt: skip


def _transposed(graph: Any, x: Any) -> object:
    """Return x.mT in ONNX."""
    places = list(range(x.type().dim()))
    places[-2:] = places[:-3:-1]
    return graph.op("Transpose", x, perm_i=places)


def _rms_norm(graph: Any, x: Any, shape: Any, weight: Any, eps: Any) -> object:
    """Return γ x / √(mean x² + ε) in ONNX."""
    mean = graph.op("ReduceMean", graph.op("Mul", x, x), axes_i=[-1], keepdims_i=1)
    return graph.op("Mul", graph.op("Div", x, graph.op("Sqrt", graph.op("Add", mean, eps))), weight)


LACKING = {"aten::mT": _transposed, "aten::rms_norm": _rms_norm}  # what the exporter lacks


class Graphs:
    """The two graphs in onnxruntime."""

    def __init__(self, folder: Path) -> None:
        import onnxruntime  # type: ignore[import-untyped]

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self.encoder, self.step = (
            onnxruntime.InferenceSession(str(folder / name), options, ["CPUExecutionProvider"])
            for name in (ENCODER, STEP)
        )
        self.read = {node.name for node in self.step.get_inputs()}  # a graph has what it uses
        self.names = json.loads((folder / GRAPHS).read_text(encoding="utf-8"))


class GraphSteps:
    """A batch of sources during decoding, in the form of `foveate.decode.search.Steps`."""

    def __init__(self, graphs: Graphs, ids: Tensor) -> None:
        """``ids`` (B, S) are the sources, all of one length."""
        self.graphs, self.device, self.at = graphs, torch.device("cpu"), 0
        keys, shapes = torch.ones_like(ids, dtype=torch.bool), graphs.names["state"]
        (memory,) = graphs.encoder.run(None, {"ids": ids.numpy(), "keys": keys.numpy()})
        state = [torch.zeros(len(ids), heads, 0, size) for heads, size in shapes]
        self.parts = [torch.from_numpy(memory), keys, *state]

    def step(self, ids: Tensor) -> Tensor:
        """Return logits (N, V) after reading one more id (N,) per hypothesis."""
        names = self.graphs.names["step"]["inputs"]
        inputs = [ids, torch.tensor(self.at), *self.parts]
        parts = {name: part.numpy() for name, part in zip(names, inputs, strict=True)}
        read = {name: part for name, part in parts.items() if name in self.graphs.read}
        logits, *state = self.graphs.step.run(None, read)
        self.parts[2:], self.at = map(torch.from_numpy, state), self.at + 1
        return torch.from_numpy(logits)

    def reorder(self, rows: Tensor) -> None:
        """Continue hypothesis i from hypothesis ``rows[i]``, with the memory of its source."""
        self.parts = [part.index_select(0, rows) for part in self.parts]

    def select(self, sources: Tensor) -> None:
        """Do nothing: a source has no state but its hypotheses, which have been reordered."""
