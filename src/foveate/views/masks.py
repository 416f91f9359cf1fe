"""Which keys each query may see, as the model shows it: where its weights are exactly 0.

Shows the most common faults at once: a decoder that sees the future, padding that is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from foveate.data.tokenizer import PAD
from foveate.look.capture import AttentionRecord, block_of, capture
from foveate.look.drawing import visible
from foveate.look.sheets import Sheet, SheetsView
from foveate.run import Run
from foveate.tasks.text import collate
from foveate.views import examples
from foveate.views.attention import explained
from foveate.views.forced import name
from foveate.views.question import Question

CAPTION = "filled: seen by any head; blank: a weight of exactly 0, in every layer"


def masks(runs: Sequence[Run], question: Question) -> SheetsView:
    """A sheet for each block: filled where a query sees a key in any layer and head.

    A translator reads the text together with a longer one, so that it is padded.
    """
    [run] = runs
    pairs = hasattr(run.model, "encoder") and hasattr(run.task, "source_tokenizer")
    tokens = question.model_copy(update={"units": "tokens"})  # what a mask is over
    record = padded(run, question) if pairs else explained(run, tokens)
    sheets = []
    for block in (question.block and [question.block]) or record.blocks():
        names = record.layers(block)
        seen = np.stack([(record.drawn(each) > 0).any(axis=0) for each in names]).any(axis=0)
        rows, columns = record.axes(names[0])
        sheets.append(
            Sheet(
                block_of(names[0]).replace("_", "-").replace(".", " "),
                np.where(seen, 1.0, np.nan), [visible(w) for w in rows],
                [visible(w) for w in columns], "queries", "keys", 0.0, 1.0, told=" ",
            )
        )  # fmt: skip
    return SheetsView(sheets, f"Who may see whom: {run.path.name}", CAPTION, across=1)


@torch.inference_mode()
def padded(run: Run, question: Question) -> AttentionRecord:
    """The maps of a pair that stands beside another one of twice its length, padding labelled."""
    task, text = run.task, examples.text(run, question)
    given = question.target
    answer = run.translate([text])[0].hypotheses[0] if given is None else given
    source = task.source_tokenizer.encode_ids([text])[0]
    target = task.target_tokenizer.encode_ids([answer])[0]
    batch = collate([source, source * 2], [target, target * 2]).to(run.model.output.weight.device)
    with capture(run.model) as maps:
        run.model.decode(batch.read, run.model.encode(batch.source, batch.keys))
    read = [_name(task.source_tokenizer, i) for i in batch.source[0].tolist()]
    written = [_name(task.target_tokenizer, i) for i in batch.read[0].tolist()]
    found: Mapping[str, NDArray[np.float32]] = {n: w[0].cpu().numpy() for n, w in maps.items()}
    rows = {n: read if n.startswith("encoder") else written for n in found}
    columns = {n: written if _own(n) else read for n in found}
    return AttentionRecord(dict(found), rows, columns, text)


def _own(name: str) -> bool:
    return name.startswith("decoder") and name.endswith("self_attention")


def _name(tokenizer: object, i: int) -> str:
    return "<pad>" if i == PAD else name(tokenizer, i)  # type: ignore[arg-type]
