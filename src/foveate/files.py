"""Files that are replaced atomically, never half written; locks; the cache folder."""

import contextlib
import errno
import glob
import os
import platform
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


def replace_file(path: Path, content: str | bytes, mode: int | None = None) -> None:
    """Write a file, text as UTF-8, so that it appears whole or not at all (`replacing`).

    ``mode`` are its permissions from the start. Raises ``OSError`` with the file's name.
    """
    with replacing(path, mode) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


def write_text(path: Path, text: str) -> None:
    """Write a file that no other process reads meanwhile, as UTF-8 and with LF on every system."""
    path.write_text(text, encoding="utf-8", newline="\n")


@contextlib.contextmanager
def replacing(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """Open a file to write piece by piece; it gets its name if the block ends without an error.

    Links are followed: the file behind one is replaced, with its permissions. A device, a FIFO or a
    standard stream is written to directly. Raises ``FileNotFoundError`` if the folder does not
    exist, and ``OSError`` with the file's name if the disk rejects it; then the old file is
    unchanged.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: the folder {path.parent} does not exist; make it first")
    target = Path(os.path.realpath(path))
    part: Path | None = None
    try:
        if (path.exists() and not path.is_file()) or STREAMS.match(os.path.abspath(path)):
            with path.open("ab") as file:  # /dev/stdout may lead to a file behind >>
                yield file
            return
        if mode is None and target.exists():
            mode = stat.S_IMODE(target.stat().st_mode) & 0o777
        part = part_of(target)
        with part.open("wb") as file:
            if mode is not None:
                part.chmod(mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        try:
            os.replace(part, target)
        except PermissionError as error:  # on Windows
            reason = f"{error.strerror}: if another program has it open, close it there"
            raise OSError(error.errno, reason, str(part)) from error
        sync(target.parent)
    except OSError as error:
        if error.strerror and error.filename in (None, path, str(path), part, str(part)):
            state = "what was there is kept" if path.exists() else "nothing was written"
            raise OSError(error.errno, f"{error.strerror}; {state}", str(path)) from error
        raise
    finally:
        if part is not None:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)


STREAMS = re.compile(r"/dev/(?:stdin|stdout|stderr|fd/)|/proc/(?:self|thread-self|\d+)/")


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows has no folder handles to wait for
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold a lock between processes, which the system also releases if a process is killed.

    Raises ``filelock.Timeout`` if another process holds it and ``wait`` is false. A network folder
    may not support locks; then every process gets it.
    """
    from filelock import FileLock, Timeout  # its import takes longer than the rest of this module

    lock = FileLock(path, timeout=-1 if wait else 0)
    try:
        lock.acquire()
    except OSError as error:
        if isinstance(error, Timeout) or error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP):
            raise
    try:
        yield
    finally:
        lock.release()


def part_of(path: Path) -> Path:
    """Return this process's temporary file for ``path``; remove those of killed processes.

    Raises ``OSError`` if the path has no name, like "" and ".".
    """
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    host = re.sub(r"[^\w-]", "-", platform.node())[:20]
    forms = re.compile(rf"\.{re.escape(path.name)}\.{host}\.(\d+)\.part")
    with contextlib.suppress(OSError):
        for left in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
            owner = forms.fullmatch(left.name)
            if owner is not None and not _lives(int(owner[1])):
                remove(left)
    return path.with_name(f".{path.name}.{host}.{os.getpid()}.part")


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """Return the content of a regular file, not of a device or pipe, which might never end.

    Raises ``OSError`` for these, and for a file of more than ``most`` bytes.
    """
    if not path.is_file() and path.exists():
        raise OSError(errno.EINVAL, "this is not a regular file, and is not read", str(path))
    if most is not None and (size := path.stat().st_size) > most:
        message = f"it has {size:,} bytes; at most {most:,} are read"
        raise OSError(errno.EFBIG, message, str(path))
    return path.read_bytes()


def split_lines(text: str) -> list[str]:
    """Return the lines of a text, which end in LF or CRLF and nothing else, such as U+2028."""
    lines = text.removesuffix("\n").split("\n") if text else []
    return [line.removesuffix("\r") for line in lines]


def remove(place: Path) -> None:
    """Remove a file or a folder, if it exists."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    elif os.path.lexists(place):  # a read-only disk rejects even a missing file
        place.unlink()


def _lives(process: int) -> bool:
    """Return whether a process of this host is alive; True if that is unknown."""
    if os.name == "nt":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def cache_folder() -> Path:
    """Return the cache: ``$XDG_CACHE_HOME/foveate`` or ``~/.cache/foveate``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "foveate"
