"""Keys of the interface: made here, known to nobody afterwards, kept as hashes in a file.

A key is 256 random bits, so that one round of SHA-256 is enough: what cannot be guessed need not
be hashed slowly. The file is JSON lines: name, the key's beginning, its hash, its rate.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from foveate.config import ConfigError
from foveate.files import replace_file

PREFIX = "fov_"
SHOWN = 8  # characters by which people tell keys apart


@dataclass(frozen=True)
class Key:
    """What is kept of a key; ``rate`` is in requests a minute, 0 for any number."""

    name: str
    begins: str
    sha256: str
    made: str
    rate: float | None = None


KEY = TypeAdapter(Key)


class KeyFile:
    """The keys of a file, read anew when it changes."""

    def __init__(self, path: Path) -> None:
        """Raises ``ConfigError`` where the file is there and cannot be understood."""
        self.path = path
        self._stamp: tuple[int, int] | None = None
        self._keys: list[Key] = []
        self.all()

    def all(self) -> list[Key]:
        """All keys that are valid now; none where there is no file."""
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            self._stamp, self._keys = None, []
            return []
        stamp = stat.st_mtime_ns, stat.st_size
        if stamp != self._stamp:
            self._keys, self._stamp = _read(self.path), stamp
        return self._keys

    def find(self, said: str) -> Key | None:
        """The key that somebody says, compared with each in constant time."""
        digest = _hash(said)
        found = None
        for key in self.all():
            if hmac.compare_digest(key.sha256, digest):
                found = key
        return found

    def add(self, name: str, rate: float | None = None) -> str:
        """Make a key; it is returned once and kept nowhere."""
        if any(key.name == name for key in self.all()):
            raise ConfigError(f"{self.path}: there is a key {name} already; remove it first")
        key = PREFIX + secrets.token_urlsafe(32)
        made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._write([*self.all(), Key(name, key[:SHOWN], _hash(key), made, rate)])
        return key

    def remove(self, name: str) -> None:
        """Forget a key; running servers notice. Raises ``ConfigError`` where there is none."""
        left = [key for key in self.all() if key.name != name]
        if len(left) == len(self.all()):
            known = ", ".join(key.name for key in self.all()) or "none"
            raise ConfigError(f"{self.path} has no key {name}; there are: {known}")
        self._write(left)

    def _write(self, keys: Sequence[Key]) -> None:
        content = "".join(json.dumps(asdict(key)) + "\n" for key in keys)
        replace_file(self.path, content, mode=0o600)


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _read(path: Path) -> list[Key]:
    keys = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            key = Key(**json.loads(line))
            KEY.validate_python(asdict(key))
            bytes.fromhex(key.sha256)
            keys.append(key)
        except (ValueError, TypeError, RecursionError):
            raise ConfigError(f"{path}:{number} is no key; add keys: foveate serve keys") from None
    return keys
