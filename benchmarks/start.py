"""What it takes to translate one sentence: megabytes installed, memory, and time from Enter.

    make wheels; python benchmarks/start.py RUN dist/foveate-….whl [--rounds 15]

The run is packed in int8 and exported for CTranslate2 in int8. The wheel, and CTranslate2 with
tokenizers, are installed into environments of their own; PyTorch is that of this process. Each
program translates one line by one thread, A B C A B C: a round that is left out, then ``rounds``.
Memory is the largest resident set; seconds are until the translation is there, and of the
processor until the end. Installed is what stands in site-packages, bytecode too, without pip and
setuptools: all of an environment, or what ``foveate[train]`` needs. Of RUN the tokenizers are bpe.
Writes docs/results/engine-start.json, or ``--out``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement

import harness

PIP = ("pip", "setuptools")  # what an environment has anyway
SMALLEST = """import sys
import ctranslate2, tokenizers
folder = sys.argv[1]
source, target = (tokenizers.Tokenizer.from_file(f"{folder}/{name}.json") for name in ("s", "t"))
translator = ctranslate2.Translator(folder, compute_type="int8", intra_threads=1)
for line in sys.stdin:
    (result,) = translator.translate_batch([[*source.encode(line.strip()).tokens, "</s>"]])
    print(target.decode(list(map(target.token_to_id, result.hypotheses[0]))), flush=True)
"""

# A process counts as its own memory that of the one that started it, so that a small one does.
MEASURE = """import os, subprocess, sys, time
begin = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
process.stdin.write(b"A dog runs.\\n")
process.stdin.close()
text, seconds = process.stdout.readline(), time.perf_counter() - begin
_, status, usage = os.wait4(process.pid, 0)
assert text.strip() and not status, sys.argv
print(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
"""


def main(run: Path, wheel: Path, rounds: int = 15, out: Path | None = None) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        packed, peer = folder / "packed.safetensors", folder / "ctranslate2"
        call(*harness.foveate("pack", run, packed, "--precision", "int8"))
        exports = ("--to", "ctranslate2", "--quantization", "int8", "--check", 1)
        call(*harness.foveate("export", run, peer, *exports))
        for side in ("source", "target"):
            tokenizer = json.loads((run / f"{side}.tokenizer.json").read_bytes())["vocabulary"]
            (peer / f"{side[0]}.json").write_text(
                json.dumps(tokenizer), encoding="utf-8", newline="\n"
            )
        own, other = folder / "own", folder / "other"
        install(own, str(wheel.resolve()))
        install(other, "ctranslate2==4.8.5", "tokenizers")
        whole = dict[str, Distribution]()
        (foveate,) = (each for each in packages(own) if each.metadata["Name"] == "foveate")
        needed(foveate, ["train"], whole)
        small = str(own / "bin" / "foveate"), "translate", str(packed), "--threads", "1"
        torch = harness.foveate("translate", run, "--engine", "torch", "--threads", 1)
        smallest = str(other / "bin" / "python"), "-c", SMALLEST, str(peer)
        programs = {
            "foveate translate FILE": (small, sizes(packages(own)), packed),
            "foveate translate RUN --engine torch": (torch, sizes(whole.values()), None),
            "CTranslate2": (smallest, sizes(packages(other)), peer / "model.bin"),
        }
        figures: dict[str, list[tuple[float, ...]]] = {name: [] for name in programs}
        for _ in range(rounds + 1):
            for name, (command, *_) in programs.items():
                figures[name].append(started(command))
        harness.write("engine-start", {
            "rounds": rounds,
            "programs": {
                name: summary(figures[name][1:], each, weights)
                for name, (_, each, weights) in programs.items()
            },
        }, out)  # fmt: skip


def call(*command: str) -> None:
    subprocess.run(command, check=True, stdout=sys.stderr)


def install(folder: Path, *requirements: str) -> None:
    """An environment without pip."""
    call(sys.executable, "-m", "venv", "--without-pip", str(folder))
    pip = (sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"))
    call(*pip, "install", "-q", "--compile", *requirements)


def packages(folder: Path) -> Iterable[Distribution]:
    """What is installed in an environment."""
    return distributions(path=[str(next(folder.glob("lib/*/site-packages")))])


def needed(package: Distribution, extras: Iterable[str], into: dict[str, Distribution]) -> None:
    """Add a package, and all that it needs with its extras as they are installed here."""
    into[package.metadata["Name"]] = package
    for one in map(Requirement, package.requires or ()):
        chosen = not one.marker or any(one.marker.evaluate({"extra": e}) for e in ("", *extras))
        if chosen and one.name not in into:
            needed(distribution(one.name), one.extras, into)


def sizes(installed: Iterable[Distribution]) -> dict[str, float]:
    """Megabytes of each package, the largest first."""
    named = {each.metadata["Name"].lower(): each for each in installed}
    sizes = {name: sum(map(size, each.files or ())) / 1e6 for name, each in named.items()}
    ordered = sorted(sizes.items(), key=lambda item: -item[1])
    return {name: round(megabytes, 1) for name, megabytes in ordered if name not in PIP}


def size(file: object) -> int:
    path = Path(str(file.locate()))  # type: ignore[attr-defined]
    return path.stat().st_size if path.is_file() else 0


def started(command: Iterable[str]) -> tuple[float, float, float]:
    """Seconds until the translation, processor seconds, and megabytes, of one process."""
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")}
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | threads
    small = [sys.executable, "-S", "-c", MEASURE, *command]
    done = subprocess.run(
        small, env=environment, capture_output=True, text=True, check=True, encoding="utf-8"
    )
    seconds, processor, kilobytes = map(float, done.stdout.split())
    return seconds, processor, kilobytes * 1024 / 1e6


def summary(
    figures: list[tuple[float, ...]], installed: dict[str, float], weights: Path | None
) -> dict[str, object]:
    seconds, processor, memory = zip(*figures, strict=True)
    return {
        "seconds": round(statistics.median(seconds), 3),
        "least_seconds": round(min(seconds), 3),
        "processor_seconds": round(statistics.median(processor), 3),
        "megabytes": round(statistics.median(memory), 1),
        "weights_megabytes": None if weights is None else round(weights.stat().st_size / 1e6, 1),
        "installed_megabytes": round(sum(installed.values()), 1),
        "packages": installed,
    }


if __name__ == "__main__":
    harness.run(main)
