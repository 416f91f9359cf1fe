"""Every frame of a forward pass is what NumPy computes, in float64, from the frames before it."""

from collections import defaultdict
from contextlib import ExitStack
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.data.tokenizer import EOS
from foveate.look.draw.blocks import blocks_of, equation_of, parts_of
from foveate.look.forward import frames, places_of, produced_of
from foveate.look.views.examples import ready
from foveate.run import Run
from foveate.tasks.abilities import Generates

CLOSE = 1e-5
TEXT = "the dog sleeps"
HEADS, PARTS = 2, ("encoder", "decoder")
NAMES = ["transformer", "rnn", "classifier", "language", "masked", "captioner", "vit"]
NAMES += ["forecaster", "rnn_forecaster"]
Array = NDArray[np.float64]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softmax(x: Array) -> Array:
    exp = np.exp(x - x.max(axis=-1, keepdims=True))
    return exp / exp.sum(axis=-1, keepdims=True)


def waves(length: int, size: int) -> Array:
    """PE(t, 2i) = sin(t / 10000^(2i/D)), PE(t, 2i + 1) = cos(…)."""
    angles = np.arange(length)[:, None] / 10_000 ** (np.arange(0, size, 2) / size)
    return np.stack((np.sin(angles), np.cos(angles)), axis=-1).reshape(length, size)


def greedy(run: Run) -> list[int]:
    return [*run.translate([TEXT], beam_size=1)[0].outputs[0].ids]


class Checked:
    """The frames of a run, each of them compared with what it should be, in order."""

    def __init__(self, run: Run) -> None:
        state = run.model.state_dict()
        self.weights = {name: tensor.double().numpy() for name, tensor in state.items()}
        self.left: dict[tuple[str, str], list[Array]] = defaultdict(list)
        self.ids = greedy(run) if isinstance(run.task, Generates) else None
        self.film = frames(run.forced(TEXT, self.ids), blocks_of(run.model), equation_of)
        for frame in self.film:
            self.left[frame.block, frame.name].append(np.float64(frame.values))

    def __call__(self, block: str, name: str, expected: Array) -> Array:
        """The next frame of a block and a name, (H, T, N) or (T, N), near what is expected."""
        values = self.left[block, name].pop(0)
        values = values if expected.ndim == values.ndim else values[0]
        place = f"{block} {name}"
        np.testing.assert_allclose(values, expected, atol=CLOSE, rtol=CLOSE, err_msg=place)
        return values

    def linear(self, name: str, x: Array) -> Array:
        return x @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", 0.0)

    def embedded(self, side: str) -> Array:
        block, [ids] = f"{side}.stem", self.left[f"{side}.stem", "tokens"]
        ids = self(block, "tokens", ids)[0, :, 0].astype(int)
        return self.weights[f"{block}.embedding.weight"][ids]

    def norm(self, block: str, x: Array) -> Array:
        mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
        scaled = (x - mean) / np.sqrt(variance + 1e-5) * self.weights[f"{block}.norm.weight"]
        return self(block, "norm", scaled + self.weights[f"{block}.norm.bias"])

    def attention(self, block: str, x: Array, memory: Array, causal: bool = False) -> Array:
        def projected(name: str, x: Array) -> Array:
            y = self.linear(f"{block}.{name}", x)
            return self(block, name, y.reshape(len(y), HEADS, -1).transpose(1, 0, 2))

        query = projected("query", x)
        key, value = projected("key", memory), projected("value", memory)
        product = query @ key.transpose(0, 2, 1) / np.sqrt(query.shape[-1])
        score = self(block, "score", product)
        if causal:
            past = np.where(np.tri(len(x), dtype=bool), 0.0, -np.inf)
            mask = self(block, "mask", np.broadcast_to(past, score.shape))
            score = self(block, "masked score", score + mask)
        return self.mixed(block, score, value)

    def mixed(self, block: str, score: Array, value: Array) -> Array:
        weights = self(block, "weights", softmax(score))
        context = self(block, "context", weights @ value)
        if len(context) == 1:
            return self(block, "output", context[0])
        joined = self(block, "concatenated heads", np.concatenate([*context], axis=-1))
        return self(block, "output", self.linear(f"{block}.output", joined))

    def layers(self, side: str, memory: Array | None = None) -> Array:
        """A Transformer's encoder or decoder, pre-norm: the output of its last norm."""
        rows = self.embedded(side)
        x = self(f"{side}.stem", "embedding", rows * np.sqrt(rows.shape[1]))
        position = self(f"{side}.position", "position", waves(*x.shape))
        x = self(f"{side}.position", "input", x + position)
        blocks = ["self_attention", *["cross_attention"] * (memory is not None), "feed_forward"]
        for layer in range(sum(f"{side}.layers.{n}.feed_forward" in self.blocks for n in range(9))):
            for number, name in enumerate(blocks):
                block = f"{side}.layers.{layer}.{name}"
                y = self.norm(f"{side}.layers.{layer}.blocks.{number}.norm", x)
                if name == "self_attention":
                    y = self.attention(block, y, y, memory is not None)
                elif memory is not None and name == "cross_attention":
                    y = self.attention(block, y, memory)
                else:
                    y = self(block, "inner layer", self.linear(f"{block}.inner", y))
                    y = self(block, "activation", np.maximum(y, 0))
                    y = self(block, "outer layer", self.linear(f"{block}.outer", y))
                x = self(block, "residual sum", x + y)
        return self.norm(f"{side}.norm", x)

    @property
    def blocks(self) -> set[str]:
        return {frame.block for frame in self.film}

    def gru(self, block: str, inputs: Array, first: Array, fed: Array | None = None) -> Array:
        """The states of a GRU; C ``fed`` is added to W x + b."""
        before = self(block, "before", self.left[block, "before"][0][0])
        np.testing.assert_allclose(before[0], first, atol=CLOSE)
        x = self(block, "input", inputs) @ self.weights[f"{block}.weight_ih"].T
        x = x + self.weights[f"{block}.bias_ih"]
        if fed is not None:
            fed = self(block, "fed", fed)
            x = x + self("decoder.feed", "feed", self.linear("decoder.feed", fed))
        back = before @ self.weights[f"{block}.weight_hh"].T + self.weights[f"{block}.bias_hh"]
        (x_r, x_z, x_n), (h_r, h_z, h_n) = (np.split(part, 3, axis=-1) for part in (x, back))
        reset = self(block, "reset gate", sigmoid(x_r + h_r))
        update = self(block, "update gate", sigmoid(x_z + h_z))
        new = self(block, "candidate", np.tanh(x_n + reset * h_n))
        kept = self(block, "kept", update * before)
        state = self(block, "state", kept + self(block, "added", (1 - update) * new))
        np.testing.assert_allclose(before[1:], state[:-1], atol=CLOSE)
        return state

    def predicted(self, hidden: Array) -> None:
        """Logits, their softmax, and the tokens that greedy decoding writes."""
        logits = self("output", "logits", self.linear("output", hidden))
        p = self("output", "softmax", softmax(logits))
        assert self.film[-1].name == "softmax" and not any(self.left.values())
        assert p.argmax(axis=-1).tolist() == [*(self.ids or []), EOS]


def test_an_encoder_and_a_decoder(runs: dict[str, Run]) -> None:
    check = Checked(runs["transformer"])
    check.predicted(check.layers("decoder", check.layers("encoder")))


def test_an_encoder_that_labels(runs: dict[str, Run]) -> None:
    check = Checked(runs["classifier"])
    hidden = check.layers("encoder")
    hidden = check("pooling", "pooling", hidden.mean(axis=0, keepdims=True))
    logits = check("output", "logits", check.linear("output", hidden))
    p = check("output", "softmax", softmax(logits))
    best = runs["classifier"].task.label_names[int(p[0].argmax())]
    assert not any(check.left.values()) and best == runs["classifier"].classify([TEXT])[0].label


def test_a_recurrent_translator_with_attention(runs: dict[str, Run]) -> None:
    check = Checked(runs["rnn"])
    cell, block = "encoder.stack.layers.0.0.cell", "decoder.cross_attention"
    inputs = check("encoder.stem", "embedding", check.embedded("encoder"))
    memory = check.gru(cell, inputs, np.zeros(24))
    words = check("decoder.stem", "embedding", check.embedded("decoder"))
    last = check("decoder.bridge", "last position", memory[-1:])
    first = np.tanh(check("decoder.bridge", "bridge", check.linear("decoder.bridge", last)))
    before = check.left["decoder.cells.0", "before"][0][0]
    query = check(block, "query", check.linear(f"{block}.query", before)[None])
    key = check(block, "key", check.linear(f"{block}.key", memory)[None])
    value = check(block, "value", memory[None])
    v = check.weights[f"{block}.score.weight"][0]
    score = check(block, "score", np.tanh(query[:, :, None] + key[:, None]) @ v)
    context = check.mixed(block, score, value)
    state = check.gru("decoder.cells.0", words, first[0], context)
    joined = check("decoder.readout", "joined", np.concatenate([state, context, words], axis=-1))
    read = check("decoder.readout", "readout", check.linear("decoder.readout", joined))
    check.predicted(check("decoder.readout", "tanh", np.tanh(read)))


def gradients(run: Run, ids: list[int]) -> dict[str, Array]:
    """The norm of the loss's gradient by what each module gave, at each position, by autograd."""
    given: dict[str, Tensor] = {}

    def keep(name: str, module: Any, inputs: Any, output: Tensor | tuple[Tensor, ...]) -> None:
        tensor = output[0] if isinstance(output, tuple) else output
        if isinstance(tensor, Tensor) and tensor.requires_grad:
            tensor.retain_grad()
            given[name] = tensor

    forced = run.forced(TEXT, ids)
    with ExitStack() as stack, torch.enable_grad():
        for name, module in run.model.named_modules():
            stack.enter_context(module.register_forward_hook(partial(keep, name)))
        run.model.zero_grad()
        forced.run().mean().neg().backward()
    norms = {n: x.grad[forced.row].norm(dim=-1) for n, x in given.items() if x.grad is not None}
    return {name: norm.double().numpy() for name, norm in norms.items()}


@pytest.mark.parametrize("name", ["transformer", "rnn"])
def test_a_training_step_goes_back(runs: dict[str, Run], name: str) -> None:
    run = runs[name]
    forced, blocks = run.forced(TEXT, ids := greedy(run)), blocks_of(run.model)
    forward = frames(forced, blocks, equation_of)
    film = frames(forced, blocks, equation_of, train=True)
    for before, after in zip(forward, film, strict=False):
        np.testing.assert_array_equal(before.values, after.values)
    loss, *back, weights = film[len(forward) :]
    p, targets = forward[-1].values[0], [*ids, EOS]
    at = range(len(targets))
    np.testing.assert_allclose(loss.values[0, 0], -np.log(p[at, targets]), rtol=CLOSE)
    wrong = p.copy()
    wrong[at, targets] -= 1
    wrong /= len(targets)  # ∂L/∂z of a softmax: (p − y) / N
    output = run.model.get_parameter("output.weight").detach().double().numpy()
    top, below, *_ = back
    assert (top.name, top.block) == ("gradient of logits", "output")
    np.testing.assert_allclose(top.values[0, 0], np.linalg.norm(wrong, axis=-1), rtol=1e-4)
    expected = np.linalg.norm(wrong @ output, axis=-1)
    np.testing.assert_allclose(below.values[0, 0], expected, rtol=1e-4)
    modules = gradients(run, ids)
    named = {f"{frame.block} {frame.name}": frame.values[0, 0] for frame in back}
    for side, (part, title) in product(PARTS, (("stem", "embedding"), ("norm", "norm"))):
        if (block := f"{side}.{part}") in modules:
            at_block = named[f"{block} gradient of {title}"]
            np.testing.assert_allclose(at_block, modules[block], rtol=1e-4, atol=1e-9)
    squares = sum(float(x.grad.square().sum()) for x in run.model.parameters() if x.dim() > 1)
    assert np.square(weights.values).sum() == pytest.approx(squares, rel=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_every_block_of_every_model_has_frames(runs: dict[str, Run], name: str) -> None:
    run = runs[name]
    forced = ready(run, None, None, None)
    film = frames(forced, blocks_of(run.model), equation_of)
    drawn = [block for part in parts_of(forced) for block in part.blocks]
    blocks = {block.name for block in drawn if block.output}
    assert blocks <= {frame.block for frame in film}, "a block has no frame"
    places = places_of(forced, film)
    for number, frame in enumerate(film):
        assert all(0 <= k < len(film) and k != number for k in frame.reads)
        count = frame.values.shape[1]
        assert len(places.get(frame.rows, range(count))) == count
    assert film[-1].name == ("softmax" if run.task.gives != "forecast" else "head")
    if name != "transformer":
        return  # positions are named by what is read and what is produced
    produced = produced_of(forced, places["decoder"])
    assert places["decoder"] == ["<s>", *produced[:-1]]
    assert produced[-1] == places["encoder"][-1] == "</s>"
