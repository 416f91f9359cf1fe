"""Memory that a step frees stays with the process, for the next step wants as much again."""

from __future__ import annotations

import ctypes

_TRIM, _MAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of mallopt(3)


def keep_freed_memory() -> None:
    """Tell glibc to give nothing back below 1 GiB, and to map no block below 32 MiB by itself.

    What is given back is zeroed page by page when it is asked for again, which costs more than
    most operations of a step. Other C libraries are left as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM, 1 << 30)
        mallopt(_MAP, 32 << 20)  # the most that it takes
