"""docs/development/architecture.md: six pieces of work, function by function.

    python tools/walks.py            write the page anew (make architecture)
    python tools/walks.py --trace    print the functions of each walk in the order of first call

The work is done by the command line and over HTTP on a tiny run, under a tracer. The functions that
are shown and their descriptions stand in `tools/walks.toml`, keyed by file:function.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

assert sys.platform != "win32", "it forks; run it on Linux or macOS"

if TYPE_CHECKING:
    from _typeshed import TraceFunction

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "foveate"
PAGE = ROOT / "docs" / "development" / "architecture.md"
TABLE = ROOT / "tools" / "walks.toml"
REHEARSAL = "train/fit.py:rehearse"
WALKS = ("training", "sentence", "map", "score", "request", "studio")
TEXTS = "the dog a", "the dog b"  # of two requests to a server, of which the second is traced
CONFIG = """
seed = 1
[task]
kind = "translation"
source = "{folder}/pairs.tsv"
tokenizer = {{ kind = "word", min_frequency = 1 }}
[data]
holdout = 0.2
[model]
kind = "transformer-tiny"
[train]
batch_tokens = 64
max_steps = 2
precision = "fp32"
schedule = {{ kind = "constant" }}
validation = {{ every = 2, samples = 1 }}
save = {{ every = 2 }}
"""
SCORE = """
import torch
from foveate.nn.scores import Score

class Distance(Score):
    class Config(Score.Config, kind="walk_distance"):
        width: float = 4.0

    def forward(self, query, key):
        return -torch.cdist(query, key).square() / (2 * self.config.width**2)
"""


# ------------------------------------------------------------------------------ tracing


class Tracer:
    """Notes each function of the package at its first call.

    Code at import time is left out, and what a rehearsal calls, which the steps after it do again.
    """

    def __init__(self, root: str) -> None:
        self.root, self.on = root, False
        self.calls: dict[str, None] = {}
        self.local = threading.local()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> TraceFunction | None:
        code = frame.f_code
        rehearses = code.co_name == REHEARSAL.partition(":")[2]
        if rehearses and self.on:
            self.calls.setdefault(REHEARSAL)
        if code.co_name == "<module>" or rehearses:
            frame.f_trace_lines = False
            self.local.depth = getattr(self.local, "depth", 0) + 1
            return self.leave
        if self.on and code.co_filename.startswith(self.root) and not self.importing():
            optimized = bool(code.co_flags & 1)  # no class bodies
            if optimized and "<" not in code.co_qualname:
                self.calls.setdefault(f"{code.co_filename[len(self.root) :]}:{code.co_qualname}")
        return None

    def importing(self) -> bool:
        """Whether a module's body, or a rehearsal, runs in this thread."""
        return getattr(self.local, "depth", 0) > 0

    def leave(self, frame: FrameType, event: str, argument: Any) -> TraceFunction:
        """Follow a module's body to its end."""
        if event == "return":
            self.local.depth -= 1
        return self.leave


def children(jobs: list[tuple[str, list[str]]]) -> None:
    """One command line after the other, each in a process that has the slow imports already."""
    for package in ("torch._dynamo", "pydantic", "matplotlib.pyplot", "sacrebleu"):
        importlib.import_module(package)
    for out, arguments in jobs:
        if process := os.fork():
            os.waitpid(process, 0)
        else:
            child(out, False, arguments)
            os._exit(0)


def child(out: str, waits: bool, arguments: list[str]) -> None:
    """The command line under the tracer; where it ``waits``, signals begin and end the trace."""
    spec = importlib.util.find_spec("foveate")
    assert spec is not None and spec.origin is not None
    tracer = Tracer(os.path.dirname(spec.origin) + "/")
    tracer.on = not waits

    def save(*_: object) -> None:
        tracer.on = False
        Path(out + ".part").write_text(json.dumps(list(tracer.calls)), "utf-8", newline="\n")
        os.replace(out + ".part", out)

    signal.signal(signal.SIGUSR1, lambda *_: setattr(tracer, "on", True))
    signal.signal(signal.SIGUSR2, save)
    threading.settrace(tracer)
    sys.settrace(tracer)
    from foveate.cli import main

    sys.argv = ["foveate", *arguments]
    with contextlib.suppress(SystemExit):
        main()
    if not waits:
        save()


def start(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start walks.py with other arguments, beside this process."""
    paths = [str(ROOT / "src"), str(folder)]
    environment = os.environ | {"FOVEATE_NATIVE": "0", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, __file__, *arguments]
    silent = subprocess.DEVNULL
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=silent, stderr=silent
    )


def traced(names: tuple[str, ...] = WALKS) -> dict[str, list[str]]:
    """The functions of each walk, in the order of first call."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        lines = [f"the dog {word}\tle chien {word}" for word in "abcdefghijklmnopqrstuvwxyz"]
        (folder / "pairs.tsv").write_text("\n".join(lines) + "\n", "utf-8", newline="\n")
        (folder / "walk.toml").write_text(CONFIG.format(folder=folder), "utf-8", newline="\n")
        (folder / "walk_score.py").write_text(SCORE, "utf-8", newline="\n")
        score = ['imports=["walk_score"]', "model.decoder.attention.score=walk_distance"]
        train, run = ["train", str(folder / "walk.toml"), "--run"], str(folder / "run")
        picture = str(folder / "map.json")
        commands = {
            "training": [*train, run],
            "sentence": ["translate", run],
            "map": ["look", "attention", run, "--text", "the dog a", "--out", picture],
            "score": [*train, str(folder / "scored"), *score],
        }
        chosen = dict.fromkeys(("training", *names))  # the others need its run
        jobs = [(str(folder / f"{n}.json"), commands[n]) for n in chosen if n in commands]
        process = start(folder, "--children", json.dumps(jobs))
        process.communicate(b"the dog a\n", timeout=300)
        if "request" in names:
            command, path = ["serve", run, "--as", "en:fr"], "/translate"
            bodies: list[object] = [{"q": q, "source": "en", "target": "fr"} for q in TEXTS]
            served(folder / "request.json", command, path, bodies)
        if "studio" in names:
            command, path = ["studio", run, "--no-browser"], "/api/v1/views/attention"
            bodies = [{"runs": ["run"], "question": {"text": text}} for text in TEXTS]
            served(folder / "studio.json", command, path, bodies)
        return {name: json.loads((folder / f"{name}.json").read_text("utf-8")) for name in names}


def served(out: Path, command: list[str], path: str, bodies: Sequence[object]) -> None:
    """Trace the second of two requests to a server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = start(out.parent, "--child", str(out), *command, "--port", str(port))
    try:
        for _ in range(240):
            with contextlib.suppress(OSError):
                post(port, path, bodies[0])
                break
            time.sleep(0.5)
        server.send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        post(port, path, bodies[1])
        server.send_signal(signal.SIGUSR2)
        for _ in range(50):
            if out.exists():
                break
            time.sleep(0.2)
    finally:
        server.terminate()
        server.communicate(timeout=60)  # closes its input too


def post(port: int, path: str, body: object) -> None:
    """Send JSON to the server on a port, and wait for the answer."""
    place, header = f"http://127.0.0.1:{port}{path}", {"content-type": "application/json"}
    request = urllib.request.Request(place, json.dumps(body).encode(), header)
    urllib.request.urlopen(request, timeout=60).close()


# ------------------------------------------------------------------------------ the page


def layers() -> list[str]:
    """The import direction, from the test that holds it."""
    module = ast.parse((ROOT / "tests" / "test_imports.py").read_text("utf-8"))
    for node in module.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "LAYERS":
            return [" · ".join(sorted(names)) for names in ast.literal_eval(node.value)]
    raise SystemExit("tests/test_imports.py has no LAYERS")


def page() -> str:
    """The whole page, as Markdown."""
    table = tomllib.loads(TABLE.read_text("utf-8"))
    parts = [table["introduction"].strip(), "## Where to add something", table["additions"].strip()]
    parts += ["## Import direction", table["direction"].strip()]
    parts.append("\n".join(["```text", *layers(), "```"]))
    for walk in table["walks"].values():
        phrases = [f"`{step}` {table['phrases'][step]}" for step in walk["steps"]]
        parts += [f"## {walk['title']}", f"{walk['command']}: at most {walk['files']} files run."]
        numbered = "\n".join(f"{i}. {phrase}" for i, phrase in enumerate(phrases, 1))
        around = walk.get("before", ""), numbered, walk.get("after", "")
        parts += [text.strip() for text in around if text]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Write the page, or print the traces."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--only", nargs="*", choices=WALKS, default=WALKS)
    options = parser.parse_args()
    if options.trace:
        for name, calls in traced(tuple(options.only)).items():
            files = {call.partition(":")[0] for call in calls}
            print(f"{name}: {len(files)} files", *calls, sep="\n  ")
    else:
        PAGE.write_text(page(), "utf-8", newline="\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], True, sys.argv[3:])
    elif sys.argv[1:2] == ["--children"]:
        children(json.loads(sys.argv[2]))
    else:
        main()
