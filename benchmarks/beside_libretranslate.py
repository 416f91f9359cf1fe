"""``foveate serve`` beside LibreTranslate: the same weights, the same load, in turn.

    python benchmarks/beside_libretranslate.py RUN SENTENCES ENVIRONMENT [--seconds 20] [--rounds 2]

ENVIRONMENT is a virtual environment with LibreTranslate (``python -m venv ENVIRONMENT``, then its
``pip install libretranslate``). RUN, which translates en → fr, is exported for it
(``foveate export --to argos``). LibreTranslate cuts texts into sentences with a model from the
network; here every text is one sentence and it is spared that. It runs CTranslate2, in fp32 and
once more in eight bits, in as many workers as there are cores, of one thread each, with the beam of
RUN. wrk (a package of Debian) sends the load. Only answered requests count. Writes
docs/results/libretranslate.json.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx

from foveate.run import load
from machine import describe, write
from under_fire import LOADS, ask, family, processor, served, wrk

PORTS = {"float32": 5099, "int8": 5100}
START = """
import sys
from argostranslate import sbd
sbd.MiniSBDSentencizer.split_sentences = lambda self, text: [text]
from libretranslate.main import main
sys.argv = ["libretranslate", *sys.argv[1:]]
main()
"""
INSTALL = "import sys; from argostranslate import package; package.install_from_path(sys.argv[1])"


@contextmanager
def libretranslate(
    python: Path, run: Path, home: Path, beam: int, precision: str
) -> Iterator[SimpleNamespace]:
    """The server with the exported run, both directions so that it looks for no other models."""
    home.mkdir()
    port = PORTS[precision]
    cores = os.cpu_count() or 1
    settings = {
        "HOME": str(home),
        "XDG_DATA_HOME": str(home / "data"),
        "ARGOS_PACKAGES_DIR": str(home / "packages"),
        "ARGOS_INTER_THREADS": str(cores),
        "ARGOS_INTRA_THREADS": "1",
        "ARGOS_BEAM_SIZE": str(beam),
        "ARGOS_COMPUTE_TYPE": precision,
        "PYTHONWARNINGS": "ignore",
    }
    around = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | settings
    for source, target in (("en", "fr"), ("fr", "en")):
        file = home / f"{source}-{target}.argosmodel"
        told = ["--to", "argos", "--language", source, "--language", target, "--check", "5"]
        export = [sys.executable, "-m", "foveate", "export", str(run), str(file), *told]
        subprocess.run(export, check=True, stdout=subprocess.DEVNULL)
        subprocess.run([python, "-c", INSTALL, file], check=True, env=around)
    options = ["--host", "127.0.0.1", "--port", str(port), "--load-only", "en,fr"]
    options += ["--disable-web-ui", "--threads", "64"]
    with (
        (home / "log").open("w") as log,
        subprocess.Popen(
            [python, "-c", START, *options], env=around, stdout=log, stderr=log
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


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("run", type=Path)
    options.add_argument("sentences", type=Path)
    options.add_argument("environment", type=Path)
    options.add_argument("--seconds", type=float, default=20)
    options.add_argument("--rounds", type=int, default=2)
    given = options.parse_args()
    python = given.environment.absolute() / "bin" / "python"
    search = load(given.run).config.decode
    beam = int(getattr(search, "beam_size", 1))
    found: dict[str, dict[str, list[tuple[float, float]]]] = {name: {} for name in LOADS}
    with (
        tempfile.TemporaryDirectory() as home,
        libretranslate(python, given.run, Path(home, "float32"), beam, "float32") as theirs,
        libretranslate(python, given.run, Path(home, "int8"), beam, "int8") as theirs_int8,
        served(given.run, "--processes", str(os.cpu_count() or 1)) as fp32,
        served(given.run, "--processes", str(os.cpu_count() or 1), "--precision", "int8") as int8,
    ):
        servers: dict[str, Any] = {
            "LibreTranslate": theirs, "LibreTranslate, int8": theirs_int8,
            "foveate": fp32, "foveate, int8": int8,
        }  # fmt: skip
        for server in servers.values():
            wrk(server, given.sentences, 5, 8)  # warm-up
        for _ in range(given.rounds):
            for name, (clients, many) in LOADS.items():
                for who, server in servers.items():
                    before = server.cpu()
                    done = wrk(server, given.sentences, given.seconds, clients, many=many)
                    answered, spent = done["answered"] * many, server.cpu() - before
                    rates = answered / done["seconds"], answered / spent
                    found[name].setdefault(who, []).append(rates)
                    print(name, who, *map(round, rates), done, file=sys.stderr, flush=True)
    version = subprocess.run(
        [python, "-m", "pip", "freeze"], check=True, capture_output=True, text=True
    ).stdout
    kept = [one for one in version.split() if one.startswith(("libretranslate", "ctranslate2"))]
    result = {
        "command": f"python benchmarks/{Path(__file__).name} RUN SENTENCES ENVIRONMENT",
        "machine": describe(),
        "beside": kept,
        "beam_size": beam,
        **{
            unit: {
                name: {who: [round(pair[at], 1) for pair in pairs] for who, pairs in each.items()}
                for name, each in found.items()
            }
            for at, unit in enumerate(("sentences_per_second", "sentences_per_cpu_second"))
        },
    }
    print(write("libretranslate", result).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
