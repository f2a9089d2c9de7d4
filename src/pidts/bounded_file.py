"""Reads the small text files that a task or a command names, such as a task file, a password or a script."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

_MOST_BYTES: Final = 16 << 20
"""The largest number of bytes that are read: a device such as `/dev/zero` has no end, and no file is this large."""


def read_small(path: Path, most: int = _MOST_BYTES) -> str:
    """Returns the text of a file or pipe. Raises OSError if it is too long, UnicodeDecodeError if it is not text."""
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"{os.strerror(errno.EFBIG)}: it has more than {most >> 20} MiB", str(path))
    # Every line ends with one character, as in Python's text mode.
    return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
