"""The small trainings whose results some demos draw; tools/packaged_runs.py stores them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.look.draw.parts import Floats
from foveate.look.hooks import capture
from foveate.look.perturbations import surface
from foveate.look.views.demos import TABLES
from foveate.look.views.demos.trained import IT, Coreference, Curves, Planes
from foveate.models.transformer import TransformerEncoder
from foveate.nn.linear import LayerNorm, NoNorm
from foveate.nn.spec import Tokens

DIGITS = 4  # significant digits of a stored number


def rounded(values: Sequence[float] | Floats) -> list[float | None]:
    """Return numbers as they are stored: rounded, and None if not finite."""
    return [float(f"{v:.{DIGITS}g}") if np.isfinite(v) else None for v in values]


class Deep(nn.Module):
    """x ← c x + ReLU(W norm(x) + b) in each layer, for points of the plane in two classes.

    ``carried`` is c: 1 for residual connections, 0 for none. W is initialised as in He et al.
    (2015), times ``scale``.
    """

    def __init__(
        self, layers: int, carried: float = 1.0, scale: float = 1.0, norm: str = "none",
        size: int = 16,
    ) -> None:  # fmt: skip
        super().__init__()
        self.carried, self.norm = carried, norm
        self.first, self.last = nn.Linear(2, size), nn.Linear(size, 2)
        self.layers = nn.ModuleList(nn.Linear(size, size) for _ in range(layers))
        norms = NoNorm.Config() if norm == "none" else LayerNorm.Config()
        self.norms = nn.ModuleList(norms.build(size) for _ in range(layers + 1))
        for module in self.modules():
            if isinstance(module, nn.Linear) and module is not self.last:
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                nn.init.zeros_(module.bias)
                module.weight.data.mul_(1.0 if module is self.first else scale)

    def forward(self, points: Tensor) -> Tensor:
        x = self.first(points)
        for layer, norm in zip(self.layers, self.norms, strict=False):
            if self.norm == "post":
                x = norm(self.carried * x + F.relu(layer(x)))
            else:
                x = self.carried * x + F.relu(layer(norm(x)))
        result: Tensor = self.last(self.norms[-1](x) if self.norm == "pre" else x)
        return result


def spirals(count: int = 100) -> tuple[Tensor, Tensor]:
    """Return the points of two spirals (2 N, 2), and which of the two each belongs to."""
    random = torch.Generator().manual_seed(3)
    turn = torch.rand(count, generator=random).sqrt() * 6.6 + 0.6
    spiral = torch.stack([turn * turn.cos(), turn * turn.sin()], dim=1) / 7
    points = torch.cat([spiral, -spiral])
    noise = 0.03 * torch.randn(points.shape, generator=random)
    return points + noise, torch.arange(2).repeat_interleave(count)


def loss_of(model: nn.Module) -> float:
    """Return the loss on the spirals."""
    points, classes = spirals()
    return F.cross_entropy(model(points), classes).item()


def losses_of(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> list[float]:
    """Return the loss on the spirals before each step, with all points in one batch."""
    points, classes = spirals()
    return [descend(F.cross_entropy(model(points), classes), optimizer) for _ in range(steps)]


def descend(loss: Tensor, optimizer: torch.optim.Optimizer) -> float:
    """Take a step against the gradient of a loss, and return the loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def train_landscapes(layers: int = 20, steps: int = 300, points: int = 49) -> Planes:
    """Return losses around a deep network with residual connections, and around one without."""
    result = Planes()
    for name, carried, scale in (("residual", 1.0, layers**-0.5), ("plain", 0.0, 1.0)):
        torch.manual_seed(1)
        model = Deep(layers, carried, scale)
        losses_of(model, torch.optim.Adam(model.parameters(), lr=0.003), steps)
        result[name] = [rounded(row) for row in surface(model, partial(loss_of, model), points)]
    return result


TRAINED = {  # a norm and a rate by the name of its curve
    "no norm, rate\xa00.003": ("none", 0.003), "no norm, rate\xa00.0003": ("none", 0.0003),
    "post-norm, rate\xa00.03": ("post", 0.03), "pre-norm, rate\xa00.03": ("pre", 0.03),
}  # fmt: skip


def train_norms(layers: int = 16, steps: int = 120) -> Curves:
    """Return losses of runs that differ only in norm and rate."""
    result = Curves()
    for name, (norm, rate) in TRAINED.items():
        torch.manual_seed(1)
        model = Deep(layers, norm=norm)
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
        result[name] = rounded(losses_of(model, optimizer, steps))
    return result


WORDS: dict[str, list[str]] = TABLES["coreference"]
FORMS = WORDS["forms"]


def sentences() -> list[tuple[str, str, bool]]:
    """Return each sentence, what "it" is in it, and whether its pair of nouns is held out."""
    return [
        (form.format(animal, place, word), animal if word in WORDS["felt"] else place,
         (i + k) % 6 == 0)
        for (i, animal), (k, place) in product(
            enumerate(WORDS["living"]), enumerate(WORDS["places"]))
        for word, form in product((*WORDS["felt"], *WORDS["seen"]), FORMS)
    ]  # fmt: skip


def train_coreference(steps: int = 300) -> Coreference:
    """Return weights of "it" in a Transformer that learns to predict the noun meant at "it"."""
    made = sentences()
    names = sorted({word for text, _, _ in made for word in text.split()})
    known = [k for k, (_, _, is_held) in enumerate(made) if not is_held]
    held = [k for k, (_, _, is_held) in enumerate(made) if is_held]
    ids = torch.tensor([[names.index(word) for word in text.split()] for text, _, _ in made])
    nouns = torch.tensor([names.index(noun) for _, noun, _ in made])
    torch.manual_seed(1)
    shape = {"num_layers": 2, "num_heads": 2, "hidden_size": 32, "dropout": 0.0}
    model = TransformerEncoder.Config.parse(shape).build(Tokens(len(names)))
    output = nn.Linear(32, len(names))
    optimizer = torch.optim.Adam([*model.parameters(), *output.parameters()], lr=0.003)
    random, places = torch.Generator().manual_seed(1), torch.tensor(known)
    for _ in range(steps):
        batch = places[torch.randint(len(known), (64,), generator=random)]
        descend(F.cross_entropy(output(model(ids[batch]).values[:, IT]), nouns[batch]), optimizer)
    model.eval()
    with torch.no_grad():
        right = (output(model(ids[held]).values[:, IT]).argmax(-1) == nouns[held]).double().mean()
    maps, nouns_of = dict[str, Curves](), dict[str, str]()
    for word in ("tired", "wide"):
        text = FORMS[0].format("animal", "street", word)
        sentence = torch.tensor([[names.index(each) for each in text.split()]])
        maps[text] = weights_of(model, sentence)
        with torch.no_grad():
            nouns_of[text] = names[int(output(model(sentence).values[:, IT]).argmax())]
    return Coreference(
        maps=maps, nouns=nouns_of, right=right.item(), trained=len(known), held=len(held)
    )


@torch.no_grad()
def weights_of(model: nn.Module, ids: Tensor) -> dict[str, list[float | None]]:
    """Return the weights (S,) of the query at "it", for each head of each layer."""
    with capture(model) as maps:
        model(ids)
    return {
        f"{layer}.{head}": rounded(weights[IT].numpy())
        for layer, heads in enumerate(maps.values())
        for head, weights in enumerate(heads[0])
    }
