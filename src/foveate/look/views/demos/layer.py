"""A Transformer layer in small numbers, part by part; and a picture, as patches and glimpses."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from foveate.look.draw.scene import WIDE, SceneDrawing, SceneMaker
from foveate.look.draw.sheets import SHARES, ColorScale, SheetDrawing, SheetGrid, alike, sheet
from foveate.look.views.demos import demo
from foveate.models.vision import Retina
from foveate.nn.embedding import PatchStem
from foveate.nn.feed_forward import GELU, ReLU
from foveate.nn.linear import BatchNorm, Dropout, LayerNorm
from foveate.nn.spec import Pixels

WORDS, NO = ("the", "cat", "sat"), tuple[str, ...]()
ACTIVATIONS = {"relu": ReLU, "gelu": GELU}
Part = Literal["norm", "feed-forward", "dropout", "attention", "order"]
Seed = Annotated[int, Field(ge=0, description="seed of inputs and matrices")]
Piece = tuple[str, Tensor | None]  # a matrix under its name, or a sign between two


def numbers(
    name: str, values: Tensor, rows: Sequence[str] = (), columns: Sequence[str] = ()
) -> SheetDrawing:
    """Draw a matrix with its numbers; `alike` gives several the same colours."""
    return sheet(name, values.numpy(), rows, columns, scale=ColorScale(label=" "), written=True)


def short(*shape: int) -> Tensor:
    """Return random numbers with one decimal place."""
    return torch.randn(shape).mul(8).round() / 10 + 0.0


class Chalkboard(SceneMaker):
    """Lines of matrices with their numbers, as written on a board, from left to right."""

    def line(self, y: float, pieces: Sequence[Piece], hues: Sequence[int | None] = ()) -> None:
        """Write matrices and signs; rows are words where there are as many."""
        first, narrow, sign = 92.0, 44.0, 46.0  # for the words, of a row, for a sign
        count = sum(x.shape[1] for _, x in pieces if x is not None)
        wide = min(90.0, (WIDE - first - sign * sum(x is None for _, x in pieces) - 4) / count)
        tall = max(len(x) for _, x in pieces if x is not None)
        left, number = first, len(self.stops)
        for row, word in enumerate(WORDS):
            box = (0.0, y + narrow * (row + 1), first - 8, narrow)
            self.node(f"part {number} word {row}", word, box, form="word")
        for piece, (name, x) in enumerate(pieces):
            own = f"part {number} {piece}"
            if x is None:
                box = (left, y + narrow * (1 + (tall - 1) / 2), sign, narrow)
                self.node(own, name, box, form="label")
                left += sign
                continue
            room = max(wide * x.shape[1], 17.0 * len(name))
            box = (left + wide * x.shape[1] / 2 - room / 2, y, room, narrow)
            self.node(f"{own} name", name, box, form="label")
            digits = 1 if torch.allclose(x, x.mul(10).round() / 10, atol=1e-6) else 2
            for (row, column), value in np.ndenumerate(x.numpy()):
                hue = hues[piece] if piece < len(hues) else None
                hue = {ROWS: row, COLUMNS: column}.get(hue, hue)
                box = (left + wide * column, y + narrow * (row + 1), wide, narrow)
                text = "" if value == 0 and "LU" in name else f"{value:.{digits}f}".replace("-", "−")
                more = {"texts": [text], "hue": hue, "level": 0.0 if hue is None else 0.25}
                self.node(f"{own} {row} {column}", "", box, **more)
            left += wide * x.shape[1]

    def told(self, name: str, caption: str) -> None:
        """Stop at the last line, and at those before it."""
        lit = [f"part {number}" for number in range(len(self.stops) + 1)]
        self.stop(name, caption, [], lit=lit)

    def branch(self, left: float, title: str, boxes: Sequence[str], place: int) -> None:
        """Draw x + f(x) from below; the norm is inside the branch, or after the sum."""
        tops, stream = (330.0, 220.0, 100.0), left + 90
        self.node(f"{title} name", title, (left, 506, 480, 44), form="label")
        self.node(f"{title} x", "x", (stream - 30, 446, 60, 44), form="label")
        self.node(f"{title} y", boxes[2], (stream - 90, 4, 460, 44), form="label")
        self.edge(f"{title} stream", (stream, 446), (stream, 52))
        names = ["norm", "f"] if place == 0 else ["f", "norm"]
        for y, name in zip(tops[:2] if place == 0 else (275.0, 100.0), names, strict=True):
            x = stream + 120 if name == "f" or place == 0 else stream - 90
            hue = 1 if name == "f" else 3
            self.node(f"{title} {name}", name, (x, y, 180, 64), hue=hue, level=0.25)
        up, low, middle = (184.0, 420.0, stream + 210) if place == 0 else (220.0, 400.0, stream + 210)
        bottom, top = (394.0, 220.0) if place == 0 else (339.0, 275.0)
        self.edge(f"{title} in", (stream, low), (middle, low), (middle, bottom))
        if place == 0:
            self.edge(f"{title} between", (middle, 330), (middle, 284))
        self.edge(f"{title} out", (middle, top), (middle, up), (stream + 22, up))
        self.node(f"{title} plus", "+", (stream - 22, up - 22, 44, 44), form="plus")


ROWS, COLUMNS = -1, -2  # hues: another for each row, for each column


@demo
@torch.no_grad()
def block(
    part: Annotated[Part, Field(description="part of the layer")] = "feed-forward",
    activation: Annotated[Literal["relu", "gelu"], Field(description="of feed-forward")] = "relu",
    drop: Annotated[float, Field(ge=0, lt=1, description="share that dropout sets to 0")] = 0.5,
    seed: Seed = 98,
) -> SceneDrawing:
    """Draw a part of a layer for three words, every number of it; or where its norm is."""
    torch.manual_seed(seed)
    made, x = Chalkboard(), short(3, 3)
    if part == "feed-forward":
        _feed_forward(made, x, ACTIVATIONS[activation])
    elif part == "norm":
        norm, batch = LayerNorm(LayerNorm.Config(), 3)(x), BatchNorm(BatchNorm.Config(), 3)(x)
        mean, variance = x.mean(1, True), x.var(1, False, keepdim=True)
        pieces: list[Piece] = [("x", x), ("→", None), ("μ", mean), (",", None), ("σ²", variance)]
        made.line(0, [*pieces, ("→", None), ("layer norm", norm)], [ROWS] * 7)
        made.told("layer norm", "Layer norm: μ and σ² of the numbers of one word, each row alone.")
        mean, variance = x.mean(0, True), x.var(0, False, keepdim=True)
        pieces = [("x", x), ("→", None), ("μ", mean), (",", None), ("σ²", variance)]
        made.line(290, [*pieces, ("→", None), ("batch norm", batch)], [COLUMNS] * 7)
        made.told("batch norm", "Batch norm: μ and σ² of one number over all words of a batch, each "
                  "column alone.")  # fmt: skip
    elif part == "dropout":
        changed = short(3, 3)
        dropped = Dropout(drop)(changed)
        share = f" ÷ {1 - drop:g}"
        pieces = [("f(x)", changed), ("→", None), ("dropout(f(x))", dropped)]
        made.line(0, pieces, [1, None, 1])
        made.told("dropout", f"Some numbers of f(x) become 0, the others are{share}.")
        pieces = [("x", x), ("+", None), ("dropout(f(x))", dropped), ("=", None), ("sum", x + dropped)]
        made.line(290, pieces, [0, None, 1, None, 2])
        made.told("sum", f"Some numbers of f(x) become 0, the others are{share}; x is not changed.")
    elif part == "attention":
        _attention(made)
    else:
        made.branch(60, "pre-norm", ("norm", "f", "x + f(norm(x))"), 0)
        made.branch(700, "post-norm", ("f", "norm", "norm(x + f(x))"), 1)
        made.stop("order", "Pre-norm: the sum reaches the top unchanged. Post-norm (2017): each "
                  "sum is normalised again.", ["stream"])  # fmt: skip
    made.stops.sort(key=lambda stop: -len(stop.lit))  # all of it first
    return made.drawing(f"A layer in small numbers: {part}")


def _feed_forward(made: Chalkboard, x: Tensor, kind: type[ReLU] | type[GELU]) -> None:
    forward = kind(kind.Config(), 3, 4)
    for weight in forward.parameters():
        weight.copy_(short(*weight.shape))
    z, y = forward.inner(x), forward(x)
    biases = [part.bias[None] for part in (forward.inner, forward.outer) if part.bias is not None]
    pieces: list[Piece] = [("x", x), ("·", None), ("W_1", forward.inner.weight.T), ("+", None)]
    pieces += [("b_1", biases[0]), ("=", None), ("z", z)]
    made.line(0, pieces, [0, None, 5, None, 5, None, 1])
    made.told("inner layer", "Inner layer, wider: z = x W_1 + b_1, the same W_1 for every word.")
    name, a = kind.__name__, forward.activate(z)
    pieces = [(f"a = {name}(z)", a), ("·", None), ("W_2", forward.outer.weight.T), ("+", None)]
    made.line(290, [*pieces, ("b_2", biases[1]), ("=", None), ("y", y)], [1, None, 5, None, 5, None, 2])
    made.told("outer layer", f"Each row is a word: x W_1 + b_1 = z, a = {name}(z), a W_2 + b_2 = y.")


def _attention(made: Chalkboard) -> None:
    """Write e_i = s · h_i, α = softmax(e), a = Σ_i α_i h_i and [a; s] for three states."""
    state, memory = torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    score = memory @ state.T
    weights = score.softmax(dim=0)
    mean = weights.T @ memory
    made.line(0, [("h_i", memory), ("·", None), ("s", state), ("=", None), ("e_i", score)],
              [0, None, 1, None, 5])  # fmt: skip
    made.told("scores", "1. A score for each state: e_i = s · h_i.")
    made.line(290, [("α_i", weights), ("·", None), ("h_i", memory), ("→", None), ("a", mean),
                    ("→", None), ("[a; s]", torch.cat((mean, state), dim=1))],
              [5, None, 0, None, 2, None, 3])  # fmt: skip
    made.told("output", "1. e_i = s · h_i. 2. α = softmax(e). 3. a = Σ_i α_i h_i. 4. Joined: [a; s].")


@demo
@torch.no_grad()
def mixing(seed: Seed = 2) -> SheetGrid:
    """Draw α = softmax(W_a h′ + b_a), c = Hᵀ α, z = ReLU(W_c [x; c] + b_c), h′ = [s; x].

    The states H of three words have two numbers each, as have s and x. No key is read: row i of
    W_a scores position i (Luong et al., 2015).
    """
    torch.manual_seed(seed)
    state, x, memory = short(1, 2), short(1, 2), short(3, 2)
    of_places, of_context = torch.nn.Linear(4, 3), torch.nn.Linear(4, 2)
    for weight in (*of_places.parameters(), *of_context.parameters()):
        weight.copy_(short(*weight.shape))
    read = torch.cat((state, x), dim=1)
    affine = of_places(read)
    weights = affine.softmax(dim=1)
    context = weights @ memory
    both = torch.cat((x, context), dim=1)
    made: list[tuple[str, Tensor, Sequence[str], Sequence[str]]] = [
        ("h′ = [s; x]", read, NO, ("s", "s", "x", "x")),
        ("W_a h′ + b_a", affine, NO, WORDS),
        ("α = softmax(…)", weights, NO, NO),
        ("H, the encoder's states", memory, WORDS, NO),
        ("c = Hᵀ α", context, NO, NO),
        ("z = ReLU(…)", of_context(both).relu(), NO, NO),
    ]
    return SheetGrid(
        sheets=alike([numbers(*each) for each in made]), across=3,
        title="Attention as layers: affine scores by position, and a ReLU mix",
        caption="The scores depend only on the decoder's state and the previous word; no key is "
        "read. An affine layer with a ReLU mixes the word and the context.",
    )  # fmt: skip


SIDE, FEATURES, SCALES = 16, 8, 3
Place = Annotated[float, Field(ge=-1, le=1, description="centre of the glimpse, −1 to 1")]


def nine() -> Tensor:
    """Return a 9 in 16 × 16 pixels: a ring and a stem."""
    down, across = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    ring = 1.6 - ((across - 7).float().hypot((down - 5).float()) - 3).abs()
    stem = (1.6 - (across - 10.0).abs()) * ((down >= 5) & (down <= 13))
    return torch.maximum(ring, stem).clamp(0, 1)


@demo
@torch.no_grad()
def pixels(
    part: Annotated[Literal["patches", "glimpses"], Field(description="what to show")] = "patches",
    patch_size: Annotated[int, Field(ge=2, le=8, description="pixels per side of a patch")] = 4,
    x: Place = 0.3,
    y: Place = -0.4,
) -> SheetGrid:
    """Draw a picture as the tokens of a Vision Transformer, or as the patches of one glimpse."""
    torch.manual_seed(0)
    picture, grey = nine(), partial(sheet, scale=SHARES)
    whole = grey("picture, 16 × 16", picture.numpy())
    if part == "glimpses":
        retina = Retina(patch_size, SCALES)
        seen = retina(retina.pyramid(picture[None, None]), torch.tensor([[x, y]]))[0, :, 0]
        patches = [grey(f"{patch_size * 2**k} pixels wide", v.numpy()) for k, v in enumerate(seen)]
        middle = ((y + 1) / 2 * SIDE - 0.5, (x + 1) / 2 * SIDE - 0.5)
        return SheetGrid(
            sheets=[whole.model_copy(update={"dots": [middle]}), *patches], across=4,
            title=f"One glimpse at ({x:g}, {y:g})",
            caption="The patches around the dot have equally many numbers, but each is twice as "
            "wide as the one before: sharp in the middle, coarse around it. The next location is "
            "chosen from what was seen (Mnih et al., 2014).",
        )  # fmt: skip
    stem = PatchStem(PatchStem.Config(patch_size=patch_size), Pixels(1, SIDE, SIDE), FEATURES)
    rows = picture.unfold(0, patch_size, patch_size).unfold(1, patch_size, patch_size)
    rows = rows.flatten(2).flatten(0, 1)  # (T, P·P)
    tokens = sheet(
        f"× E: tokens of size {FEATURES}", stem(picture[None, None])[0].numpy(), aspect=0.5
    )
    return SheetGrid(
        sheets=[whole, grey(f"{len(rows)} patches as rows", rows.numpy()), tokens], across=3,
        title="A picture as a sequence of patches",
        caption="The picture is cut into patches, row by row; each is a row of numbers, which E "
        "maps to a token. The encoder reads these tokens with positions (Dosovitskiy et al., "
        "2020). Here E is random.",
    )  # fmt: skip
