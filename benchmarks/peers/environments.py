"""A virtual environment for each peer, below ``build/peers/venv``: made once, or a reason why not.

``requirements/NAME.txt`` is installed with our own version of torch; ``NAME.alone.txt`` without
what it asks for, where a peer wants an older torch than it needs.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build" / "peers"
OWN = "foveate"  # needs no environment of its own
LINES = 6  # of what pip said, in the reason


class NotThere(Exception):
    """A peer cannot be installed; the text says why."""


def python_of(peer: str) -> Path:
    """The interpreter of a peer's environment, which is made if it is not there.

    Raises `NotThere` with the reason.
    """
    if peer == OWN:
        return Path(sys.executable)
    expected = [HERE / "requirements" / f"{peer}{part}.txt" for part in ("", ".alone")]
    files = [file for file in expected if file.is_file()]
    place = BUILD / "venv" / peer
    stamp, content = place / "made", "".join(file.read_text(encoding="utf-8") for file in files)
    digest = hashlib.sha256((torch_pin() + content).encode()).hexdigest()
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == digest:
        return place / "bin" / "python"
    print(f"installing {peer} into {place.relative_to(ROOT)}", file=sys.stderr, flush=True)
    _call([sys.executable, "-m", "venv", str(place)])
    constraints = BUILD / "constraints.txt"
    constraints.write_text(torch_pin() + "\n", encoding="utf-8", newline="\n")
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "-q"]
    for file in files:
        alone = file.name.endswith(".alone.txt")
        _call([*pip, *(["--no-deps"] if alone else ["-c", str(constraints)]), "-r", str(file)])
    stamp.write_text(digest, encoding="utf-8", newline="\n")
    return place / "bin" / "python"


def torch_pin() -> str:
    """``torch==…`` as we have it: other versions would compare torches, not programs."""
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("torch=="))


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8")
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise NotThere("not installed: " + " | ".join(lines[-LINES:]))
