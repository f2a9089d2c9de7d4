"""Decompresses zlib streams from compiled code, with the zlib library that Python's own `zlib` uses.

The rows of each compressed event of MariaDB are a zlib stream, mostly of a few hundred bytes. Calling Python for each
stream would take longer than decompressing it.
"""

from __future__ import annotations

import ctypes
import zlib

from pidts.binlog.jit import inline, invoke, load64, store64

MOST_TIMES = 1032
"""No stream decompresses to more than this many times its size."""


def _address() -> int:
    """Returns the address of zlib's function `uncompress`; 0 if the library in this Python does not export it."""
    try:
        # If the module has no file, it is a part of Python itself, as is the zlib library.
        function = ctypes.CDLL(getattr(zlib, "__file__", None)).uncompress
    except (OSError, AttributeError):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0


UNCOMPRESS = _address()


@inline
def inflate(uncompress: int, at: int, end: int, target: int, size: int, done: int) -> bool:
    """Decompresses the stream from `at` to `end`.

    Returns False if the stream is not valid, or does not decompress to exactly `size` bytes. `uncompress` is
    `UNCOMPRESS`. It is an argument, since cached machine code must not contain the address, which differs in the next
    process. `done` is the address of a number in which zlib returns a size.
    """
    if uncompress == 0 or size == 0:  # zlib does not compare the size of a stream with 0
        return False
    store64(done, size)
    result = invoke(uncompress, target, done, at, end - at)
    return bool(result & 0xFFFFFFFF == 0 and load64(done) == size)
