"""Weights that overflow give an error or finite answers, by every verb, task and engine."""

import copy
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foveate.engine.packed import PackedModel
from foveate.errors import NoOutputError, UserError
from foveate.exchange.student.journal import Account, AnswerJournal
from foveate.exchange.student.teachers import of_model
from foveate.measure.budget import Contender
from foveate.measure.quality import likelihoods
from foveate.nn.native.kernels import without_kernels
from foveate.run import Run, packed_kind
from foveate.run.pack import content
from small_runs import CONFIGS, MORE

NAMES = sorted(CONFIGS | MORE)
LINE, TARGET = "the dog runs", "le chien court"
Verb = Callable[[Any], object]


def verbs(run: Run) -> dict[str, Verb]:
    shown: dict[str, Verb] = {"explain": lambda m: m.explain(LINE, None)}
    by_task: dict[str, dict[str, Verb]] = {
        "translation": {
            "beam": lambda m: m.translate([LINE], 2, 2),
            "greedy": lambda m: m.translate([LINE], 1),
            "score": lambda m: m.score([(LINE, TARGET)]),
            "links": lambda m: m.links([(LINE, TARGET)]),
            "explain": lambda m: m.explain(LINE, TARGET),
        },
        "language": shown | {
            "drawn": lambda m: m.generate(["the"], 4, seed=1),
            "beam": lambda m: m.generate(["the"], 4, beam_size=2),
        },
        "classification": shown | {"classify": lambda m: m.classify([LINE])},
        "image_classification": {"classify": lambda m: m.classify([0])},
        "captioning": {"caption": lambda m: m.answer([0])},
        "forecasting": {"forecast": lambda m: m.answer([None])},
        "masked_language": shown | {"answer": lambda m: m.answer([LINE])},
    }  # fmt: skip
    return by_task[str(run.config.task.kind)]


def numbers(value: object) -> Iterator[float]:
    if isinstance(value, float | int):
        yield float(value)
    elif isinstance(value, np.ndarray):
        yield from np.asarray(value, dtype=np.float64).ravel().tolist()
    elif isinstance(value, dict):
        yield from (n for each in value.values() for n in numbers(each))
    elif isinstance(value, list | tuple | set):
        yield from (n for each in value for n in numbers(each))
    elif hasattr(value, "json"):
        yield from numbers(value.json())
    elif hasattr(value, "__dict__"):
        yield from numbers(vars(value))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("engine", ["packed", "torch", "modules"])
def test_every_answer_is_finite_or_an_error(runs: dict[str, Run], name: str, engine: str) -> None:
    run, refused, answered = runs[name], 0, 0
    if engine == "packed" and packed_kind(run.task) is None:
        return
    for weight in list(run.model.parameters())[::2]:
        kept = weight.detach().clone()
        with torch.no_grad():
            weight.copy_(torch.where(weight < 0, -3e37, 3e37))
        model: Any = run
        if engine == "packed":
            model = PackedModel(Path("m"), *content(run, "fp32"), threads=1)
        for verb in verbs(run).values():
            try:
                if engine == "modules":
                    with without_kernels():
                        answer = verb(model)
                else:
                    answer = verb(model)
            except UserError as error:
                refused += 1
                assert "finite" in str(error) or "numbers" in str(error), error
            else:
                answered += 1
                assert all(map(math.isfinite, numbers(answer)))
        with torch.no_grad():
            weight.copy_(kept)
    assert answered + refused > 2 and (refused or "rnn" in name)


def test_a_comparison_names_the_model_and_a_teacher_answers_nothing(runs, tmp_path) -> None:
    run = copy.deepcopy(runs["transformer"])
    with torch.no_grad():
        for weight in run.model.parameters():
            weight.copy_(torch.where(weight < 0, -3e37, 3e37))
    corpus = run.task.corpus("test")
    with pytest.raises(NoOutputError, match=r"^overflown: no score: .* not finite"):
        likelihoods([Contender("overflown", run, True)], corpus)
    with pytest.raises(NoOutputError, match="not finite"):
        teacher = of_model(run, "overflown", "fr", 1)
        AnswerJournal(tmp_path / "a.jsonl", teacher, ["a dog"], Account()).answer()
    assert len((tmp_path / "a.jsonl").read_text().split("\n")) == 2
