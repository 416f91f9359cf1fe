"""What the verbs of language models do: prompts in, texts out, as they come where one looks on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from foveate.data.readers import read_lines

if TYPE_CHECKING:
    from foveate.run import Run

RULE = "-" * 40  # between two texts, which may have many lines


def prompts(given: str | None, stdin: BinaryIO | None, damaged: list[int]) -> list[str]:
    """The prompt that was given, or a line of standard input each, or an empty one.

    Lines that are not UTF-8 are read with U+FFFD, and their numbers added to ``damaged``.
    """
    if stdin is None:
        return [given or ""]
    return list(read_lines(stdin, damaged)) or [""]


def generate(
    run: Run, starts: Sequence[str], target: TextIO, choices: dict[str, Any], as_json: bool
) -> None:
    """Write each prompt with its continuations. ``choices`` go to ``run.generate``.

    On a terminal a single text appears as it is made. Texts are divided by a rule; as JSON each is
    an object on a line of its own.
    """
    alone = len(starts) == 1 and choices.get("num", 1) == 1 and "beam_size" not in choices
    if target.isatty() and alone and not as_json:
        _stream(run, starts[0], target, choices)
        return
    for number, found in enumerate(run.generate(starts, **choices)):
        if as_json:
            target.write(json.dumps(asdict(found), ensure_ascii=False) + "\n")
        else:
            target.write(f"{RULE}\n" * (number > 0) + f"{found}\n")


def _stream(run: Run, start: str, target: TextIO, choices: dict[str, Any]) -> None:
    done = 0
    target.write(start)

    def listen(text: str) -> None:
        nonlocal done
        whole = text.rstrip("\ufffd")  # of a character of which bytes are still to come
        target.write(whole[done:])
        target.flush()
        done = max(done, len(whole))

    (found,) = run.generate([start], listen=listen, **choices)
    target.write(found.text[done:] + "\n")
