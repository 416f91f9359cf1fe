"""What users bring to the studio (a picture, a table), and what trainings leave behind."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import require_page, served, until, wait, words
from PIL import Image

from foveate.run import Run
from foveate.train.journal import LOG, SNAPSHOTS
from pictures import bars, png
from small_runs import made

NAMES = ["rnn", "vit", "captioner", "forecaster"]
GROWING = "growing"  # a run whose training goes on
STEPS, EVERY = 12, 6  # steps of training, and between two checkpoints
LECTURE = """title = "A film"
[[steps]]
title = "It learns"
command = "foveate look learning runs/en-fr"
[[steps]]
title = "The end"
command = "foveate demo lookup"
"""
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    require_page()
    more = "health_every = 4\nsnapshots = { every = 4 }\n"
    runs = made(tmp_path_factory.mktemp("brought"), NAMES, STEPS, more)
    begin(runs["rnn"].path)
    return runs


def begin(run: Path) -> None:
    """A copy of a run as it was after step 8, of a training that goes on."""
    copy = shutil.copytree(run, run.with_name(GROWING))
    config = (copy / "config.toml").read_text("utf-8")
    longer = config.replace(f"max_steps = {STEPS}", "max_steps = 100")
    (copy / "config.toml").write_text(longer, "utf-8")
    for name in (SNAPSHOTS, LOG):
        lines = (copy / name).read_text("utf-8").splitlines(keepends=True)
        kept = [line for line in lines if json.loads(line)["step"] <= 8]
        (copy / name).write_text("".join(kept), "utf-8")


@pytest.fixture(scope="module")
def address(runs: dict[str, Run], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    own = tmp_path_factory.mktemp("own")
    (own / "film.toml").write_text(LECTURE, "utf-8")
    with served(runs["rnn"].path.parent, own) as result:
        yield result


def bring(page: Any, field: str, name: str, kind: str, content: bytes) -> None:
    """Choose a file in a field."""
    file = {"name": name, "mimeType": kind, "buffer": content}
    page.get_by_test_id(field).set_input_files(file)


def test_snapshots_are_a_film_that_plays(visit: Callable[..., Any]) -> None:
    page = visit("#/train?run=rnn")
    film = page.get_by_test_id("learning")
    label = film.locator(".fv-film-label")
    label.get_by_text(re.compile(rf"^step {STEPS} · loss .* · validation ")).wait_for()
    scrub, cells = film.get_by_test_id("film-scrub"), film.locator(".fv-cells[role=application]")
    cells.press("End")
    readings = []
    for key, step in (("Home", 0), ("ArrowRight", 4), ("End", STEPS)):
        scrub.press(key)
        label.get_by_text(re.compile(rf"^step {step} ")).wait_for()
        readings.append(film.locator(".fv-reading").inner_text())
    assert len(set(readings)) == 3  # other numbers of the same cell
    assert len({reading.rpartition(" ")[0] for reading in readings}) == 1
    play = film.get_by_test_id("play-film")
    play.click()
    label.get_by_text(re.compile(r"^step 0 ")).wait_for()
    play.get_by_text("pause").click()
    play.get_by_text("play").wait_for()


def test_a_lecture_steps_through_a_film_from_its_beginning(visit: Callable[..., Any]) -> None:
    page = visit("#/lecture/film/1")
    label = wait(page, "lecture").locator(".fv-film-label")
    label.get_by_text(re.compile(r"^step 0 ")).wait_for()
    seen = [label.inner_text()]
    for _ in range(12):
        page.keyboard.press("ArrowRight")
        if page.evaluate("location.hash") != "#/lecture/film/1":
            break
        seen.append(label.inner_text())
    assert 3 <= len(seen) == len(set(seen)) <= 9
    page.goto(page.url.partition("#")[0] + "#/sheets/film/1")
    paper = wait(page, "sheet-1").locator(".fv-film-label")
    assert paper.inner_text() == seen[-1]  # paper shows how it ends


def test_the_film_grows_while_a_training_goes_on(visit, runs) -> None:
    folder = runs["rnn"].path.parent / GROWING
    page = visit(f"#/train?run={GROWING}")
    label = page.get_by_test_id("learning").locator(".fv-film-label")
    label.get_by_text(re.compile(r"^step 8 ")).wait_for()
    for name in (SNAPSHOTS, LOG):
        lines = (runs["rnn"].path / name).read_text("utf-8").splitlines(keepends=True)
        with (folder / name).open("a", encoding="utf-8") as file:
            file.writelines(line for line in lines if json.loads(line)["step"] == STEPS)
    label.get_by_text(re.compile(rf"^step {STEPS} ")).wait_for()


def test_the_health_of_modules_is_drawn(visit: Callable[..., Any], runs: dict[str, Run]) -> None:
    page = visit("#/train?run=rnn")
    page.get_by_test_id("more-charts").locator("summary").first.click()
    view = wait(page, "view-health")
    drawings = view.get_by_test_id("drawing-health")
    assert drawings.count() >= 1
    drawings.first.locator("summary").first.click()
    table = drawings.first.locator("table").first
    names = {name.split(".")[0] for name, _ in runs["rnn"].model.named_parameters()}
    assert names & set(table.inner_text().replace(".", " ").split())


def test_a_picture_that_is_brought_is_labelled_and_looked_at(visit, runs, tmp_path) -> None:
    Image.fromarray(bars(4)[0][3]).save(tmp_path / "bar.png")
    [output] = runs["vit"].classify([tmp_path / "bar.png"])
    page = visit("#/ask?run=vit")
    bring(page, "upload", "bar.gif", "image/gif", b"GIF89a")
    assert "is not a PNG or JPEG" in page.get_by_role("alert").inner_text()
    bring(page, "upload", "bar.png", "image/png", (tmp_path / "bar.png").read_bytes())
    wait(page, "answer")
    assert "bar.png" in page.get_by_test_id("brought").inner_text()
    assert page.get_by_role("alert").count() == 0
    labels = page.get_by_test_id("drawing-labels")
    assert labels.locator(".fv-title").inner_text() == output.label
    page.get_by_test_id("tab-inspect").click()
    wait(page, "view-picture")
    wait(page, "answered-vit")
    page.get_by_test_id("brought").get_by_role("button").click()
    assert page.get_by_test_id("brought").count() == 0


def test_a_picture_that_is_brought_has_a_caption(visit, runs, tmp_path) -> None:
    (tmp_path / "red.png").write_bytes(png("red"))
    run = runs["captioner"]
    [output] = run.answer([tmp_path / "red.png"])
    record = run.explain(tmp_path / "red.png")
    page = visit("#/ask?run=captioner")
    bring(page, "upload", "red.png", "image/png", png("red"))
    wait(page, "answer")
    assert words(page) == [*(run.task.tokenizer.decode([i]) for i in output.ids), "</s>"]
    page.get_by_test_id("tab-inspect").click()
    view = wait(page, "view-picture")
    panels = view.locator(".fv-panels button")
    until(page, "document.querySelectorAll('.fv-panels button').length > 0")
    assert panels.count() == len(record.axes(next(iter(record.maps)))[0])


def test_a_table_that_is_brought_is_forecast(visit: Callable[..., Any]) -> None:
    page = visit("#/ask?run=forecaster&channel=season")
    rows = [f"{2020 + n // 12}-{n % 12 + 1:02d}-01,{n % 12},{n % 5}" for n in range(30)]
    table = "\n".join(["date,season,other", *rows])
    bring(page, "csv", "own.csv", "text/csv", table.encode())
    wait(page, "answer")
    assert "own.csv" in page.get_by_test_id("brought").inner_text()
    drawing = page.get_by_test_id("drawing-lines")
    drawing.locator("summary").click()
    messages = drawing.locator("table").inner_text()
    for month in ("2022-06", "2022-07"):  # the last row and the first ahead
        assert f"\n{month}\t" in messages
    bring(page, "csv", "wrong.csv", "text/csv", table.replace("other", "another").encode())
    wait(page, "answer", "failed")
    assert "the table:1: no column 'other'" in page.get_by_test_id("failure").inner_text()
    page.get_by_test_id("tab-inspect").click()
    wait(page, "view-forecast")
    page.get_by_text("not of wrong.csv").wait_for()
    page.get_by_test_id("tab-ask").click()
    page.get_by_test_id("brought").get_by_role("button").click()
    page.get_by_test_id("ask").click()
    wait(page, "answer")
    assert page.get_by_test_id("brought").count() == 0
