"""A language added to a translator: from scratch, from its weights, and by adapters.

    python benchmarks/adding.py FOLDER [--pairs 5000] [--base-steps 1000] [--steps 200]

FOLDER gets the runs; a run that is there is not trained again, and its processor time and memory
are left out. The base learns English to French and German on Multi30k; then Czech is added from
PAIRS pairs: by a model of its own, by training all of the base, by training it with as many old
pairs beside, and by LoRA and DoRA (the tables of tokens trained whole). Each is evaluated on
test_2016_flickr in all three languages, by one thread with beam 5. Writes docs/results/adding.json,
or ``--out``.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sacrebleu

import harness

SET, TEST = "multi30k", "test_2016_flickr"
SHARED = """
[data]
splits = {{ valid = "val", test = "test_2016_flickr" }}

[objective]
label_smoothing = 0.1

[train]
batch_tokens = 2048
max_steps = {steps}
optimizer = {{ kind = "adamw", lr = {rate} }}
schedule = {{ kind = "cosine", warmup_steps = {warmup} }}
save = {{ every = {steps}, keep = 1 }}
validation = {{ every = {steps}, samples = 0 }}
"""
CORPUS = '[[task.corpora]]\nsource = "{source}"\ntarget = "{target}"\ntag = "<2{language}>"\n'
MODEL = '[model]\nkind = "transformer-tiny"\n'
START = '[start]\nrun = "{base}"\nvocabulary = "extend"\nlike = {{ "<2cs>" = "<2de>" }}\n'
TABLES = '"*embedding.weight", "output.*"'
ARMS = {  # whether old pairs are beside, the learning rate, and further lines of [train]
    "scratch": (False, 3e-3, ""),
    "all": (False, 1e-3, ""),
    "all, old pairs beside": (True, 1e-3, ""),
    "lora": (False, 3e-3, f'adapter = {{ kind = "lora", rank = 16, whole = [{TABLES}] }}\n'),
    "dora": (False, 3e-3, f'adapter = {{ kind = "dora", rank = 16, whole = [{TABLES}] }}\n'),
}


def main(
    folder: Path,
    pairs: int = 5000,
    base_steps: int = 1000,
    steps: int = 200,
    out: Path = harness.RESULTS / "adding.json",
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", pairs), ("val", None)):
        for language in ("en", "cs", "fr", "de"):
            lines = list(lines_of(split, language))[:count]
            name = "valid" if split == "val" else split
            text = "".join(f"{line}\n" for line in lines)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8", newline="\n")
    base, whole = folder / "base", harness.DATA / SET
    corpora = "".join(corpus(whole, language) for language in ("fr", "de"))
    bpe = '[task]\nkind = "translation"\ntokenizer = { kind = "bpe", vocab_size = %d }\n'
    shared = SHARED.format(steps=base_steps, rate=3e-3, warmup=200)
    base_cost = train(base, bpe % 5000 + corpora + MODEL + shared)
    result: dict[str, Any] = {"pairs": pairs, "base": base_cost | scores(base, ("fr", "de"))}
    for name, (beside, rate, more) in ARMS.items():
        languages = ("cs", "fr", "de") if beside else ("cs",)
        corpora = "".join(corpus(folder, language) for language in languages)
        alone = name == "scratch"
        size = 3000 if alone else 7000
        begin = MODEL if alone else START.format(base=base)
        shared = SHARED.format(steps=steps, rate=rate, warmup=50)
        shared = shared.replace('splits = { valid = "val", test = "test_2016_flickr" }', "")
        run = folder / name.replace(", ", "-").replace(" ", "-")
        cost = train(run, bpe % size + corpora + begin + shared + more)
        result[name] = cost | scores(run, ("cs",) if alone else ("cs", "fr", "de"))
        harness.write("adding", result, out)
        print(name, result[name], file=sys.stderr, flush=True)
    page = harness.ROOT / "docs" / "guide" / "starting.md"
    harness.fill(page, "adding", table(result))
    print(out.read_text(encoding="utf-8"))


def table(result: dict[str, Any]) -> str:
    """The results as a table of the guide: chrF by language, and MB of a checkpoint."""
    lines = ["| trained | en→cs | en→fr | en→de | checkpoint, MB |", "|---|---|---|---|---|"]
    for name, row in result.items():
        if isinstance(row, dict) and "checkpoint_mb" in row:
            chrf = (str(row[each]["chrf"]) if each in row else "–" for each in ("cs", "fr", "de"))
            lines.append(f"| {name} | {' | '.join(chrf)} | {row['checkpoint_mb']} |")
    return "\n".join(lines)


def corpus(folder: Path, language: str) -> str:
    files = (str(folder / f"{{split}}.{side}") for side in ("en", language))
    return CORPUS.format(source=next(files), target=next(files), language=language)


def lines_of(split: str, language: str) -> Iterator[str]:
    with gzip.open(harness.DATA / SET / f"{split}.{language}.gz", "rt", encoding="utf-8") as file:
        yield from (line.rstrip("\n") for line in file)


def train(run: Path, config: str) -> dict[str, Any]:
    """Train a config, unless its run is there; return time, memory, bytes of a checkpoint."""
    cost: dict[str, Any] = {}
    if not (run / "best.json").is_file():
        file = run.with_suffix(".toml")
        file.write_text(config, encoding="utf-8", newline="\n")
        process = subprocess.Popen(harness.foveate("train", file, "--run", run), env=single())
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"training {run.name} failed")
        cost["processor_minutes"] = round((usage.ru_utime + usage.ru_stime) / 60, 2)
        cost["peak_mib"] = round(usage.ru_maxrss / 1024)
    [checkpoint, *_] = sorted((run / "checkpoints").glob("step-*"), reverse=True)
    sizes = (file.stat().st_size for file in checkpoint.glob("*.safetensors"))
    return cost | {"checkpoint_mb": round(sum(sizes) / 1e6, 2)}


def scores(run: Path, languages: tuple[str, ...]) -> dict[str, Any]:
    """BLEU and chrF of a run on the test set, by language."""
    sources = "".join(f"{line}\n" for line in lines_of(TEST, "en"))
    result = {}
    for language in languages:
        command = harness.foveate("translate", run, "--to", language, "--beam-size", 5)
        done = subprocess.run(
            command, input=sources, stdout=subprocess.PIPE, check=True, env=single(), text=True,
            encoding="utf-8",
        )  # fmt: skip
        outputs, references = done.stdout.splitlines(), [list(lines_of(TEST, language))]
        result[language] = {
            "bleu": round(sacrebleu.corpus_bleu(outputs, references).score, 2),
            "chrf": round(sacrebleu.corpus_chrf(outputs, references).score, 2),
        }
    return result


def single() -> dict[str, str]:
    return dict(os.environ) | {"OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"}


if __name__ == "__main__":
    harness.run(main)
