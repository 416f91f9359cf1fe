"""What is lost when a process is killed, a disk is full, a folder is read-only, a clock jumps.

    python benchmarks/durability faults [--kills 10] [--only kill,full,read_only,two,clock]

Every act of foveate that writes is carried out by a process that has the program loaded already, so
that the moments of SIGKILL fall into the work and not into its start. Full and read-only disks are
small tmpfs that this mounts (Linux, root; else they are left out, with the reason). A clock that
jumps is libfaketime's. Training itself, killed in the middle, is measured by ``kill.py``.

Each row says what was tried, how often, what was said, and which files were lost or torn: a file
must be what it was before, or what the act writes if nobody disturbs it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from typer import Option

import harness
from foveate.cli import main as foveate

sys.path.insert(0, str(harness.ROOT / "tests"))

from small_runs import made

Row = dict[str, Any]
Files = dict[str, str]  # path: sha256
FORMS = ("safetensors", "ctranslate2", "onnx", "huggingface", "argos")
FOR_ALL = {  # forms of export: what the small run's config says, and what all of them can hold
    'tokenizer = { kind = "word", min_frequency = 1 }': (
        'joint = true\ntokenizer = { kind = "bpe", vocab_size = 280 }'
    ),
    'kind = "encoder_decoder"': 'kind = "encoder_decoder"\ntie = "all"',
}
AFTERWARDS = ("code_afterwards", "differs_afterwards", "left_behind")  # all of them are empty
HIDDEN = (".new-", ".old-", ".writing")  # what is being written; nobody takes it for whole


@dataclass
class Done:
    """How a process ended: its code (negative: a signal), its seconds, its last words."""

    code: int
    seconds: float
    said: str

    @property
    def bare(self) -> bool:
        """Whether it ended in a traceback."""
        return "Traceback" in self.said


def begin(arguments: Sequence[object], said: Path, out: Path | None = None) -> int:
    """A process that carries out a command line; what it says goes into a file."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        handle = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 2)
        os.dup2(handle if out is None else os.open(out, os.O_WRONLY | os.O_CREAT), 1)
        sys.argv = ["foveate", *map(str, arguments)]
        foveate()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


def end(child: int, said: Path, begun: float) -> Done:
    """Wait for a process."""
    _, status = os.waitpid(child, 0)
    seconds = time.monotonic() - begun
    return Done(os.waitstatus_to_exitcode(status), seconds, said.read_text("utf-8", "replace"))


@dataclass
class Bench:
    """A folder to work in, with a run in it that all faults begin with."""

    folder: Path
    kills: int
    chance: random.Random
    rows: list[Row] = field(default_factory=list)

    def carry_out(self, arguments: Sequence[object], out: Path | None = None) -> Done:
        """Carry out a command line to its end."""
        begun = time.monotonic()
        output = self.folder / "said"
        return end(begin(arguments, output, out), output, begun)

    def killed(self, arguments: Sequence[object], wait: float) -> Done:
        """Kill a process after some seconds, if it has not ended by then."""
        begun, output = time.monotonic(), self.folder / "said"
        child = begin(arguments, output)
        while time.monotonic() - begun < wait:
            if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
            time.sleep(0.001)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        return end(child, output, begun)

    def add(self, fault: str, act: str, **facts: Any) -> None:
        """A row of the table."""
        self.rows.append({"fault": fault, "act": act, **facts})
        print(json.dumps(self.rows[-1], ensure_ascii=False), file=sys.stderr, flush=True)


def content(folder: Path, hidden: bool = False) -> Files:
    """Every file of a folder that somebody might read, by its sha256."""
    result = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        passing = any(part.startswith(HIDDEN) or part.endswith(".part") for part in path.parts)
        if path.is_file() and (hidden or not passing):
            result[name] = harness.sha256(path)
    return result


def harmed(before: Files, after: Files, now: Files) -> list[str]:
    """Files that are neither what they were nor what they were to become."""
    wrong = [name for name, old in before.items() if now.get(name) not in (old, after.get(name))]
    return wrong + [name for name in now.keys() - before.keys() if now[name] != after.get(name)]


# ------------------------------------------------------------------------------ acts

Act = Callable[[Path], list[object]]  # the command line, for a folder with "run" and "texts"


def exporting(form: str, at: Path) -> list[object]:
    """An export, compared with the run on four lines."""
    output: list[object] = ["--to", form, "--check", "4"]
    if form == "argos":  # a file, that names its languages
        return ["export", at / "run", at / "out.argosmodel", *output, "--language", "en",
                "--language", "fr"]  # fmt: skip
    return ["export", at / "run", at / "out", *output]


def acts() -> dict[str, Act]:
    """What writes, and how it is called."""
    return {
        "average": lambda at: ["average", at / "run"],
        "align --save": lambda at: [
            "align", at / "run", at / "source.txt", at / "target.txt", "--layer", "0",
            "--head", "1", "--save", "--out", at / "links.txt",
        ],
        "shortlist": lambda at: ["shortlist", at / "run", "--often", "5", "--likely", "5"],
        **{f"export --to {form}": partial(exporting, form) for form in FORMS},
        "translate": lambda at: [
            "translate", at / "run", "--in", at / "source.txt", "--out", at / "translated.txt",
        ],
        "evaluate --output": lambda at: ["evaluate", at / "run", "--output", at / "outputs.txt"],
    }  # fmt: skip


def prepared(folder: Path) -> Path:
    """A run with three checkpoints, what acts have written before, and texts."""
    at = folder / "begun"
    at.mkdir(parents=True)
    os.environ["FOVEATE_PREPARED"] = str(folder / "cache")
    made(folder, ["transformer"], steps=40)
    config = folder / "transformer.toml"
    text = config.read_text("utf-8")
    for before, after in FOR_ALL.items():
        assert before in text, before
        text = text.replace(before, after)
    config.write_text(text, "utf-8", newline="\n")
    more = ["train.max_steps=60", "train.save.every=20", "train.save.keep=3"]
    silent(["train", config, *more, "--run", at / "run"])
    pairs = (folder / "pairs.train.tsv").read_text("utf-8").splitlines()
    for name, column in (("source", 0), ("target", 1)):
        lines = [pair.split("\t")[column] + "\n" for pair in pairs]
        (at / f"{name}.txt").write_text("".join(lines), "utf-8", newline="\n")
    for name in ("links", "translated", "outputs"):
        (at / f"{name}.txt").write_text("written before\n" * 100, "utf-8", newline="\n")
    silent(["shortlist", at / "run", "--often", "9", "--likely", "9"])
    silent(["average", at / "run", "--last", "1"])
    return at


def silent(arguments: Sequence[object]) -> None:
    """Carry out what must succeed."""
    with tempfile.TemporaryDirectory() as folder:
        done = end(begin(arguments, Path(folder, "said")), Path(folder, "said"), time.monotonic())
    if done.code:
        sys.exit(f"{arguments} failed:\n{done.said}")


def last_line(said: str) -> str:
    """What a person reads last, without names of passing folders."""
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else ""


# ------------------------------------------------------------------------------ SIGKILL


def kill(bench: Bench) -> None:
    """Kill each act at random moments; then let it end, and look for what killed ones left."""
    begun = prepared(bench.folder)
    for name, act in acts().items():
        whole = bench.folder / "whole"
        shutil.copytree(begun, whole)
        before = content(begun)
        done = bench.carry_out(act(whole))
        after = content(whole)
        lost, times, at = [], 0, bench.folder / "killed"
        shutil.copytree(begun, at)
        while times < bench.kills:
            ended = bench.killed(act(at), bench.chance.uniform(0, 1.1 * done.seconds))
            times += ended.code == -signal.SIGKILL
            lost += harmed(before, after, content(at))
            if ended.code == 0:  # it was quicker: begin anew
                shutil.rmtree(at)
                shutil.copytree(begun, at)
        final = _last(bench, act(at), at)
        differs = sorted(n for n, d in after.items() if content(at).get(n) != d)
        left = sorted(content(at, hidden=True).keys() - content(at).keys())
        bench.add(
            "SIGKILL", name, times=times, lost=lost, code_afterwards=final.code,
            differs_afterwards=differs, left_behind=left,
        )  # fmt: skip
        for folder in (whole, at):
            shutil.rmtree(folder)
    _kill_keys(bench)
    _kill_server(bench, begun)
    shutil.rmtree(begun)


def _last(bench: Bench, arguments: Sequence[object], at: Path) -> Done:
    """The act, undisturbed; an export that was whole when its process was killed is there."""
    shutil.rmtree(at / "out", ignore_errors=True)
    (at / "out.argosmodel").unlink(missing_ok=True)
    return bench.carry_out(arguments)


def _kill_keys(bench: Bench) -> None:
    """Keys that were told to somebody are valid, whenever the next one is made."""
    from foveate.serve.keys import KeyFile

    file, messages, lost, times = bench.folder / "keys", list[str](), list[str](), 0
    took = bench.carry_out(["serve", "keys", "add", "first", "--file", file]).seconds
    messages.append("first")
    for number in range(1000):
        arguments = ["serve", "keys", "add", f"key-{number}", "--file", file]
        done = bench.killed(arguments, bench.chance.uniform(0, 1.1 * took))
        times += done.code == -signal.SIGKILL
        messages += [f"key-{number}"] if done.code == 0 else []
        names = {key.name for key in KeyFile(file).all()}
        lost += [name for name in messages if name not in names]
        if file.stat().st_mode & 0o077:
            lost.append("secrecy")
        if times == bench.kills:
            break
    bench.add("SIGKILL", "serve keys add", times=times, lost=lost, kept=len(messages))


def _kill_server(bench: Bench, begun: Path) -> None:
    """A server writes nothing: its run and its keys are as they were, and the next one starts."""
    keys = bench.folder / "keys"
    arguments = ["serve", begun / "run", "--as", "en:fr", "--keys", keys, "--port", 0, "--preload"]
    before = content(begun, hidden=True) | {"keys": keys.read_text("utf-8")}
    waits = [bench.chance.uniform(0, 2) for _ in range(bench.kills)]
    ended = [bench.killed(arguments, wait) for wait in waits]
    now = content(begun, hidden=True) | {"keys": keys.read_text("utf-8")}
    lost = [name for name in before.keys() | now.keys() if before.get(name) != now.get(name)]
    last = bench.killed(arguments, 20)
    lost += [] if "serve: http" in last.said else ["the server"]
    times = sum(done.code == -signal.SIGKILL for done in [*ended, last])
    bench.add("SIGKILL", "serve", times=times, lost=lost)


# ------------------------------------------------------------------------------ disks


@contextlib.contextmanager
def disk(place: Path, size: str) -> Iterator[Path]:
    """A small disk in memory; it is unmounted at the end."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)
        place.rmdir()


def fill(place: Path, free: int) -> None:
    """Leave so many bytes of a disk free."""
    (place / "filling").unlink(missing_ok=True)
    with (place / "filling").open("wb") as file, contextlib.suppress(OSError):
        room = shutil.disk_usage(place).free - free
        file.write(bytes(max(0, room)))


ROOMS = (0, 4096, 65536, 2**20, 2**23)  # bytes that are free


def full(bench: Bench) -> None:
    """Each act on a full disk, and on some that become full while it writes."""
    begun = prepared(bench.folder)
    with disk(bench.folder / "disk", "24m") as place:
        for name, act in [*acts().items(), *_training(bench).items()]:
            before, lost, output, bare, codes = content(begun), [], [], 0, []
            whole = bench.folder / "whole"
            shutil.copytree(begun, whole)
            bench.carry_out(act(whole))
            after = content(whole)
            for room in ROOMS:
                at = place / "at"
                shutil.copytree(begun, at)
                fill(place, room)
                if "prepare" in name:
                    os.environ["FOVEATE_PREPARED"] = str(place / "cache")
                done = bench.carry_out(act(at))
                os.environ["FOVEATE_PREPARED"] = str(bench.folder / "cache")
                codes.append(done.code)
                bare += done.bare
                if name in acts():
                    lost += harmed(before, after, content(at))
                else:
                    lost += [n for n, d in before.items() if content(at).get(n, d) != d]
                output += [last_line(done.said)] if done.code else []
                for left in (at, place / "cache"):
                    shutil.rmtree(left, ignore_errors=True)
                (place / "filling").unlink()
            shutil.rmtree(whole)
            messages = sorted({line.replace(str(place), "DISK") for line in output})
            bench.add(
                "full disk", name, times=len(ROOMS), lost=lost, codes=codes, tracebacks=bare,
                said=messages,
            )  # fmt: skip
        _full_stream(bench, begun, place)
    shutil.rmtree(begun)


def _training(bench: Bench) -> dict[str, Act]:
    """Training, in a run of its own; and with the data prepared anew, on the same disk."""
    config = bench.folder / "transformer.toml"
    quick = ["train.max_steps=4", "train.save.every=2", "train.validation.every=4"]
    command: Act = lambda at: ["train", config, *quick, "--run", at / "new"]  # noqa: E731
    return {"train": command, "train and prepare": command}


def _full_stream(bench: Bench, begun: Path, place: Path) -> None:
    """Standard output that goes into a file on a full disk."""
    fill(place, 0)
    source = os.open(begun / "source.txt", os.O_RDONLY)
    saved = os.dup(0)
    os.dup2(source, 0)
    done = bench.carry_out(["translate", begun / "run"], out=place / "lines.txt")
    os.dup2(saved, 0)
    bench.add(
        "full disk", "translate > FILE", times=1, lost=[], codes=[done.code],
        tracebacks=int(done.bare), said=[last_line(done.said)],
    )  # fmt: skip


def read_only(bench: Bench) -> None:
    """Each act where nothing may be written; what only reads must go on working."""
    begun = prepared(bench.folder)
    with disk(bench.folder / "disk", "24m") as place:
        at = place / "at"
        shutil.copytree(begun, at)
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        before = content(at)
        more = ["train", bench.folder / "transformer.toml", "train.max_steps=80", "--run"]
        tried: dict[str, Act] = acts() | {"train": lambda at: [*more, at / "run"]}
        tried["serve keys add"] = lambda at: ["serve", "keys", "add", "me", "--file", at / "keys"]
        tried["show"] = lambda at: ["show", at / "run"]
        for name, act in tried.items():
            done = bench.carry_out(act(at))
            messages = [last_line(done.said).replace(str(place), "DISK")] if done.code else []
            lost = [n for n, d in before.items() if content(at).get(n) != d]
            bench.add(
                "read-only folder", name, times=1, lost=lost, codes=[done.code],
                tracebacks=int(done.bare), said=messages,
            )  # fmt: skip
    shutil.rmtree(begun)


# ------------------------------------------------------------------------------ two at once


def two(bench: Bench) -> None:
    """Two trainings on one run: the second refuses, and goes on when the first was killed."""
    begun = prepared(bench.folder)
    config, run = bench.folder / "transformer.toml", begun / "run"
    long = ["train", config, "train.max_steps=100000", "train.save.every=20", "--run", run]
    output = bench.folder / "first"
    first, started = begin(long, output), time.monotonic()
    while not (run / ".writing").exists() or not (run / ".writing").read_text("utf-8"):
        time.sleep(0.01)
    before = content(run)
    messages = {}
    for name, arguments in {"train": long, "average": ["average", run]}.items():
        done = bench.carry_out(arguments)
        messages[name] = last_line(done.said).replace(str(bench.folder), "FOLDER")
        if done.code == 0 or f"process {first} on " not in done.said:
            messages[name] += " (NOT REFUSED)"
    lost = [n for n, d in before.items() if n not in content(run) and "checkpoints" not in n]
    os.kill(first, signal.SIGKILL)
    end(first, output, started)
    again = bench.carry_out(["train", config, "train.max_steps=61", "--run", run])
    bench.add(
        "two at once", "train", times=2, lost=lost, said=messages, code_afterwards=again.code
    )  # fmt: skip
    shutil.rmtree(begun)


# ------------------------------------------------------------------------------ clocks


def clock(bench: Bench) -> None:
    """Training while the clock jumps by years: the same weights, byte for byte."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if library is None:
        bench.add("clock jumps", "train", times=0, lost=[], left_out="libfaketime is not installed")
        return
    begun = prepared(bench.folder)
    config, moment = bench.folder / "transformer.toml", bench.folder / "moment"
    moment.write_text("+0", "utf-8", newline="\n")
    environment = os.environ | {
        "LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": str(moment),
        "FAKETIME_NO_CACHE": "1", "DONT_FAKE_MONOTONIC": "1",
        "PYTHONPATH": str(harness.ROOT / "src"),
    }  # fmt: skip
    steps = ["train.max_steps=60", "train.save.every=20", "train.save.keep=3", "--run"]
    jumped = bench.folder / "jumped"
    command = harness.foveate("train", config, *steps, jumped)
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    jumps = 0
    while process.poll() is None:
        moment.write_text(("+20y", "-20y", "+0")[jumps % 3], "utf-8", newline="\n")
        jumps += 1
        time.sleep(0.2)
    weights = "checkpoints/step-00000060/model.safetensors"
    same = content(jumped).get(weights) == content(begun / "run")[weights]
    bench.add(
        "clock jumps", "train", times=jumps, lost=[] if same else ["the same weights"],
        codes=[process.returncode],
    )  # fmt: skip
    shutil.rmtree(begun)


# ------------------------------------------------------------------------------ all


FAULTS: dict[str, Callable[[Bench], None]] = {
    "kill": kill, "full": full, "read_only": read_only, "two": two, "clock": clock,
}  # fmt: skip
MOUNTS = ("full", "read_only")


def may_mount() -> str | None:
    """Why no disk can be mounted here, or nothing."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "only root on Linux can mount a small disk"
    with tempfile.TemporaryDirectory() as folder:
        command = ["mount", "-t", "tmpfs", "tmpfs", folder]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
        if done.returncode == 0:
            subprocess.run(["umount", folder], check=True)
    return done.stderr.strip() or None


def main(
    kills: Annotated[int, Option(help="of each act")] = 10,
    seed: int = 1,
    only: Annotated[str, Option(help="others stay in the file as they are")] = ",".join(FAULTS),
    out: Path | None = None,
) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # disks are unmounted
    rows: list[Row] = []
    why = may_mount()
    for name in only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(Path(folder), kills, random.Random(seed))
            if name in MOUNTS and why:
                bench.add(name.replace("_", "-"), "all", times=0, lost=[], left_out=why)
            else:
                FAULTS[name](bench)
            rows += bench.rows
    tried = {row["fault"] for row in rows}
    before = harness.previous("faults", out).get("faults", [])
    rows = [row for row in before if row["fault"] not in tried] + rows
    report = {
        "faults": rows,
        "tried": sum(row["times"] for row in rows),
        "lost": [f"{row['act']}: {name}" for row in rows for name in row["lost"]],
        "not_mended": [row["act"] for row in rows if any(row.get(name) for name in AFTERWARDS)],
        "tracebacks": sum(row.get("tracebacks", 0) for row in rows),
    }
    path = harness.write("faults", report, out)
    print(f"{report['tried']} faults: lost {report['lost'] or 'nothing'}", end=", ")
    print(f"not mended {report['not_mended'] or 'nothing'} ({path})")
    sys.exit(bool(report["lost"] or report["not_mended"] or report["tracebacks"]))
