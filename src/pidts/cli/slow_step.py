"""Says what a command waits for, if this takes longer than a user waits without doubt."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SECONDS = 2.0


@contextmanager
def said_if_slow(text: str, seconds: float = _SECONDS) -> Iterator[None]:
    """Prints the text on stderr once if the block takes longer than `seconds`."""
    timer = threading.Timer(seconds, print, [text], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
