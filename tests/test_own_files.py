"""Views, demos and formats of one's own: one file, imported by ``--import``, as in the guides."""

import importlib
import inspect
import re
import runpy
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient

from foveate import config
from foveate.config import _FAMILIES, ConfigError, import_own
from foveate.data import text
from foveate.data.batches import sorted_batches
from foveate.documents import formats
from foveate.documents.base import DocumentOptions
from foveate.errors import OWN, UserError, one_line_errors
from foveate.look import views
from foveate.look.views import VIEWS, demos, find
from foveate.look.views.demos import DEMOS
from foveate.look.views.options import Question
from foveate.nn.attention import Attention
from foveate.nn.scores import Score
from foveate.run import Run
from foveate.run.answering import answer
from foveate.run.evaluation import evaluate, examples, read_examples
from foveate.run.passes import forced_pass
from foveate.run.training import train
from foveate.serve.common import refusal
from foveate.studio.api import studio_application
from foveate.tasks.base import CHECKED, Task
from small_runs import TRANSFORMER, Call, invoked, python
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
    OWN.clear()
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


@pytest.mark.parametrize(
    ("page", "made"), [("add-a-view.md", "sharpness.png"), ("add-a-format.md", "song.fr.lrc")]
)
def test_the_commands_of_a_guide_run_in_an_empty_folder(page: str, made: str) -> None:
    written(page)
    for block in blocks(page, "bash"):
        run_commands(block)
    assert Path(made).stat().st_size > 20


IMPORT = "--import=my_views"  # the option with an equals sign stands anywhere


def test_a_view_of_ones_own_is_wherever_views_are(run: Run, call: Call) -> None:
    written("add-a-view.md")
    for words in (["--import", "my_views", "look", "--help"], ["look", "--help", IMPORT]):
        listed = call(*words).out
        assert "sharpness      The largest weight of a query" in listed and "attention  " in listed
    drawing = find("sharpness").draw([run], Question(text="the dog runs", layer=0))
    [series] = drawing.series
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


OWN_VIEWS = {  # what is wrong in a file, by its name
    "my_option.py": ("@view()\ndef own(run, colour=1): ...", "unknown option of views 'colour'"),
    "my_name.py": ("@view()\ndef heads(run): ...", "'heads' exists already: give yours another"),
    "my_bare.py": (
        "@view\ndef own(run): ...",
        "my_bare.py:3: own: write @view(), with parentheses",
    ),
    "my_bars.py": (
        "from foveate.look.draw.charts import bar_chart\n@view()\n"
        "def own(run): return bar_chart(['a'], {'b': [1.0, 2.0]})",
        "my_bars.py:5: ValueError: 'b': 2 values for 1 labels",
    ),
    "my_error.py": ("1 / 0", "my_error.py:3: ZeroDivisionError"),
    "my_absent.py": (None, "--import my_absent.py: no such file"),
    "my_three.py": (
        "@view()\ndef own(run):\n    return 3",
        "my_three.py:3: own returned int: expected foveate.look.draw.drawings.Drawing",
    ),
}


@pytest.mark.parametrize("name", OWN_VIEWS)
def test_what_is_wrong_in_a_file_is_said_in_one_sentence(name: str, call: Call) -> None:
    code, message = OWN_VIEWS[name]
    if code:
        Path(name).write_text(f"from foveate.look.views import view\n\n{code}\n", "utf-8")
    answer = call("--import", name, "look", "own", "packaged/en-fr")
    assert answer.code == 2 and message in answer.err and answer.err.count("\n") == 1


def test_a_server_calls_an_error_in_a_file_of_ones_own_no_bug(caplog) -> None:
    code = "def fail(depth):\n    return fail(depth - 1) if depth else 1 / 0\n"
    Path("my_model.py").write_text(code, "utf-8")
    with pytest.raises(ZeroDivisionError) as raised:
        runpy.run_path(str(Path("my_model.py").resolve()))["fail"](3)
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
    assert {*formats.READERS} == {*formats.ENDINGS.values()}
    assert {*formats.BY_LINES} <= {*formats.READERS}
    register = formats.document_format
    for name, ending, message in (
        ("text", ".own", "there is a format 'text' already"),
        ("own", ".html", "is the ending of the format 'html'"),
        ("own", "own", "write an ending in small letters"),
    ):
        with pytest.raises(ConfigError, match=message):
            register(name, ending)(lambda data, options, where: None)
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
        done = python("-c", code, env={"FOVEATE_IMPORT": "my_pairs.py"}, check=True)
        assert done.stdout == f"{read}\n"


def test_import_takes_the_file_that_is_named_or_refuses(monkeypatch, call: Call) -> None:
    """Not a module of Python, or of another --import, that has its name."""
    for file in ("html.py", "a/my_mine.py", "b/my_mine.py", "deep/my_deep.py", "my_here.py"):
        Path(file).parent.mkdir(exist_ok=True)
        Path(file).write_text("", "utf-8")
    monkeypatch.setenv("FOVEATE_IMPORT", "deep/my_deep.py,my_here")  # by its file or its name
    import_own()
    assert {"my_deep", "my_here"} <= {*sys.modules}
    monkeypatch.setenv("FOVEATE_IMPORT", "")
    answer = call("--import", "html.py", "kinds")
    assert answer.code == 2 and answer.err.count("\n") == 1
    assert re.search(r"--import html.py: 'html' is already .*html/__init__.py: rename", answer.err)
    answer = call("--import", "a/my_mine.py", "--import", "b/my_mine.py", "kinds")
    first = Path("a/my_mine.py").resolve()
    assert answer.code == 2 and f"b/my_mine.py: 'my_mine' is already {first}: " in answer.err


def test_a_task_that_makes_its_own_pairs_is_trained_and_evaluated_on_them() -> None:
    """What is registered for a task calls the methods of the class of one's own."""
    Path("my_sums.py").write_text(blocks("add-a-task.md", "python")[1], "utf-8")
    Path("sums.toml").write_text(blocks("add-a-task.md", "toml")[1], "utf-8")
    steps = ["train.max_steps=2", "train.save.every=2", "train.validation.every=2"]
    run = train("sums.toml", steps, "run")
    assert run.evaluate(split="test").figures.keys() == {"exact_match"}
    assert run.pairs("test")[0] == run.task.corpus("test").sources
    source = "".join(path.read_text("utf-8") for path in DOCS.parent.glob("src/foveate/**/*.py"))
    assert not re.findall(r"\.register\(\w+, [A-Z]\w*\.\w+", source)  # the method of a base class


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
        "my_tensor": "my_wrong.py:12: Tensor.loss returned Tensor: expected foveate.tasks.base.Lo",
        "my_figures": "my_wrong.py:17: Figures.measure returned dict: expected foveate.tasks.bas",
        "my_misspelt": "my_wrong.py:23: AttributeError: 'Batch' object has no attribute 'sorce' "
        "(in a file of yours; traceback: --debug)",
    }
    for kind, message in expected.items():
        words = ("train", "reviews.toml", f"task.kind={kind}", "--run", kind)
        answer = call("--import", "my_wrong.py", *words)
        assert answer.code == 2 and f"error: {message}" in answer.err, answer.err


OWN_TASK = """import my_task
from my_task import Regression


class Own(Regression, kind="my_own"):
    {}
"""


def own_module(code: str) -> ModuleType:
    """Import a text as ``my_own.py``, beside the task of the guide."""
    Path("my_task.py").write_text(blocks("add-a-task.md", "python")[0], "utf-8")
    Path("my_own.py").write_text(code, "utf-8")
    sys.modules.pop("my_own", None)
    shutil.rmtree("__pycache__", ignore_errors=True)
    importlib.invalidate_caches()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOVEATE_IMPORT", "my_own.py")
        import_own()
    return sys.modules["my_own"]


@pytest.mark.parametrize("name", CHECKED)
def test_each_method_of_a_task_is_held_to_what_foveate_calls(name: str) -> None:
    """What it returns, and what it takes: each mistake is told with file and line."""
    arguments = [*inspect.signature(getattr(Task, name)).parameters]
    for given in ("None", "[1]")[: 1 + (name != "batch")]:
        code = f"def {name}({', '.join(arguments)}):\n        return {given}"
        task = object.__new__(own_module(OWN_TASK.format(code)).Own)
        message = rf"^my_own.py:6: Own.{name} returned (None|list).*: exp"
        with pytest.raises(UserError, match=message):
            getattr(task, name)(*arguments[1:])
    task = object.__new__(own_module(OWN_TASK.format(f"def {name}(self): ...")).Own)
    with pytest.raises(UserError, match=rf"my_own.py:6: Own.{name}: .*positional"):
        getattr(task, name)(*arguments[1:])


@pytest.mark.parametrize("dispatch", [answer, evaluate, examples, read_examples, forced_pass])
def test_each_function_registered_for_a_task_is_held_to_its_signature(dispatch) -> None:
    given = "None" if dispatch in (examples, read_examples) else '["a"]'
    arguments = ", ".join(inspect.signature(dispatch).parameters)
    module = own_module(f"def own({arguments}):\n    return {given}\n\n\ndef none(): ...\n")
    kind = type("Kind", (), {})
    assert dispatch.register(kind)(module.own) is module.own
    message = r"^my_own.py:1: own returned (NoneType|list( \['a'\])?): expected "
    with pytest.raises(UserError, match=message):
        dispatch(kind(), *arguments.split(", ")[1:])
    dispatch.register(kind, module.none)
    with pytest.raises(UserError, match=r"my_own.py:5: none: none\(\) takes 0 positional"):
        dispatch(kind(), *arguments.split(", ")[1:])


READS = {  # what a user's reader of files does wrong, and the message
    "return Document(['a'], bytes)": r"own: its Document.passages returned list \['a'\]: exp",
    "return Document([], lambda: b'')": r"my_own.py:5: .*<lambda>: .*takes 0 positional",
    "return Document([], lambda texts: 'a')": r"<lambda> returned str: expected bytes",
    "return iter(['text'])": r"own, as an item, returned str 'text': expected tuple\[str, str\] | ",
    "yield ('text',)": r"own, as an item, returned tuple \('text',\): expected",
    "yield 'a', 1": r"own, as an item, returned tuple \('a', 1\): expected",
}


@pytest.mark.parametrize("body", READS)
def test_each_reader_of_files_is_held_to_what_it_returns(body: str) -> None:
    document = "Document" in body
    kind, given = ("document_format('own', '.own')", "data, options, where") if document else (
        "pair_reader('.own')", "path, config"
    )  # fmt: skip
    module = "foveate.documents.formats" if document else "foveate.data.text"
    code = f"from {module} import {kind.partition('(')[0]}\nfrom foveate.documents.base import Docu"
    with pytest.raises(UserError, match=READS[body]) as raised:
        own_module(f"{code}ment\n@{kind}\ndef own({given}):\n    {body}\n")
        if document:
            formats.read_document("own", b"", DocumentOptions()).written([])
        else:
            list(text.rows(Path("a.own"), None, text.TextData()))
    assert "my_own.py:" in str(raised.value)


def test_what_fails_after_ones_own_file_is_no_bug_of_foveate(capsys, monkeypatch) -> None:
    monkeypatch.delenv("FOVEATE_DEBUG", raising=False)
    own_module("")
    with pytest.raises(SystemExit), one_line_errors():
        sorted_batches(None, 0)
    assert capsys.readouterr().err.endswith(
        "(in or after my_own.py of yours; traceback: --debug)\n"
    )


def test_what_ones_own_functions_return_is_checked() -> None:
    formats.document_format("own", ".own")(lambda data, options, where: [])
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
