"""A Transformer layer in small numbers, part by part; and a picture, as patches and glimpses."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from foveate.look.draw.scene import WIDE, SceneDrawing, SceneMaker
from foveate.look.draw.sheets import SHARES, ColorScale, SheetDrawing, SheetGrid, alike, sheet
from foveate.look.views.demos import demo
from foveate.models.vision import Retina
from foveate.nn.embedding import PatchStem
from foveate.nn.feed_forward import GELU, FeedForward, ReLU
from foveate.nn.linear import BatchNorm, Dropout, LayerNorm
from foveate.nn.spec import Pixels

WORDS, NO = ("the", "cat", "sat"), tuple[str, ...]()
ACTIVATIONS: dict[str, type[FeedForward]] = {"relu": ReLU, "gelu": GELU}
Part = Literal["norm", "feed-forward", "dropout", "attention", "order"]
Seed = Annotated[int, Field(ge=0, description="seed of inputs and matrices")]
Piece = tuple[str, Tensor | None, int]  # a matrix under its name, in a colour; or a sign
ROWS, COLUMNS = -1, -2  # colours: another for each row, for each column
ARROW: Piece = ("→", None, 0)
EQUALS: Piece = ("=", None, 0)


def numbers(
    name: str, values: Tensor, rows: Sequence[str] = (), columns: Sequence[str] = ()
) -> SheetDrawing:
    """Draw a matrix with its numbers; `alike` gives several the same colours."""
    return sheet(name, values.numpy(), rows, columns, scale=ColorScale(label=" "), written=True)


def short(*shape: int) -> Tensor:
    """Return random numbers with one decimal place."""
    return torch.randn(shape).mul(8).round() / 10 + 0.0


class Chalkboard(SceneMaker):
    """Lines of matrices with their numbers, as written on a board."""

    def line(self, caption: str, *pieces: Piece) -> None:
        """Write matrices and signs from left to right, and a stop at all lines so far.

        The first rows are words.
        """
        first, high, sign, number = 92.0, 44.0, 46.0, len(self.stops)
        columns = sum(x.shape[1] for _, x, _ in pieces if x is not None)
        signs = sign * sum(x is None for _, x, _ in pieces)
        wide = min(110.0, (WIDE - first - signs - 4) / columns)
        y, left = 290.0 * number, first
        for row, word in enumerate(WORDS):
            box = (0.0, y + high * (row + 1), first - 8, high)
            self.node(f"line {number} word {row}", word, box, form="word")
        for place, (name, x, hue) in enumerate(pieces):
            own, across = f"line {number} {place}", sign if x is None else wide * x.shape[1]
            middle, top = left + across / 2, y if x is not None else y + 2 * high
            room = max(across, 17.0 * len(name))
            self.node(f"{own} name", name, (middle - room / 2, top, room, high), form="label")
            for (row, column), value in np.ndenumerate([[]] if x is None else x.numpy()):
                box = (left + wide * column, y + high * (row + 1), wide, high)
                by_place = {ROWS: row, COLUMNS: column}.get(hue, hue)
                text = "0" if value == 0 and "LU" in name else f"{value:.{_digits(x)}f}"
                texts = [text.replace("-", "−")]
                self.node(f"{own} {row} {column}", "", box, texts=texts, hue=by_place, level=0.25)
            left += across
        lit = [f"line {k}" for k in range(number + 1)]
        self.stop(f"line {number + 1}", caption, [], lit=lit)

    def branch(self, left: float, title: str, result: str, pre: bool) -> None:
        """Draw a residual branch from below; its norm is inside, or after the sum."""
        stream, middle = left + 90, left + 300
        places = {"norm": 330.0 if pre else 100.0, "f": 220.0 if pre else 275.0}
        low, high = (420.0, 184.0) if pre else (400.0, 220.0)
        texts = (title, (left, 506, 480, 44)), ("x", (left + 60, 446, 60, 44))
        for text, box in (*texts, (result, (left, 4, 460, 44))):
            self.node(f"{title} {text}", text, box, form="label")
        self.edge(f"{title} stream", (stream, 446), (stream, 52))
        for name, y in places.items():
            x, hue = middle if pre or name == "f" else stream, 1 if name == "f" else 3
            self.node(f"{title} box {name}", name, (x - 90, y, 180, 64), hue=hue, level=0.25)
        enter = places["norm" if pre else "f"] + 64
        self.edge(f"{title} in", (stream, low), (middle, low), (middle, enter))
        if pre:
            self.edge(f"{title} between", (middle, places["norm"]), (middle, places["f"] + 64))
        self.edge(f"{title} out", (middle, places["f"]), (middle, high), (stream + 22, high))
        self.node(f"{title} plus", "+", (stream - 22, high - 22, 44, 44), form="plus")


def _digits(x: Tensor | None) -> int:
    """Return how many digits after the point the numbers of a matrix need, 2 at most."""
    return 2 if x is None or not torch.allclose(x, x.mul(10).round() / 10, atol=1e-6) else 1


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
        _norms(made, x)
    elif part == "dropout":
        changed = short(3, 3)
        dropped, name = Dropout(drop)(changed), "dropout(f(x))"
        text = f"Some numbers of f(x) become 0, the others are divided by {1 - drop:g}."
        made.line(text, ("f(x)", changed, 1), ARROW, (name, dropped, 1))
        pieces: list[Piece] = [("x", x, 0), ("+", None, 0), (name, dropped, 1), EQUALS]
        made.line(f"{text} x is not changed.", *pieces, (f"x + {name}", x + dropped, 2))
    elif part == "attention":
        _attention(made)
    else:
        made.branch(60, "pre-norm", "x + f(norm(x))", True)
        made.branch(700, "post-norm", "norm(x + f(x))", False)
        text = "Pre-norm: nothing but sums on the way up. Post-norm (2017): each sum is normalised."
        made.stop("order", text, ["stream"])
    stops, caption = made.stops[::-1], "Inputs and matrices are random, with one digit."
    return made.drawing(f"A layer in small numbers: {part}", stops, caption)  # all of it first


def _norms(made: Chalkboard, x: Tensor) -> None:
    layer, batch = LayerNorm(LayerNorm.Config(), 3)(x), BatchNorm(BatchNorm.Config(), 3)(x)
    for dim, name, y, hue, text in (
        (1, "Layer norm", layer, ROWS, "each row, the numbers of one word"),
        (0, "Batch norm", batch, COLUMNS, "each column, one number of all words of a batch"),
    ):
        mean, variance = x.mean(dim, True), x.var(dim, False, keepdim=True)
        pieces: list[Piece] = [("x", x, hue), ARROW, ("μ", mean, hue), (",", None, 0)]
        pieces += [("σ²", variance, hue), ARROW, (name.lower(), y, hue)]
        made.line(f"{name}: μ and σ² of {text}.", *pieces)


def _feed_forward(made: Chalkboard, x: Tensor, kind: type[FeedForward]) -> None:
    x, forward, name = x[:, :2], kind(kind.Config(), 2, 3), kind.__name__
    for weight in forward.parameters():
        weight.copy_(short(*weight.shape))
    z = forward.inner(x)
    text = "Rows are words, all with the same matrices."
    steps: list[tuple[str, str, Tensor, nn.Linear, str, Tensor]] = [
        (text, "x", x, forward.inner, "z", z),
        (text, f"a = {name}(z)", forward.activate(z), forward.outer, "y",
         forward(x)),
    ]  # fmt: skip
    for number, (caption, of, read, part, to, y) in enumerate(steps, start=1):
        pieces: list[Piece] = [(of, read, number - 1), ("·", None, 0)]
        pieces += [(f"W_{number}", part.weight.T, 5), ("+", None, 0)]
        pieces += [(f"b_{number}", part.bias[None], 5), EQUALS, (to, y, number)]
        made.line(caption, *pieces)


def _attention(made: Chalkboard) -> None:
    """Write e_i = s · h_i, α = softmax(e), a = Σ_i α_i h_i and [a; s] for three states."""
    state, memory = torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    score, times = memory @ state.T, ("·", None, 0)
    weights = score.softmax(dim=0)
    mean = weights.T @ memory
    text = "1. Scores, 2. weights: a decoder's state s asks the encoder's states h_i"
    pieces: list[Piece] = [("h_i", memory, 0), times, ("s", state, 1), EQUALS]
    pieces += [("1. e_i", score, 5), ARROW]
    made.line(f"{text}.", *pieces, ("2. α_i", weights, 5))
    text = "Softmax turns the scores e_i into weights α_i; the output reads [a; s]."
    pieces = [("α_i", weights, 5), times, ("h_i", memory, 0), EQUALS, ("3. a", mean, 2)]
    made.line(text, *pieces, ARROW, ("4. [a; s]", torch.cat((mean, state), dim=1), 3))


@demo
@torch.no_grad()
def mixing(seed: Seed = 2) -> SheetGrid:
    """Draw α = softmax(W_a h′ + b_a), c = Hᵀ α, z = ReLU(W_c [x; c] + b_c), h′ = [s; x].

    The states H of three words have two numbers each, as have s and x. No key is read: row i of
    W_a scores position i (Luong et al., 2015).
    """
    torch.manual_seed(seed)
    state, x, memory = short(1, 2), short(1, 2), short(3, 2)
    of_places, of_context = nn.Linear(4, 3), nn.Linear(4, 2)
    for weight in (*of_places.parameters(), *of_context.parameters()):
        weight.copy_(short(*weight.shape))
    read = torch.cat((state, x), dim=1)
    affine = of_places(read)
    weights = affine.softmax(dim=1)
    context = weights @ memory
    both = torch.cat((x, context), dim=1)
    made: list[tuple[str, Tensor, Sequence[str], Sequence[str]]] = [
        ("h′ = [s; x]", read, NO, ("s", "s", "x", "x")),
        ("→ W_a h′ + b_a", affine, NO, WORDS),
        ("→ α = softmax(…)", weights, NO, WORDS),
        ("H, the encoder's states", memory, WORDS, NO),
        ("→ c = Hᵀ α", context, NO, NO),
        ("→ z = ReLU(W_c [x; c] + b_c)", of_context(both).relu(), NO, NO),
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
        frames = [(*(at - patch_size * 2**k / 2 + 0.5 for at in middle), *[patch_size * 2**k] * 2)
                  for k in range(SCALES)]  # fmt: skip
        return SheetGrid(
            sheets=[whole.model_copy(update={"dots": [middle], "outlines": frames}), *patches],
            across=4,
            title=f"One glimpse at ({x:g}, {y:g})",
            caption="Equally many numbers in each frame: sharp in the middle, coarse around it. "
            "The next location is chosen from what was seen (Mnih et al., 2014).",
        )  # fmt: skip
    stem = PatchStem(PatchStem.Config(patch_size=patch_size), Pixels(1, SIDE, SIDE), FEATURES)
    rows = picture.unfold(0, patch_size, patch_size).unfold(1, patch_size, patch_size)
    rows = rows.flatten(2).flatten(0, 1)  # (T, P·P)
    corners = range(0, SIDE, patch_size)
    whole = whole.model_copy(update={"outlines": [
        (y, x, patch_size, patch_size) for y in corners for x in corners
    ]})  # fmt: skip
    title = f"{len(rows)} patches p_i, as rows"
    patches_of = grey(title, rows.numpy(), down="patch i", across="pixel")
    tokens = sheet(
        f"x_i = E p_i + b, {FEATURES} numbers", stem(picture[None, None])[0].numpy(), aspect=0.5
    )
    return SheetGrid(
        sheets=[whole, patches_of, tokens], across=3,
        title="A picture as a sequence of patches",
        caption="Each patch is a row of numbers, which E, random here, maps to a token. The "
        "encoder reads these tokens with positions (Dosovitskiy et al., 2020).",
    )  # fmt: skip
