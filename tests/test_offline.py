"""Nothing calls home: no socket is opened and no name looked up, but by a download verb."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent

WATCH = """
import sys
def watch(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "urllib.Request"):
        family = getattr(arguments[0], "family", None)
        if event != "socket.connect" or family is None or family.name != "AF_UNIX":
            print("CALLED HOME", event, arguments[1:], file=sys.stderr, flush=True)
            import os
            os._exit(99)
sys.addaudithook(watch)
"""

VERBS = {
    "import": "import foveate",
    "help": "sys.argv[1:] = ['--help']; from foveate.cli import main; main()",
    "kinds, data list, doctor": """
import contextlib
from foveate.cli import main
for verb in (["kinds"], ["data", "list"], ["doctor", "--json"]):
    sys.argv[1:] = verb
    with contextlib.suppress(SystemExit):
        main()
""",
}


def run_watched(code: str) -> subprocess.CompletedProcess[str]:
    online = {k: v for k, v in os.environ.items() if k != "HF_HUB_OFFLINE"}
    how: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 120, "cwd": ROOT}
    command = [sys.executable, "-c", WATCH + code]
    return subprocess.run(command, env=online | {"PYTHONPATH": str(ROOT / "src")}, **how)


@pytest.mark.parametrize("verb", VERBS)
def test_no_network(verb: str) -> None:
    done = run_watched(VERBS[verb])
    assert "CALLED HOME" not in done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.create_connection(('127.0.0.1', 9), timeout=1)",
        "import socket; socket.socket().connect(('127.0.0.1', 9))",
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9')",
    ],
)
def test_the_watch_can_fail(code: str) -> None:
    assert run_watched(code).returncode == 99
