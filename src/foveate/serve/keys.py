"""API keys and rates: keys are stored as hashes in a file, and each client has a token bucket.

A key has 256 random bits, so one round of SHA-256 is enough: a slow hash protects only guessable
secrets. The file is JSON lines: name, the first characters of the key, its hash, its rate.
"""

import hashlib
import hmac
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter

from foveate.config import ConfigError
from foveate.files import locked, replace_file

PREFIX = "fov_"
SHOWN = 8  # characters of a key that lists show
MOST_CLIENTS = 100_000  # with a bucket; the client idle for longest loses its bucket first


@dataclass(frozen=True)
class ApiKey:
    """The stored data of a key; ``rate`` is in requests per minute, 0 for any number."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    begins: str
    sha256: str
    made: str
    rate: float | None = None


API_KEY = TypeAdapter(ApiKey)


class KeyFile:
    """The keys in a file, which is read again when it changes."""

    def __init__(self, path: Path) -> None:
        """Raise ``ConfigError`` if the file exists and is invalid."""
        self.path = path
        self._lock = Path(f"{path}.lock")  # of changes, across all processes
        self._stamp: tuple[int, int] | None = None
        self._keys: list[ApiKey] = []
        self.all()

    def all(self) -> list[ApiKey]:
        """Return all keys that are valid now; none without a file."""
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            self._stamp, self._keys = None, []
            return []
        stamp = stat.st_mtime_ns, stat.st_size
        if stamp != self._stamp:
            self._keys, self._stamp = _read(self.path), stamp
        return self._keys

    def find(self, secret: str) -> ApiKey | None:
        """Return the entry of a key, compared with each one in constant time."""
        digest, match = _hash(secret), None
        for key in self.all():
            if hmac.compare_digest(key.sha256, digest):
                match = key
        return match

    def add(self, name: str, rate: float | None = None) -> str:
        """Create a key; it is returned once and not stored."""
        key = PREFIX + secrets.token_urlsafe(32)
        made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with locked(self._lock):
            if any(key.name == name for key in self.all()):
                raise ConfigError(f"{self.path} has a key {name} already; remove it first")
            self._write([*self.all(), ApiKey(name, key[:SHOWN], _hash(key), made, rate)])
        return key

    def remove(self, name: str) -> None:
        """Remove a key; running servers notice. Raises ``ConfigError`` if there is none."""
        with locked(self._lock):
            left = [key for key in self.all() if key.name != name]
            if len(left) == len(self.all()):
                known = ", ".join(key.name for key in self.all()) or "none"
                raise ConfigError(f"{self.path} has no key {name}; there are: {known}")
            self._write(left)

    def _write(self, keys: Sequence[ApiKey]) -> None:
        content = "".join(json.dumps(asdict(key)) + "\n" for key in keys)
        replace_file(self.path, content, mode=0o600)


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _read(path: Path) -> list[ApiKey]:
    keys = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            keys.append(API_KEY.validate_json(line))
            bytes.fromhex(keys[-1].sha256)
        except ValueError:
            raise ConfigError(
                f"{path}:{number} is not a key: add keys with foveate serve keys add"
            ) from None
    return keys


class TokenBuckets:
    """A token bucket for each of a bounded number of clients.

        tokens(t) = min(B, tokens(t₀) + r (t − t₀)),   a request takes one token

    with r tokens per second and capacity B, the tokens of a minute.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets = OrderedDict[Hashable, tuple[float, float]]()  # tokens, and when

    def take(self, client: Hashable, per_minute: float) -> float:
        """Take a token: return 0, or the seconds until there is one."""
        rate, room, now = per_minute / 60, max(1.0, per_minute), self._clock()
        tokens, then = self._buckets.pop(client, (room, now))
        tokens = min(room, tokens + rate * (now - then))
        wait = 0.0 if tokens >= 1 else (1 - tokens) / rate
        self._buckets[client] = (tokens if wait else tokens - 1), now
        if len(self._buckets) > MOST_CLIENTS:
            self._buckets.popitem(last=False)
        return wait
