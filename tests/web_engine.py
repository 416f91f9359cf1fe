"""The engine of published pages in Node: `script` of conftest.py, and its answers."""

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from foveate.engine.compiled import web_engine

ROOT = Path(__file__).parent
WEB = ROOT.parent / "web"
LACKING = [
    reason
    for reason, there in {
        "no zig: make wheels": importlib.util.find_spec("ziglang"),
        "no Node": shutil.which("node"),
        "make web makes it": (WEB / "node_modules" / "vite").exists(),
    }.items()
    if not there
]
needs_web = pytest.mark.skipif(bool(LACKING), reason=", ".join(LACKING))


def built(folder: Path) -> Path:
    """The script of the page, built into a folder."""
    command = ["node", "scripts/build.mjs", "engine"]
    environment = {"OUT": str(folder), "PATH": str(Path(shutil.which("node") or "").parent)}
    subprocess.run(command, cwd=WEB, check=True, env=environment)
    return folder / "engine.js"


def in_node(script: Path, engine: str, calls: dict[str, list[list[Any]]]) -> dict[str, Any]:
    command = ["node", str(ROOT / "web_engine.mjs"), str(script), str(web_engine(engine))]
    done = subprocess.run(command, input=json.dumps(calls), capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)
