"""Views, demos and formats of one's own: one file, imported by ``--import``, as in the guides."""

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient

from foveate import config
from foveate.config import _FAMILIES, ConfigError, import_own
from foveate.data import text
from foveate.documents import formats
from foveate.documents.base import DocumentOptions
from foveate.errors import UserError
from foveate.look import views
from foveate.look.draw.drawings import Drawing
from foveate.look.views import VIEWS, demos, find, view
from foveate.look.views.demos import DEMOS
from foveate.look.views.options import Question
from foveate.nn.attention import Attention
from foveate.nn.scores import Score
from foveate.run import Run
from foveate.run.training import train
from foveate.serve.common import refusal
from foveate.studio.api import studio_application
from small_runs import TRANSFORMER, Call, invoked
from test_docs import DOCS, blocks, run_commands

TABLES: tuple[dict[str, Any], ...] = (
    VIEWS, views._SPECS, DEMOS, demos._FUNCTIONS, formats.READERS, formats.ENDINGS,
    formats.BY_LINES, text.READERS, _FAMILIES["task"],
)  # fmt: skip


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder; what a test registers is gone after it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("FOVEATE_IMPORT", "")
    monkeypatch.setattr(config, "_OWN", set())
    before, modules = [{*table} for table in TABLES], {*sys.modules}
    yield
    for table, old in zip(TABLES, before, strict=True):
        for name in {*table} - old:
            made = getattr(table[name], "function", table[name])
            ours = getattr(made, "__module__", "").startswith("foveate.")
            if table in (VIEWS, DEMOS) or not ours:  # these two list ours from the start
                del table[name]
    for name in {*sys.modules} - modules:
        if name.startswith("my_"):
            del sys.modules[name]


def written(page: str) -> None:
    """The Python blocks of a guide as the files that it names."""
    whole = (DOCS / "guide" / page).read_text("utf-8")
    for code in blocks(page, "python"):
        before = whole[: whole.index(code)]
        Path(before.rpartition(".py`")[0].rpartition("`")[2] + ".py").write_text(code, "utf-8")


@pytest.mark.parametrize("page", ["add-a-view.md", "add-a-format.md"])
def test_the_commands_of_a_guide_run_in_an_empty_folder(page: str) -> None:
    written(page)
    for block in blocks(page, "bash"):
        run_commands(block)
    made = {"add-a-view.md": "sharpness.png", "add-a-format.md": "song.fr.lrc"}[page]
    assert Path(made).stat().st_size > 20


def test_a_view_of_ones_own_is_wherever_views_are(run: Run) -> None:
    written("add-a-view.md")
    listed = invoked("--import", "my_views", "look", "--help").output
    assert "sharpness      The largest weight of a query" in listed and "attention  " in listed
    drawing = find("sharpness").draw([run], Question(text="the dog runs", layer=0))
    [series] = drawing.series  # type: ignore[attr-defined]
    weights = run.explain("the dog runs").maps["decoder.layers.0.cross_attention"]
    assert series.values.tolist() == pytest.approx(weights.max(2).mean(1).tolist(), rel=0.1)
    with pytest.raises(UserError, match="layer 9 of cross_attention: there are"):
        find("sharpness").draw([run], Question(text="the dog runs", layer=9))
    name = run.path.name
    with TestClient(studio_application([run.path]), base_url="http://127.0.0.1") as client:
        offered = client.get(f"/api/v1/runs/{name}").json()["views"]
        assert {"sharpness"} < {each["name"] for each in offered if each["fits"]}
        reply = client.post(f"/api/v1/runs/{name}/views/sharpness", json={"text": "the dog"})
        assert reply.status_code == 200, reply.text


def test_the_option_with_an_equals_sign_stands_anywhere(call: Call) -> None:
    written("add-a-view.md")
    for words in (
        ("--import", "my_views", "look", "--help"),
        ("look", "--help", "--import=my_views"),
    ):
        assert "sharpness" in call(*words).out


def test_what_is_wrong_in_a_file_is_said_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    files = {
        "my_option.py": ("@view()\ndef own(run, colour=1): ...", "no option of views 'colour'"),
        "my_name.py": ("@view()\ndef heads(run): ...", "there is a 'heads' already"),
        "my_error.py": ("1 / 0", "my_error.py:3: ZeroDivisionError"),
        "my_absent.py": (None, "--import my_absent.py: no such file"),
    }
    for name, (code, message) in files.items():
        if code is not None:
            code = f"from foveate.look.views import view\n\n{code}\n"
            Path(name).write_text(code, "utf-8")
        answer = call("--import", name, "look", "own", "packaged/en-fr")
        assert answer.code == 2 and message in answer.err and answer.err.count("\n") == 1


def test_any_error_in_a_view_of_ones_own_is_one_sentence() -> None:
    @view()
    def own(run: object) -> Drawing:
        return {}["nothing"]  # type: ignore[no-any-return]

    with pytest.raises(ConfigError, match=r"test_own_files.py:\d+: KeyError: 'nothing'"):
        find("own").draw([SimpleNamespace()], Question())  # type: ignore[list-item]


def test_a_server_calls_an_error_in_a_file_of_ones_own_no_bug(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "my_model.py"
    file.write_text("def fail(depth):\n    return fail(depth - 1) if depth else 1 / 0\n", "utf-8")
    with pytest.raises(ZeroDivisionError) as raised:
        runpy.run_path(str(file))["fail"](3)
    refused = refusal(raised.value, public=False)
    assert refused.status == 422 and "my_model.py:2: ZeroDivisionError" in refused.message
    assert "a file of yours" in caplog.text and "please report" not in caplog.text


def test_a_demo_of_ones_own_is_a_command() -> None:
    code = '''from foveate.look.draw.charts import bar_chart
from foveate.look.views.demos import demo


@demo
def squares():
    """The first squares."""
    return bar_chart(["1", "2"], {"square": [1.0, 4.0]})
'''
    Path("my_demo.py").write_text(code, "utf-8")
    assert "The first squares." in invoked("--import", "my_demo.py", "demo", "--help").output
    assert "█" in invoked("demo", "squares").output


def test_a_document_format_is_registered_once() -> None:
    named = {
        name: {e for e, of in formats.ENDINGS.items() if of == name} for name in formats.READERS
    }
    assert {name for name, own in named.items() if not own} == {"pdf"}, "no translation is a PDF"
    assert {*formats.BY_LINES} <= {*formats.READERS}
    register = formats.document_format
    for name, ending, message in (
        ("text", ".own", "there is a format 'text' already"),
        ("own", ".html", "is the ending of the format 'html'"),
        ("own", "own", "write an ending in small letters"),
    ):
        with pytest.raises(ConfigError, match=message):
            register(name, ending)(lambda data, options, where: None)  # type: ignore[arg-type]
        assert "own" not in formats.READERS
    with pytest.raises(UserError, match=r"foveate reads files that end in \.po already"):
        text.pair_reader(".po")(lambda path, config: iter(()))


def test_a_document_of_ones_own_is_in_folders_and_processes(call: Call) -> None:
    written("add-a-format.md")
    Path("songs").mkdir()
    for number in range(2):
        Path(f"songs/{number}.lrc").write_text(f"[00:0{number}.00] We are at home.\n", "utf-8")
    words = ("translate", "packaged/en-fr", "--in", "songs", "--out", "out", "--processes", "2")
    answer = call("--import", "my_formats.py", *words)
    assert answer.code == 0, answer.err
    assert Path("out/1.lrc").read_text("utf-8").startswith("[00:01.00] ")
    assert "lyrics" in call("translate", "packaged/en-fr", "--format", "none").err


def test_training_data_of_ones_own_are_read() -> None:
    written("add-a-format.md")
    words = ["the dog", "a cat", "a girl", "the man"]
    lines = [f"{a} {n} ||| {a.upper()} {n}\n" for a in words for n in range(8)]
    for split in ("train", "valid", "test"):
        Path(f"pairs.{split}.bars").write_text("".join(lines), "utf-8")
    table = blocks("add-a-format.md", "toml")[0] + 'tokenizer = "character"\n\n[model]\n'
    table += 'kind = "encoder_decoder"\nencoder = { A }\ndecoder = { A }\n[train]\nmax_steps = 2\n'
    Path("c.toml").write_text(table.replace("A", TRANSFORMER).replace("{{", "{"), "utf-8")
    run = train("c.toml", ["train.save.every=2"], "run")
    assert run.pairs("test")[1][0] == "THE DOG 0"
    report = invoked("--import", "my_pairs.py", "data", "report", "pairs.train.bars").output
    assert "32" in report
    Path("pairs.valid.bars").write_text("no bars\n", "utf-8")
    with pytest.raises(UserError, match=r"pairs.valid.bars:1: no \|\|\| between the sides"):
        text.collect(text.Reading("pairs.{split}.bars", None, "valid", text.TextData()))


def test_other_code_reads_the_data_anew() -> None:
    """The texts in the cache are of the reader that made them."""
    written("add-a-format.md")
    Path("pairs.train.bars").write_text("a ||| b\n", "utf-8")
    code = (
        "from foveate.config import import_own; import_own()\n"
        "from foveate.data.corpus import prepare_texts\n"
        "from foveate.data.text import Reading, TextData\n"
        "print(*prepare_texts([Reading('pairs.train.bars', None, 'train', TextData())]).targets)"
    )
    for old, new, read in (("", "", "b"), ("(source, target)", "(source, target * 2)", "bb")):
        file = Path("my_pairs.py")
        file.write_text(file.read_text("utf-8").replace(old, new), "utf-8")
        paths = os.pathsep.join(filter(None, sys.path))
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120,
            env=os.environ | {"FOVEATE_IMPORT": "my_pairs.py", "PYTHONPATH": paths},
        )  # fmt: skip
        assert done.stdout == f"{read}\n"


def test_a_module_is_imported_by_its_name_or_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "my_deep.py").write_text("", "utf-8")
    (tmp_path / "my_here.py").write_text("", "utf-8")
    monkeypatch.setenv("FOVEATE_IMPORT", "deep/my_deep.py,my_here")
    import_own()
    assert {"my_deep", "my_here"} <= {*sys.modules}


def test_import_takes_the_file_that_is_named_or_refuses(call: Call) -> None:
    """Not a module of Python, or of another --import, that has its name."""
    for file in ("html.py", "a/my_mine.py", "b/my_mine.py"):
        Path(file).parent.mkdir(exist_ok=True)
        Path(file).write_text("", "utf-8")
    answer = call("--import", "html.py", "kinds")
    assert answer.code == 2 and answer.err.count("\n") == 1
    assert re.search(r"--import html.py: 'html' is already .*html/__init__.py: rename", answer.err)
    answer = call("--import", "a/my_mine.py", "--import", "b/my_mine.py", "kinds")
    first = Path("a/my_mine.py").resolve()
    assert answer.code == 2 and f"b/my_mine.py: 'my_mine' is already {first}: " in answer.err
    assert "--import nothing.py: no such file" in call("--import", "nothing.py", "kinds").err


WRONG = """from foveate.tasks.base import Loss, Measures, Task
from my_task import Regression


class Lacking(Task):
    class Config(Task.Config, kind="my_lacking"):
        source: str
        tokenizer: dict


class Tensor(Regression, kind="my_tensor"):
    def loss(self, model, batch, objective):
        return super().loss(model, batch, objective).total


class Figures(Regression, kind="my_figures"):
    def measure(self, model, split, search, samples=3):
        return {"loss": 1.0}


class Misspelt(Regression, kind="my_misspelt"):
    def loss(self, model, batch, objective):
        return Loss(batch.sorce, 1)
"""


def test_what_a_task_of_ones_own_does_wrong_is_one_sentence(call: Call) -> None:
    """With the file and line, or what was expected; and a run remembers the file of its task."""
    Path("my_task.py").write_text(blocks("add-a-task.md", "python")[0], "utf-8")
    Path("my_wrong.py").write_text(WRONG, "utf-8")
    table = blocks("add-a-task.md", "toml")[0].replace('imports = ["my_task"]\n', "")
    Path("reviews.toml").write_text(table.replace("200", "2").replace("100", "2"), "utf-8")
    for split in ("train", "valid", "test"):
        Path(f"reviews.{split}.tsv").write_text("good film\t5\nbad film\t1\n" * 8, "utf-8")
    assert call("--import", "my_task.py", "train", "reviews.toml", "--run", "good").code == 0
    assert 'imports = ["my_task"]' in Path("good/config.toml").read_text("utf-8")
    expected = {
        "my_lacking": "my_wrong.Lacking must define batch, build, lengths, loss, measure, prepare",
        "my_tensor": "Tensor.loss returned Tensor: expected foveate.tasks.base.Loss",
        "my_figures": "Figures.measure returned dict: expected foveate.tasks.base.Measures",
        "my_misspelt": "my_wrong.py:23: AttributeError: 'Batch' object has no attribute 'sorce' "
        "(in a file of yours; traceback: --debug)",
    }
    for kind, message in expected.items():
        words = ("train", "reviews.toml", f"task.kind={kind}", "--run", kind)
        answer = call("--import", "my_wrong.py", *words)
        assert answer.code == 2 and f"error: {message}" in answer.err, answer.err


def test_what_ones_own_functions_return_is_checked(call: Call) -> None:
    view_of = "from foveate.look.views import view\n\n@view()\ndef own(run):\n    return 3\n"
    Path("my_three.py").write_text(view_of, "utf-8")
    answer = call("--import", "my_three.py", "look", "own", "packaged/en-fr")
    assert answer.code == 2
    assert "'own' returned int: expected foveate.look.draw.drawings.Drawing" in answer.err
    formats.document_format("own", ".own")(lambda data, options, where: [])  # type: ignore
    with pytest.raises(UserError, match=r"returned list: expected foveate.documents.base.Document"):
        formats.read_document("own", b"", DocumentOptions())
    attention = Attention.Config().build(8)
    attention.score = Wide(Score.Config(), 1, 8)
    message = r"Wide.forward returned \(1, 1, 3, 4\): expected \(B, H, T, S\) = \(1, 1, 3, 3\)"
    with pytest.raises(UserError, match=message):
        attention(torch.zeros(1, 3, 8))


class Wide(Score):
    """A score with a column too many."""

    def forward(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(query @ key.mT, (0, 1))
