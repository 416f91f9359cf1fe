"""A Transformer layer in small numbers, part by part; and a picture, as patches and glimpses."""

from itertools import product
from typing import Annotated, Literal, TypeVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from foveate.look.draw.colors import Hue
from foveate.look.draw.scene import WIDE, Box, SceneDrawing, SceneMaker
from foveate.look.views.demos import TABLES, demo
from foveate.models.vision import Retina
from foveate.nn.embedding import PatchStem
from foveate.nn.linear import GELU, BatchNorm, Dropout, FeedForward, LayerNorm, ReLU
from foveate.nn.positions import Sinusoidal
from foveate.nn.spec import Pixels

WORDS = "the", "cat", "sat"
ACTIVATIONS: dict[str, type[FeedForward]] = {"relu": ReLU, "gelu": GELU}
Part = Literal["norm", "feed-forward", "layers", "dropout", "attention", "projections", "line",
               "mask", "mean", "order", "positions", "permuted", "causal", "repairs"]  # fmt: skip
Seed = Annotated[int, Field(ge=0, description="seed of inputs and matrices")]
Piece = tuple[str, Tensor, int | None] | str  # a matrix under its name, in a colour; or a sign
ROWS, COLUMNS = -1, -2  # colours: another for each word, for each column
Layer = TypeVar("Layer", bound=nn.Module)


def short(*shape: int) -> Tensor:
    """Return random numbers with one decimal place."""
    return torch.randn(shape).mul(8).round() / 10 + 0.0


class Chalkboard(SceneMaker):
    """Lines of matrices with their numbers, as written on a board."""

    pitch = 290.0  # from line to line
    words: tuple[str, ...] = WORDS  # of the rows
    over = 0.0  # height of the words over square matrices
    columns, lines = 0, 0  # of the longest line; of the board
    first = 78.0  # left of the matrices; if wider, rows and columns are named

    def line(self, *pieces: Piece) -> None:
        """Write matrices and signs from left to right, below the lines so far.

        The first rows are words, and those after blanks. What is 0, or negative in z, is white;
        masked is grey.
        """
        first, sign, number = self.first, 40.0, self.lines
        high = min(60.0, (self.pitch - 10) / 4)
        matrices = [piece[1] for piece in pieces if not isinstance(piece, str)]
        share = {0: 0.7} if sum(x.shape[1] for x in matrices) > 8 else {}  # of whole numbers
        parts = sum(x.shape[1] * share.get(_digits(x), 1.0) for x in matrices)
        signs = sign * sum(len(piece) for piece in pieces if isinstance(piece, str))
        unit = (WIDE - first - signs - 4) / max(parts, self.columns)
        top, left, name = self.pitch * number + 49 + self.over, first, " "
        for text, up in (("key j →", 76), ("query i ↓", 35)) * (first > 100):
            self.label(f"line {number} {text}", text, (0, top - up, first - 4, 38))
        for place, piece in enumerate(pieces):  # a sign has no columns
            before = name
            name, x, hue = (piece, torch.zeros(1, 0), 0) if isinstance(piece, str) else piece
            wide = min(150.0, unit * share.get(_digits(x), 1.0))
            own, across = f"line {number} {place}", wide * x.shape[1] or sign * len(name)
            down = top + high * (len(WORDS) - len(x)) / 2
            for row, word in enumerate(self.words * (len(x) == 3 and before[-1] == " ")):
                box = left - 74, top + high * row, 66.0, high
                self.node(f"{own} word {row}", word, box, form="word")
            keys = self.over * (x.shape[1] == 3)
            for column, word in enumerate(self.words * bool(keys)):
                box = left + wide * column, down - keys - 5, wide, keys
                self.node(f"{own} key {column}", word, box, form="word")
            room, over = max(across, 17.0 * len(name)), (49.0 + keys) * (x.shape[1] > 0)
            start = min(left + (across - room) / 2, WIDE - room) if over else left
            box = (start, down - over, room if over else sign, min(44.0, over) or high)
            self.label(f"{own} name", name.strip(), box)
            for (row, column), value in np.ndenumerate(x.numpy()):
                box = (left + wide * column, down + high * row, wide, high)
                hues = {ROWS: WORDS.index(self.words[row % 3]), COLUMNS: column}
                hidden = np.isinf(value) or (not value and name.startswith(("exp(", "α")))
                lost = value <= 0 if name[0] in "za" else not value and name[0] == "d"
                own_hue = None if hidden else hues.get(hue or 0, hue)
                fill = {"hue": own_hue, "level": 0.3 * (hidden or not (lost or hue is None))}
                text = f"{round(float(value), 2) + 0.0:.{_digits(x)}f}"
                texts = [text.replace("-", "−").replace("inf", "∞")]
                self.node(f"{own} {row} {column}", "", box, texts=texts, **fill)
            left += across
        self.lines += 1

    def on(self, text: str, start: str, end: str) -> None:
        """Draw an arrow from under a matrix to that below it on the next line, with its name."""
        boxes = self.boxes
        (x, y, wide, high), (u, v, across, _) = boxes[start], boxes[f"{end} name"]
        low, middle, up = y + high + 4, x + wide / 2, u + across / 2
        down = min(low + 40, v - 12)
        self.edge(f"{end} on", (middle, low), (middle, down), (up, down), (up, v + 4), tag="")
        self.label(f"{end} on name", text, ((middle + up) / 2 - 250, down - 44, 500.0, 40.0))

    def frame(self, *names: str) -> None:
        """Frame cells whose names begin with one of some, grey ones in orange: a row, or a cell."""
        for name in names:
            cells = [n for n in self.nodes if f"{n.name} ".startswith(f"{name} ")]
            (x, y, *_), (u, _, wide, high), hue = cells[0].box, cells[-1].box, cells[0].hue
            box, hue = (x, y, u + wide - x, high), 1 if hue == Hue.LAYER else hue
            self.node(f"{name} frame", "", box, form="frame", hue=hue)

    def product(self, x: Piece, of: str, by: nn.Linear, y: Piece, hue: int = 5) -> None:
        """Write x W + b = y."""
        weight, bias = (f"W_{of}", by.weight.T, hue), (f"b_{of}", by.bias[None], hue)
        self.line(x, "×", weight, "+", bias, "=", y)

    def branch(self, left: float, title: str, result: str, pre: bool) -> None:
        """Draw a residual branch from below; its norm is inside, or after the sum."""
        stream, middle = left + 90, left + 330
        places = {"norm": 364.0 if pre else 124.0, "f": 266.0}
        low, high = 448.0, 230.0
        self.label(title, title, (left - 80, 0, 580, 44))
        for text, y in (result, 62.0), ("x", 510.0):
            self.label(f"{title} {text}", text, (stream - 170, y, 340, 44))
        self.edge(f"{title} stream", (stream, 510), (stream, 110), hue=2)
        for name, y in places.items():
            x, hue = middle if pre or name == "f" else stream, 4 if name == "f" else 3
            place, label = (x - 170, y, 340, 64), name + ": attention or FFN" * (name == "f")
            self.node(f"{title} box {name}", label, place, hue=hue, level=0.25)
        enter = places["norm" if pre else "f"] + 64
        self.edge(f"{title} in", (stream, low), (middle, low), (middle, enter))
        if pre:
            self.edge(f"{title} between", (middle, places["norm"]), (middle, places["f"] + 64))
        self.edge(f"{title} out", (middle, places["f"]), (middle, high), (stream + 22, high))
        self.node(f"{title} plus", "+", (stream - 22, high - 22, 44, 44), form="plus")


def _repairs(made: Chalkboard) -> None:
    """Draw a layer from below as a stream with a box for each repair, and what it repairs."""
    made.edge("stream", (60, 556), (60, 4))
    names, hues, losses = TABLES["repairs"].values()
    made.node("heads", "", (150, 154, 330, 240), hue=hues[2], level=0.1)
    for number, (name, hue, text) in enumerate(zip(names, hues, losses, strict=True)):
        y = 434.0 - 140 * number
        if name == "several heads":
            made.label(name, name, (150, y + 28, 330, 44))
        else:
            box = (170, y, 290, 84) if name == "mask" else (150, y, 330, 100)
            made.node(name, name, box, hue=hue, level=0.25)
        made.label(f"{name} why", text, (520, y + 28, 720, 44), level=1)
        if name != "mask":
            made.edge(f"{name} out", (150, y + 24), (82, y + 24))
            made.node(f"{name} plus", "+", (38, y + 2, 44, 44), form="plus")
        if name in ("feed-forward", "mask"):
            made.edge(f"{name} in", (60, y + 78), (150, y + 78))


def _digits(x: Tensor) -> int:
    """Return how many digits after the point the numbers of a matrix need, 2 at most."""
    x = x.nan_to_num(posinf=0, neginf=0)
    return next((k for k in (0, 1) if torch.allclose(x, x.round(decimals=k), atol=1e-6)), 2)


def filled(module: Layer) -> Layer:
    """Return a module with random numbers of one decimal place."""
    for weight in module.parameters():
        weight.copy_(short(*weight.shape))
    return module


@demo
@torch.no_grad()
def block(
    part: Annotated[Part, Field(description="part of the layer")] = "feed-forward",
    activation: Annotated[Literal["relu", "gelu"], Field(description="activation")] = "relu",
    drop: Annotated[float, Field(ge=0, lt=1, description="share that dropout sets to 0")] = 0.5,
    seed: Seed = 2893,
) -> SceneDrawing:
    """Draw a part of a layer for three words, every number of it; or where its norm is."""
    torch.manual_seed(seed)
    made, x = Chalkboard(), short(3, 3)
    bend = "max(0, z)" if activation == "relu" else f"{activation.upper()}(z)"
    if part == "feed-forward":
        _feed_forward(made, torch.randn(3, 2).round() + 0.0, ACTIVATIONS[activation], bend)
    elif part == "norm":
        _norms(made, x)
    elif part == "dropout":
        changed = short(3, 3)
        dropped, name = Dropout(drop)(changed), "dropout(f(x))"
        made.line(("f(x)", changed, 1), "→", (name, dropped, 1))
        result = f"x + {name}", x + dropped, 3
        made.line(("x", x, 6), "+", (name, dropped, 1), "=", result)
        made.on("", "line 0 2 2 1", "line 1 2")
    elif part in ("attention", "mean"):
        _attention(made, part == "attention")
    elif part in ("positions", "permuted", "causal"):
        _reordered(made, part == "positions", part == "causal")
    elif part in ("line", "mask"):
        _attend(made, part == "mask")
    elif part == "repairs":
        _repairs(made)
    elif part == "layers":
        _layers(made, torch.randn(3, 2).round() + 0.0)
    elif part == "projections":
        made.pitch = 186.0
        x = torch.randn(3, 3).round() + 0.0
        for k, (letter, hue) in enumerate((("Q", 1), ("K", 0), ("V", 2))):
            affine = filled(nn.Linear(3, 2))
            made.product(("x", x, 6), letter, affine, (letter.lower(), affine(x), hue), hue)
            made.frame(f"line {k} 0 0", f"line {k} 6 0")
    else:
        made.branch(90, "pre-norm", "x + f(norm(x))", True)
        made.branch(740, "post-norm", "norm(x + f(x))", False)
    key = "attention" if part == "mean" else part
    text = TABLES["block"][key].format(drop=drop, kept=1 - drop, bend=bend)
    made.stop(part, text, ["stream"])
    caption = "Inputs and matrices are random, with one digit."
    return made.drawing(f"A layer in small numbers: {part}", caption=caption)


def _norms(made: Chalkboard, x: Tensor) -> None:
    layer, batch = LayerNorm(LayerNorm.Config(), 3)(x), BatchNorm(BatchNorm.Config(), 3)(x)
    made.columns = 9
    for dim, name, y, hue, head in (
        (1, "layer norm", layer, ROWS, "μ, σ²"),
        (0, "batch norm", batch, COLUMNS, "μ above σ²"),
    ):
        both = torch.cat((x.mean(dim, True), x.var(dim, False, keepdim=True)), dim=dim)
        made.line(("x", x, hue), "→", (head, both, hue), "→", (name, y, hue))


def _feed_forward(made: Chalkboard, x: Tensor, kind: type[FeedForward], bend: str) -> None:
    forward, is_relu = filled(kind(kind.Config(), 2, 3)), kind is ReLU
    z = forward.inner(x)
    made.product(("x", x, 6), "1", forward.inner, ("z", z, 4))
    read: Piece = (f"a = {bend}", forward.activate(z), 4)
    made.product(read, "2", forward.outer, ("FFN(x)", forward(x), 3))
    change = "negative → 0" if is_relu else "each number by itself"
    made.on(change, "line 0 6 2 1", "line 1 0")
    made.frame(*("line 0 6 1 0", "line 1 0 1 0") * (not is_relu))


def _layers(made: Chalkboard, x: Tensor) -> None:
    """Write x W_1 + b_1 of two layers, for the same x."""
    for layer, hue in enumerate((5, 3)):
        forward = filled(ReLU(ReLU.Config(), 2, 3))
        name, z, read = f", layer {layer}", forward.inner(x), ("x", "same x")[layer]
        made.product((read, x, 6), f"1{name}", forward.inner, (f"z{name}", z, None), hue)


def _attend(made: Chalkboard, masked: bool) -> None:
    """Write E = Q Kᵀ / √d_k, A = softmax(E) and C = A V; or E, a mask, and the weights."""
    made.over, made.pitch, made.columns = 34.0, 296.0, 9 * masked
    if not masked:
        q, k, v = torch.randn(3, 3, 2).round() + 0.0
        score = q @ k.T / 2**0.5
        made.line(("Q", q, 1), "×", ("Kᵀ", k.T, 0), "→", ("E = Q Kᵀ / √2", score, 5))
        weights = score.softmax(dim=-1)
        to = "Attention(Q, K, V)", weights @ v, 3
        made.line(("A", weights, 5), "×  ", ("V", v, 2), "=", to)
        made.on("softmax, row by row", "line 0 4 2 1", "line 1 0")
        made.frame("line 0 0 0", "line 0 4 0", "line 1 0 0", "line 1 4 0")
        return
    score, later, made.first = short(3, 3), torch.full((3, 3), -torch.inf).triu(1), 140.0
    hidden = score + later
    made.line(("e_ij", score, 5), "+", ("m_ij", later, None), "=", ("e_ij + m_ij", hidden, 5))
    power, total = hidden.exp(), ("sum", hidden.exp().sum(dim=-1, keepdim=True), None)
    weights = "α_ij", hidden.softmax(dim=-1), 5
    made.line(("exp(e_ij + m_ij)", power, 5), "÷", total, "=", weights)
    made.on("", "line 0 4 2 1", "line 1 0")


def _reordered(made: Chalkboard, has_positions: bool, is_causal: bool) -> None:
    """Write x + PE for words in two orders; or f(X) = X + α X W and f(P X), row by row."""
    x, w = torch.randn(3, 4 if has_positions else 2).round() + 0.0, short(2, 2)
    made.over = 0.0 if has_positions else 34.0
    vectors = Sinusoidal(Sinusoidal.Config(), 4, 1).encode(torch.arange(3), 4).float()
    alpha_of_both = "α" if is_causal else "P α Pᵀ"
    orders = ([0, 1, 2], "X;α;X W;f(X)"), ([2, 1, 0], f"P X;{alpha_of_both};P X W;f(P X)")
    for k, (p, names) in enumerate(orders):
        own, of, made.words = x[p], names.split(";"), tuple(WORDS[k] for k in p)
        if has_positions:
            total = "x + PE(t)", own + vectors, ROWS
            made.line(("x", own, ROWS), "+", ("PE(t), t = 0, 1, 2", vectors, 5), "=", total)
            made.frame(f"line {k} 0 {2 * k}", f"line {k} 4 {2 * k}")
            continue
        later = torch.ones(3, 3, dtype=torch.bool).triu(1) & is_causal
        alpha, read = (own @ own.T).masked_fill(later, -torch.inf).softmax(dim=-1), own @ w
        made.line((of[0], own, ROWS), "+", (of[1], alpha, ROWS), "×", (of[2], read, ROWS),
                  "=", (of[3], own + alpha @ read, ROWS))  # fmt: skip
        made.frame(*(f"line {k} {piece} 1" for piece in (2, 6) if is_causal))


def _attention(made: Chalkboard, has_output: bool) -> None:
    """Write e_i = s · h_i, α = softmax(e), a = Σ_i α_i h_i for three states, and maybe [a; s]."""
    state, memory = torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    score = memory @ state.T
    weights = score.softmax(dim=0)
    mean = weights.T @ memory
    made.over, made.pitch = 30.0, 296.0
    scores, alphas = ("1. e_i", score, 5), ("2. softmax: α_i", weights, 5)
    made.line(("h_i", memory, 0), "×", ("s", state.T, 1), "=", scores, "→", "  ", alphas)
    both: list[Piece] = ["→", ("4. [a; s]", torch.cat((mean, state), dim=1), 3)]
    mixed, turned = ("3. a = Σ_i α_i h_i", mean, 3), ("α_i", weights.T, 5)
    made.line(turned, "×  ", ("h_i", memory, 0), "=", mixed, *both[: 2 * has_output])
    made.on("", "line 0 7 2 0", "line 1 0")
    made.frame(*("line 1 0 0 0", "line 1 0 0 2", "line 1 2 0", "line 1 2 2"))


@demo
@torch.no_grad()
def mixing(seed: Seed = 2) -> SceneDrawing:
    """Draw α = softmax(W_a h′ + b_a), c = Hᵀ α, z = ReLU(W_c [c; x] + b_c), h′ = [s; x].

    No key is read: row i of W_a scores position i (Luong et al., 2015).
    """
    torch.manual_seed(seed)
    state, x, memory = short(1, 2), short(1, 2), short(3, 2)
    of_places, of_context = map(filled, (nn.Linear(4, 3), nn.Linear(4, 2)))
    read = torch.cat((state, x), dim=1)
    affine = of_places(read)
    weights = affine.softmax(dim=1)
    context = weights @ memory
    z = of_context(torch.cat((context, x), dim=1)).relu()
    made, written = SceneMaker(), np.vectorize("{:.2f}".format)
    lefts = 10.0, 290.0, 458.0, 640.0, 864.0, 1126.0
    halves = {"s": 50.0, "x": 285.0, "c": 50.0, "x′": 285.0}  # tops of what is concatenated
    columns: list[tuple[str, str, int, Tensor, int | None]] = [
        ("s", "h′", 0, state, 1), ("x", "", 0, x, Hue.INPUT), ("e", "e", 1, affine, None),
        ("α", "α", 2, weights, 5), ("h", "encoder h_i", 3, memory, 2),
        ("c", "[c; x]", 4, context, 3), ("x′", "", 4, x, Hue.INPUT), ("z", "z", 5, z, 0),
    ]  # fmt: skip
    for name, head, place, vectors, hue in columns:
        is_half, top = name in halves, halves.get(name, 50.0)
        box = lefts[place], top, 144.0 if is_half else 112.0, 235.0 if is_half else 470.0
        cells = written(vectors.T if len(vectors) == 1 else vectors).tolist()
        texts = [f"{name[0]} " * is_half + "\n".join(cell).replace("-", "−") for cell in cells]
        made.column(name, head, box, texts, weights[0].tolist() if name == "h" else (), hue=hue)
    for starts, end, count in ("sx", "e", 3), (("c", "x′"), "z", 2):  # all numbers, from all
        for start, i, k in product(starts, range(2), range(count)):
            made.link(f"{start} {i}", f"{end} {k}", weight=0.04)
    for name, left in ("W_a", 222.0), ("W_c", 1067.0):
        made.label(name, name, (left - 40, 0, 80, 44))
    for k, alpha in enumerate(weights[0].tolist()):
        made.link(f"e {k}", f"α {k}")
        made.label(f"by {k}", "×", (583, 110 + 470 / 3 * k, 44, 35))
        for i in range(2):
            made.link(f"h {k}", f"c {i}", weight=alpha / 2, hue=2)
    for left in lefts[0], lefts[4]:
        made.node(f"both x {left:g}", "", (left - 9, 298.0, 162.0, 208.0), form="group")
    made.edge("x on", (82, 506), (82, 550), (936, 550), (936, 506), hue=Hue.INPUT)
    caption = "The scores come from s and x alone: no key is read."
    return made.drawing("Attention as layers: affine, softmax, ReLU", caption=caption)


SIDE, FEATURES, SCALES = 16, 8, 3


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
) -> SceneDrawing:
    """Draw a picture as the tokens of a Vision Transformer, or as the patches of one glimpse."""
    torch.manual_seed(0)
    made, draw = SceneMaker(), _glimpse if part == "glimpses" else _patches
    caption = draw(made, nine(), patch_size)
    return made.drawing(f"A picture of {SIDE} × {SIDE} pixels", caption=caption)


def _raster(made: SceneMaker, name: str, numbers: Tensor, box: Box) -> None:
    """Draw each number as a pixel, from white to black; the first is in ``box``."""
    x, y, wide, high = box
    for (row, column), value in np.ndenumerate(numbers.numpy()):
        place = x + wide * column, y + high * row, wide + 2, high + 2  # without gaps
        made.node(f"{name} {row} {column}", "", place, form="pixel", level=float(value))


def _glimpse(made: SceneMaker, picture: Tensor, size: int) -> str:
    """Draw frames around the middle, what is seen in each, and the state that reads it."""
    retina, pixel, state = Retina(size, SCALES), 480.0 / SIDE, {"hue": 3, "level": 0.25}
    seen = retina(retina.pyramid(picture[None, None]), torch.zeros(1, 2))[0, :, 0]
    _raster(made, "picture", picture, (6, 60, pixel, pixel))
    for k, (patch, hue) in enumerate(zip(seen, (1, 0, 2), strict=True)):
        wide, left, own = pixel * size * 2**k, 570 + 231.0 * k, {"form": "frame", "hue": hue}
        _raster(made, f"glimpse {k}", patch, (left, 200, 200 / size, 200 / size))
        made.node(f"frame {k}", "", (246 - wide / 2, 300 - wide / 2, wide, wide), **own)
        made.node(f"seen {k}", "", (left, 200, 200, 200), **own)
        name = f"{size * 2**k} pixels wide", (left - 16, 146, 232 - 12 * (k == 2), 44)
        made.label(f"seen {k} name", *name)
        made.edge(f"seen {k} on", (left + 100, 404), (left + 100, 476), hue=hue)
    made.node("state", "h_t", (570, 20, 110, 64), **state)
    made.node("next", "h_{t+1} reads all three", (570, 476, 662, 64), **state)
    made.edge("draws", (680, 52), (746, 52), hue=3)
    made.label("mean", "= (0, 0), the middle", (812, 30, 320, 44))
    for text, spot in ("", (239, 293, 14, 14)), ("l_t", (750, 26, 52, 52)):  # where and what it is
        made.node(f"l {text}", text, spot, form="plus", hue=3)
    return f"Each frame gives {size} × {size} numbers: the wider, the coarser."


def _patches(made: SceneMaker, picture: Tensor, size: int) -> str:
    """Draw a picture cut into patches, one of them as a row p, and its token x = E p + b."""
    stem = PatchStem(PatchStem.Config(patch_size=size), Pixels(1, SIDE, SIDE), FEATURES)
    rows = picture.unfold(0, size, size).unfold(1, size, size).flatten(2).flatten(0, 1)  # (T, P·P)
    k, across = int(rows.std(dim=1).argmax()), SIDE // size
    pitch, wide, count = 500.0 / across, 500.0 / across - 12, len(rows)
    corners = [(pitch * (n % across), 36 + pitch * (n // across)) for n in range(count)]
    for n, (row, corner) in enumerate(zip(rows, corners, strict=True)):
        _raster(made, f"patch {n}", row.view(size, size), (*corner, wide / size, wide / size))
    x, y, middle = *corners[k], 560 + 672 * (k + 0.5) / count
    _raster(made, "row", rows[k][None], (560, 70, 672 / size**2, 52))
    made.node("patch", "", (x, y, wide, wide), form="frame", hue=1)
    made.node("row frame", "", (560, 70, 672, 52), form="frame", hue=1)
    text = f"E p_{k + 1} + b: {size**2} → {FEATURES} numbers"
    made.node("E", text, (560, 192, 672, 64), hue=5, level=0.25)
    for text, left, top in (
        (f"p_{k + 1}: its {size**2} pixels", 560, 18), (f"x_{k + 1}", 500, 276),
        (f"x_1 … x_{count} + positions → encoder", 560, 508),
    ):  # fmt: skip
        made.label(f"{text} name", text, (left, top, 672, 44))
    beside, gap = x + wide, y - 6  # from the patch, the way leads between the others
    around = (beside, y + 40), (beside + 6, y + 40), (beside + 6, gap), (528, gap)
    made.edge("way", *around, (528, 96), (550, 96), hue=1)
    for n, (at, start, end) in enumerate(((900, 126, 192), (900, 256, 338), (middle, 388, 452))):
        made.edge(f"arrow {n}", (at, start), (at, end), hue=1 if n < 1 else 2)
    texts = [f"{v:.1f}".replace("-", "−") for v in stem(picture[None, None])[0, k].tolist()]
    places, each = 560 + 84 * (np.arange(FEATURES) + 0.5), [""] * count
    each[k] = str(k + 1)
    made.cells("x", places, 338, 81, texts, [0.35] * FEATURES, hue=2)
    places = 560 + 672 * (np.arange(count) + 0.5) / count
    made.cells("tokens", places, 452, 38, each, 0.8 * (np.arange(count) == k), hue=2)
    return "Cut into patches, a picture is read like a sentence."
