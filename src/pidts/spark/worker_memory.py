"""What a Python worker of Spark has loaded is left out of the garbage collections that Spark makes it do.

Spark has each of its workers collect all garbage after every task. With our libraries loaded that goes through a
million objects that nobody will ever give up: a fifth of the time of a full copy, whose tasks are short.
"""

from __future__ import annotations

import gc
from functools import cache


@cache
def keep_what_is_loaded() -> None:
    """Once in each process, by its first task, whose coming has loaded all that later ones need."""
    gc.collect()
    gc.freeze()
