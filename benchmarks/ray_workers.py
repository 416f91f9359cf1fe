"""A folder translated by Ray gives the bytes of one process, also where workers or all are killed.

    python benchmarks/ray_workers.py RUN [--lines 1000] [--beam-size 1] [--out FILE.json]

Scenes that were played before the program was stopped are not played again.

The test and validation sets of Multi30k, English, as txt, tsv and jsonl (``FOVEATE_DATA`` names the
folder of the data), are translated by ``foveate translate``: in one process; by two workers of Ray
on this machine; by two of which one is killed with -9 in the middle of a part; by two where
everything is killed with -9 in the middle, and the same command is given again. Each output is
compared with that of the one process, byte by byte. What was repeated is counted by each opening of
a source by a worker, which is once for a part.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

from typer import Option

import harness

SETS = ("test_2016_flickr", "val", "test_2017_flickr", "test_2017_mscoco")
# Python runs this at its start: a line for each file of the folder that a process opens
WATCH = """
import os, sys
def watch(event, arguments):
    if event == "open" and str(arguments[0]).startswith(os.environ["WATCHED"]):
        log = os.open(os.environ["WATCHED_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(log, f"{os.getpid()} {arguments[0]}\\n".encode())
        os.close(log)
sys.addaudithook(watch)
"""


def write_corpus(folder: Path, data: Path, most: int) -> list[int]:
    """The sets as files of three formats; the number of lines of each."""
    (folder / "flickr").mkdir(parents=True)
    texts = []
    for name in SETS:
        with gzip.open(data / "multi30k" / f"{name}.en.gz", "rt", encoding="utf-8") as file:
            texts.append(file.read().splitlines()[:most])
    *plain, table, objects = texts
    for name, text in zip(("2016.txt", "val.txt"), plain, strict=True):
        (folder / "flickr" / name).write_text("\n".join(text) + "\n", encoding="utf-8")
    rows = [f"{line}\t{n}\n" for n, line in enumerate(table)]
    (folder / "flickr" / "2017.tsv").write_text("".join(rows), encoding="utf-8")
    trees = [json.dumps({"id": n, "source": line}) + "\n" for n, line in enumerate(objects)]
    (folder / "mscoco.jsonl").write_text("".join(trees), encoding="utf-8")
    return [len(text) for text in texts]


class Session:
    """One call of ``foveate translate``, watched."""

    def __init__(self, folder: Path, name: str, command: list[str], out: str) -> None:
        self.out, self.log, self.begun = folder / out, folder / f"{name}.log", time.monotonic()
        saved = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
        path = os.pathsep.join(str(p) for p in (folder / "watch", harness.ROOT / "src"))
        watched = {"WATCHED": str(folder / "corpus") + os.sep, "WATCHED_LOG": str(self.log)}
        self.process = subprocess.Popen(
            [*command, "--out", str(self.out)],
            env=saved | watched | {"PYTHONPATH": path},
            stderr=subprocess.PIPE,
            text=True,
        )

    def opened(self) -> list[int]:
        """Who has opened a source, one after the other, the first process left out."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        result = [int(line.split()[0]) for line in lines]
        return [pid for pid in result if pid != self.process.pid]

    def kept(self) -> dict[str, float]:
        """The parts that are done, and when each was."""
        places = self.out.glob(".foveate/parts/*")
        return {p.name: p.stat().st_mtime for p in places if not p.name.startswith(".")}

    def wait_for(self, parts: int) -> None:
        """Wait until so many parts are done, and a little, to be in the middle of others."""
        while len(self.kept()) < parts:
            if self.process.poll() is not None:
                self.end()
                sys.exit("it was done before it could be killed; give more --lines")
            time.sleep(0.1)
        time.sleep(1.0)

    def end(self) -> dict[str, Any]:
        _, output = self.process.communicate()
        if self.process.returncode:
            sys.exit(f"failed with {self.process.returncode}:\n{output[-3000:]}")
        return {
            "seconds": round(time.monotonic() - self.begun, 1),
            "parts begun by workers": len(self.opened()),
            "said": [line for line in output.splitlines() if line[:1].isalnum()],  # by foveate
        }


def outputs(out: Path) -> dict[str, str]:
    """The sha256 of each file that came out."""
    paths = [p for p in sorted(out.rglob("*")) if p.is_file() and ".foveate" not in p.parts]
    return {path.relative_to(out).as_posix(): harness.sha256(path) for path in paths}


def with_a_killed_worker(session: Session) -> dict[str, Any]:
    """Kill the worker that has begun a part last, in the middle of it."""
    session.wait_for(parts=1)
    before = session.kept()
    os.kill(session.opened()[-1], signal.SIGKILL)
    result = session.end()
    return {"done before the kill": len(before), **result}


def with_all_killed(session: Session) -> dict[str, Any]:
    """Kill the whole session: command, cluster, workers."""
    session.wait_for(parts=2)
    before = session.kept()
    stop_all(session.process.pid)
    session.process.communicate()
    begun = len(session.opened())
    return {"done before the kill": len(before), "parts begun by workers": begun}


def stop_all(pid: int) -> None:
    """SIGKILL a process and its descendants, whatever session they are in."""
    table = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True).stdout
    parents = [tuple(map(int, line.split())) for line in table.splitlines()]
    chosen = {pid}
    while more := {p for p, parent in parents if parent in chosen} - chosen:
        chosen |= more
    for item in chosen:
        with contextlib.suppress(ProcessLookupError):
            os.kill(item, signal.SIGKILL)


def main(
    run: Path,
    lines: Annotated[int, Option(help="of each test set")] = 1000,
    beam_size: int = 1,
    out: Path | None = None,
) -> None:
    from foveate.cli.folders import LINES

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        counts = write_corpus(folder / "corpus", harness.DATA, lines)
        parts = sum(-(-count // LINES) for count in counts)
        (folder / "watch").mkdir()
        (folder / "watch" / "sitecustomize.py").write_text(WATCH)
        options = ("--in", folder / "corpus", "--beam-size", beam_size)
        command = harness.foveate("translate", run.resolve(), *options)
        ray = [*command, "--engine", "ray", "--processes", "2"]
        report = {
            "command": f"python benchmarks/ray_workers.py RUN --lines {lines}"
            f" --beam-size {beam_size}",
            "run": run.name,
            "ray": importlib.metadata.version("ray"),
            "lines": sum(counts),
            "parts": parts,
        }
        scenes = played_before(out, report)

        def played(name: str, result: dict[str, Any], to: str | None = None) -> None:
            scenes[name] = result | ({"files": outputs(folder / to)} if to else {})
            print(f"{name}: {scenes[name]}", file=sys.stderr, flush=True)
            harness.write("ray", report | {"scenes": scenes} | compared(scenes, parts), out)

        if "one process" not in scenes:
            item = Session(folder, "one", [*command, "--processes", "1"], "one")
            played("one process", item.end(), "one")
        if "a worker killed" not in scenes:
            played("a worker killed", with_a_killed_worker(Session(folder, "k", ray, "k")), "k")
        if "and gone on" not in scenes:
            played("all killed", with_all_killed(Session(folder, "stop", ray, "stop")))
            played("and gone on", Session(folder, "on", ray, "stop").end(), "stop")
        if "two workers" not in scenes:
            played("two workers", Session(folder, "two", ray, "two").end(), "two")
    print(compared(scenes, parts))
    sys.exit(not all(compared(scenes, parts)["identical"].values()))


def played_before(path: Path | None, report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The scenes of a file that has some of them for the same run and lines, and not all."""
    result = harness.previous("ray", path)
    same = all(result.get(key) == report[key] for key in ("command", "run", "lines", "ray"))
    return result["scenes"] if same and len(result["scenes"]) < 5 else {}


def compared(scenes: dict[str, dict[str, Any]], parts: int) -> dict[str, dict[str, Any]]:
    """Which scenes gave the files of the one process, and how many parts were begun once more."""
    expected = scenes["one process"]["files"]
    begun = {scene: result["parts begun by workers"] for scene, result in scenes.items()}
    again = {
        scene: begun[scene] - parts
        for scene in ("two workers", "a worker killed")
        if scene in begun
    }
    if "and gone on" in begun:
        again["all killed, and gone on"] = begun["all killed"] + begun["and gone on"] - parts
    return {
        "identical": {
            scene: result["files"] == expected
            for scene, result in scenes.items()
            if "files" in result
        },
        "parts done again": again,
    }


if __name__ == "__main__":
    harness.run(main)
