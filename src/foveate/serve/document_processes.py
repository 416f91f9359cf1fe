"""Read and write documents in separate processes, so that a hostile file ends only a process.

A process is killed when a step takes too long, and when its client leaves.
The steps of a document are its `SENTENCES`, the `PAIRS` of sentences and translations whose words
need links, and the `WRITTEN` bytes. No step depends on an earlier one: a process that has just
processed another document reads the file again.
"""

import asyncio
import base64
import json
import logging
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from typing import Any, Literal

import numpy as np

from foveate.data.corpus import Arrays, Worker, WorkerError
from foveate.documents.base import Document, DocumentOptions
from foveate.documents.formats import read_document
from foveate.documents.spans import Rules
from foveate.documents.translate import Pair, Passage, joined_all
from foveate.errors import UserError, message_of, place
from foveate.serve.common import JsonValue, RequestError

PROCESSES = 2  # each file may take hundreds of MiB while it is read or written
File = dict[str, str]
Step = Literal["sentences", "pairs", "written"]
log = logging.getLogger("foveate.serve")


def file_of(kind: str, data: bytes, rules: Rules, source: str | None, to: str, most: int) -> File:
    """Return a file in a format and a language (None: as the file declares), to be translated.

    Its sentences may have ``most`` characters.
    """
    file = {"kind": kind, "data": base64.b64encode(data).decode(), "to": to}
    return file | {"source": source or "", "rules": json.dumps(rules.own), "most": str(most)}


class DocumentWork:
    """The work of a process: a step of a document; the last document is cached."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._read = "", Document([], lambda texts: b"")

    def __call__(self, step: Step, file: File, *values: Any) -> Arrays:
        """Return the answer as bytes; errors of the user and of the program have their own keys."""
        try:
            answer = self._answer(step, file, *values)
        except UserError as error:
            return {"error": _bytes(message_of(error).encode())}
        except MemoryError:
            raise
        except Exception as error:
            return {"bug": _bytes(f"{type(error).__name__} at {place(error)}".encode())}
        return {"answer": _bytes(answer), "untranslated": np.array(len(self._read[1].stayed))}

    def _answer(self, step: Step, file: File, lines: Any = (), links: Any = ()) -> bytes:
        passages = (document := self._document(file)).passages
        if step == "sentences":
            sentences, size = document.sentences, sum(map(len, document.sentences))
            return json.dumps([size, sentences if size <= int(file["most"]) else []]).encode()
        answers, of_pairs = document.answers(lines), iter(links)
        if step == "pairs":
            each = map(Passage.pairs, passages, answers)
            return json.dumps(list(chain.from_iterable(each))).encode()
        return document.written(
            joined_all(passages, answers, lambda pairs: list(islice(of_pairs, len(pairs))))
        )

    def _document(self, file: File) -> Document:
        key = json.dumps(file)
        if self._read[0] != key:
            rules = Rules(tuple(json.loads(file["rules"])))
            options = DocumentOptions(rules, file["to"], source=file["source"] or None)
            data = base64.b64decode(file["data"])
            self._read = key, read_document(file["kind"], data, options, "the file")
        return self._read[1]


def _bytes(content: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(content, dtype=np.uint8)


class DocumentProcesses:
    """Processes that read and write documents, each started when it is needed."""

    seconds = 20.0  # for a step

    def __init__(self) -> None:
        self._idle: list[Worker] = []
        self._free = asyncio.Semaphore(PROCESSES)

    async def sentences(self, file: File) -> list[str]:
        """Return all passages' sentences. Raises `RequestError` (413) for too many characters."""
        size, sentences = json.loads((await self._step("sentences", file))[0])
        if size > (most := int(file["most"])):
            raise RequestError(413, f"{size:,} characters at once; at most {most:,}")
        return list(sentences)

    async def pairs(self, file: File, lines: Sequence[str]) -> list[Pair]:
        """Return the sentences and translations whose words need links."""
        answer, _ = await self._step("pairs", file, lines)
        return [(source, target) for source, target in json.loads(answer)]

    async def written(
        self, file: File, lines: Sequence[str], links: Sequence[JsonValue]
    ) -> tuple[bytes, int]:
        """Return the document with translated lines, and how many sentences are untranslated."""
        return await self._step("written", file, lines, links)

    async def _step(
        self, step: Step, file: File, *values: Sequence[JsonValue]
    ) -> tuple[bytes, int]:
        """Return the result of a step; its process is killed if the caller is cancelled.

        Raises `RequestError` (400) for a document that cannot be read, or takes too long.
        """
        async with self._free:
            worker = self._taken()

            def work() -> Arrays:
                try:
                    return worker([step, file, *values])
                except BaseException:
                    worker.close()
                    raise

            try:
                async with asyncio.timeout(self.seconds):
                    arrays = await asyncio.to_thread(work)
                self._idle.append(worker)
            except (WorkerError, TimeoutError):
                why = f"more than {self.seconds:g} seconds to read, or too much memory"
                raise RequestError(
                    400, f"the file takes {why}: split it and translate the parts"
                ) from None
            finally:
                if worker not in self._idle:
                    worker.kill()
        if "bug" in arrays:
            log.error("failed", extra={"why": arrays["bug"].tobytes().decode()})
            raise RuntimeError("a document was not read or written")
        if "error" in arrays:
            raise RequestError(400, arrays["error"].tobytes().decode())
        return arrays["answer"].tobytes(), int(arrays["untranslated"])

    def _taken(self) -> Worker:
        """Return an idle process, or a new one."""
        while self._idle:
            if (worker := self._idle.pop()).alive:
                return worker
            worker.close()
        return Worker(DocumentWork, {})

    def close(self) -> None:
        """End the processes."""
        while self._idle:
            self._idle.pop().close()
