"""Views of attention: a map, all heads, weights over a picture, masks, flow through layers."""

from itertools import pairwise

import numpy as np
import torch

import foveate.look.draw.maps as drawn_maps
import foveate.look.relevance as relevances
import foveate.look.views.examples as needs
from foveate.config import ConfigError
from foveate.engine.answers import Picture
from foveate.look.draw.charts import LinesDrawing, line_chart
from foveate.look.draw.colors import Hue
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.maps import AttentionView, HeadsView, LinksView, ScaleName
from foveate.look.draw.parts import visible
from foveate.look.draw.pictures import PictureDrawing, over_picture, picture_drawing
from foveate.look.draw.scene import BESIDE, CELL, HIGH, WIDE, SceneDrawing, SceneMaker
from foveate.look.draw.sheets import ColorScale, SheetGrid, alike, sheet
from foveate.look.records import AttentionRecord, Units, block_of, spaced
from foveate.look.relevance import contrasted
from foveate.look.views import view
from foveate.look.views.examples import picture_of, ready
from foveate.look.views.options import Method
from foveate.models.vision import Glimpse
from foveate.run import Run
from foveate.tasks.image_classification import ImageClassification, PictureTask

MASKS_CAPTION = "filled: seen by any head; blank: a weight of exactly 0, in every layer"
PALE = -6.0  # the other end of the colours of a mask, whose 1 is near their white middle
MOST_WRITTEN = 16  # columns of a sheet up to which numbers are written


@view(needs.attends, needs.explains, silence=True)
def attention(
    run: Run, text: str | None = None, target: str | None = None, image: str | None = None,
    block: str | None = None, layer: int = -1, head: int | None = None,
    scale: ScaleName | None = None, units: Units = "auto",
) -> AttentionView:  # fmt: skip
    """Draw one layer of a block: one head, or the mean of all."""
    record = ready(run, text, target, image, units).record()
    return drawn_maps.attention(record, block, layer, head, scale)


@view(needs.attends, needs.explains, needs.reads_words, silence=True)
def links(
    run: Run, text: str | None = None, target: str | None = None, block: str | None = None,
    layer: int = -1, head: int | None = None, scale: ScaleName | None = None,
    units: Units = "auto",
) -> LinksView:  # fmt: skip
    """Draw the same map as lines between words."""
    return drawn_maps.links(attention(run, text, target, None, block, layer, head, scale, units))


@view(needs.attends, needs.explains, silence=True)
def heads(
    run: Run, text: str | None = None, target: str | None = None, image: str | None = None,
    block: str | None = None, scale: ScaleName | None = None, units: Units = "auto",
) -> HeadsView:  # fmt: skip
    """Draw all layers and heads of a block."""
    return drawn_maps.heads(ready(run, text, target, image, units).record(), block, scale)


@view(needs.reads_pictures, by_place="image")
def picture(
    run: Run, image: str | None = None, target: str | None = None, block: str | None = None,
    layer: int = -1, head: int | None = None, scale: ScaleName | None = None,
    units: Units = "auto",
) -> Drawing:  # fmt: skip
    """Draw where a model attends in a picture: weights over its cells, or its glimpses."""
    task, source = run.need(PictureTask, "draw over pictures"), picture_of(image or "0")
    if isinstance(run.model, Glimpse) and isinstance(task, ImageClassification):
        return glimpses(task, run.model, source)
    record = ready(run, None, target, image, units).record()
    return over_picture(record, task.shown(source)[0], block, layer, head, scale)


@view(needs.attends, needs.explains, silence=True)
def rollout(
    run: Run, text: str | None = None, target: str | None = None, image: str | None = None,
    block: str | None = None, layer: int = -1, query: int | None = None, units: Units = "auto",
) -> Drawing:  # fmt: skip
    """Draw the product of the layers, up to a given one; of one ``query``, its hops."""
    forced = ready(run, text, target, image, units)
    if query is not None:
        return _hops(forced.record(), block, query)
    return _of_record(run, relevances.rollout(forced), image, block, layer)


def _hops(record: AttentionRecord, block: str | None, query: int) -> SceneDrawing:
    """Draw the hops to a position, and a path in orange: always to the word that is read most.

    The path has no word twice. Raises `ConfigError` for a position that does not exist.
    """
    layers = record.layers(block or record.first_block())
    words = [visible(word) for word in record.axes(layers[0])[1]]
    if query >= (count := len(words)):
        raise ConfigError(f"--query {query}: there are {count} positions, from 0")
    hops, path = [relevances.mixed(record.drawn(name)) for name in reversed(layers)], [query]
    pitch, tall = (WIDE - BESIDE) / count, min(70.0, HIGH / (2 * len(hops) + 1))
    made, step, shares = SceneMaker(), (HIGH - tall) / len(hops), np.eye(count)[query]
    middles, wide = BESIDE + pitch * (np.arange(count) + 0.5), min(132.0, pitch - 10)
    for down in range(len(hops) + 1):
        top, layer = step * down, len(hops) - down
        if down:
            at, hop, ends = path[-1], hops[down - 1], (top, top - step + tall)
            path.append(max({*range(count)} - {*path}, key=hop[at].__getitem__, default=at))
            flows, taken = shares[:, None] * hop, np.zeros_like(hop)
            shares, taken[at, path[-1]] = flows.sum(axis=0), flows[at, path[-1]]
            others = np.where(np.arange(count) == path[-1], flows - taken, 0)
            made.fan(f"hop {layer}", middles, ends, flows, hue=Hue.LAYER)
            made.fan(f"path of others {layer}", middles, ends, others, hue=Hue.KEY)
            made.fan(f"path {layer}", middles, ends, taken, hue=Hue.QUERY)
            x, y = np.array([middles[[at, path[-1]]], ends[::-1]]) @ [0.62, 0.38]
            text, name = f"× {hop[at, path[-1]]:.2f}", [f"layer {layer}", f"Ā_{layer}"]
            made.label(f"factor {layer}", text, (x - 126, y - CELL / 2, 104, CELL))
            made.label(f"layer {layer}", "", (0, y - 38, 200, 76), texts=name)
        for k in range(count) if down else [query]:
            box, texts = (middles[k] - wide / 2, top, wide, tall), [words[k], f"{shares[k]:.2f}"]
            fill = {"hue": Hue.QUERY, "level": 0.4} if k == path[-1] else {"hue": Hue.LAYER}
            made.node(f"row {down} {k}", "", box, texts=texts, **fill)
    factors = [hop[pair] for hop, pair in zip(hops, pairwise(path), strict=True)]
    text = f"{' ← '.join(words[k] for k in path)}: {' · '.join(f'{x:.2f}' for x in factors)}"
    text += f" = {np.prod(factors):.2f}; over all paths {shares[path[-1]]:.2f} (others: blue)."
    made.label("row of R", "row of R", (0, HIGH - tall, 200, tall))
    made.stop("all", text, [], ["path", "row", "factor", "layer"])
    return made.drawing(f"The hops to “{words[query]}”", caption=text)


@view(needs.gives_probabilities, silence=True)
def relevance(
    run: Run, text: str | None = None, target: str | None = None, image: str | None = None,
    block: str | None = None, units: Units = "auto", method: Method | None = None,
    foil: str | None = None,
) -> Drawing:  # fmt: skip
    """Draw the relevance of the input for the output, by one of several methods.

    With a ``foil`` it is the relevance for the output rather than for this word or label; methods
    that have no signs refuse one. Raises `ConfigError` if the model lacks what a method reads.
    """
    forced = ready(run, text, target, image, units)
    method = method or ("integrated" if needs.attends(run) else "attention")
    if foil is not None:
        if method == "values":
            raise ConfigError("--method values compares outputs of layers: --not needs scores")
        forced = contrasted(forced, foil)
    record = relevances.relevance(forced, method)
    if method in ("attention", "values"):
        return _of_record(run, record, image, block, -1)
    sheets = [
        sheet(
            spaced(name), values := record.drawn(name)[0], *record.axes(name), "writes", "reads",
            written=values.shape[1] <= MOST_WRITTEN,
        )
        for name in map(record.layer_name, [block] if block else record.blocks())
    ]  # fmt: skip
    title = f"{record.title}: {forced.score_name}"
    return SheetGrid(sheets=alike(sheets), title=title, caption=record.notes[-1])


@view(needs.gives_probabilities)
def faithfulness(
    run: Run, text: str | None = None, target: str | None = None, image: str | None = None
) -> LinesDrawing:
    """Draw the log p of the answer without its most relevant words, by each method of relevance."""
    curves = relevances.faithfulness(ready(run, text, target, image))
    left_out = [name for name in relevances.METHODS if name not in curves]
    caption = "in brackets: the area between the curve and that of random orders, per deleted word"
    caption += f"; not for this model: {', '.join(left_out)}" * bool(left_out)
    named = {f"{name} ({relevances.area(curves, name):.2f})": each for name, each in curves.items()}
    return line_chart(
        range(len(next(iter(named.values())))), named,
        "words deleted, the most relevant first", "mean log p of the answer", run.path.name,
        caption=caption,
    )  # fmt: skip


def _of_record(
    run: Run, record: AttentionRecord, image: str | None, block: str | None, layer: int
) -> Drawing:
    """Draw a map of a record, for pictures over the picture."""
    if not isinstance(run.task, PictureTask):
        return drawn_maps.attention(record, block, layer)
    pixels = run.task.shown(picture_of(image or "0"))[0]
    return over_picture(record, pixels, block or record.first_block(), layer)


@view(needs.attends, needs.explains)
def masks(
    run: Run, text: str | None = None, target: str | None = None, image: str | None = None,
    block: str | None = None,
) -> SheetGrid:  # fmt: skip
    """Draw a sheet for each block: filled where a query sees a key in any layer and head.

    Weights of exactly 0 show the most common fault at once: a decoder that sees the future.
    ``encoder`` and ``decoder`` are all blocks of that side.
    """
    record = ready(run, text, target, image, "tokens").record()
    sheets, key = [], "0: allowed, −∞: masked"
    side = [name for name in record.blocks() if name.startswith(f"{block}.")]
    for name in side or ([block] if block else record.blocks()):
        names = record.layers(name)
        seen = np.stack([(record.drawn(each) > 0).any(axis=0) for each in names]).any(axis=0)
        rows, columns = record.axes(names[0])
        sheets.append(
            sheet(
                spaced(block_of(names[0])),
                np.where(seen, 1.0, np.nan), [visible(word) for word in rows],
                [visible(word) for word in columns],
                f"{drawn_maps.ROWS[record.row_means(names[0])]}, i",
                f"attends to, j ({'encoder' if 'decoder.self' not in name else 'decoder'})",
                ColorScale(0.0, 1.0, " " if side else key),
                cells=np.where(seen, "0", "−∞").tolist() if len(columns) < MOST_WRITTEN else (),
            ).model_copy(update={"least": PALE})
        )  # fmt: skip
    title = "Who can attend to whom" + f" ({key})" * bool(side)
    return SheetGrid(sheets=sheets, title=title, caption=MASKS_CAPTION, across=2)


@torch.inference_mode()
def glimpses(task: ImageClassification, model: Glimpse, source: Picture) -> PictureDrawing:
    """Draw the path of a model that takes glimpses of a picture."""
    pixels, name = task.shown(source)
    seen = model.look(task.tensor([pixels]).to(model.output.weight.device))
    _, height, width = pixels.shape
    size = torch.tensor([width, height], dtype=torch.float32)
    places = ((seen.places[0].cpu() + 1) / 2 * size).numpy()
    answer = task.label_names[int(model.output(seen.final)[0].argmax())]
    sides = tuple(model.config.patch_size * 2**k for k in range(model.config.scales))
    return picture_drawing(pixels, f"{name} → {answer}", places, sides)
