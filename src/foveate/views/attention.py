"""Attention of one example: a map, all heads, weights over a picture."""

from __future__ import annotations

from collections.abc import Sequence

from foveate.look.capture import AttentionRecord
from foveate.look.charts import BarsView
from foveate.look.heatmap import AttentionView, LinksView
from foveate.look.heatmap import attention as draw
from foveate.look.heatmap import links as draw_links
from foveate.look.models import HeadsView
from foveate.look.models import heads as draw_heads
from foveate.look.view import View
from foveate.run import Run
from foveate.views import examples
from foveate.views.question import Question


def attention(runs: Sequence[Run], question: Question) -> AttentionView:
    """One layer of a block: one head, or the mean of all."""
    return part(explained(runs[0], question), question)


def links(runs: Sequence[Run], question: Question) -> LinksView:
    """The same as lines between words."""
    return draw_links(attention(runs, question))


def coverage(runs: Sequence[Run], question: Question) -> BarsView:
    """How much of all looks fell on each source word: the sums of the columns of a map.

    c_s = Σ_t a_ts: near 0 a word was skipped, far above 1 it was looked at again and again (Tu et
    al., 2016).
    """
    view = attention(runs, question)
    return BarsView(
        view.columns, {"coverage": view.array.sum(axis=0)}, "sum of the weights of all rows",
        view.record.title, f"{view.caption} · the line is one look for a word", at=1.0,
    )  # fmt: skip


def heads(runs: Sequence[Run], question: Question) -> HeadsView:
    """All layers and heads of a block."""
    record = explained(runs[0], question)
    return draw_heads(record, block(record, question), question.scale)


def picture(runs: Sequence[Run], question: Question) -> View:
    """Where a model looked in a picture: weights over its cells, or the path of glimpses."""
    part = {
        name: value
        for name in ("block", "layer", "head", "scale", "units")
        if (value := getattr(question, name)) != Question.model_fields[name].default
    }
    return runs[0].view(examples.image(question), question.target, **part)


def explained(run: Run, question: Question) -> AttentionRecord:
    """What every attention of a run saw of what the question names."""
    return run.explain(examples.source(run, question), question.target, question.units)


def part(record: AttentionRecord, question: Question) -> AttentionView:
    """The map of a record that is asked for.

    Raises ``LookupError`` naming the blocks, layers and heads that exist.
    """
    return draw(record, block(record, question), question.layer, question.head, question.scale)


def block(record: AttentionRecord, question: Question) -> str:
    """The block that is named, else cross_attention where there is one, else the model's first."""
    crosses = record.names("cross_attention")
    return question.block or ("cross_attention" if crosses else next(iter(record.blocks()), ""))
