"""The five lectures: their pages are current, their commands exist, the studio draws them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from safetensors.torch import load_file
from typer.testing import CliRunner

from foveate.cli import app, looking
from foveate.cli.options import VerbGroup
from foveate.config import PACKAGED, read, shipped
from foveate.run import Run, RunConfig, load
from foveate.run.answering import unknown_words
from foveate.tasks.language import Language
from foveate.train import checkpoint, stored

pytest.importorskip("fastapi", reason="no FastAPI here: pip install '.[studio]'")
from fastapi.testclient import TestClient

import lectures as lecture_pages
from foveate.errors import UserError
from foveate.look.draw.parts import Numbers
from foveate.look.draw.sheets import SheetDrawing, SheetGrid
from foveate.look.views import VIEWS
from foveate.look.views.demos import DEMOS, DemoEntry
from foveate.look.views.options import Question
from foveate.look.views.series import exposure
from foveate.look.views.text import forced
from foveate.serve.common import RequestError
from foveate.studio.api import studio_application
from foveate.studio.lectures import (
    FOLDER,
    Lecture,
    LectureFile,
    LectureStep,
    lectures,
    parsed,
    present,
    written,
)
from foveate.studio.lectures import read as read_lecture
from foveate.studio.schemas import Drawings
from foveate.studio.state import StudioState
from small_runs import made

ROOT = Path(__file__).parent.parent

COMMAND = typer.main.get_command(app)
STEPS = [(each, k, step) for each in lectures().lectures for k, step in enumerate(each.steps, 1)]


def check(line: str) -> None:
    """Parse ``foveate …`` by the command itself, without executing it."""
    program, *words = shlex.split(line)
    assert program == "foveate", line
    command, context = COMMAND, COMMAND.make_context("foveate", list(words))
    while isinstance(command, VerbGroup):
        name, inner, words = command.resolve_command(context, words)
        assert inner is not None, line
        command, context = inner, inner.make_context(str(name), list(words), parent=context)


def test_the_pages_are_what_the_tool_writes() -> None:
    written = {path.name: path.read_text("utf-8") for path in lecture_pages.PAGES.glob("*.md")}
    assert written == lecture_pages.pages(), "write them anew: make lectures"


def test_no_caption_names_a_colour_of_the_paper() -> None:
    steps = [step for lecture in lectures().lectures for step in lecture.steps]
    texts = [text for step in steps for text in (step.caption, step.notes, step.equation)]
    assert not [text for text in texts if re.search(r"\((white|black)\)|(are|drawn) white", text)]


@pytest.fixture
def any_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that the lectures name need not exist."""
    monkeypatch.setattr("foveate.config.check_run", lambda path: None)


@pytest.mark.usefixtures("any_run")
@pytest.mark.parametrize(("lecture", "number", "step"), STEPS)
def test_each_command_parses(lecture: Lecture, number: int, step: LectureStep) -> None:
    for line in re.findall(r"`(foveate [^`]+)`", step.notes):
        check(line)
    assert not step.picture or (ROOT / "docs" / step.picture).is_file()
    assert step.title and step.equation and step.notes.strip() and "\n\n" not in step.notes


def drawn(client: TestClient, command: str) -> Any:
    return client.get("/api/v1/lectures/drawings", params={"command": command})


Drawn = tuple[str, list[str], dict[str, Any]]  # a view or a demo, its runs, and its options


@pytest.fixture
def asked(any_run: None, monkeypatch: pytest.MonkeyPatch) -> list[Drawn]:
    """What the command line and the studio are asked to draw, which they do not."""
    calls = list[Drawn]()

    def view_of_command(name: str, paths: list[Path], fields: dict[str, Any], *_: object) -> None:
        assert all(path.parent == Path("runs") for path in paths)
        assert fields.keys() <= {*VIEWS[name].reads}
        given = {key: value for key, value in fields.items() if value is not None}
        calls.append((name, [path.name for path in paths], dict(Question.parse(given))))

    def view(name: str, runs: list[str], question: Question) -> Drawings:
        assert question.model_fields_set <= {*VIEWS[name].reads}
        calls.append((name, runs, dict(question)))
        return Drawings(drawings=[], milliseconds=0)

    def demo(entry: DemoEntry, options: dict[str, Any]) -> SheetGrid:
        calls.append((entry.name, [], dict(entry.options.parse(options))))
        return SheetGrid(sheets=[SheetDrawing(values=Numbers.exact(np.eye(1)), least=0, most=1)])

    monkeypatch.setattr(looking, "_draw_view", view_of_command)
    monkeypatch.setattr(looking, "write", lambda *_: None)
    monkeypatch.setattr(DemoEntry, "draw", demo)
    monkeypatch.setattr(StudioState, "view", lambda _, *asked: view(*asked))
    return calls


@pytest.mark.parametrize(("lecture", "number", "step"), STEPS)
def test_the_studio_draws_what_the_command_draws(lecture, number, step, asked, client) -> None:
    program, *words = shlex.split(step.command)
    typed = CliRunner().invoke(app, words, catch_exceptions=False)
    assert (program, typed.exit_code) == ("foveate", 0), typed.output
    assert drawn(client, step.command).status_code == 200
    by_command, by_studio = asked
    assert by_command[1] == step.runs
    runs = present(step.runs, lambda name: name not in NOT_PACKAGED)
    assert by_studio == (by_command[0], runs, by_command[2])


def test_a_command_of_a_step_may_have_any_option() -> None:
    name, _, options = parsed("foveate demo block --part dropout --drop 0.25")
    given = {"part": "dropout", "drop": 0.25}
    assert name == "block" and options.model_dump(exclude_unset=True) == given
    given = "foveate look picture runs/vit 3 --silence a:0 --silence b:1 --words"
    question = Question(image="3", silence=("a:0", "b:1"), units="words")
    assert parsed(given) == ("picture", ["vit"], question)
    for wrong, why in (("demo rnns", "unknown demo"), ("look heads runs/a --heads 1", "a field")):
        with pytest.raises(UserError, match=why):
            parsed(f"foveate {wrong}")
    for wrong in ("", "foveate", "rm -rf /", "foveate look 'a"):
        with pytest.raises(UserError, match="can draw a step"):
            parsed(wrong)


def test_every_demo_and_these_views_are_played() -> None:
    played = {step.command.split()[2] for _, _, step in STEPS}
    assert {*DEMOS, "scene", "growing", "exposure"} <= played


def test_each_run_has_a_command_that_makes_it(tmp_path: Path) -> None:
    template = (ROOT / "src" / "foveate" / "grammar.toml").read_text("utf-8")
    grammar = tmp_path / "grammar.toml"
    grammar.write_text(template.replace("{folder}", "runs/grammar"))
    runs = lectures().runs
    assert {name for _, _, step in STEPS for name in step.runs} <= {*runs, "grammar"}
    for name, run in runs.items():
        assert f"runs/{name}" in run.command
        for line in run.command.split(" && "):
            if line.startswith("foveate "):
                check(line)
            if line.startswith("foveate train "):
                assert "max_minutes=" not in line.replace("max_minutes=none", ""), "steps end it"
                config, *words = shlex.split(line)[2:]
                path = grammar if config.startswith("runs/") else ROOT / shipped(Path(config))
                read(RunConfig, path, [word for word in words if "=" in word])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    return made(tmp_path_factory.mktemp("lectures"), ["transformer"], steps=4)


@pytest.fixture(scope="module")
def client(runs: dict[str, Run]) -> Iterator[TestClient]:
    folder = runs["transformer"].path
    folder.rename(folder.parent / "en-fr")
    with TestClient(studio_application([folder.parent]), base_url="http://127.0.0.1") as client:
        yield client


def test_a_step_that_cannot_be_drawn_says_why(client: TestClient) -> None:
    problem = drawn(client, "foveate look heads runs/mine --text 'A dog.'").json()["error"]
    assert "run 'mine' not found" in problem and "en-fr" in problem
    for command, said in {
        "foveate look headz runs/en-fr": "unknown view 'headz'; did you mean 'heads'?",
        "foveate demo lookup 3": "foveate demo lookup: 3 ",
        "foveate train config.toml": "foveate look … or foveate demo … can draw a step",
        "foveate look heads": "the view heads needs 1 run, not 0",
    }.items():
        answer = drawn(client, command)
        assert answer.status_code == 422 and said in answer.json()["error"]
        assert "cache-control" not in answer.headers


# ---- One's own
OWN = Lecture(
    title='Mine: "α" \\ 1',
    steps=[
        LectureStep(title="A lookup", command="foveate demo lookup", notes='one\ntwo """ \\n\n'),
        LectureStep(title="Del \x7f", command="foveate look heads runs/en-fr", slip="none\ttab"),
    ],
)


def test_a_lecture_is_written_as_the_file_that_is_read() -> None:
    for lecture in (OWN, *lectures().lectures):
        assert read_lecture(written(lecture)) == lecture


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("title", "not valid TOML"),
        ('title = "a"\n[[steps]]\ntitle = "b"\n', "step 1, command is missing"),
        ("steps = []", "title is missing"),
        ('title = "a"\nsteps = []', "a lecture needs a step"),
        ('title = "a"\n[[steps]]\ntitle = 1\ncommand = ""', "step 1, title: Input should be"),
        ('title = "a"\n[[steps]]\ntitle = "b"\ncommand = ""\nnots = ""', "step 1, nots is not a"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_by_step_and_key(text: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        read_lecture(LectureFile(name="a", text=text))


def test_ones_own_lectures_are_saved_and_listed(runs: dict[str, Run], tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text('title = "a"\n[[steps]]\ntitle = "b"\n')
    (tmp_path / "romac.toml").write_text(written(OWN).text)
    app = studio_application([runs["transformer"].path.parent], lectures=tmp_path)
    with TestClient(app, base_url="http://127.0.0.1") as client:

        def sent(path: str, lecture: Lecture) -> Any:
            return client.post(f"/api/v1/lectures{path}", json=lecture.model_dump(by_alias=True))

        names = [sent("", OWN).json()["name"] for _ in range(2)]
        assert names == ["mine-α-1", "mine-α-1-2"]
        again = OWN.model_copy(update={"name": names[1], "about": "other"})
        assert sent("", again).json()["name"] == names[1]
        listed = client.get("/api/v1/lectures").json()
        own = {each["name"]: each["about"] for each in listed["lectures"] if each["own"]}
        assert own == {names[0]: "", names[1]: "other"} and listed["folder"] == str(tmp_path)
        taken = "romac.toml: foveate has a lecture of this name; rename the file"
        assert listed["problems"] == ["broken.toml: step 1, command is missing", taken]
        file = client.post("/api/v1/lectures/read", json=sent("/written", OWN).json()).json()
        assert file["title"] == OWN.title
        for name in ("romac", "../a", "mine"):
            answer = sent("", OWN.model_copy(update={"name": name}))
            assert answer.status_code == 422 and repr(name) in answer.json()["error"]
        wrong = OWN.steps[0].model_copy(update={"command": "foveate look headz runs/a"})
        refused = sent("/written", OWN.model_copy(update={"steps": [OWN.steps[1], wrong]}))
        assert "step 2, command: unknown view 'headz'" in refused.json()["error"]


def test_a_studio_without_a_folder_saves_no_lecture(client: TestClient) -> None:
    answer = client.post("/api/v1/lectures", json=OWN.model_dump(by_alias=True))
    assert answer.status_code == 422 and "no folder for lectures" in answer.json()["error"]
    result = CliRunner().invoke(app, ["studio", "--lectures", "nowhere"])
    assert "the folder does not exist" in str(result.exception)


# ---- Right after installation: an empty folder, and the runs that ship with foveate
NOT_PACKAGED = {
    "location": "another 1.9 MB, and 6 MB are the limit",
    "scheduled": "as location",
    "no-positions": "another 2.2 MB",
    "post-norm": "as no-positions",
    "vit": "its data set is large",
    "captions": "its data set may not be shipped",
}
PLAYED = list(dict.fromkeys(step.command for _, _, step in STEPS))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("empty"))
        patch.delenv("FOVEATE_DATA", raising=False)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        with TestClient(studio_application([]), base_url="http://127.0.0.1") as client:
            yield client


def test_the_runs_that_ship_are_small_whole_and_those_of_the_lectures(installed) -> None:
    # one of them has its packed file too, so that it translates without PyTorch
    assert sum(f.stat().st_size for f in PACKAGED.rglob("*") if f.is_file()) <= 8 * 2**20
    runs = {each["id"]: each for each in installed.get("/api/v1/runs").json()["runs"]}
    names = [each["name"] for each in installed.get("/api/v1/lectures").json()["lectures"]]
    assert names == sorted(path.stem for path in FOLDER.glob("*.toml") if path.stem != "runs")
    assert all(run["packaged"] for run in runs.values())
    assert lectures().runs.keys() - runs.keys() == NOT_PACKAGED.keys()
    for name in runs:
        folder = checkpoint.folder_of(PACKAGED / name, "best")
        stored.verify(folder)
        weights = load_file(folder / stored.WEIGHTS)
        assert {each.dtype for each in weights.values()} <= {torch.float16, torch.int64}
        assert {p.dtype for p in load(f"packaged/{name}").model.parameters()} == {torch.float32}


def test_the_runs_that_ship_know_the_sentences_of_the_lectures() -> None:
    pairs = {
        "She closes the old window.": "Elle ferme la vieille fenêtre.",
        "The young woman sings in the garden.": "La jeune femme chante dans le jardin.",
    }
    assert list(map(str, load("packaged/en-fr").translate(list(pairs)))) == list(pairs.values())
    label = load("packaged/kinds-of-sentences").classify(["He is not here"])[0]
    assert max(label.probabilities, key=label.probabilities.__getitem__) == "negation"


def test_slides_ask_models_about_words_that_they_know() -> None:
    known = lectures().runs
    for lecture, number, step in STEPS:
        name, runs, question = parsed(step.command)
        for run in [known[each].instead or each for each in runs if (text := asked_text(question))]:
            if (PACKAGED / run).is_dir() and step.title != "Unknown words":
                unknown = unknown_words(load(f"packaged/{run}").task, text)
                assert not unknown, (lecture.name, number, name, unknown)


def asked_text(question: Any) -> str:
    return getattr(question, "text", None) or ""


def test_the_language_model_begins_sentences_as_its_texts_do() -> None:
    task = load("packaged/lm").need(Language, "begin a text")
    first = [line.split()[0] for line in task.text("test").lines]
    _, p, _ = forced(load("packaged/lm"), "The young woman sings in the garden.")
    best = [task.name_of(i) for i in p[0].topk(10).indices.tolist()]
    assert {*best} <= {*first}
    totals = {}
    for name in ("lm", "lm-lstm", "lm-rnn"):  # the Transformer is not the worst of the three
        ids, p, _ = forced(load(f"packaged/{name}"), "The young woman sings in the garden.")
        totals[name] = sum(p[t, i].item() for t, i in enumerate(ids))
    assert max(totals, key=totals.__getitem__) == "lm"


def test_a_forecast_that_reads_itself_moves_away_from_the_truth() -> None:
    command = next(s.command for lecture in lectures().lectures for s in lecture.steps
                   if "look exposure runs/passengers" in s.command)  # fmt: skip
    _, runs, question = parsed(command)
    [panel] = exposure([load(f"packaged/{name}") for name in runs], dict(question)["split"]).panels
    curves = panel.arrays()
    assert (curves["reads its own x̂"][1:] > curves["reads the truth"][1:]).all()


def test_words_that_a_model_never_saw_are_named(installed: TestClient) -> None:
    for name, view in {"en-fr": "attention", "lm": "probabilities"}.items():
        command = f"foveate look {view} runs/{name} --text 'The zebra sings in the garden.'"
        assert drawn(installed, command).json()["unknown"] == ["zebra"]
    command = "foveate look attention runs/en-fr --text 'She closes the old window.'"
    assert drawn(installed, command).json()["unknown"] == []


@pytest.mark.slow
@pytest.mark.parametrize("command", PLAYED)
def test_each_step_is_drawn_in_an_empty_folder(installed: TestClient, command: str) -> None:
    answer = drawn(installed, command)
    missing = [name for name in NOT_PACKAGED if f"runs/{name}" in command]
    if alone := [name for name in missing if not lectures().runs[name].instead]:
        assert answer.status_code == 404 and f"no run '{alone[0]}'" in answer.json()["error"]
    else:
        assert answer.status_code == 200 and answer.json()["drawings"], answer.text
        assert answer.headers["cache-control"] == "private, max-age=60"
