"""10,000 hostile lines in, 10,000 lines out, in order; what was cut is reported.

    python benchmarks/lines.py RUN

Empty lines, lines of 5,000 words, emoji, control characters, right-to-left text and bytes that are
no UTF-8 go through ``foveate translate``; every tenth line is a plain sentence whose translation is
compared with that of the sentence alone.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import harness

COUNT = 10_000
PLAIN = [b"A dog runs in the grass.", b"Two men sit on a bench.", b"A woman is reading a book."]
HOSTILE = [
    b"",
    b"   ",
    "😀 👩‍👩‍👧‍👦 🏳️‍🌈".encode(),
    "مرحبا بالعالم ، كيف حالك؟".encode(),
    "\u202eabc\u202c שלום".encode(),
    b"tab\tand \x00 \x01 \x1b[31m control \x7f",
    "line\u2028separator \x85 \x0b \x0c".encode(),
    b"\xff\xfe broken \xc3( bytes",
    b"</s> <s> <unk> <pad>",
    "e\u0301" * 30 + "\u200b\ufeff".encode().decode(),
    b"\r inside",
]


def lines() -> list[bytes]:
    """The input, the same at every call."""
    chance = random.Random(1)
    hostile = [line if isinstance(line, bytes) else line.encode() for line in HOSTILE]
    result = []
    for i in range(COUNT):
        if i % 10 == 0:
            result.append(PLAIN[i // 10 % len(PLAIN)])
        elif i in (1234, 8765):
            result.append(b"word " * 5000)
        else:
            result.append(chance.choice(hostile))
    return result


def translate(run: Path, text: bytes) -> tuple[list[bytes], str]:
    command = harness.foveate("translate", run, "--beam-size", "1")
    done = subprocess.run(command, input=text, capture_output=True, check=False)
    if done.returncode:
        sys.exit(done.stderr.decode())
    return done.stdout.split(b"\n"), done.stderr.decode()


def main(run: Path) -> None:
    texts = lines()
    started = time.perf_counter()
    answers, report = translate(run, b"\n".join(texts) + b"\n")
    seconds = time.perf_counter() - started
    alone, _ = translate(run, b"\n".join(PLAIN) + b"\n")
    plain_right = all(answers[i] == alone[i // 10 % len(PLAIN)] for i in range(0, COUNT, 10))
    empty_right = all(not answers[i] for i, line in enumerate(texts) if not line.strip())
    result = {
        "what": "hostile lines through foveate translate, greedy",
        "lines_in": len(texts),
        "lines_out": len(answers) - 1,
        "plain_sentences_as_if_alone": plain_right,
        "empty_stay_empty": empty_right,
        "report": report.splitlines(),
        "seconds": round(seconds, 1),
    }
    print(harness.write("hostile-lines", result).read_text(encoding="utf-8"))
    if not (len(answers) - 1 == COUNT and plain_right and empty_right):
        sys.exit("FAILED")


if __name__ == "__main__":
    harness.run(main)
