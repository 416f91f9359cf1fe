"""A Transformer layer in small numbers, part by part; and a picture, as patches and glimpses."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from foveate.look.draw.sheets import SHARES, ColorScale, SheetDrawing, SheetGrid, alike, sheet
from foveate.look.views.demos import demo
from foveate.models.vision import Retina
from foveate.nn.attention import Attention
from foveate.nn.embedding import PatchStem
from foveate.nn.feed_forward import GELU, ReLU
from foveate.nn.linear import BatchNorm, Dropout, LayerNorm
from foveate.nn.spec import Pixels

WORDS = "the", "cat", "sat"
NO, MOMENTS = tuple[str, ...](), ("mean", "var.")
NUMBERED = ("1", "2", "3", *MOMENTS)
ACTIVATIONS = {"relu": ReLU, "gelu": GELU}
Part = Literal["norm", "feed-forward", "dropout"]
Seed = Annotated[int, Field(ge=0, description="seed of inputs and matrices")]
PARTS = {  # the matrices of each part, and what they show
    "norm": ("layer norm of x + f(x)", "batch norm of x + f(x)", "Layer norm: mean 0, "
             "variance 1 over the numbers of one word. Batch norm: over all words of a batch, for "
             "each number."),
    "feed-forward": ("x", "x W₁ + b₁", "{}(x W₁ + b₁)", "{}(…) W₂ + b₂", "The same two "
                     "matrices for every word, with the activation in between."),
    "dropout": ("x", "f(x)", "dropout(f(x)), p = {1:g}", "x + dropout(f(x))", "In training some "
                "numbers of f(x) are 0, the others divided by the share kept; x is not changed."),
}  # fmt: skip


def numbers(
    name: str, values: Tensor, rows: Sequence[str] = (), columns: Sequence[str] = ()
) -> SheetDrawing:
    """Draw a matrix with its numbers; `alike` gives several the same colours."""
    return sheet(name, values.numpy(), rows, columns, scale=ColorScale(label=" "), written=True)


def short(*shape: int) -> Tensor:
    """Return random numbers with one decimal place."""
    return torch.randn(shape).mul(8).round() / 10 + 0.0


def with_moments(x: Tensor) -> Tensor:
    """Return rows (N, D) with their mean and variance appended, (N, D + 2)."""
    return torch.cat((x, x.mean(1, True), x.var(1, False, keepdim=True)), dim=1)


def matrices(
    activation: str, drop: float
) -> dict[str, tuple[Tensor, Sequence[str], Sequence[str]]]:
    """Return all matrices of a layer by name, with the names of their rows and columns."""
    attention = Attention.Config.parse({"num_heads": 2, "head_size": 2, "bias": False}).build(3)
    forward = ACTIVATIONS[activation].Config().build(3, 4)
    for weight in (*attention.parameters(), *forward.parameters()):
        weight.copy_(short(*weight.shape))
    x = short(1, 3, 3)
    added, x = attention(x, x)[0], x[0]
    inner, total, dropped = forward.inner(x), x + added, Dropout(drop)(added)
    norm, columns = LayerNorm(LayerNorm.Config(), 3), BatchNorm(BatchNorm.Config(), 3)(total)
    by_row = with_moments(norm(total))
    by_column = torch.cat((columns, columns.mean(0, True), columns.var(0, False, keepdim=True)))
    return {
        "x": (x, WORDS, NO),
        "layer norm of x + f(x)": (by_row, WORDS, NUMBERED),
        "batch norm of x + f(x)": (by_column, (*WORDS, *MOMENTS), ("1", "2", "3")),
        "x W₁ + b₁": (inner, WORDS, NO), "{}(x W₁ + b₁)": (forward.activate(inner), WORDS, NO),
        "{}(…) W₂ + b₂": (forward(x), WORDS, NO),
        "f(x)": (added, WORDS, NO), "dropout(f(x)), p = {1:g}": (dropped, WORDS, NO),
        "x + dropout(f(x))": (x + dropped, WORDS, NO),
    }  # fmt: skip


@demo
@torch.no_grad()
def block(
    part: Annotated[Part, Field(description="part of the layer")] = "feed-forward",
    activation: Annotated[Literal["relu", "gelu"], Field(description="of feed-forward")] = "relu",
    drop: Annotated[float, Field(ge=0, lt=1, description="share that dropout sets to 0")] = 0.5,
    seed: Seed = 98,
) -> SheetGrid:
    """Draw three words of three numbers in one part of a layer; f is attention."""
    torch.manual_seed(seed)
    made, (*names, caption) = matrices(activation, drop), PARTS[part]
    drawn = alike(
        [
            numbers(name.format(ACTIVATIONS[activation].__name__, drop), *made[name])
            for name in names
        ]
    )
    return SheetGrid(
        sheets=drawn, across=len(drawn), title=f"A layer in small numbers: {part}", caption=caption
    )


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
            caption="The patches in the frames have equally many numbers, but each is twice as "
            "wide as the one before: sharp in the middle, coarse around it. The next location is "
            "chosen from what was seen (Mnih et al., 2014).",
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
        caption="The picture is cut into patches, row by row; each is a row of numbers, which E "
        "maps to a token. The encoder reads these tokens with positions (Dosovitskiy et al., "
        "2020). Here E is random.",
    )  # fmt: skip
