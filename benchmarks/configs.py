"""Every config sets up, trains two steps and validates: python benchmarks/configs.py [PART…]

Reads the real data (FOVEATE_DATA). PART picks the configs whose path holds one of the words; the
results of others stay, and the machine is that of the last part. A config that starts from another
run gets that run, trained as briefly. What fails is shown at the end, with its last line.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Annotated, Any

from typer import Argument

import harness
from foveate.data import synthetic

CONFIGS = harness.ROOT / "configs"
BRIEF = ["train.max_steps=2", "train.validation.every=2", "train.save.every=2"]
BRIEF += ['train.schedule={kind="constant"}']  # warm-up would be longer than two steps


def main(parts: Annotated[list[str] | None, Argument(metavar="PART…")] = None) -> None:
    chosen = [
        p for p in sorted(CONFIGS.rglob("*.toml")) if any(part in str(p) for part in parts or [""])
    ]
    results: dict[str, Any] = {}
    if any(path.stem.startswith("everyday") for path in chosen):  # texts that a tool writes
        command = [sys.executable, harness.ROOT / "tools" / "models.py", "data"]
        subprocess.run(command, check=True, cwd=harness.ROOT, stdout=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        for path in chosen:
            name = str(path.relative_to(CONFIGS))
            results[name] = train(path, Path(folder))
            print(f"{name}: {results[name]['seconds']} s, {results[name]['said']}", flush=True)
    failed = [name for name, result in results.items() if result["exit_code"]]
    kept = harness.previous("configs").get("configs", {}) if parts else {}
    results_of_all = dict(sorted((kept | results).items()))
    print(harness.write("configs", {"configs": results_of_all}))
    sys.exit(f"{len(failed)} of {len(results)} failed: {', '.join(failed)}" if failed else 0)


def train(path: Path, folder: Path) -> dict[str, Any]:
    """Two steps of a config in a run of its own under ``folder``."""
    run = folder / path.stem
    changes, text = list(BRIEF), path.read_text(encoding="utf-8")
    start = tomllib.loads(text).get("start")
    if "{folder}" in text:  # a recipe of benchmarks/speedrun.py, on the embedded grammar
        synthetic.write(folder / "data", {"train": 2_000, "valid": 200, "test": 200})
        path = folder / path.name
        path.write_text(text.replace("{folder}", str(folder)), encoding="utf-8", newline="\n")
    if start is not None:
        name = Path(start["run"]).name
        (first,) = CONFIGS.rglob(f"{name}.toml")
        if not (folder / name).exists():
            train(first, folder)
        changes.append(f'start.run="{folder / name}"')
    started = time.perf_counter()
    command = harness.foveate("train", path, "--run", run, *changes)
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=harness.ROOT, encoding="utf-8"
    )
    lines = (done.stderr if done.returncode else done.stdout + done.stderr).strip().splitlines()
    return {
        "exit_code": done.returncode,
        "seconds": round(time.perf_counter() - started, 1),
        "said": lines[-1].replace(str(folder), "runs") if lines else "",
    }


if __name__ == "__main__":
    harness.run(main)
