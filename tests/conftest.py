"""What every test shares: one thread, no network, a quiet and repeatable hypothesis."""

import atexit
import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: test processes share the cores
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("MPLBACKEND", "agg")
os.environ.pop("FOVEATE_DEBUG", None)
os.environ["TERM"] = "xterm-256color"  # bars are shown in tests, wherever these run

import hypothesis
import pytest
import torch

from browser import BROWSERS, find_browser
from foveate import cli
from foveate.files import locked
from foveate.run import Run
from small_runs import Call, Once, Printed, Trained, made
from web_engine import LACKING, built

PREPARED = tempfile.mkdtemp(prefix="foveate-tests-")  # no test sees what another session left
os.environ["FOVEATE_PREPARED"] = PREPARED
atexit.register(shutil.rmtree, PREPARED, ignore_errors=True)
torch.set_num_threads(1)
for profile, examples in {"foveate": 20, "thorough": 200}.items():  # `make proofs` is thorough
    hypothesis.settings.register_profile(
        profile, deadline=None, derandomize=True, max_examples=examples, print_blob=True
    )
hypothesis.settings.load_profile("foveate")

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A run of each family after 20 steps, trained when it is looked up; no test changes it."""
    return Trained(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def run(runs: dict[str, Run]) -> Run:
    """A small translator from English to French, which tests leave as it is."""
    return runs["transformer"]


@pytest.fixture(scope="module")
def app(run: Run, request: pytest.FixtureRequest) -> Any:
    """The service of that translator, within the LIMITS of the module."""
    from serve_tools import served

    return served(run.path, getattr(request.module, "LIMITS", None))


@pytest.fixture
def fleet(runs: dict[str, Run]) -> Any:
    """Two translators, one for each direction; loaded when they are asked for."""
    from foveate.serve.runs import RunPool

    names = {"transformer": "en:fr", "rnn": "fr:en"}
    return RunPool([runs[name].path for name in names], names)


@pytest.fixture(scope="session")
def longer_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same after 60 steps: its words are right more often."""
    return made(tmp_path_factory.mktemp("longer"), ["transformer"], steps=60)["transformer"]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """A folder of a name, filled by the first test process that asks for it; the others wait.

    For what takes many seconds: pytest-xdist may give the tests of a module to several processes.
    """
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root

    def filled(name: str, fill: Callable[[Path], None]) -> Path:
        folder, done = root / f"once-{name}", root / f"once-{name}.done"
        with locked(root / f"once-{name}.lock"):
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)  # of a process that failed
                folder.mkdir()
                fill(folder)
                done.touch()
        return folder

    return filled


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs ``foveate`` in this process, with ``text`` on standard input."""

    def run(*arguments: object, text: bytes = b"") -> Printed:
        monkeypatch.delenv("FOVEATE_DEBUG", raising=False)
        monkeypatch.setattr(sys, "argv", ["foveate", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        with pytest.raises(SystemExit) as done:
            cli.main()
        captured = capsys.readouterr()
        return Printed(int(done.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data sets: FOVEATE_DATA, or ``shared/data`` beside the checkout."""
    folder = Path(os.environ.get("FOVEATE_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no data sets at {folder}; set FOVEATE_DATA")
    return folder


@pytest.fixture(scope="session")
def browser_path() -> str:
    """An installed Chromium, or a skip that says why."""
    result = find_browser()
    if result is None:
        pytest.skip(f"no browser here ({', '.join(BROWSERS)}); set FOVEATE_BROWSER to name one")
    return result


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 200 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(place)]
    if os.name == "nt" or shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this machine mounts no tmpfs")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """The script of a published page, for Node; None where it cannot be built."""
    return None if LACKING else built(tmp_path_factory.mktemp("web"))
