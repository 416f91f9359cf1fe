"""What a folder of translations knows of its making: parts that are done, files that are done.

    OUT/.foveate/job.json     the choices that all of it was made with
    OUT/.foveate/parts/…      translated parts, under the digests of their sources
    OUT/.foveate/done.jsonl   a line for each file that is whole

Each file appears whole or not at all, so a job that was stopped at any moment goes on. Does not
live here: translating (`hands`).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foveate.config import ConfigError
from foveate.files import replace_file, replacing
from foveate.verbs.corpus.hands import Answer, Noted, closed, opened
from foveate.verbs.corpus.parts import Part, Source


class Job:
    """The state of one job in its output folder. Raises ``ConfigError`` where it has another."""

    def __init__(self, out: Path, choices: Mapping[str, Any], names: Sequence[str]) -> None:
        self.out, self.folder = out, out / ".foveate"
        self.parts = self.folder / "parts"
        plain: dict[str, Any] = json.loads(json.dumps(choices))
        if (self.folder / "job.json").exists():
            self._refuse_others(plain)
        else:
            for name in names:
                if (out / name).exists():
                    raise ConfigError(f"{out / name} is there already; give another --out")
            self.parts.mkdir(parents=True, exist_ok=True)
            replace_file(self.folder / "job.json", json.dumps(plain, indent=2) + "\n")
        self.parts.mkdir(exist_ok=True)
        self.done = self._read_done()

    def _refuse_others(self, choices: dict[str, Any]) -> None:
        before = json.loads((self.folder / "job.json").read_text("utf-8"))
        for key in sorted(before.keys() | choices.keys()):
            old, new = before.get(key), choices.get(key)
            if old != new:
                raise ConfigError(
                    f"{self.out} was begun with {key} = {json.dumps(old)}, now it is "
                    f"{json.dumps(new)}; go on as it was begun, or give another --out"
                )

    # ---- parts

    def place(self, part: Part) -> Path:
        """Where the translation of a part is kept."""
        return self.parts / part.digest

    def keep(self, part: Part, answer: Answer) -> None:
        """Keep the translation of a part."""
        replace_file(self.place(part), closed(*answer))

    def missing(self, parts: Sequence[Part]) -> list[Part]:
        """Those parts that are not kept."""
        return [part for part in parts if not self.place(part).exists()]

    # ---- files

    def whole(self, source: Source) -> Noted | None:
        """What happened in a file that is done and lies there as it was written; else None."""
        found = self.done.get(source.name)
        path = self.out / source.name
        if found is None or found["source"] != source.digest or not path.is_file():
            return None
        return found["noted"] if path.stat().st_size == found["size"] else None

    def join(self, source: Source) -> Noted:
        """Put the parts of a file together, and note it as done."""
        noted: Noted = {}
        target = self.out / source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as file:
            for part in source.parts:
                text, happened = opened(self.place(part).read_bytes())
                file.write(text)
                for what, lines in happened.items():
                    noted.setdefault(what, []).extend(part.first - 1 + line for line in lines)
            size = file.tell()
        line = {"file": source.name, "source": source.digest, "size": size, "noted": noted}
        with (self.folder / "done.jsonl").open("ab") as log:
            log.write(b"\n" + json.dumps(line).encode())  # a torn line before it stays one line
            log.flush()
            os.fsync(log.fileno())
        self.done[source.name] = line
        return noted

    def _read_done(self) -> dict[str, dict[str, Any]]:
        path, found = self.folder / "done.jsonl", {}
        for text in path.read_bytes().split(b"\n") if path.exists() else []:
            try:
                line = json.loads(text)
            except ValueError:
                continue  # empty, or torn when the job was stopped
            found[line["file"]] = line
        return found

    def finish(self) -> None:
        """Remove what only an unfinished job needs."""
        shutil.rmtree(self.parts, ignore_errors=True)
