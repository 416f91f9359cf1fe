"""``foveate serve`` beside LibreTranslate: the same weights, the same load, in turn.

    python benchmarks/beside_libretranslate.py RUN SENTENCES ENVIRONMENT \\
        [--seconds 20] [--rounds 2] [--load "64 clients, 1 sentence"]

ENVIRONMENT is a virtual environment with LibreTranslate (``python -m venv ENVIRONMENT``, then its
``pip install libretranslate``). RUN, which translates en → fr, is exported for it
(``foveate export --to argos``). LibreTranslate cuts texts into sentences with a model from the
network; here every text is one sentence and it is spared that. It runs CTranslate2 with the beam of
RUN: as it comes, and then in fp32 and in eight bits with as many workers as there are cores, of one
thread each. wrk (a package of Debian) sends the load. Only answered requests count. Writes
docs/results/libretranslate.json, by RUN's model and size.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import httpx

import harness
from foveate.run import load as load_run
from under_fire import LOADS, ask, family, processor, served, wrk

PORT = 5099  # and the next ones
TUNED = {"ARGOS_INTER_THREADS": str(os.cpu_count() or 1), "ARGOS_INTRA_THREADS": "1"}
PEERS = {
    "LibreTranslate as it comes": {},
    "LibreTranslate, fp32": TUNED | {"ARGOS_COMPUTE_TYPE": "float32"},
    "LibreTranslate, int8": TUNED | {"ARGOS_COMPUTE_TYPE": "int8"},
}
OURS: dict[str, list[str]] = {"foveate, fp32": [], "foveate, int8": ["--precision", "int8"]}
START = """
import sys
from argostranslate import sbd
sbd.MiniSBDSentencizer.split_sentences = lambda self, text: [text]
from libretranslate.main import main
sys.argv = ["libretranslate", *sys.argv[1:]]
main()
"""
INSTALL = "import sys; from argostranslate import package; package.install_from_path(sys.argv[1])"


def packages(python: Path, run: Path, home: Path) -> dict[str, str]:
    """The exported run where LibreTranslate finds it, and the environment that says so.

    In both directions, so that it looks for no other models.
    """
    settings = {
        "HOME": str(home),
        "XDG_DATA_HOME": str(home / "data"),
        "ARGOS_PACKAGES_DIR": str(home / "packages"),
        "PYTHONWARNINGS": "ignore",
    }
    around = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | settings
    for source, target in (("en", "fr"), ("fr", "en")):
        file = home / f"{source}-{target}.argosmodel"
        options = ["--to", "argos", "--language", source, "--language", target, "--check", "5"]
        export = harness.foveate("export", run, file, *options)
        subprocess.run(export, check=True, stdout=subprocess.DEVNULL)
        subprocess.run([python, "-c", INSTALL, file], check=True, env=around)
    return around


@contextmanager
def libretranslate(
    python: Path, around: dict[str, str], port: int, log: Path
) -> Iterator[SimpleNamespace]:
    """The server, in such an environment."""
    options = ["--host", "127.0.0.1", "--port", str(port), "--load-only", "en,fr"]
    options += ["--disable-web-ui", "--threads", "64"]
    with (
        log.open("w") as output,
        subprocess.Popen(
            [python, "-c", START, *options], env=around, stdout=output, stderr=output
        ) as process,
    ):
        url, cpu = f"http://127.0.0.1:{port}", lambda: processor(*family(process.pid))
        server = SimpleNamespace(url=url, cpu=cpu)
        try:
            wait(server.url)
            yield server
        finally:
            process.terminate()


def wait(url: str, seconds: float = 120) -> None:
    """Until it translates."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if httpx.post(f"{url}/translate", json=ask("A dog."), timeout=30).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(1)
    sys.exit(f"LibreTranslate at {url} did not answer within {seconds:g} s")


def main(
    run: Path,
    sentences: Path,
    environment: Path,
    seconds: float = 20,
    rounds: int = 2,
    load: Annotated[list[str] | None, harness.among(LOADS, "these alone")] = None,
) -> None:
    python = environment.absolute() / "bin" / "python"
    own = load_run(run)
    beam = int(getattr(own.config.decode, "beam_size", 1))
    processes = ["--processes", str(os.cpu_count() or 1)]
    measured: dict[str, dict[str, list[tuple[float, float]]]] = {name: {} for name in load or LOADS}
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        around = packages(python, run, home) | {"ARGOS_BEAM_SIZE": str(beam)}
        servers: dict[str, Any] = {}
        for number, (name, settings) in enumerate(PEERS.items(), PORT):
            server = libretranslate(python, around | settings, number, home / f"{number}.log")
            servers[name] = stack.enter_context(server)
        for name, options in OURS.items():
            servers[name] = stack.enter_context(served(run, *processes, *options))
        for server in servers.values():
            wrk(server, sentences, 5, 8)  # warm-up
        for _ in range(rounds):
            for name, by in measured.items():
                clients, many = LOADS[name]
                for who, server in servers.items():
                    before = server.cpu()
                    done = wrk(server, sentences, seconds, clients, many=many)
                    answered, spent = done["answered"] * many, server.cpu() - before
                    rates = answered / done["seconds"], answered / spent
                    by.setdefault(who, []).append(rates)
                    print(name, who, *map(round, rates), done, file=sys.stderr, flush=True)
    version = subprocess.run(
        [python, "-m", "pip", "freeze"], check=True, capture_output=True, text=True
    ).stdout
    versions = [pin for pin in version.split() if pin.startswith(("libretranslate", "ctranslate2"))]
    size = sum(item.numel() for item in own.model.parameters())
    result = harness.previous("libretranslate")
    result[f"{own.config.model.kind}, {size / 1e6:.1f} million parameters"] = {
        "command": harness.command(),
        "machine": harness.describe(),
        "beside": versions,
        "beam_size": beam,
        **{
            unit: {
                name: {who: [round(pair[at], 1) for pair in pairs] for who, pairs in each.items()}
                for name, each in measured.items()
            }
            for at, unit in enumerate(("sentences_per_second", "sentences_per_cpu_second"))
        },
    }
    print(harness.write("libretranslate", result).read_text(encoding="utf-8"))


if __name__ == "__main__":
    harness.run(main)
