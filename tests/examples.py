"""How many random examples a test looks at."""

from __future__ import annotations

import os

EXAMPLES = int(os.environ.get("PIDTS_EXAMPLES", "0"))
"""Of each such test, in place of its own number; 0 leaves that."""


def examples(usual: int) -> int:
    """`usual` is for a run whose time counts. Other runs look at other examples, so a small number finds much in time."""
    return EXAMPLES or usual
