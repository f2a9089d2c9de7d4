"""Hides pandas from pyarrow, which would import pandas as soon as it makes its first array.

PiDTS does not use pandas in its own processes, and importing it takes a quarter of a second and 45 MB in each of them.
Spark uses it: a process that starts Spark makes pandas visible again. In a session that PiDTS starts, Spark's Python
processes do not need pandas, either (`spark/worker_start.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


def hide_pandas() -> None:
    """Makes pandas invisible to imports in this process; for programs, not for libraries."""
    sys.meta_path.insert(0, _NoPandas())


def show_pandas() -> None:
    """Makes pandas visible to imports again, for Spark; pyarrow works without it."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _NoPandas)]


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:  # noqa: ARG002 - the protocol needs them
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)
