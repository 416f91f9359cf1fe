"""Attention of one example: a map, all heads, weights over a picture."""

from __future__ import annotations

from collections.abc import Sequence

from foveate.look.heads import HeadsView
from foveate.look.heads import heads as draw_heads
from foveate.look.heatmap import AttentionView
from foveate.look.heatmap import attention as draw
from foveate.look.record import AttentionRecord
from foveate.look.view import View
from foveate.run import Run
from foveate.views import examples
from foveate.views.question import Question


def attention(runs: Sequence[Run], question: Question) -> AttentionView:
    """One layer of a block: one head, or the mean of all."""
    return part(explained(runs[0], question), question)


def heads(runs: Sequence[Run], question: Question) -> HeadsView:
    """All layers and heads of a block."""
    record = explained(runs[0], question)
    return draw_heads(record, block(record, question), question.scale)


def picture(runs: Sequence[Run], question: Question) -> View:
    """Where a model looked in a picture: weights over its cells, or the path of glimpses."""
    part = {
        name: value
        for name in ("block", "layer", "head", "scale")
        if (value := getattr(question, name)) != Question.model_fields[name].default
    }
    return runs[0].view(examples.image(question), question.target, **part)


def explained(run: Run, question: Question) -> AttentionRecord:
    """What every attention of a run saw of what the question names."""
    return run.explain(examples.source(run, question), question.target)


def part(record: AttentionRecord, question: Question) -> AttentionView:
    """The map of a record that is asked for.

    Raises ``LookupError`` naming the blocks, layers and heads that exist.
    """
    return draw(record, block(record, question), question.layer, question.head, question.scale)


def block(record: AttentionRecord, question: Question) -> str:
    """The block that is named, else cross_attention where there is one, else the model's first."""
    crosses = record.names("cross_attention")
    return question.block or ("cross_attention" if crosses else next(iter(record.blocks()), ""))
