"""Coroutines in tests that share a process with a browser, whose loop stays running."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """Run to its end in a thread of its own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, main).result(60)
