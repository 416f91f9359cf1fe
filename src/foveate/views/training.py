"""What a run was trained with: learning rates, position encodings."""

from __future__ import annotations

from collections.abc import Sequence

from foveate.look.charts import CurvesView
from foveate.look.models import positions as draw_positions
from foveate.look.models import schedule as draw_schedule
from foveate.look.sheets import SheetsView
from foveate.run import Run
from foveate.train.journal import read
from foveate.views.fits import owners
from foveate.views.question import Question


def positions(runs: Sequence[Run], question: Question) -> SheetsView:
    """The first encoding of a model that tells places, as it is after training."""
    owner = next(owner for _, owner in owners(runs[0].model))
    config, encoding = owner.config, owner.position
    length = min(question.length, getattr(encoding.config, "max_length", question.length))
    return draw_positions(encoding, length, config.hidden_size, config.num_heads)


def schedule(runs: Sequence[Run], question: Question) -> CurvesView:
    """The learning rates of runs up to the last step of the longest."""
    rates, ends = {}, [1]
    for run in runs:
        train = run.config.train
        last = max((line["step"] for line in read(run.path)), default=1)
        length = train.max_steps or last
        rates[run.path.name] = train.schedule.build(train.optimizer.lr, length).rate
        ends.append(length)
    return draw_schedule(rates, max(ends))
