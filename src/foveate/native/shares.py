"""Rows shared among threads: the kernels run without the interpreter's lock."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

LEAST = 8  # rows for which a thread of their own pays


def shared(work: Callable[[int, int], None], rows: int, each: int = 1) -> None:
    """``work(first, count)`` for spans of all rows, by at most as many threads as PyTorch has.

    A row that is as much work as ``each`` counts so.
    """
    if rows == 0:
        return
    threads = max(1, min(torch.get_num_threads(), rows, rows * each // LEAST))
    size = -(-rows // threads)
    first, *others = [(start, min(size, rows - start)) for start in range(0, rows, size)]
    begun = [_pool(threads).submit(work, *span) for span in others]
    work(*first)
    for one in begun:
        one.result()


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads - 1, "rows")
