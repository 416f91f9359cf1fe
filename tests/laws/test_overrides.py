"""A class of one's own that overrides what a kernel replaces is called, in training as in use."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from foveate.decode.search import token_log_probabilities
from foveate.engine.program import CannotPack, Program
from foveate.models.encoder_decoder import DecoderSteps, EncoderDecoder, Memory
from foveate.models.language_model import LanguageSteps
from foveate.models.transformer import EncoderLayer, TransformerEncoder
from foveate.nn.attention import Attention, BaseAttention
from foveate.nn.context import Mask
from foveate.nn.linear import LayerNorm, NoFeedForward, NoNorm, RMSNorm
from foveate.nn.native import kernels as fused_module
from foveate.nn.native.kernels import library
from foveate.nn.recurrent import Cell, Recurrence
from foveate.nn.ssm import SelectiveStateSpace
from foveate.run import compiled
from foveate.tasks.base import DecoderBatch
from foveate.tasks.classification import LabelledBatch, TextClassification
from foveate.tasks.masked import MaskedBatch, MaskedLanguage
from foveate.tasks.objectives import CrossEntropy, token_loss
from laws.conftest import MODELS, SIZE, VOCABULARY, build, defaults, each, ids, real, shrink
from tolerances import close, differ

PLAIN = CrossEntropy.Config(label_smoothing=0.1).build()


def doubled(output: Any) -> Any:
    """Other numbers of the same shape, whose rows do not sum to what they did."""
    if isinstance(output, Memory):
        return replace(output, values=doubled(output.values))
    if isinstance(output, tuple):
        return tuple(map(doubled, output))
    return output * torch.linspace(0.5, 1.5, output.shape[-1])


@contextmanager
def overriding(module: nn.Module, method: str, how: str) -> Iterator[None]:
    """Put another method in the place of one: of the class, of the object, or a hook."""
    own, kind = getattr(module, method), type(module)
    if how == "class":
        base = getattr(kind, method)
        body = {method: lambda self, *inputs: doubled(base(self, *inputs))}
        module.__class__ = type(kind.__name__, (kind,), body)
        yield
        module.__class__ = kind
    elif how == "object":
        setattr(module, method, lambda *inputs: doubled(own(*inputs)))
        yield
        delattr(module, method)
    else:
        with module.register_forward_hook(lambda module, inputs, output: doubled(output)):
            yield


HOWS = pytest.mark.parametrize("how", ["class", "object", "hook"])


def ways(*methods: str, forward: str = "forward") -> pytest.MarkDecorator:
    """Each method by each way; a hook stands for ``forward`` alone."""
    pairs = [(method, how) for method in methods for how in ("class", "object")]
    pairs += [(method, "hook") for method in methods if method in forward.split()]
    return pytest.mark.parametrize(("method", "how"), pairs)


PARTS = {
    "weights": ("", "_weights"), "tapped": ("", "_tapped"), "mix": ("", "_mix"),
    "score": ("score", "forward"), "normalizer": ("normalizer", "forward"),
}  # fmt: skip
CHEAP = ("linear", "performer")
FULL = {name: config for name, config in defaults("attention").items() if name not in CHEAP}


def attended(attention: BaseAttention, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The output by equation, with a probe, and by each way that may lead to a kernel."""
    mask = Mask(real(6, 4), causal=attention.causal)
    attention.probe = lambda *seen: None
    outputs = [attention(x, None, mask)]
    attention.probe = None
    for training, short in ((False, 10**9), (True, 10**9), (False, -1), (True, -1)):
        attention.train(training)
        monkeypatch.setattr(fused_module, "SHORT", short)
        outputs.append(attention(x, None, mask))
    return outputs


@HOWS
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("config", FULL.values(), ids=FULL)
def test_attention_computes_what_its_class_says(config, part, how, monkeypatch) -> None:
    attention, x = config.build(SIZE), torch.randn(2, 6, SIZE)
    name, method = PARTS[part]
    if (how == "hook" and method != "forward") or (part == "tapped" and config.kind != "full"):
        return  # kinds that form the weights of parts show the whole
    plain = attended(attention, x, monkeypatch)
    with overriding(attention.get_submodule(name), method, how):
        first, *others = attended(attention, x, monkeypatch)
    assert differ(first, plain[0])
    for other in others:
        close(other, first)


def test_a_kernel_that_a_class_claims_again_is_used(fused) -> None:
    score = Attention.Config().build(SIZE).score
    mine = type("Mine", (type(score),), {"scale": 2.0, "forward": lambda self, q, k: 2 * q @ k.mT})
    attention, calls = Attention.Config().build(SIZE).eval(), fused(True)
    attention.score.__class__ = mine
    attention(torch.randn(2, 6, SIZE))
    assert calls


@ways("forward", "project")
@each("cell")
def test_a_cell_runs_its_own_steps(config, method, how) -> None:
    cell: Cell = config.build(SIZE, SIZE)
    x = torch.randn(2, 5, SIZE)
    plain = Recurrence(cell)(x)[0]
    with overriding(cell, method, how):
        steps = Recurrence(cell)(x)[0]
        close(cell.run(x, cell.start(x))[0], steps)
    assert differ(steps, plain)


LAYERS = [(config, "norm", "forward") for config in (LayerNorm.Config(), RMSNorm.Config())]
for _part in ("input", "select", "step", "output"):
    LAYERS.append((SelectiveStateSpace.Config(), _part, "forward"))
for _kind, _config in defaults("feed_forward").items():
    if _kind != "none":
        LAYERS += [(_config, "", "activate"), (_config, "inner", "forward")]


@HOWS
@pytest.mark.parametrize(("config", "part", "method"), LAYERS)
def test_a_layer_calls_its_parts_in_training_as_in_use(config, part, method, how) -> None:
    if how == "hook" and method != "forward":
        return
    sizes = (SIZE, 20) if config.family == "feed_forward" else (SIZE,)
    layer, x = config.build(*sizes), torch.randn(2, 5, SIZE)
    plain = layer(x)
    with overriding(layer.get_submodule(part), method, how):
        with torch.no_grad():
            expected = layer.eval()(x)
        close(layer.train()(x), expected)
        assert differ(expected, plain)
    close(layer(x), plain)


def test_kinds_derived_from_none_do_something() -> None:
    body = {"forward": lambda self, x: 2 * x}
    feed_forward = type("Twice", (NoFeedForward,), body)(NoFeedForward.Config(), SIZE, SIZE)
    built = type("C", (), {"build": lambda self, *sizes: feed_forward})()
    config = shrink(TransformerEncoder.Config()).model_copy(update={"feed_forward": built})
    assert len(EncoderLayer(config).blocks) == 2
    model = build(MODELS["transformer"])
    model.encoder.norm = type("Double", (NoNorm,), body)(NoNorm.Config(), SIZE)
    with pytest.raises(CannotPack, match="Double"):
        Program(model)


SOURCE, READ, TARGET, KEYS = ids(3, 6), ids(3, 5, seed=2), ids(3, 5, seed=3), real(6, 4, 5)
EVERY = torch.arange(VOCABULARY)


def answered(model: EncoderDecoder) -> Tensor:
    """Mean −log p of the targets as a search computes them, one step after the other."""
    result = []
    for tokens in (None, EVERY):
        steps = DecoderSteps(model, model.encode(SOURCE, KEYS), tokens)
        logits = torch.stack([steps.step(read) for read in READ.T], dim=1)
        result.append(-token_log_probabilities(logits, TARGET).sum())
    close(result[0], result[1])
    return result[0]


def check_training(
    model: nn.Module, method: str, how: str, trained: Callable[[], Tensor],
    answered: Callable[[], Tensor],
) -> None:  # fmt: skip
    """With a method overridden, a model is trained on the loss of what it answers with."""
    plain = trained()
    module = model.output if method == "output" else model
    with overriding(module, "forward" if method == "output" else method, how):
        close(trained(), answered(), terms=90)
        if method != "encode":
            assert differ(trained(), plain)


@ways("logits", "predict", "decode", "encode", "output", forward="output")
@torch.no_grad()
def test_a_translator_is_trained_on_what_it_answers_with(method: str, how: str) -> None:
    model = build(MODELS["output bias"])

    def trained() -> Tensor:
        memory = model.encode(SOURCE, KEYS)
        batch = DecoderBatch(READ, TARGET, None, memory)
        return token_loss(model, batch, PLAIN).logged["nll"].float()

    check_training(model, method, how, trained, partial(answered, model))


@ways("logits", "decode", "output", forward="output")
@torch.no_grad()
def test_a_language_model_is_trained_on_what_it_answers_with(method: str, how: str) -> None:
    model = build(defaults("model")["language_model"])

    def trained() -> Tensor:
        return token_loss(model, DecoderBatch(READ, TARGET, None), PLAIN).logged["nll"].float()

    def answered() -> Tensor:
        steps = LanguageSteps(model, READ[:, :0])
        logits = torch.stack([steps.step(read) for read in READ.T], dim=1)
        return -token_log_probabilities(logits, TARGET).sum()

    check_training(model, method, how, trained, answered)


@pytest.mark.parametrize("kind", ["classifier", "masked_language_model"])
@ways("forward", "features", "encode", "output", forward="forward output")
@torch.no_grad()
def test_other_models_are_trained_on_what_they_answer_with(kind, method, how) -> None:
    model = build(defaults("model")[kind])
    labels, places = torch.tensor([2, 0, 1]), torch.tensor([0, 3, 9])
    of_labels = TextClassification, LabelledBatch(SOURCE, KEYS, labels), torch.arange(3)
    of_tokens = MaskedLanguage, MaskedBatch(SOURCE, KEYS, places, labels), places
    task, batch, rows = of_labels if kind == "classifier" else of_tokens

    def trained() -> Tensor:
        return object.__new__(task).loss(model, batch, PLAIN).logged["nll"].float()

    def answered() -> Tensor:
        scores = model(SOURCE, KEYS).flatten(0, -2)[rows]
        return -token_log_probabilities(scores[None], labels[None]).sum()

    check_training(model, method, how, trained, answered)


@pytest.mark.skipif(library() is None, reason="no C compiler: modules compute")
@HOWS
@pytest.mark.parametrize("name", ["transformer", "ssru", "mamba", "recurrent"])
def test_the_engine_in_c_computes_no_module_that_is_another(name: str, how: str) -> None:
    model = build(MODELS[name]).eval()
    for module in model.modules():
        if not isinstance(module, nn.ModuleList):
            with overriding(module, "forward", how):
                assert compiled(model) is None
    assert compiled(model) is not None


def test_a_loss_of_scores_is_minimised_also_where_a_kernel_computes_its_base() -> None:
    base = CrossEntropy.of_scores
    body = {"of_scores": lambda self, scores, target: base(self, scores / 2, target)}
    loss = type("Halved", (CrossEntropy,), body)(CrossEntropy.Config())
    hidden, weight, target = torch.randn(5, 4), torch.randn(9, 4), torch.arange(5)
    for bias in (None, torch.randn(9)):
        scores = nn.functional.linear(hidden, weight, bias)
        close(loss(hidden, weight, target, bias).total, loss.of_scores(scores, target).total)
