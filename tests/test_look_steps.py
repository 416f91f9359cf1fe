"""One step with its numbers, and all steps as a film, of models that read no words too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foveate.draw.stages import FRAMES, StepsDrawing
from foveate.run import Run
from foveate.views import find
from foveate.views.options import Question
from small_runs import made


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("steps")
    return made(folder, ["captioner", "vit", "forecaster", "rnn_forecaster"], steps=1)


def steps(run: Run, **asked: Any) -> StepsDrawing:
    drawing = find("steps").draw([run], Question(**asked))
    assert isinstance(drawing, StepsDrawing)
    return drawing


def keys(drawing: StepsDrawing) -> list[str]:
    return next(stage.rows for stage in drawing.stages if stage.title == "key")


def test_keys_are_cells_of_a_picture_patches_or_dates(runs: dict[str, Run]) -> None:
    caption = steps(runs["captioner"], target="The square is red .")
    assert keys(caption)[:5] == ["0,0", "0,1", "0,2", "0,3", "1,0"]
    assert caption.frames[:2] == ["The", "square"]
    patches = steps(runs["vit"])
    assert keys(patches)[1:3] == ["0,0", "0,1"] and patches.frames == keys(patches)
    assert all("-" in date for date in keys(steps(runs["forecaster"])))


def test_steps_of_a_recurrent_forecaster_are_its_rows(runs: dict[str, Run]) -> None:
    drawing = steps(runs["rnn_forecaster"])
    assert len(drawing.frames) == 12 + 6 - 1
    assert drawing.frames[0].startswith("2") and drawing.frames[0] < drawing.frames[-1]
    assert [sheet.title for sheet in drawing.film().sheets][-1] == "state"
    one = steps(runs["rnn_forecaster"], query=3)
    assert drawing.frames[3] in one.text() and one.figure().axes


def test_a_film_has_a_row_for_each_query(runs: dict[str, Run]) -> None:
    drawing = steps(runs["vit"])
    film = drawing.film()
    assert [sheet.title for sheet in film.sheets] == ["score", "weights", "context"]
    assert all(sheet.rows == drawing.frames for sheet in film.sheets)
    weights = {stage.title: stage for stage in drawing.stages}["weights"]
    assert np.array_equal(film.sheets[1].values.array, weights.values.array[:, 0])
    assert film.caption == drawing.caption and "context" in drawing.text()
    figure = drawing.figure()
    assert len(figure.axes) == 3 and figure.get_figwidth() <= 13


def test_a_long_film_says_which_rows_are_left_out(runs: dict[str, Run]) -> None:
    drawing = steps(runs["rnn_forecaster"])
    assert drawing.film().caption.startswith(f"Rows 0 to {FRAMES - 1} of {len(drawing.frames)}")
    assert all(sheet.rows == drawing.frames[:FRAMES] for sheet in drawing.film().sheets)
