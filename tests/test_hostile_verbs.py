"""Every verb with every value that a user might type: an answer or one sentence, never a traceback.

The verbs and their parameters are those of the command tree, so that a new one is tried as well.
"""

import io
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import typer
import uvicorn

from foveate import cli
from foveate.engine.links import write_pharaoh
from foveate.exchange.base import CheckSample, export
from foveate.look.views import VIEWS
from small_runs import Once, made
from test_docs_names import PAGES, commands
from variants import at_scale, transformer, translator

VERBS: dict[str, Any] = {}


def collect(command: Any, *name: str) -> None:
    if not hasattr(command, "list_commands"):
        VERBS[" ".join(name)] = command
        return
    context = typer.Context(command)
    for each in command.list_commands(context):
        collect(command.get_command(context, each), *name, each)


collect(typer.main.get_command(cli.app))

KINDS = ("transformer", "language", "classifier", "vit", "forecaster", "captioner", "rnn")
NUMBERS = ("-1", "nan", "1" + "0" * 23, "inf", "", "1e308", "0", "x", "-inf")
TEXTS = ("", "FOLDER", "BINARY", "MISSING", "FILE/x", "\udcff", "EMPTY", "x" * 5000, "a.b=c", "0")
SECONDS = 0.5  # after which a command that takes long by its nature is taken to run
LONGEST = 60.0  # within which any other command ends, the first of which imports PyTorch
AGAIN = 10.0  # seconds after which it is stopped again: Python drops what is raised in a destructor
LONG = "train", "compare", "student", "bench", "quickstart", "publish", "serve", "studio"


BUSY = -1  # in place of the exit code


class Busy(BaseException):
    """What is still at work when its time is up."""


def make(folder: Path) -> None:
    """A run of each kind, and files that verbs want or do not want."""
    made(folder, KINDS, steps=12, more="snapshots = {}\nhealth_every = 2\n")
    (folder / "BINARY").write_bytes(bytes(range(256)) * 9)
    (folder / "EMPTY").touch()
    (folder / "FOLDER").mkdir()
    (folder / "FILE").write_text("the dog runs\na cat sleeps\n", "utf-8")
    (folder / "links").write_text(2 * (write_pharaoh([(0, 0)]) + "\n"), "utf-8")
    (folder / "keys").write_text('{"keys": []}', "utf-8")
    translates = transformer(translator(folder, "bpe"))
    export(translates, folder / "published", "huggingface", CheckSample([]))


@pytest.fixture(scope="module")
def place(once: Once) -> Path:
    return once("hostile-verbs", make)


RUN_OF = {  # the kind of run that a verb wants; else a translator
    "classify": "classifier", "generate": "language", "forecast": "forecaster",
    "caption": "captioner", "look forecast": "forecaster", "look horizon": "forecaster",
    "look picture": "captioner", "look gradients": "language", "look gates": "rnn",
}  # fmt: skip
REQUIRED = {  # of each required parameter, by its name, what is right
    "config": "transformer.toml", "configs": "transformer.toml", "source": "FILE",
    "target": "FILE", "files": "FILE", "links": "links", "gold": "links", "forward": "links",
    "backward": "links", "file": "keys", "out": "written", "to": "huggingface", "task": "auto",
    "image": "0", "images": "0", "kind": "rope", "name": "nothing",
    "teacher": "runs/transformer", "pair": "en:fr",
}  # fmt: skip


def right(verb: str) -> dict[str, list[str]]:
    """What is typed for each required parameter of a verb."""
    run = f"runs/{RUN_OF.get(verb, 'transformer')}"
    typed = {}
    for parameter in VERBS[verb].params:
        if parameter.required:
            is_run = parameter.name in ("run", "runs", "model", "models")
            value = run if is_run else REQUIRED[parameter.name]
            option = parameter.param_type_name == "option"
            typed[parameter.name] = [parameter.opts[0], value] if option else [value]
    return typed


def lines(verb: str, part: int) -> Iterator[list[str]]:
    """Command lines of a verb in which one parameter is wrong; ``part`` of three of the values."""
    plain = right(verb)
    for number, parameter in enumerate(VERBS[verb].params):
        option, described = parameter.opts[0], str(parameter.type_descriptor.annotation)
        if parameter.name == "help":
            continue
        if getattr(parameter, "is_flag", False):
            yield [*chain(*plain.values()), option]
            continue
        numeric = "int" in described or "float" in described
        for value in (NUMBERS if numeric else TEXTS)[(part + number) % 3 :: 3]:
            wrong = [value] if parameter.param_type_name == "argument" else [f"{option}={value}"]
            yield [*chain(*(plain | {parameter.name: wrong}).values())]


@pytest.fixture
def answered(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """What gives the exit code of a command line, `BUSY` if it is still at work in the end."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise Busy

    def stop(*args: object, **kwargs: object) -> None:
        raise SystemExit(0)

    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError("there is no network")

    def answer(words: list[str], seconds: float) -> int:
        monkeypatch.setattr(sys, "argv", ["foveate", *words])
        for name in ("stdin", "stdout", "stderr"):
            stream = io.TextIOWrapper(io.BytesIO(b"the dog runs\n" * (name == "stdin")))
            monkeypatch.setattr(sys, name, stream)
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
        try:
            cli.main()
        except SystemExit as end:
            return int(end.code or 0)
        except Busy:
            return BUSY
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return 0

    monkeypatch.chdir(place)
    monkeypatch.delenv("FOVEATE_DEBUG", raising=False)
    monkeypatch.setattr(uvicorn.Server, "run", stop)
    monkeypatch.setattr("foveate.serve.connections.run_server", stop)
    monkeypatch.setattr("webbrowser.open", stop)
    monkeypatch.setattr("urllib.request.urlopen", refuse)
    before = signal.signal(signal.SIGALRM, ring)
    yield answer
    signal.signal(signal.SIGALRM, before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", at_scale([0, 1, 2], [0]))
@pytest.mark.parametrize("verb", VERBS)
def test_any_command_line_is_answered_or_refused(verb, part, answered) -> None:
    """Only a command that takes long by its nature may still be at work when its time is up."""
    codes = (0, 1, 2) if verb in ("check", "doctor") else (0, 2)  # 1: laws fail
    codes = (*codes, BUSY) if verb.startswith(LONG) else codes
    for words in ([*chain(*right(verb).values())], *lines(verb, part)):
        seconds = SECONDS if BUSY in codes else LONGEST
        assert answered([*verb.split(), *words], seconds) in codes, words


RUNS = ("run", "runs", "model", "models", "ensemble", "teacher", "second")  # names of parameters
TAKE_RUNS = [
    (verb, parameter.name)
    for verb, command in VERBS.items()
    for parameter in command.params
    if parameter.name in RUNS
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("verb", "name"), TAKE_RUNS)
def test_what_takes_a_run_takes_a_published_folder(verb, name, answered, place) -> None:
    """It may refuse what the folder lacks, such as data or a log, but not that it is one."""
    parameter = next(each for each in VERBS[verb].params if each.name == name)
    argument = parameter.param_type_name == "argument"
    words = ["published"] if argument else [parameter.opts[0], "published"]
    typed = [*chain(*(right(verb) | {name: words}).values())]
    answered([*verb.split(), *typed], SECONDS if verb.startswith(LONG) else LONGEST)
    printed = sys.stderr.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert not re.search("not a run|contains none|another library|no such file", printed), printed


# ------------------------------ Every view as the guides type it, and of every kind of run
TYPED = {line for page in PAGES for line in commands(page.read_text("utf-8"))}
DOCUMENTED = [
    line for line in sorted(TYPED)
    if re.match(r"foveate (look \w+ \S|demo )", line) and not re.search("VIEW|table.toml", line)
]  # fmt: skip
SMALL = (  # what stands for the files and numbers of a guide
    (r"\b(RUN2?|runs/[\w-]+|[A-Z]\.toml|FILE\.safetensors|en-fr|…)(?= |$)", "RUN"),
    (r"--(layer|head|query) -?\d+", r"--\1 0"),
    (r"--out (\S+)", r"--out OUT/\1"),
    (r" CONFIG\b", " transformer.toml"),
    (r"(?<= )[\w.]+\.(txt|en|fr)\b", "FILE"),
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", DOCUMENTED)
def test_each_line_of_the_guides_draws(line, answered, tmp_path) -> None:
    """With a small run in place of RUN and small files in place of those named."""
    for pattern, small in SMALL:
        line = re.sub(pattern, small, line)
    codes = []
    for kind in KINDS if "RUN" in line else KINDS[:1]:
        typed = line.replace("RUN", f"runs/{kind}").replace("OUT/", f"{tmp_path}/")
        codes.append(answered(shlex.split(typed)[1:], LONGEST))
        if codes[-1] == 0:
            break
    assert codes[-1] == 0 and set(codes) <= {0, 2}, (line, codes)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", at_scale(KINDS, ["transformer", "forecaster"]))
@pytest.mark.parametrize("view", VIEWS)
def test_each_view_of_each_kind_of_run_is_drawn_or_refused(view, kind, answered, place) -> None:
    """Of the run alone, of its packed file, of two runs, and of none."""
    image = ["0"] if view == "picture" else []
    for runs in ([f"runs/{kind}"], [f"runs/{kind}/packed.safetensors"], [], 2 * [f"runs/{kind}"]):
        if runs and not Path(runs[0]).exists():
            continue
        code = answered(["look", view, *runs, *image], LONGEST)
        assert code in (0, 2), runs
