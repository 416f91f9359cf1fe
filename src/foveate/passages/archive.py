"""Zip archives from anywhere, unpacked within bounds before another library reads them.

What an archive says of its sizes is not believed: members are read bit by bit, and what was read
becomes a new archive, in memory.
"""

from __future__ import annotations

import io
import zipfile

from foveate.config import ConfigError

MIB = 2**20
MEMBERS = 5_000
UNPACKED = 100 * MIB  # bytes of all members
XML = 32 * MIB  # bytes of all members that are XML
MARKS = 2_000_000  # of < and = in these: elements and attributes, each of which takes some memory
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # those of office documents
CHUNK = 65_536


def bounded(data: bytes, where: str) -> bytes:
    """The same archive, its members as they are in truth, not compressed.

    Raises ``ConfigError`` for what is none, for members above the bounds of this module, and for
    XML with a DTD, for such files need no entities of their own.
    """
    out, names = io.BytesIO(), set[str]()
    size = xml = marks = 0
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
            if len(old.infolist()) > MEMBERS:
                raise ConfigError(f"{where} holds more than {MEMBERS:,} files")
            for info in old.infolist():
                if info.filename in names or info.compress_type not in METHODS:
                    raise ConfigError(f"{where}: {info.filename} is there twice, or packed oddly")
                names.add(info.filename)
                member = _read(old, info, UNPACKED - size, where)
                size += len(member)
                if _is_xml(member):
                    xml += len(member)
                    marks += member.count(b"<") + member.count(b"=")
                    _refuse_dtd(member, f"{where}: {info.filename}")
                if xml > XML or marks > MARKS:
                    raise ConfigError(
                        f"{where} holds more than {XML // MIB} MiB of XML, or more than {MARKS:,} "
                        "elements and attributes; translate it in parts"
                    )
                new.writestr(info.filename, member)
    except (
        zipfile.BadZipFile,
        OSError,
        EOFError,
        RuntimeError,
        ValueError,
        ArithmeticError,
    ) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{where} is no DOCX file: {error}") from None
    return out.getvalue()


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo, most: int, where: str) -> bytes:
    """A member. Raises ``ConfigError`` as soon as it has more bytes than that."""
    found = bytearray()
    with archive.open(info) as file:
        while chunk := file.read(CHUNK):
            found += chunk
            if len(found) > most:
                raise ConfigError(f"{where} holds more than {UNPACKED // MIB} MiB, unpacked")
    return bytes(found)


def _is_xml(data: bytes) -> bool:
    return data[:64].lstrip(b"\xef\xbb\xbf\xfe\xff\0 \t\r\n")[:1] == b"<"


def _refuse_dtd(data: bytes, where: str) -> None:
    if b"<!DOCTYPE" in data or b"<!DOCTYPE" in data.replace(b"\0", b""):
        raise ConfigError(f"{where} cannot be read: it declares entities of its own")
