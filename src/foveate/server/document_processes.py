"""Documents read and written in processes of their own, which a hostile file can end, not harm.

A process has bounded processor time for each step, and is killed when its client leaves.
The steps of a document are its `SENTENCES`, the `PAIRS` of sentences and translations whose words
are to be linked, and the `WRITTEN` bytes. No step depends on one before: a process that has just
done another document reads the file again.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import numpy as np

from foveate.data.corpus import Arrays, Worker, WorkerError
from foveate.documents.formats import Document, DocumentOptions, read_document
from foveate.documents.spans import Rules
from foveate.documents.translate import Pair, joined_all
from foveate.errors import UserError, innermost, message_of
from foveate.server.common import JsonValue, RequestError

PROCESSES = 2  # each file may take hundreds of MiB while it is read or written
SECONDS = 20.0  # of processor time for a step
Step = Literal["sentences", "pairs", "written"]
log = logging.getLogger("foveate.server")


# ------------------------------------------------------------------------------ in the process


class DocumentWork:
    """What a process does: a step of a document, the last of which it remembers."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.seconds: float = values["seconds"]
        self._read = "", Document([], lambda texts: b"")

    def __call__(self, step: Step, file: dict[str, str], *values: Any) -> Arrays:
        """The answer as bytes; an error of the user, or of the program, under its own name."""
        _limit_processor_time(self.seconds)
        try:
            answer = self._answer(step, file, *values)
        except UserError as error:
            return {"error": _bytes(message_of(error).encode())}
        except MemoryError:
            raise
        except Exception as error:
            last = innermost(error)
            why = f"{type(error).__name__} at {last.filename}:{last.lineno}"
            return {"bug": _bytes(why.encode())}
        return {"answer": _bytes(answer)}

    def _answer(
        self,
        step: Step,
        file: dict[str, str],
        lines: Sequence[str] = (),
        links: Sequence[list[tuple[int, int]]] = (),
    ) -> bytes:
        document = self._document(file)
        if step == "sentences":
            return json.dumps([passage.sentences for passage in document.passages]).encode()
        left = iter(lines)
        answers = [list(islice(left, len(passage.sentences))) for passage in document.passages]
        if step == "written":
            of_pairs = iter(links)
            texts = joined_all(
                document.passages, answers, lambda pairs: list(islice(of_pairs, len(pairs)))
            )
            return document.written(texts)
        both = zip(document.passages, answers, strict=True)
        return json.dumps(
            [pair for passage, lines in both for pair in passage.pairs(lines)]
        ).encode()

    def _document(self, file: dict[str, str]) -> Document:
        key = json.dumps(file)
        if self._read[0] != key:
            rules = Rules(tuple(json.loads(file["rules"])))
            options = DocumentOptions(rules, file["to"], source=file["source"] or None)
            data = base64.b64decode(file["data"])
            self._read = key, read_document(file["kind"], data, options, "the file")
        return self._read[1]


def _bytes(content: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(content, dtype=np.uint8)


def _limit_processor_time(seconds: float) -> None:
    """End this process after so much more processor time, where the system can do that."""
    try:
        import resource
    except ImportError:  # Windows: the request's time remains
        return
    soft = int(time.process_time() + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))


# ------------------------------------------------------------------------------ in the server


@dataclass(frozen=True)
class UploadedDocument:
    """A file whose passages are translated, and the processes that read and write it."""

    processes: DocumentProcesses
    file: dict[str, str]

    async def sentences(self) -> list[list[str]]:
        """The sentences of each passage."""
        sentences: list[list[str]] = json.loads(await self.processes.step("sentences", self.file))
        return sentences

    async def pairs(self, lines: Sequence[str]) -> list[Pair]:
        """The sentences and translations whose words are to be linked."""
        content = await self.processes.step("pairs", self.file, lines)
        return [(source, target) for source, target in json.loads(content)]

    async def written(self, lines: Sequence[str], links: Sequence[JsonValue]) -> bytes:
        """The document with a line in place of each sentence."""
        return await self.processes.step("written", self.file, lines, links)


class DocumentProcesses:
    """Processes that read and write documents, each started when it is needed."""

    def __init__(self, count: int = PROCESSES, seconds: float = SECONDS) -> None:
        """``seconds`` are the processor time of a step."""
        self.seconds = seconds
        self._idle: list[Worker] = []
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="documents")

    def document(
        self, kind: str, data: bytes, rules: Rules, source: str | None, to: str
    ) -> UploadedDocument:
        """A file of a format, in a language (None: as the file says), for another."""
        file = {"kind": kind, "data": base64.b64encode(data).decode(), "to": to}
        file |= {"source": source or "", "rules": json.dumps(rules.own)}
        return UploadedDocument(self, file)

    async def step(self, step: Step, file: dict[str, str], *values: Sequence[JsonValue]) -> bytes:
        """The result of a step; its process is killed where the caller is cancelled.

        Raises `RequestError` (400) for a document that cannot be read, or takes too long.
        """
        task = _Task(self, [step, file, *values])
        try:
            arrays = await asyncio.wrap_future(self._threads.submit(task.run))
        except WorkerError:
            message = (
                f"the file takes more than {self.seconds:g} seconds to read, or too much memory"
            )
            raise RequestError(400, f"{message}: translate it in parts") from None
        finally:
            task.stop()
        if "error" in arrays:
            raise RequestError(400, arrays["error"].tobytes().decode())
        if "bug" in arrays:
            log.error("failed", extra={"why": arrays["bug"].tobytes().decode()})
            raise RuntimeError("a document was not read or written")
        return arrays["answer"].tobytes()

    def take(self) -> Worker:
        """A process that is free, or a new one."""
        while self._idle:
            if (worker := self._idle.pop()).alive:
                return worker
            worker.close()
        return Worker(DocumentWork, {"seconds": self.seconds})

    def put(self, worker: Worker) -> None:
        """A process that has done its step."""
        self._idle.append(worker)

    def close(self) -> None:
        """End the processes."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        while self._idle:
            self._idle.pop().close()


class _Task:
    """A step that waits for a process, is done by one, or is over."""

    def __init__(self, processes: DocumentProcesses, values: Sequence[object]) -> None:
        self.processes, self.values = processes, values
        self._worker: Worker | None = None
        self._stopped = False

    def run(self) -> Arrays:
        """Do the step; in a thread."""
        self._worker = worker = self.processes.take()
        if self._stopped:
            worker.kill()
        try:
            arrays = worker(self.values)
        except BaseException:
            worker.close()
            raise
        self._worker = None
        self.processes.put(worker)
        return arrays

    def stop(self) -> None:
        """The caller has its answer, or has left."""
        self._stopped = True
        if (worker := self._worker) is not None:
            worker.kill()
