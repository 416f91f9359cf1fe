"""The command line: errors, workers, the doctor."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

import foveate
from browser import find_browser
from foveate import cli, errors, system
from foveate.cli import app, doctor
from foveate.cli.options import flat
from foveate.cli.serve import ServerEngine
from foveate.config import ConfigError
from foveate.engine.packed import PackedEngine
from foveate.kinds import described
from foveate.run import Run, RunConfig
from small_runs import Call, invoked, python, running

ROOT = Path(__file__).parent.parent
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "src")}


def test_help_lists_every_verb_in_whole_sentences(call: Call) -> None:
    code, text, _ = call("--help")
    verbs = "train translate evaluate score look data kinds show doctor average quickstart serve"
    assert code == 0 and all(f"\n  {verb} " in text for verb in verbs.split())
    assert "...\n" not in text.partition("Commands")[2], "a sentence is too long for its line"


@dataclasses.dataclass(frozen=True)
class Size:
    width: Annotated[int, typer.Option(min=1)] = 3


@dataclasses.dataclass(frozen=True)
class Shape:
    name: Annotated[str, typer.Argument()]
    size: Size = Size()
    filled: Annotated[bool, typer.Option("--filled")] = False


def test_a_verb_takes_the_options_of_nested_dataclasses_in_their_order() -> None:
    calls: list[Shape] = []

    def draw(shape: Shape) -> None:
        calls.append(shape)

    program = typer.Typer()
    program.command()(flat(draw))
    names = [parameter.name for parameter in typer.main.get_command(program).params]
    assert names[:3] == ["name", "width", "filled"]
    for words in (["a"], ["a", "--width", "0"], ["b", "--filled", "--width", "5"]):
        assert CliRunner().invoke(program, words).exit_code == 2 * ("0" in words)
    assert calls == [Shape("a"), Shape("b", Size(5), True)]


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], *([v, "--help"] for v in ("train", "serve", "look", "demo"))],
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        f"sys.argv = ['foveate', *{arguments}]\n"
        "from foveate.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'matplotlib', 'sacrebleu', 'tokenizers', 'rich', 'pydantic'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr


def test_the_public_surface_is_there() -> None:
    assert foveate.Config.__module__ == "foveate.config"
    assert set(foveate.__all__) == set(dir(foveate))
    with pytest.raises(AttributeError, match="load, look, train"):
        foveate.translate  # noqa: B018
    assert all(getattr(foveate, name) is not None for name in foveate.__all__)


def test_the_package_train_does_not_hide_the_function() -> None:
    """Whatever is imported first, each in a process of its own that has PyTorch already."""
    code = (
        "import os, torch\n"
        "for first in ('foveate.load', 'foveate.train', 'import foveate.train.fit'):\n"
        "    if (child := os.fork()):\n"
        "        assert os.waitpid(child, 0)[1] == 0, first\n"
        "        continue\n"
        "    import foveate\n"
        "    exec(first)\n"
        "    import foveate.run, foveate.train, foveate.run.training\n"
        "    from foveate.train.fit import fit\n"
        "    from foveate import train\n"
        "    assert foveate.train is train is foveate.run.training.train, foveate.train\n"
        "    os._exit(0)\n"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "place", "completed"),
    [
        ("foveate tr", 1, ["train", "translate"]),
        ("foveate translate --beam", 2, ["--beam-size"]),
        ("foveate look attent", 2, ["attention"]),
    ],
)
def test_the_shell_completes_verbs_and_options(words: str, place: int, completed) -> None:
    asked = {"_FOVEATE_COMPLETE": "complete_bash", "COMP_CWORD": str(place), "COMP_WORDS": words}
    assert python("-m", "foveate", env=asked).stdout.split() == completed


def test_versions_agree() -> None:
    assert f'version = "{foveate.__version__}"' in (ROOT / "pyproject.toml").read_text()
    assert f"[{foveate.__version__}]" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {foveate.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_verbs_without_a_run(call: Call) -> None:
    assert call("--version") == (0, foveate.__version__ + "\n", "")
    assert "multi30k" in call("data", "list").out
    assert "multi30k" in json.loads(call("data", "list", "--json").out)
    code, text, _ = call("kinds", "score")
    assert code == 0 and "sharpness" in text and "\nposition" not in text
    for kind in ("additive", "cosine", "location", "general", "dot", "scaled_dot"):
        assert f"\n  {kind} " in text
    known = {kind.name: kind for kind in described(None, RunConfig)}
    field = dataclasses.asdict(known["cosine"].fields["sharpness"])
    expected = {"type": "float", "default": "10.0", "limits": "> 0"}
    assert field == expected | {"meaning": "Factor of the cosine"}
    assert all(kind.meaning for kind in known.values() if not kind.family.startswith("test_"))


def test_debugging_shows_where(monkeypatch: pytest.MonkeyPatch) -> None:
    done = python("-m", "foveate", "--debug", "data", "get", "multi31k")
    assert done.returncode == 1
    assert "Traceback" in done.stderr and "unknown data set 'multi31k'" in done.stderr
    monkeypatch.setenv("FOVEATE_DEBUG", "1")
    monkeypatch.setattr(sys, "argv", ["foveate", "kinds", "skore"])
    with pytest.raises(ConfigError, match="no family 'skore'"):
        cli.main()


def test_faults_of_the_program_are_not_dressed_up() -> None:
    program = "import numpy, foveate.data.batches as b; from foveate import errors\n"
    program += "with errors.one_line_errors():\n    b.sorted_batches(None, 0)"
    done = python("-c", program)
    lines = done.stderr.splitlines()
    assert done.returncode == 1 and lines[0].startswith("Traceback")
    assert lines[-1] == "this is a bug in foveate, please report it"


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ('{"url": "file:///f", "dir_info": {"editable": true}}', "pip install '.[train]'"),
        ('{"url": "file:///f.whl", "archive_info": {}}', "'foveate[train] @ file:///f.whl'"),
        (None, "pip install 'foveate[train]'"),
    ],
    ids=["checkout", "wheel", "index"],
)
def test_extras_are_installed_from_where_foveate_was(origin, command, monkeypatch) -> None:
    package = SimpleNamespace(read_text=lambda name: {"direct_url.json": origin}[name])
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: package)
    assert errors.install("train").endswith(command)
    assert ("in a checkout" in errors.install("train")) == ("'." in command)


def test_errors_of_files_name_the_file(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.delenv("FOVEATE_DEBUG", raising=False)
    with pytest.raises(SystemExit), errors.one_line_errors():
        (tmp_path / "nowhere").read_text()
    assert capsys.readouterr().err == f"error: {tmp_path / 'nowhere'}: No such file or directory\n"
    assert errors.message_of(ConfigError("a\nb", ("key",))) == "key: a b"


def test_a_closed_pipe_is_quiet() -> None:
    command, pipe = [sys.executable, "-m", "foveate", "data", "list"], subprocess.PIPE
    with running(command, stdout=pipe, stderr=pipe, env=ENVIRONMENT) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) in (1, 141)  # of typer, of a shell


# ---- what stands in the files beside the code
def test_every_lock_is_exact_and_of_no_special_machine() -> None:
    for name in ("requirements.lock", "requirements-dev.lock"):
        lines = (ROOT / name).read_text().splitlines()
        pins = [line for line in lines if not line.startswith("#")]
        assert "torch==2.13.0" in pins
        for pin in pins:
            assert pin.count("==") == 1 and "+" not in pin and "@" not in pin, pin
            assert not pin.startswith(("nvidia", "triton")), pin
    runtime = set((ROOT / "requirements.lock").read_text().splitlines()[1:])
    assert runtime <= set((ROOT / "requirements-dev.lock").read_text().splitlines())


@pytest.mark.parametrize(
    ("group", "options", "command"),
    [("serve", ["RUN…", "--host", "--port"], "keys"),
     ("align", ["MODEL", "--symmetrize", "--layer"], "evaluate")],
)  # fmt: skip
def test_help_of_a_group_shows_the_options_of_its_usual_command(group, options, command) -> None:
    done = invoked(group, "--help")
    assert f"  {command} " in done.stdout
    assert all(option in done.stdout for option in options), done.stdout
    wrong = CliRunner().invoke(app, [group, "--bogus"])
    assert f" {group} [OPTIONS]" in wrong.output


LINES = ["the dog runs", "", "a girl sings", "the dog runs and a girl sings"]


def test_a_server_loads_a_run_in_the_precision_that_is_asked_for(run: Run) -> None:
    loaded = ServerEngine("int8", "torch").load(run.path)
    assert type(loaded) is Run and isinstance(loaded.engine, PackedEngine)
    assert loaded.translate(LINES) == ServerEngine("int8").load(run.path).translate(LINES)


# ------------------------------ The doctor looks, measures a little, and says what to do
@pytest.fixture(scope="module")
def report() -> doctor.MachineReport:
    return doctor.examine(Path(__file__).parent, seconds=0.02)


def test_it_says_all_that_was_asked(report: doctor.MachineReport) -> None:
    text = report.text()
    for word in ("Python", "torch", "threads", "bf16", "GFLOP/s", "memory free", "disk free"):
        assert word in text, word
    assert all(value > 0 for value in report.gflops.values())
    assert json.loads(json.dumps(dataclasses.asdict(report)))["gflops"] == report.gflops


@pytest.mark.parametrize(
    ("bf16", "threads", "usable", "busy", "said"),
    [
        (400.0, 1, 4, False, [r"threads of torch: 1, usable cores: 4.*OMP_NUM_THREADS"]),
        (400.0, 8, 2, False, ["OMP_NUM_THREADS=2"]),
        (70.0, 2, 2, True, ["70 against 100", "Other programs"]),
        (400.0, 2, 2, False, []),
    ],
)
def test_what_slows_a_machine_is_said(bf16, threads, usable, busy, said) -> None:
    advice = doctor._processor_advice({"fp32": 100.0, "bf16": bf16}, threads, usable, busy)
    for sentence, pattern in zip(advice, said, strict=True):
        assert re.search(pattern, sentence)


def test_limits_of_the_control_group_count(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "/proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 4096 kB\n",
        "/sys/fs/cgroup/memory.max": "2000000\n",
        "/sys/fs/cgroup/memory.current": "500000\n",
    }
    for module in (doctor, system):
        monkeypatch.setattr(module, "system_text", lambda path: files.get(path, "50000 100000"))
    assert system.free_memory() == 1_500_000 and doctor.usable_cores() == 0.5


def test_a_browser_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOVEATE_BROWSER", "/opt/mine")
    assert find_browser() == "/opt/mine"
    monkeypatch.delenv("FOVEATE_BROWSER")
    monkeypatch.setenv("PATH", "")
    assert find_browser() is None
