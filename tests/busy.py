"""Makes the machine busy: far more to do than it can."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

LOAD = 30
LONGEST = 900
"""Loops end by themselves after so many seconds."""
_LOOP = f"import time\nend = time.monotonic() + {LONGEST}\nwhile time.monotonic() < end: pass"


@contextmanager
def busy_machine() -> Iterator[float]:
    """Loops that fill the load up to 30; where others make it higher already, there are none."""
    loops = [subprocess.Popen([sys.executable, "-c", _LOOP]) for _ in range(max(0, LOAD - round(os.getloadavg()[0])))]
    try:
        deadline = time.monotonic() + 120
        while os.getloadavg()[0] < LOAD - 2 and time.monotonic() < deadline:
            time.sleep(1)
        yield os.getloadavg()[0]
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
