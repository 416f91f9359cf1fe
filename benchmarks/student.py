"""Students of one teacher: from references, from its outputs, with more text, with noise.

    python benchmarks/student.py WORK [--steps 3000] [--teacher-minutes 30] [--sentences N]
        [--words N] [--teacher RUN]

Of Tatoeba's English sentences two in a hundred are the test; of the others every second one has its
references (A), the rest is monolingual text (B). Without --teacher a larger model is trained on A
for --teacher-minutes. Students train for equally many steps, so that a busy machine is fair to all.
Figures are of packed files in int8, also on upper-cased and mistyped test sentences.
"""

from __future__ import annotations

import random
import subprocess
import zlib
from pathlib import Path
from typing import Any

import harness
from foveate.data.catalogue import find
from foveate.data.text import decoded_lines
from foveate.exchange.student.make import measured
from foveate.exchange.student.pairs import mistyped, upper_case

LINES = 1000  # of each test set
SMALL = [
    f"model.{side}.{size}"
    for side in ("encoder", "decoder")
    for size in ("num_layers=2", "ffn_size=256")
]
OTHERS = {
    "flores-dev": "flores-200-dev/dev.{}",
    "newstest2014": "newstest2014-en-fr/newstest2014.{}",
}
Rows = list[tuple[str, str]]


def split(work: Path, most: int, words: int) -> Rows:
    """Write A and B, at most so many sentences of so many words; return the test pairs."""
    first = dict[str, str]()
    for english, french in harness.tatoeba():
        if len(english.split()) <= words:
            first.setdefault(english, french)
    parts: dict[str, Rows] = {"test": [], "A": [], "B": []}
    for pair in first.items():
        place = zlib.crc32(pair[0].encode()) % 100
        parts["test" if place < 2 else "AB"[place % 2]].append(pair)
    draw = random.Random(1)
    for name, rows in parts.items():
        draw.shuffle(rows)
        for side, language in enumerate(("en", "fr")):
            text = "".join(row[side] + "\n" for row in rows[:most])
            (work / f"{name}.{language}").write_text(text, "utf-8", newline="\n")
    return parts["test"][:LINES]


def test_sets(own: Rows) -> dict[str, Rows]:
    """The test sets by name, the pairs of each."""
    draw = random.Random(2)
    sets = {"tatoeba": own, "upper-cased": [upper_case(pair, draw) for pair in own]}
    sets["mistyped"] = [mistyped(pair, draw) for pair in own]
    for name, pattern in OTHERS.items():
        sides = ([x for x, _ in decoded_lines(find(pattern.format(c)))] for c in ("en", "fr"))
        sets[name] = list(zip(*sides, strict=True))[:LINES]
    return sets


def made(out: Path, teacher: Path, *words: object) -> Path:
    """The packed file of a student, resumed where it is not finished."""
    command = harness.foveate("student", out, "--teacher", teacher, "--pair", "en:fr", "--yes")
    if not (out / "en-fr.safetensors").is_file():
        subprocess.run([*command, *map(str, words)], check=True)
    return out / "en-fr.safetensors"


def main(
    work: Path,
    steps: int = 3000,
    teacher_minutes: float = 30.0,
    sentences: int = 60_000,
    words: int = 100,
    batch_tokens: int = 3072,
    teacher: Path | None = None,
    json: Path | None = None,
) -> None:
    """Train all, and measure each on every test set."""
    work.mkdir(parents=True, exist_ok=True)
    sets = test_sets(split(work, sentences, words))
    a, b = ["--source", work / "A.en"], ["--source", work / "B.en"]
    size = f"train.batch_tokens={batch_tokens}"
    small = [f"train.max_steps={steps}", "train.max_minutes=none", size, *SMALL]
    files = {}
    if teacher is None:
        longer = ["--minutes", teacher_minutes, size]
        files["teacher"] = made(work / "teacher", work / "A.fr", *a, *longer)
        teacher = work / "teacher" / "run"
    elif teacher.is_file():
        files["teacher"] = teacher
    files["references"] = made(work / "references", work / "A.fr", *a, *small)
    beam = ["--beam-size", 1]
    files["distilled"] = made(work / "distilled", teacher, *a, *beam, *small)
    files["and monolingual"] = made(work / "more", teacher, *a, *b, *beam, *small)
    files["and noise"] = made(work / "noise", teacher, *a, *b, *beam, *small, "--noise", 0.3)
    results: dict[str, dict[str, Any]] = {}
    for name, file in files.items():
        results[name] = {}
        for test, rows in sets.items():
            figures = measured(file, [x for x, _ in rows], [y for _, y in rows])
            results[name][test] = {key: round(value, 2) for key, value in figures.items()}
            print(name, test, results[name][test], flush=True)
    settings = {"steps": steps, "teacher_minutes": teacher_minutes, "batch_tokens": batch_tokens}
    settings |= {"sentences": sentences, "words": words, "lines": LINES}
    what = f"a teacher and its students after {steps:,} steps each, on a processor"
    harness.write("student", {"what": what, "settings": settings, "students": results}, json)


if __name__ == "__main__":
    harness.run(main)
