"""Tunes the memory of Spark's Python workers: garbage collection, and the return of memory to the system.

Spark makes each worker run a full garbage collection after every task. The collection would visit a million objects of
the loaded libraries, which are never freed. This would take a fifth of the time of a full copy, because its Spark tasks
are short. So these objects are excluded from the collection.

So that a worker needs little memory, the C library returns large arrays to the system as soon as they are freed, see
`pidts.spark.session`. But in a copy, each chunk would request these pages again, and the system clears each page first.
This would take a quarter of a worker's time. So a worker keeps freed memory until its Spark task is done.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""The numbers of two settings of the C library, as its malloc.h defines them."""
_KEPT = 256 << 20
"""The number of free bytes that stay at the end of an arena."""
_LARGEST = 32 << 20
"""The highest value that the C library accepts. Larger arrays are always returned to the system."""
_DEFAULT = 128 << 10
"""The default value of the trim threshold and of the mmap threshold."""


@cache
def keep_what_is_loaded() -> None:
    """Excludes all loaded objects from garbage collection, once in each process.

    The process's first task calls this, since by then everything that later tasks need is loaded.
    """
    gc.collect()
    gc.freeze()


@contextmanager
def memory_kept() -> Iterator[None]:
    """Keeps freed memory for reuse inside the block, and returns all of it at the end."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):  # only glibc has this function
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
