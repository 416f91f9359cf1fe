"""The first five minutes, in small: everything that it promises is there at the end."""

import inspect
import os
import re
import shutil
import subprocess
from itertools import count
from pathlib import Path

import pytest

from foveate.cli import train as quickstart
from foveate.cli.serve import studio
from foveate.engine.packed import NAME, header_of
from foveate.train.distributed import Ranks


@pytest.mark.parametrize("corpus", ["everyday", "short"])
def test_everything_is_written_and_said(tmp_path: Path, capsys, monkeypatch, corpus: str) -> None:
    """Also on a machine that is so slow that nothing is learnt: that is said."""
    monkeypatch.setattr(Ranks, "agree", lambda self, now, got: (60.0 * next(clock), got))
    monkeypatch.setattr(quickstart, "missing_for_studio", lambda: "\n'.[studio]'")
    clock = count()  # a minute a step
    short = ["train.max_minutes=3", "train.validation.every=none", "train.save.every=none"]
    small = ["task.tokenizer.vocab_size=300", "train.batch_tokens=256", "decode.max_extra=3"]
    overrides = [*short, *small, "decode.max_ratio=1.0"]
    figures = quickstart.start(tmp_path, corpus, {"train": 60, "valid": 6, "test": 10}, overrides)
    gold = {"aer"} if corpus == "short" else set()
    assert set(figures) == {"bleu", "chrf", "ter", "exact_match", *gold}
    assert 0 <= figures.get("aer", 0) <= 1
    header = header_of(tmp_path / "run" / NAME)
    assert ("tatoeba.org" in header.licence) == (corpus == "everyday")
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "attention.html").read_text(encoding="utf-8")
    assert "Content-Security-Policy" in page
    output = capsys.readouterr()
    slow = r"BLEU \S+ is poor, for only \d of 2,[04]00 steps were done in \d:00.*minutes=\d{4}"
    assert re.search(slow, output.err), output.err
    assert "'.[studio]'" in output.err  # Rich takes it for no markup
    assert "</s>" in output.out  # the picture in the terminal
    assert f"foveate translate {tmp_path / 'run'}" in output.err.replace("\n", "")
    port = inspect.signature(studio).parameters["port"].default
    last = next(line.strip() for line in output.err.splitlines() if "studio " in line)
    assert last.endswith(f"studio {tmp_path / 'run'} → http://127.0.0.1:{port}")


def test_what_the_studio_lacks_is_listed_with_the_remedy(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(quickstart, "files", lambda _: tmp_path)
    monkeypatch.setattr(quickstart, "find_spec", lambda name: None if name == "uvicorn" else name)
    packages, page = quickstart.missing_for_studio().split("\n")[1:]
    assert "pip install '.[studio]'" in packages
    assert "make page" in page
    (tmp_path / "studio/static").mkdir(parents=True)
    (tmp_path / "studio/static/index.html").touch()
    monkeypatch.setattr(quickstart, "find_spec", str)
    assert quickstart.missing_for_studio() == ""


NPM = """#!/bin/sh
echo "$@" >> ../calls
[ -z "$FAILS" ] || { echo "no network"; exit 1; }
cd ../src/foveate/studio && [ "$1" = ci ] || { mkdir static; touch static/index.html; }
"""


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("npm", ["works", "fails", "missing"])
def test_make_builds_the_page_of_the_studio_where_it_can(tmp_path: Path, npm: str) -> None:
    shutil.copy(Path(__file__).parent.parent / "Makefile", tmp_path)
    for name in ("web", "bin", "src/foveate/studio"):
        (tmp_path / name).mkdir(parents=True)
    for tool in ("sh", "make", "test", "mkdir", "touch", "python3"):
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    if npm != "missing":
        (tmp_path / "bin/npm").write_text(NPM, encoding="utf-8")
        (tmp_path / "bin/npm").chmod(0o755)
    environment = os.environ | {"PATH": str(tmp_path / "bin"), "FAILS": npm.replace("works", "")}
    for _ in range(2):  # the second call builds nothing again
        options = {"cwd": tmp_path, "env": environment}
        done = subprocess.run(["make", "-s", "page"], **options, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "")
    built = (tmp_path / "src/foveate/studio/static/index.html").is_file()
    assert built == (npm == "works")
    if built:
        assert (tmp_path / "calls").read_text() == "ci --no-audit --no-fund\nrun build\n"
        assert done.stderr == ""
    else:
        why = "npm failed (see build/page.log)" if npm == "fails" else "install Node 20.19"
        assert why in done.stderr
