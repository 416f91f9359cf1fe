"""Views of attention: a map, all heads, weights over a picture, masks, flow through layers."""

import random
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray

import foveate.look.draw.maps as drawn_maps
import foveate.look.flow as flow
import foveate.look.views.examples as needs
from foveate.align.aer import rank_heads, read_gold
from foveate.config import ConfigError
from foveate.engine.answers import Picture
from foveate.engine.links import read_links
from foveate.look.draw.charts import BarsDrawing, bar_chart
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.maps import AttentionView, HeadsView, LinksView
from foveate.look.draw.parts import visible
from foveate.look.draw.pictures import PictureDrawing, over_picture, picture_drawing
from foveate.look.draw.sheets import ColorScale, SheetDrawing, SheetGrid, sheet
from foveate.look.measure import Judge, confidence, diagonality, entropy
from foveate.look.perturbations import without_positions, without_scaling
from foveate.look.records import AttentionRecord, block_of, spaced
from foveate.look.views import view
from foveate.look.views.examples import picture_of, ready, text_of
from foveate.look.views.options import (
    AxisUnits,
    Block,
    Drop,
    GoldFile,
    Head,
    Image,
    Layer,
    Scale,
    Split,
    Target,
    Text,
)
from foveate.models.vision import Glimpse
from foveate.run import Run
from foveate.run.linking import WordMaps, word_maps
from foveate.tasks.image_classification import ImageClassification, PictureTask
from foveate.tasks.translation import Translation

MASKS_CAPTION = "filled: seen by any head; blank: a weight of exactly 0, in every layer"
ALLOWED = "0: allowed, −∞: masked"
PAIRS = 100  # of the split, if no text is given


@view(needs.attends, needs.explains, silence=True)
def attention(
    run: Run, text: Text = None, target: Target = None, image: Image = None, block: Block = None,
    layer: Layer = -1, head: Head = None, scale: Scale = None, units: AxisUnits = "auto",
) -> AttentionView:  # fmt: skip
    """Draw one layer of a block: one head, or the mean of all."""
    record = ready(run, text, target, image, units).record()
    return drawn_maps.attention(record, block, layer, head, scale)


@view(needs.attends, needs.explains, needs.reads_words, silence=True)
def links(
    run: Run, text: Text = None, target: Target = None, block: Block = None, layer: Layer = -1,
    head: Head = None, scale: Scale = None, units: AxisUnits = "auto",
) -> LinksView:  # fmt: skip
    """Draw the same map as lines between words."""
    return drawn_maps.links(attention(run, text, target, None, block, layer, head, scale, units))


@view(needs.crosses, needs.translates)
def coverage(
    run: Run, text: Text = None, target: Target = None, block: Block = None, layer: Layer = -1,
    head: Head = None, units: AxisUnits = "auto",
) -> BarsDrawing:  # fmt: skip
    """Draw how much of all attention each source word received: the column sums of a map.

    c_s = Σ_t a_ts, beside a line at 1, the weight that one row gives: a word near 0 was skipped,
    one far above 1 was attended to again and again (Tu et al., 2016).
    """
    shown = attention(run, text, target, None, block, layer, head, None, units)
    return bar_chart(
        shown.columns, {"coverage": shown.array.sum(axis=0)}, "sum of the weights of all rows",
        shown.record.title, f"{shown.caption} · dashed: 1, the weight of one row", at=1.0,
    )  # fmt: skip


@view(needs.attends, needs.explains, silence=True)
def heads(
    run: Run, text: Text = None, target: Target = None, image: Image = None, block: Block = None,
    scale: Scale = None, units: AxisUnits = "auto",
) -> HeadsView:  # fmt: skip
    """Draw all layers and heads of a block."""
    return drawn_maps.heads(ready(run, text, target, image, units).record(), block, scale)


@view(needs.reads_pictures, by_place="image")
def picture(
    run: Run, image: Image = None, target: Target = None, block: Block = None, layer: Layer = -1,
    head: Head = None, scale: Scale = None, units: AxisUnits = "auto",
) -> Drawing:  # fmt: skip
    """Draw where a model attends in a picture: weights over its cells, or its glimpses."""
    task, source = run.need(PictureTask, "draw over pictures"), picture_of(image or "0")
    if isinstance(run.model, Glimpse) and isinstance(task, ImageClassification):
        return glimpses(task, run.model, source)
    record = ready(run, None, target, image, units).record()
    return over_picture(record, task.shown(source)[0], block, layer, head, scale)


@view(needs.attends, needs.explains, silence=True)
def rollout(
    run: Run, text: Text = None, target: Target = None, image: Image = None, block: Block = None,
    layer: Layer = -1, units: AxisUnits = "auto",
) -> Drawing:  # fmt: skip
    """Draw the product of the layers, up to a given one."""
    record = flow.rollout(ready(run, text, target, image, units))
    return _of_record(run, record, image, block, layer)


@view(needs.attends, needs.gives_probabilities, silence=True)
def relevance(
    run: Run, text: Text = None, target: Target = None, image: Image = None, block: Block = None,
    units: AxisUnits = "auto",
) -> Drawing:  # fmt: skip
    """Draw the relevance of the input for the output."""
    record = flow.relevance(ready(run, text, target, image, units))
    return _of_record(run, record, image, block, -1)


def _of_record(
    run: Run, record: AttentionRecord, image: str | None, block: str | None, layer: int
) -> Drawing:
    """Draw a map of a record, for pictures over the picture."""
    if not isinstance(run.task, PictureTask):
        return drawn_maps.attention(record, block, layer)
    pixels = run.task.shown(picture_of(image or "0"))[0]
    return over_picture(record, pixels, block or record.first_block(), layer)


@view(needs.attends, needs.explains, needs.reads_words)
def without(
    run: Run, text: Text = None, target: Target = None, block: Block = None, layer: Layer = -1,
    head: Head = None, units: AxisUnits = "auto", drop: Drop = ("order",),
) -> SheetGrid:  # fmt: skip
    """Draw answer and map of the run unchanged, and without what is dropped, side by side.

    ``order`` shuffles the words of the text; without ``positions`` the model has no position
    encodings; without ``scaling`` q · k is not divided by √K. The weights stay as trained.
    """
    text, notes = text_of(run, text), list[str]()

    def answered(name: str, text: str) -> SheetDrawing:
        record = run.forced(text, target, units).record()
        drawn = drawn_maps.attention(record, block, layer, head)
        title = f"{name}: {record.title}"
        return sheet(title, drawn.array, drawn.rows, drawn.columns, scale=ColorScale(0.0, 1.0))

    before = answered("unchanged", text)
    parts = {"positions": without_positions, "scaling": without_scaling}
    with ExitStack() as changes:
        for name in drop:
            if name in parts and not changes.enter_context(parts[name](run.model)):
                notes.append(f"{run.path.name} has no {name}")
        words = text.split()
        shuffled = " ".join(random.Random(0).sample(words, len(words)))
        title = f"without {', '.join(drop) or 'nothing'}"
        changed = answered(title, shuffled if "order" in drop else text)
    caption = f"the weights were trained with {', '.join(drop) or 'all'}"
    return SheetGrid(
        sheets=[before, changed], title=run.path.name, caption="; ".join([caption, *notes])
    )


@view(needs.attends, needs.explains)
def masks(
    run: Run, text: Text = None, target: Target = None, image: Image = None, block: Block = None
) -> SheetGrid:
    """Draw a sheet for each block: filled where a query sees a key in any layer and head.

    Weights of exactly 0 show the most common fault at once: a decoder that sees the future.
    ``encoder`` and ``decoder`` are all blocks of that side.
    """
    record = ready(run, text, target, image, "tokens").record()
    sheets = []
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
                f"{drawn_maps.ROWS[record.row_means(names[0])]}, i", "attends to, j",
                ColorScale(0.0, 1.0, ALLOWED),
                cells=np.where(seen, "0", "−∞").tolist() if len(columns) < 16 else (),
            )
        )  # fmt: skip
    title = f"Who can attend to whom: {run.path.name}"
    return SheetGrid(sheets=sheets, title=title, caption=MASKS_CAPTION, across=2)


@view(needs.crosses, needs.aligns)
def importance(
    run: Run, text: Text = None, target: Target = None, split: Split = "test",
    gold: GoldFile = None,
) -> SheetGrid:  # fmt: skip
    """Draw layers down, heads across: entropy, confidence, diagonality and, with gold, the AER.

    They are those of the cross-attention between words (`foveate.look.measure`,
    `foveate.align.aer`), over the given pair, else over the first pairs of the split; with gold
    over as many as it has. Raises `ConfigError` if gold links and pairs differ in number.
    """
    if gold is None and text is not None:
        pairs = [(text, target or run.translate([text])[0].hypotheses[0])]
    else:
        pairs = list(islice(zip(*run.pairs(split), strict=True), None if gold else PAIRS))
    maps = [pair for pair in word_maps(run.need(Translation, "align"), run.model, pairs) if pair]
    names = list(maps[0])
    figures = {
        "entropy, bits": head_means(maps, entropy),
        "confidence": head_means(maps, confidence),
        "diagonality": head_means(maps, diagonality),
    }
    if gold is not None:
        links = read_gold(gold)
        if len(links) != len(maps):
            raise ConfigError(
                f"{gold}: gold links for {len(links)} sentences, but {len(maps)} pairs in the "
                f"split {split}; give as many"
            )
        errors = np.full((len(names), len(maps[0][names[0]])), np.nan)
        for name, head, agreement in rank_heads(maps, links, read_links):
            errors[names.index(name), head] = agreement.aer
        figures["alignment error rate"] = errors
    sheets = [
        sheet(
            title, values, [f"layer {n}" for n in range(len(names))],
            [f"head {n}" for n in range(values.shape[1])], aspect=0.6, written=True,
            scale=ColorScale(0.0, 1.0 if title != "entropy, bits" else None),
        )
        for title, values in figures.items()
    ]  # fmt: skip
    many = "1 pair" if len(maps) == 1 else f"{len(maps)} pairs"
    caption = "rows are target words without the end token; heads shows one sentence with it"
    title = f"Cross-attention heads, mean over {many}"
    return SheetGrid(sheets=sheets, title=title, caption=caption)


def head_means(maps: Sequence[WordMaps], figure: Judge) -> NDArray[np.float64]:
    """Return the mean over pairs of a figure of each layer and head, (L, H)."""
    of_pairs = [np.stack([figure(heads) for heads in pair.values()]) for pair in maps]
    means: NDArray[np.float64] = np.mean(of_pairs, axis=0)
    return means


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
