"""Limits of the service: one place for every number that a request can run into."""

from __future__ import annotations

from pydantic import Field

from foveate.config import Config


class Limits(Config):
    """What a request may be, how long it may take, and how much may wait."""

    characters: int = Field(50_000, ge=1)  # of all texts of a request
    items: int = Field(1_000, ge=1)  # texts in the list q
    alternatives: int = Field(10, ge=0)
    body: int = Field(2 * 2**20, ge=1)  # bytes
    file_characters: int = Field(200_000, ge=1)  # of the sentences of a file
    file: int = Field(10 * 2**20, ge=1)  # bytes of a body that brings a file
    seconds: float = Field(60.0, gt=0)  # from the body to the answer
    reading: float = Field(20.0, gt=0)  # seconds in which a head, and then a body, have to come
    rate: float = Field(0.0, ge=0)  # requests a minute of a key or an address; 0: any number
    kept: int = Field(256 * 2**20, ge=1)  # bytes of translated files that wait to be fetched
    minutes: float = Field(20.0, gt=0)  # for which they wait


class Batching(Config):
    """How requests share batches."""

    wait: float = Field(0.005, ge=0)  # seconds that a lonely sentence waits for others
    tokens: int = Field(8192, ge=1)  # of a batch: source tokens × hypotheses, padding included
    window: int = Field(16_384, ge=1)  # characters that are taken together and sorted by length
    queue: int = Field(400_000, ge=1)  # characters that may wait
    workers: int = Field(1, ge=1)  # batches that are answered at a time, one thread each
