"""Who is let in: keys, rates, and what the client is called in queues and logs."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
import secrets
from dataclasses import dataclass

from fastapi import Request

from foveate.config import ConfigError
from foveate.serve.asking import Fields, read_fields
from foveate.serve.errors import Refused
from foveate.serve.keys import KeyFile
from foveate.serve.rates import Buckets
from foveate.serve.settings import Limits

HALF = 64  # bits of an IPv6 address that are one household's
log = logging.getLogger("foveate.serve")
_SALT = secrets.token_bytes(16)  # of this process: hashes in logs lead back to nobody


@dataclass(frozen=True)
class Visit:
    """A request that was let in: its fields, and whose it is."""

    fields: Fields
    client: str


class Door:
    """Asks for keys where there is a file of them, and counts how often everyone comes."""

    def __init__(self, limits: Limits, keys: KeyFile | None = None) -> None:
        self.limits, self.keys = limits, keys
        self._buckets = Buckets()

    async def admit(self, request: Request) -> Visit:
        """Read the body and let it in.

        Raises `Refused`: 400 for a body that cannot be read, 403 without a valid key, 408 where
        the body does not come, 429 for who comes too often.
        """
        try:
            async with asyncio.timeout(self.limits.reading):
                fields = await read_fields(request)
        except TimeoutError:
            raise Refused(408, "the body did not come in time") from None
        return Visit(fields, self.client(request, str(fields.get("api_key") or "")))

    def client(self, request: Request, said: str = "") -> str:
        """What the client is called, by its key or else its address; takes one of its tokens."""
        said = said or request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        address = household(request.client.host if request.client else "")
        if self.keys is None:
            return self._counted(request, f"address:{address}", self.limits.rate)
        try:
            key = self.keys.find(said) if said else None
        except ConfigError as error:
            log.error("cannot read keys", extra={"why": str(error)})
            raise Refused(503, "the keys cannot be read", 10) from None
        if key is None:
            self._counted(request, f"address:{address}", self.limits.rate)
            raise Refused(
                403, "this key is not valid" if said else "this server asks for an api_key"
            )
        rate = self.limits.rate if key.rate is None else key.rate
        return self._counted(request, f"key:{key.name}", rate)

    def _counted(self, request: Request, client: str, rate: float) -> str:
        request.state.record.client = anonymous(client)
        if rate and (wait := self._buckets.take(client, rate)):
            raise Refused(429, f"slow down: {rate:g} requests a minute", wait)
        return client


def household(address: str) -> str:
    """An address as rates are counted by it: of IPv6 the first half."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((found, HALF), strict=False).network_address)
    return str(found)


def anonymous(client: str) -> str:
    """A name for logs that says which requests belong together until the server ends."""
    return hashlib.blake2b(client.encode(), digest_size=6, key=_SALT).hexdigest()
