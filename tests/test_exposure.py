"""Exposure bias: errors after the truth and after a model's own output; training on the latter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from copier import copier
from foveate.config import ConfigError
from foveate.run import Run
from foveate.tasks.objectives import CrossEntropy, OwnOutput, tokens_of
from foveate.train.journal import read
from foveate.views import find
from foveate.views.exposure import place_errors
from foveate.views.options import Question
from small_runs import made
from tolerances import MODEL, near

FORCING = """
[objective]
teacher_forcing = {{ kind = "{kind}" }}
"""
LINEAR = 'scheduled", schedule = { kind = "linear", slope = 0.02, floor = 0.2 }, choose = "greedy'
FAMILIES = ("language", "captioner", "rnn_forecaster")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    return made(tmp_path_factory.mktemp("runs"), [*FAMILIES, "classifier", "forecaster"])


@pytest.mark.parametrize("kind", ["own", LINEAR], ids=["own", "scheduled"])
@pytest.mark.parametrize("name", FAMILIES)
def test_what_reads_its_own_output_learns(name: str, kind: str, tmp_path: Path) -> None:
    more = FORCING.format(kind=kind)
    if name == "rnn_forecaster":
        more = more.replace("[objective]", '[objective]\nkind = "squared_error"')
    run = made(tmp_path, [name], steps=60, more=more)[name]
    losses = [line["loss"] for line in read(run.path) if line.get("event") == "train"]
    assert losses[-1] < 0.8 * losses[0]
    assert run.config.objective.teacher_forcing.kind in kind


@pytest.mark.parametrize("name", FAMILIES)
def test_the_first_place_is_the_same_and_a_view_draws_both(name: str, runs: dict[str, Run]) -> None:
    errors = place_errors(runs[name], "valid")
    for figure, forced in errors.forced.items():
        assert errors.free[figure][0] == near(forced[0], MODEL)
        assert len(forced) == len(errors.free[figure]) == len(errors.counts)
    drawn = find("exposure").draw([runs[name]], Question(split="valid"))
    panels = {panel.up: [curve.name for curve in panel.curves] for panel in drawn.panels}
    assert panels == {figure: ["forced", "free"] for figure in errors.forced}


def test_forced_errors_are_the_loss_of_a_translator(tmp_path: Path) -> None:
    run: Any = copier(tmp_path)
    errors = place_errors(run, "valid")
    task, plain = run.task, CrossEntropy.Config(label_smoothing=0.0).build()
    with torch.inference_mode():
        loss = task.loss(run.model, task.batch("valid", range(len(task.lengths("valid")))), plain)
    mean = (errors.counts * errors.forced["nll"]).sum() / errors.counts.sum()
    assert mean == near(float(loss.total) / loss.count, MODEL)
    assert errors.counts.sum() == loss.count


def test_free_errors_of_a_caption_are_those_of_its_greedy_output(runs: dict[str, Run]) -> None:
    """Free accuracy counts the places where the greedy caption is the reference."""
    run: Any = runs["captioner"]
    task, errors = run.task, place_errors(run, "valid")
    hits = np.zeros(len(errors.counts))
    for row, ids in task.pairs("valid"):
        batch = task.batch("valid", [task.pairs("valid").index((row, ids))])
        places = task.decoder_batch(run.model, batch)
        own = tokens_of(run.model, places.memory)
        free = OwnOutput.Config().build().read(own, places.gold, 1)
        says = run.model(batch.pixels, free).argmax(-1)[0]
        hits[: len(ids) + 1] += (says == batch.target[0]).numpy()
    assert errors.free["accuracy"] * errors.counts == near(hits, MODEL)


def test_models_that_read_nothing_of_their_own_are_refused(runs: dict[str, Run]) -> None:
    for name in ("classifier", "forecaster"):
        with pytest.raises(ConfigError, match="reads no output of its own"):
            find("exposure").draw([runs[name]], Question())
