"""The comparison as one offline page and one JSON file."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from foveate.config import ConfigError
from foveate.data.text import Corpus
from foveate.files import replace_file
from foveate.look.draw.charts import bar_chart
from foveate.look.draw.drawings import Drawing, finite
from foveate.look.draw.maps import attention
from foveate.look.draw.page import chapters
from foveate.look.draw.parts import Cell, visible
from foveate.look.draw.texts import TableDrawing
from foveate.look.views.examples import crosses
from foveate.look.views.text import forced, token_name
from foveate.measure.budget import Budget, ComparisonPlan, Contender, Say, contenders
from foveate.measure.machine import describe
from foveate.measure.quality import (
    Quality,
    lengths_of_texts,
    losses,
    quality_of,
    spent_table,
)
from foveate.tasks.abilities import Classifies
from foveate.tasks.language import Language
from foveate.tasks.text import TextToText

WORDS = (8, 14)  # in the sentence that all models translate, if none is given
TOP = 3  # most probable next tokens shown for each model
ADDED = 40  # tokens that language models append


@dataclass
class Comparison:
    """Chapters of drawings, and what applies to all of them: models, budget, data, remarks."""

    names: list[str]
    terms: dict[str, str]
    chapters: dict[str, list[Drawing]]

    def html(self) -> str:
        """Return one page that needs no network, with one chapter visible at a time."""
        groups = {
            title: [each for drawing in drawings for each in drawing.drawings()]
            for title, drawings in self.chapters.items()
        }
        rows = [*map(list[Cell], self.terms.items())]
        table = TableDrawing(title="Terms", columns=["what", "holds"], rows=rows)
        first = next(iter(groups))
        groups[first] = [table, *groups[first]]
        return chapters(groups, f"Comparison of {len(self.names)} models")

    def json(self) -> str:
        """Return all numbers: by chapter and drawing, each column or line by its name."""
        tree = {
            "what": "comparison",
            "models": self.names,
            "terms": self.terms,
            "chapters": {
                title: {
                    d.title: {n: finite(a.tolist()) for n, a in d.arrays().items()}
                    for d in drawings
                }
                for title, drawings in self.chapters.items()
            },
            "machine": describe(),
        }
        return json.dumps(tree, ensure_ascii=False, indent=1)

    def save(self, out: Path) -> list[Path]:
        """Write the page, and JSON beside it; return the paths."""
        page, figures = out.with_suffix(".html"), out.with_suffix(".json")
        replace_file(page, self.html().encode("utf-8", "backslashreplace"))
        replace_file(figures, self.json().encode("utf-8", "backslashreplace"))
        return [page, figures]


def compare(
    plan: ComparisonPlan, budget: Budget, folder: Path, text: str | None, say: Say
) -> Comparison:
    """Train models without a run below ``folder``, measure all models, and draw the figures.

    ``text`` is the sentence that all answer. Raises ``ConfigError`` for fewer than two models.
    """
    if len(plan.names) < 2:
        raise ConfigError(
            "a comparison needs at least two models: name two or more configs or runs"
        )
    models = contenders(plan, budget, folder, say)
    quality, corpus = quality_of(models, say)
    say("losses")
    parts = {"Quality": [spent_table(models), *quality.drawings]}
    findings: dict[str, str] = {}
    if corpus is not None:
        parts["Length of the source"], findings = lengths_of_texts(models, corpus, quality.outputs)
    parts["Losses"] = losses(models, quality)
    parts["One example"] = examples(models, corpus, text)
    return Comparison(
        plan.names, terms(plan, budget, models, quality) | findings,
        {title: drawings for title, drawings in parts.items() if drawings},
    )  # fmt: skip


def terms(
    plan: ComparisonPlan, budget: Budget, models: Sequence[Contender], quality: Quality
) -> dict[str, str]:
    """Return the terms that are equal for all models, and those that are not."""
    lines = {"models": ", ".join(plan.names)}
    new = [each for each in models if not each.before]
    if new:
        count = len(new[0].run.task.lengths("train"))
        lines["budget"] = f"{budget} for each" + (
            " that was not trained" * (len(new) < len(models))
        )
        lines["the same"] = (
            f"{count:,} training examples, tokenizers if any, seed, batches of "
            f"{plan.first.train.batch_tokens:,} tokens"
        )
    for each in models:
        if each.before:
            tokens = f"{each.spent['tokens']:,.0f} target tokens"
            lines[each.name] = f"trained before, with its own budget: {tokens}"
    lines |= plan.notes
    return lines | {"measured": "; ".join(quality.notes)}


def examples(models: Sequence[Contender], corpus: Corpus | None, text: str | None) -> list[Drawing]:
    """Draw the answers of all models to one sentence: attention maps, and each one's next word."""
    task = models[0].run.task
    if isinstance(task, TextToText) and corpus is not None:
        if text is not None:
            return translated(models, text, None)
        pairs, (least, most) = list(zip(corpus.sources, corpus.targets, strict=True)), WORDS
        fits = (pair for pair in pairs if least <= len(pair[0].split()) <= most)
        return translated(models, *next(fits, pairs[0]))
    if isinstance(task, Language):
        prompt = text or " ".join(task.stream_of("valid").text.lines[0].split()[:4])
        return continued(models, prompt)
    if isinstance(task, Classifies) and task.reads == "text" and text is not None:
        return labelled(models, text)
    return []


def translated(models: Sequence[Contender], text: str, reference: str | None) -> list[Drawing]:
    """Draw the outputs for a sentence, the next word after half the reference, attention maps."""
    rows: list[list[Cell]] = [[e.name, str(e.run.translate([text])[0])] for e in models]
    if reference is not None:
        rows.append(["reference", reference])
    table = TableDrawing(title=text, columns=["model", "output"], rows=rows)
    beginning = (reference or str(rows[0][1])).split()
    maps: list[Drawing] = []
    for (name, output, *_), each in zip(rows, models, strict=False):
        if crosses(each.run) is None and output:
            title = f"{name}: {output}"
            view = attention(replace(each.run.explain(text), title=title), scale="absolute")
            maps.append(view.model_copy(update={"title": title}))
    return [table, *next_word(models, text, " ".join(beginning[: len(beginning) // 2])), *maps]


def continued(models: Sequence[Contender], prompt: str) -> list[Drawing]:
    """Draw what language models write after a prompt, and the token each expects first."""
    rows: list[list[Cell]] = [
        [e.name, e.run.generate([prompt], max_length=ADDED, beam_size=1)[0].text] for e in models
    ]
    table = TableDrawing(title=prompt, columns=["model", "continuation (greedy)"], rows=rows)
    return [table, *next_word(models, prompt, "")]


def labelled(models: Sequence[Contender], text: str) -> list[Drawing]:
    """Draw the probability of every label of one text."""
    p = {e.name: e.run.classify([text])[0].probabilities for e in models}
    labels = list(dict.fromkeys(label for of_model in p.values() for label in of_model))
    bars = {name: np.array([row.get(label, 0.0) for label in labels]) for name, row in p.items()}
    return [bar_chart(labels, bars, "p", f"Labels of: {text}")]


def next_word(models: Sequence[Contender], text: str, prefix: str) -> list[Drawing]:
    """Draw the probabilities of the most probable tokens after the prefix of an output."""
    p: dict[str, dict[str, float]] = {}
    for each in models:
        ids, log_p, tokenizer = forced(each.run, text, prefix or None)
        row = log_p[len(ids) - 1]  # after the whole input
        best = torch.topk(row, min(50, len(row))).indices.tolist()
        p[each.name] = {visible(token_name(tokenizer, i)): float(row[i].exp()) for i in best}
    tokens = list(dict.fromkeys(t for row in p.values() for t in list(row)[:TOP]))
    bars = {name: np.array([row.get(t, 0.0) for t in tokens]) for name, row in p.items()}
    caption = f"after “{prefix or text}”: the {TOP} most probable tokens of each model"
    return [bar_chart(tokens, bars, "p", "Probabilities of the next word", caption)]
