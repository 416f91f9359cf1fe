"""Every file, module, command, option, make target and config key that the docs name exists."""

import ast
import importlib
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

import walks
from foveate.cli import app, options
from foveate.config import ConfigError
from foveate.kinds import described
from foveate.run import RunConfig

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "foveate"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs" / "guide").glob("*.md")),
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
    *(ROOT / "docs" / name for name in ("README.md", "spine.md")),
    ROOT / "docs" / "development" / "architecture.md",
]
HISTORY = sorted((ROOT / "docs" / "history").glob("*.md"))
FOLDERS = {path.name for base in (ROOT, PACKAGE) for path in base.iterdir() if path.is_dir()}
# the results of benchmarks/peers, of which it makes the tables of docs/reference/speed.md
COMPARED = [path.name for path in (ROOT / "docs" / "results").glob("peers-*.json")]
WRITTEN = ("runs", "build")  # folders that commands write
TORCHRUN = {"--standalone", "--nproc-per-node", "--nnodes", "--rdzv-backend", "--rdzv-endpoint"}
OTHERS = TORCHRUN | {"--max-restarts", "--list", "--group", "--seconds", "--strict"}  # of others
OTHERS |= {"--picture", "--install-completion"}  # of a benchmark; made where it is asked for
FILES = {"train.en", "train.fr", "config.toml", "model.safetensors", "model.labels"}  # no keys
MAKE = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
COMMAND = typer.main.get_command(app)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(text: str) -> Iterator[str]:
    """The command lines of a page: code spans, shell blocks and indented blocks."""
    blocks = [body for language, body in FENCE.findall(text) if language in ("", "sh", "bash")]
    plain = FENCE.sub("", text)
    blocks += re.findall(r"`([^`]+)`", plain)
    blocks += [line[4:] for line in plain.replace("\\\n", " ").splitlines() if line[:4] == " " * 4]
    for block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"\s[|<>]\s|\s#|\s{3,}|&&", line):
                yield part.strip()


def spans(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", FENCE.sub("", text))


def wrong_command(line: str) -> str | None:
    """What is wrong with ``foveate …``, parsed by the commands themselves and not executed."""
    words = [word for word in shlex.split(line.replace("[", "").replace("]", "")) if word != "…"]
    command, words = COMMAND, words[1:]
    context = command.context_class(command)
    while isinstance(command, options.VerbGroup) and words and not words[0].startswith("-"):
        name = "attention" if words[0] == "VIEW" else words[0]
        default = getattr(command, "default", None)
        if name not in command.list_commands(context) and default is None:
            return f"{line}: no command {name}"
        inner = command.get_command(context, name)
        words = words[inner is not None :]
        command = inner or command.commands[default]
        context = command.context_class(command, context)
    try:
        command.make_parser(context).parse_args(words)
    except Exception as error:  # a span that names an option alone lacks its value
        return f"{line}: {error}" if type(error).__name__ == "NoSuchOption" else None
    return None


@cache
def all_parameters() -> list[Any]:
    waiting = [COMMAND]
    for command in waiting:
        if isinstance(command, options.VerbGroup):
            context = command.context_class(command)
            waiting += [command.get_command(context, n) for n in command.list_commands(context)]
    return [parameter for command in waiting for parameter in command.params]


@cache
def all_options() -> frozenset[str]:
    parts = ((*parameter.opts, *parameter.secondary_opts) for parameter in all_parameters())
    return frozenset({"--help", *OTHERS}.union(*parts))


def test_a_help_text_is_understood_without_its_option() -> None:
    """It is a phrase of its own, and does not continue the option's name: "of measuring"."""
    helps = [(each.opts[0], each.help or "") for each in all_parameters() if hasattr(each, "help")]
    start = r"(of|that|or|and|with|by|as|its|their|which|how|never|also|more|instead|repeat)\b"
    assert not [each for each in helps if re.match(start, each[1])]


def missing_path(page: Path, name: str) -> bool:
    """Whether a path of this repository does not exist; ``::name`` must be defined in the file."""
    path, _, definition = name.partition("::")
    bases = [base for base in (page.parent, ROOT, ROOT / "docs", PACKAGE) if list(base.glob(path))]
    if not bases:
        return True
    if not definition:
        return False
    texts = [(base / path).read_text("utf-8") for base in bases]
    names = definition.partition("(")[0].split(".")
    return not any(all(re.search(rf"(def|class) {n}\b", text) for n in names) for text in texts)


def missing_module(name: str) -> bool:
    """Whether ``foveate.a.b`` is no module and no attribute of one."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        home = importlib.import_module(module)
        return not hasattr(home, attribute)
    return False


def faults(page: Path, text: str) -> Iterator[str]:
    for line in commands(text):
        if line.startswith("foveate ") and (wrong := wrong_command(line)):
            yield wrong
        if (target := re.match(r"make ([a-z-]+)", line)) and target[1] not in MAKE:
            yield f"{line}: no target"
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        if not (page.parent / link).exists():
            yield f"{link}: no such page"
    for span in spans(text):
        option = re.match(r"--[a-z][a-z-]*", span)
        if option and option.group() not in all_options():
            yield f"{span}: no option"
        if re.fullmatch(r"[\w*.-]+(/[\w*.-]+)+(::[\w.]+)?", span):
            first = span.partition("/")[0]
            if first in FOLDERS - set(WRITTEN) and missing_path(page, span):
                yield f"{span}: no such file"
        elif span in FILES:
            continue
        elif re.fullmatch(r"(train|data|task|model|decode|start)(\.[a-z]\w*)+(=.*)?", span):
            yield from wrong_key(span.partition("=")[0])
    for module in set(re.findall(r"\bfoveate(?:\.[A-Za-z_]\w*)+", text)):
        if missing_module(module) and not module.endswith((".json", ".toml")):
            yield f"{module}: no such module or name"


def wrong_key(key: str) -> Iterator[str]:
    """The message for a dotted key of a config that does not exist."""
    names = [key, key.rpartition(".")[2]][: 1 + (key.count(".") > 1)]  # a field of a kind
    messages = []
    for name in names:
        try:
            described(name, RunConfig)
        except ConfigError as error:
            messages.append(str(error))
    if len(messages) == len(names) and not key.endswith(".kind"):
        yield messages[0]


@pytest.mark.parametrize("page", [*PAGES, *HISTORY], ids=lambda path: path.name)
def test_what_a_page_names_exists(page: Path) -> None:
    wrong = sorted(set(faults(page, page.read_text("utf-8"))))
    assert not wrong, "\n".join(wrong)


def test_the_check_can_fail() -> None:
    page = (
        "`foveate frobnicate RUN`, `foveate translate RUN --beamsize 3`, `--nope`,\n`make nothing`,"
        "`nn/attentions.py`, `look/records.py::none`, `foveate.nn.nothing`, `train.max_step`,\n"
        "[x](gone.md)\n\n    echo a | foveate translate RUN --colour\n"
    )
    assert len(list(faults(ROOT / "README.md", page))) == 10


def test_every_result_is_named_on_a_page() -> None:
    paths = [*PAGES, *(ROOT / "docs").rglob("*.md")]
    texts = "".join(page.read_text("utf-8") for page in paths) + "".join(COMPARED)
    results = {path.name for path in (ROOT / "docs" / "results").iterdir()}
    assert not {name for name in results if name not in texts}
    assert not set(re.findall(r"results/([\w-]+\.(?:json|svg))", texts)) - results


# ---- docs/development/architecture.md: the functions that run, in their order
TABLE = tomllib.loads((ROOT / "tools" / "walks.toml").read_text("utf-8"))


def test_the_page_is_what_the_tool_writes() -> None:
    assert walks.PAGE.read_text("utf-8") == walks.page(), "write it anew: make architecture"


def test_every_phrase_is_of_a_step_and_every_step_is_a_function() -> None:
    steps = {step for walk in TABLE["walks"].values() for step in walk["steps"]}
    assert steps == TABLE["phrases"].keys()
    for step in sorted(steps):
        file, _, name = step.partition(":")
        body = ast.parse((walks.PACKAGE / file).read_text("utf-8")).body
        for part in name.split("."):
            kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            result = [node for node in body if isinstance(node, kinds) and node.name == part]
            assert result, f"{step} does not exist; correct tools/walks.toml"
            body = result[-1].body


@pytest.mark.slow
def test_each_walk_runs_in_the_order_shown_and_within_its_files() -> None:
    for name, calls in walks.traced().items():
        walk = TABLE["walks"][name]
        places = [calls.index(step) for step in walk["steps"]]
        assert places == sorted(places), name
        files = {call.partition(":")[0] for call in calls}
        assert len(files) <= walk["files"], f"{name}: {len(files)} files run"
