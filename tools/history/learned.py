"""Pictures of small models trained on the embedded corpus: words, heads, gates, guesses."""

from __future__ import annotations

from pathlib import Path

import torch
from matplotlib.figure import Figure

from foveate.data.tokenizer import EOS
from foveate.look.draw import colors
from foveate.look.draw.analyses import gates as draw_gates
from foveate.look.draw.drawings import Drawing
from foveate.look.draw.figures import FONT_SIZE, paint, write_words
from foveate.look.draw.maps import attention, heads
from foveate.look.draw.sheets import SheetGrid
from foveate.look.stages import gates_of, stages_by_name
from foveate.look.views.inside import reading
from foveate.nn.recurrent import Cell
from foveate.run import Run
from history.drawing import Draw, OwnFigure, figure, narrow, note
from history.models import trained

SENTENCE = "The young Italian woman closes the big white door."
SHORT = "The worried woman speaks to the young Italian doctor."
HOLE = "The girl", "not sleep."  # what stands before and after it
GUESSES = 6


def bahdanau(folder: Path) -> Drawing:
    """One head, one layer: the map of Bahdanau, Cho & Bengio (2015)."""
    return attention(trained("bahdanau", folder).translate([SENTENCE])[0].record())


def transformer(folder: Path) -> Drawing:
    """Cross-attention of every layer and head of a small Transformer."""
    record = trained("transformer", folder).translate([SHORT])[0].record()
    return narrow(heads(record), 3.1)


def masks(folder: Path) -> Drawing:
    """Self-attention of the encoder, which sees all, and of the decoder, which sees what was."""
    record = trained("transformer", folder).translate([SHORT])[0].record()
    blocks = {
        "encoder.self_attention": "encoder: every word attends to every word",
        "decoder.self_attention": "decoder: future weights are exactly 0",
    }

    def draw() -> Figure:
        drawn = figure(8.6)
        for ax, (block, messages) in zip(drawn.subplots(2, 1), blocks.items(), strict=True):
            view = attention(record, block, layer=0)
            paint(ax, view.array, "absolute", grid=True)
            write_words(ax, view.rows, view.columns)
            ax.set_aspect("equal")
            ax.set_xlabel(messages, size=FONT_SIZE)
            ax.set_ylabel(record.row_means(view.name), size=FONT_SIZE, color="#555555")
        return drawn

    return OwnFigure(make=draw)


# ------------------------------------------------------------------------------ gates and guesses


def gates(folder: Path) -> SheetGrid:
    """Gates of an LSTM language model over a sentence."""
    run = trained("lstm", folder)
    read, words = reading(run, SENTENCE)
    with torch.inference_mode(), stages_by_name(run.model, Cell) as result:
        run.model.decode(read)
    (steps,) = result.values()
    return draw_gates(gates_of(steps), words, units=12, title="Gates of an LSTM over a sentence")


Guess = list[tuple[str, float]]


@torch.inference_mode()
def both_sides(run: Run, before: str, after: str) -> Guess:
    """What BERT says of the hidden word."""
    task, start = run.task, run.task.tokenizer
    left, right = (start.encode(part).ids for part in (before, after))
    ids = torch.tensor([[2, *left, task.mask_id, *right, EOS]])
    return best(run.model(ids)[0, 1 + len(left)], start)


@torch.inference_mode()
def left_side(run: Run, before: str) -> Guess:
    """What a language model says comes next."""
    ids = torch.tensor([[EOS, *run.task.tokenizer.encode_lines(before)]])
    return best(run.model(ids)[0, -1], run.task.tokenizer)


def best(logits: torch.Tensor, tokenizer: object) -> Guess:
    """The likeliest tokens and their probabilities."""
    chances, ids = logits.softmax(dim=-1).topk(GUESSES)
    words = [tokenizer.decode([i]) for i in ids.tolist()]  # type: ignore[attr-defined]
    return list(zip(words, chances.tolist(), strict=True))


def blanks(folder: Path) -> Drawing:
    """The same hole read from the left alone, and from both sides."""
    before, after = HOLE
    guesses = {
        f"from the left (LSTM)\n{before} ▢": left_side(trained("lstm", folder), before),
        f"from both sides (BERT)\n{before} ▢ {after}": both_sides(
            trained("masked", folder), before, after
        ),
    }

    def draw() -> Figure:
        drawn = figure(4.8)
        axes = drawn.subplots(2, 1, sharex=True)
        for number, (ax, (title, result)) in enumerate(zip(axes, guesses.items(), strict=True)):
            chances = [chance for _, chance in result]
            ax.barh(range(len(result)), chances, color=colors.line(number), height=0.7)
            for place, chance in enumerate(chances):
                note(ax, chance + 0.01, place, f"{chance:.0%}", va="center", size=FONT_SIZE)
            ax.set_yticks(range(len(result)), [word for word, _ in result], size=FONT_SIZE)
            ax.invert_yaxis()
            ax.tick_params(length=0, labelbottom=False)
            ax.spines[["top", "right", "bottom"]].set_visible(False)
            ax.set_title(title, size=FONT_SIZE, loc="left")
        return drawn

    return OwnFigure(make=draw)


DRAWN: dict[str, Draw] = {
    "bahdanau": bahdanau,
    "transformer": transformer,
    "masks": masks,
    "gates": gates,
    "blanks": blanks,
}
