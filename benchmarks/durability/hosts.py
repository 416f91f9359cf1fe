"""Two hosts that train together lose their link: python benchmarks/durability hosts

Two network namespaces with one cable between them stand for two machines that share a disk; in each
``torchrun --nnodes 1:2`` starts one rank of ``foveate train``. In the middle the cable is cut. What
each host then says and does is written down, and the weights at the end are compared with those of
one process that was never disturbed. Needs root and ``ip`` (Debian: iproute2).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from typer import Option

import harness
from harness import logged

HOSTS = {"a": "10.77.0.1", "b": "10.77.0.2"}
STEPS, EVERY, CUT = 60, 5, 20  # of training, of saving, and the step after which the cable is cut
HANG_MINUTES = 0.25
LINGER = 60.0  # seconds that one host may go on after the other has ended
LAYER = '{ kind = "transformer", hidden_size = 32, num_layers = 2, num_heads = 2 }'
CONFIG = f"""
[task]
kind = "translation"
source = "DATA/{{split}}.tsv"
tokenizer = {{ kind = "word" }}
[model]
kind = "encoder_decoder"
encoder = {LAYER}
decoder = {LAYER}
[train]
batch_tokens = 256
max_steps = {STEPS}
log_every = 1
precision = "fp32"
hang_minutes = {HANG_MINUTES}
schedule = "constant"
save = {{ every = {EVERY} }}
validation = {{ every = {STEPS} }}
"""


def why_not() -> str | None:
    """What is missing here, if anything."""
    if os.name != "posix" or os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "there is no ip command (Debian: apt-get install iproute2)"
    tried = subprocess.run(
        ["ip", "netns", "add", name("try")], capture_output=True, text=True, encoding="utf-8"
    )
    if tried.returncode:
        return f"this machine makes no network namespace: {tried.stderr.strip()}"
    ip("netns", "del", name("try"))
    return None


def name(host: str) -> str:
    return f"foveate-{os.getpid()}-{host}"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def cabled() -> Iterator[None]:
    """Two namespaces with a cable between them."""
    made = []
    try:
        for host in HOSTS:
            ip("netns", "add", name(host))
            made.append(host)
        ends = {host: f"fov{host}{os.getpid() % 10**8}" for host in HOSTS}
        ip("link", "add", ends["a"], "type", "veth", "peer", "name", ends["b"])
        for host, address in HOSTS.items():
            ip("link", "set", ends[host], "netns", name(host))
            inside = ("-n", name(host))
            ip(*inside, "link", "set", ends[host], "name", "cable")
            ip(*inside, "addr", "add", f"{address}/24", "dev", "cable")
            ip(*inside, "link", "set", "cable", "up")
            ip(*inside, "link", "set", "lo", "up")
        yield
    finally:
        for host in made:
            ip("netns", "del", name(host))


def start(host: str, config: Path, run: Path, log: Path) -> subprocess.Popen[bytes]:
    command = ["ip", "netns", "exec", name(host), sys.executable, "-m", "torch.distributed.run"]
    command += ["--nnodes", "1:2", "--nproc-per-node", "1", "--max-restarts", "3"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{HOSTS['a']}:29577"]
    command += ["--rdzv-conf", f"is_host={int(host == 'a')}"]  # they share one host name
    command += ["--rdzv-id", "foveate", "--local-addr", HOSTS[host]]
    command += ["-m", "foveate", "--", "train", str(config), "--run", str(run)]
    env = os.environ | {"GLOO_SOCKET_IFNAME": "cable", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=env, stdout=log.open("wb"), stderr=subprocess.STDOUT)


def until(step: int, run: Path, processes: list[subprocess.Popen[bytes]], seconds: float) -> None:
    end = time.monotonic() + seconds
    while max((line["step"] for line in logged(run, "train")), default=0) < step:
        if time.monotonic() > end or all(p.poll() is not None for p in processes):
            sys.exit("the two hosts do not train")
        time.sleep(0.1)


def data(folder: Path) -> Path:
    """Sentences to be reversed, and the config."""
    words = [f"w{i}" for i in range(20)]
    rows = [[words[(i * k) % 20] for k in range(1, 4 + i % 9)] for i in range(1, 600)]
    text = "".join(f"{' '.join(row)}\t{' '.join(reversed(row))}\n" for row in rows)
    for split in ("train", "valid", "test"):
        (folder / f"{split}.tsv").write_text(
            text if split == "train" else text[:2000], "utf-8", newline="\n"
        )
    config = folder / "config.toml"
    config.write_text(CONFIG.replace("DATA", str(folder)), "utf-8", newline="\n")
    return config


def played(folder: Path, patience: float) -> dict[str, Any]:
    """Train, cut the cable, wait for both hosts; what happened, with seconds since the cut."""
    config, run = data(folder), folder / "run"
    logs = {host: folder / f"{host}.log" for host in HOSTS}
    with cabled():
        processes = {host: start(host, config, run, logs[host]) for host in HOSTS}
        try:
            until(CUT, run, list(processes.values()), patience)
            ip("-n", name("b"), "link", "set", "cable", "down")
            cut, before = time.monotonic(), logged(run, "train")[-1]["step"]
            print(f"the cable is cut after step {before}", file=sys.stderr)
            ended: dict[str, Any] = {}
            until_end = cut + patience
            while len(ended) < len(HOSTS) and time.monotonic() < until_end:
                for host, process in processes.items():
                    if host not in ended and process.poll() is not None:
                        waited = round(time.monotonic() - cut, 1)
                        ended[host] = {"exit_code": process.returncode, "seconds_after_cut": waited}
                        until_end = min(until_end, time.monotonic() + LINGER)
                time.sleep(0.2)
            for host in HOSTS.keys() - ended.keys():
                ended[host] = {"exit_code": None, "why": "torchrun still looks for the other host"}
        finally:
            for process in processes.values():
                process.kill()
                process.wait()
    output = {host: telling(logs[host]) for host in HOSTS}
    starts = [(line["step"], line.get("ranks", 1)) for line in logged(run, "start")]
    return {"cut_after_step": before, "ended": ended, "said": output, "starts": starts}


def telling(log: Path) -> list[str]:
    """The lines of a host's output that say what befell it."""
    text = log.read_text(encoding="utf-8", errors="replace").splitlines()
    marks = (
        "lost the others",
        "resuming from",
        "ranks,",
        "ended it",
        "error:",
    )
    return [line.strip() for line in text if any(mark in line for mark in marks)]


def compared(folder: Path) -> dict[str, Any]:
    """The run against one process with both batches of each step."""
    whole = folder / "whole"
    options = ("train.accumulate=2", "--run", whole)
    command = harness.foveate("train", folder / "config.toml", *options)
    subprocess.run(command, check=True, capture_output=True)
    from safetensors.torch import load_file

    ours, theirs = (
        load_file(r / "checkpoints" / f"step-{STEPS:08d}" / "model.safetensors")
        for r in (folder / "run", whole)
    )
    pairs = zip(logged(folder / "run", "train"), logged(whole, "train"), strict=True)
    return {
        "largest_difference_of_a_loss": max(abs(a["loss"] - b["loss"]) for a, b in pairs),
        "largest_difference_of_a_weight": max(
            float((ours[n] - theirs[n]).abs().max()) for n in theirs
        ),
    }


def main(
    out: Path | None = None,
    patience: Annotated[float, Option(help="seconds for each part")] = 600,
) -> None:
    if reason := why_not():
        print(f"skipped: {reason}")
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        try:
            report = played(folder, patience)
            finished = bool(logged(folder / "run", "train")[-1]["step"] == STEPS)
            report |= {"finished": finished} | (compared(folder) if finished else {})
        except BaseException:
            for log in folder.glob("*.log"):
                print(
                    log.name,
                    log.read_text(errors="replace", encoding="utf-8")[-3000:],
                    file=sys.stderr,
                )
            raise
        text = json.dumps(report).replace(place, "RUN")
    report = {"hang_minutes": HANG_MINUTES, "saved_every": EVERY} | json.loads(text)
    path = harness.write("hosts", report, out)
    print(json.dumps({k: report[k] for k in ("cut_after_step", "ended", "starts")}), path)
    sys.exit(not finished)
