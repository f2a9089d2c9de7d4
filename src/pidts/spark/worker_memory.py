"""The memory of Spark's Python workers: what is collected, and what is given back to the system.

Spark has each of its workers collect all garbage after every task. With our libraries loaded that goes through a
million objects that nobody will ever give up: a fifth of the time of a full copy, whose tasks are short.

The C library gives large arrays back as soon as they are freed, see `pidts.spark.session`, so that a worker is no
larger than its work. A copy's chunks are alike, though, and every page that is given back has to be asked for again and
is wiped first: a quarter of a worker's time. So it keeps them until its task is done.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Names of the C library's settings, in its malloc.h."""
_KEPT = 256 << 20
"""The free bytes that stay at the end of an arena."""
_LARGEST = 32 << 20
"""Larger arrays are given back nevertheless: the most that the C library takes."""
_DEFAULT = 128 << 10
"""The value of both settings where nobody sets them."""


@cache
def keep_what_is_loaded() -> None:
    """Freezes what is loaded, once in each process.

    The process's first task does this: its start has loaded all that later tasks need.
    """
    gc.collect()
    gc.freeze()


@contextmanager
def memory_kept() -> Iterator[None]:
    """Uses freed memory again within the block, and gives all of it back at the end."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):  # it is glibc's
        yield
        return
    library.mallopt(_MMAP_THRESHOLD, _LARGEST)
    library.mallopt(_TRIM_THRESHOLD, _KEPT)
    try:
        yield
    finally:
        library.mallopt(_MMAP_THRESHOLD, int(os.environ.get("MALLOC_MMAP_THRESHOLD_", _DEFAULT)))
        library.mallopt(_TRIM_THRESHOLD, int(os.environ.get("MALLOC_TRIM_THRESHOLD_", _DEFAULT)))
        library.malloc_trim(0)
