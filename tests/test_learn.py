"""Two models that learn in C: gradients are PyTorch's, and the same seed gives the same run."""

import base64
import importlib.util
import math
from collections.abc import Iterator

import learn_wasm
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from learner import Floats, Ids, Learner, Settings
from torch import Tensor

from foveate.errors import ConfigError

BOS, EOS, FIRST = 1, 2, 3
Pair = tuple[Tensor, Tensor]  # weight and bias


def batch(count: int = 8, seed: int = 3, least: int = 3, most: int = 8) -> tuple[Ids, Ids, Ids]:
    """Words of letters and their reversals: sources, inputs and targets, (T, B)."""
    random = np.random.default_rng(seed)
    source, inputs, targets = (np.zeros((most + 1, count), np.int32) for _ in range(3))
    for b in range(count):
        word = random.integers(FIRST, FIRST + 26, random.integers(least, most + 1))
        source[: len(word) + 1, b] = *word, EOS
        inputs[: len(word) + 1, b] = BOS, *word[::-1]
        targets[: len(word) + 1, b] = *word[::-1], EOS
    return source, inputs, targets


class Torch:
    """The same models by PyTorch's operations, from the tensors in their order."""

    def __init__(self, is_: Settings, tensors: list[Floats]) -> None:
        self.is_ = is_
        self.tensors = [torch.tensor(each.copy(), requires_grad=True) for each in tensors]
        self.next: Iterator[Tensor] = iter(self.tensors)
        self.embedding = self.pair()

    def pair(self) -> Pair:
        return next(self.next), next(self.next)

    def embed(self, side: int, ids: Tensor) -> Tensor:
        size, is_transformer = self.is_.size, self.is_.kind == 0
        result = self.embedding[side][ids] * size**0.5
        if self.is_.positions and is_transformer:
            angle = torch.arange(ids.shape[1])[:, None] / 1e4 ** (torch.arange(0, size, 2) / size)
            result = result + torch.stack([angle.sin(), angle.cos()], 2).flatten(1)
        return result

    def transformer(self, source: Tensor, inputs: Tensor) -> Tensor:
        size, heads = self.is_.size, self.is_.heads
        norms = [self.pair() for _ in range(7)]
        attentions = [[self.pair() for _ in range(4)] for _ in range(3)]
        forward = [(self.pair(), self.pair()) for _ in range(2)]
        output = self.pair()
        seen = (source > 0)[:, None, None, :]
        steps = inputs.shape[1]
        before = torch.ones(steps, steps, dtype=torch.bool).tril()
        own = (inputs > 0)[:, None, None, :] & (before if self.is_.masked else torch.tensor(True))

        def norm(x: Tensor, i: int) -> Tensor:
            return F.layer_norm(x, (size,), norms[i][0][0], norms[i][1][0])

        def attend(x: Tensor, memory: Tensor, i: int, mask: Tensor) -> Tensor:
            by = zip((x, memory, memory), attentions[i][:3], strict=True)
            q, k, v = (linear(y, w).unflatten(-1, (heads, -1)).transpose(1, 2) for y, w in by)
            scale = math.sqrt(size // heads) if self.is_.scaled else 1
            weights = (q @ k.mT / scale).masked_fill(~mask, -math.inf).softmax(-1)
            return linear((weights @ v).transpose(1, 2).flatten(2), attentions[i][3])

        def feed(x: Tensor, i: int) -> Tensor:
            return linear(linear(x, forward[i][0]).relu(), forward[i][1])

        x = self.embed(0, source)
        x = x + attend(norm(x, 0), norm(x, 0), 0, seen)
        memory = norm(x + feed(norm(x, 1), 0), 2)
        y = self.embed(1, inputs)
        y = y + attend(norm(y, 3), norm(y, 3), 1, own)
        y = y + attend(norm(y, 4), memory, 2, seen)
        return linear(norm(y + feed(norm(y, 5), 1), 6), output)

    def recurrent(self, source: Tensor, inputs: Tensor) -> Tensor:
        cells = [(self.pair(), self.pair()) for _ in range(3)]
        bridge, query, key, context, mix = (self.pair() for _ in range(5))
        score, output = next(self.next), self.pair()
        read, real = self.embed(0, source), source > 0

        def cell(i: int, x: Tensor, h: Tensor) -> Tensor:
            weights = cells[i][1][0].T, cells[i][1][1][0]
            eye = torch.eye(x.shape[1])  # x is projected already
            return torch.gru_cell(x, h, eye, weights[0], torch.zeros(x.shape[1]), weights[1])

        def states(i: int, order: list[int]) -> tuple[Tensor, Tensor]:
            gates, h = linear(read, cells[i][0]), torch.zeros(len(source), self.is_.size)
            found = dict[int, Tensor]()
            for t in order:
                h = torch.where(real[:, t, None], cell(i, gates[:, t], h), h)
                found[t] = h
            return torch.stack([found[t] for t in sorted(found)], 1), h

        steps = list(range(source.shape[1]))
        (ahead, last), (back, first) = states(0, steps), states(1, steps[::-1])
        memory, s = ahead + back, linear(last + first, bridge).tanh()
        gates, keys = linear(self.embed(1, inputs), cells[2][0]), linear(memory, key)
        logits = []
        for t in range(inputs.shape[1]):
            x, c = gates[:, t], torch.zeros_like(s)
            if self.is_.attends:
                scores = ((linear(s, query)[:, None] + keys).tanh() @ score)[..., 0]
                weights = scores.masked_fill(~real, -math.inf).softmax(-1)
                c = (weights[:, None] @ memory)[:, 0]
                x = x + linear(c, context)
            s = cell(2, x, s)
            logits.append(linear(s, output) + linear(c, mix))
        return torch.stack(logits, 1)


def linear(x: Tensor, by: Pair) -> Tensor:
    return x @ by[0] + by[1][0]


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize(
    "changed", [{}, {"positions": False}, {"scaled": False}, {"masked": False},
                {"attends": False}, {"heads": 1}, {"heads": 4, "size": 32, "hidden": 50}],
)  # fmt: skip
def test_gradients_are_those_of_pytorch(kind: int, changed: dict[str, int]) -> None:
    settings = Settings(29, kind, **changed)
    model, examples = Learner(settings), batch()
    for _ in range(20):
        model.loss(*examples)
        model.update(0.003)
    torches = Torch(settings, model.tensors())
    own = model.loss(*examples)
    source, inputs, targets = (torch.tensor(ids.T, dtype=torch.long) for ids in examples)
    logits = (torches.recurrent if kind else torches.transformer)(source, inputs)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=0)
    loss.backward()
    assert own == pytest.approx(loss.item(), rel=1e-5)
    gradients = model.tensors("gradient")
    most = max(float(np.abs(each).max()) for each in gradients)
    for mine, tensor in zip(gradients, torches.tensors, strict=True):
        right = np.zeros_like(mine) if tensor.grad is None else tensor.grad.numpy()
        assert np.abs(mine - right).max() < 1e-4 * most


@pytest.mark.parametrize("kind", [0, 1])
def test_it_learns_to_reverse_and_the_same_seed_is_the_same_run(kind: int) -> None:
    def losses(seed: int) -> tuple[list[float], Learner]:
        model, found = Learner(Settings(29, kind, seed=seed)), []
        for step in range(300):
            found.append(model.loss(*batch(32, seed=step)))
            model.update(0.004)
        return found, model

    first, model = losses(1)
    again, _ = losses(1)
    other, _ = losses(2)
    assert first == again and first != other
    assert first[0] > 3 and first[-1] < 0.3
    model.loss(*batch(1, 9, 6, 6))
    weights = model.cross_attention()[0].mean(0)
    assert weights.shape == (7, 7) and np.allclose(weights.sum(-1), 1, atol=1e-5)
    assert np.mean([weights[t, 5 - t] for t in range(6)]) > 0.5


def test_a_model_or_batch_that_does_not_fit_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match="no such model can be trained"):
        Learner(Settings(29, size=50, heads=4))
    with pytest.raises(ConfigError, match="too large"):
        Learner(Settings(29)).loss(*batch(65))


def test_the_webassembly_of_pages_is_fresh() -> None:
    text = learn_wasm.OUT.read_text("utf-8")
    assert f"Of {learn_wasm.stamp()}." in text, "web/src/learn/wasm.ts is stale: `npm run learn`"
    if importlib.util.find_spec("ziglang"):
        assert base64.b64encode(learn_wasm.packed()).decode() in text
