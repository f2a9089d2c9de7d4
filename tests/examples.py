"""How many random examples a test looks at."""

from __future__ import annotations

import math
import os

EXAMPLES = int(os.environ.get("PIDTS_EXAMPLES", "0"))
"""Of each such test, in place of its own number; 0 leaves that."""


def examples(usual: int) -> int:
    """`usual` is how many a thorough run needs. Runs whose time counts look at two thirds of them, and at others each time,
    so that a small number finds much in time."""
    return EXAMPLES or math.ceil(usual * 2 / 3)
