"""Makes the machine busy, with far more work than it can do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

LOAD = 30
LONGEST = 900
"""The number of seconds after which a loop ends by itself."""
_LOOP = f"import time\nend = time.monotonic() + {LONGEST}\nwhile time.monotonic() < end: pass"


@contextmanager
def busy_machine() -> Iterator[float]:
    """Starts loops until the load is 30. If other processes already make a higher load, it starts none."""
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
