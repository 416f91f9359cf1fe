"""What the server says of its quality, what glossaries do, and clients of DeepL and LibreTranslate.

    python benchmarks/service.py RUN [--pairs FILE]

RUN translates from English to French and has its data beside it, such as the run of ``foveate
quickstart``. It is packed and served by a process that cannot import PyTorch. ``--pairs`` are
further sentences, English TAB French a line, of which those are taken that the run was not trained
on.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import deepl
import httpx
import numpy as np
import typer
from libretranslatepy import LibreTranslateAPI  # type: ignore[import-untyped]
from sacrebleu.metrics.chrf import CHRF
from scipy import stats

import harness
from foveate.data.words import split_words
from foveate.documents.memory import holds

Pairs = list[tuple[str, str]]
OFTEN, LIKELY, SECOND = 30, 0.4, 0.08  # of a term: sentences, and Dice of its translations
SHARE = 100  # sentences of a request


# ------------------------------------------------------------------------------ data, server


def pairs_of(run: Path, split: str) -> Pairs:
    """The pairs of a split of the run's data."""
    task = tomllib.loads((run / "config.toml").read_text("utf-8"))["task"]
    sides = (
        Path(task[side].format(split=split)).read_text("utf-8") for side in ("source", "target")
    )
    return list(zip(*(side.splitlines() for side in sides), strict=True))


def further(path: Path, seen: set[str], most: int) -> Pairs:
    """Pairs of a file that the run has not seen, each source once, spread over the file."""
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    pairs = {fields[0]: fields[1] for line in lines if len(fields := line.split("\t")) >= 2}
    new = [pair for pair in pairs.items() if pair[0] not in seen]
    return new[:: max(1, len(new) // most)][:most]


@contextmanager
def served(file: Path, folder: Path) -> Iterator[str]:
    """The address of a server of a packed file, in a process without PyTorch."""
    blocked = "import sys\nsys.modules['torch'] = None\n"
    (folder / "sitecustomize.py").write_text(blocked, encoding="utf-8", newline="\n")
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        harness.foveate("serve", file, "--as", "en:fr", "--port", 0, "--log-level", "error"),
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        encoding="utf-8",
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[1].rstrip("/")
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


def ask(url: str, texts: Sequence[str], **fields: Any) -> dict[str, list[Any]]:
    """The answers of /translate to texts, some at a time."""
    result: dict[str, list[Any]] = {"translatedText": [], "quality": []}
    for start in range(0, len(texts), SHARE):
        body = {"q": list(texts[start : start + SHARE]), "source": "en", "target": "fr", **fields}
        answer = httpx.post(f"{url}/translate", json=body, timeout=300).raise_for_status().json()
        for name, values in result.items():
            values += answer.get(name, [])
    return result


def chrf(text: str, reference: str) -> float:
    return float(CHRF().sentence_score(text, [reference]).score)


# ------------------------------------------------------------------------------ quality


def quality(url: str, pairs: Pairs) -> dict[str, Any]:
    """How the log-probability of sentences goes with their chrF; texts of one sentence count."""
    answers = ask(url, [source for source, _ in pairs], quality=True)
    rows = [
        (own[0]["logProbability"], own[0]["tokens"], chrf(text, right))
        for text, own, (_, right) in zip(*answers.values(), pairs, strict=True)
        if len(own) == 1
    ]
    log_p, tokens, right = np.array(rows, dtype=float).T
    fifths = np.array_split(np.argsort(log_p / tokens, kind="stable"), 5)
    return {
        "sentences": len(rows),
        "chrf": round(float(right.mean()), 2),
        "correlation_with_chrf": {
            "log p of a token": correlations(log_p / tokens, right),
            "log p of the sentence": correlations(log_p, right),
            "length": correlations(-tokens, right),
        },
        "chrf_by_fifths": [round(float(right[f].mean()), 2) for f in fifths],
    }


def correlations(a: Any, b: Any) -> dict[str, float]:
    """Pearson's, Spearman's and Kendall's."""
    return {
        "pearson": round(float(stats.pearsonr(a, b).statistic), 3),
        "spearman": round(float(stats.spearmanr(a, b).statistic), 3),
        "kendall": round(float(stats.kendalltau(a, b).statistic), 3),
    }


# ------------------------------------------------------------------------------ glossaries


def words_of(text: str) -> set[str]:
    lowered = text.lower()
    words = (lowered[start:end] for start, end in split_words(lowered))
    return {word for word in words if re.fullmatch(r"[^\W\d_]{4,}", word)}


def glossaries(train: Pairs) -> dict[str, dict[str, str]]:
    """Words with their likeliest translation, and with the next one that is another word.

    Likeness is Dice's: 2 n(e, f) / (n(e) + n(f)), n the number of pairs that hold the words.
    """
    ours, theirs, both = Counter[str](), Counter[str](), Counter[tuple[str, str]]()
    for source, target in train:
        own, other = words_of(source), words_of(target)
        ours.update(own)
        theirs.update(other)
        both.update((e, f) for e in own for f in other)
    ranked: dict[str, list[tuple[float, str]]] = {}
    for (e, f), n in both.items():
        if ours[e] >= OFTEN and n >= 5:
            ranked.setdefault(e, []).append((2 * n / (ours[e] + theirs[f]), f))
    usual, other = dict[str, str](), dict[str, str]()
    for e, likely in ranked.items():
        likely.sort(reverse=True)
        (best, first), *rest = likely
        if best >= LIKELY:
            usual[e] = first
            second = next(((p, f) for p, f in rest if f[:3] != first[:3]), (0.0, ""))
            if second[0] >= SECOND:
                other[e] = second[1]
    return {"usual": usual, "other": other}


def kept(url: str, pairs: Pairs, glossary: dict[str, str]) -> dict[str, Any]:
    """The share of terms that translations hold, without the glossary and with it."""
    terms = {e: (f,) for e, f in glossary.items()}
    held = [(s, t, [terms[w] for w in sorted(words_of(s) & terms.keys())]) for s, t in pairs]
    chosen = [each for each in held if each[2]]
    result: dict[str, Any] = {
        "entries": len(glossary),
        "sentences": len(chosen),
        "terms": sum(len(own) for _, _, own in chosen),
    }
    some = {w: f for w, f in glossary.items() if any(w in words_of(s) for s, _, _ in chosen)}
    for name, fields in (("without", {}), ("with", {"glossary": some})):
        texts = ask(url, [source for source, _, _ in chosen], **fields)["translatedText"]
        both = zip(texts, chosen, strict=True)
        there = [holds(text, term) for text, (_, _, own) in both for term in own]
        right = [[target for _, target, _ in chosen]]
        result[name] = {
            "share_of_terms": round(sum(there) / len(there), 4),
            "chrf": round(float(CHRF().corpus_score(texts, right).score), 2),
        }
    return result


# ------------------------------------------------------------------------------ clients


def clients(url: str, lines: Sequence[str]) -> dict[str, Any]:
    """What each client gets, beside what /translate answers."""
    own = ask(url, lines)["translatedText"]
    term = own[0].split()[0] + "e"
    forced = ask(url, lines[:1], glossary={lines[0].split()[0]: term})["translatedText"]
    client = deepl.DeepLClient("none", server_url=url)
    glossary = client.create_glossary("a", "EN", "FR", {lines[0].split()[0]: term})
    languages = {"source_lang": "EN", "target_lang": "FR"}
    by_glossary = client.translate_text(lines[0], **languages, glossary=glossary).text
    many = client.translate_text(list(lines), **languages)
    client.delete_glossary(glossary)
    libre = LibreTranslateAPI(url)
    result: dict[str, Any] = {
        "deepl": {
            "version": version("deepl"),
            "equal": [each.text for each in many] == own,
            "equal_with_glossary": [by_glossary] == forced,
        },
        "libretranslatepy": {
            "version": version("libretranslatepy"),
            "equal": [libre.translate(line, "en", "fr") for line in lines] == own,
        },
    }
    return {"sentences": len(lines), "clients": result}


def main(
    run: Annotated[Path, typer.Argument()],
    pairs: Annotated[Path | None, typer.Option(help="further pairs, .tsv.gz")] = None,
    most: Annotated[int, typer.Option(help="of the further pairs")] = 3000,
    out: Path | None = None,
) -> None:
    """Pack, serve, measure."""
    data = {split: pairs_of(run, split) for split in ("train", "valid", "test")}
    seen = {source for split in data.values() for source, _ in split}
    held_out = further(pairs, seen, most) if pairs is not None else data["test"]
    with TemporaryDirectory() as name:
        file = Path(name) / "model.safetensors"
        command = harness.foveate("pack", run, file)
        subprocess.run(command, check=True, stdout=sys.stderr)
        with served(file, Path(name)) as url:
            result: dict[str, Any] = {
                "quality": {"test sentences of the run": quality(url, data["test"])},
                "glossary": {},
            }
            if pairs is not None:
                result["quality"]["further sentences"] = quality(url, held_out)
            for kind, glossary in glossaries(data["train"]).items():
                result["glossary"][kind] = kept(url, held_out, glossary)
            result |= clients(url, [source for source, _ in data["test"][:20]])
    path = harness.write("service", result, out)
    print(f"{path}: {json.dumps(result, indent=1)}")


if __name__ == "__main__":
    harness.run(main)
