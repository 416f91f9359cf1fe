"""Small forms of the faults that `benchmarks/durability faults` tries in earnest."""

import os
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from safetensors import SafetensorError

from foveate.errors import message_of
from foveate.exchange.base import appearing
from foveate.files import part_of, replace_file
from foveate.run.training import average, train
from foveate.serve.keys import KeyFile, TokenBuckets
from foveate.train import checkpoint
from foveate.train.checkpoint import LOCK, BusyError, run_lock
from foveate.train.stored import WEIGHTS, DamagedError, TrainError
from small_runs import made

ROOT = Path(__file__).parent.parent
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
OWN = f".{os.getpid()}."  # the number of this process, in names of files that it writes


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a translator of two checkpoints, its config and its data."""
    folder = tmp_path_factory.mktemp("faults")
    made(folder, ["rnn"], steps=4)
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained / "runs" / "rnn", tmp_path / "run")


def ended() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_the_second_training_of_a_run_refuses_and_names_the_first(trained: Path, run: Path) -> None:
    with run_lock(run):
        for act in (lambda: train(trained / "rnn.toml", folder=run), lambda: average(run)):
            with pytest.raises(BusyError) as refusal:
                act()
            output = str(refusal.value)
            assert f"process {os.getpid()} on {socket.gethostname()}, since 2" in output
            assert str(run) in output
    assert not (run / LOCK).exists()
    train(trained / "rnn.toml", ["train.max_steps=5"], folder=run)


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    held = (
        "import sys, time, pathlib; from foveate.train.checkpoint import run_lock\n"
        "with run_lock(pathlib.Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", held, str(tmp_path / "run")],
        stdout=subprocess.PIPE, env=ENVIRONMENT,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == b"held\n"
    with pytest.raises(BusyError, match=f"process {process.pid} on"), run_lock(tmp_path / "run"):
        pass
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with run_lock(tmp_path / "run"):
        pass
    assert not (tmp_path / "run").exists()  # it was empty


def test_a_run_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(TrainError, match="--run"), run_lock(tmp_path / "file" / "run"):
        pass


@contextmanager
def room(size: int) -> Iterator[None]:
    """No file may become longer than this, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("size", [0, 1, 999])
def test_a_full_disk_keeps_what_was_there_and_is_told_with_the_name(size: int, tmp_path) -> None:
    file = tmp_path / "file"
    file.write_text("before", "utf-8")
    with pytest.raises(OSError) as error, room(size):
        replace_file(file, "x" * 1000)
    assert message_of(error.value) == f"{file}: File too large; what was there is kept"
    assert file.read_text("utf-8") == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_is_replaced_is_on_the_disk_under_its_name(tmp_path: Path, monkeypatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("foveate.files.sync", synced.append)
    replace_file(tmp_path / "a.txt", "a")
    assert synced == [tmp_path]


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("exists", [True, False])
def test_the_file_behind_links_is_replaced(tmp_path: Path, steps: int, exists: bool) -> None:
    (tmp_path / "other").mkdir()
    real, place = tmp_path / "other" / "real", tmp_path / "other" / "real"
    if exists:
        real.write_text("before", "utf-8")
        real.chmod(0o600)
    for n in range(steps):
        (link := tmp_path / f"link{n}").symlink_to(place)
        place = link
    replace_file(place, "after")
    assert place.is_symlink() and real.read_text("utf-8") == "after"
    assert not exists or stat.S_IMODE(real.stat().st_mode) == 0o600, "its permissions stay"
    assert list(real.parent.iterdir()) == [real]


@pytest.mark.parametrize("linked", [False, True])
def test_what_is_not_a_regular_file_is_written_to(tmp_path: Path, linked: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    handle = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    replace_file(tmp_path / "link" if linked else pipe, "a")
    assert os.read(handle, 10) == b"a" and stat.S_ISFIFO(pipe.stat().st_mode)
    os.close(handle)
    with pytest.raises(OSError, match="Is a directory; what was there is kept"):
        replace_file(tmp_path, "a")


def test_standard_output_by_its_path_loses_nothing_of_a_file_behind_it(tmp_path: Path) -> None:
    own = "Path('/proc/self/fd/1')"
    code = f"from pathlib import Path; from foveate.files import replace_file as r; r({own}, 'a')"
    (tmp_path / "out").write_text("before ", "utf-8")
    with (tmp_path / "out").open("ab") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True, env=ENVIRONMENT)
    assert (tmp_path / "out").read_text("utf-8") == "before a"


def test_a_file_that_another_program_holds_open_is_kept_and_named(tmp_path, monkeypatch) -> None:
    def refused(part: Path, target: Path) -> None:
        raise PermissionError(13, "Access is denied", str(part), None, str(target))

    (file := tmp_path / "file").write_text("before", "utf-8")
    monkeypatch.setattr(os, "replace", refused)  # as on Windows
    with pytest.raises(OSError) as error:
        replace_file(file, "after")
    assert message_of(error.value).startswith(f"{file}: Access is denied: if another program has")
    assert list(tmp_path.iterdir()) == [file] and file.read_text("utf-8") == "before"


def test_a_mean_that_has_no_room_leaves_the_one_before(run: Path) -> None:
    average(run)
    before = (run / "averaged" / WEIGHTS).read_bytes()
    with pytest.raises(TrainError, match="averaged"), room(1000):
        average(run, 1)
    assert (run / "averaged" / WEIGHTS).read_bytes() == before


def test_standard_output_on_a_full_disk_ends_in_one_line() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with open("/dev/full", "wb") as out:
        done = subprocess.run(
            [sys.executable, "-m", "foveate", "data", "list"],
            stdout=out, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
        )  # fmt: skip
    assert done.returncode == 2
    assert "the output cannot be written: No space left" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-", ">&- 2>&-", "<&- >&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("verb", ["translate packaged/en-fr", "--version", "--help"])
def test_a_closed_standard_stream_ends_in_one_line(verb: str, closed: str) -> None:
    if verb != "translate packaged/en-fr" and ">&-" not in closed:
        return  # these read nothing
    done = subprocess.run(
        f"{sys.executable} -m foveate {verb} {closed}", shell=True, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, cwd=ROOT, env=ENVIRONMENT,
    )  # fmt: skip
    reads = verb.startswith("translate") and "<" not in closed
    assert done.returncode == (0 if reads and ">" in closed else 2), "no line in, no line out"
    if "2>&-" not in closed and done.returncode:
        assert done.stderr.startswith("error: standard ") and done.stderr.count("\n") == 1


def test_what_a_killed_process_was_writing_goes_with_the_next_that_is_written(tmp_path) -> None:
    file = tmp_path / "file"
    own = part_of(file).name
    dead, living = (tmp_path / own.replace(OWN, f".{n}.") for n in (ended(), os.getppid()))
    for part in (dead, living):
        part.write_text("half", "utf-8")
    replace_file(file, "whole")
    assert sorted(tmp_path.iterdir()) == sorted([file, living])


def test_a_killed_export_leaves_no_folder_for_ever(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with appearing(out) as place:
        name = place.name
        place.mkdir()
    shutil.rmtree(out)
    dead = tmp_path / name.replace(OWN, f".{ended()}.")
    dead.mkdir()
    (dead / "weights").write_text("half", "utf-8")
    with appearing(out) as place:
        place.mkdir()
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("error", [OSError("full"), RuntimeError("full"), SafetensorError("full")])
def test_an_export_to_a_full_disk_says_so_whoever_wrote(tmp_path, monkeypatch, error) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    messages = pytest.raises(OSError, match=f"No space left.*nothing was written.*{tmp_path}")
    with messages, appearing(tmp_path / "out") as place:
        place.mkdir()
        raise error
    assert not list(tmp_path.iterdir())


def test_a_file_of_keys_is_never_readable_by_others(tmp_path: Path) -> None:
    before, keys = os.umask(0), KeyFile(tmp_path / "keys")
    try:
        for name in ("one", "two"):
            keys.add(name)
            assert stat.S_IMODE(keys.path.stat().st_mode) == 0o600
    finally:
        os.umask(before)
    assert [key.name for key in KeyFile(keys.path).all()] == ["one", "two"]


def test_a_damaged_checkpoint_is_not_averaged(run: Path) -> None:
    file = checkpoint.path_of(run, checkpoint.steps(run)[-1]) / WEIGHTS
    *content, last = file.read_bytes()
    file.write_bytes(bytes([*content, last ^ 1]))
    with pytest.raises(DamagedError, match=str(file)):
        average(run)


@pytest.mark.parametrize("jump", [-1e9, 1e9])
def test_limits_of_a_client_do_not_heed_the_time_of_day(jump: float, monkeypatch) -> None:
    buckets = TokenBuckets()
    assert buckets.take("me", 1) == 0
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + jump)
    assert 59 < buckets.take("me", 1) <= 60
