"""Many command lines in one process of their own: python command_lines.py JOBS.json

JOBS.json holds, by name, the arguments of ``foveate`` and the text of standard input; the exit code
and the output of each are written to JOBS.done.
"""

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

from foveate.__main__ import main as run


class Stream(io.TextIOWrapper):
    """Standard output or error in memory: text, and the bytes below it."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def text(self) -> str:
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode("utf-8", "backslashreplace")


def answer(arguments: list[str], text: str) -> dict[str, Any]:
    """Exit code, standard output and standard error of one command line."""
    out, err, code = Stream(), Stream(), 0
    sys.argv = ["foveate", *arguments]
    saved, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(text.encode()))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            run()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except Exception as error:
            code = 70
            print(f"TRACEBACK {error!r}", file=err)
        finally:
            sys.stdin = saved
    return {"exit": code, "stdout": out.text(), "stderr": err.text()}


if __name__ == "__main__":
    jobs = Path(sys.argv[1])
    answers = {name: answer(*job) for name, job in json.loads(jobs.read_text("utf-8")).items()}
    jobs.with_suffix(".done").write_text(json.dumps(answers), "utf-8")
