"""What a model thought of each token of a text: one forced pass, heard from outside.

p(y_t = k | y_<t, x) for every k and t; the entropy H_t = −Σ_k p log₂ p says how open it was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from foveate.data.tokenizer import EOS, Tokenizer
from foveate.decode.constraints import Next
from foveate.decode.search import Alternatives, alternatives
from foveate.look.drawing import Choice, Word, visible
from foveate.look.sheets import WordsView
from foveate.run import Run
from foveate.views import examples
from foveate.views.question import Question


@dataclass(frozen=True)
class Forced:
    """A text as its ``ids`` (T), its end among them, and log p (T, V) of all that might follow."""

    ids: list[int]
    log_p: Tensor
    tokenizer: Tokenizer

    def instead(self, top: int) -> list[Alternatives]:
        """The ``top`` most probable tokens of each place, and its entropy."""
        return alternatives(Next(self.log_p, torch.zeros(len(self.log_p), 1)), top)

    def texts(self) -> list[tuple[str, bool]]:
        """Each token as it stands in the text, and whether a space stands before it."""
        text, spans = self.tokenizer.decode(self.ids), self.tokenizer.spans(self.ids)
        found = []
        for i, (start, end) in zip(self.ids, spans, strict=True):
            piece = text[start:end]
            spaced = piece.startswith(" ") or text[max(0, start - 1) : start] == " " or not start
            found.append((visible(piece.strip(" ") or piece or name(self.tokenizer, i)), spaced))
        return found


def name(tokenizer: Tokenizer, i: int) -> str:
    """A token by itself: its text, or its name where it has none, such as ``</s>``."""
    return tokenizer.decode([i]) or tokenizer.pieces[i].replace("Ġ", " ")


def forced(run: Run, question: Question) -> Forced:
    """The forced pass over the source and the target, or the answer where no target is asked for.

    Of a language model the target is part of the text that is read.
    """
    calls: list[tuple[Tensor, Tensor]] = []

    def hear(module: object, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        calls.append((inputs[0], output))

    ready = run.forced(examples.source(run, question), question.target)
    handle = run.model.decoder.register_forward_hook(hear)
    try:
        ready.scores()
    finally:
        handle.remove()
    read, hidden = calls[-1]
    with torch.inference_mode():
        log_p = run.model.logits(hidden[0]).float().log_softmax(dim=-1).cpu()
    task = run.task
    tokenizer = task.target_tokenizer if hasattr(task, "target_tokenizer") else task.tokenizer
    return Forced([*read[0, 1:].tolist(), EOS], log_p, tokenizer)


def probabilities(runs: Sequence[Run], question: Question) -> WordsView:
    """P of each token, with the most probable ones that might have stood in its place."""
    found = forced(runs[0], question)
    said = [float(found.log_p[t, i]) for t, i in enumerate(found.ids)]
    words = [
        Word(
            text=text,
            value=math.exp(log_p),
            space=space,
            note=f"{others.entropy / math.log(2):.1f} bits",
            alternatives=[
                Choice(text=visible(name(found.tokenizer, k)), p=math.exp(chance))
                for k, chance in zip(others.tokens, others.log_p, strict=True)
            ],
        )
        for log_p, (text, space), others in zip(
            said, found.texts(), found.instead(question.top), strict=True
        )
    ]
    return WordsView(
        words, "p of each token, entropy, and the most probable ones",
        found.tokenizer.decode(found.ids), f"log p of the whole: {sum(said):.2f}",
    )  # fmt: skip
