"""Glossaries that clients store in the server: in memory, or in files that survive it."""

import json
import threading
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from foveate.config import ConfigError
from foveate.files import replace_file
from foveate.serve.common import RequestError

Entries = dict[str, str]  # translation by term


@dataclass(frozen=True)
class StoredGlossary:
    """A client's glossary, of a language pair such as "en:fr"."""

    id: str
    name: str
    owner: str  # the client; "" on a server without keys
    created: str
    pair: str
    entries: Entries


STORED = TypeAdapter(StoredGlossary)


class GlossaryStore:
    """The glossaries of all clients, who see only their own; ``folder`` stores them as files."""

    def __init__(self, most: int, folder: Path | None = None) -> None:
        """Raise ``ConfigError`` for a file in the folder that is not a glossary."""
        self.most, self.folder = most, folder
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(f"--glossaries {folder}: {error.strerror}") from None
        self._lock = threading.Lock()
        self._stored: dict[str, StoredGlossary] = {}
        for path in sorted(folder.glob("*.json")) if folder is not None else ():
            try:
                glossary = STORED.validate_json(path.read_bytes())
            except ValueError:
                raise ConfigError(f"{path} is not a glossary of a server; remove it") from None
            self._stored[glossary.id] = glossary

    def new(self, name: str, owner: str, pair: str, entries: Entries) -> StoredGlossary:
        """Store a glossary. Raises `RequestError` (456) if there are too many."""
        created = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        id = str(uuid.uuid4())
        with self._lock:
            if len(self._stored) >= self.most:
                message = f"the server has {self.most:,} glossaries already; delete one"
                raise RequestError(456, message)
            glossary = StoredGlossary(id, name, owner, created, pair, entries)
            if self.folder is not None:
                content = json.dumps(asdict(glossary), ensure_ascii=False, indent=1)
                replace_file(self.folder / f"{glossary.id}.json", content + "\n", mode=0o600)
            self._stored[glossary.id] = glossary
            return glossary

    def get(self, id: str, owner: str) -> StoredGlossary:
        """Return a client's glossary. Raises `RequestError` (404) if it has none with this id."""
        glossary = self._stored.get(id)
        if glossary is None or glossary.owner != owner:
            raise RequestError(404, "no glossary has this id: GET /v2/glossaries lists them")
        return glossary

    def of(self, owner: str) -> list[StoredGlossary]:
        """Return all glossaries of a client, the oldest first."""
        return [glossary for glossary in list(self._stored.values()) if glossary.owner == owner]

    def delete(self, id: str, owner: str) -> None:
        """Delete a glossary. Raises `RequestError` (404) if the client has none with this id."""
        with self._lock:
            self.get(id, owner)
            del self._stored[id]
            if self.folder is not None:
                (self.folder / f"{id}.json").unlink(missing_ok=True)
