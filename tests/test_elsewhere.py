"""macOS and Windows, as far as Linux can play them: main verbs without the names absent there."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import mypy
import pytest

from foveate.run.pack import pack
from serve_tools import program
from small_runs import Once, made, python

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "foveate"
STUBS = Path(mypy.__file__).parent / "typeshed" / "stdlib"
SYSTEMS = ("win32", "darwin")


def defined(body: list[ast.stmt], system: object) -> Iterator[tuple[str, bool]]:
    """The names of a stub on a system, and whether it defines them itself."""
    for node in body:
        if isinstance(node, ast.If):
            test = compile(ast.Expression(node.test), "stub", "eval")
            holds = eval(test, {"sys": system, "TYPE_CHECKING": True})
            yield from defined(node.body if holds else node.orelse, system)
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.asname or alias.name, False) for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, True
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, not node.target.id.startswith("_")


def absent(platform: str) -> dict[str, Any]:
    """The names and modules of the standard library that typeshed knows on Linux only."""
    names: dict[str, list[str]] = {}
    modules = list[str]()
    for stub in (*STUBS.glob("[a-z]*.pyi"), *STUBS.glob("*/__init__.pyi")):
        name = (stub.parent if stub.stem == "__init__" else stub).stem
        tree = ast.parse(stub.read_text("utf-8"))
        version = sys.version_info
        systems = (SimpleNamespace(platform=p, version_info=version) for p in ("linux", platform))
        here, there = (dict(defined(tree.body, each)) for each in systems)
        if lost := here.keys() - there.keys():
            if any(there.values()):
                names[name] = sorted(lost)
            else:
                modules.append(name)
    return {"platform": platform, "absent": names, "modules": modules}


@pytest.fixture(scope="module", params=SYSTEMS)
def elsewhere(request: pytest.FixtureRequest, tmp_path_factory) -> dict[str, str]:
    """The environment of a process that takes itself to be on another system."""
    file = tmp_path_factory.mktemp(request.param) / "elsewhere.json"
    file.write_text(json.dumps(absent(request.param)), encoding="utf-8")
    path = os.pathsep.join([str(TESTS / "elsewhere"), str(TESTS.parent / "src")])
    code_page = {"PYTHONIOENCODING": "cp1252", "LC_ALL": "C", "PYTHONUTF8": "0"}
    return {"ELSEWHERE": str(file), "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **code_page}


@pytest.fixture(scope="module")
def runs(once: Once) -> Path:
    def fill(folder: Path) -> None:
        run = made(folder, ["transformer", "language"])["transformer"]
        pack(run, folder / "packed.safetensors")

    return once("elsewhere", fill)


@pytest.mark.parametrize(
    "code",
    [
        "os.sched_getaffinity(0)",
        "os.fork",
        "from signal import SIGKILL",
        "os.listdir('/proc/self')",
        "pathlib.Path('/proc/meminfo').read_text()",
        "assert pathlib.Path('/proc/meminfo').exists()",
        "import fcntl",
        "ctypes.CDLL(None)",
        "(p := pathlib.Path('{tmp}')).write_text('a\\n'); assert b'\\r' not in p.read_bytes()",
        "pathlib.Path('{tmp}').write_text('→')",
        "with open('{tmp}', 'wb') as file: os.replace('{tmp}', '{tmp}2')",
        "with open('{tmp}', 'wb') as file: pathlib.Path('{tmp}').unlink()",
    ],
)
def test_the_play_can_fail(code: str, tmp_path: Path) -> None:
    file, module = tmp_path / "elsewhere.json", tmp_path / "foveate.py"
    file.write_text(json.dumps(absent("win32")), encoding="utf-8")
    text = f"import ctypes, os, pathlib\n{code.replace('{tmp}', str(tmp_path / 'x'))}\n"
    module.write_text(text, encoding="utf-8")
    path = os.pathsep.join([str(TESTS / "elsewhere"), str(tmp_path)])
    for here, fails in ({}, False), ({"ELSEWHERE": str(file)}, True):
        done = subprocess.run(
            [sys.executable, "-c", "import foveate"],
            env=os.environ | {"PYTHONPATH": path} | here, capture_output=True, text=True,
        )  # fmt: skip
        assert (done.returncode != 0) == fails, done.stderr


def test_the_main_verbs_run(elsewhere, runs: Path, tmp_path: Path) -> None:
    transformer, text = runs / "runs" / "transformer", runs / "pairs.train.tsv"
    config, out, line = runs / "transformer.toml", tmp_path / "out", "a house"
    attention = ["look", "attention", transformer, "--text", line]
    verbs: dict[str, tuple[list[object], str]] = {
        "train": (["train", config, "--run", tmp_path / "run"], ""),
        "train: resumed": (["train", config, "--run", tmp_path / "run", "train.max_steps=24"], ""),
        "translate: packed file": (["translate", runs / "packed.safetensors"], line),
        "translate: run": (["translate", transformer, "--engine", "torch"], line),
        "pack": (["pack", transformer, out.with_suffix(".safetensors")], ""),
        "look": (attention, ""),
        "look: page": ([*attention, "--out", out.with_suffix(".html")], ""),
        "evaluate": (["evaluate", transformer, "--split", "valid"], ""),
        "data report": (["data", "report", text], ""),
        "new": (["new", "auto", text, "--out", out.with_suffix(".toml")], ""),
        "show": (["show", transformer], ""),
        "doctor": (["doctor"], ""),
        "check": (["check", "foveate.nn.scores", "--seconds", 600], ""),
        "generate": (["generate", runs / "runs" / "language", "--prompt", "the"], ""),
    }  # fmt: skip
    jobs = {what: ([*map(str, words)], stdin) for what, (words, stdin) in verbs.items()}
    (tmp_path / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    command = [sys.executable, str(TESTS / "command_lines.py"), str(tmp_path / "jobs.json")]
    environment = os.environ | elsewhere | {"FOVEATE_PREPARED": str(tmp_path / "prepared")}
    subprocess.run(command, env=environment, check=True, cwd=tmp_path, timeout=600)
    answers = json.loads((tmp_path / "jobs.done").read_text("utf-8"))
    failed = {what: each["stderr"] for what, each in answers.items() if each["exit"]}
    assert not failed, "\n".join(f"{what}: {error}" for what, error in failed.items())
    assert answers["translate: packed file"] == answers["translate: run"]
    returns = [p for p in tmp_path.rglob("*") if p.suffix in TEXTS and b"\r\n" in p.read_bytes()]
    assert not returns, f"written with the line ends of Windows: {returns}"


@pytest.mark.parametrize("engine", ["packed", "torch"])
def test_servers_answer(elsewhere, runs: Path, engine: str) -> None:
    named = runs / "packed.safetensors" if engine == "packed" else runs / "runs" / "transformer"
    with program(named, *["--as", "en:fr", "--engine", engine], environment=elsewhere) as server:
        question = {"q": "a house", "source": "en", "target": "fr"}
        answer = httpx.post(f"{server.url}/translate", json=question, timeout=60)
        assert answer.status_code == 200 and answer.json()["translatedText"], answer.text


def test_the_studio_answers(elsewhere, runs: Path) -> None:
    with program(runs / "runs", "--no-browser", environment=elsewhere, verb="studio") as server:
        answer = httpx.get(f"{server.url}/api/v1/runs", timeout=60)
        assert answer.status_code == 200 and "transformer" in answer.text


@pytest.mark.parametrize("encoding", ["cp1252", "cp437", "ascii"])
def test_a_console_of_few_letters_is_no_hindrance(encoding: str) -> None:
    """Whatever a stream can spell, output is UTF-8."""
    done = python("-m", "foveate", "kinds", "scaled_dot", env={"PYTHONIOENCODING": encoding})
    assert done.returncode == 0 and "ᵀ" in done.stdout, done.stderr


TEXTS = (".json", ".jsonl", ".toml", ".tsv", ".html", ".txt", ".md")
ROOT = TESTS.parent
FOLDERS = ("src", "tools", "benchmarks", "models", "web/scripts")
PROGRAMS = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
OPENERS = {"open": 1, "fdopen": 1, "NamedTemporaryFile": 0, "TemporaryFile": 0}


def text_mode(call: ast.Call, name: str) -> str | None:
    """The mode in which a call opens a file of text; None for another call."""
    names = {word.arg: word.value for word in call.keywords}
    given = [*call.args, names.get("mode")]
    values = [node.value for node in given if isinstance(node, ast.Constant)]
    modes = [each for each in values if isinstance(each, str) and re.match("[rwxabt+]+$", each)]
    if name in ("read_text", "write_text"):
        return name[0] if isinstance(call.func, ast.Attribute) else None
    if name in ("run", "Popen", "check_output"):
        return "r" if {"text", "universal_newlines"} & names.keys() else None
    plain = name == "open" and (isinstance(call.func, ast.Name) or not call.args)
    mode = modes[0] if name in OPENERS and modes else "r" if plain and not names else None
    return None if mode is None or "b" in mode else mode


def careless(text: str) -> Iterator[tuple[ast.Call, str]]:
    """Calls that leave the encoding, or where they write the line ends, to the system."""
    for call in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)):
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        mode = text_mode(call, name)
        words = {word.arg for word in call.keywords}
        place = {"read_text": 0, "write_text": 1}.get(name, 9)
        encoded = "encoding" in words or len(call.args) > place
        if mode is not None and not encoded:
            yield call, "encoding"
        if mode is not None and set(mode) & set("wax+") and "newline" not in words:
            yield call, "newline"


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(ROOT)))
def test_text_is_the_same_on_every_system(path: Path) -> None:
    found = careless(path.read_text(encoding="utf-8"))
    assert not [f"{path}:{call.lineno}: name the {what}" for call, what in found]


@pytest.mark.parametrize(
    ("code", "lacks"),
    [
        ("p.read_text()", ["encoding"]),
        ("p.write_text(x)", ["encoding", "newline"]),
        ("p.write_text(x, 'utf-8')", ["newline"]),
        ("open(p)", ["encoding"]),
        ("p.open()", ["encoding"]),
        ("p.open('a', encoding='utf-8')", ["newline"]),
        ("gzip.open(p, 'wt')", ["encoding", "newline"]),
        ("subprocess.run(c, text=True)", ["encoding"]),
        ("p.write_text(x, 'utf-8', newline='\\n'); p.open('rb'); Image.open(p); open(p, 'wb')", []),
    ],
)
def test_careless_calls_are_found(code: str, lacks: list[str]) -> None:
    assert [what for _, what in careless(code)] == lacks
