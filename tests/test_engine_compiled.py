"""The compiled engine computes what PyTorch does, for every part that a program can hold."""

import itertools
import weakref
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from foveate.decode.beam import Beam
from foveate.decode.constraints import DecodingBatch
from foveate.decode.search import token_log_probabilities
from foveate.engine.compiled import CompiledModel, CompiledSearch, EngineFailure, Settings
from foveate.engine.program import CannotPack, Program
from foveate.kinds import load_kinds
from foveate.models.encoder_decoder import DecoderSteps, Model
from foveate.models.language_model import LanguageSteps
from foveate.nn.spec import Labels, Tokens

load_kinds()
SIZE, START, END, NEVER = 37, 2, 3, (1, 2)


def transformer(**fields):
    sizes = {"hidden_size": 32, "num_heads": 4, "num_layers": 2, "ffn_size": 48}
    return {"kind": "transformer", **sizes, **fields}


def recurrent(**fields):
    return {"kind": "recurrent", "embedding_size": 24, "hidden_size": 32, **fields}


def mamba(**fields):
    return {"kind": "mamba", "hidden_size": 32, "num_layers": 2, **fields}


def attention(**fields):
    return {"kind": "full", **fields}


ADDITIVE = {"kind": "additive", "own_matrix": True}
PLACES = {"kind": "location", "max_length": 80}
SCORES = [
    "scaled_dot", "dot", "general", "additive", ADDITIVE, "cosine", PLACES,
    PLACES | {"softmax_over": "max_length"}, PLACES | {"kind": "affine_location"},
]  # fmt: skip
POSITIONS = [
    "none", "learned", "sinusoidal", "sinusoidal_halves", "concatenated",
    {"kind": "appended", "features": 8}, "rope", "alibi", "t5",
]  # fmt: skip
NORMALIZERS = ["softmax", {"kind": "softmax", "temperature": 0.5}, "hardmax", "sparsemax",
               "entmax15", "sampled"]  # fmt: skip
SAME = [  # of encoder and decoder
    *({"norm_order": order} for order in ("pre", "post", "plain")),
    *({"norm": norm} for norm in ("layer_norm", "rms_norm", "none", "batch_norm")),
    *({"feed_forward": kind}
      for kind in ("relu", "gelu", "gelu_tanh", "silu", "none", "swiglu", "geglu")),
    *({"attention": attention(score=score)} for score in SCORES),
    *({"attention": attention(normalizer=each)} for each in NORMALIZERS),
    {"attention": attention(key_heads=2)},
    {"attention": attention(head_size=6, value_size=5)},
    {"attention": attention(project=["query", "key"])},
    {"stem": {"kind": "dense", "scale": "sqrt"}, "embedding_norm": "layer_norm"},
]  # fmt: skip
PAIRS = [
    *((transformer(**each), transformer(**each)) for each in SAME),
    *((transformer(position=p), transformer(position="t5_causal" if p == "t5" else p))
      for p in POSITIONS),
    (transformer(), transformer(kind="ssru")),
    *((recurrent(cell=cell, bidirectional=both, num_layers=2),
       recurrent(cell=cell, num_layers=2, **how))
      for cell, both, how in itertools.product(
          ("rnn", {"kind": "rnn", "activation": "relu"}, "gru", "gru_cho", "lstm"), (False, True),
          ({"attention": {"query": "previous"}}, {"attention": {"query": "current"}}, {},
           {"bridge": "states"}, {"bridge": "summary"}))),
    *((recurrent(), recurrent(attention={"query": query, "score": score, "project": project}))
      for query in ("previous", "current")
      for score, project in (("dot", []), ("general", []), (ADDITIVE, []), (PLACES, []),
                             ("cosine", ["query", "key"]),
                             ("scaled_dot", ["query", "key", "value"]))),
    *((recurrent(), recurrent(attention={"score": score, "normalizer": normalizer}))
      for score in (PLACES | {"softmax_over": "max_length"}, ADDITIVE)
      for normalizer in NORMALIZERS),
    (transformer(), recurrent(attention={"query": "previous"})),
    (recurrent(bidirectional=True), transformer()),
    ({"kind": "cbow", "embedding_size": 32}, recurrent(attention={"query": "current"})),
    (mamba(), mamba()), (mamba(bidirectional=False), transformer()),
]  # fmt: skip
LANGUAGE = [
    transformer(), transformer(position="rope", feed_forward="swiglu", norm="rms_norm"),
    transformer(position="alibi"), transformer(kind="ssru"), recurrent(num_layers=2),
    recurrent(cell="lstm", readout="state"), mamba(),
]  # fmt: skip
POOLINGS = ["mean", "summary", "first", "max", "attention"]


def built(tree, *inputs) -> nn.Module:
    """A model whose weights are anything but those that training begins with."""
    torch.manual_seed(1)
    model = Model.Config.parse(tree).build(*inputs)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
        for name, buffer in model.named_buffers():
            if name.endswith("variance"):
                buffer.uniform_(0.5, 2)
    return model.eval()


def pair(encoder: dict, decoder: dict) -> nn.Module:
    tree = {"kind": "encoder_decoder", "tie": "none", "encoder": encoder, "decoder": decoder}
    return built(tree, Tokens(SIZE), Tokens(SIZE))


def compiled(model: nn.Module, int8: bool = False) -> CompiledModel:
    program = Program(model)
    tensors = {name: tensor.numpy() for name, tensor in program.tensors.items()}
    return CompiledModel(program.numbers, tensors, frozenset(program.maps if int8 else ()))


def texts(count: int = 5) -> list[list[int]]:
    rng = np.random.default_rng(2)
    return [rng.integers(4, SIZE, rng.integers(1, 12)).tolist() for _ in range(count)]


def tensor(*ids: int) -> torch.Tensor:
    return torch.tensor([ids])


@torch.inference_mode()
def check(model: nn.Module, steps, forced, never: tuple[int, ...], end: tuple[int, ...]) -> None:
    """Scores of given outputs, and the outputs of greedy search and of a beam, are PyTorch's."""
    engine, sources = compiled(model), texts()
    for source, length in zip(sources, (0, 3, 11, 40, 65), strict=True):
        target = [*np.random.default_rng(length).integers(4, SIZE, length).tolist(), END]
        search = CompiledSearch(engine, Settings(START, END))
        log_p = search.log_probabilities([*source, *end], target)
        np.testing.assert_allclose(log_p, forced(source, target).numpy(), atol=2e-4, rtol=1e-4)
    limits = [2 * len(source) + 20 for source in sources]
    for width, penalty in ((1, 0.0), (4, 0.7)):
        settings = Settings(START, END, width, width, penalty, never=never)
        own = CompiledSearch(engine, settings).outputs([[*s, *end] for s in sources], limits)
        beam = Beam(Beam.Config(beam_size=width, length_penalty=penalty, max_ratio=2.0))
        for source, outputs in zip(sources, own, strict=True):
            [right] = beam(DecodingBatch([0], steps(source), [len(source)]), START, END)
            near = partial(pytest.approx, rel=2e-4, abs=2e-4)
            assert [o.score for o in outputs] == near([h.score for h in right])
            for output in outputs:  # of equally good ones either stands first, or is the last
                tied = [(h.ids, h.ended) for h in right if h.score == near(output.score)]
                cut = len(right) > 1 and output.score == near(right[-1].score)
                assert cut or (output.ids, output.ended) in tied


@pytest.mark.parametrize(("encoder", "decoder"), PAIRS)
def test_an_encoder_decoder_is_that_of_pytorch(encoder, decoder) -> None:
    model = pair(encoder, decoder)

    def forced(source, target):
        logits = model(tensor(*source, END), tensor(START, *target[:-1]))
        return token_log_probabilities(logits, tensor(*target))[0]

    def steps(source):
        return DecoderSteps(model, model.encode(tensor(*source, END)))

    check(model, steps, forced, (), (END,))


@pytest.mark.parametrize("decoder", LANGUAGE)
def test_a_language_model_is_that_of_pytorch(decoder) -> None:
    model = built({"kind": "language_model", "tie": "none", "decoder": decoder}, Tokens(SIZE))

    def forced(source, target):
        logits = model(tensor(START, *source, *target[:-1]))
        return token_log_probabilities(logits, tensor(*source, *target))[0][len(source) :]

    check(model, lambda s: LanguageSteps(model, tensor(*s), never=NEVER), forced, NEVER, ())


@pytest.mark.parametrize("encoder", [transformer(), recurrent(bidirectional=True), mamba()])
@pytest.mark.parametrize("pooling", POOLINGS)
@torch.inference_mode()
def test_a_classifier_is_that_of_pytorch(encoder, pooling) -> None:
    tree = {"kind": "classifier", "encoder": encoder, "pooling": pooling}
    model = built(tree, Tokens(SIZE), Labels(("a", "b", "c")))
    search = CompiledSearch(compiled(model), Settings(START, END))
    for text in texts():
        right = model(tensor(*text))[0].numpy()
        np.testing.assert_allclose(search.label_scores(text, 3), right, atol=1e-4)


def test_a_model_keeps_only_the_tensors_that_it_refers_to() -> None:
    program = Program(pair(transformer(), transformer()))
    arrays = {name: tensor.numpy().copy() for name, tensor in program.tensors.items()}
    left = {name: weakref.ref(array) for name, array in arrays.items()}
    search = CompiledSearch(CompiledModel(program.numbers, arrays), Settings(START, END))
    expected = search.log_probabilities([4, 5, END], [6, END]).tolist()
    arrays.clear()
    kept = {name for name, array in left.items() if array() is not None}
    assert {name.rpartition(".")[2] for name in kept} == {"table", "gain", "shift"}
    assert search.log_probabilities([4, 5, END], [6, END]).tolist() == expected


def test_what_the_engine_lacks_and_what_does_not_fit_is_said() -> None:
    with pytest.raises(CannotPack, match="the engine lacks LocationDecoder"):
        Program(pair(transformer(), {"kind": "location"}))
    program = Program(pair(transformer(), transformer()))
    tensors = {name: each.numpy() for name, each in program.tensors.items()}
    for place in range(0, len(program.numbers), 7):
        for wrong in (-5, 1e12, 0.5, np.nan):
            numbers = [*program.numbers[:place], wrong, *program.numbers[place + 1 :]]
            try:
                CompiledModel(numbers, tensors)
            except EngineFailure as error:
                assert "does not fit" in str(error)
    for count in range(0, len(program.numbers), 11):
        with pytest.raises(EngineFailure, match="does not fit"):
            CompiledModel(program.numbers[:count], tensors)
    search = CompiledSearch(CompiledModel(program.numbers, tensors), Settings(START, END))
    with pytest.raises(EngineFailure, match="an id that the model does not know"):
        search.outputs([[4, SIZE]], [5])
