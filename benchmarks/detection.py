"""How often a server finds the language of a text: alone, cut short, and in mixed batches.

    python benchmarks/detection.py [--lines 300]

Real requests to `foveate serve` with copies of the packaged translator under eight names, from cs
to tr, all into French, so that eight source languages can be asked for. Texts are lines of FLORES
dev, whole, cut to five words, to two and to one (Japanese: 10, 4 and 2 characters). ``detect`` is
POST /detect, which knows 97 languages; ``translate`` is POST /translate with source=auto, which
chooses among the eight that the server can translate, in lists of 8 texts in random order. Results
go to docs/results/detection.json.
"""

from __future__ import annotations

import gzip
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import httpx

import harness
from foveate.config import PACKAGED

LANGUAGES = ("cs", "de", "en", "es", "fi", "hu", "ja", "tr")
CUTS = {"whole": (10_000, 10_000), "5 words": (5, 10), "2 words": (2, 4), "1 word": (1, 2)}
PORT, BATCH, WAIT = 8397, 8, 60  # texts of a request; seconds


def cut(text: str, language: str, words: int, characters: int) -> str:
    """The beginning of a text; a language without blanks is cut by characters."""
    return text[:characters] if language == "ja" else " ".join(text.split()[:words])


@contextmanager
def served() -> Iterator[httpx.Client]:
    """A client of a server that translates from each language."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{code}-fr.safetensors" for code in LANGUAGES]
        for file in files:
            shutil.copy(PACKAGED / "en-fr" / "packed.safetensors", file)
        names = [word for f in files for word in ("--as", f"{f.stem}={f.stem.replace('-', ':')}")]
        line = harness.foveate("serve", *files, *names, "--port", PORT)
        server = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=WAIT) as client:
                for _ in range(WAIT):
                    try:
                        client.get("/health").raise_for_status()
                        break
                    except httpx.HTTPError:
                        time.sleep(1)
                yield client
        finally:
            server.terminate()
            server.wait()


def detected(client: httpx.Client, texts: Sequence[str]) -> list[str]:
    """The first language that /detect gives for each text."""
    answers = [client.post("/detect", json={"q": text}).raise_for_status() for text in texts]
    return [answer.json()[0]["language"] for answer in answers]


def translated(client: httpx.Client, texts: Sequence[str]) -> list[str]:
    """The language from which each text of a mixed list is translated."""
    body = {"q": list(texts), "source": "auto", "target": "fr"}
    answer = client.post("/translate", json=body).raise_for_status().json()
    assert len(answer["translatedText"]) == len(texts)
    return [each["language"] for each in answer["detectedLanguage"]]


def shares(languages: Sequence[str], found: Sequence[str]) -> dict[str, float]:
    """The share of texts whose language is found, for each language and for all."""
    pairs = list(zip(languages, found, strict=True))
    own = {code: [a == b for a, b in pairs if a == code] for code in LANGUAGES}
    own["all"] = [a == b for a, b in pairs]
    return {name: round(sum(right) / len(right), 3) for name, right in own.items()}


def main(lines: int = 300, json: Path | None = None) -> None:
    """Write the shares of texts whose language is found, by cut and language."""
    rows = list[tuple[str, str]]()
    for code in LANGUAGES:
        file = harness.DATA / "flores-200-dev" / f"dev.{code}.gz"
        texts = gzip.decompress(file.read_bytes()).decode().split("\n")
        rows += [(code, text) for text in texts[:lines]]
    random.Random(0).shuffle(rows)
    codes = [code for code, _ in rows]
    results = dict[str, Any]()
    with served() as client:
        for name, sizes in CUTS.items():
            texts = [cut(text, code, *sizes) for code, text in rows]
            mixed = [translated(client, texts[k : k + BATCH]) for k in range(0, len(texts), BATCH)]
            results[name] = {
                "detect": shares(codes, detected(client, texts)),
                "translate": shares(codes, list(chain.from_iterable(mixed))),
            }
            print(name, {way: row["all"] for way, row in results[name].items()}, flush=True)
    harness.write("detection", {"texts": len(rows), "batch": BATCH, "right": results}, json)


if __name__ == "__main__":
    harness.run(main)
